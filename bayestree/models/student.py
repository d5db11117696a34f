"""Sums of a Student-t likelihood: moments of y in bins, and the criterion of growth from them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray, weighted_quantiles
from bayestree.models.criteria import Criterion

NORMAL = 1.349  # distance between the quartiles of a standard normal
STEPS = 12  # of the EM algorithm, each of which leaves less than half of the error
WIDTH, MOST = 0.15, 20  # width and number of the bins on each side of the center, in asinh units
FLAT = 2.0  # distance from the center, in units, up to which bins have about the same width
FAR = 1e3  # units: rows beyond count as if there, where their precision is practically 0


@dataclass(frozen=True)
class Bins:
    """Intervals of y: 0.3 units wide about the center, and wider in proportion to the distance.

    Within a bin, all rows have the same precision given a leaf; 42 bins are a compromise between
    this and the size of the statistics. The outer two have no end, but sums of squares of values
    beyond ``FAR`` would cancel those of the other rows in them.
    """

    center: float
    unit: float

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        """Weighted 1, y and y^2 of each row (n,) in the columns of its bin, shape (n, 3 B)."""
        edges = torch.as_tensor(self.center + self.unit * _edges()).to(y)
        number = torch.bucketize(y, edges)
        y = y.clamp(self.center - FAR * self.unit, self.center + FAR * self.unit)
        each = torch.stack((weights, weights * y, weights * y**2), dim=-1)
        found = each.new_zeros(len(y), len(edges) + 1, 3)
        found[torch.arange(len(y), device=y.device), number] = each
        return found.flatten(1)

    @staticmethod
    def squares(parts: Tensor, loc: Tensor) -> Tensor:
        """Mean squared distance from ``loc`` (...) of the rows of each bin (..., B, 3)."""
        mass, first, second = parts.unbind(-1)
        loc = loc.unsqueeze(-1)
        # Rounding can leave the mass of an empty side, or a sum of squares, just below zero.
        total = (second - 2 * loc * first + loc**2 * mass).clamp_min(0.0)
        return total / mass.clamp_min(torch.finfo(mass.dtype).tiny)


def robust_units(y: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Median of y (n,), and the scale of its middle half, which no outlier moves.

    Where the quartiles are equal, the scale is that of the distances of all other values from the
    median; it is 1 where there are none.
    """
    low, center, high = weighted_quantiles(y, weights, [0.25, 0.5, 0.75]).tolist()
    # Rounding leaves equal values of y a spread below their last digits.
    tiny = 10 * np.finfo(np.float64).eps * abs(center)
    if high - low > tiny:
        return center, (high - low) / NORMAL
    away = np.abs(y - center)
    other = (away > tiny) & (weights > 0)
    if not other.any():
        return center, 1.0
    (half,) = weighted_quantiles(away[other], weights[other], [0.5]).tolist()
    return center, 2 * half / NORMAL


@lru_cache
def _edges() -> FloatArray:
    return FLAT * np.sinh(WIDTH * np.arange(-MOST, MOST + 1))


def location(parts: Tensor) -> Tensor:
    """Mean of y in the bin of the median, shape (...), of bins (..., B, 3): a robust start."""
    mass = parts[..., 0].clamp_min(0.0)
    below = mass.cumsum(-1)
    middle = (below >= below[..., -1:] / 2).long().argmax(-1, keepdim=True)
    held = mass.gather(-1, middle).clamp_min(torch.finfo(mass.dtype).tiny)
    return (parts[..., 1].gather(-1, middle) / held).squeeze(-1)


@dataclass(frozen=True)
class Robust(Criterion):
    """Log-likelihood of Student-t distributions with a location for each side and a common scale.

    At its best for the precisions that the rows of a bin share, found by EM with an expanded
    parameter (Kent, Tyler and Vardi, 1994), from the medians and ``unit``.
    """

    df: float
    unit: float

    def value(self, sums: Tensor) -> Tensor:
        return self._fit(sums.unsqueeze(0))[0].sum(0)

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        return self._fit(torch.stack((side, whole - side)))[0].sum(0)

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        # at the best locations and scale, only the explicit dependence on the sums has a slope
        value, slope = self._fit(torch.stack((side, whole - side)))
        return value.sum(0), slope[0] - slope[1]

    def _fit(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Log-likelihoods (G, ...) of the sides of splits, and slopes (G, ..., c) in their sums."""
        parts, df = sums.unflatten(-1, (-1, 3)), self.df
        mass = parts[..., 0].clamp_min(0.0)
        loc = location(parts)
        square = torch.full_like(loc[0], self.unit**2)
        least = self.unit**2 * torch.finfo(sums.dtype).eps  # a perfect fit has no finite likelihood
        for _ in range(STEPS):
            away = Bins.squares(parts, loc) / square.unsqueeze(-1)
            weight = (df + 1) / (df + away)
            held = (weight * mass).sum(-1).clamp_min(torch.finfo(sums.dtype).tiny)
            loc = (weight * parts[..., 1]).sum(-1) / held
            spread = (weight * mass * Bins.squares(parts, loc)).sum((0, -1))
            square = (spread / held.sum(0)).clamp_min(least)
        away = Bins.squares(parts, loc) / square.unsqueeze(-1)
        each = -0.5 * square.log().unsqueeze(-1) - (df + 1) / 2 * torch.log1p(away / df)
        weight = (df + 1) / (df + away)
        center = loc.unsqueeze(-1)
        inverse = weight / square.unsqueeze(-1)
        own = each - weight / 2 * (center**2 / square.unsqueeze(-1) - away)
        slope = torch.stack((own, inverse * center, -inverse / 2), dim=-1)
        slope = slope.where((mass > 0).unsqueeze(-1), 0.0)  # there is no row in the bin
        return (mass * each).sum(-1), slope.flatten(-2)
