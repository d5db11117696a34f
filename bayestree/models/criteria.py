"""Split criteria: the gain of a hard or soft split of a node's rows.

A criterion is a function of sums of the leaves' sufficient statistics over the rows of each side;
the same sums serve soft gradients and the exact search over thresholds.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

ROUNDING = 1e-9  # relative error of a log-likelihood from sums, at most


class Criterion(ABC):
    """Purity of a set of rows, from sums of their statistics."""

    pure: ClassVar[float] = 0.0  # no split has a greater value
    costly: ClassVar[bool] = False  # whether a value takes as long as the sums of many rows

    def __init_subclass__(cls) -> None:
        # an inherited closed form is not the gradient of another value
        if {"value", "nats"} & vars(cls).keys() and "ascent" not in vars(cls):
            cls.ascent = Criterion.ascent  # type: ignore[method-assign]

    @abstractmethod
    def value(self, sums: Tensor) -> Tensor:
        """Return the purity of rows with sums (..., c) of statistics."""

    def impurity(self, sums: Tensor) -> Tensor:
        """Return the loss of rows that are not split, which cost-complexity pruning compares."""
        return -self.value(sums)

    def nats(self, value: Tensor, whole: Tensor) -> Tensor:
        """Convert the value of a split of rows with sums ``whole`` to a log-likelihood."""
        return value

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        """Return the value of a split of rows with sums ``whole``, given the sums of one side."""
        return self.value(side) + self.value(whole - side)

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood (...) of a split, and its gradient (..., c) in ``side``."""
        with torch.enable_grad():
            sums = side.detach().requires_grad_()
            nats = self.nats(self.split_value(sums, whole), whole)
            (slope,) = torch.autograd.grad(nats.sum(), sums)
        return nats.detach(), slope

    def gain(self, split: Tensor, whole: Tensor) -> Tensor:
        """Return the gain in nats of a split of value ``split`` over no split."""
        return self.nats(split, whole) - self.nats(self.value(whole), whole)

    def hard_gain(self, statistics: Tensor, right: Tensor) -> float:
        """Return the gain in nats of a hard split; negative if it explains less than it costs."""
        whole, side = statistics.sum(0), statistics[right].sum(0)
        before = float(self.nats(self.value(whole), whole))
        gain = float(self.nats(self.split_value(side, whole), whole)) - before
        # rounding can leave a split that changes nothing just below zero
        return 0.0 if -ROUNDING * (1 + abs(before)) < gain < 0 else gain


class CountCriterion(Criterion):
    """Purity from a sum of terms of the counts n_c of the classes, and their total n."""

    @abstractmethod
    def term(self, count: Tensor) -> Tensor:
        """Return the term of one count."""

    @abstractmethod
    def joined(self, terms: Tensor, total: Tensor) -> Tensor:
        """Return the value, from the sum of the terms and the total."""

    def value(self, sums: Tensor) -> Tensor:
        return self.joined(self.term(sums).sum(-1), sums.sum(-1))


@dataclass(frozen=True)
class Entropy(CountCriterion):
    """-N H(y) in nats: a split gains N times the mutual information (CPT, eq. 14)."""

    def term(self, count: Tensor) -> Tensor:
        # Rounding leaves sums of soft counts a little below zero, where n log n is undefined.
        count = count.clamp_min(torch.finfo(count.dtype).tiny)
        return count * count.log()

    def joined(self, terms: Tensor, total: Tensor) -> Tensor:
        return terms - self.term(total)

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        # the gradient of sum_c n_c log(n_c / n) is log(n_c / n)
        counts = torch.stack((side, whole - side)).clamp_min_(torch.finfo(side.dtype).tiny)
        share = counts.log() - counts.sum(-1, keepdim=True).log()
        return (counts * share).sum((0, -1)), share[0] - share[1]


@dataclass(frozen=True)
class Gini(CountCriterion):
    """-N times the Gini impurity, the criterion of CART; a first-order approximation of entropy."""

    def term(self, count: Tensor) -> Tensor:
        return count.square()

    def joined(self, terms: Tensor, total: Tensor) -> Tensor:
        return terms / total.clamp_min(torch.finfo(total.dtype).tiny) - total


@dataclass(frozen=True)
class Twoing(Criterion):
    """The twoing rule of CART (Breiman et al., 1984, eq. 4.6), for splits alone.

    n_l n_r / (4 n) (sum_c |p_c(left) - p_c(right)|)^2 rewards sides that share no class, pure or
    not: half of the decrease of Gini's impurity for two classes. Nodes have Gini's impurity, too.
    """

    def value(self, sums: Tensor) -> Tensor:
        return sums.new_zeros(sums.shape[:-1])

    def impurity(self, sums: Tensor) -> Tensor:
        return Gini().impurity(sums)

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        both = torch.stack((side, whole - side))
        count = both.sum(-1).clamp_min(torch.finfo(both.dtype).tiny)
        share = both / count.unsqueeze(-1)
        apart = (share[0] - share[1]).abs().sum(-1)
        return count.prod(0) / (4 * count.sum(0)) * apart.square()


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

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        # the gradient of s_1^2 / s_0 - s_2 is (-m^2, 2 m, -1) with the mean m = s_1 / s_0
        value = self.split_value(side, whole)
        both = torch.stack((side, whole - side))
        mean = both[..., 1] / both[..., 0].clamp_min(torch.finfo(side.dtype).tiny)
        last = torch.zeros_like(value)  # s_2 of the two sides adds up to a constant
        square = mean.square()
        slope = torch.stack((square[1] - square[0], 2 * (mean[0] - mean[1]), last), dim=-1)
        # d nats / d value, at most that at the floor of the variance
        total = whole[..., 0]
        rate = 0.5 * total / (-value).maximum(total * torch.finfo(value.dtype).eps)
        return self.nats(value, whole), rate.unsqueeze(-1) * slope


@dataclass(frozen=True)
class Deviance(Criterion):
    """Log-likelihood of events at the best constant rate: minus half the Poisson deviance.

    The first two statistics are exposure and number of events.
    """

    def value(self, sums: Tensor) -> Tensor:
        return self._value(*self._counted(sums))

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        # the gradient of s_1 log(s_1 / s_0) is (-r, 1 + log r) with the rate r = s_1 / s_0
        exposure, events = self._counted(torch.stack((side, whole - side)))
        rate = events / exposure
        slope = torch.zeros_like(side)
        slope[..., 0] = rate[1] - rate[0]
        slope[..., 1] = rate[0].log() - rate[1].log()
        return self._value(exposure, events).sum(0), slope

    def _counted(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        # Rounding leaves sums of soft counts a little below zero.
        tiny = torch.finfo(sums.dtype).eps ** 2
        return sums[..., 0].clamp_min(tiny), sums[..., 1].clamp_min(tiny)

    def _value(self, exposure: Tensor, events: Tensor) -> Tensor:
        return events * (events.log() - exposure.log())
