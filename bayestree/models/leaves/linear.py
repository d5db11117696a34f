"""Leaves in which the mean of y is a linear function of the features.

The sufficient statistics of a leaf are sums of products of y and the features. Each feature has a
strength of its own, by which its slopes in all leaves shrink towards 0. It is learned from the
marginal likelihood, which is highest at an infinite strength for most features that have no effect
(automatic relevance determination; Tipping, "Sparse Bayesian learning and the relevance vector
machine", 2001). Such features keep a slope of practically 0, and leave the sums.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy.special import digamma, ndtr
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
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

SLOPE_STRENGTHS = (1e-4, 1e7)  # of a calibrated prior of the slopes
#: Fixed strength of a feature without a slope: the standard deviation is then 1e-4 of the noise's.
NO_SLOPE = 1e8
START = 1.0  # strength of each slope before it is learned
RELEVANT = 0.05  # share of a slope that its prior must leave in some leaf, or it is irrelevant
MOST_SLOPES = 50  # a row then has 1,378 sufficient statistics
ROWS_OF_A_SLOPE = 5  # rows of a fit, at least, for each feature that may have slopes
SCREENED = 150  # features of which these are chosen, by their correlation with y


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
    return torch.cat((X.new_ones(len(X), 1), X), dim=1)


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


class Slopes(dist.TorchDistribution):
    """Joint normal distribution of some of d slopes, and independent ones of the others.

    ``law`` is that of the slopes that ``sloping`` (d,) marks, and ``scale`` (..., 1) the standard
    deviation of the others.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = dist.constraints.real_vector
    has_rsample = True

    def __init__(self, law: dist.MultivariateNormal, scale: Tensor, sloping: Tensor) -> None:
        self.law, self.scale, self.sloping = law, scale, sloping
        self.some = bool(sloping.any())  # torch computes no density of an empty vector
        super().__init__(law.batch_shape, sloping.shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Slopes":
        law, scale = self.law.expand(batch_shape), self.scale.expand(*batch_shape, 1)
        return Slopes(law, scale, self.sloping)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        found = self.scale * torch.randn(shape, dtype=self.scale.dtype, device=self.scale.device)
        if self.some:
            found[..., self.sloping] = self.law.rsample(sample_shape)
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        others = dist.Normal(0.0, self.scale).log_prob(value[..., ~self.sloping]).sum(-1)
        return self.law.log_prob(value[..., self.sloping]) + others if self.some else others


@dataclass(frozen=True)
class LinearNormalInverseGamma(LeafDistribution):
    """Normal-inverse-gamma distribution of each leaf's coefficients and variance.

    leaf_scale^2 ~ InverseGamma(shape, rate) and, given it, (leaf_mean, leaf_slope) ~
    Normal(loc, leaf_scale^2 precision^-1), with loc (L, 1 + p) and precision (L, 1 + p, 1 + p) for
    the p of d slopes that ``sloping`` (d,) marks. The others keep their prior of mean 0 and
    strength ``NO_SLOPE``.
    """

    loc: Tensor
    precision: Tensor
    shape: Tensor
    rate: Tensor
    sloping: Tensor
    prior: "LinearNormalInverseGamma | None" = None

    @property
    def covariance(self) -> Tensor:
        """Inverse of the precision, shape (L, 1 + p, 1 + p)."""
        return torch.cholesky_inverse(torch.linalg.cholesky(self.precision))

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        yield "leaf_scale", inverse_gamma_scale(self.shape, self.rate)
        scale = sites["leaf_scale"].unsqueeze(-1)
        root = torch.linalg.cholesky(self.covariance[..., 1:, 1:])
        law = dist.MultivariateNormal(
            self.loc[..., 1:], scale_tril=scale.unsqueeze(-1) * root, validate_args=False
        )
        yield "leaf_slope", Slopes(law, scale / NO_SLOPE**0.5, self.sloping)
        # The conditional of the first coefficient of a normal given the others.
        own, others = self.precision[..., 0, 0], self.precision[..., 0, 1:]
        away = (others * (sites["leaf_slope"][..., self.sloping] - self.loc[..., 1:])).sum(-1)
        yield "leaf_mean", dist.Normal(self.loc[..., 0] - away / own, scale[..., 0] / own.sqrt())

    def expected_log_density(self, y: Tensor) -> Tensor:
        row = with_constant(y[:, 1:][:, self.sloping])  # other slopes add 1e-8 of the noise
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

    @property
    def slope(self) -> Tensor:
        """Mean of all slopes, shape (L, d)."""
        found = self.loc.new_zeros(*self.loc.shape[:-1], len(self.sloping))
        found[..., self.sloping] = self.loc[..., 1:]
        return found

    def mean(self) -> dict[str, Tensor]:
        return {
            "leaf_scale": (self.rate / self.shape).sqrt(),
            "leaf_slope": self.slope,
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
        # Normal(slope | 0, s^2 / k) gives exp(-l - k slope^2 e^(-2 l) / 2) with l = log s.
        log_scale, slope = leaves[1], leaves[2:]
        strengths = self.leaf.strengths(len(slope))
        square = 0.5 * (strengths @ slope**2) * np.exp(-2 * log_scale)
        return self.constant.prior(leaves[:2]) - float((len(slope) * log_scale + square).sum())

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        leaf, mean, log_scale, slope = self.leaf, leaves[0], leaves[1], leaves[2:].T
        precision, gap = np.exp(-2 * log_scale), self._gap(leaves)
        pull = member * gap
        into["leaf_mean"][...] = precision * (pull.sum(-1) - leaf.strength * mean)
        strengths = leaf.strengths(slope.shape[1])
        shrunk = pull @ self.X.T - strengths * slope
        into["leaf_slope"][...] = precision[:, None] * shrunk
        spread = 2 * leaf.rate + leaf.strength * mean**2 + np.einsum("ln,ln->l", pull, gap)
        spread += slope**2 @ strengths
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
    slope_strength : float or tuple of d floats
        Number of prior rows, one unit from the center in a feature, for its slope of 0: of all
        features, or of each. Features of 1e8 or more have no slopes.
    shape, rate : float
        Parameters of the inverse-gamma prior of a leaf's variance.
    price : float
        What a slope costs when the strengths are learned, in nats for each row.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_slope": Site(("leaf", "feature")),
        "leaf_scale": Site(("leaf",), "positive"),
        "leaf_mean": Site(("leaf",)),
    }
    standardised: ClassVar[bool] = True
    gradient: ClassVar[type[LeafGradient] | None] = LinearGradient

    strength: float = 0.1
    slope_strength: float | tuple[float, ...] = 1.0
    shape: float = 2.0
    rate: float = 0.2
    price: float = 0.0

    def __post_init__(self) -> None:
        each = np.atleast_1d(np.asarray(self.slope_strength, dtype=float))
        own = {f"slope_strength[{j}]": one for j, one in enumerate(each.tolist())}
        check_positive(strength=self.strength, shape=self.shape, rate=self.rate, **own)
        if not isinstance(self.slope_strength, tuple) and self.slope_strength >= NO_SLOPE:
            raise ValueError(
                f"slope_strength must be below {NO_SLOPE:g}, got {self.slope_strength:g}: use "
                "Gaussian() for leaves without slopes."
            )

    def strengths(self, n_features: int) -> FloatArray:
        """Return the strength of each feature, shape (d,)."""
        given = self.slope_strength
        if isinstance(given, tuple) and len(given) != n_features:
            raise ValueError(
                f"slope_strength must have a number for each of {n_features} features, got "
                f"{len(given)}."
            )
        return np.broadcast_to(np.asarray(given, dtype=float), n_features)

    def among(self, used: BoolArray) -> "LinearGaussian":
        given = self.slope_strength
        if not isinstance(given, tuple) or len(given) != len(used):
            return self
        return replace(self, slope_strength=tuple(compress(given, used.tolist())))

    def widened(self, used: BoolArray) -> "LinearGaussian":
        if isinstance(self.slope_strength, float):
            return self
        strengths = np.full(len(used), NO_SLOPE)
        strengths[used] = self.slope_strength
        return replace(self, slope_strength=tuple(strengths.tolist()))

    def _sloping(self, n_features: int) -> Tensor:
        """Mark the features that have slopes, (d,)."""
        return torch.as_tensor(self.strengths(n_features) < NO_SLOPE)

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
        sloping = self._sloping(n_features)
        slopes = self.strengths(n_features)[sloping.numpy()].tolist()
        strengths = like.new_tensor([self.strength, *slopes])
        return LinearNormalInverseGamma(
            like.new_zeros(*like.shape, len(strengths)),
            strengths.diag().expand(*like.shape, -1, -1),
            torch.full_like(like, self.shape),
            torch.full_like(like, self.rate),
            sloping.to(like.device),
        )

    def posterior(self, sums: Tensor) -> LinearNormalInverseGamma:
        found, given = moments(sums), self.slope_strength
        n_features = len(given) if isinstance(given, tuple) else found.cross.shape[-1] - 1
        prior = self._prior(n_features, sums.new_zeros(()))
        loc, spread, root = found.solve(prior.precision)
        # Rounding can leave the spread of a perfect fit just below zero.
        rate = self.rate + spread.clamp_min(0.0) / 2
        shape = self.shape + sums[..., 0] / 2
        return LinearNormalInverseGamma(loc, root @ root.mT, shape, rate, prior.sloping, prior)

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        """Choose the features that may have slopes where there are many, as for a single leaf.

        The best of d features of noise gains about log d nats, which is then the price of a slope
        (the risk inflation criterion; Foster and George, 1994).
        """
        n_features, n_rows = y.shape[1] - 1, float(weights.sum())
        n_open = int(self._sloping(n_features).sum())
        most = min(MOST_SLOPES, int(n_rows / ROWS_OF_A_SLOPE))
        if n_open <= most:
            return self
        price = math.log(n_open) / n_rows
        row = with_constant(y[:, 1:]).double()
        weighted, target = row * weights.double().unsqueeze(-1), y[:, 0].double()
        cross = target @ weighted
        size = torch.where(self._sloping(n_features).to(cross.device), cross[1:].abs(), -1.0)
        first = size.topk(min(n_open, SCREENED)).indices + 1
        some = torch.cat((first.new_zeros(1), first))
        gram = row[:, some].T @ weighted[:, some]
        found = RegressionSums(gram[None], cross[None, some], (weights * target**2).sum()[None])
        strengths, _ = self._learned(found, price)
        best = first[strengths[1:].argsort()[:most]] - 1
        slopes = np.full(n_features, NO_SLOPE)
        slopes[best.numpy(force=True)] = START
        return replace(self, slope_strength=tuple(slopes.tolist()), price=price)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        sloping = torch.nn.functional.pad(self._sloping(y.shape[1] - 1), (1, 0), value=True)
        return products(y if sloping.all() else y[:, sloping.to(y.device)], weights)

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
        """Learn the strengths, shape and rate as in ``Gaussian``."""
        found = moments(sums[sums[:, 0] > 0].double().cpu())
        (strength, *slopes), (shape, variance) = self._learned(found, self.price)
        prior = found.gram.new_tensor([strength, *slopes])
        _, _, root = found.solve(prior.diag())
        left = 1 - prior * torch.cholesky_inverse(root).diagonal(dim1=-2, dim2=-1)
        relevant = left.amax(0)[1:].numpy() > RELEVANT
        given, n_open = self.slope_strength, len(slopes)
        every = self.strengths(len(given) if isinstance(given, tuple) else n_open).copy()
        every[every < NO_SLOPE] = np.where(relevant, slopes, SLOPE_STRENGTHS[1])
        learned = {"strength": strength, "shape": shape, "rate": shape * variance}
        return replace(self, slope_strength=tuple(every.tolist()), **learned)

    def reduced(self) -> Self:
        if not isinstance(self.slope_strength, tuple):
            return self
        strengths = np.array(self.slope_strength)
        strengths[strengths >= SLOPE_STRENGTHS[1]] = NO_SLOPE
        return replace(self, slope_strength=tuple(strengths.tolist()))

    def _learned(self, found: RegressionSums, price: float) -> tuple[FloatArray, FloatArray]:
        """Maximise the marginal likelihood; return the strengths (1 + p,), and shape and variance.

        With the precision K of a leaf's coefficients, their mean b and the spread S, the terms in a
        strength k are (log|K| - log k) / 2 + (a + m / 2) log(1 + S / 2r) (see ``surprise``),
        where d log|K| / dk = (K^-1)_jj and dS / dk = b_j^2.
        """
        mass, count = found.gram[:, 0, 0].numpy(), found.cross.shape[-1]
        start = found.gram.new_tensor([self.strength] + [START] * (count - 1))
        _, spread, _ = found.solve(start.diag())
        pooled = max(float(spread.sum() / mass.sum()), MIN_VARIANCE)

        def loss(free: FloatArray) -> tuple[float, FloatArray]:
            prior, (shape, variance) = np.exp(free[:-2]), np.exp(free[-2:])
            loc, least, root = found.solve(found.gram.new_tensor(prior).diag())
            volume = root.diagonal(dim1=-2, dim2=-1).log().sum(-1).numpy() - free[:-2].sum() / 2
            spread, rate = np.maximum(least.numpy(), 0.0), shape * variance
            inverse = torch.cholesky_inverse(root).diagonal(dim1=-2, dim2=-1).numpy()
            after, inner = shape + mass / 2, 1 / (2 * rate + spread)
            of_prior = (prior * inverse - 1) / 2
            of_prior += (after * inner)[:, None] * prior * loc.numpy() ** 2
            of_rate = mass / 2 - after * spread * inner
            grown = np.log1p(spread / (2 * rate))
            of_shape = shape * (digamma(shape) - digamma(after) + grown) + of_rate
            slope = np.concatenate((of_prior.sum(0), [of_shape.sum(), of_rate.sum()]))
            # a price between 0, for a slope of variance 0, and the whole, for that of one row
            cost = price * mass.sum() / np.log1p(mass.sum())
            slope[1:-2] -= cost * mass.sum() / (prior[1:] + mass.sum())
            paid = cost * float(np.log1p(mass.sum() / prior[1:]).sum())
            return surprise(mass, spread, volume, shape, rate) + paid, slope

        limits = [STRENGTHS] + [SLOPE_STRENGTHS] * (count - 1)
        limits += [SHAPES, (MIN_VARIANCE, max(4 * pooled, 1.0))]
        learned = most_likely(loss, [*start.tolist(), 10.0, pooled], limits, gradient=True)
        return np.array(learned[:-2]), np.array(learned[-2:])

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        return _center(sites, torch.as_tensor(X).to(sites["leaf_mean"])).numpy(force=True)

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        values = self.expected_y(sites, X).reshape(probs.shape)
        return np.einsum("nsl,nsl->sn", probs, values)

    def sd_y(self, sites: Sites) -> FloatArray:
        return sites["leaf_scale"].numpy(force=True)

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        found = self.posterior(sums)
        slope = found.slope.numpy()
        slope[:, self.strengths(slope.shape[1]) >= SLOPE_STRENGTHS[1]] = 0.0
        return {"value": found.loc[:, 0].numpy(), "slope": slope}

    def sparse_values(self, sums: Tensor, most: float = math.inf) -> dict[str, FloatArray]:
        """Return the values of leaves with the slopes that pay for themselves, ``most`` in all.

        Slopes are dropped one after the other while each costs less likelihood than its price:
        half the logarithm of the number of rows, as in the Bayesian information criterion (Schwarz,
        1978), and then those of all leaves that cost least beyond it, while there are too many.
        Without slope j, the penalised squares rise by b_j^2 / (K^-1)_jj.
        """
        whole = self.posterior(sums)
        price = np.log(np.maximum(sums[:, 0].double().numpy(), 1.0)) / 2
        found = _paying(whole, price, most)
        slope = np.zeros((len(sums), len(whole.sloping)))
        slope[:, np.flatnonzero(whole.sloping.numpy())] = found[:, 1:]
        return {"value": found[:, 0], "slope": slope}

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        mean = self.expected_y(sites, y[:, 1:])
        return ndtr((y[:, :1] - mean) / sites["leaf_scale"].numpy(force=True))


def _paying(law: LinearNormalInverseGamma, price: FloatArray, most: float) -> FloatArray:
    """Return the coefficients (L, p) of leaves, with ``most`` slopes that cost their price (L,).

    Without coefficient j, the inverse of K loses k_j k_j' / k_jj, with its column k_j.
    """
    parts = (law.precision.inverse(), law.loc, law.rate, law.shape)
    inverse, loc, rate, shape = (one.double().numpy().copy() for one in parts)
    every, slopes = np.arange(len(loc)), np.ones(loc.shape, dtype=bool)
    slopes[:, 0] = False
    while True:
        diagonal = np.where(slopes, np.diagonal(inverse, axis1=1, axis2=2), 1.0)
        rise = np.where(slopes, loc**2 / diagonal, np.inf)
        j = rise.argmin(axis=1)
        least = rise[every, j]
        lost = shape * np.log1p(least / (2 * rate)) - price
        own = np.flatnonzero(lost < 0)
        if not len(own):
            if slopes.sum() <= most:
                return np.where(slopes | (np.arange(loc.shape[1]) == 0), loc, 0.0)
            own = np.array([lost.argmin()])
        j = j[own]
        row = inverse[own, j]
        column = row / row[np.arange(len(own)), j][:, None]
        loc[own] -= loc[own, j][:, None] * column
        inverse[own] -= column[:, :, None] * row[:, None, :]
        rate[own] += least[own] / 2
        slopes[own, j] = False


def _center(sites: Sites, X: Tensor) -> Tensor:
    """Return the mean of y in each leaf, shape (n, L)."""
    return sites["leaf_mean"] + X @ sites["leaf_slope"].mT
