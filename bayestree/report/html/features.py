"""Which features the splits of trees look at."""

from collections.abc import Sequence

import numpy as np

from bayestree.routed_tree import RoutedTree
from bayestree.tree import FloatArray, Tree


def used_features(
    trees: Sequence[RoutedTree], names: Sequence[str], node: int | None = None
) -> list[tuple[str, float]]:
    """Features with their share in the splits, the largest first; none of splits by networks.

    The share in a facet is that in the squared coefficients per standard deviation. A node's is
    the mean over its facets, a tree's that over its nodes, weighted by the rows that reach them.

    Parameters
    ----------
    trees : sequence of RoutedTree
    names : sequence of str
    node : int, optional
        A node of the only tree; by default all.
    """
    linear = [tree for tree in trees if isinstance(tree, Tree)]
    total = np.zeros(len(names))
    for tree in linear:
        rows = tree.topology.sum_below(tree.leaf_rows)
        for own in range(tree.n_nodes) if node is None else [node]:
            total += rows[own] * node_share(tree, own)
    if not total.any():
        return []
    order = np.argsort(-total, kind="stable")
    return [(names[j], float(total[j] / total.sum())) for j in order if total[j] > 0]


def node_share(tree: Tree, node: int) -> FloatArray:
    """Share of each feature in the facets of a node, shape (d,)."""
    square = tree.standardised_hyperplane[tree.experts(node)] ** 2
    length = square.sum(axis=1, keepdims=True)
    share: FloatArray = np.divide(square, length, where=length > 0, out=np.zeros_like(square))
    return share.mean(axis=0)
