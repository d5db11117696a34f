"""Soft trees: fitted in stages, with a posterior, its diagnostics, and a deterministic form."""

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from bayestree import inference
from bayestree._utils.arrays import BoolArray
from bayestree._utils.seed import draw_seed
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._base import KEPT_LEAF, BaseTree, Prepared
from bayestree.estimators._combinations import STAGED, check_combinations
from bayestree.fitted import (
    arviz,
    checks,
    diagnostics,
    inclusion,
    left_out,
    predictions,
    validation,
)
from bayestree.fitted.rows import FileRows, TrainingRows
from bayestree.fitted.tree import FittedTree, Prediction
from bayestree.fitting.plan import FitPlan, Table
from bayestree.inference import Data, GrowthLimits, Posterior, Stage
from bayestree.inference.memory_mapped import check_memory
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.inference.smc.method import fingerprint
from bayestree.inference.training import HARD, leaf_sums
from bayestree.models import SoftTree
from bayestree.models.leaves import Leaf
from bayestree.tree import Tree


class StagedTree(BaseTree):
    """A soft tree, fitted by growth and the inference methods that continue from its tree."""

    _refits_leaves = False  # which the stages do

    inference: Any
    n_draws: int | None
    prediction: Prediction = "auto"
    validation_fraction: float = 0.0
    _rules = STAGED
    _split_seed: int | None = None  # of the held-out rows, which all modes share

    to_arviz = arviz.to_arviz
    sample_posterior_predictive = predictions.sample_posterior_predictive
    training_data = validation.training_data
    polytope_size = diagnostics.polytope_size
    facets = diagnostics.facets
    column_inclusion = inclusion.column_inclusion
    shrinkage = diagnostics.shrinkage
    split_uncertainty = diagnostics.split_uncertainty
    rule_probability = diagnostics.rule_probability
    prior_size = diagnostics.prior_size
    check_convergence = checks.check_convergence
    label_free = checks.label_free
    evidence = checks.evidence
    loo = left_out.loo
    log_score = checks.log_score

    _kept_plan: FitPlan | None = None  # of the last fit
    _seen: Table | None = None  # its rows

    def _planned(self, table: Table) -> FitPlan:
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
        >>> print(ConvexPolytopeTreeClassifier(sparsity=None).plan(*load_iris(return_X_y=True)))
        Plan of a fit to 150 rows, 4 features, 3 classes
          method    vi (up to 10,000 rows in memory and 100 features)
          stages    Growth()
                    Vi(steepness=1.0)
          trees     4 (by default with Vi)
          depth     at most 4 (by default with Vi)
          facets    at most 4 of a split (by default with Vi)
          precision float64
        """
        new = copy(self)
        rows, leaf = new._encoded(X, *new._y_and_extra(y), sample_weight)
        found = new._keep_plan(rows, leaf)
        check_combinations(new, new._model(leaf))
        return found

    def _keep_plan(self, rows: TrainingRows, leaf: Leaf) -> FitPlan:
        """Plan the fit to these rows; refuse it if memory is short."""
        self._seen = _table(rows, leaf)
        found = self._kept_plan = self._planned(self._seen)
        if self.device == "cpu" and not self._continues():
            for what, needed in found.memory(int(self._used.sum())).items():
                check_memory(what, needed)
        return found

    def set_params(self, **given: Any) -> Self:
        found = super().set_params(**given)
        self._kept_plan = None  # which was of other parameters
        return found

    def _precision(self, n_rows: int) -> str:
        return super()._precision(n_rows) if self._kept_plan is None else self._kept_plan.dtype

    def _limits(self) -> GrowthLimits:
        return self._plan.limits

    def _in_parts(self) -> bool:
        regresses = self._some_family().regresses
        stages = self._before_rows(in_parts=True).stages
        return not regresses and all(stage.in_chunks for stage in stages)

    def _needs_double(self) -> bool:
        return super()._needs_double() or any(stage.needs_double for stage in self._plan.stages)

    def _weights_are_counts(self) -> bool:
        return True

    def _grow(
        self, growth: Any, model: SoftTree, data: Data, n_trees: int, **common: Any
    ) -> list[Posterior]:
        """Grow the trees from which the next stage starts."""
        found: list[Posterior] = growth.fit_several(
            model, data, n_trees, limits=self._limits(), **common
        )
        return found

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        super()._fit(rows, leaf)
        checks.warn_if_unconverged(self)
        return self

    def _complete(self, found: Posterior, prepared: Prepared) -> FittedTree:
        if "log_evidence" in found.stats:  # to that of y in its own units
            weights = prepared.rows.weights
            shift = weights.sum() * np.log(self._scaling.units.y_scale).sum()
            own = fingerprint(self._scaling.units.decode(prepared.rows.response), weights)
            stats = {"log_evidence": found.stats["log_evidence"] - shift, "rows": np.array(own)}
            found = replace(found, stats={**found.stats, **stats})
        return super()._complete(found, prepared)

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        return self._infer_several([self], model, data)[0]

    def _infer_several(
        self, members: Sequence[Any], model: SoftTree, data: Data
    ) -> list[Posterior]:
        """Fit one tree or, by a method that can, several at once: one for each of ``members``."""
        seeds = check_random_state(draw_seed(self.random_state))
        common: dict[str, Any] = {"random_state": seeds, "progress": bool(self.verbose)}
        training, validation = self._hold_out(data, seeds)
        common["validation"] = validation
        growth, *stages = self._plan.stages
        samples_topology = any(stage.samples_topology for stage in stages)
        if self._continues():
            grown = [fitted_start(one.posterior_, model, training, self._used) for one in members]
            self._warn_if_single_leaf(grown[0].model.topology, model.leaf, training, KEPT_LEAF)
        else:
            with warnings.catch_warnings():
                if samples_topology:  # which decides about splits
                    warnings.simplefilter("ignore", SingleLeafWarning)
                grown = self._grow(growth, model, training, len(members), **common)
        found = dict(enumerate(grown))
        if not samples_topology:
            last = [growth, *stages][-1].draws
            found = {
                i: one if one.model.topology.n_nodes else _single(one, training, last, seeds)
                for i, one in found.items()
            }
        split = [i for i, one in found.items() if one.model.topology.n_nodes or samples_topology]
        if split and not stages:
            return [inference.recalibrated(one, training) for one in found.values()]
        if split:
            found |= zip(
                split,
                self._refine([found[i] for i in split], stages, training, common),
                strict=True,
            )
        return [*found.values()]

    def _refine(
        self, found: list[Posterior], stages: list[Stage], data: Data, common: dict[str, Any]
    ) -> list[Posterior]:
        """Run the stages after growth on one tree or, if they can, on several."""
        for stage in stages:
            start: dict[str, Any] = {} if stage is stages[-1] else {"last": False}
            found = stage.run_several(found, data, **start, **common)
            if len(found) == 1 and found[0].model.topology.n_nodes == 0:
                model = found[0].model
                self._warn_if_single_leaf(model.topology, model.leaf, data, stage.why_single_leaf)
                return found
        return [self._sharpened(one, data, common) for one in found]

    def _sharpened(self, found: Posterior, data: Data, common: dict[str, Any]) -> Posterior:
        """Refit the posterior with steeper splits where these suit the rows better."""
        return found

    def _hold_out(self, data: Data, seeds: np.random.RandomState) -> tuple[Data, Data | None]:
        """Split training from validation rows, stratified by class."""
        if self.validation_fraction == 0:
            return data, None
        if self._split_seed is not None:
            seeds = check_random_state(draw_seed(self._split_seed))
        from sklearn.model_selection import train_test_split  # noqa: PLC0415 - takes 0.1 s to import

        classes = None if data.y.is_floating_point() else data.y.numpy(force=True)
        parts = train_test_split(
            np.arange(len(data.X)),
            test_size=self.validation_fraction,
            stratify=classes,
            random_state=seeds,
        )
        kept, held = (torch.as_tensor(np.sort(part), device=data.X.device) for part in parts)
        return data.subset(kept), data.subset(held)

    def _hardened(
        self, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> tuple[Any, Reach | None]:
        limits = self._limits()
        sampled = self._plan.samples_topology  # which no other limits bind
        if sampled:
            limits = replace(limits, min_gain=0.0, min_rows=0.0, min_leaf=1)
        with warnings.catch_warnings():
            if sampled:
                warnings.simplefilter("ignore", SingleLeafWarning)
            hard = inference.harden(posterior, data, limits=limits)
        found = self._splits(hard.posterior, rows.class_names)
        if not isinstance(found, Tree):
            raise TypeError(
                "the diagnostics of a posterior need linear experts, got the split "
                f"{posterior.model.split!r}."
            )
        tree, kept = found.drop_experts(rows.X).pruned(rows.X, limits.min_leaf)
        tree = self._filled(tree, posterior, rows, data)
        standardised = self._scaling.standardise(rows.X)
        nodes = hard.sources[kept]
        return tree, diagnostics.measure_nodes(posterior, tree, rows.X, standardised, nodes)


def _table(rows: TrainingRows, leaf: Leaf) -> Table:
    """Return what a plan depends on of the rows."""
    n_rows, n_features = int((rows.weights > 0).sum()), rows.X.shape[1]
    return Table(n_rows, n_features, leaf.n_classes, isinstance(rows.X, FileRows))


def _single(
    grown: Posterior, data: Data, draws: tuple[int, int] | None, seeds: np.random.RandomState
) -> Posterior:
    """Estimate the leaf of a tree without a split, or draw from its posterior."""
    grown = inference.recalibrated(grown, data)
    if draws is None:
        return grown
    return inference.single_leaf(
        grown, data, n_chains=draws[0], n_draws=draws[1], random_state=seeds
    )


def fitted_start(posterior: Posterior, model: SoftTree, data: Data, used: BoolArray) -> Posterior:
    """Return the splits of a fit as the start of another, with leaves estimated from its rows.

    The result is what growth would give. ``used`` marks the columns of the posterior that ``data``
    has, if it does not have all of them.
    """
    sites = posterior.point_sites(data.X)
    splits = {name: sites[name] for name in model.split.parameters(sites)}
    if data.X.shape[1] < len(used):
        splits["hyperplane"] = splits["hyperplane"][..., np.flatnonzero(used)]
    fitted = posterior.model
    model = model.with_(topology=fitted.topology, split=fitted.split, steepness=fitted.steepness)
    sums = leaf_sums(model.with_(steepness=HARD), splits, data)
    model = model.with_(leaf=model.leaf.calibrate(sums))
    return Posterior.from_point(model, splits | model.leaf.estimate(sums), "grow")
