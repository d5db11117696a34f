"""Forests of end-to-end trees as scikit-learn estimators."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.parameters import Count, Inference, Model, declare
from bayestree._utils.seed import draw_seed
from bayestree.estimators._base import TrainingRows
from bayestree.estimators._classifier import LabelledClassifier
from bayestree.estimators._columns import ColumnChoice
from bayestree.estimators._contents import Arrays, describe
from bayestree.estimators._dependence import Dependence
from bayestree.estimators._intervals import PredictiveIntervals
from bayestree.estimators._leaf_families import NUMERIC, MeanFamily
from bayestree.estimators._members import built_members, fit_members, member_arrays, member_of
from bayestree.estimators._numbers import fitted_rows
from bayestree.estimators._regressor import NumberRegressor
from bayestree.estimators._shown import Shown
from bayestree.estimators.end_to_end import (
    BaseEndToEndTree,
    EndToEndTraining,
    EndToEndTreeClassifier,
    EndToEndTreeRegressor,
)
from bayestree.estimators.files import save
from bayestree.inference import Data, Posterior
from bayestree.inference.unsplit import warn_single_leaf, why_not_grown
from bayestree.models import Network
from bayestree.models.leaves import Leaf
from bayestree.routed_tree import RoutedTree

FINE_TUNING = 3  # times the epochs of a stump (E2EDT, section 3.5)
FOREST_ONLY = (
    "n_estimators",
    "max_features",
    "refine_epochs",
    "class_weight",
    "n_jobs",
    "random_state",
)


@declare
class BaseForest(EndToEndTraining, ColumnChoice, Dependence, Shown, BaseEstimator):
    """Fit and keep the trees of a forest; classifier and regressor add y."""

    _tree: ClassVar[type[BaseEndToEndTree]]

    n_estimators: Annotated[Count, Model("Number of trees.")] = field(default=10, kw_only=False)
    n_jobs: Annotated[
        int | None,
        Inference("Number of trees fitted in parallel, as in joblib. Results do not depend on it."),
    ] = None

    max_features = "sqrt"
    max_depth = 10
    epochs = 20
    steepness_step = 0.1
    min_gain = 0.0

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        """Grow and train every tree on all rows."""
        trees = self._trees()
        self.estimators_ = fit_members(
            trees, rows, leaf, label="trees", n_jobs=self.n_jobs, verbose=self.verbose
        )
        if self.get_n_leaves() == len(trees):
            X, y, weights, *_ = rows.counted()
            limits, data = trees[0]._limits(), Data.of(X, y, weights)
            reason = f"every tree: {why_not_grown(data, limits)}"
            warn_single_leaf(data.y, leaf, limits, reason)
        return self

    def _in_parts(self) -> bool:
        return False

    def _in_place(self) -> bool:
        return self.image_shape is not None

    def _trees(self) -> list[Any]:
        """The trees before their fit, each with its own seed."""
        max_features = None if self.patch_size is not None else self.max_features
        epochs = FINE_TUNING * self.epochs if self.refine_epochs is None else self.refine_epochs
        shared = {k: v for k, v in self.get_params(deep=False).items() if k not in FOREST_ONLY}
        shared |= {"max_features": max_features, "refine_epochs": epochs, "verbose": False}
        seeds = check_random_state(draw_seed(self.random_state)).randint(
            2**31 - 1, size=self.n_estimators
        )
        return [member_of(self, self._tree(random_state=seed, **shared)) for seed in seeds.tolist()]

    def apply(self, X: ArrayLike) -> IntArray:
        """Number of the leaf that each row reaches in each tree, shape (n, n_estimators)."""
        rows = fitted_rows(self, X)
        return np.stack([tree.tree_.apply(rows) for tree in self.estimators_], axis=1)

    @property
    def feature_subsets_(self) -> list[BoolArray]:
        """Features that each split of each tree uses, by tree of shape (nodes, d)."""
        check_is_fitted(self)
        return [tree.tree_.arrays()["hyperplane"] != 0 for tree in self.estimators_]

    @property
    def explain(self) -> Any:
        """Forests have no single path: explain their trees one by one."""
        raise AttributeError(
            "explain describes the path through one tree; of a forest, explain each tree: "
            "estimators_[0].explain(x). importance, shapley_values and partial_dependence describe "
            "the whole forest."
        )

    def get_depth(self) -> int:
        """Depth of the deepest tree."""
        check_is_fitted(self)
        return max(tree.get_depth() for tree in self.estimators_)

    def get_n_leaves(self) -> int:
        """Number of leaves of all trees together."""
        check_is_fitted(self)
        return sum(tree.get_n_leaves() for tree in self.estimators_)

    def save(self, path: str | Path) -> None:
        """Write the fitted forest to one file (see :func:`bayestree.load`)."""
        save(self, path)

    def _averages(self) -> bool:
        return False

    def _expectation(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean of the predictions of the deterministic trees (eq. 20)."""
        mean: FloatArray = sum(tree.tree_.predict(rows) for tree in self.estimators_)
        return mean / len(self.estimators_), np.zeros(mean.shape)

    def _shown_trees(self) -> list[tuple[float, RoutedTree]]:
        return [(1 / len(self.estimators_), tree.tree_) for tree in self.estimators_]

    def _fitted_trees(self) -> list[Any]:
        return self.estimators_

    def _describe(self) -> dict[str, Any]:
        return {"trees": [describe(tree) for tree in self.estimators_]}

    def _arrays(self) -> Arrays:
        return member_arrays("trees", self.estimators_)

    def _restore(self, described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
        self.estimators_ = built_members(self._tree, described["trees"], "trees", arrays)


@declare
class EndToEndForestClassifier(LabelledClassifier, BaseForest):
    """Forest of oblique trees, each trained as a whole by EM on all rows.

    Hehn, Kooij and Hamprecht, "End-to-End Learning of Decision Trees and Forests" (IJCV, 2020),
    section 2.7: every split uses a random subset of the features, or a patch of an image, so that
    the trees differ; the forest predicts the mean of its deterministic trees (eq. 20).

    {parameters}

    Attributes
    ----------
    estimators_ : list of EndToEndTreeClassifier
        The trees; ``estimators_[t].tree_`` is the deterministic one.
    feature_subsets_ : list of bool arrays, shape (nodes of tree t, d)
        Features that each split of each tree uses.
    classes_ : array, shape (C,)
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import EndToEndForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = EndToEndForestClassifier(
    ...     n_estimators=3, max_depth=3, epochs=10, learning_rate=0.05, random_state=0
    ... ).fit(X, y)
    >>> clf.apply(X).shape
    (150, 3)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    _tree = EndToEndTreeClassifier

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probability of each class, shape (n, C): the mean over the trees."""
        return self._expectation(fitted_rows(self, X))[0]


@declare
class EndToEndForestRegressor(NumberRegressor, PredictiveIntervals, BaseForest):
    """Forest of oblique regression trees, each trained as a whole by EM on all rows.

    Like :class:`EndToEndForestClassifier`; the forest predicts the mean of its deterministic
    trees, and intervals of y from the mixture of its soft trees.

    {parameters}

    Attributes
    ----------
    estimators_ : list of EndToEndTreeRegressor
        The trees; ``estimators_[t].tree_`` is the deterministic one.
    feature_subsets_ : list of bool arrays, shape (nodes of tree t, d)
        Features that each split of each tree uses.
    n_features_in_, feature_names_in_
    encoding_ : bayestree.tables.Encoding
        How the columns of X become features.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import EndToEndForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = EndToEndForestRegressor(n_estimators=3, max_depth=3, epochs=20, random_state=0)
    >>> reg.fit(X, y).apply(X).shape
    (442, 3)
    >>> low, high = reg.predict_interval(X, 0.9)
    """

    learning_rate = 0.05

    leaf: MeanFamily = "constant"

    _tree = EndToEndTreeRegressor

    def _leaf_family(self) -> Leaf:
        return NUMERIC[self.leaf]()

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        super()._fit(rows, leaf)
        self._units = self.estimators_[0]._units
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Expected value, shape (n,): the mean over the trees."""
        return self._expectation(fitted_rows(self, X))[0]

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central interval of y with posterior probability ``level``.

        Its ends are quantiles of the mixture of the leaves of all soft trees.

        Returns
        -------
        low, high : arrays, shape (n,)

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        return self._interval(X, level)

    def _mixed_posteriors(self) -> tuple[Sequence[Posterior], FloatArray]:
        n_trees = len(self.estimators_)
        return [tree.posterior_ for tree in self.estimators_], np.full(n_trees, 1 / n_trees)

    def _restore(self, described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
        super()._restore(described, arrays, network)
        self._units = self.estimators_[0]._units
