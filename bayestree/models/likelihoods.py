"""Likelihoods: how a soft tree is held against y. Pure functions of log P(leaf | x)."""

from typing import Literal

import torch
from torch import Tensor

from bayestree.models.leaves import Leaf

Likelihood = Literal[
    "mixture", "mutual-information", "variance", "misclassification", "squared-error"
]
CLASSES = ("mutual-information", "misclassification")  # objectives of categorical leaves only
VALUES = ("variance", "squared-error")  # of Gaussian leaves only
DETERMINISTIC = ("misclassification", "squared-error")  # of the deterministic tree only


def mixture(joint: Tensor) -> Tensor:
    """log sum_leaf P(leaf | x_n) p(y_n | leaf), shape (n,), from the log of each term (n, L)."""
    return torch.logsumexp(joint, dim=-1)


def mutual_information(log_prob: Tensor, y: Tensor, weights: Tensor, leaf: Leaf) -> Tensor:
    """-N H(Y | L) with plug-in leaves (CPT, eq. 11-14), a scalar.

    The log-likelihood of leaf membership at its best class probabilities; as a factor, a
    generalised posterior.
    """
    # The least normal number keeps the gradient of n log n finite in an empty cell.
    counts = log_prob.exp().T @ leaf.statistics(y, weights)
    counts = counts + torch.finfo(counts.dtype).tiny
    return (counts * (counts / counts.sum(-1, keepdim=True)).log()).sum()


def variance(log_prob: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """-N/2 log of the within-leaf variance with plug-in means (CPT, eq. 16-17), a scalar.

    The sum of squares of eq. 16 with its unknown unit profiled out: the same optimum without a
    prior, and on the scale of a log-likelihood, as -N H(Y | L) is.
    """
    total = weights.sum()
    return -0.5 * total * (-squared_error(log_prob, y, weights) / total).log()


def misclassification(log_prob: Tensor, y: Tensor, weights: Tensor, leaf: Leaf) -> Tensor:
    """Minus the weight of the rows that are not of their leaf's majority class, a scalar.

    The 0/1 loss that TAO descends; ``log_prob`` is that of the deterministic tree.
    """
    counts = log_prob.exp().T @ leaf.statistics(y, weights)
    return counts.amax(-1).sum() - weights.sum()


def squared_error(log_prob: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Minus the weighted sum of squares about the means of the leaves (CPT, eq. 16), a scalar."""
    member = log_prob.exp() * weights.unsqueeze(-1)
    mean = (y @ member) / (member.sum(0) + torch.finfo(member.dtype).tiny)
    return -(member * (y.unsqueeze(-1) - mean) ** 2).sum()
