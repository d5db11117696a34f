"""Bivariate trees as scikit-learn estimators."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from bayestree import inference
from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegative,
    NonNegativeOrInf,
    ParameterError,
    declare,
)
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._leaf_families import MeanLeaves, ShareLeaves
from bayestree.estimators._parameters import Depth, Limits, ShownRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.inference import Data, Posterior
from bayestree.inference.cost_complexity import cost_complexity
from bayestree.inference.splitters.bivariate import BivariateSplitter
from bayestree.inference.splitters.bivariate_search import LineSearch
from bayestree.models import SoftTree, named
from bayestree.models.criteria import Criterion, Entropy, Gini
from bayestree.models.leaves import Leaf

CRITERIA: dict[str, Criterion] = {"entropy": Entropy(), "gini": Gini()}


class ImpurityTree(BaseTree):
    """A tree that is grown by the impurity of splits, which is that of its leaves."""

    def _impurity(self, leaf: Leaf) -> Criterion:
        """The impurity that a split reduces."""
        return leaf.criterion


@declare
class ImpurityClassifier(ShareLeaves, TreeClassifier, ImpurityTree):
    """A classifier with a choice of the impurity."""

    criterion: Annotated[
        Literal["entropy", "gini"],
        Model("The impurity that a split reduces; 'gini' is for leaf='constant'."),
    ] = "entropy"

    def _impurity(self, leaf: Leaf) -> Criterion:
        return leaf.criterion if leaf.regresses else CRITERIA[self.criterion]

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        if model.leaf.regresses and self.criterion != "entropy":
            raise ParameterError(
                f"criterion={self.criterion!r} is for constant leaves, got leaf={self.leaf!r}, "
                "whose splits are compared by their likelihood; leave criterion at 'entropy', or "
                "set leaf='constant'."
            )


@declare
class BaseBivariateTree(ShownRun, Limits, Depth, ImpurityTree):
    """Grow a tree by search over pairs of features; classifier and regressor add y."""

    max_depth = 10
    min_rows = 2.0
    min_leaf = 1
    min_gain = 5.0

    n_orientations: Annotated[
        int,
        Field(ge=2),
        Inference(
            "Number of slopes searched for each pair of features, which are standardised at each "
            "node."
        ),
    ] = 30
    pair_penalty: Annotated[
        NonNegativeOrInf,
        Model(
            "Additional gain, in nats of log-likelihood, required to use two features instead of "
            "one. Larger values give a tree with fewer pairs; infinity gives CART."
        ),
    ] = 2.0
    ccp_alpha: Annotated[
        NonNegative,
        Model(
            "Penalty of minimal cost-complexity pruning: the amount by which each leaf must reduce "
            "the mean impurity of the rows, as in scikit-learn, but with entropy in nats."
        ),
    ] = 0.0
    budget: Annotated[
        NonNegativeOrInf,
        Inference(
            "Maximum size (pairs x slopes x distinct rows x classes) of an exact search of all "
            "pairs of a node. In larger ones, pairs are screened at a few slopes on 1,000 rows, "
            "and the best 20 are searched on all rows."
        ),
    ] = 1e6
    max_pairs: Annotated[
        Count,
        Inference(
            "Maximum number of pairs of features searched; features that split best alone come "
            "first."
        ),
    ] = 20_000

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.bivariate(leaf)

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        criterion = self._impurity(model.leaf)
        splitter = BivariateSplitter(
            model.leaf,
            criterion,
            pair_penalty=self.pair_penalty,
            search=LineSearch(
                n_orientations=self.n_orientations,
                min_leaf=self.min_leaf,
                budget=self.budget,
                max_pairs=self.max_pairs,
            ),
        )
        prune = partial(cost_complexity, alpha=self.ccp_alpha, criterion=criterion)
        return inference.grow(
            model,
            data,
            limits=self._limits(),
            splitter=splitter,
            prune=prune if self.ccp_alpha > 0 else None,
            random_state=0,
            progress=bool(self.verbose),
        )


@declare
class BivariateTreeClassifier(ImpurityClassifier, BaseBivariateTree):
    """Decision tree with one or two features in each node, grown like CART.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees: smaller, interpretable, more
    accurate" (2024), the fast algorithm: in each node the best of all cuts of a feature, and of
    all pairs of features at ``n_orientations`` slopes. The algorithm is deterministic. For joint
    optimisation of such splits see
    :class:`~bayestree.AlternatingTreeClassifier` with ``split="bivariate"``.

    {parameters}

    {attributes}

    See Also
    --------
    bayestree.export_rules : The tree as rules.
    bayestree.plots.node_scatter : Each node as a scatter plot with its line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2).fit(X, y)
    >>> clf.get_n_leaves()
    3
    >>> bool(clf.score(X, y) > 0.97)
    True
    """


@declare
class BivariateTreeRegressor(MeanLeaves, TreeRegressor, BaseBivariateTree):
    """Regression tree with one or two features in each node, grown like CART.

    Like :class:`BivariateTreeClassifier`, with the squared error in place of the entropy, and
    means or linear functions in the leaves. With linear leaves a split is compared by the squared
    error about a regression on each side, for about 3 sqrt(n) thresholds of n.

    {parameters}

    {attributes}
    posterior_ : Posterior
        Its splits as one draw, on the standardised features and standardised y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import BivariateTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = BivariateTreeRegressor(max_depth=2).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """
