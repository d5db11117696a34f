"""Trees with one hyperplane in each node, grown by a search, as scikit-learn estimators."""

from functools import partial
from typing import Annotated

from pydantic import InstanceOf

from bayestree import inference
from bayestree._utils.parameters import Model, NonNegative, check_parameters, declare
from bayestree.estimators._leaf_families import MeanLeaves
from bayestree.estimators._parameters import Depth, Limits, RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators.bivariate import ImpurityClassifier, ImpurityTree
from bayestree.inference import Data, Posterior
from bayestree.inference.cost_complexity import cost_complexity
from bayestree.inference.splitters.planes import PlaneSearch, PlaneSplitter
from bayestree.inference.splitters.searches import SEARCHES, SearchName
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf


@declare
class BaseObliqueTree(RandomRun, Limits, Depth, ImpurityTree):
    """Grow a tree by a search for the hyperplane of each node; subclasses add y."""

    max_depth = 10
    min_rows = 2.0
    min_leaf = 1
    min_gain = 5.0

    splitter: Annotated[
        SearchName | InstanceOf[PlaneSearch],
        Model(
            "The search for the hyperplane of each node: 'cart-lc' (coordinate descent), 'co2' "
            "(gradient descent on a bound of the loss), 'guide' (one feature, chosen by a "
            "chi-squared test), 'hhcart' (reflections along eigenvectors of the classes), 'oc1' "
            "(coordinate descent with random jumps and restarts), or an object with other "
            "settings (see docs/trees.md)."
        ),
    ] = "hhcart"
    ccp_alpha: Annotated[
        NonNegative,
        Model(
            "Penalty of minimal cost-complexity pruning: the amount by which each leaf must reduce "
            "the mean impurity of the rows, as in scikit-learn, but with entropy in nats and "
            "squared errors in units of the variance of y."
        ),
    ] = 0.0

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.oblique(leaf)

    def _search(self) -> PlaneSearch:
        return SEARCHES[self.splitter]() if isinstance(self.splitter, str) else self.splitter

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        check_parameters(self._search())

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        criterion = self._impurity(model.leaf)
        prune = partial(cost_complexity, alpha=self.ccp_alpha, criterion=criterion)
        return inference.grow(
            model,
            data,
            limits=self._limits(),
            splitter=PlaneSplitter(self._search(), model.leaf, criterion, self.min_leaf),
            prune=prune if self.ccp_alpha > 0 else None,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )


@declare
class ObliqueTreeClassifier(ImpurityClassifier, BaseObliqueTree):
    """Decision tree with one hyperplane in each node, grown like CART by one of several searches.

    The searches are those of HHCART (Wickramarachchi et al., 2016), OC1 (Murthy, Kasif and
    Salzberg, 1994), CART-LC (Breiman et al., 1984), CO2 (Norouzi et al., 2015) and, for a single
    feature, GUIDE (Loh, 2002, 2009).

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
class ObliqueTreeRegressor(MeanLeaves, TreeRegressor, BaseObliqueTree):
    """Regression tree with one hyperplane in each node, grown like CART by one of several searches.

    Like :class:`ObliqueTreeClassifier`; a split reduces the squared error. GUIDE tests the signs of
    residuals (Loh, 2002), and HHCART reflects along the eigenvectors of the quartiles of y. With
    linear leaves a split is compared by the squared error about a regression on each side, for
    about 3 sqrt(n) thresholds of n, and all searches take the residuals from the regression of the
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
