"""Trees with one or two features in each node (Kairgeldin and Carreira-Perpinan, 2024).

"Bivariate decision trees: smaller, interpretable, more accurate" (KDD 2024). For every pair of
features the rows are projected onto H orientations, and for each the best threshold is found by
sorting. The quality of a split is a function of the sums of additive statistics on its left side:
one search serves both growth by impurity and the weighted 0/1 loss of alternating optimisation.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import Count, Inference, Model, NonNegativeOrInf, declare
from bayestree.estimators._parameters import MeanFamily
from bayestree.estimators._regressor import TreeRegressor
from bayestree.fitting.plan import Task
from bayestree.inference import Data
from bayestree.inference.splitters import FittedSplit, NodeByNode
from bayestree.inference.splitters.planes import (
    GRAIN,
    SLACK,
    Cut,
    Quality,
    RowClasses,
    best_cuts,
    quality_of,
    statistics_of,
)
from bayestree.inference.training import check_counts
from bayestree.literature.oblique import ImpurityClassifier, ImpurityTree
from bayestree.models import SoftTree, named
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf

#: Screening stages of pairs: orientations, rows, and multiple of n_refined that is kept.
SCREENS = ((2, 200, 10), (6, 1000, 1))
CHUNK = 100_000  # numbers per array and batch, which fit into the cache
FEW = 20  # classes, over which sums are as fast as a second sort of the rows
OVERHEAD = 40_000  # cost of creating cells, in numbers sorted and summed


class Cells(NamedTuple):
    """Cells of equal rows, or single rows, to be sorted."""

    z: FloatArray  # (d, m): standardised features
    statistics: FloatArray  # (c, m)
    counts: IntArray  # (m,): number of rows in each cell
    classes: RowClasses | None = None  # of rows, if these are too many to be summed one by one

    @property
    def width(self) -> int:
        """Numbers that are summed for each row or cell and direction."""
        return len(self.statistics) if self.classes is None else FEW

    def take(self, rows: IntArray) -> "Cells":
        own = None if self.classes is None else self.classes.take(rows)
        return Cells(self.z[:, rows], self.statistics[:, rows], self.counts[rows], own)


class Codes(NamedTuple):
    """Codes of the distinct values of each feature (d, m), and the number of these values (d,)."""

    codes: IntArray
    levels: IntArray

    @classmethod
    def of(cls, z: FloatArray) -> "Codes":
        """Encode the values of features (d, m)."""
        codes = np.stack([np.unique(values, return_inverse=True)[1] for values in z])
        return cls(codes, codes.max(axis=1) + 1)

    def take(self, rows: IntArray) -> "Codes":
        return self._replace(codes=self.codes[:, rows])

    def n_sorted(self, groups: IntArray, numbers: int) -> IntArray:
        """Return the number of cells or rows to sort for each group of features (G, k), shape (G,).

        There are fewer cells than rows, but they are created one group at a time, which pays if
        it saves more than ``OVERHEAD`` (``numbers`` per row or cell).
        """
        n_rows = self.codes.shape[1]
        n_cells: IntArray = self.levels[groups].prod(axis=1)
        return np.where((n_rows - n_cells) * numbers > OVERHEAD, n_cells, n_rows)


def parts(
    rows: Cells, codes: Codes, groups: IntArray, n_directions: int
) -> Iterator[tuple[IntArray, Cells]]:
    """Yield batches of groups (G, k) of features: numbers of g groups, rows or cells (g k, m).

    ``n_directions`` is the number of projections per group, which determines the memory.
    """
    n_rows = rows.z.shape[1]
    few = np.zeros(len(groups), dtype=bool)
    if rows.classes is None:  # which cells do not have
        few = codes.n_sorted(groups, n_directions * rows.width) < n_rows
    for place in np.flatnonzero(few).tolist():
        yield np.array([place]), _cells(rows, codes, groups[place])
    others = np.flatnonzero(~few)
    step = max(1, CHUNK // (n_directions * n_rows * rows.width))
    for start in range(0, len(others), step):
        batch = others[start : start + step]
        yield batch, rows._replace(z=rows.z[groups[batch].ravel()])


def _cells(rows: Cells, codes: Codes, features: IntArray) -> Cells:
    """Merge rows that agree in all of the given features."""
    shape = tuple(codes.levels[features])
    code = np.ravel_multi_index(tuple(codes.codes[features]), shape)
    n_codes = math.prod(shape)
    counts = np.bincount(code, rows.counts, n_codes)
    used = np.flatnonzero(counts)
    sums = [np.bincount(code, column, n_codes)[used] for column in rows.statistics]
    member = np.empty(n_codes, dtype=np.int64)
    member[code] = np.arange(len(code))
    return Cells(
        rows.z[np.ix_(features, member[used])], np.stack(sums), counts[used].astype(np.int64)
    )


class Line(NamedTuple):
    """A split: right iff coefficient . x[features] + intercept > 0."""

    features: IntArray  # one or two
    coefficient: FloatArray  # in the units of the rows searched
    intercept: float
    quality: float
    margin: float  # width of the gap around the split, in standardised units


@dataclass(frozen=True)
class LineSearch:
    """Search of one- and two-feature splits.

    Every feature is searched exactly, and so is every pair at every orientation if the size of
    the search is within ``budget``. Otherwise, pairs are screened at a few orientations on up to
    1,000 rows, and the ``n_refined`` best are searched exactly. Rows that agree in both features
    of a pair are merged.
    """

    #: Number H of orientations of a pair: evenly spaced, without those along a feature.
    n_orientations: int = 30
    min_leaf: int = 1  # minimum number of rows on each side
    #: Maximum size (pairs x orientations x distinct rows x statistics) of an exact search of all
    #: pairs: a million takes a few hundredths of a second. Infinite: always search exactly.
    budget: float = 1e6
    n_refined: int = 20  # number of pairs that are searched exactly after screening
    max_pairs: int = 20_000  # if there are more, only pairs of the best features are screened

    def __post_init__(self) -> None:
        if self.n_orientations < 2:
            raise ValueError(f"n_orientations must be 2 or more, got {self.n_orientations}.")
        check_counts(min_leaf=self.min_leaf, n_refined=self.n_refined, max_pairs=self.max_pairs)
        if not self.budget >= 0:
            raise ValueError(f"budget must be 0 or more, got {self.budget}.")

    def orientations(self) -> FloatArray:
        """Return unit vectors of the directions searched, shape (H, 2), or (H - 1, 2) for odd H."""
        angle = (np.arange(self.n_orientations) + 0.5) * math.pi / self.n_orientations
        angle = angle[np.abs(angle - math.pi / 2) > 1e-9]
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)


class LineNode:
    """Search of a node: rows (m, d), statistics (m, c) and weights (m,), which are positive.

    The weights are used to standardise the features; for ``sparse`` and ``classes`` see
    :func:`best_cuts`.
    """

    def __init__(
        self,
        search: LineSearch,
        X: NDArray[np.floating],
        statistics: FloatArray,
        weights: FloatArray,
        quality: Quality,
        *,
        sparse: bool = False,
        classes: RowClasses | None = None,
    ) -> None:
        self.search = search
        self.quality, self.sparse = quality, sparse
        rows = np.asarray(X, dtype=np.float64)
        share = np.asarray(weights, dtype=np.float64) / weights.sum()
        self.mean = share @ rows
        spread = np.sqrt(share @ (rows - self.mean) ** 2)
        size = np.abs(rows).max(axis=0, initial=0.0)
        unit = GRAIN * float(np.finfo(X.dtype).eps)
        # The computed spread of a constant column, and differences of projections below the
        # grain, are rounding errors.
        varies = spread > unit * size
        self.usable = np.flatnonzero(varies)
        self.spread = np.where(varies, spread, 1.0)
        self.grain = unit * (1.0 + size / self.spread)
        self.rows = Cells(
            np.ascontiguousarray(((rows - self.mean) / self.spread).T),
            np.ascontiguousarray(statistics.T, dtype=np.float64),
            np.ones(len(rows), dtype=np.int64),
            classes,
        )
        self.slack = SLACK * float(np.abs(self.rows.statistics).sum())
        self.codes = Codes.of(self.rows.z)
        # the best cut of each usable feature
        self.alone, _ = self._sweep(self.rows, self.codes, self.usable[:, None], np.ones((1, 1)))

    def single(self) -> Line | None:
        """Find the best split by one feature; None if a side has fewer than ``min_leaf`` rows."""
        best = self._best(self.alone)
        if best is None:
            return None
        return self._line(self.usable[[best]], np.ones(1), self.alone, best)

    def pair(self) -> Line | None:
        """Find the best split by two features."""
        order = np.argsort(-self.alone.quality, kind="stable")
        limit = int((1 + math.sqrt(1 + 8 * self.search.max_pairs)) / 2)  # m (m - 1) / 2 pairs
        chosen = np.sort(self.usable[order[:limit]])
        pairs = np.array(list(combinations(chosen, 2)), dtype=np.int64).reshape(-1, 2)
        if len(pairs) == 0:
            return None
        directions = self.search.orientations()
        numbers = len(directions) * self.rows.width
        if numbers * self.codes.n_sorted(pairs, numbers).sum() > self.search.budget:
            pairs = self._screened(pairs, directions)
        found, where = self._sweep(self.rows, self.codes, pairs, directions)
        best = self._best(found)
        if best is None:
            return None
        return self._line(pairs[best], directions[where[best]], found, best)

    def _line(self, features: IntArray, direction: FloatArray, cuts: Cut, best: int) -> Line:
        """Convert a cut of standardised features to a split of the original rows.

        direction . (x - mean) / spread > t means c . x > t + c . mean, with c = direction / spread.
        """
        coefficient = direction / self.spread[features]
        intercept = -float(cuts.threshold[best] + coefficient @ self.mean[features])
        return Line(
            features, coefficient, intercept, float(cuts.quality[best]), float(cuts.margin[best])
        )

    def _best(self, cuts: Cut) -> int | None:
        """Find the best of all cuts; ties are resolved by the widest gap."""
        highest = cuts.quality.max(initial=-math.inf)
        if highest == -math.inf:
            return None
        return int(np.where(cuts.quality >= highest - self.slack, cuts.margin, -1.0).argmax())

    def _screened(self, pairs: IntArray, directions: FloatArray) -> IntArray:
        """Find the best pairs at a few orientations: first on few rows, then on more."""
        for n_directions, n_rows, n_kept in SCREENS:
            rows, codes, limit = self.rows, self.codes, n_kept * self.search.n_refined
            if len(pairs) <= limit:
                continue
            if rows.z.shape[1] > n_rows:
                rng = np.random.default_rng(0)  # equal rows get equal splits, anywhere in a tree
                drawn = np.sort(rng.choice(rows.z.shape[1], n_rows, replace=False))
                rows, codes = rows.take(drawn), codes.take(drawn)
            step = max(1, len(directions) // n_directions)
            found, _ = self._sweep(rows, codes, pairs, directions[step // 2 :: step])
            order = np.argsort(-found.quality, kind="stable")[:limit]
            pairs = pairs[np.sort(order)]
        return pairs

    def _sweep(
        self, rows: Cells, codes: Codes, groups: IntArray, directions: FloatArray
    ) -> tuple[Cut, IntArray]:
        """Find the best cut of each group of features (G, k) over directions (H, k), and which."""
        found = Cut(*(np.empty(len(groups)) for _ in Cut._fields))
        where = np.empty(len(groups), dtype=np.int64)
        for batch, part in parts(rows, codes, groups, len(directions)):
            projection = directions @ part.z.reshape(len(batch), groups.shape[1], -1)
            grain = np.repeat(self.grain[groups[batch]].sum(axis=1), len(directions))
            flat = best_cuts(
                projection.reshape(len(grain), -1),
                part.statistics,
                self.quality,
                grain=grain,
                slack=self.slack,
                counts=part.counts,
                min_leaf=self.search.min_leaf,
                classes=part.classes,
                sparse=self.sparse,
            )
            cut = Cut(*(values.reshape(len(batch), -1) for values in flat))
            near = cut.quality >= cut.quality.max(axis=1, keepdims=True) - self.slack
            best = np.where(near, cut.margin, -1.0).argmax(axis=1)
            for target, values in zip(found, cut, strict=True):
                target[batch] = values[np.arange(len(batch)), best]
            where[batch] = best
        return found, where


@dataclass(frozen=True)
class BivariateSplitter(NodeByNode):
    """The best cut of a feature, or of a pair of features at H orientations.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees" (2024): the fast algorithm.
    """

    leaf: Leaf
    criterion: Criterion | None = None  # by default the leaf's (entropy, squared error)
    max_features: int = 2  # 1 is CART
    pair_penalty: float = 0.0  # extra gain in nats that a pair needs over the best single feature
    search: LineSearch = field(default_factory=LineSearch)

    def __post_init__(self) -> None:
        if self.max_features not in (1, 2):
            raise ValueError(f"max_features must be 1 or 2, got {self.max_features}.")
        if not self.pair_penalty >= 0:
            raise ValueError(f"pair_penalty must be 0 or more, got {self.pair_penalty}.")

    def split(self, data: Data) -> FittedSplit | None:
        statistics = statistics_of(self.leaf, data)
        criterion = self.criterion or self.leaf.criterion
        node = LineNode(
            self.search,
            data.X.numpy(force=True),
            statistics.numpy(force=True),
            data.weights.double().numpy(force=True),
            quality_of(criterion),
            sparse=criterion.costly,
            classes=RowClasses.of(statistics.numpy(force=True).T, criterion, FEW),
        )
        single = node.single()
        if single is None:
            return None
        best = self._fitted(data, statistics, single)
        if self.max_features == 1 or best.gain + self.pair_penalty >= self._max_gain(statistics):
            return best
        pair = node.pair()
        if pair is None:
            return best
        other = self._fitted(data, statistics, pair)
        return other if other.gain > best.gain + self.pair_penalty + node.slack else best

    def _max_gain(self, statistics: Tensor) -> float:
        """Compute the gain of a split into pure sides, in nats, less a tolerance for rounding."""
        pure, whole = statistics.new_tensor(self.leaf.criterion.pure), statistics.sum(0)
        return float(self.leaf.criterion.gain(pure, whole)) * (1 - SLACK)

    def _fitted(self, data: Data, statistics: Tensor, line: Line) -> FittedSplit:
        """Convert a line to sites, with its gain in nats."""
        plane = np.zeros((1, data.X.shape[1]))
        plane[0, line.features] = line.coefficient
        hyperplane = torch.as_tensor(plane).to(data.X)
        intercept = data.X.new_tensor([line.intercept])
        right = (data.X @ hyperplane[0] + intercept) > 0
        gain = self.leaf.criterion.hard_gain(statistics, right)
        return FittedSplit({"hyperplane": hyperplane, "intercept": intercept}, right, gain)


@declare
class BaseBivariateTree(ImpurityTree):
    """Grow a tree by search over pairs of features; classifier and regressor add y."""

    n_orientations: Annotated[
        int,
        Field(ge=2),
        Inference(
            "Number of slopes searched for each pair of features, which are standardised at each "
            "node."
        ),
    ] = 30
    pair_penalty: Annotated[
        NonNegativeOrInf,
        Model(
            "Additional gain, in nats of log-likelihood, required to use two features instead of "
            "one. Larger values give a tree with fewer pairs; infinity gives CART."
        ),
    ] = 2.0
    budget: Annotated[
        NonNegativeOrInf,
        Inference(
            "Maximum size (pairs x slopes x distinct rows x classes, or, if leaves have slopes, "
            "x sums of products) of an exact search of all pairs of a node. In larger ones, pairs "
            "are screened at a few slopes on 1,000 rows, and the best 20 are searched on all rows."
        ),
    ] = 1e6
    max_pairs: Annotated[
        Count,
        Inference(
            "Maximum number of pairs of features searched; features that split best alone come "
            "first."
        ),
    ] = 20_000

    def _model(self, task: Task) -> SoftTree:
        return named.bivariate(task.leaf)

    def _splitter(self, leaf: Leaf) -> BivariateSplitter:
        return BivariateSplitter(
            leaf,
            self._impurity(leaf),
            pair_penalty=self.pair_penalty,
            search=LineSearch(
                n_orientations=self.n_orientations,
                min_leaf=self.min_leaf,
                budget=self.budget,
                max_pairs=self.max_pairs,
            ),
        )


@declare
class BivariateTreeClassifier(ImpurityClassifier, BaseBivariateTree):
    """Decision tree with one or two features in each node, grown like CART.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees: smaller, interpretable, more
    accurate" (2024), the fast algorithm: in each node the best of all cuts of a feature, and of
    all pairs of features at ``n_orientations`` slopes. The algorithm is deterministic. For joint
    optimisation of such splits see
    :class:`~bayestree.AlternatingTreeClassifier` with ``split="bivariate"``.

    {parameters}

    {attributes}

    See Also
    --------
    bayestree.export_rules : The tree as rules.
    bayestree.plots.node_scatter : Each node as a scatter plot with its line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2).fit(X, y)
    >>> clf.get_n_leaves()
    3
    >>> bool(clf.score(X, y) > 0.97)
    True
    """


@declare
class BivariateTreeRegressor(TreeRegressor, BaseBivariateTree):
    """Regression tree with one or two features in each node, grown like CART.

    Like :class:`BivariateTreeClassifier`, with the squared error in place of the entropy, and
    means or linear functions in the leaves. With linear leaves a split is compared by the squared
    error about a regression on each side, for about 3 sqrt(n) thresholds of n.

    {parameters}

    {attributes}
    posterior_ : Posterior
        Its splits as one draw, on the standardised features and standardised y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import BivariateTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = BivariateTreeRegressor(max_depth=2).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    leaf: MeanFamily = "constant"
