"""Priors on the weights and hyperplanes of the experts, one family per module."""

from dataclasses import dataclass, field

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
