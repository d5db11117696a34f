"""Split criteria: the gain of a hard or soft split of a node's rows.

A criterion is a function of sums of the leaves' sufficient statistics over the rows of each side;
the same sums serve soft gradients and the exact search over thresholds.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Criterion(ABC):
    """Purity of a set of rows, from sums of their statistics."""

    @abstractmethod
    def value(self, sums: Tensor) -> Tensor:
        """Purity of rows with sums (..., c) of statistics; that of a split is summed over sides."""

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        """Convert the value of a split of rows with sums ``whole`` to a log-likelihood."""
        return value

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        """Value of a split of rows with sums ``whole`` given the sums (..., c) of one side."""
        return self.value(side) + self.value(whole - side)

    def gain(self, split: Tensor, whole: Tensor) -> Tensor:
        """Gain in nats of a split of value ``split`` over no split."""
        return self.nats(split, whole) - self.nats(self.value(whole), whole)

    def hard_gain(self, statistics: Tensor, right: Tensor) -> float:
        """Gain in nats of a hard split of rows with the given statistics (n, c)."""
        whole, side = statistics.sum(0), statistics[right].sum(0)
        return float(self.gain(self.split_value(side, whole), whole))


@dataclass(frozen=True)
class Entropy(Criterion):
    """-N H(y) in nats: a split gains N times the mutual information (CPT, eq. 14)."""

    def value(self, sums: Tensor) -> Tensor:
        # Rounding leaves sums of soft counts a little below zero, where n log n is undefined.
        counts = sums.clamp_min(torch.finfo(sums.dtype).tiny)
        total = counts.sum(-1)
        return (counts * counts.log()).sum(-1) - total * total.log()


@dataclass(frozen=True)
class Gini(Criterion):
    """-N times the Gini impurity, the criterion of CART; a first-order approximation of entropy."""

    def value(self, sums: Tensor) -> Tensor:
        total = sums.sum(-1)
        return sums.square().sum(-1) / total.clamp_min(torch.finfo(sums.dtype).tiny) - total


@dataclass(frozen=True)
class SquaredError(Criterion):
    """Minus the sum of squares about the mean (CPT, eq. 16)."""

    def value(self, sums: Tensor) -> Tensor:
        total = sums[..., 0].clamp_min(torch.finfo(sums.dtype).tiny)
        return sums[..., 1] ** 2 / total - sums[..., 2]

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        # A perfect fit has no finite likelihood; the floor is the rounding error of the sums.
        total = whole[..., 0]
        variance = (-value / total).clamp_min(torch.finfo(value.dtype).eps)
        return -0.5 * total * variance.log()
