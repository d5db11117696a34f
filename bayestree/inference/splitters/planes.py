"""Splits by one hyperplane, found node by node by an exchangeable search.

A search is one class: its fields are its settings, and ``find`` proposes the hyperplane of a node.
It draws on two exact searches over the rows: the best threshold along directions, and the best
length of a step from a hyperplane along others. Both sort the rows, and compare all cuts by sums
of statistics: the quality of a split is a function of the sums on its left side.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, weighted_quantiles
from bayestree.inference.data import Data
from bayestree.inference.splitters import FittedSplit, NodeByNode
from bayestree.inference.stage import Settings
from bayestree.models.criteria import CountCriterion, Criterion
from bayestree.models.leaves import Leaf

#: Quality of splits, from the sums (c, ...) of the statistics on their left and over all rows (c,).
Quality = Callable[[FloatArray, FloatArray], FloatArray]

NUMBERS = 1_000_000  # maximum size of the sums over which cuts are compared at a time
GRAIN = 16  # projections within this many rounding units count as equal
SLACK = 1e-9  # qualities within this relative difference count as equal
ALL = slice(None)
QUARTILES = (0.25, 0.5, 0.75)
FEW = 4  # classes, over which sums are as fast as a second sort of the rows


def statistics_of(leaf: Leaf, data: Data) -> Tensor:
    """Return terms (n, c) of growth in double precision, without classes that are absent."""
    found = leaf.growth_terms(data.y, data.weights)(data.y, data.weights).double()
    counts = isinstance(leaf.criterion, CountCriterion)
    return found[:, (found != 0).any(0)] if counts else found


def quality_of(criterion: Criterion) -> Quality:
    """Compute the value of a split under a criterion."""

    def quality(left: FloatArray, whole: FloatArray) -> FloatArray:
        sums, total = torch.from_numpy(left).movedim(0, -1), torch.from_numpy(whole)
        return np.asarray(criterion.split_value(sums, total))

    return quality


class Cut(NamedTuple):
    """The best cut of each of P sets of values: arrays of shape (P,)."""

    quality: FloatArray  # minus infinity if no cut is possible
    margin: FloatArray  # width of the gap around the threshold
    threshold: FloatArray


@dataclass(frozen=True)
class RowClasses:
    """The class of each row (m,), from 0, its weight, and the criterion that compares cuts.

    A row that changes sides changes one term on each, so that all cuts of P orders of the rows
    take O(P m log m) instead of O(P m c) operations.
    """

    label: IntArray
    weight: FloatArray
    criterion: CountCriterion

    @classmethod
    def of(cls, statistics: FloatArray, criterion: Criterion, few: int) -> "RowClasses | None":
        """Return the classes of rows with counts (c, m) of more than ``few`` classes, else None."""
        if not isinstance(criterion, CountCriterion) or len(statistics) <= few:
            return None
        if ((statistics != 0).sum(axis=0) != 1).any():
            return None
        label = statistics.argmax(axis=0).astype(np.uint16)
        return cls(label, statistics.sum(axis=0), criterion)

    def take(self, rows: IntArray) -> "RowClasses":
        return replace(self, label=self.label[rows], weight=self.weight[rows])

    def qualities(
        self, order: IntArray, statistics: FloatArray, mirrored: AnyArray | None
    ) -> FloatArray:
        """Compute the quality of the split after each row of orders (P, m) has changed sides."""
        whole = np.bincount(self.label, self.weight, len(statistics))
        label, moved = self.label[order], self.weight[order]  # to the left
        start = np.zeros((len(order), len(whole)))
        if mirrored is not None:
            moved *= np.where(np.take_along_axis(mirrored, order, axis=1), -1.0, 1.0)
            start = mirrored @ statistics.T
        grouped = label.argsort(axis=1, kind="stable")
        size = np.bincount(self.label, minlength=len(whole))
        running = np.take_along_axis(moved, grouped, axis=1).cumsum(axis=1)
        before = np.pad(running, ((0, 0), (1, 0)))[:, size.cumsum() - size]
        count = np.empty_like(moved)  # of the class of the row, on the left
        np.put_along_axis(count, grouped, running + np.repeat(start - before, size, axis=1), axis=1)
        left = self._terms(start, count, moved)
        right = self._terms(whole - start, whole[label] - count, -moved)
        total = torch.from_numpy(start.sum(axis=1)[:, None] + moved.cumsum(axis=1))
        joined = self.criterion.joined
        return np.asarray(joined(left, total) + joined(right, whole.sum() - total))

    def _terms(self, start: FloatArray, count: FloatArray, change: FloatArray) -> Tensor:
        """Sum the terms of a side, while its counts change to ``count`` by ``change``."""
        first, now, old = (torch.from_numpy(part) for part in (start, count, count - change))
        term = self.criterion.term
        return term(first).sum(-1, keepdim=True) + (term(now) - term(old)).cumsum(-1)


def best_cuts(
    values: FloatArray,
    statistics: FloatArray,
    quality: Quality,
    *,
    grain: FloatArray,
    slack: float,
    counts: IntArray,
    min_leaf: int = 1,
    mirrored: AnyArray | None = None,
    classes: RowClasses | None = None,
    sparse: bool = False,
) -> Cut:
    """Find the best threshold t of each row of values (P, m); ties are resolved by the widest gap.

    Parameters
    ----------
    values : array, shape (P, m)
        The rows with value <= t are on the left.
    statistics : array, shape (c, m)
    quality : callable
        Quality of splits, to be maximised.
    grain : array, shape (P,)
        Values within this distance count as equal.
    slack : float
        Qualities within this difference count as equal.
    counts : array, shape (m,)
        Number of training rows that each row stands for, of which ``min_leaf`` must be on each
        side.
    mirrored : array of bool, shape (P, m), optional
        These rows are on the left if their value is > t.
    classes : RowClasses, optional
        Of rows that count for one class each, for faster sums.
    sparse : bool
        Compare a few cuts, and all near the best of these, instead of all.
    """
    if values.shape[1] < 2:
        nothing = np.full(len(values), -math.inf)
        return Cut(nothing, nothing, nothing)
    order = values.argsort(axis=1)
    value = np.take_along_axis(values, order, axis=1)
    gap = np.diff(value, axis=1)
    found = None if classes is None else classes.qualities(order, statistics, mirrored)[:, :-1]
    order = order[:, :-1]
    sign = None if mirrored is None else np.where(mirrored, -1.0, 1.0)
    signs = None if sign is None else np.take_along_axis(sign, order, axis=1)

    def on_left(column: AnyArray, some: slice = ALL) -> FloatArray:
        """Sum a column on the left of each cut; at first, all mirrored rows are there."""
        moved = column[order[some]]
        if signs is None or mirrored is None:
            return moved.cumsum(axis=1)
        return (moved * signs[some]).cumsum(axis=1) + (mirrored[some] @ column)[:, None]

    def left(some: slice = ALL) -> FloatArray:
        return np.stack([on_left(column, some) for column in statistics])

    invalid = gap <= grain[:, None]
    if min_leaf > 1 or mirrored is not None:
        count = on_left(counts)
        invalid |= (count < min_leaf) | (count > counts.sum() - min_leaf)
    if found is None:
        whole = statistics.sum(axis=1)
        found = _sparse(left, whole, quality, invalid) if sparse else quality(left(), whole)
    found[invalid] = -math.inf
    near = found >= found.max(axis=1, keepdims=True) - slack
    best = np.where(near & ~invalid, gap, -1.0).argmax(axis=1)
    at = (np.arange(len(best)), best)
    return Cut(found[at], gap[at], value[at] + gap[at] / 2)


def _sparse(
    left: Callable[[slice], FloatArray], whole: FloatArray, quality: Quality, invalid: BoolArray
) -> FloatArray:
    """Compute qualities (P, m) of some of the cuts, minus infinity of others.

    Of v possible cuts about sqrt(v), evenly spaced, are compared, and then all between the
    neighbours of the best. ``left`` gives the sums (c, p, m) of p sets of values, as few at a time
    as memory asks for.
    """
    place = invalid.argsort(axis=1, kind="stable")  # the possible cuts come first
    last = np.maximum((~invalid).sum(axis=1, keepdims=True) - 1, 0)
    found = np.full(invalid.shape, -math.inf)

    def compare(some: slice, sums: FloatArray, rank: IntArray) -> None:
        cut = np.take_along_axis(place[some], rank, axis=1)
        chosen = np.take_along_axis(sums, cut[None], axis=2)
        np.put_along_axis(found[some], cut, quality(chosen, whole), 1)

    n_steps = max(1, math.isqrt(int(last.max(initial=0))))
    reach = -(-int(last.max(initial=0)) // n_steps)
    size = max(1, NUMBERS // (len(whole) * invalid.shape[1]))
    for start in range(0, len(invalid), size):
        some = slice(start, start + size)
        sums = left(some)
        compare(some, sums, np.arange(n_steps + 1) * last[some] // n_steps)
        best = np.take_along_axis(found[some], place[some], axis=1).argmax(axis=1)[:, None]
        compare(some, sums, np.clip(best + np.arange(-reach, reach + 1), 0, last[some]))
    return found


@dataclass(frozen=True, eq=False)
class NodeRows:
    """The m rows of a node, and the qualities of splits of these.

    A hyperplane is an array (d + 1,), the coefficients and last the intercept: a row goes right
    where ``with_ones @ plane > 0``.
    """

    X: FloatArray  # (m, d)
    y: AnyArray  # (m,): class numbers or real values, about the node's regression if it has one
    weights: FloatArray  # (m,)
    statistics: FloatArray  # (c, m): additive statistics
    criterion: Criterion
    min_leaf: int
    fitted: FloatArray | None = None  # (m, C): class probabilities by the node's regression

    @cached_property
    def quality(self) -> Quality:
        return quality_of(self.criterion)

    @cached_property
    def classes(self) -> RowClasses | None:
        """The classes of the rows, if sums over few of them are not as fast."""
        return RowClasses.of(self.statistics, self.criterion, FEW)

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @cached_property
    def with_ones(self) -> FloatArray:
        """The rows with a last column of ones, shape (m, d + 1)."""
        return np.column_stack([self.X, np.ones(len(self.X))])

    @cached_property
    def share(self) -> FloatArray:
        """Weights that sum to 1, shape (m,)."""
        return self.weights / self.weights.sum()

    @cached_property
    def slack(self) -> float:
        """Difference of qualities that rounding may cause."""
        return SLACK * float(np.abs(self.statistics).sum())

    @cached_property
    def quartiles(self) -> FloatArray:
        """Weighted quartiles of each feature, shape (3, d): the least values that reach them."""
        return weighted_quantiles(self.X, self.weights, QUARTILES)

    def groups(self, bounds: FloatArray | None = None) -> IntArray:
        """Number the classes of the rows from 0 (m,), or the intervals of real values."""
        if self.y.dtype.kind != "f":
            return np.unique(self.y, return_inverse=True)[1]
        if bounds is None:
            bounds = weighted_quantiles(self.y, self.weights, QUARTILES)
        return np.unique(np.searchsorted(bounds, self.y), return_inverse=True)[1]

    def cuts(self, directions: FloatArray) -> Cut:
        """Find the best threshold along each direction (P, d)."""
        size = np.abs(self.X).max(axis=0, initial=0.0)
        found = []
        for part in self._parts(len(directions)):
            values = directions[part] @ self.X.T
            grain = GRAIN * np.finfo(np.float64).eps * (np.abs(directions[part]) @ size)
            found.append(self._best(values, grain))
        return _joined(found)

    def steps(self, planes: FloatArray, moves: FloatArray) -> FloatArray:
        """Return the best of planes + a moves over all numbers a, for each of P pairs (P, d + 1).

        A row with score s at the plane and slope r changes sides at a = -s / r: from left to
        right if r > 0, from right to left if r < 0, and never if r = 0.
        """
        length = []
        for part in self._parts(len(planes)):
            score, slope = planes[part] @ self.with_ones.T, moves[part] @ self.with_ones.T
            mirrored = np.where(slope == 0, score <= 0, slope > 0)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                value = -score / slope
            value[(slope == 0) | ~np.isfinite(value)] = np.nan
            most = np.nanmax(value, axis=1, initial=-math.inf, keepdims=True)
            value = np.where(np.isnan(value), np.where(np.isfinite(most), most, 0.0), value)
            length.append(self._best(value, np.zeros(len(value)), mirrored).threshold)
        found = np.concatenate(length)
        found[~np.isfinite(found)] = 0.0
        return planes + found[:, None] * moves

    def qualities(self, planes: FloatArray) -> FloatArray:
        """Compute the quality of hyperplanes (P, d + 1); -inf if a side has too few rows."""
        found = np.empty(len(planes))
        for part in self._parts(len(planes)):
            left = self.with_ones @ planes[part].T <= 0
            found[part] = self.quality(self.statistics @ left, self.statistics.sum(axis=1))
            count = left.sum(axis=0)
            few = np.minimum(count, len(left) - count) < max(self.min_leaf, 1)
            found[part][few] = -math.inf
        return found

    def best(self, directions: FloatArray) -> FloatArray | None:
        """Find the best hyperplane along directions (P, d); in a tie, the first."""
        cuts = self.cuts(directions)
        highest = cuts.quality.max(initial=-math.inf)
        if highest == -math.inf:
            return None
        first = int((cuts.quality >= highest - self.slack).argmax())
        return np.append(directions[first], -cuts.threshold[first])

    def best_axis(self) -> FloatArray | None:
        """Find the best split by one feature; None if no cut leaves enough rows on each side."""
        return self.best(np.eye(self.n_features))

    def _best(self, values: FloatArray, grain: FloatArray, mirrored: AnyArray | None = None) -> Cut:
        return best_cuts(
            values,
            self.statistics,
            self.quality,
            grain=grain,
            slack=self.slack,
            counts=np.ones(len(self.X), dtype=np.int64),
            min_leaf=self.min_leaf,
            mirrored=mirrored,
            classes=self.classes,
            sparse=self.criterion.costly,
        )

    def _parts(self, n: int) -> Iterator[slice]:
        step = max(1, NUMBERS // self.statistics.size)
        return (slice(start, start + step) for start in range(0, max(n, 1), step))


class PlaneSearch(Settings):
    """A search for the hyperplane of a node, with its settings.

    A subclass is decorated by ``declare``, states its settings as fields, and defines ``find``.
    Names for it in ``literature.oblique.SEARCHES`` and ``estimators.registry.TREES`` make it part
    of the package.
    """

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        """Find the hyperplane of a node, shape (d + 1,); None if there is none."""
        raise NotImplementedError


@dataclass(frozen=True)
class PlaneSplitter(NodeByNode):
    """Fits the split of each node by a search for its hyperplane."""

    search: PlaneSearch
    leaf: Leaf
    criterion: Criterion | None = None  # by default that of the leaf (entropy, squared error)
    min_leaf: int = 1

    def split(self, data: Data) -> FittedSplit | None:
        statistics = statistics_of(self.leaf, data)
        X, y = data.X.double().numpy(force=True), self.leaf.target(data.y).numpy(force=True)
        fitted: FloatArray | None = None
        if self.leaf.regresses:  # means (m,) or class probabilities (m, C) by a regression here
            sums = self.leaf.statistics(data.y, data.weights).double().sum(0, keepdim=True)
            whole = self.leaf.estimate(sums.cpu())
            fitted = self.leaf.expected_y(whole, X)[:, 0]
            if not self.leaf.n_classes:
                y, fitted = y - fitted, None
        node = NodeRows(
            X,
            y,
            data.weights.double().numpy(force=True),
            np.ascontiguousarray(statistics.T.numpy(force=True)),
            self.criterion or self.leaf.criterion,
            self.min_leaf,
            fitted,
        )
        plane = self.search.find(node, np.random.default_rng(int(torch.randint(2**62, ()))))
        return None if plane is None else self._fitted(data, statistics, plane)

    def _fitted(self, data: Data, statistics: Tensor, plane: FloatArray) -> FittedSplit | None:
        """Return a hyperplane of unit normal as sites, with its gain in nats."""
        unit = torch.as_tensor(plane / np.linalg.norm(plane[:-1])).to(data.X)
        right = (data.X @ unit[:-1] + unit[-1]) > 0
        n_right = int(right.sum())
        if min(n_right, len(right) - n_right) < max(self.min_leaf, 1):
            return None
        gain = self.leaf.criterion.hard_gain(statistics, right)
        return FittedSplit({"hyperplane": unit[None, :-1], "intercept": unit[-1:]}, right, gain)


def _joined(cuts: list[Cut]) -> Cut:
    return Cut(*(np.concatenate(parts) for parts in zip(*cuts, strict=True)))
