"""Families of leaf distributions: p(y | leaf), conjugate prior and everything that follows."""

from bayestree.models.leaves.base import Leaf, LeafDistribution, LeafGradient, NumericLeaf
from bayestree.models.leaves.categorical import Categorical, Ordinal
from bayestree.models.leaves.gaussian import Gaussian, Outputs
from bayestree.models.leaves.linear import LinearGaussian
from bayestree.models.leaves.logistic import Logistic
from bayestree.models.leaves.rates import Poisson, Survival
from bayestree.models.leaves.student import Student
from bayestree.models.priors.base import Site

__all__ = [
    "Categorical",
    "Gaussian",
    "Leaf",
    "LeafDistribution",
    "LeafGradient",
    "LinearGaussian",
    "Logistic",
    "NumericLeaf",
    "Ordinal",
    "Outputs",
    "Poisson",
    "Site",
    "Student",
    "Survival",
]
