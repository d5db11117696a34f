"""Leaves in which the mean of y is a linear function of the features.

The sufficient statistics of a leaf are sums of products of y and the features.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy.special import ndtr
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.state import cached
from bayestree.distributions import inverse_gamma_scale
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.base import (
    LeafDistribution,
    LeafGradient,
    NumericLeaf,
    RegressingLeaf,
    most_likely,
)
from bayestree.models.leaves.gaussian import (
    LOG_2PI,
    MIN_VARIANCE,
    SHAPES,
    STRENGTHS,
    Gaussian,
    GaussianGradient,
    normal_log_density,
    surprise,
)
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive

SLOPE_STRENGTHS = (1e-4, 1e4)  # of a calibrated prior of the slopes


class RegressionSums(NamedTuple):
    """Sums over rows, with the row x = (1, features): x x' (..., p, p), x y (..., p), y^2 (...)."""

    gram: Tensor
    cross: Tensor
    square: Tensor

    def solve(self, precision: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Solve the ridge regression with ``precision`` (p, p) added to the Gram matrix.

        Returns the coefficients (..., p), the minimum of the penalised sum of squares, and the
        Cholesky factor of the sum of both matrices.
        """
        root = torch.linalg.cholesky(self.gram + precision)
        half = torch.linalg.solve_triangular(root, self.cross.unsqueeze(-1), upper=False)
        loc = torch.linalg.solve_triangular(root.mT, half, upper=True).squeeze(-1)
        return loc, self.square - half.square().sum((-2, -1)), root


def with_constant(X: Tensor) -> Tensor:
    """Return the rows (1, x), shape (n, 1 + d)."""
    return torch.cat((torch.ones_like(X[:, :1]), X), dim=1)


def lower_triangle(width: int) -> Tensor:
    """Return the place of each entry of a symmetric matrix in its lower triangle."""
    place = torch.zeros(width, width, dtype=torch.long)
    first, second = torch.tril_indices(width, width)
    place[first, second] = place[second, first] = torch.arange(len(first))
    return place


def products(y: Tensor, weights: Tensor) -> Tensor:
    """Compute products of (1, y, features) for each weighted row of ``y`` (n, 1 + d), (n, c).

    Each product occurs once. The first three columns are, as for normal leaves, w, w y, w y^2.
    """
    row = with_constant(y)
    first, second = torch.tril_indices(row.shape[1], row.shape[1], device=y.device)
    return row[:, first] * row[:, second] * weights.unsqueeze(-1)


def moments(sums: Tensor) -> RegressionSums:
    """Unpack sums (..., c) of :func:`products`."""
    gram, cross = (index.to(sums.device) for index in _places(sums.shape[-1]))
    return RegressionSums(sums[..., gram], sums[..., cross], sums[..., 2])


@cached
def _places(count: int) -> tuple[Tensor, Tensor]:
    """Return the positions of the entries of ``gram`` and ``cross`` among ``count`` products."""
    width = (math.isqrt(8 * count + 1) - 1) // 2
    place = lower_triangle(width)
    own = torch.tensor([0, *range(2, width)])  # all but y
    return place[own][:, own], place[own, 1]


@dataclass(frozen=True)
class LinearError(Criterion):
    """Log-likelihood of a linear regression in each set of rows, at the best common variance.

    Each coefficient costs a nat (Akaike, 1974) and more where rows are few, since noise fits them
    the better the more coefficients there are (Hurvich and Tsai, 1989). A split adds d + 1
    coefficients. ``ridge`` rows of slope 0 keep sets of few rows determined; as the prior of
    slopes, which follows the noise, it would forbid an almost perfect fit.
    """

    pure: ClassVar[float] = math.inf
    costly: ClassVar[bool] = True
    ridge: float = 1e-3

    def value(self, sums: Tensor) -> Tensor:
        return self._nats(*self._fit(sums), sums[..., 0])

    def impurity(self, sums: Tensor) -> Tensor:
        return self._fit(sums)[0]

    def split_value(self, side: Tensor, whole: Tensor) -> Tensor:
        square, count = self._fit(torch.stack((side, whole - side)))
        return self._nats(square.sum(0), 2 * count, whole[..., 0])

    def _fit(self, sums: Tensor) -> tuple[Tensor, int]:
        """Sum of squares about the regression, and the number of its coefficients."""
        found = moments(sums)
        count = found.cross.shape[-1]
        _, square, _ = found.solve(self.ridge * torch.eye(count).to(sums))
        return square, count

    def _nats(self, square: Tensor, count: int, total: Tensor) -> Tensor:
        # A perfect fit has no finite likelihood; the floor is the rounding error of the sums.
        variance = (square / total).clamp_min(torch.finfo(square.dtype).eps)
        # The penalty diverges as the rows run out; from there on one degree of freedom is assumed.
        spare = (total - count - 2).clamp_min(1)
        return -0.5 * total * variance.log() - total * (count + 1) / spare


@dataclass(frozen=True)
class LinearNormalInverseGamma(LeafDistribution):
    """Normal-inverse-gamma distribution of each leaf's coefficients and variance.

    leaf_scale^2 ~ InverseGamma(shape, rate) and, given it, (leaf_mean, leaf_slope) ~
    Normal(loc, leaf_scale^2 precision^-1), with loc (L, 1 + d) and precision (L, 1 + d, 1 + d).
    """

    loc: Tensor
    precision: Tensor
    shape: Tensor
    rate: Tensor
    prior: "LinearNormalInverseGamma | None" = None

    @property
    def covariance(self) -> Tensor:
        """Inverse of the precision, shape (L, 1 + d, 1 + d)."""
        return torch.cholesky_inverse(torch.linalg.cholesky(self.precision))

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        yield "leaf_scale", inverse_gamma_scale(self.shape, self.rate)
        scale = sites["leaf_scale"].unsqueeze(-1)
        root = torch.linalg.cholesky(self.covariance[..., 1:, 1:])
        law = dist.MultivariateNormal(
            self.loc[..., 1:], scale_tril=scale.unsqueeze(-1) * root, validate_args=False
        )
        yield "leaf_slope", law
        # The conditional of the first coefficient of a normal given the others.
        own, others = self.precision[..., 0, 0], self.precision[..., 0, 1:]
        away = (others * (sites["leaf_slope"] - self.loc[..., 1:])).sum(-1)
        yield "leaf_mean", dist.Normal(self.loc[..., 0] - away / own, scale[..., 0] / own.sqrt())

    def expected_log_density(self, y: Tensor) -> Tensor:
        row = with_constant(y[:, 1:])
        precision = self.shape / self.rate
        log_precision = torch.digamma(self.shape) - self.rate.log()
        squares = (row.unsqueeze(2) * row.unsqueeze(1)).flatten(1)
        spread = squares @ self.covariance.flatten(-2).T
        square = (y[:, :1] - row @ self.loc.T) ** 2 * precision + spread
        return (log_precision - LOG_2PI - square) / 2

    def kl(self) -> Tensor:
        prior = self.prior or self
        variances = kl_divergence(
            dist.Gamma(self.shape, self.rate), dist.Gamma(prior.shape, prior.rate)
        )
        away = (self.loc - prior.loc).unsqueeze(-1)
        shift = (away.mT @ prior.precision @ away)[..., 0, 0] * self.shape / self.rate
        ratio = torch.logdet(self.precision) - torch.logdet(prior.precision)
        trace = (prior.precision * self.covariance).sum((-2, -1))
        return (variances + (trace - self.loc.shape[-1] + ratio + shift) / 2).sum()

    def mean(self) -> dict[str, Tensor]:
        return {
            "leaf_scale": (self.rate / self.shape).sqrt(),
            "leaf_slope": self.loc[..., 1:],
            "leaf_mean": self.loc[..., 0],
        }


class LinearGradient(LeafGradient):
    """Means, logarithms of scales and slopes as the rows of one array (2 + d, L)."""

    def __init__(self, leaf: "LinearGaussian", y: FloatArray) -> None:
        constant = Gaussian(0.0, leaf.strength, leaf.shape, leaf.rate)
        self.leaf, self.constant = leaf, GaussianGradient(constant, y[:, 0])
        self.X = np.ascontiguousarray(y[:, 1:].T, dtype=np.float64)

    def read(self, free: FreeSites) -> FloatArray:
        return np.concatenate([self.constant.read(free), free["leaf_slope"].T])

    def _gap(self, leaves: FloatArray) -> FloatArray:
        """Return y minus its mean in each leaf, shape (L, n)."""
        return self.constant.y - leaves[0][:, None] - leaves[2:].T @ self.X

    def log_density(self, leaves: FloatArray) -> FloatArray:
        return normal_log_density(self._gap(leaves), leaves[1][:, None])

    def prior(self, leaves: FloatArray) -> float:
        # Normal(slope | 0, s^2 / k) gives exp(-d l - k |slope|^2 e^(-2 l) / 2) with l = log s.
        log_scale, slope = leaves[1], leaves[2:]
        square = 0.5 * self.leaf.slope_strength * (slope**2).sum(0) * np.exp(-2 * log_scale)
        return self.constant.prior(leaves[:2]) - float((len(slope) * log_scale + square).sum())

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        leaf, mean, log_scale, slope = self.leaf, leaves[0], leaves[1], leaves[2:].T
        precision, gap = np.exp(-2 * log_scale), self._gap(leaves)
        pull = member * gap
        into["leaf_mean"][...] = precision * (pull.sum(-1) - leaf.strength * mean)
        shrunk = pull @ self.X.T - leaf.slope_strength * slope
        into["leaf_slope"][...] = precision[:, None] * shrunk
        spread = 2 * leaf.rate + leaf.strength * mean**2 + np.einsum("ln,ln->l", pull, gap)
        spread += leaf.slope_strength * (slope**2).sum(-1)
        count = member.sum(-1) + 2 * leaf.shape + 1 + slope.shape[1]
        into["leaf_scale"][...] = precision * spread - count


@dataclass(frozen=True)
class LinearGaussian(RegressingLeaf, NumericLeaf):
    """Normal leaves whose mean is linear in the features, with conjugate priors.

    For y and features of mean 0 and variance 1: y ~ Normal(leaf_mean + leaf_slope . x,
    leaf_scale^2) in each leaf, with leaf_scale^2 ~ InverseGamma(shape, rate), leaf_mean ~
    Normal(0, leaf_scale^2 / strength) and leaf_slope ~ Normal(0, leaf_scale^2 / slope_strength).
    The shrinkage of the slopes limits what a leaf of few rows predicts far from them.

    Parameters
    ----------
    strength : float
        Number of prior rows for the mean where all features are 0.
    slope_strength : float
        Number of prior rows, one unit from the center in a feature, for its slope of 0.
    shape, rate : float
        Parameters of the inverse-gamma prior of a leaf's variance.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_slope": Site(("leaf", "feature")),
        "leaf_scale": Site(("leaf",), "positive"),
        "leaf_mean": Site(("leaf",)),
    }
    standardised: ClassVar[bool] = True
    most_features: ClassVar[int | None] = 50  # a row then has 1,378 sufficient statistics
    gradient: ClassVar[type[LeafGradient] | None] = LinearGradient

    strength: float = 0.1
    slope_strength: float = 1.0
    shape: float = 2.0
    rate: float = 0.2

    def __post_init__(self) -> None:
        check_positive(**vars(self))

    @property
    def criterion(self) -> Criterion:
        return LinearError()

    def check(self, y: Tensor) -> None:
        super().check(y)
        NumericLeaf.check(self, y)

    def target(self, y: Tensor) -> Tensor:
        return y if y.ndim == 1 else y[:, 0]

    def state(self, n_leaves: int, like: Tensor) -> dict[str, Tensor]:
        with pyro.plate("leaf", n_leaves, dim=-1):
            return self._prior(like.shape[-1], like.new_zeros(n_leaves)).state()

    def prior(self, like: Tensor) -> LinearNormalInverseGamma:
        return self._prior(like.shape[-1], like.new_zeros(()))

    def _prior(self, n_features: int, like: Tensor) -> LinearNormalInverseGamma:
        """Return the prior of leaves in the shape of ``like``, () or (L,)."""
        strengths = like.new_tensor([self.strength, *[self.slope_strength] * n_features])
        return LinearNormalInverseGamma(
            like.new_zeros(*like.shape, n_features + 1),
            strengths.diag().expand(*like.shape, -1, -1),
            torch.full_like(like, self.shape),
            torch.full_like(like, self.rate),
        )

    def posterior(self, sums: Tensor) -> LinearNormalInverseGamma:
        found = moments(sums)
        prior = self._prior(found.cross.shape[-1] - 1, sums.new_zeros(()))
        loc, spread, root = found.solve(prior.precision)
        # Rounding can leave the spread of a perfect fit just below zero.
        rate = self.rate + spread.clamp_min(0.0) / 2
        shape = self.shape + sums[..., 0] / 2
        return LinearNormalInverseGamma(loc, root @ root.mT, shape, rate, prior)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return products(y, weights)

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        return dist.Normal(_center(sites, y[:, 1:]), sites["leaf_scale"]).log_prob(y[:, :1])

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        mean = sites["leaf_mean"].unsqueeze(-1) + sites["leaf_slope"] @ y[..., 1:].mT
        return dist.Normal(mean, sites["leaf_scale"].unsqueeze(-1)).log_prob(y[..., None, :, 0])

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        assert X is not None
        leaves = dist.Normal(_center(sites, X), sites["leaf_scale"].expand(log_prob.shape))
        return dist.MixtureSameFamily(dist.Categorical(logits=log_prob), leaves)

    def draw(
        self, sites: Sites, leaf: Tensor, X: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        assert X is not None
        mean = sites["leaf_mean"][leaf] + (sites["leaf_slope"][leaf] * X).sum(-1)
        return dist.Normal(mean, sites["leaf_scale"][leaf]).sample()

    def calibrate(self, sums: Tensor) -> Self:
        """Learn strengths, shape and rate as in ``Gaussian``."""
        found = moments(sums[sums[:, 0] > 0].double().cpu())
        mass = found.gram[:, 0, 0].numpy()
        own = found.gram.new_tensor([1.0] + [0.0] * (found.cross.shape[-1] - 1))
        _, spread, _ = found.solve((self.strength * own + self.slope_strength * (1 - own)).diag())
        pooled = max(float(spread.sum() / mass.sum()), MIN_VARIANCE)

        def loss(free: FloatArray) -> float:
            strength, slope_strength, shape, variance = np.exp(free)
            prior = strength * own + slope_strength * (1 - own)
            _, spread, root = found.solve(prior.diag())
            volume = root.diagonal(dim1=-2, dim2=-1).log().sum(-1) - prior.log().sum() / 2
            squares = np.maximum(spread.numpy(), 0.0)
            return surprise(mass, squares, volume.numpy(), shape, shape * variance)

        limits = [STRENGTHS, SLOPE_STRENGTHS, SHAPES, (MIN_VARIANCE, max(4 * pooled, 1.0))]
        start = [self.strength, self.slope_strength, 10.0, pooled]
        strength, slopes, shape, variance = most_likely(loss, start, limits)
        learned = {"strength": strength, "slope_strength": slopes, "shape": shape}
        return replace(self, **learned, rate=shape * variance)

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        return _center(sites, torch.as_tensor(X).to(sites["leaf_mean"])).numpy(force=True)

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        values = self.expected_y(sites, X).reshape(probs.shape)
        return np.einsum("nsl,nsl->sn", probs, values)

    def sd_y(self, sites: Sites) -> FloatArray:
        return sites["leaf_scale"].numpy(force=True)

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        found = self.posterior(sums).loc.numpy()
        return {"value": found[:, 0], "slope": found[:, 1:]}

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        mean = self.expected_y(sites, y[:, 1:])
        return ndtr((y[:, :1] - mean) / sites["leaf_scale"].numpy(force=True))


def _center(sites: Sites, X: Tensor) -> Tensor:
    """Return the mean of y in each leaf, shape (n, L)."""
    return sites["leaf_mean"] + X @ sites["leaf_slope"].mT
