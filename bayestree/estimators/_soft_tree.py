"""Soft trees: fitted in stages, with a posterior, its diagnostics, and a deterministic form."""

from copy import copy
from dataclasses import replace
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import is_classifier

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
from bayestree.fitted.training_rows import FileRows, TrainingRows
from bayestree.fitted.tree import Prediction
from bayestree.fitting.engine import Recipe
from bayestree.fitting.hard import HardForm
from bayestree.fitting.plan import FitPlan, Table
from bayestree.fitting.rules import STAGED, Case
from bayestree.fitting.settings import refuse_settings
from bayestree.fitting.stages import Stages
from bayestree.inference.memory_mapped import check_memory
from bayestree.models import SoftTree
from bayestree.models.leaves import Leaf


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

    _kept_plan: FitPlan | None = None  # of the last fit
    _seen: Table | None = None  # its rows

    def __new__(cls, *_: Any, **given: Any) -> Self:
        refuse_settings(cls, given)
        return super().__new__(cls)

    def _planned(self, table: Table, **changes: Any) -> FitPlan:
        """Plan the fit, from the parameters and what is known of the rows."""
        raise NotImplementedError

    @property
    def _plan(self) -> FitPlan:
        """The plan of the fit; before it, and of one that was read, from what is known."""
        if self._kept_plan is not None:
            return self._kept_plan
        if self._seen is not None:
            return self._planned(self._seen)
        trees = self.fitted_.trees if hasattr(self, "fitted_") else []
        by_svi = any(one.posterior.inference == "svi" for one in trees)
        return self._before_rows(in_parts=by_svi)

    def _before_rows(self, *, in_parts: bool) -> FitPlan:
        """Plan the fit to rows that are not known, of two classes for a classifier."""
        classes = getattr(self, "classes_", "ab" if is_classifier(self) else "")
        return self._planned(Table(n_classes=len(classes), in_parts=in_parts))

    def _fit_encoded(self, rows: TrainingRows, leaf: Leaf) -> Self:
        self._keep_plan(rows, leaf)
        return super()._fit_encoded(rows, leaf)

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
        rows, leaf = new._encoded(X, y, sample_weight)
        found = new._keep_plan(rows, leaf)
        new._check(new._model(leaf))
        return found

    def _keep_plan(self, rows: TrainingRows, leaf: Leaf, **changes: Any) -> FitPlan:
        """Plan the fit to these rows, and refuse it if memory is short."""
        n_rows, n_features = int((rows.weights > 0).sum()), rows.X.shape[1]
        in_parts = isinstance(rows.X, FileRows)
        self._seen = Table(n_rows, n_features, leaf.n_classes, in_parts)
        found = self._kept_plan = self._planned(self._seen, **changes)
        if self.device == "cpu" and not self._continues():
            for what, needed in found.memory(int(self._used.sum())).items():
                check_memory(what, needed)
        return found

    def set_params(self, **given: Any) -> Self:
        refuse_settings(type(self), self.get_params(deep=False) | given)
        found = super().set_params(**given)
        self._kept_plan = None  # which was of other parameters
        return found

    def _in_parts(self) -> bool:
        regresses = self._some_family().regresses
        stages = self._before_rows(in_parts=True).stages
        return not regresses and all(stage.in_chunks for stage in stages)

    def _weights_are_counts(self) -> bool:
        return True

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        super()._fit(rows, leaf)
        assessment.warn_if_unconverged(self.fitted_)
        return self

    def _case(self, model: SoftTree | None) -> Case:
        return replace(super()._case(model), plan=self._plan)

    def _recipe(self, rows: TrainingRows, leaf: Leaf) -> Recipe:
        found = super()._recipe(rows, leaf)
        return replace(found, method=self._stages(), dtype=self._plan.dtype, recalibrates=False)

    def _stages(self) -> Stages:
        """Return the method of the fit."""
        return Stages(
            self._plan,
            self.random_state,
            bool(self.verbose),
            self.validation_fraction,
            start=self.posterior_ if self._continues() else None,
        )

    def _form(self) -> HardForm:
        plan = self._plan
        return HardForm(
            plan.limits,
            self._feature_names,
            self.smoothing,
            polytopes=True,
            sampled=plan.samples_topology,
        )
