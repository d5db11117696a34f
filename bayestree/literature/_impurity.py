"""Trees that are grown like CART, by a search for the split of each node, and pruned."""

from functools import partial
from typing import Annotated, Literal

import torch

from bayestree import inference
from bayestree._utils.parameters import Model, NonNegative, declare, takes
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._parameters import Depth, Limits, ShareFamily, ShownRun
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling
from bayestree.fitting.rules import Rule
from bayestree.inference import Data, Posterior
from bayestree.inference.growth.grow import GrowingTree
from bayestree.inference.splitters import Splitter
from bayestree.models import SoftTree
from bayestree.models.criteria import Criterion, Entropy, Gini, Twoing
from bayestree.models.leaves import Leaf

CRITERIA: dict[str, Criterion] = {"entropy": Entropy(), "gini": Gini(), "twoing": Twoing()}


@declare
@takes(ShownRun, Limits, Depth)
class ImpurityTree(BaseTree):
    """Grow a tree by the impurity of splits, and prune it; a subclass names the search."""

    max_depth = 10
    min_rows = 2.0
    min_leaf = 1
    min_gain = 5.0

    ccp_alpha: Annotated[
        NonNegative,
        Model(
            "Penalty of minimal cost-complexity pruning: the amount by which each leaf must reduce "
            "the mean impurity of the rows, as in scikit-learn, but with entropy in nats and "
            "squared errors in units of the variance of y."
        ),
    ] = 0.0

    def _impurity(self, leaf: Leaf) -> Criterion:
        """Return the impurity that a split reduces: by default the criterion of the leaves."""
        return leaf.criterion

    def _splitter(self, leaf: Leaf) -> Splitter:
        """Return the search for the splits."""
        raise NotImplementedError

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        criterion = self._impurity(model.leaf)
        prune = partial(cost_complexity, alpha=self.ccp_alpha, criterion=criterion)
        return inference.grow(
            model,
            data,
            limits=self._limits(),
            splitter=self._splitter(model.leaf),
            prune=prune if self.ccp_alpha > 0 else None,
            random_state=getattr(self, "random_state", 0),  # which an exhaustive search lacks
            progress=bool(self.verbose),
        )


@declare
class ImpurityClassifier(TreeClassifier, ImpurityTree):
    """A classifier with a choice of the impurity."""

    leaf: ShareFamily = "constant"
    criterion: Annotated[
        Literal["entropy", "gini", "twoing"],
        Model(
            "The impurity that a split reduces, or the twoing rule of CART, which the program of "
            "OC1 has by default; 'gini' and 'twoing' are for leaf='constant'."
        ),
    ] = "entropy"

    _rules = (
        Rule(
            "criterion and leaf",
            lambda case: case.model.leaf.regresses and case.given.criterion != "entropy",
            "criterion={given.criterion!r} is for constant leaves, got leaf={given.leaf!r}, whose "
            "splits are compared by their likelihood; leave criterion at 'entropy', or set "
            "leaf='constant'.",
        ),
    )

    def _impurity(self, leaf: Leaf) -> Criterion:
        return leaf.criterion if leaf.regresses else CRITERIA[self.criterion]


def cost_complexity(
    tree: GrowingTree, kept: set[int], alpha: float, criterion: Criterion
) -> set[int]:
    """Split nodes of the smallest subtree that minimises impurity + alpha x number of leaves.

    Cost-complexity pruning (Breiman et al., 1984, chapter 3). ``kept`` are the nodes that are
    split. ``alpha`` is the cost of a leaf relative to the mean impurity of the rows under the
    ``criterion``: scikit-learn's ``ccp_alpha``, but entropies are in nats. Leaves that regress on
    the features have the impurity that the regression leaves unexplained.
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
    """Return nodes whose ancestors all remain."""
    found, waiting = set(), [0]
    while waiting:
        i = waiting.pop()
        if i in remaining:
            found.add(i)
            waiting += tree.nodes[i].children
    return found
