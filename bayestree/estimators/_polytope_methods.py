"""The methods that fit convex polytope trees, and which of them ``inference="auto"`` selects."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from bayestree._utils.parameters import parameters_of
from bayestree.estimators._combinations import OF_ADAM, differs
from bayestree.estimators._stages import StagedTree
from bayestree.fitted.rows import FileRows, TrainingRows
from bayestree.inference import Growth, Map, Mcmc, Nuts, Smc, Stage, Svi, Vi
from bayestree.inference.nuts.method import Chains
from bayestree.inference.partitions import elsewhere
from bayestree.inference.stage import Minibatches
from bayestree.inference.svi import Variational

FEW_EXPERTS = 4  # of a node, by default where the fit is, or starts with, one by VI
MOST_ROWS, MOST_FEATURES = 10_000, 100  # for which inference="auto" selects "vi"

#: Parameters that only SVI has, and those whose other values VI does not take.
OF_SVI = (*OF_ADAM, "prior", "monotonic_cst", "image_shape", "device")


def _same(*settings: type) -> dict[str, str]:
    """Return the settings whose parameters have the same names."""
    return {name: name for kind in settings for name in parameters_of(kind)}


class PolytopeMethods(StagedTree):
    """A tree that one of several methods fits: by name, with its settings, or by the rows."""

    n_experts: int | None
    growth_rate: float | None
    steepness: float | None
    n_modes: int | None
    prior: Any

    _pipelines: ClassVar[Mapping[str, tuple[type[Stage], ...]]] = {
        "grow": (Growth,),
        "map": (Growth, Map),
        "vi": (Growth, Vi),
        "svi": (Growth, Map, Svi),
        "nuts": (Growth, Map, Svi, Nuts),
        "mcmc": (Growth, Vi, Mcmc),
        "smc": (Growth, Smc),
    }
    _passed_on: ClassVar[Mapping[type[Stage], Mapping[str, str]]] = {
        Growth: {"learning_rate": "growth_rate"},
        Map: _same(Minibatches),
        Vi: {"kl_weight": "kl_weight"},
        Svi: _same(Variational),
        Nuts: _same(Chains),
        Mcmc: {name: name for name in ("n_chains", "n_warmup")},
        Smc: {name: name for name in ("max_depth", "n_chains", "n_jobs")},
    }

    _derived: ClassVar[Mapping[type[Stage], tuple[str, ...]]] = {
        Map: ("steepness",),
        Vi: ("steepness",),
        Smc: ("steepness",),
    }

    _many_experts: ClassVar[int] = 8  # n_experts by default, unless the method is VI
    _slow_rate: ClassVar[float] = Growth.learning_rate  # growth_rate by default, likewise
    _selected = ""  # the method that "auto" selected for the rows of a fit

    def _method(self) -> str | Stage:
        if not (isinstance(self.inference, str) and self.inference == "auto"):
            found: str | Stage = self.inference
            return found
        if not self._selected and hasattr(self, "fitted_"):  # read from a file
            methods = {one.posterior.inference for one in self.fitted_.trees}
            return "svi" if "svi" in methods or self._needs_svi() else "vi"
        return self._selected or ("svi" if self._needs_svi() else "vi")

    def _needs_svi(self) -> bool:
        """Return whether a parameter is set that only SVI has, or can follow."""
        known = parameters_of(type(self))
        given = any(differs(self, name) for name in OF_SVI if name in known)
        return given or self.dtype == "float32"

    def _select(self, rows: TrainingRows) -> None:
        """Select the method of "auto" for the rows of a fit."""
        if self.inference != "auto":
            self._selected = str(self.inference) if isinstance(self.inference, str) else ""
            return
        if self._continues():
            self._selected = "svi" if self._needs_svi() else str(self._method())
            return
        n_rows, n_features = rows.X.shape
        small = n_rows <= MOST_ROWS and n_features <= MOST_FEATURES
        fits = small and not (isinstance(rows.X, FileRows) or elsewhere() or self._needs_svi())
        self._selected = "vi" if fits else "svi"

    @property
    def _by_vi(self) -> bool:
        """Whether the fit, or its first variational fit, is by natural gradients."""
        method = self._method()
        kinds = self._pipelines[method] if isinstance(method, str) else self._pipeline_of(method)
        return Vi in kinds

    @property
    def _n_experts(self) -> int:
        """Number of experts of a node: as given, or the default of the method."""
        if self.n_experts is not None:
            return int(self.n_experts)
        if self._continues():
            fitted = self.posterior_.model.split
            return int(fitted.n_experts)
        return FEW_EXPERTS if self._by_vi else self._many_experts

    def _keywords(self, kind: type[Stage]) -> dict[str, Any]:
        found = super()._keywords(kind)
        if kind is Growth and self.growth_rate is None and not self._by_vi:
            found["learning_rate"] = self._slow_rate
        if kind is Svi and self.inference == "auto" and not getattr(self.prior, "expects", True):
            found["guide"] = "AutoNormal"  # which needs the density alone
        return found

    def _stages(self) -> list[Stage]:
        stages = super()._stages()
        final = float(self.steepness or self._default_steepness(stages))
        first = self._first_steepness(1.0)
        path: tuple[float, float] | None = (first, final)
        if self.steepness is None and isinstance(stages[-1], Map):
            # chosen once: a refined tree that is continued has seen the rows to be left out
            refined = self._continues() and self.posterior_.inference != "grow"
            path = (first, first) if refined else None
        annealed: dict[type[Stage], Any] = {Map: path, Vi: final, Smc: final}
        # a settings object keeps the steepness that it states
        stated = self.inference if getattr(self.inference, "steepness", None) is not None else None
        return [
            replace(stage, steepness=annealed[type(stage)])  # type: ignore[type-var]
            if type(stage) in annealed and stage is not stated
            else stage
            for stage in stages
        ]

    def _default_steepness(self, stages: Sequence[Stage]) -> float:
        n_classes = len(getattr(self, "classes_", ()))
        if stages[-1].samples_topology:  # whatever it starts from
            stages = stages[-1:]
        return min(stage.steepness_for(n_classes) for stage in stages)

    def _mode_count(self) -> int:
        """Return the number of modes: as given, as in the continued fit, or by the method."""
        if self.n_modes is not None:
            return int(self.n_modes)
        if self._continues():
            return len(self.fitted_.trees)
        method = self._method()
        if not isinstance(method, str):
            return method.default_modes
        last = self._pipelines[method][-1]
        return last.from_keywords(self._keywords(last)).default_modes
