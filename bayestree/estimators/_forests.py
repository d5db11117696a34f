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
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._parameters import RandomRun
from bayestree.estimators._regressor import Regressor
from bayestree.estimators._tree import BaseTree, StagedTree
from bayestree.fitted import predictions
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitted.validation import fitted_rows
from bayestree.fitting.engine import Recipe, complete, fit_each, prepare
from bayestree.fitting.plan import Task
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.growth.single_leaf import warn_single_leaf, why_not_grown
from bayestree.inference.memory_mapped import check_memory
from bayestree.models import SoftTree

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
        return [self._tree(random_state=seed, **shared) for seed in seeds.tolist()]

    def _fit_task(self, task: Task) -> Self:
        tree = self._tree(**self._shared())
        return super()._fit_task(tree._with_plan(task) if isinstance(tree, StagedTree) else task)

    def _recipes(self, task: Task) -> list[Recipe]:
        """Return the recipes of the trees."""
        trees = self._trees()
        found = [tree._recipe(task) for tree in trees]
        trees[0]._check(task, found[0].model)
        return found

    def _forest(self, trees: list[FittedTree], recipe: Recipe, task: Task) -> Mixture:
        """Return the forest of fitted trees; warn if none has a split."""
        limits = recipe.form.limits
        if not any(one.tree.n_nodes for one in trees):
            data = Data.of(task.rows.X, task.rows.y, task.rows.weights)
            reason = f"every tree: {self._why_single_leaves(data, limits)}"
            warn_single_leaf(data.y, task.leaf, limits, reason)
        return Mixture.of(*trees, forest=True)

    @property
    def estimators_(self) -> list[Any]:
        """The trees, as fitted estimators."""
        check_is_fitted(self)
        return [self._view(one) for one in self.fitted_.trees]

    def _why_single_leaves(self, data: Data, limits: GrowthLimits) -> str:
        """Return the reason why no tree has a split."""
        return why_not_grown(data, limits)

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

    def _fit(self, task: Task) -> Mixture:
        recipes = self._recipes(task)
        with one_thread():
            prepared = prepare(recipes[0], task.rows)
        trees = fit_each(recipes, prepared, label="trees", n_jobs=self.n_jobs, verbose=self.verbose)
        return self._forest(trees, recipes[0], task)


@declare
class JointForest(Forest):
    """Fit all trees together."""

    def _infer(self, model: SoftTree, data: Data, limits: GrowthLimits) -> list[Posterior]:
        """Return the posteriors of the trees."""
        raise NotImplementedError

    def _fit(self, task: Task) -> Mixture:
        recipes = self._recipes(task)
        prepared = prepare(recipes[0], task.rows)
        with threads_for(recipes[0].work), fitting(self.verbose):
            found = self._infer(prepared.model, prepared.given, recipes[0].form.limits)
        trees = [complete(*one, prepared) for one in zip(recipes, found, strict=True)]
        return self._forest(trees, recipes[0], task)


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
