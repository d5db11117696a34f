"""Cost-complexity pruning of a grown tree (Breiman et al., 1984, chapter 3)."""

import torch

from bayestree.inference.growing import GrowingTree
from bayestree.models.criteria import Criterion


def cost_complexity(
    tree: GrowingTree, kept: set[int], alpha: float, criterion: Criterion
) -> set[int]:
    """The smallest subtree of least cost, its impurity + alpha times its leaves.

    Parameters
    ----------
    tree : GrowingTree
    kept : set of int
        Nodes that are split.
    alpha : float
        Cost of a leaf, in impurity averaged over the rows: as ``ccp_alpha`` of scikit-learn,
        but that an entropy is in nats.
    criterion : Criterion
        Minus the impurity of a set of rows, summed over them.

    Returns
    -------
    set of int
        Nodes that stay split.
    """
    total = float(tree.data.weights.sum())
    cost: dict[int, float] = {}
    stays: set[int] = set()
    for i in range(len(tree.nodes) - 1, -1, -1):  # children come after their parents
        node = tree.nodes[i]
        rows = node.rows
        sums = tree.model.leaf.statistics(tree.data.y[rows], tree.data.weights[rows]).sum(0)
        cost[i] = alpha - float(criterion.value(sums.to(torch.float64))) / total
        if i not in kept:
            continue
        below = sum(cost[child] for child in node.children)
        if below < cost[i] - 1e-12:  # of equal costs the smaller tree
            cost[i] = below
            stays.add(i)
    return _reached(tree, stays)


def _reached(tree: GrowingTree, stays: set[int]) -> set[int]:
    """Those of the nodes all of whose ancestors are among them."""
    found, waiting = set(), [0]
    while waiting:
        i = waiting.pop()
        if i in stays:
            found.add(i)
            waiting += tree.nodes[i].children
    return found
