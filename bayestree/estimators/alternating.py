"""Trees by alternating optimisation (TAO) as scikit-learn estimators."""

from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import InstanceOf
from sklearn.utils import check_random_state

from bayestree import baselines, inference
from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegative,
    Positive,
    declare,
    parameters_of,
)
from bayestree._utils.seed import draw_seed
from bayestree.estimators._base import BaseTree, TrainingRows
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._parameters import Depth, Precision, RandomRun, WarmStart
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._units import UnitRule
from bayestree.estimators._warm import KEPT_LEAF
from bayestree.inference import Data, Posterior
from bayestree.inference.tao.alternating import Sweeps
from bayestree.inference.unsplit import why_not_grown
from bayestree.models import FeatureCount, Flat, Laplace, Oblique, SoftTree, named
from bayestree.models.leaf_rules import LinearLeaves
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior
from bayestree.tree import Tree

MAX_FEATURES = {"oblique": None, "bivariate": 2, "axis": 1}
MAX_RANDOM_DEPTH = 16  # of a complete tree: 65,536 leaves


@runtime_checkable
class HasTree(Protocol):
    """A fitted estimator of this package."""

    tree_: Tree


@runtime_checkable
class Estimator(Protocol):
    """An estimator with scikit-learn's interface."""

    def fit(self, X: Any, y: Any) -> Any: ...
    def predict(self, X: Any) -> Any: ...


@declare
class BaseAlternatingTree(WarmStart, RandomRun, Precision, Sweeps, Depth, BaseTree):
    """Start from a tree and optimise its nodes in turn; classifier and regressor add y."""

    max_depth = 6
    dtype = "float64"

    split: Annotated[
        Literal["oblique", "bivariate", "axis"],
        Model(
            "Features in each node: all of them, at most two, or one. The last two kinds of split "
            "are found by exact search."
        ),
    ] = "oblique"
    l1: Annotated[
        NonNegative,
        Model(
            "Penalty lambda, relative to a loss of 1 for each misclassified row, or to the squared "
            "loss of y in units of its standard deviation. It applies to |w|_1 of oblique splits "
            "on the scaled features (1/C of liblinear), and to each feature that other splits use."
        ),
    ] = 0.0
    pair_cost: Annotated[
        Positive,
        Model("Penalty for two features in a bivariate split, relative to that for one."),
    ] = 1.2
    init: Annotated[
        Literal["cart", "random"] | InstanceOf[Tree] | InstanceOf[Estimator],
        Inference(
            "Initial tree: CART, a complete tree of random hyperplanes through medians, or any "
            "tree with such splits (a Tree or a fitted estimator), whatever its units. In a "
            "parameter search, pass the tree_ of a fitted estimator, because copies of the "
            "estimator are not fitted."
        ),
    ] = "cart"
    min_leaf: Annotated[
        Count, Model("Minimum number of rows in a leaf of the initial tree from CART.")
    ] = 1
    scaling: Annotated[
        UnitRule,
        Model(
            "Units of the features in the fit: the standard deviation of each (but at least a "
            "sixth of its range), one unit for all, the range of each, exactly the standard "
            "deviation of each, or the units of the data. 'common' is for features that share a "
            "unit, such as pixels or indicators."
        ),
    ] = "standard"

    def _prior(self) -> HyperplanePrior:
        if self.l1 == 0:
            return Flat()
        if self.split == "oblique":
            return Laplace(self.l1)
        return FeatureCount(self.l1, self.pair_cost)

    def _model(self, leaf: Leaf) -> SoftTree:
        split = Oblique(MAX_FEATURES[self.split])
        return named.alternating(leaf, split=split, prior=self._prior())

    def _unit_rule(self) -> UnitRule:
        return self.scaling

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        start = self._start(data)
        found = inference.tao(
            model,
            data,
            init=start,
            leaf_ridge=self._leaf_ridge(),
            progress=bool(self.verbose),
            **{name: getattr(self, name) for name in parameters_of(Sweeps)},
        )
        reason = "no split lowers the loss of the training rows"
        if start.n_nodes == 0 and self._continues():
            reason = KEPT_LEAF
        elif start.n_nodes == 0 and isinstance(self.init, str):
            reason = why_not_grown(data, self._limits())
        elif start.n_nodes == 0:
            reason = "init has a single leaf; start from a tree with splits"
        elif self.l1 > 0:
            reason += f" by more than its penalty l1={self.l1:g}; lower l1"
        self._warn_if_single_leaf(found.model.topology, model.leaf, data, reason)
        return found

    def _leaf_ridge(self) -> float | None:
        """Penalty of linear leaves; None for constant leaves."""
        return None

    def _start(self, data: Data) -> Tree:
        """The initial tree, on the scaled features of ``data``."""
        if self._continues():
            return self._on_scaled(self.tree_)
        if not isinstance(self.init, str):
            return self._given_tree()
        X, seeds = data.X.numpy(force=True), check_random_state(draw_seed(self.random_state))
        y, weights = data.y.numpy(force=True), data.weights.numpy(force=True)
        if self.init == "random":
            return baselines.random_oblique(
                X,
                self.max_depth,
                weights,
                max_features=MAX_FEATURES[self.split],
                random_state=seeds,
            )
        return baselines.cart(
            X,
            y,
            weights,
            max_depth=self.max_depth,
            min_samples_leaf=self.min_leaf,
            random_state=seeds,
        )

    def _given_tree(self) -> Tree:
        """The tree of ``init``, on the scaled features."""
        given = self.init.tree_ if isinstance(self.init, HasTree) else self.init
        if not isinstance(given, Tree):
            raise TypeError(
                "init must be 'cart', 'random', a Tree, or a fitted estimator of this package with "
                f"linear splits; got {type(self.init).__name__}. Fit it first; convert a tree of "
                "scikit-learn by bayestree.baselines.from_sklearn."
            )
        if given.n_features != len(self._source):
            raise ValueError(
                f"init is a tree on {given.n_features} features, but X has {len(self._source)}."
            )
        return self._on_scaled(given)

    def _on_scaled(self, given: Tree) -> Tree:
        """A tree in the units of the data, converted to the scaled features."""
        # Constant columns are at their means, and duplicates in the units of their originals.
        scale = np.where(self._source < 0, 1.0, self._units.scale[self._source])
        return given.on_scaled(self._units.center, scale).with_columns(self._source)

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        if self.init == "random" and self.max_depth > MAX_RANDOM_DEPTH:
            raise ValueError(
                "init='random' creates a complete tree: "
                f"max_depth must be {MAX_RANDOM_DEPTH} or less, got {self.max_depth}."
            )


