"""Leaves with normal distributions of y."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.special import gammaln, ndtr
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.distributions import inverse_gamma_scale
from bayestree.models.criteria import Criterion, SquaredError
from bayestree.models.leaves.base import LeafDistribution, LeafGradient, NumericLeaf, most_likely
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive

MIN_VARIANCE = 1e-6  # the density of y would be infinite where leaves fit perfectly
STRENGTHS = (1e-6, 1.0)  # a calibrated prior is worth one row at most for the mean of a leaf
SHAPES = (1.0, 50.0)  # and 2 to 100 rows for its scale: no pooling to practically one scale
LOG_2PI = math.log(2 * math.pi)
WIDTH = 3  # number of statistics of an output


@dataclass(frozen=True)
class NormalInverseGamma(LeafDistribution):
    """Normal-inverse-gamma distribution of each leaf's mean and variance; parameters are (L,).

    leaf_scale^2 ~ InverseGamma(shape, rate), leaf_mean ~ Normal(loc, leaf_scale^2 / strength).
    """

    loc: Tensor | float
    strength: Tensor | float
    shape: Tensor
    rate: Tensor
    prior: "NormalInverseGamma | None" = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        yield "leaf_scale", inverse_gamma_scale(self.shape, self.rate)
        yield "leaf_mean", dist.Normal(self.loc, sites["leaf_scale"] / self.strength**0.5)

    def expected_log_density(self, y: Tensor) -> Tensor:
        precision = self.shape / self.rate
        log_precision = torch.digamma(self.shape) - self.rate.log()
        square = (y.unsqueeze(-1) - self.loc) ** 2 * precision + 1 / self.strength
        return (log_precision - LOG_2PI - square) / 2

    def kl(self) -> Tensor:
        prior = self.prior or self
        variances = kl_divergence(
            dist.Gamma(self.shape, self.rate), dist.Gamma(prior.shape, prior.rate)
        )
        ratio = torch.as_tensor(prior.strength / self.strength)
        shift = prior.strength * (self.loc - prior.loc) ** 2 * self.shape / self.rate
        return (variances + (ratio - 1 - ratio.log() + shift) / 2).sum()

    def mean(self) -> dict[str, Tensor]:
        scale = (self.rate / self.shape).sqrt()
        return {"leaf_scale": scale, "leaf_mean": torch.as_tensor(self.loc).expand(scale.shape)}


def surprise(
    mass: FloatArray, spread: FloatArray, volume: FloatArray, shape: float, rate: float
) -> float:
    """Return -log p(y of all leaves), up to a constant, under a normal-inverse-gamma prior.

    Integrating the prior InverseGamma(a, b) of the variance leaves, for a leaf of mass m,
    exp(-volume) Gamma(a + m/2) / Gamma(a) b^-(m/2) (1 + spread / 2b)^-(a + m/2). There exp(-volume)
    is the square root of |prior| / |posterior|, the precisions of the coefficients.
    """
    grown = np.log1p(spread / (2 * rate))
    terms = gammaln(shape) - gammaln(shape + mass / 2) + volume
    terms += mass / 2 * np.log(rate) + (shape + mass / 2) * grown
    return float(terms.sum())


def normal_log_density(gap: FloatArray, log_scale: FloatArray) -> FloatArray:
    """Return the log-density of normals with the mean 0 at the values of ``gap``, in place."""
    gap *= math.sqrt(0.5) * np.exp(-log_scale)
    gap *= gap
    return np.subtract(-log_scale - 0.5 * LOG_2PI, gap, out=gap)


class GaussianGradient(LeafGradient):
    """Means and logarithms of scales, shape (2, L)."""

    leaf: Any  # with the prior of ``Gaussian``

    def __init__(self, leaf: "Gaussian", y: FloatArray) -> None:
        self.leaf = leaf
        self.y = y.astype(np.float64)

    def read(self, free: FreeSites) -> FloatArray:
        return np.stack([free["leaf_mean"], free["leaf_scale"]])

    def log_density(self, leaves: FloatArray) -> FloatArray:
        mean, log_scale = leaves[..., None]
        return normal_log_density(self.y - mean, log_scale)

    def prior(self, leaves: FloatArray) -> float:
        # With l = log s, InverseGamma of s^2 and the Jacobian 2 s^2 give exp(-2 a l - b e^(-2 l)),
        # Normal(mean | m, s^2 / k) gives exp(-l - k (mean - m)^2 e^(-2 l) / 2).
        leaf, (mean, log_scale) = self.leaf, leaves
        spread = leaf.rate + 0.5 * leaf.strength * (mean - leaf.mean) ** 2
        return -float(((2 * leaf.shape + 1) * log_scale + spread * np.exp(-2 * log_scale)).sum())

    def pull(self, leaves: FloatArray, member: FloatArray, gap: FloatArray) -> FloatArray:
        """Return the slope of each row's density in the means, times squared scales, (L, n)."""
        return member * gap

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        leaf, (mean, log_scale) = self.leaf, leaves
        precision = np.exp(-2 * log_scale)
        mass, gap = member.sum(-1), self.y - mean[:, None]
        pull = self.pull(leaves, member, gap)
        away = mean - leaf.mean
        into["leaf_mean"][...] = precision * (pull.sum(-1) - leaf.strength * away)
        spread = 2 * leaf.rate + leaf.strength * away**2 + np.einsum("ln,ln->l", pull, gap)
        into["leaf_scale"][...] = precision * spread - mass - 2 * leaf.shape - 1


