"""Leaves with Student-t distributions of y, in which outliers count for little.

The sufficient statistics of a leaf are moments of y in bins.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.special import gammaln, stdtr
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray, gauss_hermite, weighted_quantiles
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.base import Interval, LeafGradient, NumericLeaf
from bayestree.models.leaves.gaussian import Gaussian, GaussianGradient, NormalInverseGamma
from bayestree.models.priors.base import Site, Sites, check_positive

NORMAL = 1.349  # distance between the quartiles of a standard normal
STEPS = 12  # of the EM algorithm, each of which leaves less than half of the error
WIDTH, MOST = 0.15, 20  # width and number of the bins on each side of the center, in asinh units
FLAT = 2.0  # distance from the center, in units, up to which bins have about the same width
#: Ends of the bins, in units from the center.
EDGES = FLAT * np.sinh(WIDTH * np.arange(-MOST, MOST + 1))
FAR = 1e3  # units: rows beyond count as if there, where their precision is practically 0
DFS = (2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0, 50.0)  # among which a calibrated prior has one
NODES = 5  # of each Gauss-Hermite rule for an expected log-density


@dataclass(frozen=True)
class Bins:
    """Intervals of y: 0.3 units wide about the center, and wider in proportion to the distance.

    Within a bin, all rows have the same precision given a leaf; 42 bins are a compromise between
    this and the size of the statistics. The outer two have no end, but squares of values beyond
    ``FAR`` would cancel the squares of the other rows in them.
    """

    center: float
    unit: float

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        """Compute weighted 1, y and y^2 of each row (n,) in the columns of its bin, (n, 3 B)."""
        edges = torch.as_tensor(self.center + self.unit * EDGES).to(y)
        number = torch.bucketize(y, edges)
        y = y.clamp(self.center - FAR * self.unit, self.center + FAR * self.unit)
        each = torch.stack((weights, weights * y, weights * y**2), dim=-1)
        found = each.new_zeros(len(y), len(edges) + 1, 3)
        found[torch.arange(len(y), device=y.device), number] = each
        return found.flatten(1)

    @staticmethod
    def squares(parts: Tensor, loc: Tensor) -> Tensor:
        """Return the mean squared distance from ``loc`` (...) of the rows of bins (..., B, 3)."""
        mass, first, second = parts.unbind(-1)
        loc = loc.unsqueeze(-1)
        # Rounding can leave the mass of an empty side, or a sum of squares, just below zero.
        total = (second - 2 * loc * first + loc**2 * mass).clamp_min(0.0)
        return total / mass.clamp_min(torch.finfo(mass.dtype).tiny)


def robust_units(y: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Return the median of y (n,), and the scale of its middle half, which no outlier moves.

    Where the quartiles are equal, the scale describes the distances of all other values from the
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


def location(parts: Tensor) -> Tensor:
    """Return the mean of y in the bin of the median, (...), of bins (..., B, 3)."""
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
        """Return log-likelihoods (G, ...) of the sides of splits, and slopes (G, ..., c)."""
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


@dataclass(frozen=True)
class StudentPosterior(NormalInverseGamma):
    """Normal-inverse-gamma distribution of location and squared scale, with ``df`` of y."""

    df: float = 4.0

    def expected_log_density(self, y: Tensor) -> Tensor:
        # u = sqrt(t) (y - mean) with the precision t ~ Gamma(shape, rate), and sqrt(t) (loc - mean)
        # ~ Normal(0, 1 / strength): two Gauss-Hermite rules, one for log t and one for the mean.
        node, weight = (y.new_tensor(part) for part in gauss_hermite(NODES))
        mean = torch.digamma(self.shape) - self.rate.log()
        log_precision = mean + torch.polygamma(1, self.shape).sqrt() * node.view(-1, 1, 1, 1)
        shift = node.view(-1, 1, 1) / torch.as_tensor(self.strength) ** 0.5
        u = (log_precision / 2).exp() * (y.unsqueeze(-1) - self.loc) + shift
        each = torch.log1p(u**2 / self.df).flatten(0, 1)
        tail = torch.tensordot(weight.outer(weight).flatten(), each, dims=1)
        return _constant(self.df) + mean / 2 - (self.df + 1) / 2 * tail


class StudentGradient(GaussianGradient):
    """Locations and logarithms of scales, shape (2, L)."""

    def log_density(self, leaves: FloatArray) -> FloatArray:
        mean, log_scale = leaves[..., None]
        square = ((self.y - mean) * np.exp(-log_scale)) ** 2
        df = self.leaf.df
        return _constant(df) - log_scale - (df + 1) / 2 * np.log1p(square / df)

    def pull(self, leaves: FloatArray, member: FloatArray, gap: FloatArray) -> FloatArray:
        # the log-density has the slope of a normal with the precision of the row
        df, square = self.leaf.df, (gap * np.exp(-leaves[1])[:, None]) ** 2
        return member * gap * ((df + 1) / (df + square))


@dataclass(frozen=True)
class Student(NumericLeaf):
    """Student-t leaves: y ~ leaf_mean + leaf_scale t_df, for responses with outliers.

    leaf_scale^2 ~ InverseGamma(shape, rate), leaf_mean ~ Normal(mean, leaf_scale^2 / strength), as
    in ``Gaussian``. With a precision of its own for each row, lambda ~ Gamma(df / 2, df / 2), y is
    normal, and its prior conjugate. The statistics are as for a normal distribution in each of
    the intervals of ``bins``, whose rows share one factor of lambda in each leaf: sums of weights
    in which outliers count for little are then known from the sums of all rows. The posterior has
    the mean and scale at which these weights are consistent, and the curvature of the t density
    (Lange, Little and Taylor, 1989). The likelihood is otherwise used exactly.

    Parameters
    ----------
    df : float
        Degrees of freedom, more than 2, so that y has a variance.
    mean, strength, shape, rate : float
        Parameters of the prior of location and scale (see ``Gaussian``).
    center, unit : float
        Median of all y, and the scale of their middle half, which place the bins.
    learn_df : bool
        Whether ``calibrate`` chooses ``df`` too.
    """

    sites: ClassVar[Mapping[str, Site]] = Gaussian.sites
    standardised: ClassVar[bool] = True
    robust: ClassVar[bool] = True
    exact: ClassVar[bool] = False
    gradient: ClassVar[type[LeafGradient] | None] = StudentGradient

    df: float = 4.0
    mean: float = 0.0
    strength: float = 0.1
    shape: float = 2.0
    rate: float = 0.2
    center: float = 0.0
    unit: float = 1.0
    learn_df: bool = True

    def __post_init__(self) -> None:
        check_positive(
            strength=self.strength, shape=self.shape, rate=self.rate, unit=self.unit, df=self.df
        )
        if self.df <= 2:
            raise ValueError(f"df must be more than 2, so that y has a variance, got {self.df}.")

    @property
    def bins(self) -> Bins:
        """The intervals of y whose sums are the statistics."""
        return Bins(self.center, self.unit)

    @property
    def criterion(self) -> Criterion:
        return Robust(self.df, self.unit)

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        """Return the family with the median and the scale of the middle half of these rows."""
        center, unit = robust_units(*(part.double().numpy(force=True) for part in (y, weights)))
        rate = Gaussian.rate * unit**2
        return replace(self, mean=center, rate=rate, center=center, unit=unit)

    def prior(self, like: Tensor) -> StudentPosterior:
        shape, rate = like.new_full((), self.shape), like.new_full((), self.rate)
        return StudentPosterior(self.mean, self.strength, shape, rate, df=self.df)

    def posterior(self, sums: Tensor) -> StudentPosterior:
        law, _ = self._fitted(sums)
        return law

    def _fitted(self, sums: Tensor) -> tuple[StudentPosterior, Tensor]:
        """Return the posterior, and sums (L, 3) of a normal, weighted by precisions."""
        parts = sums.unflatten(-1, (-1, 3))
        mass = parts[..., 0].sum(-1)
        shape, df = self.shape + mass / 2, self.df
        loc = torch.where(mass > 0, location(parts), self.mean)
        square, uncertainty = torch.full_like(loc, self.unit**2), torch.zeros_like(loc)
        for _ in range(STEPS):
            away = Bins.squares(parts, loc) / square.unsqueeze(-1) + uncertainty.unsqueeze(-1)
            weight = (self.df + 1) / (self.df + away)
            share, first, second = (parts * weight.unsqueeze(-1)).sum(-2).unbind(-1)
            strength = self.strength + share
            loc = (self.strength * self.mean + first) / strength
            spread = second + self.strength * self.mean**2 - strength * loc**2
            # Rounding can leave the spread of equal values just below zero.
            square = (self.rate + spread.clamp_min(0.0) / 2) / shape
            uncertainty = 1 / strength
        # Fisher information of a t: (df + 1) / (df + 3) of a normal's in the location, and
        # df / (df + 3) in the logarithm of the scale.
        strength = self.strength + (df + 1) / (df + 3) * share
        shape = self.shape + df / (df + 3) * mass / 2
        law = StudentPosterior(loc, strength, shape, shape * square, self.prior(sums), df)
        return law, torch.stack((share, first, second), dim=-1)

    def distribution(self, sites: Sites) -> dist.StudentT:
        return dist.StudentT(self.df, sites["leaf_mean"], sites["leaf_scale"])

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return self.bins.statistics(y, weights)

    def calibrate(self, sums: Tensor) -> Self:
        """Learn the prior: the highest marginal likelihood given the precisions of the rows.

        ``df`` has the highest likelihood of the leaves at their estimates, among ``DFS``.
        """
        found = sums[sums.unflatten(-1, (-1, 3))[..., 0].sum(-1) > 0].double().cpu()
        own = self
        if self.learn_df:
            own = max((replace(self, df=df) for df in DFS), key=lambda one: one._likelihood(found))
        _, weighted = own._fitted(found)
        # of the mass of all rows, on which the estimate of the scale is based
        mass = found.unflatten(-1, (-1, 3))[..., 0].sum(-1)
        rescaled = weighted * (mass / weighted[..., 0]).unsqueeze(-1)
        prior = Gaussian(self.mean, self.strength, self.shape, self.rate).calibrate(rescaled)
        return replace(own, strength=prior.strength, shape=prior.shape, rate=prior.rate)

    def _likelihood(self, sums: Tensor) -> float:
        """Return the log-likelihood of all leaves at their estimates."""
        sites, parts = self.estimate(sums), sums.unflatten(-1, (-1, 3))
        away = Bins.squares(parts, sites["leaf_mean"]) / sites["leaf_scale"].unsqueeze(-1) ** 2
        each = _constant(self.df) - sites["leaf_scale"].log().unsqueeze(-1)
        each = each - (self.df + 1) / 2 * torch.log1p(away / self.df)
        return float((parts[..., 0] * each).sum())

    @property
    def _sd(self) -> float:
        """Standard deviation of t_df."""
        return math.sqrt(self.df / (self.df - 2))

    def sd_y(self, sites: Sites) -> FloatArray:
        return self._sd * sites["leaf_scale"].numpy(force=True)

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        away = (y[:, None] - sites["leaf_mean"].numpy(force=True)) / sites["leaf_scale"].numpy(
            force=True
        )
        return stdtr(self.df, away)

    def reach(self, sites: Sites, X: AnyArray, known: FloatArray | None = None) -> Interval:
        """Return the ends of an interval that has all but 1e-9 of the mass of y in any leaf."""
        # P(|t| > x) <= (x / sqrt(df))^-df sqrt(df) for all df > 2
        mean, scale = sites["leaf_mean"].numpy(force=True), float(sites["leaf_scale"].max())
        reach = scale * math.sqrt(self.df) * (1e9 * math.sqrt(self.df)) ** (1 / self.df)
        return float(mean.min() - reach), float(mean.max() + reach)

    def misfit(self, y: FloatArray, predicted: FloatArray) -> FloatArray:
        return np.log1p(((y - predicted) / self.unit) ** 2 / self.df)

    def moments(self, draws: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        return {"leaf_scale": self._sd * draws["leaf_scale"]}

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        return {"value": self.estimate(sums)["leaf_mean"].double().numpy()}


def _constant(df: float) -> float:
    """Return the logarithm of the density of t_df at 0."""
    found = gammaln((df + 1) / 2) - gammaln(df / 2) - math.log(df * math.pi) / 2
    return float(found)