@declare
class AlternatingTreeClassifier(TreeClassifier, BaseAlternatingTree):
    """Decision tree whose nodes are optimised in turn for the 0/1 loss of the whole tree (TAO).

    Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application
    to learning sparse oblique trees" (2018). Starting from an initial tree, each node in turn,
    from the deepest to the root, is trained to classify its rows into those that the left child
    predicts better and those that the right child does. With ``l1`` the splits use few features
    and the tree becomes smaller. It is much more accurate than the initial tree, and fast to fit.

    {parameters}

    Attributes
    ----------
    classes_ : array, shape (C,)
    tree_ : Tree
        The tree, in the units of the data.
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is the weight
        of the misclassified training rows by sweep.
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.

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


@declare
class AlternatingTreeRegressor(TreeRegressor, BaseAlternatingTree):
    """Regression tree whose nodes are optimised in turn for the squared loss of the tree (TAO).

    Like :class:`AlternatingTreeClassifier`, with means or linear functions in the leaves. In a
    node, a row is weighted by the additional loss that the wrong child would cause.

    {parameters}

    Attributes
    ----------
    tree_ : Tree
        The tree, in the units of the data; with linear leaves its ``slope`` is set.
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is the loss
        of the training rows by sweep.
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import AlternatingTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = AlternatingTreeRegressor(max_depth=2, random_state=0).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    l1 = 0.2
    min_leaf = 10

    leaf: Annotated[
        Literal["constant", "linear"],
        Model("Prediction of a leaf: a mean, or a ridge regression on all features."),
    ] = "constant"
    leaf_ridge: Annotated[
        Positive, Model("Penalty on |slope|^2 of linear leaves, added to the squared loss.")
    ] = 1.0

    def _leaf_ridge(self) -> float | None:
        return self.leaf_ridge if self.leaf == "linear" else None

    def _harden(self, rows: TrainingRows, data: Data) -> None:
        super()._harden(rows, data)
        tree = self.tree_
        if self.leaf == "linear" and isinstance(tree, Tree):
            X = self._standardise(rows.X[:])
            rule = LinearLeaves(X, rows.y, rows.weights, self.leaf_ridge)
            found = rule.fit(rule.start(tree.n_leaves), tree.apply(rows.X))
            self.tree_ = tree.with_linear_leaves(found[:, -1], found[:, :-1] / self._units.scale)
