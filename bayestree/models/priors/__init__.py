"""Priors on the weights and hyperplanes of the experts, one family per module."""

from dataclasses import dataclass, field

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
from bayestree.models.priors.grouped import GroupedScale
from bayestree.models.priors.inverse_gamma import InverseGammaScale, ShrinkageFactors, width_scale
from bayestree.models.priors.penalties import FeatureCount, Flat, Laplace, Spatial

__all__ = [
    "FeatureCount",
    "Flat",
    "FlatWeights",
    "GammaProcess",
    "GroupedScale",
    "HyperPriors",
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
    "ShrinkageFactors",
    "Spatial",
    "WeightPrior",
    "check_positive",
    "width_scale",
]


@dataclass(frozen=True)
class Priors:
    """The priors of a soft tree, on weights and on hyperplanes."""

    weight: WeightPrior = field(default_factory=GammaProcess)
    hyperplane: HyperplanePrior = field(default_factory=InverseGammaScale)

    def fixed(self) -> "Priors":
        """Return the same priors without hyper-priors, at the values of their hyperparameters."""
        return Priors(self.weight.fixed(), self.hyperplane.fixed())

    def __post_init__(self) -> None:
        for name, base in (("weight", WeightPrior), ("hyperplane", HyperplanePrior)):
            prior = getattr(self, name)
            if not isinstance(prior, base):
                raise TypeError(
                    f"{name} must be a {base.__name__}, got {prior!r}: let its class subclass "
                    f"bayestree.models.{base.__name__}."
                )
        if getattr(self.hyperplane, "width", None) is not None:
            raise ValueError(
                f"{self.hyperplane} has a width, which an estimator resolves for its columns: set "
                "coefficient_scale by bayestree.models.priors.width_scale instead."
            )
