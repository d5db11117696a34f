"""Base classes of the estimators of one tree: fitted by one method, or in stages by a plan."""

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import ParameterError, parameters_of
from bayestree.estimators._estimator import Estimator
from bayestree.fitted import (
    arviz,
    assessment,
    diagnostics,
    explanations,
    left_out,
    predictions,
    single_rows,
    validation,
)
from bayestree.fitted.assessment import warn_if_unconverged
from bayestree.fitted.training_rows import FileRows, Scaling, UnitRule, units
from bayestree.fitted.tree import Mixture, Prediction
from bayestree.fitted.validation import fitted_rows, validated
from bayestree.fitting.defaults import Dtype, precision_of
from bayestree.fitting.engine import HardForm, Recipe, fit_prepared, prepare
from bayestree.fitting.modes import Stages
from bayestree.fitting.plan import FitPlan, Table, Task
from bayestree.fitting.rules import BASE, CONTRACT, STAGED, Case, Rules, first_broken, rules_of
from bayestree.fitting.settings import refuse_settings
from bayestree.inference import Data, GrowthLimits, Posterior, Units
from bayestree.inference.memory_mapped import check_memory
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.models.priors import GroupedScale
from bayestree.tables import Encoding, Numbers


class BaseTree(Estimator):
    """Fit, route and describe one tree; classifier and regressor add y.

    A subclass defines how its model is fitted (``_infer``) and, unless they are the usual ones, the
    model (``_model``) and the units of the features (``scaling``).

    Attributes
    ----------
    tree_ : Tree
        The tree, in the units of the data.
    posterior_ : Posterior
        Its splits as one draw, on the standardised features.
    """

    # Values of parameters that a subclass does not have.
    max_depth: Any
    max_leaves: int | None = None
    min_rows: float = 2.0
    min_leaf: int = 1
    min_gain: float = 0.0
    smoothing: float = 0.0
    dtype: Dtype = "float64"
    device: str = "cpu"
    monotonic_cst: Any = None
    scaling: UnitRule = "standard"

    _rules: ClassVar[Rules] = BASE
    #: Returns the distribution of y in a leaf, for a number of classes or any of them.
    _leaf_family: Callable[..., Leaf]

    # Fitting.

    def _model(self, task: Task) -> SoftTree:
        """Return the model before its topology is known: by default, a hyperplane for each node."""
        return named.oblique(task.leaf)

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        """Fit the model to rows in the units of a scaling."""
        raise NotImplementedError

    def _limits(self) -> GrowthLimits:
        return GrowthLimits(
            self.max_depth, self.max_leaves, self.min_rows, self.min_leaf, self.min_gain
        )

    def _fit(self, task: Task) -> Mixture:
        """Return the fitted tree."""
        recipe = self._recipe(task)
        self._check(task, recipe.model)
        found = Mixture.of(fit_prepared(recipe, prepare(recipe, task.rows)))
        warn_if_unconverged(found)
        return found

    def _check(self, task: Task, model: SoftTree, *, but: Rules = ()) -> None:
        """Raise ParameterError for a combination of parameters that is refused."""
        rules = [rule for rule in rules_of(type(self)) if rule not in but]
        case = replace(self._case(), model=model, used=task.used, start=task.start, plan=task.plan)
        if reason := first_broken(rules, case):
            raise ParameterError(reason)

    def _case(self) -> Case:
        """Return what rules judge before rows are known."""
        known = parameters_of(type(self))
        names = {*known, "device", "dtype", "leaf"}  # which not all classes have as parameters
        return Case(
            SimpleNamespace(**{name: getattr(self, name) for name in names}),
            {name: one.default for name, one in known.items()},
        )

    def _recipe(self, task: Task) -> Recipe:
        """Return what the fit of a tree needs beside its rows."""
        n_rows, n_features = task.rows.X.shape
        return Recipe(
            model=self._model(task),
            method=self._infer,
            form=self._form(task),
            scaling=task.scaling,
            units=self.scaling,
            continues=task.start is not None,
            whole=self._in_place(),
            dtype=precision_of(self.dtype, n_rows, task.leaf.needs_double),
            device=self.device,
            work=n_rows * n_features,
            verbose=self.verbose,
            parameters=self.get_params(deep=False),
        )

    def _form(self, task: Task) -> HardForm:
        """Return how the posterior becomes the deterministic tree."""
        return HardForm(self._limits(), task.feature_names, self.smoothing)

    # Fitted.

    @property
    def tree_(self) -> Any:
        """The deterministic tree, in the units of the data."""
        check_is_fitted(self)
        return self.fitted_.shown.tree

    @property
    def posterior_(self) -> Posterior:
        """Named draws of the splits and leaves of ``tree_``, on the standardised features."""
        check_is_fitted(self)
        return self.fitted_.shown.posterior

    @posterior_.setter
    def posterior_(self, posterior: Posterior) -> None:
        if self.fitted_.several:
            raise AttributeError(
                f"posterior_ cannot be replaced in a mixture of {len(self.fitted_.trees)} trees: "
                "set it on one of modes_."
            )
        self.fitted_ = self.fitted_.alone(replace(self.fitted_.shown, posterior=posterior))

    explain = single_rows.explain
    robustness = single_rows.robustness

    def apply(self, X: ArrayLike) -> IntArray:
        """Number of the leaf of ``tree_`` that each row reaches, shape (n,)."""
        found: IntArray = self._by_parts(X, self.tree_.apply)
        return found

    def decision_path(self, X: ArrayLike) -> csr_matrix:
        """Mark the nodes, then leaves, of ``tree_`` that each row passes: (n, nodes + leaves)."""
        rows = fitted_rows(self, X)
        return self.tree_.decision_path(rows)


