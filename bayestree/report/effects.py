"""Which columns matter, how sure that is, and the direction in which they move the prediction."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.description import FittedModel
from bayestree.plots._explanations import Dependence
from bayestree.report.rows import LabelledRows, PermutationImportance
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

MOST = 12  # columns whose direction is measured
MEASURED = 100  # columns up to which the loss is measured: it predicts all rows for each of them
LOSS_ROWS = 300  # maximum number of rows for the loss
LOSS_DRAWS = 40  # maximum number of draws
CURVE_ROWS, CURVE_POINTS = 60, 15  # of a partial dependence
ONE_WAY = 0.9  # share of the changes along a curve from which it rises or falls


class Range(NamedTuple):
    """A number with the ends of its 90 % interval."""

    value: float
    low: float
    high: float


class Effect(NamedTuple):
    """The effect of a column on the predictions.

    ``loss`` and ``votes`` are those of ``estimator.importance``, None if they were not measured.
    The ``curve`` shows the prediction of class ``output`` (0 of numbers), and ``trend`` its
    course: "rises", "falls", "both", "levels" of a category, or "unclear" if a constant
    lies within the intervals at all values.
    """

    column: int
    curve: Dependence
    output: int
    trend: str
    loss: Range | None = None
    votes: Range | None = None

    @property
    def known(self) -> IntArray:
        """Numbers of the values that are not missing."""
        return np.flatnonzero(~pd.isna(self.curve.grid))

    @property
    def mean(self) -> FloatArray:
        """Mean prediction at each of these values."""
        return self.curve.mean[self.known]


def measured_effects(
    estimator: FittedModel,
    trees: Sequence[RoutedTree],
    rows: LabelledRows,
    importance: PermutationImportance,
) -> list[Effect]:
    """Measure the effects of the columns that matter most, the most important one first.

    They are ordered by the loss, or by ``importance`` if there are very many columns.
    """
    fitted = cast(Any, estimator)
    table = _losses(fitted, trees, rows)
    if table is None:
        order = np.argsort(-importance.total, kind="stable")[:MOST]
        order = order[importance.total[order] > 0]
    else:
        used = (table["votes"] > 0) | (table["loss"] > 0)
        order = table.index.to_numpy()[used.to_numpy()][:MOST]
    found = []
    for column in order.tolist():
        curve = fitted.partial_dependence(
            rows.X, column, grid=CURVE_POINTS, max_rows=CURVE_ROWS, level=0.9
        )
        output = _moved_most(curve.mean)
        mean, low, high, each = (
            one[..., output] for one in (curve.mean, curve.low, curve.high, curve.curves)
        )
        shown = Dependence(curve.feature, curve.grid, mean, low, high, each, "")
        effect = Effect(column, shown, output, trend_of(shown))
        if table is not None:
            line = table.loc[column]
            loss, votes = (
                Range(*(float(line[f"{name}{end}"]) for end in ("", "_low", "_high")))
                for name in ("loss", "votes")
            )
            effect = effect._replace(loss=loss, votes=votes)
        found.append(effect)
    return found


def _losses(fitted: Any, trees: Sequence[RoutedTree], rows: LabelledRows) -> pd.DataFrame | None:
    """Tabulate loss and votes by number of the column, the largest loss first."""
    names = fitted.encoding_.names
    if rows.y is None or len(names) > MEASURED or not all(isinstance(t, Tree) for t in trees):
        return None
    known = rows.weights > 0
    if fitted.fitted_.response.classifies:
        known &= np.isin(rows.y, fitted.fitted_.response.labels)
    rows = rows.taken(np.flatnonzero(known)).sample(LOSS_ROWS)
    if not len(rows):
        return None
    found = fitted.importance(
        rows.X, rows.response, rows.weights, n_repeats=1, max_draws=LOSS_DRAWS, level=0.9
    ).to_frame()
    place = {name: j for j, name in enumerate(names)}
    found.index = pd.Index([place[name] for name in found.index])
    return found


def _moved_most(mean: FloatArray) -> int:
    """Choose the class that is shown: the second of two, else the one that changes most."""
    n_outputs = mean.shape[1]
    return n_outputs - 1 if n_outputs <= 2 else int(np.ptp(mean, axis=0).argmax())


def trend_of(curve: Dependence) -> str:
    """Describe the course of a partial dependence in a word (see :class:`Effect`)."""
    known = ~pd.isna(curve.grid)
    mean, low, high = (one[known] for one in (curve.mean, curve.low, curve.high))
    if not len(mean) or low.max() <= high.min():
        return "unclear"
    if curve.grid.dtype.kind == "O":
        return "levels"
    change = np.diff(mean)
    up = change[change > 0].sum() / np.abs(change).sum()
    return "rises" if up >= ONE_WAY else "falls" if up <= 1 - ONE_WAY else "both"
