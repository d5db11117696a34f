"""Weighted oblique trees as scikit-learn estimators."""

from dataclasses import replace
from typing import Annotated

from bayestree import inference
from bayestree._utils.parameters import Count, Inference, declare
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._leaf_families import MeanLeaves, ShareLeaves
from bayestree.estimators._parameters import Depth, Limits, Precision, RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._units import UnitRule
from bayestree.inference import Data, Posterior
from bayestree.inference.splitters.weighted_entropy import WeightedSplitter
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf


@declare
class BaseWeightedTree(RandomRun, Precision, Limits, Depth, BaseTree):
    """Grow a tree by weighted impurity; classifier and regressor add y.

    Attributes
    ----------
    posterior_ : Posterior
        Its splits as one draw, on features scaled to [-1, 1].
    n_iter_ : int
        Largest number of iterations that a split took; not stored in files.
    """

    max_depth = 50
    dtype = "float64"
    min_rows = 2.0
    min_leaf = 1
    min_gain = 3.0  # 0 grows to pure leaves, as the paper does

    max_iter: Annotated[
        Count,
        Inference(
            "Maximum number of iterations of L-BFGS for a split. Few iterations keep coefficients "
            "small, which suits small data sets; large and wide ones gain a little from more "
            "iterations, and get fewer leaves."
        ),
    ] = 20
    n_starts: Annotated[
        Count,
        Inference("Number of random starts of a split, of which the one of largest gain is kept."),
    ] = 1

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.deterministic(named.weighted_oblique(leaf))

    def _unit_rule(self) -> UnitRule:
        return "range"

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        splitter = WeightedSplitter(model.leaf, self.max_iter, self.min_leaf, self.n_starts)
        grown = inference.grow(
            model,
            data,
            limits=self._limits(),
            splitter=splitter,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )
        self.n_iter_ = max(splitter.iterations, default=0)
        return replace(grown, settings={**grown.settings, "max_iter": self.max_iter})


@declare
class WeightedObliqueTreeClassifier(ShareLeaves, TreeClassifier, BaseWeightedTree):
    """Oblique decision tree grown by weighted entropy, from random starts.

    Yang, Shen and Gao, "Weighted oblique decision trees" (2019): each node's hyperplane minimises
    the remaining entropy when every row counts in both children, weighted by the probability of
    each side (eq. 1), by a few iterations of L-BFGS from a random start. A node whose rows all go
    to one side becomes a leaf. Growth is fast, and no setting needs tuning.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import WeightedObliqueTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """


@declare
class WeightedObliqueTreeRegressor(MeanLeaves, TreeRegressor, BaseWeightedTree):
    """Oblique regression tree grown by weighted variance, from random starts.

    Like :class:`WeightedObliqueTreeClassifier`, with the variance of y in place of the entropy:
    each node's hyperplane minimises W_L Var_L + W_R Var_R, where every row counts in both
    children, weighted by the probability of each side. With linear leaves these are the variances
    about a regression on the features. The variance has more local minima than the entropy, so
    that each split has several starts.

    {parameters}

    {attributes}
    posterior_ : Posterior
        Its splits as one draw, on features scaled to [-1, 1] and standardised y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import WeightedObliqueTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = WeightedObliqueTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    >>> bool(reg.score(X, y) > 0.4)
    True
    """

    min_leaf = 10
    n_starts = 4
