"""Credible intervals of the numbers of a printed tree.

A draw of the parameters gives a mean of y for each row. The tree is fitted to these means in the
form that it has, which gives other limits, coefficients and leaves: a projection of the draw
(Woody, Carvalho and Murray, "Model interpretation through lower-dimensional posterior
summarization", 2021). Numbers are fitted one after the other by least squares, each exactly: a row
changes sides where a number passes a value of its own, so that running sums give the best one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.monte_carlo import central_interval
from bayestree._utils.wording import Days, in_sum, plain
from bayestree._utils.wording import limit as rounded
from bayestree.description import TreeDescription
from bayestree.tree import Tree

ROUNDS = 2  # in which each number is fitted once
SLOPES = 1e-6  # of the squares of the features, added where rows of a leaf do not determine slopes


class Numbers(NamedTuple):
    """The numbers of a tree: a row is inside a facet if plane . x <= bound.

    Those of facets are ranges, within which a number sends every row to the same side.
    """

    plane: FloatArray  # (E, d, 2)
    bound: FloatArray  # (E, 2)
    value: FloatArray  # (L, q), at the center
    slope: FloatArray  # (L, d), 0 but for linear leaves of numbers


class _Facets(NamedTuple):
    """Facets while they are fitted, their ranges, and which rows (n, E) are inside of each."""

    plane: FloatArray
    bound: FloatArray
    planes: FloatArray
    bounds: FloatArray
    inside: BoolArray

    @classmethod
    def of(cls, tree: Tree, X: FloatArray) -> "_Facets":
        plane, bound = tree.hyperplane.copy(), tree.facet_limit.copy()
        planes, bounds = (np.stack((one, one), axis=-1) for one in (plane, bound))
        return cls(plane, bound, planes, bounds, bound >= X @ plane.T)


class Form:
    """A tree whose numbers are fitted to means of y at some rows (n, d).

    Raises
    ------
    ValueError
        If the votes of several facets add up, so that no facet has a limit of its own, if leaves
        are logistic, or without rows.
    """

    def __init__(self, tree: Tree, X: FloatArray) -> None:
        if not tree.is_conjunction.all():
            raise ValueError(
                "a tree has intervals if each of its facets has a limit of its own, but the votes "
                "of several facets add up: fit with sparse facets, such as sparsity=0.05."
            )
        if tree.slope is not None and tree.slope.ndim > 2:
            raise ValueError(
                "the numbers of logistic leaves have no intervals: fit with leaf='constant'."
            )
        if not len(X):
            raise ValueError("X must have rows at which the tree is to predict, got none.")
        self.tree, self.X, self.away = tree, X, X - tree.center
        self.described = TreeDescription(tree)
        self.half_spaces = [self.described.half_space(e) for e in range(len(tree.weight))]
        value = tree.value.reshape(tree.n_leaves, -1)
        linear = tree.slope is not None and tree.slope.ndim == 2
        slope = tree.slope if linear else np.zeros((tree.n_leaves, tree.n_features))
        self.value, self.slope = value, np.asarray(slope)

    def fitted(self, mean: FloatArray) -> Numbers:
        """Fit the numbers to means (n, q), started from those that are printed."""
        facets = _Facets.of(self.tree, self.X)
        value, slope = self._leaves(self._leaf(facets.inside, 0), mean)
        for _ in range(ROUNDS):
            for node in range(self.tree.n_nodes):
                predicted = value + (self.away @ slope.T)[..., None]
                of_leaves = ((mean[:, None] - predicted) ** 2).sum(axis=-1)  # square errors (n, L)
                for expert in range(*self.tree.expert_start[node : node + 2].tolist()):
                    self._fit(node, expert, facets, of_leaves)
                value, slope = self._leaves(self._leaf(facets.inside, 0), mean)
        return Numbers(facets.planes, facets.bounds, value, slope)

    def undetermined(self) -> tuple[BoolArray, BoolArray]:
        """Mark the facets (E,) and leaves (L,) that have no more rows than numbers."""
        inside = _Facets.of(self.tree, self.X).inside
        nodes = [self._reached(inside, node).sum() for node in range(self.tree.n_nodes)]
        rows = np.repeat(np.array(nodes, dtype=int), self.tree.n_facets)
        of_leaves = np.bincount(self._leaf(inside, 0), minlength=self.tree.n_leaves)
        terms = np.count_nonzero(self.tree.hyperplane, axis=1)
        return rows <= terms, of_leaves <= np.count_nonzero(self.slope, axis=1)

    def others(self, expert: int) -> IntArray:
        """Return the features whose coefficients are printed, relative to the first one."""
        found = self.half_spaces[expert]
        terms = np.flatnonzero(self.tree.hyperplane[expert])
        printed = found.limit and self.tree.unit is None
        return terms[terms != found.first] if printed else terms[:0]

    def _fit(self, node: int, expert: int, facets: "_Facets", of_leaves: FloatArray) -> None:
        """Fit the coefficients and the limit of a facet, given all others; in place."""
        if not self.half_spaces[expert].limit:
            return  # a statement about levels has no number
        plane, bound, inside = facets.plane, facets.bound, facets.inside
        left, right = (self._leaf(inside, child) for child in self.tree.topology.children[node])
        others = np.arange(*self.tree.expert_start[node : node + 2])
        open_ = inside[:, others[others != expert]].all(axis=1)
        decided = np.flatnonzero(open_ & self._reached(inside, node))
        every = np.arange(len(self.X))
        gain = (of_leaves[every, right] - of_leaves[every, left])[decided]
        for feature in self.others(expert):
            base = self.X[decided] @ plane[expert] - bound[expert]
            change, ends = _best(base, self.away[decided, feature], gain)
            facets.planes[expert, feature] = plane[expert, feature] + ends
            plane[expert, feature] += change
            bound[expert] += change * self.tree.center[feature]
        base = self.X[decided] @ plane[expert] - bound[expert]
        change, ends = _best(base, np.full(len(base), -1.0), gain)
        facets.bounds[expert] = bound[expert] + ends
        bound[expert] += change
        inside[:, expert] = self.X @ plane[expert] <= bound[expert]

    def _reached(self, inside: BoolArray, node: int) -> BoolArray:
        """Tell which rows reach a node."""
        reached = np.ones(len(self.X), dtype=bool)
        while (parent := self.tree.topology.node_parent[node]) >= 0:
            right = self.tree.topology.children[parent, 1] == node
            reached &= self._inside(inside, parent) != right
            node = parent
        return reached

    def _inside(self, inside: BoolArray, node: int) -> BoolArray:
        own: BoolArray = inside[:, slice(*self.tree.expert_start[node : node + 2])]
        return np.asarray(own.all(axis=1))

    def _leaf(self, inside: BoolArray, child: int) -> IntArray:
        """Return the leaf that each row would reach from a node or leaf, shape (n,)."""
        if child < 0 or not self.tree.n_nodes:
            return np.full(len(self.X), max(~child, 0))
        left, right = (self._leaf(inside, one) for one in self.tree.topology.children[child])
        return np.where(self._inside(inside, child), left, right)

    def _leaves(self, leaf: IntArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Fit the leaves to the means of their rows; those without rows keep what is printed."""
        value, slope = self.value.copy(), self.slope.copy()
        for number in range(self.tree.n_leaves):
            own, features = leaf == number, np.flatnonzero(slope[number])
            if not own.any():
                continue
            row = np.column_stack((np.ones(own.sum()), self.away[own][:, features]))
            square = row.T @ row
            square += SLOPES * np.diag(np.append(0.0, self.tree.scale[features] ** 2))
            found = np.linalg.solve(square, row.T @ mean[own])
            value[number] = found[0]
            slope[number, features] = found[1:, 0] if len(features) else 0.0
        return value, slope


