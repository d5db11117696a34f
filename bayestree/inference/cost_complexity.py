"""Cost-complexity pruning of a grown tree (Breiman et al., 1984, chapter 3)."""

import torch

from bayestree.inference.growing import GrowingTree
from bayestree.models.criteria import Criterion


def cost_complexity(
    tree: GrowingTree, kept: set[int], alpha: float, criterion: Criterion
) -> set[int]:
    """Split nodes of the smallest subtree that minimises impurity + alpha x number of leaves.

    ``kept`` are the nodes that are split, ``alpha`` the cost of a leaf relative to the mean
    impurity of the rows under the ``criterion`` (scikit-learn's ``ccp_alpha``, but entropies are in
    nats): of leaves that regress on the features, of what these leave unexplained.
    """
    total = float(tree.data.weights.sum())
    cost: dict[int, float] = {}
    remaining: set[int] = set()
    for i in range(len(tree.nodes) - 1, -1, -1):  # children come after their parents
        node = tree.nodes[i]
        rows = node.rows
        sums = tree.model.leaf.statistics(tree.data.y[rows], tree.data.weights[rows]).sum(0)
        cost[i] = alpha + float(criterion.impurity(sums.to(torch.float64))) / total
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
