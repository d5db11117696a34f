"""Bivariate trees as scikit-learn estimators."""

from typing import Annotated

from pydantic import Field

from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegativeOrInf,
    declare,
)
from bayestree.estimators._leaf_families import MeanLeaves
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._searched import ImpurityClassifier, ImpurityTree
from bayestree.inference.splitters.bivariate import BivariateSplitter
from bayestree.inference.splitters.bivariate_search import LineSearch
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf


@declare
class BaseBivariateTree(ImpurityTree):
    """Grow a tree by search over pairs of features; classifier and regressor add y."""

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
    budget: Annotated[
        NonNegativeOrInf,
        Inference(
            "Maximum size (pairs x slopes x distinct rows x classes, or, if leaves have slopes, "
            "x sums of products) of an exact search of all pairs of a node. In larger ones, pairs "
            "are screened at a few slopes on 1,000 rows, and the best 20 are searched on all rows."
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

    def _splitter(self, leaf: Leaf) -> BivariateSplitter:
        return BivariateSplitter(
            leaf,
            self._impurity(leaf),
            pair_penalty=self.pair_penalty,
            search=LineSearch(
                n_orientations=self.n_orientations,
                min_leaf=self.min_leaf,
                budget=self.budget,
                max_pairs=self.max_pairs,
            ),
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
