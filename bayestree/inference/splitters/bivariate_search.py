"""The best split of rows by one or two features: exact over pairs, orientations and thresholds.

Kairgeldin and Carreira-Perpinan, "Bivariate decision trees: smaller, interpretable, more
accurate" (KDD 2024): for every pair of features the rows are projected onto H orientations, and
on each the best of all thresholds is found by sorting. What a split is worth is left to the
caller, as a function of the sums of additive statistics on its left side, so that one search
serves growth by impurity and the weighted 0/1 loss of alternating optimisation. NumPy only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.splitters.bivariate_rows import Codes, Rows, codes_of, parts

#: Worth of splits, from the sums (c, ...) of the statistics on their left, and over all rows (c,).
Worth = Callable[[FloatArray, FloatArray], FloatArray]

GRAIN = 16  # units of rounding within which two projections are one
SLACK = 1e-9  # relative difference of two worths that is none
#: Screens of pairs: orientations and rows looked at, and multiples of n_refined that pass.
SCREENS = ((2, 200, 10), (6, 1000, 1))


class Line(NamedTuple):
    """A split: right iff coefficient . x[features] + intercept > 0.

    Attributes
    ----------
    features : array of int, shape (1,) or (2,)
    coefficient : array, shape (1,) or (2,)
        In the units of the rows that were searched.
    intercept : float
    worth : float
    margin : float
        Width of the gap that the split lies in, in standard deviations of the rows.
    """

    features: IntArray
    coefficient: FloatArray
    intercept: float
    worth: float
    margin: float


class Cut(NamedTuple):
    """The best cut of each of P projections: arrays of shape (P,)."""

    worth: FloatArray
    margin: FloatArray
    threshold: FloatArray


@dataclass(frozen=True)
class LineSearch:
    """Search of one- and two-feature splits.

    Every feature is searched exactly. So is every pair at every orientation, where that sums up
    at most ``budget`` numbers. Where there are more, pairs are screened at a few orientations on
    at most 1,000 of the rows, and the ``n_refined`` best of them searched exactly. Rows that have
    both features of a pair in common count as one.

    Parameters
    ----------
    n_orientations : int
        H, orientations of a pair: evenly spaced, those along a feature left out.
    min_leaf : int
        Least number of rows on each side.
    budget : float
        Numbers (pairs x orientations x distinct rows x statistics) up to which all pairs are
        searched exactly: a million take some hundredths of a second. Infinite for always.
    n_refined : int
        Pairs that a screen passes on.
    max_pairs : int
        Where there are more pairs, those of the features that are best alone are screened.

    Raises
    ------
    ValueError
        For numbers out of range.
    """

    n_orientations: int = 30
    min_leaf: int = 1
    budget: float = 1e6
    n_refined: int = 20
    max_pairs: int = 20_000

    def __post_init__(self) -> None:
        if self.n_orientations < 2:
            raise ValueError(f"n_orientations must be 2 or more, got {self.n_orientations}.")
        for name in ("min_leaf", "n_refined", "max_pairs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}.")
        if not self.budget >= 0:
            raise ValueError(f"budget must be 0 or more, got {self.budget}.")

    def orientations(self) -> FloatArray:
        """Unit vectors of the directions searched, shape (H, 2) (one less for odd H)."""
        angle = (np.arange(self.n_orientations) + 0.5) * math.pi / self.n_orientations
        angle = angle[np.abs(angle - math.pi / 2) > 1e-9]
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def node(
        self,
        X: NDArray[np.floating],
        statistics: FloatArray,
        weights: FloatArray,
        worth: Worth,
    ) -> "Node":
        """The rows of a node, to be searched.

        Parameters
        ----------
        X : array, shape (m, d)
        statistics : array, shape (m, c)
        weights : array, shape (m,)
            Of the rows, > 0; features are standardised by them.
        worth : callable
            Worth of splits by the sums of statistics on their left, shape (c, ...), and of all.
        """
        return Node(self, X, statistics, weights, worth)


class Node:
    """The rows of a node, and their best splits (see :meth:`LineSearch.node`)."""

    def __init__(
        self,
        search: LineSearch,
        X: NDArray[np.floating],
        statistics: FloatArray,
        weights: FloatArray,
        worth: Worth,
    ) -> None:
        self.search = search
        self.worth = worth
        rows = np.asarray(X, dtype=np.float64)
        share = np.asarray(weights, dtype=np.float64) / weights.sum()
        self.mean = share @ rows
        spread = np.sqrt(share @ (rows - self.mean) ** 2)
        size = np.abs(rows).max(axis=0, initial=0.0)
        unit = GRAIN * float(np.finfo(X.dtype).eps)
        # The spread of a constant column is rounding.
        varies = spread > unit * size
        self.usable = np.flatnonzero(varies)
        self.spread = np.where(varies, spread, 1.0)
        # So are differences of projections below the grain.
        self.grain = unit * (1.0 + size / self.spread)
        self.rows = Rows(
            np.ascontiguousarray(((rows - self.mean) / self.spread).T),
            np.ascontiguousarray(statistics.T, dtype=np.float64),
            np.ones(len(rows), dtype=np.int64),
        )
        self.slack = SLACK * float(np.abs(self.rows.statistics).sum())
        self.codes = codes_of(self.rows.z)
        self.alone = self._features()

    def single(self) -> Line | None:
        """The best split by one feature; None if no cut leaves ``min_leaf`` rows on each side."""
        best = self._best(self.alone)
        if best is None:
            return None
        return self._line(self.usable[[best]], np.ones(1), self.alone, best)

    def pair(self) -> Line | None:
        """The best split by two features."""
        pairs = self._pairs()
        if len(pairs) == 0:
            return None
        directions = self.search.orientations()
        numbers = len(directions) * len(self.rows.statistics)
        if numbers * self.codes.n_sorted(pairs, numbers).sum() > self.search.budget:
            pairs = self._screened(pairs, directions)
        found, where = self._sweep(self.rows, self.codes, pairs, directions)
        best = self._best(found)
        if best is None:
            return None
        return self._line(pairs[best], directions[where[best]], found, best)

    def _line(self, features: IntArray, direction: FloatArray, cuts: Cut, best: int) -> Line:
        """A cut of standardised features as a split of the rows themselves."""
        coefficient = direction / self.spread[features]
        intercept = -float(cuts.threshold[best] + coefficient @ self.mean[features])
        return Line(
            features, coefficient, intercept, float(cuts.worth[best]), float(cuts.margin[best])
        )

    def _best(self, cuts: Cut) -> int | None:
        """The best of all cuts, of equal ones that of the widest gap."""
        most = cuts.worth.max(initial=-math.inf)
        if most == -math.inf:
            return None
        return int(np.where(cuts.worth >= most - self.slack, cuts.margin, -1.0).argmax())

    def _features(self) -> Cut:
        """The best cut of each usable feature."""
        found, _ = self._sweep(self.rows, self.codes, self.usable[:, None], np.ones((1, 1)))
        return found

    def _pairs(self) -> IntArray:
        """Pairs of features, shape (P, 2): of all, or of those that are best alone."""
        order = np.argsort(-self.alone.worth, kind="stable")
        most = int((1 + math.sqrt(1 + 8 * self.search.max_pairs)) / 2)
        chosen = np.sort(self.usable[order[:most]])
        return np.array(list(combinations(chosen, 2)), dtype=np.int64).reshape(-1, 2)

    def _screened(self, pairs: IntArray, directions: FloatArray) -> IntArray:
        """The pairs that are best at a few orientations: first on few of the rows, then on more."""
        for n_directions, n_rows, n_kept in SCREENS:
            rows, codes, most = self.rows, self.codes, n_kept * self.search.n_refined
            if len(pairs) <= most:
                continue
            if rows.z.shape[1] > n_rows:
                # A stream of its own, so that the same rows are split alike anywhere in a tree.
                rng = np.random.default_rng(0)
                drawn = np.sort(rng.choice(rows.z.shape[1], n_rows, replace=False))
                rows, codes = rows.take(drawn), codes.take(drawn)
            step = max(1, len(directions) // n_directions)
            found, _ = self._sweep(rows, codes, pairs, directions[step // 2 :: step])
            order = np.argsort(-found.worth, kind="stable")[:most]
            pairs = pairs[np.sort(order)]
        return pairs

    def _sweep(
        self, rows: Rows, codes: Codes, groups: IntArray, directions: FloatArray
    ) -> tuple[Cut, IntArray]:
        """The best cut of each group of features (G, k) over the directions (H, k), and which."""
        worth, margin, threshold = (np.empty(len(groups)) for _ in Cut._fields)
        where = np.empty(len(groups), dtype=np.int64)
        for own, part in parts(rows, codes, groups, len(directions)):
            projection = directions @ part.z.reshape(len(own), groups.shape[1], -1)
            grain = np.repeat(self.grain[groups[own]].sum(axis=1), len(directions))
            flat = self._cut(part, projection.reshape(len(grain), -1), grain)
            cut = Cut(*(values.reshape(len(own), -1) for values in flat))
            near = cut.worth >= cut.worth.max(axis=1, keepdims=True) - self.slack
            best = np.where(near, cut.margin, -1.0).argmax(axis=1)
            at = (np.arange(len(own)), best)
            worth[own], margin[own], threshold[own] = (values[at] for values in cut)
            where[own] = best
        return Cut(worth, margin, threshold), where

    def _cut(self, rows: Rows, projection: FloatArray, grain: FloatArray) -> Cut:
        """The best threshold of each projection (P, m); of equal ones that of the widest gap."""
        if projection.shape[1] < 2:
            nothing = np.full(len(projection), -math.inf)
            return Cut(nothing, nothing, nothing)
        order = projection.argsort(axis=1)
        value = np.take_along_axis(projection, order, axis=1)
        gap = np.diff(value, axis=1)
        order = order[:, :-1]
        left = np.stack([column[order].cumsum(axis=1) for column in rows.statistics])
        worth = self.worth(left, rows.statistics.sum(axis=1))
        refused = gap <= grain[:, None]
        least = self.search.min_leaf
        if least > 1:
            count = rows.counts[order].cumsum(axis=1)
            refused |= (count < least) | (count > rows.counts.sum() - least)
        worth[refused] = -math.inf
        near = worth >= worth.max(axis=1, keepdims=True) - self.slack
        best = np.where(near & ~refused, gap, -1.0).argmax(axis=1)
        at = (np.arange(len(best)), best)
        return Cut(worth[at], gap[at], value[at] + gap[at] / 2)
