"""Priors on the weights and hyperplanes of the experts, one family per module."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import new_class
from typing import Any

from bayestree.models.priors.base import (
    HyperplanePrior,
    HyperPriors,
    IndependentPrior,
    Moments,
    Plates,
    Prior,
    ScaleFactors,
    WeightPrior,
    check_positive,
)
from bayestree.models.priors.gamma import FlatWeights, GammaProcess, LiteralGammaProcess
from bayestree.models.priors.inverse_gamma import InverseGammaScale, ShrinkageFactors, width_scale
from bayestree.models.priors.learning import weak_hyper_priors
from bayestree.models.priors.partially_centred import PartiallyCentred
from bayestree.models.priors.penalties import FeatureCount, Flat, Laplace, Spatial

__all__ = [
    "FAMILIES",
    "FeatureCount",
    "Flat",
    "FlatWeights",
    "GammaProcess",
    "HyperPriors",
    "HyperplanePrior",
    "IndependentPrior",
    "InverseGammaScale",
    "Laplace",
    "LiteralGammaProcess",
    "Moments",
    "PartiallyCentred",
    "Plates",
    "Prior",
    "Priors",
    "ScaleFactors",
    "ShrinkageFactors",
    "Spatial",
    "WeightPrior",
    "check_positive",
    "weak_hyper_priors",
    "width_scale",
]

#: The priors that a model file can name.
FAMILIES: tuple[type[Prior], ...] = (
    FeatureCount,
    Flat,
    FlatWeights,
    GammaProcess,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Spatial,
)


@dataclass(frozen=True)
class Priors:
    """The priors of a soft tree, on weights and on hyperplanes."""

    weight: WeightPrior = field(default_factory=GammaProcess)
    hyperplane: HyperplanePrior = field(default_factory=InverseGammaScale)

    @property
    def learned_values(self) -> dict[str, float]:
        """The values of the hyperparameters that can be learned, of both priors."""
        return self.weight.learned_values | self.hyperplane.learned_values

    def hyper_priors(self, *, weak: bool) -> HyperPriors:
        """The hyper-priors that are stated and, if ``weak``, weak ones of the rest."""
        found: dict[str, tuple[float, float]] = {}
        for prior in (self.weight, self.hyperplane):
            found |= {**(weak_hyper_priors(prior) if weak else {}), **prior.hyper_priors}
        return found

    def at(self, values: Mapping[str, float]) -> "Priors":
        """The same priors with other values of their :attr:`learned_values`."""
        return Priors(self.weight.at(values), self.hyperplane.at(values))

    def fixed(self) -> "Priors":
        """The same priors with their hyperparameters at their values, without hyper-priors."""
        return Priors(self.weight.fixed(), self.hyperplane.fixed())

    def __post_init__(self) -> None:
        for name, base in (("weight", WeightPrior), ("hyperplane", HyperplanePrior)):
            prior = getattr(self, name)
            if not isinstance(prior, base):
                object.__setattr__(self, name, _adopted(name, prior, base))


def _adopted(name: str, prior: Any, base: type[Prior]) -> Any:
    """A prior that is not a subclass of the base, as version 0.1 allowed, with its methods."""
    kind = type(prior)
    if not (callable(getattr(prior, "state", None)) and callable(getattr(prior, "log_prob", None))):
        raise TypeError(f"{name} must be a {base.__name__}, got {prior!r}.")
    warnings.warn(
        f"{kind.__name__} should subclass bayestree.models.{base.__name__}; other priors will be "
        "refused in a future version.",
        DeprecationWarning,
        stacklevel=4,
    )
    try:
        return _with_base(prior, base)
    except TypeError as error:  # classes with __slots__ or a metaclass of their own
        raise TypeError(
            f"{name} must be a {base.__name__}, got {prior!r}: let {kind.__name__} subclass "
            f"bayestree.models.{base.__name__}."
        ) from error


def _with_base(prior: Any, base: type[Prior]) -> Any:
    """A copy of a prior whose class has the methods of the base, too."""
    kind: Any = type(prior)
    adopted = copy.copy(prior)
    object.__setattr__(adopted, "__class__", _class_with_base(kind, base))
    return adopted


@cache
def _class_with_base(kind: type, base: type[Prior]) -> type:
    """The class of adopted priors, which no module has: they are pickled as the original."""

    def reduce(self: Any) -> tuple[Any, ...]:
        original: Any = object.__new__(kind)
        vars(original).update(vars(self))
        return _with_base, (original, base)

    return new_class(
        kind.__name__, (kind, base), exec_body=lambda body: body.update(__reduce__=reduce)
    )
