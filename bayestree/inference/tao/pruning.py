"""What an optimised tree does not need: dead branches, pure subtrees, siblings of one label."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import IntArray
from bayestree.inference.tao.state import Reach
from bayestree.topology import Topology


def redundant_nodes(topology: Topology, reach: Reach, values: NDArray[Any]) -> IntArray:
    """The side that takes the place of each node, or -1 where it is needed, shape (V,).

    A node all of whose rows go one way is replaced by that child. One whose children both come
    down to leaves that say the same is replaced by either of them, and so on upwards, which
    turns subtrees of one class into leaves.

    Parameters
    ----------
    topology : Topology
    reach : Reach
        Of the training rows.
    values : array, shape (L,) or (L, ...)
        What the leaves say.
    """
    bypass = np.full(topology.n_nodes, -1, dtype=np.int64)
    for node in range(topology.n_nodes - 1, -1, -1):
        right = reach.right[node]
        if not right.any() or right.all():
            # nodes that no row reaches go with the one above that sends them none
            bypass[node] = int(right.any())
            continue
        ends = [_resolved(topology, bypass, int(child)) for child in topology.children[node]]
        if max(ends) < 0 and np.array_equal(values[~ends[0]], values[~ends[1]]):
            bypass[node] = 0
    return bypass


def _resolved(topology: Topology, bypass: IntArray, child: int) -> int:
    """What stands in the place of a child once the nodes marked are gone."""
    while child >= 0 and bypass[child] >= 0:
        child = int(topology.children[child, bypass[child]])
    return child
