"""Leaves with a multinomial logistic regression of the class on the features.

Its coefficients, and the criterion of growth, follow from sums over rows.

The log-likelihood of coefficients B (C, p), with rows r = (1, x), is

    sum_n B_(y_n) . r_n - sum_n log sum_c exp(B_c . r_n).

The first term needs only the sums of r over the rows of each class. For the second, the features in
a class are taken to be normal, as in linear discriminant analysis: with the mean of the class and
the covariance within classes, common to all classes of a leaf. Both follow from sums of products.
The expectation over such a row has at most C - 1 dimensions, along which the logits differ.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.special import ndtri
from scipy.special import softmax as softmax_of
from scipy.stats import qmc
from torch import Tensor
from torch.distributions.transforms import ReshapeTransform

from bayestree._utils.arrays import AnyArray, FloatArray, gauss_hermite
from bayestree._utils.state import cached
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.base import LeafDistribution, LeafGradient, RegressingLeaf, most_likely
from bayestree.models.leaves.linear import lower_triangle, with_constant
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive

STEPS = 6  # of Newton's method from 0, where the curvature is largest: it seldom overshoots
NO_ROWS = 1e-9  # weight below which sums over soft rows are rounding errors
RIDGE = 1e-6  # added to the variances within classes, which may be singular; features have about 1
N_HERMITE, N_SOBOL = 8, 16  # nodes of an expectation in one dimension, and in several
SCALES = (1e-2, 30.0)  # limits of a calibrated prior, whose features have unit variance
MOST_COEFFICIENTS = 150  # of a leaf, whose covariance has the square of this number of entries


class ClassMoments(NamedTuple):
    """Sums over the rows of L leaves, with r = (1, x): of r in each class, and of r r'."""

    first: Tensor  # (L, C, p)
    gram: Tensor  # (L, p, p)

    @classmethod
    def of(cls, sums: Tensor, n_classes: int) -> Self:
        """Unpack sums (..., c) of :func:`class_products`."""
        place, width = _places(sums.shape[-1], n_classes)
        first = sums[..., : n_classes * width].unflatten(-1, (n_classes, width))
        return cls(first, sums[..., place.to(sums.device)])

    @property
    def mass(self) -> Tensor:
        """Weight of the rows of each class, shape (L, C)."""
        return self.first[..., 0]

    def scatter(self) -> tuple[Tensor, Tensor]:
        """Sum squares of the features about all means, and about the means of classes."""
        square, whole = self.gram[..., 1:, 1:], self.first.sum(-2, keepdim=True)
        about_all, within = (square - one[..., 1:].mT @ _means(one) for one in (whole, self.first))
        return about_all, within


def _means(first: Tensor) -> Tensor:
    """Return the means (..., d) from sums (..., 1 + d) of r; 0 without rows."""
    mass = first[..., :1]
    return torch.where(mass > NO_ROWS, first[..., 1:] / mass.clamp_min(NO_ROWS), 0.0)


