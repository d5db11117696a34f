"""The path of ever shorter trees, and the choice of one of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression, linear_sum_assignment
from torch import Tensor

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.fitting.defaults import COLUMNS
from bayestree.fitting.projection.facets import Facets, Splits, in_points, round_units
from bayestree.fitting.projection.nodes import Columns, Node, nodes_of
from bayestree.fitting.projection.reference import Reference, some_rows
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.routed_tree import RowSource
from bayestree.tree import Tree

NUMBERS = 25  # of a tree by default: coefficients, with limits, and leaves
CROWDED = 2 * NUMBERS  # numbers above which many terms are left out at once
FEW = 4  # trees of more numbers than are shown, by which the loss is measured
SWEEPS = 2  # over the nodes
DIGITS = 3  # of coefficients
LOST = 1.0  # standard errors that may be lost by default
MOST_LOST = 3.0  # nats of a row that count in a comparison of two trees
SPARE = 0.25  # share of the allowed loss, up to which limits of scores become whole
N_FOLDS, FEW_FOLDS, FEW_ROWS = 5, 3, 1_000  # folds for the choice of a length: more of few rows


class Point(NamedTuple):
    """A sparse tree on the path."""

    columns: int  # of a facet, at most
    coefficients: int  # of the whole tree
    loss: float  # mean log density lost to the best point, in nats a row
    se: float  # its standard error
    agreement: float  # share of the training rows in the leaves of the tree that was projected


@dataclass(frozen=True)
class Sparsity:
    """What a sparse tree may lose."""

    #: Nats a row to the best longer tree; by default, a standard error of the difference to the
    #: best tree of at most 25 numbers.
    loss: float | None = None
    most: int = COLUMNS  # maximum number of columns of a facet, from which the search starts
    #: Maximum number of points for each unit of a column; facets are scores if it is set.
    points: int | None = None

    @property
    def numbers(self) -> float:
        """The largest number of numbers in the tree."""
        return NUMBERS if self.loss is None else np.inf

    def slopes(self, terms: int, n_leaves: int) -> float:
        """Return how many slopes the leaves may have beside the terms of facets."""
        return max(self.numbers - terms - n_leaves, n_leaves)

    def limit(self, se: float) -> float:
        """Return the largest loss that is allowed, in nats a row, given its standard error."""
        return LOST * se if self.loss is None else self.loss


class Projected(NamedTuple):
    """A tree of sparse facets, and the path on which it lies."""

    tree: Tree
    nodes: IntArray  # numbers of its nodes in the tree that was projected
    path: tuple[Point, ...]  # the shortest first, and at the end the chosen one
    log_density: FloatArray  # of y at the rows that were compared, in trees of other folds
    share: FloatArray  # of these rows in the comparison, with sum 1
    rounding: FloatArray | None  # nats a row lost by points, and their standard error
    reference: Reference
    X: FloatArray  # its rows, in the units of the data


def project(
    tree: Tree,
    rows: RowSource,
    data: Data,
    *,
    posterior: Posterior,
    reference: Sequence[tuple[Posterior, float]],
    columns: Columns,
    sparsity: Sparsity,
    min_leaf: int = 1,
) -> Projected:
    """Project a posterior onto a short tree of few columns a facet.

    The facets start at those of the tree with their best three columns, and are improved in turn,
    the last node first, as in tree alternating optimisation (Carreira-Perpinan and Tavallali 2018):
    a row should take the side on which the leaf that it reaches has the larger expected log density
    of y, under the posterior predictive distribution. Then one part after another is left out,
    always that which costs least for each number that is no longer printed: a term of a facet, a
    facet, or a node with what is below one of its sides (backward elimination, as cost-complexity
    pruning does it with leaves: Breiman et al. 1984, chapter 3).

    The chosen tree is the shortest one that loses little enough. Trees are compared by
    cross-validation over rows: by the log densities of y at the rows of each fold in trees as long
    that were projected without them, whose losses are made to fall with the length (isotonic
    regression). Only the predictions that are projected rest on all rows. At the end, facets become
    scores if points are asked for.

    ``tree`` and the rows (n, d) are in the units of the data, and ``data`` is on the scale of the
    draws of its ``posterior``. The predictions of the mixture ``reference`` are projected onto the
    columns in use. At least ``min_leaf`` rows are on each side of some node, if any tree has such a
    node; the leaves keep the values that ``tree`` has.
    """
    few, X = some_rows(rows, data)
    of_rows = Reference.of(reference, posterior.model.leaf, few)
    n_folds = min(len(X), N_FOLDS if len(X) <= FEW_ROWS else FEW_FOLDS)
    fold = np.random.default_rng(0).permutation(len(X)) % n_folds
    steepness, size = posterior.model.steepness, min(sparsity.most, columns.most)

    def search(own: IntArray) -> _Search:
        few = of_rows.take(own)
        weights = few.data.weights.double().numpy(force=True)
        nodes = nodes_of(tree, X[own], weights, steepness, columns)
        return _Search(tree, nodes, few, X[own], weights, sparsity)

    folds = []
    for number in range(n_folds):
        rest, own = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        others = search(rest)
        folds.append(_Fold(own, others, others.path(size), X[own], of_rows.take(own)))
    every, least = search(np.arange(len(X))), math.ceil(min_leaf * len(X) / len(rows))
    path = every.path(size)
    splitting = [one for one in path if every.tree_of(one, least=least)[0].n_nodes]
    return every.chosen(splitting or path, folds, columns)


class _Now(NamedTuple):
    """Where the rows are in splits, and what follows for leaves, also for two that become one."""

    right: BoolArray  # (n, V)
    place: IntArray  # (n,)
    expected: FloatArray  # log density of y, (n, leaves and pairs)
    slopes: list[int]  # that pay for themselves
    joined: dict[int, int]  # places of the pairs, by the nodes above them


@dataclass(frozen=True, eq=False)
class _Search:
    """Sparse trees of the topology of one tree."""

    tree: Tree
    nodes: Sequence[Node]
    reference: Reference
    X: FloatArray
    weights: FloatArray
    sparsity: Sparsity

    def chosen(
        self, path: Sequence[Splits], folds: Sequence["_Fold"], columns: Columns
    ) -> Projected:
        """Find the shortest tree that loses little enough at the rows of other folds."""
        sparsity = self.sparsity
        short = [one for one in path if one.numbers <= sparsity.numbers] or path[:1]
        longer = [one for one in path[len(short) :] if one.numbers <= CROWDED]
        path = [*short, *longer[:: max(1, len(longer) // FEW)]]
        trees = [[fold.as_long(one.numbers) for fold in folds] for one in path]
        whole = [_held_out(folds, own) for own in trees]
        # The differences of all trees are then limited alike, so that none is better than the best.
        least = np.max(whole, axis=0) - MOST_LOST
        each = [np.maximum(one, least) for one in whole]
        place, best = self._shortest(each[: len(short)]), self._best(each)
        found, score, rounding, unit = path[place], whole[place], None, None
        if sparsity.points is not None:
            unit, before = round_units(self.X), score
            found = self.scores(found, unit)
            own = zip(folds, trees[place], strict=True)
            score = _held_out(folds, [f.search.scores(one, unit) for f, one in own])
            rounding = np.array(self._mean(np.maximum(before, least) - np.maximum(score, least)))
        points = [*zip(path, each, strict=True), (found, np.maximum(score, least))]
        return Projected(
            *self.tree_of(found, unit),
            tuple(self._point(one, each[best] - own, columns) for one, own in points),
            score,
            self.weights / self.weights.sum(),
            rounding,
            self.reference,
            self.X,
        )

    def _best(self, each: Sequence[FloatArray]) -> int:
        """Return the tree of the largest mean log p(y)."""
        return int(np.argmax(np.stack(each) @ self.weights))

    def _shortest(self, each: Sequence[FloatArray]) -> int:
        """Choose from trees, the shortest first, given log p(y) of the rows in each."""
        best = self._best(each)
        lost, se = np.transpose([self._mean(each[best] - one) for one in each[: best + 1]])
        fallen = isotonic_regression(lost, increasing=False).x
        limits = [*(self.sparsity.limit(one) for one in se[:-1].tolist()), np.inf]
        return int(np.argmax(fallen <= limits))

    def path(self, size: int) -> list[Splits]:
        """Return ever longer trees, from a single facet of a column to ``size`` columns a facet."""
        found = [self._start(size)]
        while found[-1].numbers > CROWDED:
            fewer = self._thinned(found[-1])
            if fewer.numbers == found[-1].numbers:
                break
            found.append(fewer)
        while (cut := self._shorter(found[-1])) is not None:
            lost, shorter = cut
            if lost <= 0:  # as good, and shorter
                found.pop()
            found.append(shorter)
        return sorted(map(self._rounded, reversed(found)), key=lambda one: one.numbers)

    def _splits(self, facets: Sequence[Facets]) -> Splits:
        return Splits(self.tree.topology, tuple(facets), np.full(len(facets), -1))

    def _start(self, size: int) -> Splits:
        """Return facets of at most ``size`` columns for all nodes."""
        found = self._splits([node.start(size) for node in self.nodes])
        for sweep in range(SWEEPS):
            before, right = found, found.right(self.X, exact=True)
            expected = self.reference.expected_log_density(self._sums(found.leaves(right)))
            for node in reversed(found.nodes):
                found = self._improved(found, node, expected, select=sweep == 0)
            if (found.right(self.X, exact=True) == before.right(self.X, exact=True)).all():
                break
        return replace(
            found,
            facets=tuple(
                node.relative(one) for node, one in zip(self.nodes, found.facets, strict=True)
            ),
        )

    def _improved(self, one: Splits, node: int, expected: FloatArray, *, select: bool) -> Splits:
        """Fit the facets of a node to the sides on which y has the larger expected density."""
        own, gain = self._gains(one, one.right(self.X, exact=True), node, expected)
        if not gain.any():
            return one
        return one.with_facets(
            node, self.nodes[node].improved(one.facets[node], own, gain, select=select)
        )

    def _sums(self, place: IntArray) -> Tensor:
        return self.reference.of_leaves(place, self.tree.n_leaves)

    def _gains(
        self, one: Splits, right: BoolArray, node: int, expected: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the rows that reach a node, and what each gains on the right."""
        own = one.reach(right, node)
        left_child, right_child = self.tree.topology.children[node].tolist()
        there = one.leaves(right[own], right_child), one.leaves(right[own], left_child)
        gain = np.clip(expected[own, there[0]] - expected[own, there[1]], -MOST_LOST, MOST_LOST)
        return own, self.weights[own] * gain

    def _thinned(self, one: Splits) -> Splits:
        """Leave out many terms of each node."""
        place = one.leaves(one.right(self.X, exact=True))
        expected = self.reference.expected_log_density(self._sums(place))
        for node in reversed(one.nodes):
            own, gain = self._gains(one, one.right(self.X, exact=True), node, expected)
            one = one.with_facets(node, one.facets[node].thinned(self.X[own], gain))
            one = self._improved(one, node, expected, select=False)
        return one

    def _shorter(self, one: Splits) -> tuple[float, Splits] | None:
        """Leave out the part that costs least for each number; also return what it costs.

        None if a single facet of one column is left.
        """
        now = self._now(one)
        one = replace(one, slopes=sum(now.slopes[: self.tree.n_leaves]))
        best: tuple[float, float, int, Facets | Splits] | None = None
        for node in one.nodes:
            own, gain = self._gains(one, now.right, node, now.expected)
            before, length = float(gain[now.right[own, node]].sum()), one.facets[node].rule.length
            for after, facets in one.facets[node].shorter(self.X[own], gain):
                lost = before - after
                price = lost / max(length - facets.rule.length, 1)
                if best is None or price < best[0]:
                    best = price, lost, node, facets
            lost, without = self._without(one, node, own, gain, now)
            price = lost / max(one.numbers - without.numbers, 1)
            if without.nodes and (best is None or price < best[0]):
                best = price, lost, node, without
        if best is None:
            return None
        _, lost, node, part = best
        if isinstance(part, Splits):
            return lost, part
        found = one.with_facets(node, part)
        place = found.leaves(found.right(self.X, exact=True))
        expected = self.reference.expected_log_density(self._sums(place))
        return lost, self._improved(found, node, expected, select=False)

    def _now(self, one: Splits) -> "_Now":
        right = one.right(self.X, exact=True)
        place = one.leaves(right)
        sums = self._sums(place)
        twigs = {node: leaves for node in one.nodes if len(leaves := one.leaves_below(node)) == 2}
        every = torch.stack([*sums, *(sums[leaves].sum(dim=0) for leaves in twigs.values())])
        expected, slopes = self.reference.expected_log_density(every), self._slopes(every)
        joined = {node: self.tree.n_leaves + number for number, node in enumerate(twigs)}
        return _Now(right, place, expected, slopes.tolist(), joined)

    def _without(
        self, one: Splits, node: int, own: IntArray, gain: FloatArray, now: "_Now"
    ) -> tuple[float, Splits]:
        """Leave out a node: its two leaves become one, or all rows go to the better side."""
        if node in now.joined:
            both = now.joined[node]
            more = now.expected[own, now.place[own]] - now.expected[own, both]
            lost = float(self.weights[own] @ np.clip(more, -MOST_LOST, MOST_LOST))
            gone, side, slopes = one.leaves_below(node), 0, now.slopes[both]
        else:
            total = float(gain.sum())
            lost = float(gain[now.right[own, node]].sum()) - max(total, 0.0)
            side, slopes = int(total > 0), 0
            gone = one.leaves_below(one.child(node, 1 - side))
        return lost, one.without(node, side, slopes - sum(now.slopes[leaf] for leaf in gone))

    def room(self, one: Splits) -> float:
        """Return how many slopes the leaves of splits may have."""
        return self.sparsity.slopes(one.terms, len(one.nodes) + 1)

    def _slopes(self, sums: Tensor, most: float = math.inf) -> IntArray:
        """Count the slopes that pay for themselves in leaves with these sums, (L,)."""
        values = self.reference.leaf.sparse_values(sums, most)
        slope = values.get("slope", np.zeros((len(sums), 1)))
        return np.count_nonzero(slope.reshape(len(sums), -1), axis=1)

    def _rounded(self, one: Splits) -> Splits:
        right, found = one.right(self.X, exact=True), one
        for node in one.nodes:
            own = one.reach(right, node)
            if len(own):
                rounded = self.nodes[node].rounded(one.facets[node], own, DIGITS)
                found = found.with_facets(node, rounded)
        slopes = self._slopes(self._sums(found.places(self.X)), self.room(found))
        return replace(found, slopes=int(slopes.sum()))

    def _point(self, one: Splits, lost: FloatArray, columns: Columns) -> Point:
        """Describe a tree, given the log density that it has lost at each row."""
        facets = [one.facets[node] for node in one.nodes]
        return Point(
            max(facet.n_columns(columns.groups) for facet in facets),
            one.terms,
            *self._mean(lost),
            same_leaves(one.places(self.X), self.tree.apply(self.X), self.weights),
        )

    def _mean(self, each: FloatArray) -> tuple[float, float]:
        """Return the mean over the rows, and its standard error.

        Where classes are separable, few rows lose much and all others nothing, and the usual
        estimate is too small: it is not larger than the mean if a single row loses. It is therefore
        that of the rows and one more that differs as much as the worst, as in intervals of rare
        events with added observations (Agresti and Coull 1998).
        """
        # A row in a wrong leaf may lose thousands of nats, and hides all others.
        each, share = np.clip(each, -MOST_LOST, MOST_LOST), self.weights / self.weights.sum()
        mean, worst = float(share @ each), float((share * np.abs(each)).max())
        return mean, float(np.sqrt(share**2 @ (each - mean) ** 2 + worst**2))

    def scores(self, one: Splits, unit: FloatArray) -> Splits:
        """Make scores of facets; their limits are whole if this costs little at these rows."""
        sparsity = self.sparsity
        assert sparsity.points is not None
        aims, full, least = one.facets, self._expected(one), np.inf
        for _ in range(SWEEPS):
            before = one.right(self.X)
            for v in reversed(one.nodes):
                right = one.right(self.X)
                expected = self.reference.expected_log_density(self._sums(one.leaves(right)))
                own, gain = self._gains(one, right, v, expected)
                if not len(own):
                    own, gain = np.arange(len(self.X)), np.zeros(len(self.X))
                found = []
                for whole in (False, True):
                    X, aim = self.X[own], aims[v].rule
                    rule = in_points(aim, X, gain, unit, sparsity.points, whole=whole)
                    trial = one.with_facets(v, replace(one.facets[v], rule=rule))
                    found.append((trial, *self._mean(full - self._expected(trial))))
                (_, finer, _), (_, coarser, se) = found
                trial, lost, _ = found[coarser <= max(finer, SPARE * sparsity.limit(se))]
                if one.facets[v].rule is aims[v].rule or lost < least:
                    one, least = trial, lost
            if (one.right(self.X) == before).all():
                break
        return one

    def _expected(self, one: Splits) -> FloatArray:
        """Expect log p(y) of each row in its leaf, (n,)."""
        place = one.places(self.X)
        found = self.reference.expected_log_density(self._sums(place))
        return np.asarray(np.take_along_axis(found, place[:, None], axis=1)[:, 0])

    def tree_of(
        self, one: Splits, unit: FloatArray | None = None, least: int = 1
    ) -> tuple[Tree, IntArray]:
        """Return the tree, with scores if features have a ``unit``, and the nodes it has kept.

        Nodes of fewer than ``least`` rows on a side are left out.
        """
        parts = [facets.rule.experts(self.tree.scale) for facets in one.facets]
        weight, plane, intercept = (np.concatenate(part) for part in zip(*parts, strict=True))
        start = np.cumsum([0, *(len(facets.rule.limit) for facets in one.facets)])
        tree = replace(
            self.tree,
            expert_start=start,
            weight=weight,
            hyperplane=plane,
            intercept=intercept,
            unit=unit,
        ).collapse(one.side)
        kept, nodes = tree.pruned(self.X, least)
        return kept, self.tree.topology.collapse(one.side)[1][nodes]


