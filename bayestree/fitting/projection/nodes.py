"""The splits of a sparse tree: where they start, and how they are improved one after another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.fitting.projection.facets import Conjunction
from bayestree.fitting.projection.soft import FEW_STEPS, SoftSplit, log_odds
from bayestree.tree import Tree, facet_threshold

PASSES = 2  # over the facets of a node
IMPROVEMENT = 1e-9  # of the share of rows on the wrong side, at least
ALONE = np.ones(1)  # the weight of a single facet


class Columns(NamedTuple):
    """The columns that facets may use.

    Attributes
    ----------
    groups : sequence of arrays of int
        The features of each column.
    directions : array, shape (d,)
        Not 0 for features in which predictions are monotone: their coefficients keep their signs.
    together : array of bool, shape (G, C), optional
        Sets of the C columns; a facet uses columns of one set. By default all columns.
    """

    groups: Sequence[IntArray]
    directions: FloatArray
    together: BoolArray | None = None

    @property
    def most(self) -> int:
        """The largest number of columns that a facet may have."""
        return len(self.groups) if self.together is None else int(self.together.sum(1).max())


@dataclass(frozen=True, eq=False)
class Facets:
    """The facets of a node.

    Attributes
    ----------
    size : int
        Maximum number of columns of each.
    coefficient : array, shape (K, d + 1)
        Standardised; 0 is the limit.
    exact, rule : Conjunction
        In the units of the data, before and after rounding.
    """

    size: int
    coefficient: FloatArray
    exact: Conjunction
    rule: Conjunction

    def n_columns(self, groups: Sequence[IntArray]) -> int:
        """Return the largest number of columns of a facet."""
        used = self.rule.normal != 0
        return int(max(sum(one[own].any() for own in groups) for one in used))


@dataclass(eq=False)
class Node:
    """A node of the tree, and what its facets are made of.

    Attributes
    ----------
    rows : array, shape (n, d + 1)
        All rows, standardised, and ones.
    X : array, shape (n, d)
        In the units of the data.
    row_weights : array, shape (n,)
    own : array of int
        The rows that reach the node in the tree of full facets.
    right : array
        Their probabilities of going right with the full facets.
    full : array, shape (K, d + 1)
        Coefficients of the full facets, standardised.
    weight : array, shape (K,)
        Of the full facets, as is ``steepness``.
    center, scale : arrays, shape (d,)
        Units of the standardised features.
    columns : Columns
    signs : array, shape (d,)
        The sign that each coefficient must have, 0 for any.
    """

    rows: FloatArray
    X: FloatArray
    row_weights: FloatArray
    own: IntArray
    right: FloatArray
    full: FloatArray
    weight: FloatArray
    steepness: float
    center: FloatArray
    scale: FloatArray
    columns: Columns
    signs: FloatArray
    _path: Iterator[FloatArray] | None = None
    _found: list[Facets] = field(default_factory=list)

    def as_it_is(self) -> Facets:
        """Return the full facets, on which each vote alone is log 2."""
        return self._of_votes(self.full, self.columns.most)

    def start(self, size: int, most: int) -> Facets:
        """Return at most ``most`` facets that follow the sides of the full facets best."""
        found = self._start(size)
        while len(found.coefficient) > most:
            found = self._without_facet(found)
        return found

    def _start(self, size: int) -> Facets:
        split = self._split(self.own, self.right, self.row_weights[self.own], self.steepness)
        if size >= self.columns.most:
            allowed = np.zeros(self.full.shape, dtype=bool)
            allowed[:, [*np.concatenate(self.columns.groups), -1]] = True
            if self.columns.together is not None:
                allowed[:, :-1] &= self.full[:, :-1] != 0
            if allowed[:, :-1].any(axis=1).all():
                fitted = split.fit(self.full, self.weight, allowed, FEW_STEPS)
                found = fitted, np.where(allowed, self.full, 0.0)
                return max((self._of_votes(one, size) for one in found), key=self._agreement)
        if self._path is None:
            self._path = split.forward(self.full, self.weight)
        while len(self._found) < size:
            self._found.append(self._of_votes(next(self._path), len(self._found) + 1))
        return self._found[size - 1]

    def _of_votes(self, coefficient: FloatArray, size: int) -> Facets:
        """Return the conjunction of the facets on which each vote alone is log 2."""
        alone = coefficient.copy()
        alone[:, -1] -= facet_threshold(self.weight)
        alone = alone[alone[:, :-1].any(axis=1)]
        if not len(alone):  # nothing separates the rows: any column, and no row outside
            alone = np.zeros((1, self.full.shape[1]))
            alone[0, self.columns.groups[0][0]], alone[0, -1] = 1.0, -1e3
        exact = Conjunction.of(alone, self.center, self.scale)
        gain = self.row_weights[self.own] * (2 * self.right - 1)
        exact = exact.settled(self.X[self.own], gain) if len(alone) > 1 else exact
        return Facets(size, alone, exact, exact)

    def _agreement(self, facets: Facets) -> float:
        outside = facets.exact.outside(self.X[self.own])
        return float(self.row_weights[self.own] @ np.where(outside, self.right, 1 - self.right))

    def improved(self, facets: Facets, own: IntArray, gain: FloatArray, *, select: bool) -> Facets:
        """Fit each facet again to the rows that no other excludes.

        ``gain`` are what it is worth to have each of the rows ``own`` on the right. A facet is
        fitted by logistic regression, with weights |gain|, and kept if the rows on the wrong side
        then weigh less. With ``select`` its columns are chosen anew.
        """
        X, weights = self.X[own], np.abs(gain)
        for _ in range(PASSES):
            before = facets
            for k in range(len(facets.coefficient)):
                free = ~np.delete(facets.exact.beyond(X), k, axis=1).any(axis=1)
                some = weights[free]
                positive = gain[free] > 0
                if not (some[positive].any() and some[~positive].any()):
                    continue
                split = self._split(own[free], positive.astype(np.float64), some, 1.0)
                trial = self._refitted(facets, k, split, X[free], gain[free], select=select)
                if _gained(trial, X, gain) > _gained(facets, X, gain) + IMPROVEMENT * weights.sum():
                    facets = trial
            if facets is before:
                break
        return facets

    def _refitted(
        self,
        facets: Facets,
        k: int,
        split: SoftSplit,
        X: FloatArray,
        gain: FloatArray,
        *,
        select: bool,
    ) -> Facets:
        old = facets.coefficient[[k]]
        if select and (facets.size < self.columns.most or self.columns.together is not None):
            # By the sides alone: the columns so far may be wrong.
            *_, old = islice(split.forward(np.zeros_like(old), ALONE), facets.size)
        support = old != 0
        support[:, -1] = True
        new = split.fit(old, ALONE, support)
        if not new[0, :-1].any():
            return facets
        one = Conjunction.of(new, self.center, self.scale).settled(X, gain)
        normal, limit = facets.exact.normal.copy(), facets.exact.limit.copy()
        normal[k], limit[k] = one.normal[0], one.limit[0]
        coefficient = facets.coefficient.copy()
        coefficient[k] = new[0]
        exact = Conjunction(normal, limit)
        return replace(facets, coefficient=coefficient, exact=exact, rule=exact)

    def _without_facet(self, facets: Facets) -> Facets:
        """Drop the facet that alone excludes the fewest rows."""
        beyond = facets.exact.beyond(self.X[self.own])
        alone = beyond & (beyond.sum(axis=1, keepdims=True) == 1)
        kept = np.arange(beyond.shape[1]) != (self.row_weights[self.own] @ alone).argmin()
        exact = Conjunction(facets.exact.normal[kept], facets.exact.limit[kept])
        return Facets(facets.size, facets.coefficient[kept], exact, exact)

    def rounded(self, facets: Facets, own: IntArray, digits: int) -> Facets:
        """Round the coefficients of the facets, and drop facets without effect."""
        X = self.X[own]
        rule = facets.exact.relative(self.X, self.columns.groups).in_units_of_first(self.scale)
        return replace(facets, rule=rule.rounded(X, digits).without_idle(X))

    def _split(
        self, own: IntArray, right: FloatArray, weights: FloatArray, steepness: float
    ) -> SoftSplit:
        share = weights / weights.sum()
        columns, signs = self.columns, self.signs
        return SoftSplit(
            self.rows[own], right, share, columns.groups, signs, steepness, columns.together
        )


def _gained(facets: Facets, X: FloatArray, gain: FloatArray) -> float:
    return float(gain[facets.exact.outside(X)].sum())


def nodes_of(
    tree: Tree, X: FloatArray, weights: FloatArray, steepness: float, columns: Columns
) -> list[Node]:
    """Return the nodes of a tree (see :func:`~bayestree.fitting.projection.path.project`)."""
    found = []
    rows = np.column_stack(((X - tree.center) / tree.scale, np.ones(len(X))))
    reached = {node: own for node, own, _ in tree.walk(X)}
    for node in range(tree.n_nodes):
        own = reached.get(node, np.arange(len(X)))  # of a sample of rows, perhaps none
        experts = tree.experts(node)
        plane = tree.hyperplane[experts]
        intercept = tree.intercept[experts] + plane @ tree.center
        found.append(
            Node(
                rows=rows,
                X=X,
                row_weights=weights,
                own=own,
                right=expit(steepness * log_odds(tree.score(node, X[own]))),
                full=np.column_stack((plane * tree.scale, intercept)),
                weight=tree.weight[experts],
                steepness=steepness,
                center=tree.center,
                scale=tree.scale,
                columns=columns,
                signs=np.where(columns.directions != 0, np.sign(plane.sum(axis=0)), 0.0),
            )
        )
    return found