def class_products(y: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """Compute r = (1, x) in the columns of its class, and r r', of weighted rows (class, x)."""
    row = with_constant(y[:, 1:])
    weighted = row * weights.unsqueeze(-1)
    own = torch.nn.functional.one_hot(y[:, 0].long(), n_classes).to(row)
    first, second = torch.tril_indices(row.shape[1], row.shape[1], device=y.device)
    each = (own.unsqueeze(2) * weighted.unsqueeze(1)).flatten(1)
    return torch.cat((each, weighted[:, first] * row[:, second]), dim=1)


@cached
def _places(count: int, n_classes: int) -> tuple[Tensor, int]:
    """Return the positions of the entries of r r' among ``count`` sums, and the length of r."""
    # count = C p + p (p + 1) / 2
    half = 2 * n_classes + 1
    width = (math.isqrt(half**2 + 8 * count) - half) // 2
    return n_classes * width + lower_triangle(width), width


@lru_cache
def normal_nodes(dimension: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes (M, dimension) and weights (M,) of the mean over a standard normal.

    Gauss and Hermite's in one dimension; in others points of a Sobol sequence and their opposites,
    whose first three moments are exact.
    """
    if dimension == 1:
        node, weight = gauss_hermite(N_HERMITE)
        return node[:, None], weight
    half = max(N_SOBOL // 2, 1 << (dimension - 1).bit_length())
    level = qmc.Sobol(dimension, seed=0).random(half)
    point = ndtri(level)
    both = np.concatenate((point, -point))
    root = np.linalg.cholesky(both.T @ both / len(both))
    return np.linalg.solve(root, both.T).T, np.full(len(both), 1 / len(both))


class Quadrature(NamedTuple):
    """Rows r that represent a leaf, and the covariance across the differences of logits."""

    row: Tensor  # (L, M, p)
    weight: Tensor  # (L, M)
    rest: Tensor  # (L, p, p)


class LogisticMode(NamedTuple):
    """Coefficients, the precision of their normal approximation, and their log posterior."""

    loc: Tensor  # (L, C, p)
    precision: Tensor  # (L, C p, C p)
    value: Tensor  # (L,), up to a constant


def regression(moments: ClassMoments, prior: Tensor) -> LogisticMode:
    """Find the mode of B and its curvature, under normals of mean 0 and precision (p,)."""
    n_classes, width = moments.first.shape[-2:]
    spread = _spread(moments)
    loc = torch.zeros_like(moments.first)
    for _ in range(STEPS):
        rows = _quadrature(moments, spread, loc)
        slope, precision = _derivatives(moments, rows, loc, prior)
        root = torch.linalg.cholesky(precision)
        step = torch.cholesky_solve(slope.flatten(-2).unsqueeze(-1), root)
        loc = loc + step.view(-1, n_classes, width)
    rows = _quadrature(moments, spread, loc)
    _, precision = _derivatives(moments, rows, loc, prior)
    each = torch.logsumexp(rows.row @ loc.mT, -1)
    value = (moments.first * loc).sum((-2, -1)) - (rows.weight * each).sum(-1)
    value = value - (prior * loc.square()).sum((-2, -1)) / 2
    return LogisticMode(loc, precision, value)


def _spread(moments: ClassMoments) -> Tensor:
    """Return the cholesky factor of the covariance within classes, shape (L, d, d)."""
    _, within = moments.scatter()
    mass = moments.gram[..., :1, :1].clamp_min(1.0)  # nothing is known of less than a row
    eye = torch.eye(within.shape[-1]).to(within)
    return torch.linalg.cholesky(within / mass + RIDGE * eye)


def _quadrature(moments: ClassMoments, spread: Tensor, loc: Tensor) -> Quadrature:
    """Return nodes of the normal distribution of each class, along differences of logits.

    With x = m + S z, these are A z with the rows of A = (B_c - B_0) S. An orthonormal basis U of
    them gives z = U u + e, where e has no effect on the logits.
    """
    mass = moments.mass.clamp_min(0.0)  # rounding leaves empty sides just below zero
    along = (loc[..., 1:, 1:] - loc[..., :1, 1:]) @ spread
    basis, _ = torch.linalg.qr(along.mT)
    arm = spread @ basis  # (L, d, J)
    node, weight = (loc.new_tensor(part) for part in normal_nodes(arm.shape[-1]))
    x = _means(moments.first).unsqueeze(-2) + (node @ arm.mT).unsqueeze(-3)  # (L, C, M, d)
    row = torch.cat((torch.ones_like(x[..., :1]), x), dim=-1)
    rest = torch.nn.functional.pad(spread @ spread.mT - arm @ arm.mT, (1, 0, 1, 0))
    weights = mass.unsqueeze(-1) * weight
    return Quadrature(row.flatten(1, 2), weights.flatten(1), rest)


def _derivatives(
    moments: ClassMoments, rows: Quadrature, loc: Tensor, prior: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the gradient (L, C, p) and negative Hessian (L, C p, C p) of log p(B)."""
    probs = torch.softmax(rows.row @ loc.mT, -1)
    weighted = probs * rows.weight.unsqueeze(-1)
    slope = moments.first - weighted.mT @ rows.row - prior * loc
    n_classes, width = loc.shape[-2:]
    square = (rows.row.unsqueeze(-1) * rows.row.unsqueeze(-2)).flatten(-2)
    share = weighted.unsqueeze(-1) * probs.unsqueeze(-2)
    share = torch.diag_embed(weighted) - share  # (L, M, C, C)
    rest = share.sum(-3).flatten(-2).unsqueeze(-1) * rows.rest.flatten(-2).unsqueeze(-2)
    inner = share.flatten(-2).mT @ square + rest
    inner = inner.unflatten(-1, (width, width)).unflatten(-3, (n_classes, n_classes))
    hessian = inner.transpose(-3, -2).flatten(-2).flatten(-3, -2)
    return slope, hessian + torch.diag_embed(prior.repeat(n_classes))


@dataclass(frozen=True)
class Discrimination(Criterion):
    """Information of the features about the class in each set of rows, and its entropy, in nats.

    Let the features of each class be normal with a common covariance. Their information about y
    is then at most w = (log |T| - log |W|) / 2, with the scatter matrices T about all means and W
    about the means of the classes (Wilks' lambda). It is also at most the entropy H of y. Between
    these limits it is (w^-4 + H^-4)^(-1/4). For two classes this is within 7 % of quadrature if
    the smaller has a fifth of the rows or more, and at most 14 % too high otherwise. Each of the
    k = (C - 1) (d + 1) coefficients of a set of n rows costs n / (n - k - 1) nats: one (Akaike,
    1974), and more where rows are few (Hurvich and Tsai, 1995, for generalised linear models).
    ``ridge`` rows keep sets of few rows determined.
    """

    costly: ClassVar[bool] = True
    n_classes: int
    ridge: float = 1e-3

    def value(self, sums: Tensor) -> Tensor:
        found = ClassMoments.of(sums, self.n_classes)
        count = (self.n_classes - 1) * found.gram.shape[-1]
        # The price diverges as the rows run out; from there on one degree of freedom is assumed.
        rows = found.mass.sum(-1).clamp_min(count + 2)
        return -self.impurity(sums) - count * rows / (rows - count - 1)

    def impurity(self, sums: Tensor) -> Tensor:
        found = ClassMoments.of(sums, self.n_classes)
        tiny = torch.finfo(sums.dtype).eps ** 2
        mass = found.mass.clamp_min(tiny)  # rounding leaves soft counts a little below zero
        total = mass.sum(-1)
        entropy = total.log() - (mass * mass.log()).sum(-1) / total
        eye = self.ridge * torch.eye(found.gram.shape[-1] - 1).to(sums)
        about_all, within = (_log_root(one + eye) for one in found.scatter())
        wilks = (about_all - within).clamp_min(tiny)  # which rounding leaves below zero as well
        bound = entropy.clamp_min(tiny)
        shared = wilks * bound / (wilks**4 + bound**4) ** 0.25
        return total * (entropy - shared)


def _log_root(matrix: Tensor) -> Tensor:
    """Return half the logarithm of the determinant, shape (...)."""
    return torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1).log().sum(-1)


@dataclass(frozen=True)
class CoefficientPrior(LeafDistribution):
    """Independent normals of mean 0, with precisions (p,) for 1 and the features."""

    precision: Tensor
    n_classes: int
    prior: LeafDistribution | None = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        scale = self.precision.rsqrt().expand(self.n_classes, -1)
        yield "leaf_slope", dist.Normal(torch.zeros_like(scale[:, 1:]), scale[:, 1:]).to_event(2)
        yield "leaf_logit", dist.Normal(torch.zeros_like(scale[:, 0]), scale[:, 0]).to_event(1)

    def expected_log_density(self, y: Tensor) -> Tensor:
        raise NotImplementedError("Only posteriors have expectations.")

    def mean(self) -> dict[str, Tensor]:
        zero = self.precision.new_zeros(self.n_classes, len(self.precision))
        return {"leaf_slope": zero[:, 1:], "leaf_logit": zero[:, 0]}


@dataclass(frozen=True)
class LogisticPosterior(LeafDistribution):
    """Normal distribution of the coefficients of each leaf, the intercept of a class first."""

    loc: Tensor  # (L, C, p)
    precision: Tensor  # (L, C p, C p)
    prior: CoefficientPrior

    @cached_property
    def covariance(self) -> Tensor:
        return torch.cholesky_inverse(torch.linalg.cholesky(self.precision))

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Cholesky factors of the slopes, and of the intercepts given them, and their regression.

        Shapes (L, C d, C d), (L, C, C) and (L, C, C d).
        """
        n_classes, width = self.loc.shape[-2:]
        place = torch.arange(n_classes * width, device=self.loc.device).view(n_classes, width)
        own, others = place[:, 0], place[:, 1:].flatten()
        root = torch.linalg.cholesky(self.covariance[:, others[:, None], others])
        block = torch.linalg.cholesky(self.precision[:, own[:, None], own])
        shift = torch.cholesky_solve(self.precision[:, own[:, None], others], block)
        return root, torch.linalg.cholesky(torch.cholesky_inverse(block)), shift

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        root, cover, shift = self._factors
        flat = self.loc[..., 1:].flatten(-2)
        law = dist.MultivariateNormal(flat, scale_tril=root, validate_args=False)
        reshaped = ReshapeTransform(flat.shape[-1:], self.loc[..., 1:].shape[-2:])
        yield "leaf_slope", dist.TransformedDistribution(law, [reshaped], validate_args=False)
        # The conditional of some coefficients of a normal given the others.
        away = (sites["leaf_slope"].flatten(-2) - flat).unsqueeze(-1)
        center = self.loc[..., 0] - (shift @ away).squeeze(-1)
        yield "leaf_logit", dist.MultivariateNormal(center, scale_tril=cover, validate_args=False)

    def expected_log_density(self, y: Tensor) -> Tensor:
        # log p = -log sum_k exp(eta_k - eta_y), where the differences of logits from the first
        # class are normal
        row = with_constant(y[:, 1:])
        n_leaves, n_classes, width = self.loc.shape
        cover = self.covariance.view(n_leaves, n_classes, width, n_classes, width)
        cover = cover[:, 1:] - cover[:, :1]
        cover = (cover[..., 1:, :] - cover[..., :1, :]).transpose(2, 3)  # (L, K, K, p, p)
        squares = (row.unsqueeze(2) * row.unsqueeze(1)).flatten(1)
        spread = (squares @ cover.reshape(-1, width**2).T).view(-1, *cover.shape[:3])
        differ = self.loc[:, 1:] - self.loc[:, :1]
        mean = (row @ differ.reshape(-1, width).T).view(-1, *differ.shape[:2])  # (n, L, K)
        node, weight = (y.new_tensor(part) for part in normal_nodes(n_classes - 1))
        root = spread.sqrt() if n_classes == 2 else torch.linalg.cholesky(spread)
        logit = mean.unsqueeze(-2) + node @ root.mT  # (n, L, M, K)
        total = torch.nn.functional.pad(logit, (1, 0)).logsumexp(-1) @ weight
        own = torch.nn.functional.pad(mean, (1, 0))
        return own.gather(-1, _numbers(y, own)).squeeze(-1) - total

    def kl(self) -> Tensor:
        prior, root = self.prior.precision, torch.linalg.cholesky(self.precision)
        inverse = torch.cholesky_inverse(root).diagonal(dim1=-2, dim2=-1).view_as(self.loc)
        square = (prior * (inverse + self.loc.square())).sum()
        ratio = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum() - self.loc.numel()
        return (square + ratio - prior.log().sum() * self.loc[..., 0].numel()) / 2

    def mean(self) -> dict[str, Tensor]:
        return {"leaf_slope": self.loc[..., 1:], "leaf_logit": self.loc[..., 0]}


class LogisticGradient(LeafGradient):
    """Coefficients (L, C, p), the intercept of a class before its slopes."""

    def __init__(self, leaf: "Logistic", y: FloatArray) -> None:
        self.row = np.column_stack((np.ones(len(y)), y[:, 1:])).astype(np.float64)
        self.classes = y[:, 0].astype(np.int64)
        self.indicator = np.eye(leaf.n_classes)[self.classes].T  # (C, n)
        scales = [leaf.logit_scale, *[leaf.slope_scale] * (y.shape[1] - 1)]
        self.precision = np.array(scales) ** -2.0

    def read(self, free: FreeSites) -> FloatArray:
        return np.concatenate([free["leaf_logit"][..., None], free["leaf_slope"]], axis=-1)

    def _log_probs(self, leaves: FloatArray) -> FloatArray:
        """Return log-probabilities of the classes, shape (L, C, n)."""
        logit = leaves @ self.row.T
        logit -= logit.max(axis=1, keepdims=True)
        logit -= np.log(np.exp(logit).sum(axis=1, keepdims=True))
        return logit

    def log_density(self, leaves: FloatArray) -> FloatArray:
        return self._log_probs(leaves)[:, self.classes, np.arange(len(self.classes))]

    def prior(self, leaves: FloatArray) -> float:
        return -0.5 * float((self.precision * leaves**2).sum())

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        away = self.indicator - np.exp(self._log_probs(leaves))
        slope = (away * member[:, None]) @ self.row - self.precision * leaves
        into["leaf_logit"][...] = slope[..., 0]
        into["leaf_slope"][...] = slope[..., 1:]


@dataclass(frozen=True)
class Logistic(RegressingLeaf):
    """Class probabilities by a multinomial logistic regression on the features in each leaf.

    For features of mean 0 and variance 1: P(class c) is proportional to exp(leaf_logit_c +
    leaf_slope_c . x), with leaf_logit ~ Normal(0, logit_scale^2) and leaf_slope ~ Normal(0,
    slope_scale^2) for all classes alike. Only differences between classes matter. The posterior of
    the coefficients is normal (Laplace's approximation). It follows from sums over rows, which
    describe the features of each class in a leaf by their means and a common covariance. The
    likelihood is otherwise used exactly.

    Parameters
    ----------
    n_classes : int
    logit_scale, slope_scale : float
        Standard deviations of the coefficients of a class.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_slope": Site(("leaf", "class", "feature")),
        "leaf_logit": Site(("leaf", "class")),
    }
    loss: ClassVar[str] = "misclassification"
    exact: ClassVar[bool] = False
    gradient: ClassVar[type[LeafGradient] | None] = LogisticGradient

    n_classes: int
    logit_scale: float = 2.0
    slope_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be 2 or more, got {self.n_classes}.")
        check_positive(logit_scale=self.logit_scale, slope_scale=self.slope_scale)

    @property
    def most_features(self) -> int:  # type: ignore[override]
        return max(1, MOST_COEFFICIENTS // self.n_classes - 1)

    @property
    def criterion(self) -> Criterion:
        return Discrimination(self.n_classes)

    def check(self, y: Tensor) -> None:
        super().check(y)
        number = y[:, 0]
        if not ((number >= 0) & (number < self.n_classes) & (number == number.floor())).all():
            raise ValueError(
                f"y must hold class numbers from 0 to {self.n_classes - 1} in its first column, "
                f"got values from {number.min().item()} to {number.max().item()}."
            )

    def target(self, y: Tensor) -> Tensor:
        return y if y.ndim == 1 else y[:, 0].long()

    def prior(self, like: Tensor) -> CoefficientPrior:
        scales = [self.logit_scale, *[self.slope_scale] * like.shape[-1]]
        return CoefficientPrior(like.new_tensor(scales) ** -2, self.n_classes)

    def posterior(self, sums: Tensor) -> LogisticPosterior:
        moments = ClassMoments.of(sums, self.n_classes)
        prior = self.prior(sums.new_zeros(moments.gram.shape[-1] - 1))
        found = regression(moments, prior.precision)
        return LogisticPosterior(found.loc, found.precision, prior)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return class_products(y, weights, self.n_classes)

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        logs = _log_probs(sites, y[:, 1:])
        return logs.gather(-1, _numbers(y, logs)).squeeze(-1)

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        logit = torch.einsum("vscd,vmd->vsmc", sites["leaf_slope"], y[..., 1:])
        logs = torch.log_softmax(logit + sites["leaf_logit"].unsqueeze(-2), -1)
        number = y[..., 0].long().unsqueeze(1).unsqueeze(-1)
        return logs.gather(-1, number.expand(-1, logs.shape[1], -1, -1)).squeeze(-1)

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        assert X is not None
        joint = log_prob.unsqueeze(-1) + _log_probs(sites, X)
        return dist.Categorical(logits=joint.logsumexp(-2))

    def draw(
        self, sites: Sites, leaf: Tensor, X: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        assert X is not None
        logit = sites["leaf_logit"][leaf] + (sites["leaf_slope"][leaf] @ X.unsqueeze(-1))[..., 0]
        return dist.Categorical(logits=logit).sample()

    def calibrate(self, sums: Tensor) -> Self:
        """Learn both scales: the highest marginal likelihood by Laplace's approximation."""
        found = ClassMoments.of(sums.double().cpu(), self.n_classes)
        held = found.gram[:, 0, 0] > 0
        found = ClassMoments(*(part[held] for part in found))

        def loss(free: FloatArray) -> float:
            logit_scale, slope_scale = np.exp(free).tolist()
            own = replace(self, logit_scale=logit_scale, slope_scale=slope_scale)
            prior = own.prior(found.gram[0, 0, 1:]).precision
            fit = regression(found, prior)
            volume = torch.linalg.cholesky(fit.precision).diagonal(dim1=-2, dim2=-1).log().sum(-1)
            evidence = fit.value + self.n_classes * prior.log().sum() / 2 - volume
            return -float(evidence.sum())

        start = [self.logit_scale, self.slope_scale]
        logit_scale, slope_scale = most_likely(loss, start, [SCALES, SCALES])
        return replace(self, logit_scale=logit_scale, slope_scale=slope_scale)

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        """Return the class probabilities of each row in each leaf, shape (n, L, C)."""
        rows = torch.as_tensor(X).to(sites["leaf_logit"])
        return _log_probs(sites, rows).exp().numpy(force=True)

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        values = self.expected_y(sites, X).reshape(*probs.shape, -1)
        return np.einsum("nsl,nslc->snc", probs, values)

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        found = self.posterior(sums).loc.numpy()
        return {"value": softmax_of(found[..., 0], axis=-1), "slope": found[..., 1:]}


def _log_probs(sites: Sites, X: Tensor) -> Tensor:
    """Return log-probabilities of the classes in each leaf, shape (n, L, C)."""
    slope = sites["leaf_slope"]
    logit = (X @ slope.reshape(-1, slope.shape[-1]).T).view(-1, *slope.shape[:-1])
    return torch.log_softmax(logit + sites["leaf_logit"], -1)


def _numbers(y: Tensor, like: Tensor) -> Tensor:
    """Return the classes of a response (n, 1 + d) as an index (n, L, 1) of ``like``."""
    return y[:, 0].long().view(-1, 1, 1).expand(-1, like.shape[1], 1)
