"""Leaves in which the mean of y is a linear function of the features.

The sufficient statistics of a leaf are sums of products of y and the features that have slopes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy.special import digamma, ndtr
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.state import cached
from bayestree.distributions import inverse_gamma_scale
from bayestree.models.criteria import Criterion
from bayestree.models.leaves import gaussian
from bayestree.models.leaves.base import LeafDistribution, LeafGradient, NumericLeaf, most_likely
from bayestree.models.leaves.slopes import (
    NO_SLOPE,
    SLOPE_STRENGTHS,
    START,
    Slopes,
    SlopingLeaf,
    one_or_each,
    paying,
)
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive


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
        return (log_precision - gaussian.LOG_2PI - square) / 2

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
        constant = gaussian.Gaussian(0.0, leaf.strength, leaf.shape, leaf.rate)
        self.leaf, self.constant = leaf, gaussian.GaussianGradient(constant, y[:, 0])
        self.X = np.ascontiguousarray(y[:, 1:].T, dtype=np.float64)

    def read(self, free: FreeSites) -> FloatArray:
        return np.concatenate([self.constant.read(free), free["leaf_slope"].T])

    def _gap(self, leaves: FloatArray) -> FloatArray:
        """Return y minus its mean in each leaf, shape (L, n)."""
        return self.constant.y - leaves[0][:, None] - leaves[2:].T @ self.X

    def log_density(self, leaves: FloatArray) -> FloatArray:
        return gaussian.normal_log_density(self._gap(leaves), leaves[1][:, None])

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
class LinearGaussian(SlopingLeaf, NumericLeaf):
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

    @property
    def given(self) -> FloatArray:
        return np.asarray(self.slope_strength, dtype=float)

    def having(self, strengths: FloatArray, **others: Any) -> Self:
        return replace(self, slope_strength=one_or_each(strengths), **others)

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
        sloping = self.sloping(n_features)
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
        found = moments(sums)
        n_features = len(self.given) if self.given.ndim else found.cross.shape[-1] - 1
        prior = self._prior(n_features, sums.new_zeros(()))
        loc, spread, root = found.solve(prior.precision)
        # Rounding can leave the spread of a perfect fit just below zero.
        rate = self.rate + spread.clamp_min(0.0) / 2
        shape = self.shape + sums[..., 0] / 2
        return LinearNormalInverseGamma(loc, root @ root.mT, shape, rate, prior.sloping, prior)

    def _correlation(self, row: Tensor, y: Tensor) -> Tensor:
        return (y @ row).abs()

    def _strengths_alone(self, y: Tensor, weights: Tensor, price: float) -> FloatArray:
        sums = products(y.double(), weights.double()).sum(0, keepdim=True).cpu()
        return self._learned(moments(sums), price)[0][1:]

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return products(self._open(y), weights)

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
        learned = {"strength": strength, "shape": shape, "rate": shape * variance}
        return self.having(self.relevant(np.array(slopes), left.amax(0)[1:].numpy()), **learned)

    def _learned(self, found: RegressionSums, price: float) -> tuple[FloatArray, FloatArray]:
        """Maximise the marginal likelihood; return the strengths (1 + p,), and shape and variance.

        With the precision K of a leaf's coefficients, their mean b and the spread S, the terms in a
        strength k are (log|K| - log k) / 2 + (a + m / 2) log(1 + S / 2r) (see ``surprise``),
        where d log|K| / dk = (K^-1)_jj and dS / dk = b_j^2.
        """
        mass, count = found.gram[:, 0, 0].numpy(), found.cross.shape[-1]
        start = found.gram.new_tensor([self.strength] + [START] * (count - 1))
        _, spread, _ = found.solve(start.diag())
        pooled = max(float(spread.sum() / mass.sum()), gaussian.MIN_VARIANCE)

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
            return gaussian.surprise(mass, spread, volume, shape, rate) + paid, slope

        limits = [gaussian.STRENGTHS] + [SLOPE_STRENGTHS] * (count - 1)
        limits += [gaussian.SHAPES, (gaussian.MIN_VARIANCE, max(4 * pooled, 1.0))]
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
        """
        whole = self.posterior(sums)
        price = np.log(np.maximum(sums[:, 0].double().numpy(), 1.0)) / 2
        noise = whole.shape.double().numpy(), whole.rate.double().numpy()
        found = paying(whole.loc.unsqueeze(1), whole.precision, price, most, noise)[:, 0]
        slope = np.zeros((len(sums), len(whole.sloping)))
        slope[:, np.flatnonzero(whole.sloping.numpy())] = found[:, 1:]
        return {"value": found[:, 0], "slope": slope}

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        mean = self.expected_y(sites, y[:, 1:])
        return ndtr((y[:, :1] - mean) / sites["leaf_scale"].numpy(force=True))


def _center(sites: Sites, X: Tensor) -> Tensor:
    """Return the mean of y in each leaf, shape (n, L)."""
    return sites["leaf_mean"] + X @ sites["leaf_slope"].mT
