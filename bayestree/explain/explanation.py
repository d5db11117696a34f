"""Why a fitted tree predicts what it does for one row, how sure it is, and what would change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import entr

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import counted, in_words, one_line, plain
from bayestree.description import TreeDescription
from bayestree.diagnostics import SplitUncertainty
from bayestree.explain.counterfactual import Counterfactual, Expect, label_of
from bayestree.explain.decision_path import (
    DIGITS,
    TERMS,
    PathNode,
    Regression,
    decision_path,
    regression_of,
)
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding

CLASSES = 3  # classes shown, the most probable


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanation of one prediction; ``print`` it, or see ``to_frame`` and ``plot``.

    Attributes
    ----------
    features : tuple of str, length c
        Names of the columns.
    cells : tuple, length c
        Their values: numbers, text or times, and NaN, None or NaT where they are missing.
    row : array, shape (d,)
        Features of ``tree_`` into which the columns are encoded.
    center, scale : arrays, shape (d,)
        Those of ``tree_``.
    turns : tuple of PathNode
        From the root of the deterministic tree to the leaf of the row.
    leaf : str
        Path of the leaf from the root.
    leaf_rows : float
        Weighted number of training rows in the leaf.
    leaf_probability : float or None
        Probability in the tree's own mode that the row is in the leaf; None without a posterior.
    tree_prediction, prediction
        What the deterministic tree and the estimator, which may average over draws, predict.
    expected, sd : arrays, shape (C,) or (1,)
        Probabilities of the classes, or the mean, with their standard deviations over the draws.
    total, data, posterior : float or None
        Uncertainty of y and its parts: in nats the entropy of the prediction, the mean entropy of
        the predictions of the draws, and their difference; or the variance of y, the mean of the
        variances of the draws, and the variance of their means. More rows would reduce
        ``posterior``, but not ``data``. None for the mean of a leaf without a distribution.
    classes : tuple of str
        Empty for regression.
    change : Counterfactual or None
        None if none was asked for, or splits are not by facets.
    regression : Regression or None
        The terms of the regression in a linear or logistic leaf; None for other leaves.
    """

    features: tuple[str, ...]
    cells: tuple[Any, ...]
    row: FloatArray
    center: FloatArray
    scale: FloatArray
    turns: tuple[PathNode, ...]
    leaf: str
    leaf_rows: float
    leaf_probability: float | None
    tree_prediction: Any
    prediction: Any
    expected: FloatArray
    sd: FloatArray
    total: float | None
    data: float | None
    posterior: float | None
    classes: tuple[str, ...]
    change: Counterfactual | None
    regression: Regression | None = None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def to_frame(
        self, by: Literal["turn", "facet", "feature", "leaf", "change"] = "facet"
    ) -> pd.DataFrame:
        """Tabulate a part of the explanation.

        Parameters
        ----------
        by : {"turn", "facet", "feature", "leaf", "change"}
            A row for each turn: the side, its probability with its interval, and the share of the
            draws that agree. For each facet of these nodes: its vote, share and distance. For each
            column of each facet: its value and effect. For each column in the regression of a
            linear or logistic leaf: its value and its effect, in units of y or of log odds. For
            each column that the nearest change alters: its value before and after, and the change
            of a number in units of ``scale``, or the cost of another category.

        Raises
        ------
        ValueError
            For any other value of ``by``.
        """
        parts: dict[str, tuple[Callable[[], Iterator[tuple[Any, ...]]], tuple[str, ...]]] = {
            "turn": (self._turn_rows, TURN),
            "facet": (self._facet_rows, FACET),
            "feature": (self._feature_rows, FEATURE),
            "leaf": (self._leaf_rows, LEAF),
            "change": (self._change_rows, CHANGE),
        }
        if by not in parts:
            raise ValueError(f"by must be one of {', '.join(map(repr, parts))}, got {by!r}.")
        rows, columns = parts[by]
        return pd.DataFrame([*rows()], columns=list(columns))

    def plot(self, ax: Any = None) -> AnyArray:
        """Draw what decided each turn: the effects of the features on the largest votes.

        The terms of the regression in a linear or logistic leaf follow.

        Parameters
        ----------
        ax : array of Axes, optional
            One for each turn, and one for the regression; by default of a new figure that is
            not registered with pyplot.

        Returns
        -------
        array of Axes, shape (turns,) or (turns + 1,)

        Raises
        ------
        ValueError
            If the tree is a single leaf without a regression, or ``ax`` has another number of Axes.
        """
        from bayestree.plots._predictions import Effects, draw_effects  # noqa: PLC0415 - slow

        panels = [Effects(*turn.effects_shown()) for turn in self.turns]
        if (leaf := self.regression) is not None:
            total, label = in_words(leaf.total, DIGITS), f"effect on the {leaf.quantity}"
            panels.append(Effects(f"leaf {self.leaf}", total, leaf.effects, label))
        return draw_effects(panels, self.features, self.cells, ax)

    def _turn_rows(self) -> Iterator[tuple[Any, ...]]:
        for turn in self.turns:
            belief = turn.belief
            known = (np.nan,) * 4 if belief is None else (belief[0], *belief[1], belief[2])
            yield turn.node, turn.side, turn.score, turn.log_odds, *known

    def _facet_rows(self) -> Iterator[tuple[Any, ...]]:
        for turn in self.turns:
            numbers = (turn.votes, turn.share, turn.distance)
            for facet in zip(turn.experts.tolist(), turn.conditions, *numbers, strict=True):
                yield turn.node, turn.side, *facet

    def _feature_rows(self) -> Iterator[tuple[Any, ...]]:
        for turn in self.turns:
            for expert, effects in zip(turn.experts.tolist(), turn.effects, strict=True):
                for j in np.argsort(-np.abs(effects), kind="stable")[: np.count_nonzero(effects)]:
                    yield turn.node, expert, self.features[j], self.cells[j], effects[j]

    def _leaf_rows(self) -> Iterator[tuple[Any, ...]]:
        if self.regression is not None:
            for j in self.regression.order:
                effect = self.regression.effects[j]
                yield self.leaf, self.features[j], self.cells[j], effect

    def _change_rows(self) -> Iterator[tuple[Any, ...]]:
        if self.change is None or self.change.row is None:
            return
        moved = self.change.sizes
        for j in np.argsort(-np.abs(moved), kind="stable")[: np.count_nonzero(moved)]:
            yield self.features[j], self.cells[j], self.change.cells[j], moved[j]

    def _lines(self) -> Iterator[str]:
        yield f"Prediction: {self._outcome(self.prediction, self.expected, self.sd)}"
        if self.total is not None:
            unit = "nats of entropy" if self.classes else "variance of y"
            parts = (plain(part or 0.0, 3) for part in (self.total, self.data, self.posterior))
            text = "Uncertainty ({}): {} = {} from the data + {} from the posterior"
            yield text.format(unit, *parts)
        if self.tree_prediction != self.prediction and self.classes:
            yield f"The deterministic tree below predicts {one_line(str(self.tree_prediction))}."
        share = (
            "" if self.leaf_probability is None else f", probability {self.leaf_probability:.2f}"
        )
        yield f"Leaf {self.leaf}: {counted(self.leaf_rows, 'training row')}{share}"
        if self.regression is not None:
            yield from self.regression.lines(self.features, self.cells)
        yield ""
        for turn in self.turns:
            yield from turn.lines(self.features, self.cells)
        if not self.turns:
            yield "The tree has no split."
        if self.change is not None:
            yield ""
            yield from self._change_lines(self.change)

    def _outcome(self, label: Any, expected: FloatArray, sd: FloatArray | None = None) -> str:
        """Write a prediction with its probabilities, or a mean, and standard deviations."""
        spread = None if sd is None or not sd.any() else sd
        if not self.classes:
            text = plain(float(expected[0]), 4)
            return text if spread is None else f"{text} (sd over the draws {plain(spread[0], 2)})"
        order = np.argsort(-expected, kind="stable")[:CLASSES]
        parts = [
            f"{self.classes[c]} {expected[c]:.3f}"
            + ("" if spread is None else f" ± {plain(spread[c], 2)}")
            for c in order
        ]
        return f"{one_line(str(label))} ({', '.join(parts)})"

    def _change_lines(self, change: Counterfactual) -> Iterator[str]:
        wanted = change.wanted
        if change.required is not None:
            wanted += f" in at least {100 * change.required:.4g} % of the draws"
        if change.row is None:
            certain = change.bound == np.inf
            found = "" if certain else "was found that "
            yield (
                f"No change of these columns within their ranges {found}makes the prediction "
                f"{wanted}."
            )
            if not certain and change.required is not None:
                yield "The search does not try every change: one that it missed may exist."
            return
        if not change.distance:
            yield f"The prediction is {wanted} already."
            return
        yield (
            f"Nearest change found that makes the prediction {wanted}: distance "
            f"{change.distance:.3g}"
        )
        for name, before, after, moved in self._change_rows():
            yield f"  {name}: {_ends(before, after)} ({moved:+.2g})"
        assert change.expected is not None
        yield f"  Prediction then: {self._outcome(change.prediction, change.expected)}"
        if change.assurance is not None:
            yield f"  Draws that agree: {100 * change.assurance:.3g} %"
        if change.bound is not None and change.bound < change.distance - 1e-3:
            yield f"  No change below {change.bound:.3g} does; there may be one between."


