"""The path from one column a facet to all columns, and the choice of a sparse tree on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.fitting.projection.facets import in_points, round_units
from bayestree.fitting.projection.nodes import Columns, Facets, Node, nodes_of
from bayestree.inference.data import Data
from bayestree.inference.pointwise import sample_y
from bayestree.inference.posterior import Posterior
from bayestree.models.leaves import Leaf
from bayestree.routed_tree import RowSource
from bayestree.tree import Tree

MOST_DRAWS = 50  # of all posteriors together
N_VALUES = 10  # of y that stand for the distribution of a number
MOST_ROWS = 2_000  # on which splits are projected and trees compared
SIZES = (1, 2, 3, 4, 6, 8, 12, 20)  # columns a facet, as far as there are so many
SWEEPS = 2  # over the nodes
DIGITS = 3  # of coefficients
LOST = 1.0  # standard errors that may be lost by default
MOST_LOST = 3.0  # nats of a row that count in a comparison of two trees
CLEARLY = 2.0  # standard errors beyond what may be lost, which further folds would hardly change
SPARE = 0.25  # share of the allowed loss, up to which limits of scores become whole
N_FOLDS, FEW_FOLDS, FEW_ROWS = 5, 3, 1_000  # folds for the choice of columns: more of few rows


@dataclass(frozen=True, eq=False)
class Reference:
    """The posterior predictive distribution of y at n rows, as A values with probabilities.

    Attributes
    ----------
    leaf : Leaf
    data : Data
        The rows, with y as responses.
    values : Tensor
        Responses, (A n, ...): the first value of each row, then the second one, ...
    share : array, shape (A, n)
        Their probabilities.
    """

    leaf: Leaf
    data: Data
    values: Tensor
    share: FloatArray

    @classmethod
    def of(cls, mixture: Sequence[tuple[Posterior, float]], data: Data) -> "Reference":
        """Predict y by a mixture of posteriors: each class, or quantiles of draws."""
        leaf = mixture[0][0].model.leaf
        data = data.for_leaf(leaf)
        most = -(-MOST_DRAWS // len(mixture))
        used = [(one, weight) for one, weight in mixture if weight > 0]
        few = [(one.thinned(max(1, most // one.n_chains)), weight) for one, weight in used]
        if leaf.n_classes:
            values, share = _classes(few, data)
        else:
            values, share = _quantiles(few, data)
        known = leaf.known(data.y)
        if known is not None:
            values = torch.column_stack((values, known.repeat(len(share))))
        return cls(leaf, data, leaf.response(data.X.repeat(len(share), 1), values), share)

    def take(self, rows: IntArray) -> "Reference":
        """Return the predictions of some rows."""
        n_rows, n_values = len(self.data.X), len(self.share)
        each = (np.arange(n_values)[:, None] * n_rows + rows).ravel()
        data = self.data.take(torch.as_tensor(rows))
        return Reference(self.leaf, data, self.values[torch.as_tensor(each)], self.share[:, rows])

    def expected_log_density(self, place: IntArray, n_leaves: int) -> FloatArray:
        """Expect log p(y | leaf), (n, L), of leaves that hold the rows of ``place`` (n,)."""
        found = self.leaf.log_density(self.estimate(place, n_leaves), self.values)
        each = found.double().numpy(force=True).reshape(*self.share.shape, n_leaves)
        return np.einsum("an,anl->nl", self.share, each)

    def log_density(self, place: IntArray, n_leaves: int) -> FloatArray:
        """Compute log p(y_n | leaf) of the rows in their leaves, which are estimated without them.

        Families whose posterior needs an iteration are estimated from all rows. Shape (n,).
        """
        if not self.leaf.exact:
            return self.log_density_given(self.estimate(place, n_leaves), place)
        sums, where = self._sums(place, n_leaves), torch.as_tensor(place)
        others = sums[where] - self.leaf.statistics(self.data.y, self.data.weights)
        sites = {name: one.unsqueeze(1) for name, one in self.leaf.estimate(others).items()}
        found = self.leaf.node_log_density(sites, self.data.y.unsqueeze(1))
        return found[:, 0, 0].double().numpy(force=True)

    def log_density_given(self, sites: Mapping[str, Tensor], place: IntArray) -> FloatArray:
        """Compute log p(y_n | leaf) of the rows in leaves with known parameters, (n,)."""
        found = self.leaf.log_density(sites, self.data.y)
        each = found.gather(1, torch.as_tensor(place).unsqueeze(1))[:, 0]
        return each.double().numpy(force=True)

    def estimate(self, place: IntArray, n_leaves: int) -> Mapping[str, Tensor]:
        """Estimate the parameters of the leaves from the rows that they hold."""
        return self.leaf.estimate(self._sums(place, n_leaves))

    def _sums(self, place: IntArray, n_leaves: int) -> Tensor:
        each = self.leaf.statistics(self.data.y, self.data.weights)
        return each.new_zeros(n_leaves, each.shape[1]).index_add_(0, torch.as_tensor(place), each)


def _classes(few: Sequence[tuple[Posterior, float]], data: Data) -> tuple[Tensor, FloatArray]:
    rows = data.X.numpy(force=True)
    mean = sum(weight * one.predictive(rows)[0] for one, weight in few)
    probs = np.asarray(mean, dtype=np.float64)
    return torch.arange(probs.shape[1]).repeat_interleave(len(rows)), probs.T


def _quantiles(few: Sequence[tuple[Posterior, float]], data: Data) -> tuple[Tensor, FloatArray]:
    """Draw y and keep ``N_VALUES`` quantiles of each row, with the outputs in equal ranks."""
    rows, known = data.X.numpy(force=True), few[0][0].model.leaf.known(data.y)
    drawn, weight = [], []
    for number, (one, share) in enumerate(few):
        y = np.asarray(sample_y(one.model, one.each(), rows, number, known), dtype=np.float64)
        drawn.append(y)
        weight.append(np.full(len(y), share / len(y)))
    every, of_draw = np.concatenate(drawn), np.concatenate(weight)
    order = every.argsort(axis=0, kind="stable")
    ends = of_draw[order].cumsum(axis=0)
    levels = (np.arange(N_VALUES) + 0.5) / N_VALUES
    place = (ends[None] < levels.reshape(-1, *([1] * ends.ndim))).sum(axis=1)
    chosen = np.take_along_axis(order, np.minimum(place, len(every) - 1), axis=0)
    values = np.take_along_axis(every, chosen, axis=0)
    flat = torch.as_tensor(values.reshape(-1, *values.shape[2:])).to(data.X)
    return flat, np.full(values.shape[:2], 1 / N_VALUES)


class Point(NamedTuple):
    """A sparse tree on the path."""

    columns: int  # of a facet, at most
    coefficients: int  # of the whole tree
    loss: float  # mean log density lost to the first point, of all columns, in nats a row
    se: float  # its standard error
    agreement: float  # share of the training rows in the leaves of the tree that was projected


@dataclass(frozen=True)
class Sparsity:
    """What a sparse tree may lose.

    Attributes
    ----------
    loss : float, optional
        Nats a row; by default, a standard error of the difference.
    most : int, optional
        Maximum number of columns of a facet, whatever the loss.
    points : int, optional
        Maximum number of points for each unit of a column; facets are scores if it is set.
    """

    loss: float | None = None
    most: int | None = None
    points: int | None = None

    def limit(self, se: float) -> float:
        """Return the largest loss that is allowed, in nats a row, given its standard error."""
        return LOST * se if self.loss is None else self.loss


class Projected(NamedTuple):
    """A tree of sparse facets, and the path on which it lies."""

    tree: Tree
    path: tuple[Point, ...]  # the first is the tree of all columns, and the last the chosen one
    log_density: FloatArray  # of y at the rows that were compared, in trees of other folds
    share: FloatArray  # of these rows in the comparison, with sum 1
    rounding: FloatArray | None  # nats a row lost by points, and their standard error


def project(
    tree: Tree,
    rows: RowSource,
    data: Data,
    *,
    steepness: float,
    reference: Sequence[tuple[Posterior, float]],
    columns: Columns,
    sparsity: Sparsity,
) -> Projected:
    """Project a posterior onto a tree of few columns a facet.

    The splits start at those of the tree, and are then improved in turn, the last node
    first, as in tree alternating optimisation (Carreira-Perpinan and Tavallali 2018): a row should
    take the side on which the leaf that it reaches has the larger expected log density of y, under
    the posterior predictive distribution.

    The chosen tree is the first of 1, 2, 3 ... columns a facet (see ``SIZES``) that loses little
    enough to the projection onto all columns, and then the first of at most 1, 2 ... facets a node
    that still does. They are compared by cross-validation over rows: by the log densities of y at
    the rows of each fold in trees that were projected without them. Only the predictions that are
    projected rest on all rows. If all columns are needed, the facets of ``tree`` remain, with
    rounded coefficients. At the end, facets become scores if points are asked for.

    Parameters
    ----------
    tree : Tree
        The deterministic form of the posterior, in the units of the data.
    rows : array, shape (n, d)
        Training rows in the units of the data.
    data : Data
        The same rows on the scale of the draws.
    steepness : float
        Of the posterior of this tree.
    reference : sequence of posteriors and weights
        The mixture whose predictions are projected.
    columns : Columns
        Those in use, which of them may share a facet, and the directions of monotone features.
    sparsity : Sparsity
        What the predictions may lose.

    Returns
    -------
    Projected
        The values of the leaves are those of ``tree``.
    """
    some = np.arange(0, len(rows), -(-len(rows) // MOST_ROWS))
    few = data.take(torch.as_tensor(some)).to(torch.empty(0, dtype=data.X.dtype))
    X, of_rows = rows[some], Reference.of(reference, few)
    n_folds = min(len(X), N_FOLDS if len(X) <= FEW_ROWS else FEW_FOLDS)
    fold = np.random.default_rng(0).permutation(len(X)) % n_folds

    def search(own: IntArray) -> _Search:
        return _Search.of(tree, X[own], of_rows.take(own), steepness, columns)

    folds = []
    for number in range(n_folds):
        rest, own = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        folds.append(_Fold(own, search(rest), X[own], of_rows.take(own)))
    return search(np.arange(len(X))).chosen(folds, columns, sparsity)


@dataclass(frozen=True, eq=False)
class _Search:
    """Sparse trees of the topology of one tree."""

    tree: Tree
    nodes: Sequence[Node]
    reference: Reference
    X: FloatArray
    weights: FloatArray

    @classmethod
    def of(
        cls, tree: Tree, X: FloatArray, reference: Reference, steepness: float, columns: Columns
    ) -> "_Search":
        """Prepare the nodes."""
        weights = reference.data.weights.double().numpy(force=True)
        return cls(tree, nodes_of(tree, X, weights, steepness, columns), reference, X, weights)

    def chosen(self, folds: Sequence["_Fold"], columns: Columns, sparsity: Sparsity) -> Projected:
        """Find the sparsest tree that loses little enough at the rows of other folds."""
        n_columns, n_facets = columns.most, max(len(node.full) for node in self.nodes)
        cap = min(sparsity.most or n_columns, n_columns)
        found = self._of_all_columns(columns)
        full = self._held_out(folds, n_columns, n_facets, sparsity)
        path = [self._point(found, full - full, n_columns)]
        for size in [*(size for size in SIZES if size < cap), cap]:
            if size == n_columns:
                found, less = self._of_all_columns(columns), full - full
            else:
                allowed = np.inf if size == cap else 0.0
                found = self.of_size(size, n_facets)
                less = self._lost(folds, full, size, n_facets, sparsity, allowed)
            path.append(self._point(found, less, size))
            if path[-1].loss <= sparsity.limit(path[-1].se):
                break
        chosen, most, score = path[-1], n_facets, full - less
        allowed = chosen.loss if chosen.loss > sparsity.limit(chosen.se) else 0.0
        for fewer in range(1, n_facets):
            trial = self.of_size(size, fewer)
            less = self._lost(folds, full, size, fewer, sparsity, allowed)
            point = self._point(trial, less, size)
            if point.loss <= max(sparsity.limit(point.se), allowed):
                found, score, chosen, most = trial, full - less, point, fewer
                break
        rounding, unit = None, None
        if sparsity.points is not None:
            unit = round_units(self.X)
            found, before = self.scores(found, sparsity, unit), score
            score = self._held_out(folds, size, most, sparsity, unit)
            rounding = np.array(self._mean(before - score))
            chosen = self._point(found, full - score, size)
        chosen = chosen._replace(columns=max(one.n_columns(columns.groups) for one in found))
        tree, share = self.with_facets(found, unit), self.weights / self.weights.sum()
        return Projected(tree, (*path, chosen), score, share, rounding)

    def _held_out(
        self,
        folds: Sequence["_Fold"],
        size: int,
        facets: int,
        sparsity: Sparsity,
        unit: FloatArray | None = None,
    ) -> FloatArray:
        """Compute log p(y) of each row in a tree of the rows of other folds."""
        found = np.empty(len(self.X))
        for fold in folds:
            found[fold.own] = fold.log_density(size, facets, sparsity, unit)
        return found

    def _lost(
        self,
        folds: Sequence["_Fold"],
        full: FloatArray,
        size: int,
        facets: int,
        sparsity: Sparsity,
        allowed: float,
    ) -> FloatArray:
        """Compute what each row loses; NaN for folds that cannot make up for those before."""
        found = np.full(len(self.X), np.nan)
        for fold in folds:
            density = fold.log_density(size, facets, sparsity, None)
            found[fold.own] = full[fold.own] - density
            mean, se = self._mean(found)
            if mean - CLEARLY * se > max(allowed, sparsity.limit(se)):
                break
        return found

    def _of_all_columns(self, columns: Columns) -> list[Facets]:
        """Return the facets of the tree itself, or new ones if it has columns in no group."""
        others = np.delete(np.arange(self.tree.n_features), np.concatenate(columns.groups))
        if self.tree.hyperplane[:, others].any():
            return self.of_size(columns.most, max(len(node.full) for node in self.nodes))
        return self._rounded([node.as_it_is() for node in self.nodes], DIGITS)

    def of_size(self, size: int, most: int) -> list[Facets]:
        """Return facets of at most ``size`` columns, and at most so many of a node."""
        facets = [node.start(size, most) for node in self.nodes]
        right = self._sides(facets, exact=True)
        for sweep in range(SWEEPS):
            before = right.copy()
            expected = self.reference.expected_log_density(self._leaves(right), self.tree.n_leaves)
            for v in reversed(range(len(facets))):
                own, gain = self._gains(right, v, expected)
                if not gain.any():
                    continue
                facets[v] = self.nodes[v].improved(facets[v], own, gain, select=sweep == 0)
                right[:, v] = facets[v].exact.outside(self.X)
            if (right == before).all():
                break
        return self._rounded(facets, DIGITS)

    def _sides(self, facets: Sequence[Facets], *, exact: bool = False) -> BoolArray:
        """Mark the rows that are right of each node, before or after rounding, (n, V)."""
        rules = [one.exact if exact else one.rule for one in facets]
        return np.column_stack([one.outside(self.X) for one in rules])

    def _gains(
        self, right: BoolArray, node: int, expected: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the rows that reach a node, and what each gains on the right."""
        own = np.flatnonzero(self._reach(right, node))
        left_child, right_child = self.tree.topology.children[node].tolist()
        there = self._leaves(right, right_child)[own], self._leaves(right, left_child)[own]
        gain = expected[own, there[0]] - expected[own, there[1]]
        return own, self.weights[own] * gain

    def _leaves(self, right: BoolArray, start: int | None = None) -> IntArray:
        """Return the leaf below a child (by default the root) to which the sides lead each row."""
        at = np.full(len(right), start if start is not None else 0)
        every = np.arange(len(right))
        while (inner := at >= 0).any():
            rows = every[inner]
            at[rows] = self.tree.topology.children[at[rows], right[rows, at[rows]].astype(np.intp)]
        return ~at

    def _reach(self, right: BoolArray, node: int) -> BoolArray:
        """Mark the rows that reach a node."""
        topology, reached = self.tree.topology, np.ones(len(right), dtype=bool)
        while node > 0:
            parent = int(topology.node_parent[node])
            side = topology.children[parent, 1] == node
            reached &= right[:, parent] == side
            node = parent
        return reached

    def _rounded(self, facets: Sequence[Facets], digits: int) -> list[Facets]:
        right = self._sides(facets, exact=True)
        found = []
        for v, (node, one) in enumerate(zip(self.nodes, facets, strict=True)):
            own = np.flatnonzero(self._reach(right, v))
            found.append(node.rounded(one, own, digits) if len(own) else one)
        return found

    def _score(self, facets: Sequence[Facets]) -> FloatArray:
        return self.reference.log_density(self.places(facets, self.X), self.tree.n_leaves)

    def places(self, facets: Sequence[Facets], X: FloatArray) -> IntArray:
        """Return the leaf of each row of X, which need not be the rows of the search."""
        return self._leaves(np.column_stack([one.rule.outside(X) for one in facets]))

    def _point(self, facets: Sequence[Facets], lost: FloatArray, size: int) -> Point:
        """Describe a tree, given the log density that it has lost at each row."""
        same = self.places(facets, self.X) == self.tree.apply(self.X)
        length = sum(one.rule.length for one in facets)
        return Point(size, length, *self._mean(lost), self._mean(same.astype(np.float64))[0])

    def _mean(self, each: FloatArray) -> tuple[float, float]:
        """Return the mean over the rows that are not NaN, and its standard error.

        Where classes are separable, few rows lose much and all others nothing, and the usual
        estimate is too small: it is not larger than the mean if a single row loses. It is therefore
        that of the rows and one more that differs as much as the worst, as in intervals of rare
        events with added observations (Agresti and Coull 1998).
        """
        known = ~np.isnan(each)
        # A row in a wrong, narrow leaf of numbers may lose thousands of nats, and hides all others.
        each = np.clip(each[known], -MOST_LOST, MOST_LOST)
        share = self.weights[known] / self.weights[known].sum()
        mean, worst = float(share @ each), float((share * np.abs(each)).max())
        return mean, float(np.sqrt(share**2 @ (each - mean) ** 2 + worst**2))

    def scores(self, facets: list[Facets], sparsity: Sparsity, unit: FloatArray) -> list[Facets]:
        """Make scores of facets; their limits are whole if this costs little at these rows."""
        assert sparsity.points is not None
        aims, full, least = [one.rule for one in facets], self._score(facets), np.inf
        for _ in range(SWEEPS):
            before = self._sides(facets)
            for v in reversed(range(len(facets))):
                right = self._sides(facets)
                expected = self.reference.expected_log_density(
                    self._leaves(right), self.tree.n_leaves
                )
                own, gain = self._gains(right, v, expected)
                if not len(own):
                    own, gain = np.arange(len(self.X)), np.zeros(len(self.X))
                found = []
                for whole in (False, True):
                    rule = in_points(aims[v], self.X[own], gain, unit, sparsity.points, whole=whole)
                    trial = [*facets[:v], replace(facets[v], rule=rule), *facets[v + 1 :]]
                    found.append((trial, *self._mean(full - self._score(trial))))
                (_, finer, _), (_, coarser, se) = found
                trial, lost, _ = found[coarser <= max(finer, SPARE * sparsity.limit(se))]
                if facets[v].rule is aims[v] or lost < least:
                    facets, least = trial, lost
            if (self._sides(facets) == before).all():
                break
        return facets

    def with_facets(self, facets: Sequence[Facets], unit: FloatArray | None = None) -> Tree:
        """Return the tree with these facets, which are scores if features have a ``unit``."""
        parts = [one.rule.experts(self.tree.scale) for one in facets]
        weight, plane, intercept = (np.concatenate(part) for part in zip(*parts, strict=True))
        start = np.cumsum([0, *(len(one.rule.limit) for one in facets)])
        return replace(
            self.tree,
            expert_start=start,
            weight=weight,
            hyperplane=plane,
            intercept=intercept,
            unit=unit,
        )


@dataclass(frozen=True, eq=False)
class _Fold:
    """Rows that are left out of a search, to compare its trees."""

    own: IntArray
    search: _Search
    X: FloatArray
    reference: Reference

    def log_density(
        self, size: int, most: int, sparsity: Sparsity, unit: FloatArray | None
    ) -> FloatArray:
        """Compute log p(y) of the rows that are left out, in leaves of the other rows.

        Facets are scores if features have a ``unit``.
        """
        facets, n_leaves = self.search.of_size(size, most), self.search.tree.n_leaves
        if unit is not None:
            facets = self.search.scores(facets, sparsity, unit)
        rest = self.search.places(facets, self.search.X)
        sites = self.search.reference.estimate(rest, n_leaves)
        return self.reference.log_density_given(sites, self.search.places(facets, self.X))
