"""Posterior of the size of the whole tree, over several modes with trees of their own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.diagnostics.draws import tails


@dataclass(frozen=True, eq=False)
class TreeSize:
    """Posterior probabilities of numbers that trees of different topologies have in common.

    Attributes
    ----------
    facets : array, shape (largest number + 1,)
        Of each number of facets of the root, by the main measure of ``PolytopeSize``; 0 for a tree
        without a split.
    splits : array, shape (largest number + 1,)
        Of each total number of facets of all splits.
    leaves : array, shape (largest number + 1,), or None
        Of each number of leaves in use by a draw; None if they were not counted.
    depth : array, shape (largest depth + 1,)
        Of each depth of the deterministic trees, one for each mode.
    """

    facets: FloatArray
    splits: FloatArray
    leaves: FloatArray | None
    depth: FloatArray

    def __str__(self) -> str:
        named = {
            "facets of the root": self.facets,
            "of all splits": self.splits,
            "leaves in use by a draw": self.leaves,
            "depth of the deterministic trees": self.depth,
        }
        parts = [f"{name} {_summary(p)}" for name, p in named.items() if p is not None]
        return f"Over all modes: {', '.join(parts)}"


def number_probabilities(counts: Sequence[IntArray], weights: FloatArray) -> FloatArray:
    """Probability of each number, from the numbers in the draws of each mode and its weight."""
    table = np.zeros(max(int(one.max()) for one in counts) + 1)
    for one, weight in zip(counts, weights, strict=True):
        table += weight * np.bincount(one.ravel(), minlength=len(table)) / one.size
    return table


def _summary(probabilities: FloatArray, level: float = 0.9) -> str:
    """The most probable number and a central interval."""
    below = np.cumsum(probabilities)
    # rounding must not leave the upper end without mass above it
    low, high = (int(np.argmax(below >= p - 1e-9)) for p in tails(level))
    return f"{int(probabilities.argmax())} ({low} to {high})"