@dataclass(frozen=True, eq=False)
class _Fold:
    """Rows that are left out of a search, to compare its trees."""

    own: IntArray
    search: _Search
    path: Sequence[Splits]  # the shortest first
    X: FloatArray
    reference: Reference

    def as_long(self, numbers: int) -> Splits:
        """Return the longest tree of at most so many numbers, or the shortest."""
        return [self.path[0], *(one for one in self.path if one.numbers <= numbers)][-1]

    def log_density(self, one: Splits) -> FloatArray:
        """Compute log p(y) of the rows that are left out, in leaves of the other rows."""
        place = one.places(self.search.X)
        n_leaves = self.search.tree.n_leaves
        sums = self.search.reference.following(place, n_leaves).of_leaves(place, n_leaves)
        return self.reference.log_density(sums, one.places(self.X), self.search.room(one))


def _held_out(folds: Sequence[_Fold], trees: Sequence[Splits]) -> FloatArray:
    """Compute log p(y) of each row in the tree of the rows of other folds."""
    found = np.empty(sum(len(fold.own) for fold in folds))
    for fold, tree in zip(folds, trees, strict=True):
        found[fold.own] = fold.log_density(tree)
    return found


def same_leaves(one: IntArray, other: IntArray, weights: FloatArray) -> float:
    """Return the share of rows, of leaves (n,) in two trees, that are in corresponding leaves.

    Leaves correspond in pairs, so that as many rows as possible are in both of a pair.
    """
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), weights)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / weights.sum())
