"""Trees with one hyperplane in each node, grown like CART by a choice of searches."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import InstanceOf

from bayestree._utils.parameters import ByName, Model, check_parameters, declare, takes
from bayestree.estimators._parameters import MeanFamily, RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.fitting.rules import Rule, complaint
from bayestree.inference.splitters.planes import PlaneSearch, PlaneSplitter
from bayestree.literature._impurity import ImpurityClassifier, ImpurityTree
from bayestree.literature.plane_searches import CO2, OC1, CartLC, Guide, HHCart
from bayestree.models.leaves import Leaf

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
@takes(RandomRun)
class BaseObliqueTree(ImpurityTree):
    """Grow a tree by a search for the hyperplane of each node; subclasses add y."""

    splitter: Annotated[
        SearchName | Annotated[InstanceOf[PlaneSearch], ByName(SEARCHES)],
        Model(
            "The search for the hyperplane of each node: 'cart-lc' (coordinate descent), 'co2' "
            "(gradient descent on a bound of the loss), 'guide' (one feature, chosen by a "
            "chi-squared test), 'hhcart' (reflections along eigenvectors of the classes), 'oc1' "
            "(coordinate descent with random jumps and restarts), or an object with other "
            "settings (see docs/trees/trees.md)."
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

    leaf: MeanFamily = "constant"
