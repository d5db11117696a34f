"""The topology of a binary tree.

Internal nodes are numbered 0..V-1 with every parent before its children, leaves 0..L-1,
and a child is the number of a node or ``~leaf`` (a negative number).
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray

SIDES = "LR"


@dataclass(frozen=True, eq=False)
class Topology:
    """A binary tree with V internal nodes and V + 1 leaves.

    Parameters
    ----------
    children : array of int, shape (V, 2)
        Left and right child of each node: ``v >= 0`` is node ``v``, ``c < 0`` is leaf ``~c``.
        Parents come before their children; node 0 is the root. V = 0 is a single leaf.

    Raises
    ------
    ValueError
        If the array does not describe one binary tree.
    """

    children: IntArray

    def __post_init__(self) -> None:
        children = np.array(self.children, dtype=np.int64).reshape(-1, 2)
        children.setflags(write=False)
        object.__setattr__(self, "children", children)
        n_nodes = len(children)
        nodes = np.sort(children[children >= 0])
        leaves = np.sort(~children[children < 0])
        if not np.array_equal(nodes, np.arange(1, n_nodes)):
            raise ValueError("children must name every node but the root (0) exactly once.")
        if n_nodes and not np.array_equal(leaves, np.arange(n_nodes + 1)):
            raise ValueError(f"children must name each of the {n_nodes + 1} leaves exactly once.")
        if (children[children >= 0] <= np.nonzero(children >= 0)[0]).any():
            raise ValueError("children must be numbered after their parents.")

    @classmethod
    def leaf(cls) -> "Topology":
        """Return the tree with a single leaf."""
        return cls(np.empty((0, 2), dtype=np.int64))

    @classmethod
    def stump(cls) -> "Topology":
        """Return the tree of one node and two leaves."""
        return cls.complete(1)

    @classmethod
    def complete(cls, depth: int) -> "Topology":
        """Return the complete tree with 2**depth leaves."""
        if depth < 0:
            raise ValueError(f"depth must be 0 or more, got {depth}.")
        n_nodes = 2**depth - 1
        child = np.arange(1, 2 * n_nodes + 1, dtype=np.int64).reshape(-1, 2)
        return cls(np.where(child < n_nodes, child, ~(child - n_nodes)))

    @property
    def n_nodes(self) -> int:
        """Number of internal nodes, V."""
        return len(self.children)

    @property
    def n_leaves(self) -> int:
        """Number of leaves, V + 1."""
        return len(self.children) + 1

    @cached_property
    def node_parent(self) -> IntArray:
        """Parent of each node, shape (V,); -1 for the root."""
        return self._parents()[0]

    @cached_property
    def leaf_parent(self) -> IntArray:
        """Parent of each leaf, shape (L,); -1 if the tree is one leaf."""
        return self._parents()[1]

    @cached_property
    def node_depth(self) -> IntArray:
        """Number of splits above each node, shape (V,)."""
        depth = np.zeros(self.n_nodes, dtype=np.int64)
        for node in range(1, self.n_nodes):
            depth[node] = depth[self.node_parent[node]] + 1
        return depth

    @cached_property
    def leaf_depth(self) -> IntArray:
        """Number of splits above each leaf, shape (L,)."""
        if self.n_nodes == 0:
            return np.zeros(1, dtype=np.int64)
        return self.node_depth[self.leaf_parent] + 1

    @property
    def depth(self) -> int:
        """Depth of the deepest leaf."""
        return int(self.leaf_depth.max())

    @cached_property
    def turns(self) -> BoolArray:
        """Whether a branch leads to a leaf, shape (2, V, L): ``turns[side, node, leaf]``."""
        turns = np.zeros((2, self.n_nodes, self.n_leaves), dtype=bool)
        for node in range(self.n_nodes - 1, -1, -1):
            for side, child in enumerate(self.children[node]):
                if child < 0:
                    turns[side, node, ~child] = True
                else:
                    turns[side, node] = turns[:, child].any(axis=0)
        return turns

    @cached_property
    def left_to_right(self) -> tuple[IntArray, IntArray]:
        """Places of the leaves from left to right, (L,); the first right of each split, (V,)."""
        size = self.sum_below(np.ones(self.n_leaves)).astype(np.int64).tolist()
        place, cut, start = [0] * self.n_leaves, [0] * self.n_nodes, [0] * self.n_nodes
        for node, (left, right) in enumerate(self.children.tolist()):
            cut[node] = start[node] + (1 if left < 0 else size[left])
            for child, first in ((left, start[node]), (right, cut[node])):
                if child < 0:
                    place[~child] = first
                else:
                    start[child] = first
        return np.array(place, dtype=np.int64), np.array(cut, dtype=np.int64)

    @cached_property
    def node_labels(self) -> tuple[str, ...]:
        """Path of each node from the root, as ``"root"``, ``"L"``, ``"LR"``, ..."""
        return tuple(path or "root" for path in self._paths()[0])

    @cached_property
    def leaf_labels(self) -> tuple[str, ...]:
        """Path of each leaf from the root."""
        return tuple(path or "root" for path in self._paths()[1])

    def subtree_leaves(self, node: int) -> IntArray:
        """Return the leaves below a node, in order."""
        below, waiting = [], [node]
        while waiting:
            for child in self.children[waiting.pop()]:
                if child < 0:
                    below.append(~child)
                else:
                    waiting.append(child)
        return np.sort(np.array(below, dtype=np.int64))

    def sum_below(self, values: FloatArray) -> FloatArray:
        """Sum over the leaves below each node, shape (V, ...), of values (L, ...)."""
        sums = np.zeros((self.n_nodes, *values.shape[1:]))
        for node in range(self.n_nodes - 1, -1, -1):
            for child in self.children[node]:
                sums[node] += values[~child] if child < 0 else sums[child]
        return sums

    def collapse(self, bypass: ArrayLike) -> tuple["Topology", IntArray, IntArray]:
        """Remove nodes, each together with the branch on a side.

        ``bypass`` (V,) is -1 to keep a node, and 0 (1) to replace it by its left (right) child.
        Returns the smaller tree and the old numbers of its nodes and leaves.
        """
        side = np.asarray(bypass, dtype=np.int64)
        if side.shape != (self.n_nodes,):
            raise ValueError(f"bypass must have shape ({self.n_nodes},), got {side.shape}.")
        nodes: list[int] = []
        leaves: list[int] = []
        children: list[list[int]] = []
        queue: deque[tuple[int, int, int]] = deque()

        def place(child: int) -> int:
            while child >= 0 and side[child] >= 0:
                child = int(self.children[child, side[child]])
            if child < 0:
                leaves.append(~child)
                return ~(len(leaves) - 1)
            nodes.append(child)
            children.append([0, 0])
            left, right = (int(c) for c in self.children[child])
            queue.append((len(nodes) - 1, left, right))
            return len(nodes) - 1

        place(0 if self.n_nodes else ~0)
        while queue:
            new, left, right = queue.popleft()
            children[new] = [place(left), place(right)]
        topology = Topology(np.array(children, dtype=np.int64).reshape(-1, 2))
        return topology, np.array(nodes, dtype=np.int64), np.array(leaves, dtype=np.int64)

    def _parents(self) -> tuple[IntArray, IntArray]:
        nodes = np.full(self.n_nodes, -1, dtype=np.int64)
        leaves = np.full(self.n_leaves, -1, dtype=np.int64)
        for node, pair in enumerate(self.children):
            for child in pair:
                (nodes if child >= 0 else leaves)[child if child >= 0 else ~child] = node
        return nodes, leaves

    def _paths(self) -> tuple[list[str], list[str]]:
        nodes, leaves = [""] * self.n_nodes, [""] * self.n_leaves
        for node, pair in enumerate(self.children):
            for side, child in zip(SIDES, pair, strict=True):
                path = nodes[node] + side
                (nodes if child >= 0 else leaves)[child if child >= 0 else ~child] = path
        return nodes, leaves

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and np.array_equal(self.children, other.children)

    def __hash__(self) -> int:
        return hash(self.children.tobytes())

    def __repr__(self) -> str:
        return f"Topology(n_nodes={self.n_nodes}, n_leaves={self.n_leaves}, depth={self.depth})"


@dataclass(frozen=True)
class JoinedTopology:
    """Several trees as one topology with several roots.

    Nodes and leaves are numbered tree by tree, so that arrays of all trees are the arrays of one
    after those of the other, and one pass serves all of them. Every tree has a node.
    """

    trees: tuple[Topology, ...]

    def __post_init__(self) -> None:
        if not self.trees or any(tree.n_nodes == 0 for tree in self.trees):
            raise ValueError("JoinedTopology needs one or more trees, each with a node.")

    @property
    def n_nodes(self) -> int:
        """Number of internal nodes of all trees, V."""
        return sum(tree.n_nodes for tree in self.trees)

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees, L."""
        return sum(tree.n_leaves for tree in self.trees)

    @cached_property
    def nodes(self) -> tuple[slice, ...]:
        """Nodes of each tree."""
        return _consecutive([tree.n_nodes for tree in self.trees])

    @cached_property
    def leaves(self) -> tuple[slice, ...]:
        """Leaves of each tree."""
        return _consecutive([tree.n_leaves for tree in self.trees])

    @cached_property
    def roots(self) -> IntArray:
        """Number of the root of each tree, shape (T,)."""
        return np.array([nodes.start for nodes in self.nodes], dtype=np.int64)

    @cached_property
    def children(self) -> IntArray:
        """Left and right child of each node, shape (V, 2); leaf l counts as V + l."""
        parts = zip(self.trees, self.nodes, self.leaves, strict=True)
        each = [(tree.children, one.start, self.n_nodes + two.start) for tree, one, two in parts]
        return np.concatenate([np.where(c < 0, leaf + ~c, node + c) for c, node, leaf in each])


def _consecutive(lengths: list[int]) -> tuple[slice, ...]:
    """Return consecutive slices of these lengths."""
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(map(slice, ends[:-1], ends[1:]))


Swap = tuple[str, int, int]  # dimension, and the two entries that are exchanged


def matching(topology: Topology, left: int, right: int) -> list[Swap] | None:
    """Match the entries exchanged when two branches are swapped; None if their shapes differ."""
    if left < 0 and right < 0:
        return [("leaf", ~left, ~right)]
    if left < 0 or right < 0:
        return None
    pairs: list[Swap] = [("node", left, right)]
    children: IntArray = topology.children
    for first, second in zip(children[left], children[right], strict=True):
        below = matching(topology, int(first), int(second))
        if below is None:
            return None
        pairs += below
    return pairs
