"""Priors on hyperplanes equivalent to penalties of other trees: none, l1, spatial, feature counts.

All apply to the scaled features on which a tree is fitted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyro.distributions as dist
from pyro.distributions import TorchDistribution
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree.distributions import Constant
from bayestree.models.priors.base import (
    LOG_2PI,
    FreeSites,
    IndependentPrior,
    Lengths,
    Moments,
    PenaltyPrior,
    Plates,
    Sites,
    check_positive,
)


@dataclass(frozen=True)
class Flat(IndependentPrior):
    """An improper constant density on hyperplanes and intercepts."""

    proper: ClassVar[bool] = False

    def laws(self, like: Tensor) -> tuple[TorchDistribution, TorchDistribution]:
        return Constant(like), Constant(like)

    def log_prob(self, sites: Sites) -> Tensor:
        return sites["intercept"].new_zeros(())

    def log_density(self, free: FreeSites, n_experts: int) -> float:
        return 0.0

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        into["hyperplane"][...] = into["intercept"][...] = 0.0

    def expected_log_prob(self, moments: Moments) -> Tensor:
        return moments.mean.new_zeros(())


@dataclass(frozen=True)
class Laplace(IndependentPrior):
    """Independent Laplace coefficients: the l1 penalty of sparse oblique trees (TAO).

    The log-density of an expert's d coefficients is d log(rate / 2) - rate ||beta||_1. Its mode
    is sparse. TAO finds the zeros; gradients only come close to them, and draws are never 0.

    Parameters
    ----------
    rate : float
        Rate of the Laplace density, on the scaled features; TAO's lambda if the loss is in nats.
    intercept_scale : float, optional
        Standard deviation of a normal prior on the intercepts. Without one they are flat, as in
        TAO, and the prior is improper.

    Raises
    ------
    ValueError
        If a number is not positive and finite.
    """

    rate: float = 1.0
    intercept_scale: float | None = None

    def __post_init__(self) -> None:
        check_positive(rate=self.rate)
        if self.intercept_scale is not None:
            check_positive(intercept_scale=self.intercept_scale)

    @property
    def proper(self) -> bool:
        return self.intercept_scale is not None

    @property
    def shrinkage_settings(self) -> dict[str, float]:
        return {"l1": self.rate}

    @property
    def _intercept_precision(self) -> float:
        return 0.0 if self.intercept_scale is None else self.intercept_scale**-2

    def laws(self, like: Tensor) -> tuple[TorchDistribution, TorchDistribution]:
        zero = like.new_zeros(())
        coefficient = dist.Laplace(zero, like.new_full((), 1 / self.rate))
        if self.intercept_scale is None:
            return coefficient, Constant(like)
        return coefficient, dist.Normal(zero, like.new_full((), self.intercept_scale))

    def log_prob(self, sites: Sites) -> Tensor:
        value, intercept = sites["hyperplane"], sites["intercept"]
        total = value.numel() * math.log(self.rate / 2) - self.rate * value.abs().sum()
        if self.proper:
            total = total + self.laws(intercept)[1].log_prob(intercept).sum()
        return total

    def log_density(self, free: FreeSites, n_experts: int) -> float:
        size, square = np.abs(free["hyperplane"]).sum(), (free["intercept"] ** 2).sum()
        return float(-self.rate * size - 0.5 * self._intercept_precision * square)

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        # any slope up to the rate is a subgradient at 0; sign takes 0
        into["hyperplane"][...] = -self.rate * np.sign(free["hyperplane"])
        into["intercept"][...] = -self._intercept_precision * free["intercept"]

    def absent_log_prob(self, sites: Sites) -> Tensor:
        return (sites["hyperplane"] == 0).sum() * math.log(self.rate / 2)

    def expected_log_prob(self, moments: Moments) -> Tensor:
        # |beta| of a normal beta is folded normal
        mean, variance = moments.mean[..., :-1], moments.variance[..., :-1]
        present = variance > 0
        mean, spread = mean[present], variance[present].sqrt()
        ratio = mean / (math.sqrt(2) * spread)
        size = math.sqrt(2 / math.pi) * spread * (-ratio.square()).exp() + mean * ratio.erf()
        total = mean.numel() * math.log(self.rate / 2) - self.rate * size.sum()
        if self.intercept_scale is None:
            return total
        square = moments.mean[..., -1].square() + moments.variance[..., -1]
        constant = LOG_2PI / 2 + math.log(self.intercept_scale)
        return total - square.numel() * constant - square.sum() / (2 * self.intercept_scale**2)


@dataclass(frozen=True)
class Spatial(PenaltyPrior):
    """Smooth images: neighbouring pixels have similar coefficients (E2EDT, eq. 15).

    The log-density is -strength beta' M beta, with M the Laplacian matrix of the grid of pixels,
    which is the sum of squared differences between neighbours. It is improper: constant images
    have no penalty, and the intercepts are flat.

    Parameters
    ----------
    strength : float
        lambda of eq. 15, on the scaled features, in nats for the sum over the rows.
    shape : (int, int) or (int, int, int)
        Height and width of the images, and their channels, which vary fastest (as in a NumPy
        array of an image) and are smoothed separately.

    Raises
    ------
    ValueError
        If ``strength`` is not positive and finite, for a shape of other lengths, and if the number
        of coefficients is not the number of pixels.
    """

    strength: float
    shape: tuple[int, int] | tuple[int, int, int]
    couples_features: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(strength=self.strength)
        shape = tuple(self.shape)
        if len(shape) not in (2, 3) or any(int(n) != n or n < 1 for n in shape):
            raise ValueError(
                "shape must be (height, width) or (height, width, channels), each 1 or more, got "
                f"{self.shape!r}."
            )
        object.__setattr__(self, "shape", tuple(int(n) for n in shape))

    def state(self, size: Lengths, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        self.check_width(size.n_features)
        return super().state(size, like, plates)

    def log_prob(self, sites: Sites) -> Tensor:
        return -self.strength * self.roughness(sites["hyperplane"])

    def log_density(self, free: FreeSites, n_experts: int) -> float:
        image = free["hyperplane"].reshape(self._images(free["hyperplane"].shape))
        rough = sum((np.diff(image, axis=axis) ** 2).sum() for axis in (-3, -2))
        return float(-self.strength * rough)

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        # -2 strength M beta: differences of neighbours flow into one pixel and out of the other
        image = free["hyperplane"].reshape(self._images(free["hyperplane"].shape))
        found: FloatArray = np.zeros(image.shape)
        for axis in (-3, -2):
            ends = [(0, 0)] * image.ndim
            ends[axis] = (1, 1)
            found += np.diff(np.pad(np.diff(image, axis=axis), ends), axis=axis)
        into["hyperplane"][...] = 2 * self.strength * found.reshape(free["hyperplane"].shape)
        into["intercept"][...] = 0.0

    def expected_log_prob(self, moments: Moments) -> Tensor:
        # E beta' M beta: beta' M beta of the means plus the trace of M times the covariance
        rough = self.roughness(moments.mean[..., :-1])
        if moments.root is None:
            variance = moments.variance[..., :-1]
            spread = sum((one + other).sum() for one, other in self._neighbours(variance))
            return -self.strength * (rough + spread)
        # the trace of M root root' is beta' M beta summed over the columns of the root
        return -self.strength * (rough + self.roughness(moments.root[..., :-1, :].mT))

    def roughness(self, value: Tensor) -> Tensor:
        """Return beta' M beta of each image (..., d), summed: squared differences of neighbours."""
        parts = [(one - other).square().sum() for one, other in self._neighbours(value)]
        return parts[0] + parts[1]

    def _neighbours(self, value: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pixels and their neighbours below, and to the right."""
        self.check_width(value.shape[-1])
        image = value.reshape(self._images(value.shape))
        yield image[..., :-1, :, :], image[..., 1:, :, :]
        yield image[..., :-1, :], image[..., 1:, :]

    def _images(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of coefficients (..., d) as images (..., height, width, channels)."""
        height, width, *channels = self.shape
        return (*shape[:-1], height, width, *(channels or [1]))

    def check_width(self, n_features: int) -> None:
        """Raise ValueError for another number of features than that of the pixels."""
        if math.prod(self.shape) != n_features:
            raise ValueError(
                f"Spatial has the shape {self.shape}, {math.prod(self.shape)} pixels, but there "
                f"are {n_features} features: give the shape of the images."
            )


@dataclass(frozen=True)
class FeatureCount(PenaltyPrior):
    """At most two features per split, with a penalty on their number (bivariate trees).

    The log-density is -rate phi(w), phi = 0, 1 or ``pair`` where none, one or two coefficients
    of an expert are not 0, and minus infinity beyond. It has no gradient: TAO minimises it
    by search.

    Parameters
    ----------
    rate : float
        lambda, in units of the loss.
    pair : float
        C, the cost of two features relative to one.

    Raises
    ------
    ValueError
        If a number is not positive and finite.
    """

    rate: float = 1.0
    pair: float = 1.2
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive(rate=self.rate, pair=self.pair)

    def log_prob(self, sites: Sites) -> Tensor:
        value = sites["hyperplane"]
        cost = value.new_tensor([0.0, 1.0, self.pair, math.inf])
        return -self.rate * cost[(value != 0).sum(-1).clamp_max(3)].sum()