class StagedTree(BaseTree):
    """A soft tree, fitted by growth and the inference methods that continue from its tree."""

    inference: Any
    prediction: Prediction = "auto"
    validation_fraction: float = 0.0
    _rules = STAGED
    #: Plans the fit, from the parameters and what is known of the rows.
    _planned: Callable[[Table], FitPlan]

    to_arviz = arviz.to_arviz
    sample_posterior_predictive = predictions.sample_posterior_predictive
    training_data = validation.training_data
    polytope_size = diagnostics.polytope_size
    facets = diagnostics.facets
    column_inclusion = explanations.column_inclusion
    shrinkage = diagnostics.shrinkage
    split_uncertainty = diagnostics.split_uncertainty
    rule_probability = diagnostics.rule_probability
    tree_intervals = assessment.tree_intervals
    prior_size = diagnostics.prior_size
    check_convergence = assessment.check_convergence
    label_free = assessment.label_free
    evidence = assessment.evidence
    loo = left_out.loo
    log_score = assessment.log_score

    def __new__(cls, *_: Any, **given: Any) -> Self:
        refuse_settings(cls, given)
        return super().__new__(cls)

    @property
    def plan_(self) -> FitPlan:
        """What the fit did, and why; of a model that was read, what its parameters say."""
        check_is_fitted(self)
        if self.fitted_.plan is not None:
            found: FitPlan = self.fitted_.plan
            return found
        by_svi = any(one.posterior.inference == "svi" for one in self.fitted_.trees)
        return self._before_rows(in_parts=by_svi, in_batches=bool(self.fitted_.shown.stream))

    def _before_rows(self, **known: Any) -> FitPlan:
        """Plan the fit to rows that are not known, of two classes for a classifier."""
        fitted = hasattr(self, "fitted_")
        classes = getattr(self, "classes_", "") if fitted else "ab" if is_classifier(self) else ""
        return self._planned(Table(n_classes=len(classes), **known))

    def _fit_task(self, task: Task) -> Self:
        return super()._fit_task(task if task.plan else self._with_plan(task))

    def _with_plan(self, task: Task, **known: bool) -> Task:
        """Plan the fit to these rows, and refuse it if memory is short."""
        X: Any = task.rows.X
        in_parts, leaf = isinstance(X, FileRows), task.leaf
        rows = (*X.shape, leaf.n_classes, in_parts, in_parts and X.mapped, leaf.n_outputs > 1)
        plan = self._planned(Table(*rows, **known))
        if self.device == "cpu" and task.start is None:
            for what, needed in plan.memory(task.n_used).items():
                check_memory(what, needed)
        return replace(task, plan=plan)

    def _before_fit(self, X: ArrayLike) -> tuple[SoftTree, FloatArray]:
        """Return the model, and the columns in use of X in the units that a fit to X would have."""
        found = validated(self, X, dtype=np.float64)
        weights = np.ones(len(found.X))
        scaling = self._scaling_of(found, weights)
        task = Task(None, self._leaf_family(), scaling, found.encoding, plan=self._before_rows())
        center, scale = units(found.X, weights, self.scaling)
        standardised: FloatArray = ((found.X - center) / scale)[:, task.used]
        return self._model(task).among(task.used), standardised

    def plan(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitPlan:
        """Return what ``fit`` would do with these rows, and why, without fitting.

        Parameters
        ----------
        X, y, sample_weight : arrays
            As in ``fit``.

        Returns
        -------
        FitPlan
            The stages with all their settings, and the size of the trees. Can be printed.

        Raises
        ------
        ValueError
            For rows and combinations of parameters that ``fit`` would refuse.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bayestree import ConvexPolytopeTreeClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> print(ConvexPolytopeTreeClassifier(sparsity=None).plan(X, y))  # doctest: +ELLIPSIS
        Plan of a fit to 150 rows, 4 features, 3 classes
          method    vi (up to 10,000 rows or 100 features in memory)
          stages    Growth()
                    Vi(steepness=1.0, n_steps=60, n_sweeps=30)
          trees     4 (by default with Vi)
          averaged  by stacking weights (by default where rows can be left out)
          depth     at most 4 (by default with Vi)
          facets    at most 4 of a split (by default with Vi)
          prior     InverseGammaScale(shape=0.5, ...) (by default for classes)
          weights   GammaProcess()
          precision float64
          predicts  by the mean over the draws of all trees (by default with several draws)
          time      about 1.2 s of one core
        """
        new = copy(self)
        task = new._with_plan(new._task_of(X, y, sample_weight))
        new._check(task, new._model(task))
        found: FitPlan = task.plan
        return found

    def set_params(self, **given: Any) -> Self:
        refuse_settings(type(self), self.get_params(deep=False) | given)
        return super().set_params(**given)

    def _in_parts(self) -> bool:
        return self._before_rows(in_parts=True).in_chunks

    def _recipe(self, task: Task) -> Recipe:
        plan: FitPlan = task.plan
        start = None if task.start is None else task.start.shown.posterior
        given = (self.random_state, bool(self.verbose), self.validation_fraction)
        return replace(
            super()._recipe(task),
            method=Stages(plan, *given, start=start),
            counts=True,
            recalibrates=False,
            dtype=plan.dtype,
            work=plan.work(len(task.rows.X)),
        )

    def _form(self, task: Task) -> HardForm:
        plan: FitPlan = task.plan
        return HardForm(
            plan.limits,
            task.feature_names,
            self.smoothing,
            polytopes=True,
            sampled=plan.samples_topology,
        )

    def _again(self) -> Task:
        """Return the task of the fit, without its rows."""
        names, shown = self._feature_names(self.encoding_), self.fitted_.shown
        leaf = shown.posterior.model.leaf
        return Task(None, leaf, shown.scaling, self.encoding_, names, plan=self.plan_)


#: Parameters that name columns, and their values for the two columns below.
OF_TWO_COLUMNS = {"interaction_constraints": ((0,), (1,))}


def check_without_rows(estimator: Estimator) -> None:
    """Raise ValueError for a combination that is refused whatever the rows are.

    Two columns that vary and two classes stand for the rows; the fit checks the rules about their
    numbers, contracts of the user's own parts, which may need a certain number of columns, and the
    device, which another machine may have.
    """
    tree = copy(estimator._trees()[0] if hasattr(estimator, "_trees") else estimator)
    n_features = math.prod(getattr(tree, "image_shape", None) or (2,))
    number = np.arange(n_features)
    encoding = Encoding(tuple(map(Numbers, map(str, number))))
    scaling = Scaling(np.where(number < 2, number, -1), Units(number, number))
    tree.device = "cpu"
    if (given := tree.monotonic_cst) is not None:
        each = given.values() if isinstance(given, Mapping) else given
        tree.monotonic_cst = {0: max(map(abs, each), default=0)}
    for name, value in OF_TWO_COLUMNS.items():
        if getattr(tree, name, None) is not None:
            setattr(tree, name, value)
    if isinstance(prior := getattr(tree, "prior", None), GroupedScale):
        tree.prior = replace(prior, groups=((0, 1),))
    plan = tree._before_rows() if isinstance(tree, StagedTree) else None
    task = Task(None, tree._leaf_family(), scaling, encoding, plan=plan)
    tree._check(task, tree._model(task), but=(CONTRACT,))
