"""A tree in sheets that can be read: each a few levels, what lies below on sheets of its own."""

import heapq
from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.topology import Topology

MOST_TIPS, FULL = 10, 12  # leaves and closed branches of a sheet: wanted, and at most
DEEPEST = 7  # levels of a sheet
SMALL = 3  # leaves of a branch that is opened while there is room
MOST_NODES = 250  # of a tree, that are drawn and described: those of the most rows


class Sheet(NamedTuple):
    """A part of a tree.

    Attributes
    ----------
    root : int
        Its uppermost node, or ``~leaf`` of a tree without a split.
    nodes : tuple of int
        Nodes that are open, parents first.
    tips : tuple of int
        What ends it, from left to right: ``~leaf``, or the node of a branch that is closed.
    """

    root: int
    nodes: tuple[int, ...]
    tips: tuple[int, ...]


def shown_nodes(topology: Topology, rows: FloatArray, most: int = MOST_NODES) -> BoolArray:
    """Which nodes are drawn, shape (V,): those of the most rows, and so all that lie above them."""
    shown = np.zeros(topology.n_nodes, dtype=bool)
    shown[np.argsort(-rows, kind="stable")[:most]] = True
    # Of equal rows an upper node comes first, for its number is smaller.
    return shown


def sheets(topology: Topology, rows: FloatArray, shown: BoolArray) -> list[Sheet]:
    """The sheets of a tree, the root's first.

    Parameters
    ----------
    topology : Topology
    rows : array, shape (V,)
        Rows that reach each node: the branches of the most are opened first.
    shown : array of bool, shape (V,)
        Nodes that may be opened.
    """
    if topology.n_nodes == 0:
        return [Sheet(~0, (), (~0,))]
    leaves = topology.sum_below(np.ones(topology.n_leaves))
    found, waiting = [], [0]
    for root in waiting:
        sheet = _sheet(topology, root, rows, leaves, shown)
        found.append(sheet)
        waiting += [tip for tip in sheet.tips if tip >= 0 and shown[tip]]
    return found


def _sheet(
    topology: Topology, root: int, rows: FloatArray, leaves: FloatArray, shown: BoolArray
) -> Sheet:
    """The sheet of one branch."""
    depth = topology.node_depth - topology.node_depth[root]
    opened, n_tips = set[int](), 1
    closed = [(-rows[root], root)]
    while closed:
        _, node = heapq.heappop(closed)
        full = n_tips >= (FULL if leaves[node] <= SMALL else MOST_TIPS)
        if not shown[node] or full or depth[node] >= DEEPEST:
            continue
        opened.add(node)
        n_tips += 1
        for child in topology.children[node].tolist():
            if child >= 0:
                heapq.heappush(closed, (-rows[child], child))
    return Sheet(root, tuple(sorted(opened)), tuple(_tips(topology, root, opened)))


def _tips(topology: Topology, root: int, opened: set[int]) -> list[int]:
    """What ends a sheet, from left to right."""
    tips, waiting = [], [root]
    while waiting:
        child = waiting.pop()
        if child in opened:
            left, right = topology.children[child].tolist()
            waiting += [right, left]
        else:
            tips.append(child)
    return tips
