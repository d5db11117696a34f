"""Multinomial logistic regression from sums over rows, and the criterion of growth from them.

The log-likelihood of coefficients B (C, p), with rows r = (1, x), is

    sum_n B_(y_n) . r_n - sum_n log sum_c exp(B_c . r_n).

The first term needs only the sums of r over the rows of each class. For the second, the features of
the rows of a class are taken to be normal, with the mean of that class and the covariance within
classes that are common to all classes of a leaf, as in linear discriminant analysis; both follow
from sums of products. The expectation over such a row has at most C - 1 dimensions: those along
which the logits differ.
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

from bayestree._utils.arrays import FloatArray
from bayestree.models.criteria import Criterion

STEPS = 6  # of Newton's method from 0, where the curvature is largest: it seldom overshoots
NO_ROWS = 1e-9  # weight below which sums over soft rows are rounding errors
RIDGE = 1e-6  # added to the variances within classes, which may be singular; features have about 1
N_HERMITE, N_SOBOL = 8, 16  # nodes of an expectation in one dimension, and in several


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
        """Sums of squares of the features about all means and those of the classes, (L, d, d)."""
        square, whole = self.gram[..., 1:, 1:], self.first.sum(-2, keepdim=True)
        about_all, within = (square - one[..., 1:].mT @ _means(one) for one in (whole, self.first))
        return about_all, within

    @property
    def means(self) -> Tensor:
        """Mean of the features in each class, shape (L, C, d); 0 for classes without rows."""
        return _means(self.first)


def _means(first: Tensor) -> Tensor:
    """Means (..., d) from sums (..., 1 + d) of r; 0 without rows."""
    mass = first[..., :1]
    return torch.where(mass > NO_ROWS, first[..., 1:] / mass.clamp_min(NO_ROWS), 0.0)


def class_products(y: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """Weighted r = (1, x) in the columns of its class, and products r r', of rows (n, 1 + d).

    The first column of ``y`` is the number of the class, the others are x.
    """
    row = torch.cat((torch.ones_like(y[:, :1]), y[:, 1:]), dim=1)
    weighted = row * weights.unsqueeze(-1)
    own = torch.nn.functional.one_hot(y[:, 0].long(), n_classes).to(row)
    first, second = torch.tril_indices(row.shape[1], row.shape[1], device=y.device)
    each = (own.unsqueeze(2) * weighted.unsqueeze(1)).flatten(1)
    return torch.cat((each, weighted[:, first] * row[:, second]), dim=1)


@lru_cache
def _places(count: int, n_classes: int) -> tuple[Tensor, int]:
    """Positions of the entries of r r' among ``count`` sums, and the length of r."""
    # count = C p + p (p + 1) / 2
    half = 2 * n_classes + 1
    width = (math.isqrt(half**2 + 8 * count) - half) // 2
    place = torch.zeros(width, width, dtype=torch.long)
    first, second = torch.tril_indices(width, width)
    place[first, second] = place[second, first] = n_classes * width + torch.arange(len(first))
    return place, width


