"""Soft trees: fitted in stages, with a posterior, its diagnostics, and a deterministic form."""

from copy import copy
from dataclasses import replace
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from bayestree.estimators._tree import BaseTree
from bayestree.fitted import (
    arviz,
    assessment,
    diagnostics,
    explanations,
    left_out,
    predictions,
    validation,
)
from bayestree.fitted.training_rows import FileRows, Scaling
from bayestree.fitted.tree import Prediction
from bayestree.fitting.engine import Recipe
from bayestree.fitting.hard import HardForm
from bayestree.fitting.plan import FitPlan, Table
from bayestree.fitting.rules import STAGED
from bayestree.fitting.settings import refuse_settings
from bayestree.fitting.stages import Stages
from bayestree.fitting.task import Task
from bayestree.inference.memory_mapped import check_memory
from bayestree.tables import Encoding


class StagedTree(BaseTree):
    """A soft tree, fitted by growth and the inference methods that continue from its tree."""

    inference: Any
    prediction: Prediction = "auto"
    validation_fraction: float = 0.0
    _rules = STAGED

    to_arviz = arviz.to_arviz
    sample_posterior_predictive = predictions.sample_posterior_predictive
    training_data = validation.training_data
    polytope_size = diagnostics.polytope_size
    facets = diagnostics.facets
    column_inclusion = explanations.column_inclusion
    shrinkage = diagnostics.shrinkage
    split_uncertainty = diagnostics.split_uncertainty
    rule_probability = diagnostics.rule_probability
    prior_size = diagnostics.prior_size
    check_convergence = assessment.check_convergence
    label_free = assessment.label_free
    evidence = assessment.evidence
    loo = left_out.loo
    log_score = assessment.log_score

    def __new__(cls, *_: Any, **given: Any) -> Self:
        refuse_settings(cls, given)
        return super().__new__(cls)

    def _planned(self, table: Table, **changes: Any) -> FitPlan:
        """Plan the fit, from the parameters and what is known of the rows."""
        raise NotImplementedError

    @property
    def plan_(self) -> FitPlan:
        """What the fit did, and why; of a model that was read, what its parameters say."""
        check_is_fitted(self)
        if self.fitted_.plan is not None:
            found: FitPlan = self.fitted_.plan
            return found
        by_svi = any(one.posterior.inference == "svi" for one in self.fitted_.trees)
        return self._before_rows(in_parts=by_svi)

    def _before_rows(self, *, in_parts: bool = False) -> FitPlan:
        """Plan the fit to rows that are not known, of two classes for a classifier."""
        fitted = hasattr(self, "fitted_")
        classes = getattr(self, "classes_", "") if fitted else "ab" if is_classifier(self) else ""
        return self._planned(Table(n_classes=len(classes), in_parts=in_parts))

    def _fitted(self, task: Task) -> Self:
        return super()._fitted(task if task.plan else self._with_plan(task))

    def _with_plan(self, task: Task, **changes: Any) -> Task:
        """Plan the fit to these rows, and refuse it if memory is short."""
        n_rows, n_features = task.rows.X.shape
        in_parts = isinstance(task.rows.X, FileRows)
        plan = self._planned(Table(n_rows, n_features, task.leaf.n_classes, in_parts), **changes)
        if self.device == "cpu" and task.start is None:
            for what, needed in plan.memory(task.n_used).items():
                check_memory(what, needed)
        return replace(task, plan=plan)

    def _without_rows(self, scaling: Scaling, encoding: Encoding) -> Task:
        return replace(super()._without_rows(scaling, encoding), plan=self._before_rows())

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
          method    vi (up to 10,000 rows in memory and 100 features)
          stages    Growth()
                    Vi(steepness=1.0)
          trees     4 (by default with Vi)
          depth     at most 4 (by default with Vi)
          facets    at most 4 of a split (by default with Vi)
          prior     InverseGammaScale(shape=0.5, ...) (by default for classes)
          weights   GammaProcess()
          precision float64
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
        regresses = self._some_family().regresses
        stages = self._before_rows(in_parts=True).stages
        return not regresses and all(stage.in_chunks for stage in stages)

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
