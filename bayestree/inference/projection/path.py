"""The path from one column a facet to all columns, and the choice of a sparse tree on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.projection.nodes import Columns, Facets, Node, nodes_of
from bayestree.inference.projection.reference import Reference
from bayestree.tree import Tree

MOST_ROWS = 2_000  # on which splits are projected and trees compared
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)  # columns a facet, as far as there are so many
SWEEPS = 2  # over the nodes
DIGITS, FEWER_DIGITS = 3, 2  # of coefficients, and if the loss allows it
LOST = 0.5  # standard errors that may be lost by default
SPARE = 0.25  # share of the allowed loss, up to which a chosen tree may become simpler still


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
        Nats a row; by default, half a standard error of the difference.
    most : int, optional
        Maximum number of columns of a facet, whatever the loss.
    """

    loss: float | None = None
    most: int | None = None

    def limit(self, point: Point) -> float:
        """Return the largest loss that is allowed, in nats a row."""
        return LOST * point.se if self.loss is None else self.loss


class Projected(NamedTuple):
    """A tree of sparse facets, and the path on which it lies."""

    tree: Tree
    path: tuple[
        Point, ...
    ]  # the first is the projection onto all columns, and the last is the tree
    log_density: FloatArray  # of y at the rows that were compared, in leaves without the row
    share: FloatArray  # of these rows in the comparison, with sum 1


def project(
    tree: Tree,
    rows: FloatArray,
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
    the posterior predictive distribution. Trees are compared by the log densities of y at the
    training rows, in leaves that are estimated without the row. All trees of the path have been
    fitted to the same predictions, which rest on these rows: larger ones follow them more closely,
    so that the comparison is in favour of more columns.

    The chosen tree is the first of 1, 2, 3 ... columns a facet (see ``SIZES``) that loses little
    enough to the projection onto all columns. Each of its nodes then does with fewer facets and
    columns, and the coefficients with fewer digits, as long as this costs nothing or less than a
    quarter of what may be lost.

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
        Those in use, and the directions of monotone features.
    sparsity : Sparsity
        What the predictions may lose.

    Returns
    -------
    Projected
        The values of the leaves are those of ``tree``.
    """
    some = np.arange(0, len(rows), -(-len(rows) // MOST_ROWS))
    few = data.take(torch.as_tensor(some))
    of_rows = few.weights.double().numpy(force=True)
    search = _Search(
        tree,
        nodes_of(tree, rows[some], of_rows, steepness, columns),
        Reference.of(reference, few),
        rows[some],
        of_rows,
    )
    return search.chosen(columns.groups, sparsity)


@dataclass(frozen=True, eq=False)
class _Search:
    """Sparse trees of the topology of one tree."""

    tree: Tree
    nodes: Sequence[Node]
    reference: Reference
    X: FloatArray
    weights: FloatArray

    def chosen(self, groups: Sequence[IntArray], sparsity: Sparsity) -> Projected:
        """Find the sparsest tree that loses little enough."""
        n_columns = len(groups)
        full = self.of_size(n_columns)
        score = self._score(full)
        path = [self._point(full, score, n_columns)]
        cap = min(sparsity.most or n_columns, n_columns)
        found = full
        for size in [*(size for size in SIZES if size < cap), cap]:
            found = full if size == n_columns else self.of_size(size)
            path.append(self._point(found, score, size))
            if path[-1].loss <= sparsity.limit(path[-1]):
                break
        found, point = self._simplified(found, score, path[-1], sparsity)
        point = point._replace(columns=max(one.n_columns(groups) for one in found))
        share = self.weights / self.weights.sum()
        return Projected(self.with_facets(found), (*path, point), self._score(found), share)

    def of_size(self, size: int) -> list[Facets]:
        """Return facets of at most ``size`` columns."""
        facets = [node.start(size) for node in self.nodes]
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
        place = self._leaves(self._sides(facets))
        return self.reference.log_density(place, self.tree.n_leaves)

    def _point(self, facets: Sequence[Facets], full: FloatArray, size: int) -> Point:
        """Compare a tree with the projection onto all columns."""
        place = self._leaves(self._sides(facets))
        lost = full - self.reference.log_density(place, self.tree.n_leaves)
        share = self.weights / self.weights.sum()
        mean = float(share @ lost)
        se = float(np.sqrt(share**2 @ (lost - mean) ** 2))
        same = float(share @ (place == self.tree.apply(self.X)))
        return Point(size, sum(one.rule.length for one in facets), mean, se, same)

    def _simplified(
        self, facets: list[Facets], full: FloatArray, point: Point, sparsity: Sparsity
    ) -> tuple[list[Facets], Point]:
        """Leave out facets, columns and digits as long as this costs little."""

        def accepts(trial: list[Facets]) -> bool:
            nonlocal facets, point
            found = self._point(trial, full, point.columns)
            if found.loss > max(point.loss, SPARE * sparsity.limit(found)):
                return False
            facets, point = trial, found
            return True

        for v in reversed(range(len(facets))):
            while (fewer := self._with_less(facets, v)) is not None and accepts(fewer):
                pass
            fails, holds = 0, facets[v].size
            while holds - fails > 1 and len(facets[v].coefficient) == len(self.nodes[v].full):
                size = (fails + holds) // 2
                trial = self._with_less(facets, v, size)
                if trial is not None and accepts(trial):
                    holds = size
                else:
                    fails = size
        accepts(self._rounded(facets, FEWER_DIGITS))
        return facets, point

    def _with_less(
        self, facets: Sequence[Facets], v: int, size: int | None = None
    ) -> list[Facets] | None:
        """Return the facets with fewer of them, or fewer columns, at a node; None if impossible."""
        right = self._sides(facets)
        expected = self.reference.expected_log_density(self._leaves(right), self.tree.n_leaves)
        own, gain = self._gains(right, v, expected)
        node = self.nodes[v]
        start = node.without_facet(facets[v], own) if size is None else node.start(size)
        if start is None or not gain.any():
            return None
        found = node.improved(start, own, gain, select=size is not None)
        return self._rounded([*facets[:v], found, *facets[v + 1 :]], DIGITS)

    def with_facets(self, facets: Sequence[Facets]) -> Tree:
        """Return the tree with these facets."""
        parts = [one.rule.experts(self.tree.scale) for one in facets]
        weight, plane, intercept = (np.concatenate(part) for part in zip(*parts, strict=True))
        start = np.cumsum([0, *(len(one.rule.limit) for one in facets)])
        return replace(
            self.tree, expert_start=start, weight=weight, hyperplane=plane, intercept=intercept
        )