def _best(base: FloatArray, along: FloatArray, gain: FloatArray) -> tuple[float, FloatArray]:
    """Return the change t at which the rows with base + t along <= 0 have the largest gain.

    The ends (2,) of its range are two values at which rows change sides. The change is 0 if that is
    between them, or if there are none, and otherwise in the middle.
    """
    moving = along != 0
    base, along, gain = base[moving], along[moving], gain[moving]
    turn = -base / along
    order = np.argsort(turn, kind="stable")
    turn, enters = turn[order], along[order] < 0
    total = np.cumsum(np.where(enters, gain[order], -gain[order]))[:-1]
    total = np.where(turn[1:] > turn[:-1], total, -np.inf)
    if not len(total) or total.max() == -np.inf:
        return 0.0, np.zeros(2)
    ends = turn[total.argmax() + np.arange(2)]
    return 0.0 if ends[0] <= 0 <= ends[1] else float(ends.mean()), ends


@dataclass(frozen=True, eq=False)
class TreeIntervals:
    """Credible intervals of the numbers of a tree.

    Attributes
    ----------
    limit : array, shape (E, 2)
        Of the limit of each facet, as it is printed; NaN for statements about levels, and, as for
        all numbers, where no more rows are than numbers.
    coefficient : array, shape (E, d, 2)
        Of the coefficients that are printed, relative to the first of the facet; otherwise NaN.
    value : array, shape (L, 2), or (L, C, 2) of classes
        Of the prediction of each leaf, at the center if it is linear.
    slope : array, shape (L, d, 2)
        Of the slopes of linear leaves of numbers; NaN without a slope.
    level : float
    """

    tree: Tree
    limit: FloatArray
    coefficient: FloatArray
    value: FloatArray
    slope: FloatArray
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each number: node or leaf, name, what is printed, low and high."""
        found = pd.DataFrame([*self._rows()], columns=["at", "number", "printed", "low", "high"])
        return found.set_index(["at", "number"])

    def _rows(self) -> Iterator[tuple[str, str, float, float, float]]:
        tree, described = self.tree, TreeDescription(self.tree)
        features = described.features
        for node in range(tree.n_nodes):
            for half_space in described.half_spaces(node):
                expert, divisor = half_space.expert, half_space.divisor
                if not np.isnan(self.limit[expert, 0]):
                    low, high = self.limit[expert].tolist()
                    terms = in_sum(half_space.only) or half_space.terms
                    name = f"limit of {terms}"
                    yield described.path(node), name, half_space.bound, low, high
                for j in np.flatnonzero(~np.isnan(self.coefficient[expert, :, 0])).tolist():
                    low, high = self.coefficient[expert, j].tolist()
                    printed = float(tree.hyperplane[expert, j] / divisor)
                    yield described.path(node), f"coefficient of {features[j]}", printed, low, high
        for leaf in range(tree.n_leaves):
            at = described.path(~leaf)
            for name, printed, ends in zip(
                described.classes or (tree.quantity,),
                np.atleast_1d(tree.value[leaf]).tolist(),
                self.value[leaf].reshape(-1, 2).tolist(),
                strict=True,
            ):
                if not np.isnan(ends[0]):
                    yield at, name, printed, *ends
            for j in np.flatnonzero(~np.isnan(self.slope[leaf, :, 0])).tolist():
                low, high = self.slope[leaf, j].tolist()
                printed = float(np.asarray(tree.slope)[leaf, j])
                yield at, f"slope of {features[j]}", printed, low, high

    def of_limit(self, expert: int, digits: int | None) -> str:
        """Write the interval of a limit in parentheses; nothing for a statement about levels."""
        ends, of = self.limit[expert], TreeDescription(self.tree).half_space(expert).only
        return "" if np.isnan(ends[0]) else f" ({_between(ends, digits, of)})"

    def of_leaf(self, leaf: int, digits: int | None) -> str:
        """Write that of the prediction of a leaf, or of the share of its most frequent class."""
        if np.isnan(self.value[leaf]).any():
            return ""
        if not self.tree.classifies:
            at = " at the means" if (~np.isnan(self.slope[leaf])).any() else ""
            return f" ({_between(self.value[leaf].reshape(-1, 2)[0], digits)}{at})"
        best = int(self.tree.value[leaf].argmax())
        low, high = (100 * self.value[leaf, best]).tolist()
        return f" ({TreeDescription(self.tree).classes[best]}: {low:.1f} to {high:.1f} %)"

    def __str__(self) -> str:
        text = shown(self).to_string()
        return f"{self.level:.0%} intervals of the numbers of the tree\n{text}"


def shown(intervals: TreeIntervals) -> pd.DataFrame:
    """Write numbers to three digits or a tenth of their interval's length, whichever is nearer."""

    def short(one: pd.Series) -> pd.Series:
        length = one["high"] - one["low"] or 1.0
        texts = one.map(lambda value: (plain(value, 3), rounded(value, length, 2)))
        return one.combine(texts, lambda x, each: min(each, key=lambda text: abs(float(text) - x)))

    return intervals.to_frame().apply(short, axis=1)


