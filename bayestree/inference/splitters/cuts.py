"""Exact search of the best threshold: sort the rows, and compare all cuts by sums of statistics.

The caller supplies the quality of a split as a function of the sums of additive statistics on its
left side.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.models.criteria import CountCriterion, Criterion
from bayestree.models.leaves import Leaf

#: Quality of splits, from the sums (c, ...) of the statistics on their left and over all rows (c,).
Quality = Callable[[FloatArray, FloatArray], FloatArray]

NUMBERS = 1_000_000  # maximum size of the sums over which cuts are compared at a time
GRAIN = 16  # projections within this many rounding units count as equal
SLACK = 1e-9  # qualities within this relative difference count as equal
ALL = slice(None)


def statistics_of(leaf: Leaf, data: Data) -> Tensor:
    """Return statistics (n, c) of rows in double precision, without classes that are absent."""
    found = leaf.statistics(data.y, data.weights).double()
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
