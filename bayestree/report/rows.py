"""The rows of a study, and what they say about it: importance and effects of columns, uncertainty.

The report and the summary of a run share these definitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, shuffled
from bayestree._utils.wording import counted
from bayestree.description import TreeDescription, features_of, has_draws
from bayestree.diagnostics import SplitUncertainty
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.uncertainty import Dependence
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding, Features
from bayestree.tree import LOG2, Tree

SAMPLE = 2000  # maximum number of rows in pictures and in measures of the splits
SHUFFLES = 5  # of each column at each node, over all trees together
COVERED = 0.9  # share of the importance that the columns named together have

UNCERTAIN_DEFINITION = (
    "A row is uncertain at a node if the posterior probability of the side opposite to the point "
    "estimate exceeds 10 %."
)
IMPORTANCE_DEFINITION = (
    "The importance of a column at a node is the share of the node's rows that change sides in "
    "the point estimate when the column is shuffled among them."
)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows (n, d) as the estimator takes them, with their weights and, if known, their target.

    ``extra`` is the exposure or event of each row, if the target comes with one.
    """

    X: Any
    y: AnyArray | None
    weights: FloatArray
    held_out: bool
    estimator: Estimator | None = None
    extra: FloatArray | None = None

    @property
    def target(self) -> AnyArray:
        """The target, of rows that have one."""
        if self.y is None:
            raise AttributeError("these rows have no target.")
        return self.y

    @property
    def response(self) -> AnyArray | None:
        """The target as the methods of the estimator take it."""
        if self.y is None or self.extra is None:
            return self.y
        return np.column_stack((self.y, self.extra))

    @property
    def kind(self) -> str:
        return "held-out rows" if self.held_out else "training rows"

    @property
    def counted(self) -> str:
        """Number and kind of the rows, such as ``"40 held-out rows"``."""
        return counted(len(self), self.kind.removesuffix("s"))

    def __len__(self) -> int:
        return len(self.weights)

    def sample(self, most: int = SAMPLE) -> "LabelledRows":
        """Take at most ``most`` of the rows, evenly spaced."""
        if len(self) <= most:
            return self
        return self.taken(spread(len(self), most))

    def taken(self, kept: IntArray) -> "LabelledRows":
        """Take the rows of these numbers."""
        X = self.X.iloc[kept] if isinstance(self.X, pd.DataFrame) else self.X[kept]
        y, extra = (None if one is None else one[kept] for one in (self.y, self.extra))
        return replace(self, X=X, y=y, weights=self.weights[kept], extra=extra)

    @property
    def matrix(self) -> FloatArray:
        """The features as numbers, shape (n, d)."""
        return features_of(self.estimator, self.X)


def rows_of(
    estimator: Estimator, X: Any, y: Any = None, weights: Any = None, *, held_out: bool
) -> LabelledRows | None:
    """Check rows and convert them to the form that the estimator takes; None if X is None."""
    if X is None:
        return None
    end = "_held" if held_out else ""
    shape = getattr(X, "shape", None) or np.shape(X)
    width = X.shape[1] if isinstance(X, Features) else estimator.n_features_in_
    if len(shape) != 2 or shape[1] != width:
        raise ValueError(
            f"X{end} must have shape (n, {width}) like the rows of the fit, got {shape}."
        )
    n = shape[0]
    target, weight = (None if given is None else np.asarray(given) for given in (y, weights))
    extra = None
    response = estimator.fitted_.response
    if target is not None:
        target, extra = response.separate(target, refuse=True)
    for name, array in (("y", target), ("weights", weight)):
        if array is not None and array.shape != (n,):
            raise ValueError(f"{name}{end} must have shape ({n},) like X{end}, got {array.shape}.")
    classes = response.labels
    if classes is not None and target is not None and n and not np.isin(target, classes).any():
        raise ValueError(
            f"y{end} has none of the classes of the fit, {classes[:5].tolist()}; its first value "
            f"is {target[:1].tolist()[0]!r}."
        )
    if weight is None or (held_out and not weight.any()):  # all rows count
        weight = np.ones(n)
    weight = weight.astype(np.float64)
    return LabelledRows(_with_names(estimator, X), target, weight, held_out, estimator, extra)


