"""Trees that are grown like CART, by a search for the split of each node, and pruned.

Here are those with one hyperplane in each node, by a choice of searches; ``bivariate`` has others.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import InstanceOf

from bayestree import inference
from bayestree._utils.parameters import ByName, Model, NonNegative, check_parameters, declare, takes
from bayestree.estimators import _parameters
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling
from bayestree.fitting.rules import Rule, complaint
from bayestree.inference import Data, Posterior
from bayestree.inference.growth.grow import GrowingTree
from bayestree.inference.splitters import Splitter
from bayestree.inference.splitters.planes import PlaneSearch, PlaneSplitter
from bayestree.literature.plane_searches import CO2, OC1, CartLC, Guide, HHCart
from bayestree.models import SoftTree
from bayestree.models.criteria import Criterion, Entropy, Gini, Twoing
from bayestree.models.leaves import Leaf

CRITERIA: dict[str, Criterion] = {"entropy": Entropy(), "gini": Gini(), "twoing": Twoing()}


@declare
@takes(_parameters.ShownRun, _parameters.Limits, _parameters.Depth)
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

    leaf: _parameters.ShareFamily = "constant"
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
        sums = tree.growth_terms(node.rows)(node.rows).sum(0)
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


SearchName = Literal["cart-lc", "co2", "guide", "hhcart", "oc1"]
SEARCHES: Mapping[SearchName, type[PlaneSearch]] = {
    "cart-lc": CartLC,
    "co2": CO2,
    "guide": Guide,
    "hhcart": HHCart,
    "oc1": OC1,
}


def _search(splitter: SearchName | PlaneSearch) -> PlaneSearch:
    return SEARCHES[splitter]() if isinstance(splitter, str) else splitter


@declare
@takes(_parameters.RandomRun)
class BaseObliqueTree(ImpurityTree):
    """Grow a tree by a search for the hyperplane of each node; subclasses add y."""

    splitter: Annotated[
        SearchName | Annotated[InstanceOf[PlaneSearch], ByName(SEARCHES)],
        Model(
            "The search for the hyperplane of each node: 'cart-lc' (coordinate descent), 'co2' "
            "(gradient descent on a bound of the loss), 'guide' (one feature, chosen by a "
            "chi-squared test), 'hhcart' (reflections along eigenvectors of the classes), 'oc1' "
            "(coordinate descent with random jumps and restarts), or an object with other "
            "settings (see docs/trees/fitting.md)."
        ),
    ] = "hhcart"

    _rules = (
        Rule(
            "splitter",
            lambda case: complaint(check_parameters, _search(case.given.splitter)),
            "{found}",
        ),
    )

    def _splitter(self, leaf: Leaf) -> PlaneSplitter:
        return PlaneSplitter(_search(self.splitter), leaf, self._impurity(leaf), self.min_leaf)


@declare
class ObliqueTreeClassifier(ImpurityClassifier, BaseObliqueTree):
    """Decision tree with one hyperplane in each node, grown like CART by a choice of searches.

    The searches come from HHCART (Wickramarachchi et al., 2016), OC1 (Murthy, Kasif and Salzberg,
    1994), CART-LC (Breiman et al., 1984) and CO2 (Norouzi et al., 2015). For a single feature there
    is GUIDE (Loh, 2002, 2009).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ObliqueTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = ObliqueTreeClassifier(splitter="oc1", random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.97)
    True
    """


@declare
class ObliqueTreeRegressor(TreeRegressor, BaseObliqueTree):
    """Regression tree with one hyperplane in each node, grown like CART by a choice of searches.

    Like :class:`ObliqueTreeClassifier`; a split reduces the squared error. GUIDE tests the signs of
    residuals (Loh, 2002), and HHCART reflects along the eigenvectors of the quartiles of y. With
    linear leaves a split is compared by the squared error about a regression on each side, for
    about 3 sqrt(n) thresholds of n. All searches then take the residuals from the regression of the
    node in place of y.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import ObliqueTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = ObliqueTreeRegressor(splitter="guide", max_depth=2).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    min_leaf = 10

    leaf: _parameters.MeanFamily = "constant"
