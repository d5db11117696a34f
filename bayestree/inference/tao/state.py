"""The state of a deterministic tree during its optimisation."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.inference.tao.solvers import NodeSplit
from bayestree.models.likelihoods import LeafRule
from bayestree.topology import Topology

SPARSE = 4  # splits using fewer than 1 / SPARSE of the features are scored on those only


class Reach(NamedTuple):
    """Routing of all rows (the reduced sets)."""

    rows: list[IntArray]  # rows that reach each node
    right: list[BoolArray]  # their sides at the node
    leaf: IntArray  # (n,)


@dataclass
class Alternation:
    """A tree during its optimisation; ``values`` are the leaves' parameters under ``rule``."""

    X: AnyArray
    weights: FloatArray
    topology: Topology
    splits: list[NodeSplit]
    rule: LeafRule
    values: AnyArray

    def levels(self) -> list[list[int]]:
        """Nodes of each depth, the root first."""
        depth = self.topology.node_depth
        return [np.flatnonzero(depth == level).tolist() for level in range(self.topology.depth)]

    def sides(self, split: NodeSplit, rows: IntArray) -> BoolArray:
        """Mask of the rows that a split sends right."""
        used = np.flatnonzero(split.hyperplane.any(axis=0))
        if len(used) == 0:
            return np.broadcast_to(split.goes_right(self.X[:1, :]), rows.shape)
        if len(used) * SPARSE < split.n_features:
            part = split._replace(hyperplane=split.hyperplane[:, used])
            return part.goes_right(self.X[rows[:, None], used])
        return split.goes_right(self.X if len(rows) == len(self.X) else self.X[rows])

    def reach(self) -> Reach:
        """Route all rows through the tree."""
        n_nodes = self.topology.n_nodes
        none = np.empty(0, dtype=np.int64)
        rows = [none] * n_nodes
        right = [none.astype(bool)] * n_nodes
        leaf = np.zeros(len(self.X), dtype=np.int64)
        if n_nodes:
            rows[0] = np.arange(len(self.X))
        for node in range(n_nodes):
            right[node] = self.sides(self.splits[node], rows[node])
            for child, taken in zip(
                self.topology.children[node], (~right[node], right[node]), strict=True
            ):
                if child >= 0:
                    rows[child] = rows[node][taken]
                else:
                    leaf[rows[node][taken]] = ~child
        return Reach(rows, right, leaf)

    def leaves_below(self, child: int, rows: IntArray) -> IntArray:
        """Leaf that each of ``rows`` reaches from a child, a node or ``~leaf``."""
        leaf = np.empty(len(rows), dtype=np.int64)
        waiting = [(child, np.arange(len(rows)))]
        while waiting:
            node, places = waiting.pop()
            if node < 0:
                leaf[places] = ~node
            elif len(places):
                right = self.sides(self.splits[node], rows[places])
                left, other = self.topology.children[node].tolist()
                waiting += [(left, places[~right]), (other, places[right])]
        return leaf

    def losses(self, leaf: IntArray, rows: IntArray) -> FloatArray:
        """Unweighted loss of each row in a leaf."""
        return self.rule.loss(self.values, leaf, rows)


def redundant_nodes(topology: Topology, reach: Reach, values: AnyArray) -> IntArray:
    """The side that replaces each redundant node, or -1 if the node is needed, shape (V,).

    A node whose training rows all go one way is replaced by that child, and one whose children
    are leaves with equal ``values`` by either of them. Proceeding upwards, this turns subtrees
    of one class into leaves.
    """
    bypass = np.full(topology.n_nodes, -1, dtype=np.int64)
    for node in range(topology.n_nodes - 1, -1, -1):
        right = reach.right[node]
        if not right.any() or right.all():
            bypass[node] = int(right.any())
            continue
        ends = [_resolve(topology, bypass, int(child)) for child in topology.children[node]]
        if max(ends) < 0 and np.array_equal(values[~ends[0]], values[~ends[1]]):
            bypass[node] = 0
    return bypass


def _resolve(topology: Topology, bypass: IntArray, child: int) -> int:
    """The node or leaf that replaces a child after redundant nodes are removed."""
    while child >= 0 and bypass[child] >= 0:
        child = int(topology.children[child, bypass[child]])
    return child