def _with_names(estimator: Estimator, X: Any) -> Any:
    """Give X feature names if and only if the fit had them, which avoids warnings."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return np.asarray(X)
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X), columns=list(names))


class PermutationImportance(NamedTuple):
    """Importance of each column for the splits: what shuffling it changes.

    ``nodes`` has, for each tree, the share of a node's rows that change sides when the column is
    shuffled among them, shape (V, c). ``total`` (c,) weights the nodes by their rows and by the
    distance between the predictions of their sides. It sums to 1, or is 0 if no row changes sides.
    """

    nodes: tuple[FloatArray, ...]
    total: FloatArray


def evaluation_rows(train: LabelledRows | None, held: LabelledRows | None) -> LabelledRows | None:
    """Choose the rows on which splits are judged: at most 2,000, held out if there are any."""
    rows = held if held is not None and len(held) else train
    return None if rows is None else rows.taken(np.flatnonzero(rows.weights > 0)).sample()


def permutation_importance(
    trees: Sequence[RoutedTree], rows: LabelledRows, encoding: Encoding
) -> PermutationImportance:
    """Measure the importance of each column for the splits of one or more deterministic trees.

    Splits by networks are left out.
    """
    X, places = rows.matrix, encoding.places
    total = np.zeros(len(places))
    nodes = []
    shuffles = -(-SHUFFLES // len(trees))
    for tree in trees:
        share = np.zeros((tree.n_nodes, len(places)))
        if isinstance(tree, Tree):
            random = np.random.default_rng(0)
            distance = _side_distance(tree)
            for node, reached, _ in tree.walk(X):
                mass = rows.weights[reached]
                orders = [shuffled(random, mass) for _ in range(shuffles if mass.any() else 0)]
                share[node] = _changed(tree, node, X[reached], mass, places, orders)
                total += mass.sum() * distance[node] * share[node]
        nodes.append(share)
    return PermutationImportance(tuple(nodes), total / total.sum() if total.any() else total)


def most_important(share: FloatArray) -> IntArray:
    """Find the smallest set of columns with nine tenths of the importance, largest first."""
    order = np.argsort(-share, kind="stable")[: np.count_nonzero(share)]
    covered = np.cumsum(share[order])
    return order[: np.searchsorted(covered, COVERED * covered[-1]) + 1] if len(order) else order


def split_uncertainty(estimator: Estimator, rows: LabelledRows) -> SplitUncertainty | None:
    """Measure the uncertainty of the splits about the rows; None without their posterior."""
    if not has_draws(estimator) or not isinstance(estimator, StagedTree):
        return None
    if estimator.tree_.n_nodes == 0:
        return None
    return replace(estimator.split_uncertainty(rows.X), weights=rows.weights)


def _changed(
    tree: Tree,
    node: int,
    X: FloatArray,
    weights: FloatArray,
    places: Sequence[IntArray],
    orders: Sequence[IntArray],
) -> FloatArray:
    """Return the share of rows (n, d) that change sides when a column is shuffled, shape (c,)."""
    share = np.zeros(len(places))
    experts = tree.experts(node)
    plane, weight = tree.hyperplane[experts], tree.weight[experts]
    activation = X @ plane.T + tree.intercept[experts]
    right = np.logaddexp(0.0, activation) @ weight > LOG2
    for order in orders:
        for j, own in enumerate(places):
            if plane[:, own].any():
                moved = activation + (X[order][:, own] - X[:, own]) @ plane[:, own].T
                changes = (np.logaddexp(0.0, moved) @ weight > LOG2) != right
                share[j] += np.average(changes, weights=weights) / len(orders)
    return share


def _side_distance(tree: Tree) -> FloatArray:
    """Return the distance of the mean predictions of the two sides of each node, shape (V,).

    For class probabilities it is the total variation distance.
    """
    described = TreeDescription(tree)
    pairs = (map(described.value, pair) for pair in tree.topology.children.tolist())
    distance = np.array([np.abs(left - right).sum() for left, right in pairs])
    return distance / 2 if described.classifies else distance


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
    estimator: Estimator,
    trees: Sequence[RoutedTree],
    rows: LabelledRows,
    importance: PermutationImportance,
) -> list[Effect]:
    """Measure the effects of the columns that matter most, the most important one first.

    They are ordered by the loss, or by ``importance`` if there are very many columns.
    """
    table = _losses(estimator, trees, rows)
    if table is None:
        order = np.argsort(-importance.total, kind="stable")[:MOST]
        order = order[importance.total[order] > 0]
    else:
        used = (table["votes"] > 0) | (table["loss"] > 0)
        order = table.index.to_numpy()[used.to_numpy()][:MOST]
    found = []
    for column in order.tolist():
        curve = estimator.partial_dependence(
            rows.X, column, grid=CURVE_POINTS, max_rows=CURVE_ROWS, level=0.9
        )
        n_outputs = curve.mean.shape[1]
        output = n_outputs - 1 if n_outputs <= 2 else int(np.ptp(curve.mean, axis=0).argmax())
        shown = curve.of(output)
        measured = () if table is None else (_range(table, column, n) for n in ("loss", "votes"))
        found.append(Effect(column, shown, output, trend_of(shown), *measured))
    return found


def _range(table: pd.DataFrame, column: int, name: str) -> Range:
    return Range(*(float(table[f"{name}{end}"][column]) for end in ("", "_low", "_high")))


def _losses(
    estimator: Estimator, trees: Sequence[RoutedTree], rows: LabelledRows
) -> pd.DataFrame | None:
    """Tabulate loss and votes by number of the column, the largest loss first."""
    names = estimator.encoding_.names
    if rows.y is None or len(names) > MEASURED or not all(isinstance(t, Tree) for t in trees):
        return None
    known = rows.weights > 0
    if (labels := estimator.fitted_.response.labels) is not None:
        known &= np.isin(rows.y, labels)
    rows = rows.taken(np.flatnonzero(known)).sample(LOSS_ROWS)
    if (y := rows.response) is None or not len(rows):
        return None
    found = estimator.importance(
        rows.X, y, rows.weights, n_repeats=1, max_draws=LOSS_DRAWS, level=0.9
    ).to_frame()
    place = {name: j for j, name in enumerate(names)}
    found.index = pd.Index([place[name] for name in found.index])
    return found


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
