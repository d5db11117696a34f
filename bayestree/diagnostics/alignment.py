"""Nodes of a deterministic tree among the nodes of draws, whose numbers and sides may differ.

A facet and its complement with the branches exchanged describe the same split, and so do two
trees whose nodes have changed places. Nodes of draws are therefore matched by where they send the
rows, before anything is said about a node.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.diagnostics.draws import Draws, scores
from bayestree.tree import LOG2

ALIKE = 0.5  # agreement from which a draw is said to have a node: three rows of four


class Matches(NamedTuple):
    """The node of each draw that divides the rows of a node of the tree most alike."""

    node: IntArray  # its number in the draw, (chain, draw, V)
    exchanged: BoolArray  # whether its sides have changed places, (chain, draw, V)
    agreement: NDArray[np.float32]  # share of rows on the same side less the rest, (chain, draw, V)

    @classmethod
    def fixed(cls, nodes: IntArray, draws: Draws) -> "Matches":
        """Match nodes that have these numbers (V,) in every draw."""
        shape = (*draws["intercept"].shape[:2], len(nodes))
        every = np.broadcast_to(nodes, shape)
        return cls(every, np.zeros(shape, dtype=bool), np.ones(shape, dtype=np.float32))

    def of_nodes(self, draws: Draws) -> dict[str, NDArray[Any]]:
        """Select the experts of the nodes in every draw, (chain, draw, V, K, ...)."""
        found = {}
        for name in {"hyperplane", "intercept", "log_weight", "shrinkage"} & draws.keys():
            lead = (..., *(None,) * (draws[name].ndim - 3))
            found[name] = np.take_along_axis(draws[name], self.node[lead], axis=2)
        return found

    @property
    def alike(self) -> BoolArray:
        """Whether a draw has the node, (chain, draw, V)."""
        found: BoolArray = self.agreement >= ALIKE
        return found


def match(draws: Draws, X: FloatArray, right: BoolArray, reached: BoolArray) -> Matches:
    """Match the nodes of draws to those of a deterministic tree.

    ``X`` (n, d) are rows on the scale of the draws; ``right`` and ``reached`` (n, V), the side of
    each row in the tree, and whether it reaches the node.
    """
    side = np.where(right, 1.0, -1.0) * reached / np.maximum(reached.sum(axis=0), 1)
    shape = (*draws["intercept"].shape[:2], right.shape[1])
    node, agreement = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for one in np.ndindex(shape[:2]):
        agree = side.T @ np.where(scores(draws, one, X) > LOG2, 1.0, -1.0)
        node[one] = np.abs(agree).argmax(axis=1)
        agreement[one] = np.take_along_axis(agree, node[one][:, None], axis=1)[:, 0]
    return Matches(node, agreement < 0, np.abs(agreement))