@lru_cache
def normal_nodes(dimension: int) -> tuple[FloatArray, FloatArray]:
    """Nodes (M, dimension) and weights (M,) of the mean over a standard normal distribution.

    Gauss and Hermite's in one dimension; in others points of a Sobol sequence and their opposites,
    whose first three moments are exact.
    """
    if dimension == 1:
        node, weight = np.polynomial.hermite_e.hermegauss(N_HERMITE)
        return node[:, None], weight / weight.sum()
    half = max(N_SOBOL // 2, 1 << (dimension - 1).bit_length())
    level = qmc.Sobol(dimension, seed=0).random(half)
    point = ndtri(level)
    both = np.concatenate((point, -point))
    root = np.linalg.cholesky(both.T @ both / len(both))
    return np.linalg.solve(root, both.T).T, np.full(len(both), 1 / len(both))


class Rows(NamedTuple):
    """Rows that stand for those of a leaf: r (L, M, p), weights (L, M), and what they lack.

    ``rest`` (L, p, p) is the covariance that is not along the differences of logits.
    """

    row: Tensor
    weight: Tensor
    rest: Tensor


class Regression(NamedTuple):
    """Coefficients (L, C, p), and the precision (L, C p, C p) of their normal approximation.

    ``value`` (L,) is the log-likelihood less half the squares of the coefficients in units of the
    prior.
    """

    loc: Tensor
    precision: Tensor
    value: Tensor


def regression(moments: ClassMoments, prior: Tensor) -> Regression:
    """The mode of B and its curvature, under independent normals of mean 0 and precision (p,)."""
    n_classes, width = moments.first.shape[-2:]
    spread = _spread(moments)
    loc = torch.zeros_like(moments.first)
    for _ in range(STEPS):
        rows = _rows(moments, spread, loc)
        slope, precision = _derivatives(moments, rows, loc, prior)
        root = torch.linalg.cholesky(precision)
        step = torch.cholesky_solve(slope.flatten(-2).unsqueeze(-1), root)
        loc = loc + step.view(-1, n_classes, width)
    rows = _rows(moments, spread, loc)
    _, precision = _derivatives(moments, rows, loc, prior)
    each = torch.logsumexp(rows.row @ loc.mT, -1)
    value = (moments.first * loc).sum((-2, -1)) - (rows.weight * each).sum(-1)
    value = value - (prior * loc.square()).sum((-2, -1)) / 2
    return Regression(loc, precision, value)


def _spread(moments: ClassMoments) -> Tensor:
    """Cholesky factor of the covariance within classes, shape (L, d, d)."""
    _, within = moments.scatter()
    mass = moments.gram[..., :1, :1].clamp_min(1.0)  # nothing is known of less than a row
    eye = torch.eye(within.shape[-1]).to(within)
    return torch.linalg.cholesky(within / mass + RIDGE * eye)


def _rows(moments: ClassMoments, spread: Tensor, loc: Tensor) -> Rows:
    """Nodes of the normal distribution of each class, along the differences of its logits.

    With x = m + S z, these are A z with the rows of A = (B_c - B_0) S. An orthonormal basis U of
    them gives z = U u + e, where e has no effect on the logits.
    """
    mass = moments.mass.clamp_min(0.0)  # rounding can leave that of an empty side just below zero
    along = (loc[..., 1:, 1:] - loc[..., :1, 1:]) @ spread
    basis, _ = torch.linalg.qr(along.mT)
    arm = spread @ basis  # (L, d, J)
    node, weight = (loc.new_tensor(part) for part in normal_nodes(arm.shape[-1]))
    x = moments.means.unsqueeze(-2) + (node @ arm.mT).unsqueeze(-3)  # (L, C, M, d)
    row = torch.cat((torch.ones_like(x[..., :1]), x), dim=-1)
    rest = torch.nn.functional.pad(spread @ spread.mT - arm @ arm.mT, (1, 0, 1, 0))
    weights = mass.unsqueeze(-1) * weight
    return Rows(row.flatten(1, 2), weights.flatten(1), rest)


def _derivatives(
    moments: ClassMoments, rows: Rows, loc: Tensor, prior: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient (L, C, p) and negative Hessian (L, C p, C p) of the log-density of B."""
    probs = torch.softmax(rows.row @ loc.mT, -1)
    weighted = probs * rows.weight.unsqueeze(-1)
    slope = moments.first - weighted.mT @ rows.row - prior * loc
    n_classes, width = loc.shape[-2:]
    square = (rows.row.unsqueeze(-1) * rows.row.unsqueeze(-2)).flatten(-2)
    share = weighted.unsqueeze(-1) * probs.unsqueeze(-2)
    share = torch.diag_embed(weighted) - share  # (L, M, C, C)
    inner = share.flatten(-2).mT @ square + share.sum(-3).flatten(-2).unsqueeze(
        -1
    ) * rows.rest.flatten(-2).unsqueeze(-2)
    inner = inner.unflatten(-1, (width, width)).unflatten(-3, (n_classes, n_classes))
    hessian = inner.transpose(-3, -2).flatten(-2).flatten(-3, -2)
    return slope, hessian + torch.diag_embed(prior.repeat(n_classes))


@dataclass(frozen=True)
class Discrimination(Criterion):
    """Information of the features about the class in each set of rows, and its entropy, in nats.

    If the features of each class are normal with a common covariance, their information about y
    is at most (log |T| - log |W|) / 2 of the scatter matrices T about all means and W about those
    of the classes (Wilks' lambda), and at most the entropy of y. Between these limits it is
    (w^-4 + H^-4)^(-1/4): for two classes within 7 % of quadrature at any distance if the smaller
    has a fifth of the rows or more, but up to 14 % too high if it has fewer. Each of the
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
    """Half the logarithm of the determinant, shape (...)."""
    return torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1).log().sum(-1)