def _ends(before: Any, after: Any) -> str:
    """Write the values before and after a change, the latter in full."""
    last = plain(after, None) if isinstance(after, float) else in_words(after, DIGITS)
    first = in_words(before, DIGITS + 1)
    return f"{in_words(before, 17) if first == last else first} to {last}"


TURN = ("node", "side", "score", "log_odds", "probability", "low", "high", "agreement")
FACET = ("node", "side", "expert", "condition", "vote", "share", "distance")
FEATURE = ("node", "expert", "feature", "value", "effect")
LEAF = ("leaf", "feature", "value", "effect")
CHANGE = ("feature", "from", "to", "change")


def explanation(
    tree: RoutedTree,
    row: FloatArray,
    expect: Expect,
    *,
    encoding: Encoding,
    cells: tuple[Any, ...],
    labels: AnyArray | None = None,
    posterior: SplitUncertainty | None = None,
    change: Counterfactual | None = None,
) -> Explanation:
    """Explain the prediction ``expect`` for a row (d,) with these ``cells`` of its columns.

    ``labels`` (C,) are the classes. ``change`` is the nearest one, if it was searched for.
    """
    described = TreeDescription(tree, TERMS, DIGITS)
    expected, sd = (np.atleast_1d(part[0]) for part in expect(row[None]))
    leaf = int(tree.apply(row[None])[0])
    total, data, epistemic = _parts(expected, posterior, classifies=labels is not None)
    return Explanation(
        features=tuple(map(one_line, encoding.names)),
        cells=cells,
        row=row,
        center=tree.center,
        scale=tree.scale,
        turns=decision_path(described, encoding, row, posterior),
        leaf=described.path(~leaf),
        leaf_rows=described.rows(~leaf),
        leaf_probability=None if posterior is None else float(posterior.leaf_probability[0, leaf]),
        tree_prediction=label_of(tree.predict(row[None])[0], labels),
        prediction=label_of(expected, labels),
        expected=expected,
        sd=sd,
        total=total,
        data=data,
        posterior=epistemic,
        classes=described.classes,
        change=change,
        regression=regression_of(tree, row, encoding, described.classes),
    )


def _parts(
    expected: FloatArray, posterior: SplitUncertainty | None, *, classifies: bool
) -> tuple[float | None, ...]:
    """Return the total uncertainty of y, and its parts from the data and from the posterior."""
    names = ("entropy", "expected_entropy", "mutual_information")
    if not classifies:
        names = ("variance", "expected_variance", "explained")
    if posterior is not None:
        found = [getattr(posterior, name) for name in (f"total_{names[0]}", *names[1:])]
        return tuple(None if part is None else float(part[0]) for part in found)
    if not classifies:
        return None, None, None
    total = float(entr(expected).sum())
    return total, total, 0.0
