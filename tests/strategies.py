"""Shared Hypothesis strategies: random trees and their naive traversal."""

import numpy as np
from hypothesis import strategies as st

from bayestree.topology import Topology


@st.composite
def topologies(draw, min_nodes=0, max_nodes=12):
    """A random binary tree, its leaves numbered in any order."""
    n_nodes = draw(st.integers(min_nodes, max_nodes))
    children = np.zeros((n_nodes, 2), dtype=np.int64)
    open_ends = []
    for node in range(n_nodes):
        if node:
            parent, side = open_ends.pop(draw(st.integers(0, len(open_ends) - 1)))
            children[parent, side] = node
        open_ends += [(node, 0), (node, 1)]
    order = draw(st.permutations(range(len(open_ends))))
    for (parent, side), leaf in zip(open_ends, order, strict=True):
        children[parent, side] = ~leaf
    return Topology(children)


def path_of(topology, decisions):
    """Nodes passed, in order, and the leaf reached, if node v turns to ``decisions[v]``."""
    nodes, at = [], 0 if topology.n_nodes else ~0
    while at >= 0:
        nodes.append(at)
        at = int(topology.children[at, int(decisions[at])])
    return nodes, ~at


def seeds():
    """Seeds of a random generator: its draws are not worth shrinking."""
    return st.integers(0, 2**32 - 1)
