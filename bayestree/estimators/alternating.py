"""Trees by alternating optimisation (TAO) with the face of scikit-learn."""

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bayestree._utils.progress import Verbose
from bayestree._utils.seed import RandomState
from bayestree.estimators._alternating import BaseAlternatingTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._file_rows import FileRows
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._units import UnitRule
from bayestree.inference import Data
from bayestree.models.leaf_rules import LinearLeaves
from bayestree.tree import Tree


class AlternatingTreeClassifier(TreeClassifier, BaseAlternatingTree):
    """Decision tree whose nodes are optimised in turn for the 0/1 loss of the whole tree (TAO).

    Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application
    to learning sparse oblique trees" (2018). From a given tree each node in turn is trained, from
    the deepest to the root, as a classifier of its rows into those that the left child serves
    better and those that the right one does. With ``l1`` the splits look at few features and the
    tree becomes smaller. Much more accurate than the tree it starts from, and fast.

    Parameters
    ----------
    split : {"oblique", "bivariate", "axis"}, default="oblique"
        All features, at most two, or one in each node. The last two are found by exact search.
    l1 : float, default=0.0
        Penalty lambda beside a loss of 1 for each wrong row: of oblique splits for |w|_1 on the
        scaled features (1/C of liblinear), of the other two for each feature that a node uses.
    pair_cost : float, default=1.2
        What two features of a bivariate split cost, in units of one.
    max_depth : int, default=6
        Of the start.
    init : {"cart", "random"}, Tree or fitted estimator, default="cart"
        The start: CART, a complete tree of random hyperplanes through medians, or any tree with
        such splits, whatever its units. Inside of a search over parameters give the ``tree_`` of
        a fitted estimator: copies of the estimator are not fitted.
    min_leaf : int, default=1
        Least rows in a leaf of the start from CART.
    sweeps : int, default=40
        Most passes over all nodes.
    patience : int, default=5
        Passes without a better tree after which to stop.
    strict : bool, default=False
        Refuse updates of a node that would raise the objective. By default they are accepted and
        the best tree seen is taken, which ends lower.
    ridge : float, default=0.1
        Penalty on |w|^2 / 2 where ``l1`` is 0, which keeps oblique splits finite.
    scaling : {"standard", "common", "range", "variance", "none"}, default="standard"
        Units of the features inside: each its own standard deviation (but no less than a sixth
        of its range), one unit for all, its range, its standard deviation whatever it is, or as
        they are. ``"common"`` is for features that share a unit: pixels, indicators.
    smoothing : float, default=1.0
        Rows that the Dirichlet prior of each leaf is worth, spread over the classes as the
        training rows are; with 0 a leaf predicts the shares of its own rows.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    dtype : {"float32", "float64"}, default="float64"
        Precision of the rows; float32 halves time and memory on wide data.
    n_jobs : int, optional
        Threads for the nodes of a depth; -1 for one per core. The tree does not depend on it.
    random_state : int, RandomState, optional
        Of the start.
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

    Attributes
    ----------
    classes_ : array, shape (C,)
    tree_ : Tree
        The tree, in the units of the data.
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is the weight
        of the wrong training rows by sweep.
    n_features_in_, feature_names_in_

    See Also
    --------
    bayestree.regularization_path : Fits for a series of penalties.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import AlternatingTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AlternatingTreeClassifier(max_depth=3, l1=2.0, random_state=0).fit(X, y)
    >>> clf.get_n_leaves()
    3
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseAlternatingTree._parameter_constraints,
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        *,
        split: Literal["oblique", "bivariate", "axis"] = "oblique",
        l1: float = 0.0,
        pair_cost: float = 1.2,
        max_depth: int = 6,
        init: Any = "cart",
        min_leaf: int = 1,
        sweeps: int = 40,
        patience: int = 5,
        strict: bool = False,
        ridge: float = 0.1,
        scaling: UnitRule = "standard",
        smoothing: float = 1.0,
        class_weight: Any = None,
        dtype: str = "float64",
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: Verbose = "auto",
    ) -> None:
        self.split = split
        self.l1 = l1
        self.pair_cost = pair_cost
        self.max_depth = max_depth
        self.init = init
        self.min_leaf = min_leaf
        self.sweeps = sweeps
        self.patience = patience
        self.strict = strict
        self.ridge = ridge
        self.scaling = scaling
        self.smoothing = smoothing
        self.class_weight = class_weight
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


class AlternatingTreeRegressor(TreeRegressor, BaseAlternatingTree):
    """Regression tree whose nodes are optimised in turn for the squared loss of the tree (TAO).

    As :class:`AlternatingTreeClassifier`, with means or linear functions in the leaves. A row
    counts in a node by what the wrong child would cost it more.

    Parameters
    ----------
    split : {"oblique", "bivariate", "axis"}, default="oblique"
        All features, at most two, or one in each node. The last two are found by exact search.
    l1 : float, default=0.2
        Penalty lambda beside the squared loss of y in units of its standard deviation: of oblique
        splits for |w|_1 on the scaled features, of the other two for each feature of a node.
    pair_cost : float, default=1.2
        What two features of a bivariate split cost, in units of one.
    max_depth : int, default=6
        Of the start.
    leaf : {"constant", "linear"}, default="constant"
        What a leaf predicts: a mean, or a ridge regression on all features.
    leaf_ridge : float, default=1.0
        Penalty on |slope|^2 of linear leaves, beside the squared loss.
    init : {"cart", "random"}, Tree or fitted estimator, default="cart"
        The start: CART, a complete tree of random hyperplanes through medians, or any tree with
        such splits, whatever its units. Inside of a search over parameters give the ``tree_`` of
        a fitted estimator: copies of the estimator are not fitted.
    min_leaf : int, default=10
        Least rows in a leaf of the start from CART.
    sweeps : int, default=40
        Most passes over all nodes.
    patience : int, default=5
        Passes without a better tree after which to stop.
    strict : bool, default=False
        Refuse updates of a node that would raise the objective. By default they are accepted and
        the best tree seen is taken.
    ridge : float, default=0.1
        Penalty on |w|^2 / 2 where ``l1`` is 0, which keeps oblique splits finite.
    scaling : {"standard", "common", "range", "variance", "none"}, default="standard"
        Units of the features inside (see :class:`AlternatingTreeClassifier`).
    dtype : {"float32", "float64"}, default="float64"
        Precision of the rows.
    n_jobs : int, optional
        Threads for the nodes of a depth; -1 for one per core. The tree does not depend on it.
    random_state : int, RandomState, optional
        Of the start.
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

    Attributes
    ----------
    tree_ : Tree
        The tree, in the units of the data; with linear leaves its ``slope`` is set.
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is the loss
        of the training rows by sweep.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import AlternatingTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = AlternatingTreeRegressor(max_depth=2, random_state=0).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseAlternatingTree._parameter_constraints,
        "leaf": [StrOptions({"constant", "linear"})],
        "leaf_ridge": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        split: Literal["oblique", "bivariate", "axis"] = "oblique",
        l1: float = 0.2,
        pair_cost: float = 1.2,
        max_depth: int = 6,
        leaf: Literal["constant", "linear"] = "constant",
        leaf_ridge: float = 1.0,
        init: Any = "cart",
        min_leaf: int = 10,
        sweeps: int = 40,
        patience: int = 5,
        strict: bool = False,
        ridge: float = 0.1,
        scaling: UnitRule = "standard",
        dtype: str = "float64",
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: Verbose = "auto",
    ) -> None:
        self.split = split
        self.l1 = l1
        self.pair_cost = pair_cost
        self.max_depth = max_depth
        self.leaf = leaf
        self.leaf_ridge = leaf_ridge
        self.init = init
        self.min_leaf = min_leaf
        self.sweeps = sweeps
        self.patience = patience
        self.strict = strict
        self.ridge = ridge
        self.scaling = scaling
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _leaf_ridge(self) -> float | None:
        return self.leaf_ridge if self.leaf == "linear" else None

    def _read_off(
        self,
        X: NDArray[np.float64] | FileRows,
        y: NDArray[Any],
        weights: NDArray[np.float64],
        data: Data,
        class_names: tuple[str, ...],
    ) -> None:
        super()._read_off(X, y, weights, data, class_names)
        tree = self.tree_
        if self.leaf == "linear" and isinstance(tree, Tree):
            rule = LinearLeaves(self._standardise(X[:]), y, weights, self.leaf_ridge)
            found = rule.fit(rule.start(tree.n_leaves), tree.apply(X))
            self.tree_ = tree.with_linear_leaves(found[:, -1], found[:, :-1] / self._scale)
