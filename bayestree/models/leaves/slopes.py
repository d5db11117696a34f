"""What families have in common in which y depends on the features by slopes.

Each feature has a strength of its own, the precision of the prior of its slopes in all leaves. It
is learned from the marginal likelihood, which is highest at an infinite strength for most features
that have no effect (automatic relevance determination; Tipping, "Sparse Bayesian learning and the
relevance vector machine", 2001). Such features keep a slope of practically 0, and leave the sums.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.models.leaves.base import RegressingLeaf

SLOPE_STRENGTHS = (1e-4, 1e7)  # of a calibrated prior of the slopes
#: Fixed strength of a feature without a slope: the standard deviation is then 1e-4 of the noise's.
NO_SLOPE = 1e8
START = 1.0  # strength of each slope before it is learned
RELEVANT = 0.05  # share of a slope that its prior must leave in some leaf, or it is irrelevant
MOST_SLOPES = 50  # a row then has 1,378 sufficient statistics
ROWS_OF_A_SLOPE = 5  # rows of a fit, at least, for each feature that may have slopes
SCREENED = 150  # features of which these are chosen, by their correlation with y


class Slopes(dist.TorchDistribution):
    """Joint normal distribution of some of d slopes, and independent ones of the others.

    ``law`` is that of the slopes (p,), or (C, p), of the features that ``sloping`` (d,) marks, and
    ``scale`` (..., 1), or (..., 1, 1), the standard deviation of the others.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = dist.constraints.real_vector
    has_rsample = True

    def __init__(self, law: dist.TorchDistribution, scale: Tensor, sloping: Tensor) -> None:
        self.law, self.scale, self.sloping = law, scale, sloping
        self.some = bool(sloping.any())  # torch computes no density of an empty vector
        shape = law.event_shape[:-1] + sloping.shape
        super().__init__(law.batch_shape, shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Slopes":
        law, scale = (
            self.law.expand(batch_shape),
            self.scale.expand(*batch_shape, *[1] * len(self.event_shape)),
        )
        return Slopes(law, scale, self.sloping)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        found = self.scale.new_empty(self._extended_shape(torch.Size(sample_shape)))
        if self.some:
            found[..., self.sloping] = self.law.rsample(sample_shape)
        others = found[..., ~self.sloping]
        found[..., ~self.sloping] = self.scale * torch.randn_like(others)
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        each = dist.Normal(0.0, self.scale).log_prob(value[..., ~self.sloping])
        others = each.flatten(-len(self.event_shape)).sum(-1)
        return self.law.log_prob(value[..., self.sloping]) + others if self.some else others


class SlopingLeaf(RegressingLeaf):
    """A family with slopes, shrunk by a strength of each feature."""

    contrasts: ClassVar[int] = 1  # slopes of a feature in a leaf that the rows can tell apart
    priced: ClassVar[bool] = False  # whether slopes have their price where features are few, too

    @property
    @abstractmethod
    def given(self) -> FloatArray:
        """Strength of all features alike, shape (), or of each, (d,)."""

    @abstractmethod
    def having(self, strengths: FloatArray, **others: Any) -> Self:
        """Return the family with strengths, () or (d,), and other parameters."""

    @abstractmethod
    def _correlation(self, row: Tensor, y: Tensor) -> Tensor:
        """Return the size (d,) of the correlations of weighted features (n, d) with y."""

    @abstractmethod
    def _strengths_alone(self, y: Tensor, weights: Tensor, price: float) -> FloatArray:
        """Learn the strengths (d,) of features in a single leaf of all rows."""

    def strengths(self, n_features: int) -> FloatArray:
        """Return the strength of each feature, shape (d,)."""
        given = self.given
        if given.ndim and len(given) != n_features:
            raise ValueError(
                f"{self} must have the shrinkage of slopes for each of {n_features} features, got "
                f"{len(given)}."
            )
        return np.broadcast_to(given, n_features)

    def sloping(self, n_features: int) -> Tensor:
        """Mark the features that have slopes, (d,)."""
        return torch.as_tensor(self.strengths(n_features) < NO_SLOPE)

    def among(self, used: BoolArray) -> Self:
        given = self.given
        return self.having(given[used]) if given.shape == used.shape else self

    def widened(self, used: BoolArray) -> Self:
        if not self.given.ndim:
            return self
        strengths = np.full(len(used), NO_SLOPE)
        strengths[used] = self.given
        return self.having(strengths)

    def reduced(self) -> Self:
        given = self.given
        if not given.ndim:
            return self
        return self.having(np.where(given < SLOPE_STRENGTHS[1], given, NO_SLOPE))

    def relevant(self, slopes: FloatArray, left: FloatArray) -> FloatArray:
        """Return learned strengths (d,), from those (p,) of features with slopes.

        Features are irrelevant of whose slopes the prior leaves a small part (p,) in all leaves.
        """
        every = self.strengths(self.given.size if self.given.ndim else len(slopes)).copy()
        every[every < NO_SLOPE] = np.where(left > RELEVANT, slopes, SLOPE_STRENGTHS[1])
        return every

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        """Choose the features that may have slopes where there are many, as for a single leaf.

        The best of d features of noise gains about log d nats, which is then the price of a slope
        (the risk inflation criterion; Foster and George, 1994).
        """
        n_features, n_rows = y.shape[1] - 1, float(weights.sum())
        sloping = self.sloping(n_features).to(y.device)
        n_open = int(sloping.sum())
        most = int(min(MOST_SLOPES, n_rows / ROWS_OF_A_SLOPE) / self.contrasts)
        price = math.log(max(n_open, 1)) / n_rows
        if n_open <= most:
            return self.having(self.given, price=price) if self.priced else self
        size = self._correlation(y[:, 1:] * weights.unsqueeze(-1), y[:, 0])
        size = torch.where(sloping, size, -1.0)
        first = size.topk(min(n_open, SCREENED // self.contrasts)).indices
        part = torch.column_stack((y[:, :1], y[:, 1:][:, first]))
        strengths = self._strengths_alone(part, weights, price)
        best = first.numpy(force=True)[strengths.argsort()[:most]]
        slopes = np.full(n_features, NO_SLOPE)
        slopes[best] = START
        return self.having(slopes, price=price)

    def _open(self, y: Tensor) -> Tensor:
        """Return the columns of a response (n, 1 + d) that the statistics need."""
        own = torch.nn.functional.pad(self.sloping(y.shape[1] - 1), (1, 0), value=True)
        return y if own.all() else y[:, own.to(y.device)]


def one_or_each(values: FloatArray) -> float | tuple[float, ...]:
    """Return a parameter of all features alike, or of each."""
    return tuple(values.tolist()) if values.ndim else float(values)


def _solved(block: AnyArray, right: AnyArray) -> AnyArray:
    """Solve equations of matrices (..., C, C), of which those of one entry are many."""
    if block.shape[-1] == 1:
        return right / block[..., 0]
    return np.linalg.solve(block, right[..., None])[..., 0]


def paying(
    loc: Tensor,
    precision: Tensor,
    price: FloatArray,
    most: float,
    noise: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """Return the coefficients (L, C, p) of leaves, with ``most`` slopes that cost their price (L,).

    All C slopes of a feature go together. Without those of feature j, in the rows and columns J of
    the precision K, the squares rise by S = b_J' ((K^-1)_JJ)^-1 b_J. That costs S / 2 nats, or of a
    normal-inverse-gamma posterior with ``noise`` (shape, rate), shape log(1 + S / (2 rate)).
    """
    found = loc.double().numpy().copy()
    n_leaves, size, width = found.shape
    inverse = precision.double().inverse().numpy()
    inverse = inverse.reshape(n_leaves, size, width, size, width).copy()
    shape, rate = (one.copy() for one in noise) if noise else (None, None)
    every, place = np.arange(n_leaves), np.arange(width)
    slopes = np.ones((n_leaves, width), dtype=bool)
    slopes[:, 0] = False
    while True:
        block = inverse[:, :, place, :, place].swapaxes(0, 1)  # (L, p, C, C)
        block = np.where(slopes[..., None, None], block, np.eye(size))
        along = _solved(block, found.swapaxes(1, 2))  # (L, p, C)
        rise = np.where(slopes, (along * found.swapaxes(1, 2)).sum(-1), np.inf)
        j = rise.argmin(axis=1)
        least = rise[every, j].clip(min=0.0)  # rounding can leave it below zero
        cost = least / 2 if rate is None else shape * np.log1p(least / (2 * rate))
        lost = cost - price
        own = np.flatnonzero(lost < 0)
        if not len(own):
            if slopes.sum() * max(size - 1, 1) <= most:
                return np.where((slopes | (place == 0))[:, None], found, 0.0)
            own = np.array([lost.argmin()])
        j = j[own]
        column = inverse[own, :, :, :, j]  # (m, C, p, C)
        found[own] -= np.einsum("mcpe,me->mcp", column, along[own, j])
        less = _solved(block[own, j][:, None, None], column)
        inverse[own] -= np.einsum("mcpe,mdqe->mcpdq", column, less)
        if rate is not None:
            rate[own] += least[own] / 2
        slopes[own, j] = False
