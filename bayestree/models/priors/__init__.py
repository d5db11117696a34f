"""Priors on the weights and hyperplanes of the experts, one family per module."""

import copy
import warnings
from dataclasses import dataclass, field
from types import new_class
from typing import Any

from bayestree.models.priors.base import (
    HyperplanePrior,
    IndependentPrior,
    Moments,
    Plates,
    Prior,
    ScaleFactors,
    WeightPrior,
    check_positive,
)
from bayestree.models.priors.gamma import FlatWeights, GammaProcess, LiteralGammaProcess
from bayestree.models.priors.inverse_gamma import InverseGammaScale
from bayestree.models.priors.penalties import FeatureCount, Flat, Laplace, Spatial

__all__ = [
    "FAMILIES",
    "FeatureCount",
    "Flat",
    "FlatWeights",
    "GammaProcess",
    "HyperplanePrior",
    "IndependentPrior",
    "InverseGammaScale",
    "Laplace",
    "LiteralGammaProcess",
    "Moments",
    "Plates",
    "Prior",
    "Priors",
    "ScaleFactors",
    "Spatial",
    "WeightPrior",
    "check_positive",
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
    adopted = copy.copy(prior)
    object.__setattr__(adopted, "__class__", new_class(kind.__name__, (kind, base)))
    return adopted
