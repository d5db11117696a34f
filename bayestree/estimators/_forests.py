"""Forests: trees that are fitted to the same rows and kept together."""

from dataclasses import field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parallel import one_thread, threads_for
from bayestree._utils.parameters import Count, Inference, Model, declare, parameters_of, takes
from bayestree._utils.progress import fitting
from bayestree._utils.state import draw_seed
from bayestree.estimators._classifier import Classifier
from bayestree.estimators._estimator import Estimator, member_of
from bayestree.estimators._parameters import RandomRun
from bayestree.estimators._regressor import Regressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted import predictions
from bayestree.fitted.training_rows import TrainingRows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitted.validation import fitted_rows
from bayestree.fitting.engine import complete, fit_each, prepare
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.growth.single_leaf import warn_single_leaf, why_not_grown
from bayestree.inference.memory_mapped import check_memory
from bayestree.models import SoftTree
from bayestree.models.leaves import Leaf

OF_FOREST = ("class_weight", "random_state", "verbose")  # of trees too, but not passed on


@declare
@takes(RandomRun)
class Forest(Estimator):
    """Keep the trees of a forest, whose predictions are averaged.

    A subclass names the class of the trees, fits them (``_fit``) and adds y. Parameters of the
    same name set the parameters of the trees.

    Attributes
    ----------
    estimators_ : list
        The trees; ``estimators_[t].tree_``.
    """

    _tree: ClassVar[type[BaseTree]]
    _combined: ClassVar[str] = "a prediction is their mean"  # for readers of the report

    n_estimators: Annotated[Count, Model("Number of trees.")] = field(default=10, kw_only=False)

    def _shared(self) -> dict[str, Any]:
        """Return the parameters of all trees."""
        own = self.get_params(deep=False)
        known = parameters_of(self._tree).keys() - {*OF_FOREST}
        return {name: value for name, value in own.items() if name in known} | {"verbose": False}

    def _trees(self) -> list[Any]:
        """Return the trees before their fit, each with its own seed."""
        check_memory(f"n_estimators={self.n_estimators}", self.n_estimators * 1000)
        seeds = check_random_state(draw_seed(self.random_state)).randint(
            2**31 - 1, size=self.n_estimators
        )
        shared = self._shared()
        return [member_of(self, self._tree(random_state=seed, **shared)) for seed in seeds.tolist()]

    def _keep_trees(
        self, trees: list[FittedTree], first: BaseTree, rows: TrainingRows, leaf: Leaf
    ) -> None:
        """Keep the fitted trees; warn if none has a split."""
        self._keep(Mixture.of(*trees, forest=True))
        if self.get_n_leaves() == len(trees):
            data = Data.of(rows.X, rows.y, rows.weights)
            reason = f"every tree: {self._why_single_leaves(first, data)}"
            warn_single_leaf(data.y, leaf, first._limits(), reason)

    @property
    def estimators_(self) -> list[Any]:
        """The trees, as fitted estimators."""
        check_is_fitted(self)
        return [self._view(one, self._tree) for one in self.fitted_.trees]

    def _members(self) -> dict[str, list[Any]]:
        return {"trees": self.estimators_}

    def _why_single_leaves(self, tree: BaseTree, data: Data) -> str:
        """Return the reason why no tree has a split."""
        return why_not_grown(data, tree._limits())

    def apply(self, X: ArrayLike) -> IntArray:
        """Number of the leaf that each row reaches in each tree, shape (n, n_estimators)."""
        rows = fitted_rows(self, X)
        return np.stack([one.tree.apply(rows) for one in self.fitted_.trees], axis=1)

    @property
    def explain(self) -> Any:
        """Forests have no single path: explain their trees one by one."""
        raise AttributeError(
            "explain describes the path through one tree; of a forest, explain each tree: "
            "estimators_[0].explain(x). importance, shapley_values and partial_dependence describe "
            "the whole forest."
        )


@declare
class IndependentForest(Forest):
    """Fit each tree on its own, to all rows."""

    n_jobs: Annotated[
        int | None,
        Inference("Number of trees fitted in parallel, as in joblib. Results do not depend on it."),
    ] = None

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        rows, members = rows.counted(), self._trees()
        recipes = [tree._recipe(rows, leaf) for tree in members]
        members[0]._check(recipes[0].model)
        with one_thread():
            prepared = prepare(recipes[0], rows)
        trees = fit_each(recipes, prepared, label="trees", n_jobs=self.n_jobs, verbose=self.verbose)
        self._keep_trees(trees, members[0], rows, leaf)
        return self


@declare
class JointForest(Forest):
    """Fit all trees together."""

    def _infer(self, model: SoftTree, data: Data, limits: GrowthLimits) -> list[Posterior]:
        """Return the posteriors of the trees."""
        raise NotImplementedError

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        rows, members = rows.counted(), self._trees()
        recipes = [tree._recipe(rows, leaf) for tree in members]
        members[0]._check(recipes[0].model)
        prepared = prepare(recipes[0], rows)
        with threads_for(recipes[0].work), fitting(self.verbose):
            found = self._infer(prepared.model, prepared.given, recipes[0].form.limits)
        trees = [complete(*one, prepared) for one in zip(recipes, found, strict=True)]
        self._keep_trees(trees, members[0], rows, leaf)
        return self


class ForestClassifier(Classifier, Forest):
    """A forest that predicts the mean of the class probabilities of its trees."""

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the probability of each class, shape (n, C): the mean over the trees."""
        return self._expectation(fitted_rows(self, X))[0]


class ForestRegressor(RegressorMixin, Regressor, Forest):
    """A forest of trees with a posterior, which predicts the mean over its trees."""

    predict_interval = predictions.predict_interval
    in_interval = predictions.in_interval

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the expected value, shape (n,): the mean over the trees."""
        return self._expectation(fitted_rows(self, X))[0]
