"""Splits by one hyperplane, found node by node by an exchangeable search.

A search is one class: its fields are its settings, and ``find`` proposes the hyperplane of a node.
It draws on two exact searches over the rows: the best threshold along directions, and the best
length of a step from a hyperplane along others.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.inference.splitters.cuts import (
    GRAIN,
    NUMBERS,
    SLACK,
    Cut,
    Quality,
    RowClasses,
    best_cuts,
    quality_of,
    statistics_of,
)
from bayestree.inference.splitters.protocol import FittedSplit, NodeByNode
from bayestree.inference.stage import Settings
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import Leaf

FEW = 4  # classes, over which sums are as fast as a second sort of the rows


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
        return weighted_quartiles(self.X, self.weights)

    def groups(self, bounds: FloatArray | None = None) -> IntArray:
        """Number the classes of the rows from 0 (m,), or the intervals of real values."""
        if self.y.dtype.kind != "f":
            return np.unique(self.y, return_inverse=True)[1]
        if bounds is None:
            bounds = weighted_quartiles(self.y[:, None], self.weights)[:, 0]
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


def weighted_quartiles(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return weighted quartiles of each column (m, k), shape (3, k)."""
    order = values.argsort(axis=0, kind="stable")
    below = weights[order].cumsum(axis=0)
    # rows of equal total weight are told apart by less than the rounding of the sums
    reached = [(below >= q * (1 - SLACK) * below[-1]).argmax(axis=0) for q in (0.25, 0.5, 0.75)]
    ordered = np.take_along_axis(values, order, axis=0)
    return np.take_along_axis(ordered, np.stack(reached), axis=0)


class PlaneSearch(Settings):
    """A search for the hyperplane of a node, with its settings.

    A subclass is decorated by ``declare``, states its settings as fields, and defines ``find``.
    Names for it in ``searches.SEARCHES`` and ``estimators.registry.TREES`` make it part of the
    package.
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
        fitted = self._fitted_y(X, statistics) if self.leaf.regresses else None
        if fitted is not None and not self.leaf.n_classes:
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

    def _fitted_y(self, X: FloatArray, statistics: Tensor) -> FloatArray:
        """Predict means (m,) or class probabilities (m, C) by a regression on the node."""
        whole = self.leaf.estimate(statistics.sum(0, keepdim=True).cpu())
        return self.leaf.expected_y(whole, X)[:, 0]

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
