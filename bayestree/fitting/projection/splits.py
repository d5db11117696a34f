"""Splits of a tree of which some nodes are left out."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.fitting.projection.nodes import Facets
from bayestree.topology import Topology


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits of a topology of which some nodes are left out."""

    topology: Topology
    facets: tuple[Facets, ...]  # of each node, also of those that are left out
    #: -1 for a node that remains, or the side to which one that is left out sends all rows, (V,).
    side: IntArray
    slopes: int = 0  # the number of slopes that pay for themselves in the leaves

    def child(self, node: int, side: int) -> int:
        """Return the node or leaf on a side of a node, behind those that are left out."""
        found = int(self.topology.children[node, side])
        while found >= 0 and self.side[found] >= 0:
            found = int(self.topology.children[found, self.side[found]])
        return found

    def below(self, root: int) -> list[int]:
        """Return the nodes that remain from a node or leaf on, parents first."""
        if root < 0:
            return []
        return [root, *self.below(self.child(root, 0)), *self.below(self.child(root, 1))]

    @cached_property
    def nodes(self) -> list[int]:
        """The nodes that remain, parents first."""
        root = 0
        while root >= 0 and self.side[root] >= 0:
            root = int(self.topology.children[root, self.side[root]])
        return self.below(root)

    @cached_property
    def terms(self) -> int:
        """The number of terms of all facets."""
        return sum(self.facets[node].rule.length for node in self.nodes)

    @property
    def numbers(self) -> int:
        """The numbers of the tree: terms of facets, a limit with the first, leaves and slopes."""
        return self.terms + len(self.nodes) + 1 + self.slopes

    def right(self, X: FloatArray, *, exact: bool = False) -> BoolArray:
        """Mark the rows that are right of each node, before or after rounding, (n, V)."""
        found = np.empty((len(X), len(self.facets)), dtype=bool)
        for node, (side, own) in enumerate(zip(self.side.tolist(), self.facets, strict=True)):
            rule = own.exact if exact else own.rule
            found[:, node] = side if side >= 0 else rule.outside(X)
        return found

    def leaves(self, right: BoolArray, start: int = 0) -> IntArray:
        """Return the leaf below a child to which the sides lead each row."""
        at = np.full(len(right), start)
        every = np.arange(len(right))
        while (inner := at >= 0).any():
            rows = every[inner]
            at[rows] = self.topology.children[at[rows], right[rows, at[rows]].astype(np.intp)]
        return ~at

    def places(self, X: FloatArray) -> IntArray:
        """Return the leaf of each row."""
        return self.leaves(self.right(X))

    def reach(self, right: BoolArray, node: int) -> IntArray:
        """Return the rows that reach a node."""
        reached = np.ones(len(right), dtype=bool)
        while node > 0:
            parent = int(self.topology.node_parent[node])
            reached &= right[:, parent] == (self.topology.children[parent, 1] == node)
            node = parent
        return np.flatnonzero(reached)

    def with_facets(self, node: int, facets: Facets) -> "Splits":
        """Replace the facets of a node."""
        return replace(self, facets=(*self.facets[:node], facets, *self.facets[node + 1 :]))

    def without(self, node: int, side: int, slopes: int) -> "Splits":
        """Leave out a node, and send its rows to a side, which adds a number of slopes."""
        kept = np.where(np.arange(len(self.side)) == node, side, self.side)
        return replace(self, side=kept, slopes=self.slopes + slopes)

    def leaves_below(self, root: int) -> list[int]:
        """Return the leaves below a node, or the leaf itself."""
        if root < 0:
            return [~root]
        both = ((node, side) for node in self.below(root) for side in (0, 1))
        return [~child for child in (self.child(*one) for one in both) if child < 0]
