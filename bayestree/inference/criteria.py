"""Split criteria: what a hard or soft split of a node's rows is worth.

A criterion values sums of the leaves' sufficient statistics over the rows on a side; the same
sums serve soft gradients and the exact search over thresholds.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bayestree.models.leaves import Categorical, Leaf


class Criterion(Protocol):
    """Values a set of rows by sums of their statistics."""

    def value(self, sums: Tensor) -> Tensor:
        """Value of sums (..., c) of statistics; a split is worth the sum over its sides."""

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        """The value of a split of rows with sums ``whole`` as a log-likelihood."""


@dataclass(frozen=True)
class Entropy:
    """-N H(y) in nats: a split gains N times the mutual information (CPT, eq. 14)."""

    def value(self, sums: Tensor) -> Tensor:
        # Rounding leaves sums of soft counts a little below zero, where n log n is undefined.
        counts = sums.clamp_min(torch.finfo(sums.dtype).tiny)
        total = counts.sum(-1)
        return (counts * counts.log()).sum(-1) - total * total.log()

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        return value


@dataclass(frozen=True)
class Gini:
    """-N times the Gini impurity, the criterion of CART; to first order the entropy's."""

    def value(self, sums: Tensor) -> Tensor:
        total = sums.sum(-1)
        return sums.square().sum(-1) / total.clamp_min(torch.finfo(sums.dtype).tiny) - total

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        return value


@dataclass(frozen=True)
class SquaredError:
    """Minus the sum of squares about the mean (CPT, eq. 16)."""

    def value(self, sums: Tensor) -> Tensor:
        total = sums[..., 0].clamp_min(torch.finfo(sums.dtype).tiny)
        return sums[..., 1] ** 2 / total - sums[..., 2]

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        # A perfect fit has no finite likelihood; rounding decides how good it looks.
        total = whole[..., 0]
        variance = (-value / total).clamp_min(torch.finfo(value.dtype).eps)
        return -0.5 * total * variance.log()


def criterion_of(leaf: Leaf) -> Criterion:
    """The criterion that goes with a family of leaves."""
    return Entropy() if isinstance(leaf, Categorical) else SquaredError()
