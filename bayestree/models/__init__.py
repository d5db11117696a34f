"""Model parts (splits, priors, leaves, likelihoods) and the soft tree they make up."""

from bayestree.models.leaves import (
    Categorical,
    Gaussian,
    LinearGaussian,
    Logistic,
    Ordinal,
    Outputs,
    Poisson,
    Student,
    Survival,
)
from bayestree.models.networks import Network, SmallConvNet
from bayestree.models.priors import (
    FeatureCount,
    Flat,
    FlatWeights,
    GammaProcess,
    GroupedScale,
    HyperplanePrior,
    IndependentPrior,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Priors,
    Spatial,
    WeightPrior,
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
    "GroupedScale",
    "HyperplanePrior",
    "IndependentPrior",
    "InverseGammaScale",
    "Laplace",
    "LinearGaussian",
    "LiteralGammaProcess",
    "Logistic",
    "Network",
    "Oblique",
    "Ordinal",
    "Outputs",
    "Poisson",
    "Polytope",
    "Priors",
    "SmallConvNet",
    "SoftTree",
    "Spatial",
    "Student",
    "Survival",
    "WeightPrior",
]
