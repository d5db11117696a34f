"""Soft trees: fitted in stages, with a posterior, its diagnostics, and a deterministic form."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree import inference
from bayestree._utils.parameters import ParameterError, Seed, parameters_of
from bayestree._utils.seed import draw_seed
from bayestree.estimators._base import Prepared, TrainingRows
from bayestree.estimators._checks import TreeChecks
from bayestree.estimators._diagnostics import TreeDiagnostics, measure_nodes
from bayestree.estimators._prior_size import PriorPredictive
from bayestree.estimators._warm import KEPT_LEAF, fitted_start
from bayestree.inference import Data, Posterior, Stage
from bayestree.inference.harden import Hardened
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.inference.smc.method import fingerprint
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.tree import Tree


class StagedTree(TreeDiagnostics, TreeChecks, PriorPredictive):
    """A soft tree, fitted by growth and the inference methods that continue from its tree."""

    # The stages that each value of ``inference`` selects, growth first.
    pipelines: ClassVar[Mapping[str, tuple[type[Stage], ...]]]
    # For each stage, its settings and the parameters of the estimator that set them. The last stage
    # also takes ``n_draws``, if it has draws.
    passed_on: ClassVar[Mapping[type[Stage], Mapping[str, str]]]
    # Other parameters of the estimator that determine settings of each stage.
    derived: ClassVar[Mapping[type[Stage], tuple[str, ...]]] = {}

    inference: Any
    n_draws: int | None
    extend: bool = False
    prediction: Literal["auto", "tree", "posterior"] = "auto"
    refine: str | None = None
    random_state: Seed

    def _stages(self) -> list[Stage]:
        """The stages of the fit with their settings.

        A settings object is used as it is, in the place of the stage of its class, or of the last
        stage of ``inference="svi"``.
        """
        given = None if isinstance(self.inference, str) else self.inference
        kinds = self.pipelines[self.inference] if given is None else self._pipeline_of(given)
        stages = [kind.from_keywords(self._keywords(kind)) for kind in kinds[:-1]]
        if given is not None:
            self._check_ignored(kinds, given)
            return [*stages, given]
        keywords = self._keywords(kinds[-1])
        if "n_draws" in parameters_of(kinds[-1]):
            keywords["n_draws"] = self.n_draws
        return [*stages, kinds[-1].from_keywords(keywords)]

    def _default_depth(self) -> int:
        n_classes = len(getattr(self, "classes_", ()))  # 0 for numbers
        return self._stages()[-1].default_depth(n_classes)

    def _pipeline_of(self, given: Stage) -> tuple[type[Stage], ...]:
        for kinds in self.pipelines.values():
            if isinstance(given, kinds[-1]):
                return kinds
        if not given.refines:
            raise ParameterError(
                f"inference must be one of {[*self.pipelines]} or a method that continues from a "
                f"grown soft tree, got {given!r}."
            )
        return self.pipelines["svi"]

    def _keywords(self, kind: type[Stage]) -> dict[str, Any]:
        """The settings of a stage that the parameters of the estimator set."""
        return {name: getattr(self, source) for name, source in self.passed_on[kind].items()}

    def _check_ignored(self, kinds: tuple[type[Stage], ...], given: Stage) -> None:
        """Refuse parameters that were set and that only the replaced stage would use."""
        *others, replaced = (
            {*self.passed_on[kind].values(), *self.derived.get(kind, ())} for kind in kinds
        )
        known = parameters_of(type(self))
        for name in sorted({"n_draws", *replaced}.difference(*others)):
            value = getattr(self, name)
            if value != known[name].default:
                raise ParameterError(
                    f"{name}={value!r} would be ignored: inference={given!r} has its own settings; "
                    f"set {name} there."
                )

    def _in_parts(self) -> bool:
        return all(stage.in_chunks for stage in self._stages())

    def _needs_double(self) -> bool:
        return any(stage.needs_double for stage in self._stages())

    def _weights_are_counts(self) -> bool:
        return True

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        for stage in self._stages():
            stage.check(model)

    def _grow(self, growth: Stage, model: SoftTree, data: Data, **common: Any) -> Posterior:
        """The grown tree, from which the next stage starts."""
        return growth.fit(model, data, limits=self._limits(), **common)

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        super()._fit(rows, leaf)
        self._warn_if_unconverged()
        return self

    def _complete(self, found: Posterior, prepared: Prepared) -> Self:
        if "log_evidence" in found.stats:  # to that of y in its own units
            weights = prepared.rows.weights
            shift = weights.sum() * np.log(self._units.y_scale).sum()
            own = fingerprint(self._units.decode(prepared.rows.response), weights)
            stats = {"log_evidence": found.stats["log_evidence"] - shift, "rows": np.array(own)}
            found = replace(found, stats={**found.stats, **stats})
        return super()._complete(found, prepared)

    def _first_steepness(self, new: float) -> float:
        """Steepness at which the refinement starts: ``new``, or that of the tree it continues."""
        return self.posterior_.model.steepness if self._continues() else new

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        seeds = check_random_state(draw_seed(self.random_state))
        common: dict[str, Any] = {"random_state": seeds, "progress": bool(self.verbose)}
        training, validation = self._hold_out(data, seeds)
        common["validation"] = validation
        growth, *stages = self._stages()
        samples_topology = any(stage.samples_topology for stage in stages)
        if self._continues():
            found = fitted_start(self.posterior_, model, training, self._used)
            self._warn_if_single_leaf(found.model.topology, model.leaf, training, KEPT_LEAF)
        else:
            with warnings.catch_warnings():
                if samples_topology:  # which decides about splits
                    warnings.simplefilter("ignore", SingleLeafWarning)
                found = self._grow(growth, model, training, **common)
        if found.model.topology.n_nodes == 0 and not samples_topology:
            found = inference.recalibrated(found, training)
            draws = [growth, *stages][-1].draws
            if draws is None:
                return found
            n_chains, n_draws = draws
            return inference.single_leaf(
                found, training, n_chains=n_chains, n_draws=n_draws, random_state=seeds
            )
        if not stages:
            return inference.recalibrated(found, training)
        for stage in stages:
            start: dict[str, Any] = {} if stage is stages[-1] else {"last": False}
            found = stage.run(found, training, **start, **common)
            if found.model.topology.n_nodes == 0:
                self._warn_if_single_leaf(
                    found.model.topology, model.leaf, training, stage.why_single_leaf
                )
                return found
        return self._sharpened(found, training, common)

    def _sharpened(self, found: Posterior, data: Data, common: dict[str, Any]) -> Posterior:
        """The posterior, or one with steeper splits where these suit the rows better."""
        return found

    def _hold_out(self, data: Data, seeds: np.random.RandomState) -> tuple[Data, Data | None]:
        """Training and validation rows; the split is stratified by class."""
        if self.validation_fraction == 0:
            return data, None
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

    def _harden(self, rows: TrainingRows, data: Data) -> None:
        limits = self._limits()
        sampled = self._stages()[-1].samples_topology  # which no other limits bind
        if sampled:
            limits = replace(limits, min_gain=0.0, min_rows=0.0, min_leaf=1)
        with warnings.catch_warnings():
            if sampled:
                warnings.simplefilter("ignore", SingleLeafWarning)
            hard = inference.harden(self.posterior_, data, limits=limits, extend=self.extend)
        if self.refine == "tao" and hard.posterior.model.topology.n_nodes:
            hard = self._refined(hard, data)
        found = self._splits(hard.posterior, rows.class_names)
        if not isinstance(found, Tree):
            raise TypeError(
                "the diagnostics of a posterior need linear experts, got the split "
                f"{self.posterior_.model.split!r}."
            )
        tree, kept = found.drop_experts(rows.X).pruned(rows.X, limits.min_leaf)
        self.tree_ = tree.fill(rows.X, rows.y, rows.weights, len(rows.class_names), self.smoothing)
        self.tree_ = self.tree_._with(**self._leaf_values(rows, data))
        standardised = self._standardise(rows.X)
        nodes, levels = hard.sources[kept], hard.levels[kept]
        self._reach = measure_nodes(
            self.posterior_, self.tree_, rows.X, standardised, nodes, levels
        )

    def _refined(self, hard: Hardened, data: Data) -> Hardened:
        """The deterministic form with its splits and leaves optimised for its own loss."""
        model = hard.posterior.model
        loss = named.alternating(model.leaf, split=model.split).with_(topology=model.topology)
        found = inference.tao(loss, data, init=hard.posterior)
        reason = "refine='tao' found that no split lowers the loss; fit without refine"
        self._warn_if_single_leaf(found.model.topology, model.leaf, data, reason)
        kept = found.stats["source"]
        return Hardened(found, hard.sources[kept], hard.levels[kept])

    def _averages(self) -> bool:
        if self.prediction == "auto":
            return self.posterior_.n_chains * self.posterior_.n_draws > 1
        return self.prediction == "posterior"
