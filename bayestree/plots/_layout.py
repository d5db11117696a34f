"""The layout of a tree, which all its drawings share."""

from collections.abc import Container
from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.description import visits
from bayestree.topology import Topology


class Place(NamedTuple):
    """Position of a node, or of a leaf ``~leaf``, in a drawing.

    ``across`` is the position across the direction of growth: tips at 0, 1, 2, ... from left to
    right, and a node halfway between its children. ``line`` is the position in an outline, in which
    a node precedes all nodes and leaves below it. The root has no parent.
    """

    child: int
    parent: int | None
    depth: int
    across: float
    line: int


def layout(topology: Topology, root: int = 0, is_open: Container[int] | None = None) -> list[Place]:
    """Places of the branch below ``root``, in the order of an outline.

    Only nodes that are open, by default all, have their children drawn.
    """
    places: list[Place] = []
    n_tips = 0
    for line, (child, steps) in enumerate(visits(topology, root, is_open)):
        parent = steps[-1][0] if steps else None
        places.append(Place(child, parent, len(steps), n_tips, line))
        n_tips += child < 0 or (is_open is not None and child not in is_open)
    below: dict[int, list[float]] = {}
    for line, place in reversed([*enumerate(places)]):
        across = sum(below[place.child]) / 2 if place.child in below else place.across
        places[line] = place._replace(across=across)
        if place.parent is not None:
            below.setdefault(place.parent, []).append(across)
    return places


def positions(topology: Topology) -> tuple[FloatArray, FloatArray]:
    """Positions (across, -depth) of all nodes (V, 2) and leaves (L, 2)."""
    node_at, leaf_at = np.zeros((topology.n_nodes, 2)), np.zeros((topology.n_leaves, 2))
    for place in layout(topology):
        target, row = (node_at, place.child) if place.child >= 0 else (leaf_at, ~place.child)
        target[row] = place.across, -place.depth
    return node_at, leaf_at