def _between(ends: FloatArray, digits: int | None, of: str = "") -> str:
    """Write the ends of an interval, to a tenth of its length or in full."""
    low, high = ends.tolist()
    if isinstance(of, Days):
        return f"{of.date(low, up=False)} to {of.date(high, up=True)}"
    if digits is None or low == high:
        return f"{plain(low, digits)} to {plain(high, digits)}"
    return f"{rounded(low, high - low, 2)} to {rounded(high, high - low, 2)}"


def tree_intervals(
    tree: Tree,
    X: FloatArray,
    draws: Iterable[tuple[FloatArray, FloatArray]],
    chains: IntArray,
    level: float,
) -> TreeIntervals:
    """Compute intervals of the numbers of a tree from means of y at rows X (n, d).

    ``draws`` are groups of draws of means, (S, n) or (S, n, q), and their weights (S,); ``chains``
    are those of all draws.
    """
    form, found, weights = Form(tree, X), list[Numbers](), list[FloatArray]()
    for means, each in draws:
        found += map(form.fitted, means.reshape(len(means), len(X), -1))
        weights.append(each)
    planes, bounds, values, slopes = (np.stack(parts) for parts in zip(*found, strict=True))
    weight = np.concatenate(weights)

    def between(low: FloatArray, high: FloatArray, shown: FloatArray) -> FloatArray:
        """Return the interval from a quantile of lower ends (S, ...) to one of upper ends.

        It reaches to what is printed, which was rounded and, in leaves, moved towards y.
        """
        lower, _ = central_interval(low, weight, chains, level)
        _, upper = central_interval(high, weight, chains, level)
        return np.stack((np.minimum(lower, shown), np.maximum(upper, shown)), -1)

    def of_ranges(ranges: FloatArray, shown: FloatArray) -> FloatArray:
        """Divide as the facet is printed, whose divisor may be negative."""
        by = np.reshape([one.divisor for one in form.half_spaces], (-1, *[1] * (shown.ndim - 1)))
        divided = ranges / by[..., None]
        return between(divided.min(axis=-1), divided.max(axis=-1), shown / by)

    limit, coefficient = of_ranges(bounds, tree.facet_limit), of_ranges(planes, tree.hyperplane)
    limit[np.array([not one.limit for one in form.half_spaces], dtype=bool)] = np.nan
    for expert, own in enumerate(coefficient):
        own[np.setdiff1d(np.arange(tree.n_features), form.others(expert))] = np.nan
    of_facets, of_leaves = form.undetermined()
    limit[of_facets], coefficient[of_facets] = np.nan, np.nan
    value = between(values, values, form.value).reshape(*tree.value.shape, 2)
    slope = between(slopes, slopes, form.slope)
    slope[form.slope == 0] = np.nan
    value[of_leaves], slope[of_leaves] = np.nan, np.nan
    return TreeIntervals(tree, limit, coefficient, value, slope, level)
