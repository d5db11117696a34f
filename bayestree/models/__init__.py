"""What is believed: splits, priors, leaves, likelihoods, and the soft tree they make."""

from bayestree.models.leaves import Categorical, Gaussian
from bayestree.models.networks import Network, SmallConvNet
from bayestree.models.penalties import FeatureCount, Laplace, Spatial
from bayestree.models.priors import (
    Flat,
    FlatWeights,
    GammaProcess,
    InverseGammaScale,
    LiteralGammaProcess,
    Priors,
)
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import Oblique, Polytope

__all__ = [
    "Categorical",
    "FeatureCount",
    "Flat",
    "FlatWeights",
    "GammaProcess",
    "Gaussian",
    "InverseGammaScale",
    "Laplace",
    "LiteralGammaProcess",
    "Network",
    "Oblique",
    "Polytope",
    "Priors",
    "SmallConvNet",
    "SoftTree",
    "Spatial",
]
