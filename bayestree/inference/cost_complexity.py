"""Cost-complexity pruning of a grown tree (Breiman et al., 1984, chapter 3)."""

import torch

from bayestree.inference.growing import GrowingTree
from bayestree.models.criteria import Criterion


def cost_complexity(
    tree: GrowingTree, kept: set[int], alpha: float, criterion: Criterion
) -> set[int]:
    """The smallest subtree that minimises impurity + alpha times the number of leaves.

    Parameters
    ----------
    tree : GrowingTree
    kept : set of int
        Nodes that are split.
    alpha : float
        Cost of a leaf, relative to the impurity averaged over the rows: as ``ccp_alpha`` in
        scikit-learn, except that entropies are in nats.
    criterion : Criterion
        Minus the total impurity of a set of rows.

    Returns
    -------
    set of int
        Nodes that remain split.
    """
    total = float(tree.data.weights.sum())
    cost: dict[int, float] = {}
    remaining: set[int] = set()
    for i in range(len(tree.nodes) - 1, -1, -1):  # children come after their parents
        node = tree.nodes[i]
        rows = node.rows
        sums = tree.model.leaf.statistics(tree.data.y[rows], tree.data.weights[rows]).sum(0)
        cost[i] = alpha - float(criterion.value(sums.to(torch.float64))) / total
        if i not in kept:
            continue
        below = sum(cost[child] for child in node.children)
        if below < cost[i] - 1e-12:  # prefer the smaller tree in a tie
            cost[i] = below
            remaining.add(i)
    return _reachable(tree, remaining)


def _reachable(tree: GrowingTree, remaining: set[int]) -> set[int]:
    """Nodes whose ancestors all remain."""
    found, waiting = set(), [0]
    while waiting:
        i = waiting.pop()
        if i in remaining:
            found.add(i)
            waiting += tree.nodes[i].children
    return found