@dataclass(frozen=True)
class Gaussian(NumericLeaf):
    """Normal leaves with conjugate priors, for y of mean 0 and variance 1.

    leaf_scale^2 ~ InverseGamma(shape, rate), leaf_mean ~ Normal(mean, leaf_scale^2 / strength).

    Parameters
    ----------
    mean, strength : float
        Prior mean of a leaf, and the number of prior rows that it counts for.
    shape, rate : float
        Parameters of the inverse-gamma prior of a leaf's variance.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_scale": Site(("leaf",), "positive"),
        "leaf_mean": Site(("leaf",)),
    }
    impurity: ClassVar[str] = "variance"
    standardised: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    level_site = "leaf_mean"
    gradient: ClassVar[type[LeafGradient] | None] = GaussianGradient

    mean: float = 0.0
    strength: float = 0.1
    shape: float = 2.0
    rate: float = 0.2

    def __post_init__(self) -> None:
        check_positive(strength=self.strength, shape=self.shape, rate=self.rate)

    @property
    def criterion(self) -> Criterion:
        return SquaredError()

    def prior(self, like: Tensor) -> NormalInverseGamma:
        shape, rate = like.new_full((), self.shape), like.new_full((), self.rate)
        return NormalInverseGamma(self.mean, self.strength, shape, rate)

    def posterior(self, sums: Tensor) -> NormalInverseGamma:
        mass, first, second = sums.unbind(-1)
        strength = mass + self.strength
        loc = (first + self.strength * self.mean) / strength
        spread = second + self.strength * self.mean**2 - strength * loc**2
        # Rounding can leave the spread of equal values just below zero.
        rate = self.rate + spread.clamp_min(0.0) / 2
        return NormalInverseGamma(loc, strength, self.shape + mass / 2, rate, self.prior(sums))

    def distribution(self, sites: Sites) -> dist.Normal:
        return dist.Normal(sites["leaf_mean"], sites["leaf_scale"])

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return torch.stack((weights, weights * y, weights * y**2), dim=-1)

    def calibrate(self, sums: Tensor) -> Self:
        """Learn strength, shape and rate: the highest marginal likelihood of the leaves.

        ``shape`` becomes large where the leaves' variances are alike, so that small leaves share
        the scale of all, and small where they differ. With ``strength`` the prior of the means
        follows the noise: fixed, it would add ``strength / 2`` squared means to each leaf's rate.
        """
        columns = sums.double().numpy(force=True)
        mass, first, second = columns[columns[:, 0] > 0].T
        loc = first / mass
        # Rounding can leave a spread just below zero.
        inside = np.maximum(second - first * loc, 0.0)
        pooled = max(float(inside.sum() / mass.sum()), MIN_VARIANCE)

        def loss(free: FloatArray) -> float:
            strength, shape, variance = np.exp(free)
            between = strength * mass / (strength + mass) * (loc - self.mean) ** 2
            volume = np.log1p(mass / strength) / 2
            return surprise(mass, inside + between, volume, shape, shape * variance)

        limits = [STRENGTHS, SHAPES, (MIN_VARIANCE, max(4 * pooled, 1.0))]
        strength, shape, variance = most_likely(loss, [self.strength, 10.0, pooled], limits)
        return replace(self, strength=strength, shape=shape, rate=shape * variance)

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        return ndtr(
            (y[:, None] - sites["leaf_mean"].numpy(force=True))
            / sites["leaf_scale"].numpy(force=True)
        )


@dataclass(frozen=True)
class Together(Criterion):
    """Sum of the log-likelihoods of a split over the outputs, by the criteria of each."""

    parts: tuple[Criterion, ...]

    def _each(self, sums: Tensor) -> Iterator[tuple[Criterion, Tensor]]:
        return zip(self.parts, sums.split(WIDTH, -1), strict=True)

    def value(self, sums: Tensor) -> Tensor:
        first, *others = (part.nats(part.value(own), own) for part, own in self._each(sums))
        return sum(others, start=first)

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        both = zip(self._each(side), whole.split(WIDTH, -1), strict=True)
        first, *others = (
            part.nats(part.split_value(own, total), total) for (part, own), total in both
        )
        return sum(others, start=first)

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        both = zip(self._each(side), whole.split(WIDTH, -1), strict=True)
        nats, slopes = zip(*(part.ascent(own, total) for (part, own), total in both), strict=True)
        return torch.stack(nats).sum(0), torch.cat(slopes, dim=-1)


@dataclass(frozen=True)
class Product(LeafDistribution):
    """Independent distributions of the outputs, whose sites have them as last dimension."""

    parts: tuple[NormalInverseGamma, ...]
    prior: "Product | None" = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        for name, law in _joined(self.parts).conditionals(sites):
            yield name, law.to_event(1)

    def expected_log_density(self, y: Tensor) -> Tensor:
        each = (part.expected_log_density(own) for part, own in zip(self.parts, y.T, strict=True))
        return torch.stack([*each]).sum(0)

    def kl(self) -> Tensor:
        return torch.stack([part.kl() for part in self.parts]).sum()

    def mean(self) -> dict[str, Tensor]:
        return _joined(self.parts).mean()


def _joined(parts: tuple[NormalInverseGamma, ...]) -> NormalInverseGamma:
    def stacked(name: str) -> Tensor:
        shape = parts[0].shape
        values = [torch.as_tensor(getattr(part, name)).to(shape) for part in parts]
        return torch.stack([value.expand(shape.shape) for value in values], dim=-1)

    return NormalInverseGamma(
        stacked("loc"), stacked("strength"), stacked("shape"), stacked("rate")
    )


@dataclass(frozen=True)
class Outputs(NumericLeaf):
    """Normal leaves of several outputs: y (n, q), one ``Gaussian`` for each, given the leaf.

    Parameters
    ----------
    parts : tuple of Gaussian
        The prior of each output; y has mean 0 and variance 1 in each.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_scale": Site(("leaf", "output"), "positive"),
        "leaf_mean": Site(("leaf", "output")),
    }
    standardised: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    quantity: ClassVar[str] = "means"

    parts: tuple[Gaussian, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts must hold one Gaussian for each output, got none.")

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return len(self.parts)

    @property
    def criterion(self) -> Criterion:
        return Together(tuple(part.criterion for part in self.parts))

    def check(self, y: Tensor) -> None:
        super().check(y)
        if y.ndim != 2 or y.shape[1] != self.n_outputs:
            raise ValueError(
                f"y must have {self.n_outputs} columns, one for each output, got the shape "
                f"{tuple(y.shape)}."
            )

    def prior(self, like: Tensor) -> Product:
        return Product(tuple(part.prior(like) for part in self.parts))

    def posterior(self, sums: Tensor) -> Product:
        own = zip(self.parts, sums.split(WIDTH, -1), strict=True)
        return Product(tuple(part.posterior(some) for part, some in own), self.prior(sums))

    def distribution(self, sites: Sites) -> dist.Independent:
        return dist.Normal(sites["leaf_mean"], sites["leaf_scale"]).to_event(1)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        each = [part.statistics(own, weights) for part, own in zip(self.parts, y.T, strict=True)]
        return torch.cat(each, dim=-1)

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        return self.distribution(sites).log_prob(y.unsqueeze(1))

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        leaves = {name: sites[name].unsqueeze(2) for name in self.sites}
        return self.distribution(leaves).log_prob(y.unsqueeze(1))

    def calibrate(self, sums: Tensor) -> Self:
        own = zip(self.parts, sums.split(WIDTH, -1), strict=True)
        return replace(self, parts=tuple(part.calibrate(some) for part, some in own))

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        values = self.expected_y(sites, X).reshape(*probs.shape[1:], -1)
        return np.matmul(probs.swapaxes(0, 1), values)

    def misfit(self, y: FloatArray, predicted: FloatArray) -> FloatArray:
        return ((y - predicted) ** 2).sum(axis=1)
