"""Families of leaf distributions: p(y | leaf), conjugate prior and everything that follows."""

from bayestree.models.leaves.base import Leaf, LeafDistribution, LeafGradient, NumericLeaf
from bayestree.models.leaves.categorical import Categorical
from bayestree.models.leaves.gaussian import Gaussian
from bayestree.models.leaves.linear import LinearGaussian
from bayestree.models.leaves.logistic import Logistic
from bayestree.models.leaves.ordinal import Ordinal
from bayestree.models.leaves.outputs import Outputs
from bayestree.models.leaves.rates import Poisson
from bayestree.models.leaves.student import Student
from bayestree.models.leaves.survival import Survival
from bayestree.models.sites import Site

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
