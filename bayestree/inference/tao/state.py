"""The deterministic tree during alternating optimisation."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.tao.solvers import NodeSplit
from bayestree.models.leaf_rules import LeafRule
from bayestree.topology import Topology

SPARSE = 4  # splits that use less than 1 / SPARSE of the features are evaluated on those alone


class Reach(NamedTuple):
    """Routing of all rows, with the reduced set of each node.

    Attributes
    ----------
    rows : list of arrays
        Rows of each node.
    right : list of arrays
        Their sides there.
    leaf : array, shape (n,)
    """

    rows: list[IntArray]
    right: list[BoolArray]
    leaf: IntArray


@dataclass
class Alternation:
    """A tree during its optimisation; ``values`` are the leaves' parameters under ``rule``."""

    X: NDArray[np.floating]
    weights: FloatArray
    topology: Topology
    splits: list[NodeSplit]
    rule: LeafRule
    values: NDArray[Any]

    def levels(self) -> list[list[int]]:
        """Nodes of each depth from the root down."""
        depth = self.topology.node_depth
        return [np.flatnonzero(depth == level).tolist() for level in range(self.topology.depth)]

    def sides(self, split: NodeSplit, rows: IntArray) -> BoolArray:
        """Whether a split sends each of the rows right."""
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
        """Leaf that each of ``rows`` reaches from a node, or from ``~leaf`` itself."""
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
        """Unweighted loss of each row in its leaf."""
        return self.rule.loss(self.values, leaf, rows)
