"""Logistic regressions of the class on the features, by sums over rows, and what splits gain.

The log-likelihood of coefficients B (C, p), with rows r = (1, x), is

    sum_n B_(y_n) . r_n - sum_n log sum_c exp(B_c . r_n).

The first term needs only the sums of r over the rows of each class. For the second, the features in
a class are taken to be normal, as in linear discriminant analysis: with the mean of the class and
the covariance within classes, common to all classes of a leaf. Both follow from sums of products.
The expectation over such a row has at most C - 1 dimensions, along which the logits differ.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import qmc
from torch import Tensor

from bayestree._utils.arrays import FloatArray, gauss_hermite
from bayestree._utils.state import cached
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.linear import lower_triangle, with_constant
from bayestree.models.leaves.slopes import SLOPE_STRENGTHS

STEPS = 6  # of Newton's method from 0, where the curvature is largest: it seldom overshoots
NO_ROWS = 1e-9  # weight below which sums over soft rows are rounding errors
RIDGE = 1e-6  # added to the variances within classes, which may be singular; features have about 1
N_HERMITE, N_SOBOL = 8, 16  # nodes of an expectation in one dimension, and in several
#: Limits of a calibrated prior. Slopes have a standard deviation of 5 at most: such log-odds for
#: one standard deviation of a feature are a clean step already, and classes that can be separated
#: would have ever steeper ones.
LOGIT_STRENGTHS, STEEPEST = (1e-3, 1e4), 0.04
LEAST = 1e-9  # nats, below which gains are rounding errors
ROUNDS = 30  # of learning strengths, after which that of an irrelevant slope is large enough


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


def regression(
    moments: ClassMoments, prior: Tensor, start: Tensor | None = None, n_steps: int = STEPS
) -> LogisticMode:
    """Find the mode of B and its curvature, under normals of mean 0 and precision (p,)."""
    n_classes, width = moments.first.shape[-2:]
    spread = _spread(moments)
    loc = torch.zeros_like(moments.first) if start is None else start
    for _ in range(n_steps):
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
    row = torch.nn.functional.pad(x, (1, 0), value=1.0)
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


def learned(moments: ClassMoments, prior: Tensor, price: float) -> tuple[Tensor, Tensor]:
    """Learn the precisions (p,) of the priors that all leaves share; also return what they leave.

    That is 1 - k S for the precision k of a coefficient and its posterior variance S, (p,), in the
    leaf and class where it is largest. At the maximum of the marginal likelihood, by Laplace's
    approximation, the sum of it equals k times the sum of squares, which gives k (MacKay, "The
    evidence framework applied to classification networks", 1992). ``price`` is what a slope costs,
    in nats for each row.
    """
    loc = None
    n_rows = moments.mass.sum()
    cost = 2 * price * n_rows / torch.log1p(n_rows)
    low, high = torch.full_like(prior, STEEPEST), torch.full_like(prior, SLOPE_STRENGTHS[1])
    low[0], high[0] = LOGIT_STRENGTHS
    for _ in range(ROUNDS):
        found = regression(moments, prior, loc, 2 if loc is not None else STEPS)
        loc = found.loc
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(found.precision))
        left = 1 - prior * inverse.diagonal(dim1=-2, dim2=-1).view_as(loc)
        pull = left.sum((0, 1)).clamp_min(0.0)  # rounding can leave it just below zero
        # the price of a slope grows from 0 to the whole as its variance grows to that of one row
        pull[1:] += cost * n_rows / (prior[1:] + n_rows)
        prior = (pull / loc.square().sum((0, 1)).clamp_min(1e-300)).clamp(low, high)
    return prior, left.amax((0, 1))


@dataclass(frozen=True)
class ScoreGain(Criterion):
    """Log-likelihood that regressions of parts of a node gain over that of the whole node.

    Sums of :class:`ScoreTerms` give the slope g and the information H of a part at the coefficients
    of the node. Its own regression then gains q = g' (H + ridge)^-1 g / 2 nats, to second order,
    which is Rao's score statistic, and at most L, minus the log-likelihood at those coefficients.
    Between these limits the gain is taken as (q^-4 + L^-4)^(-1/4). Each of the k coefficients of a
    part of n rows costs n / (n - k - 1) nats: one (Akaike, 1974), and more where rows are few
    (Hurvich and Tsai, 1995, for generalised linear models).
    """

    pure: ClassVar[float] = math.inf
    costly: ClassVar[bool] = True
    ridge: float = 1.0  # precision of a normal prior of the change of a coefficient

    def value(self, sums: Tensor) -> Tensor:
        return self._expanded(sums)[0]

    def impurity(self, sums: Tensor) -> Tensor:
        return sums[..., 1]

    def ascent(self, side: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        (own, slope), (other, back) = map(self._expanded, (side, whole - side))
        return own + other, slope - back

    def _expanded(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value (...) of parts and its derivatives (..., c) in the sums."""
        # c = 2 + k + k (k + 1) / 2
        count = (math.isqrt(8 * sums.shape[-1] - 7) - 3) // 2
        total, bound = sums[..., 0], sums[..., 1].clamp_min(LEAST)
        slope, information = sums[..., 2 : 2 + count], sums[..., 2 + count :]
        place, often = (one.to(sums.device) for one in _triangle(count))
        square = information[..., place] + self.ridge * torch.eye(count).to(sums)
        root = torch.linalg.cholesky(square)
        change = torch.cholesky_solve(slope.unsqueeze(-1), root).squeeze(-1)
        gain = ((slope * change).sum(-1) / 2).clamp_min(LEAST)
        both = gain**4 + bound**4
        # The price diverges as the rows run out; from there on one degree of freedom is assumed.
        enough = total > count + 2
        rows = total.clamp_min(count + 2)
        spare = rows - count - 1
        value = gain * bound / both**0.25 - count * rows / spare
        of_gain, of_bound = bound**5 / both**1.25, gain**5 / both**1.25
        of_total = torch.where(enough, count * (count + 1) / spare**2, 0.0)
        first, second = torch.tril_indices(count, count, device=sums.device)
        of_square = change[..., first] * change[..., second] * often
        return value, torch.cat(
            (
                torch.stack((of_total, of_bound), -1),
                of_gain.unsqueeze(-1) * change,
                of_gain.unsqueeze(-1) * of_square,
            ),
            dim=-1,
        )


@cached
def _triangle(width: int) -> tuple[Tensor, Tensor]:
    """Return places in a lower triangle, and minus how often half of its entries occur."""
    first, second = torch.tril_indices(width, width)
    return lower_triangle(width), torch.where(first == second, -0.5, -1.0).double()


class ScoreTerms(NamedTuple):
    """Terms of the sums of :class:`ScoreGain`, by the regression of a node.

    Its coefficients (C - 1, p) are differences from the first class.
    """

    loc: Tensor

    @classmethod
    def at(cls, y: Tensor, weights: Tensor, n_classes: int, prior: Tensor) -> Self:
        """Fit the regression to rows (class, x), under normals of mean 0 and precision (p,)."""
        loc = prior.new_zeros(n_classes - 1, len(prior))
        for _ in range(STEPS):
            row, gap, spread = cls(loc).derivatives(y)
            slope = (weights.unsqueeze(-1) * gap).T @ row - prior * loc
            curved = (weights.view(-1, 1, 1) * spread).flatten(1)
            information = torch.diag(prior.repeat(n_classes - 1))
            for number, own in enumerate(curved.T):
                k, m = divmod(number, n_classes - 1)
                at_k, at_m = (slice(one * len(prior), (one + 1) * len(prior)) for one in (k, m))
                information[at_k, at_m] += (row * own.unsqueeze(-1)).T @ row
            loc = loc + torch.linalg.solve(information, slope.flatten()).view_as(loc)
        return cls(loc)

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows (n, p), and slope (n, K) and information (n, K, K) in their log-odds."""
        row = with_constant(y[:, 1:])
        share = torch.nn.functional.pad(row @ self.loc.T, (1, 0)).softmax(-1)[:, 1:]
        own = torch.nn.functional.one_hot(y[:, 0].long(), len(self.loc) + 1)[:, 1:].to(row)
        spread = torch.diag_embed(share) - share.unsqueeze(-1) * share.unsqueeze(-2)
        return row, own - share, spread

    def __call__(self, y: Tensor, weights: Tensor) -> Tensor:
        """Return the terms of weighted rows: 1, minus log p, slope and information, (n, c)."""
        row, gap, spread = self.derivatives(y)
        logs = torch.nn.functional.pad(row @ self.loc.T, (1, 0)).log_softmax(-1)
        loss = -logs.gather(1, y[:, :1].long())
        slope = (gap.unsqueeze(-1) * row.unsqueeze(1)).flatten(1)
        width = row.shape[1]
        first, second = torch.tril_indices(slope.shape[1], slope.shape[1], device=y.device)
        # entry (k, i), (m, j) of the information is spread_km x_i x_j
        information = spread[:, first // width, second // width]
        information *= row[:, first % width]
        information *= row[:, second % width]
        each = torch.cat((torch.ones_like(loss), loss, slope, information), dim=1)
        return each.mul_(weights.unsqueeze(-1))
