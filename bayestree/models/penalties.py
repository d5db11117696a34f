"""Priors on hyperplanes that are the penalties of other trees: l1, spatial, number of features.

All are on the scaled features on which a tree is fitted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bayestree.distributions import Constant
from bayestree.models.moments import Moments
from bayestree.models.priors import Plates, check_positive
from bayestree.models.sites import Sites, Size

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Laplace:
    """Independent Laplace coefficients: the l1 penalty of sparse oblique trees (TAO).

    The log-density of an expert's d coefficients is d log(rate / 2) - rate ||beta||_1. Its mode
    is sparse, and TAO finds its zeros; gradients come close to them, and draws are never 0.

    Parameters
    ----------
    rate : float
        Of the Laplace law, on the scaled features; TAO's lambda where the loss is in nats.
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
    differentiable: ClassVar[bool] = True  # but at 0, where any slope up to the rate will do

    def __post_init__(self) -> None:
        check_positive(rate=self.rate)
        if self.intercept_scale is not None:
            check_positive(intercept_scale=self.intercept_scale)

    @property
    def proper(self) -> bool:
        """Whether the intercepts have a distribution too."""
        return self.intercept_scale is not None

    def _intercept_law(self, like: Tensor) -> dist.Normal:
        assert self.intercept_scale is not None
        return dist.Normal(like.new_zeros(()), like.new_tensor(self.intercept_scale))

    def state(self, size: Size, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        scale = like.new_tensor(1 / self.rate).expand(size.n_nodes, size.n_experts, size.n_features)
        with plates.node, plates.expert:
            hyperplane = pyro.sample("hyperplane", dist.Laplace(0.0, scale).to_event(1))
            law = Constant(like) if self.intercept_scale is None else self._intercept_law(like)
            intercept = pyro.sample("intercept", law)
        return hyperplane, intercept

    def log_prob(self, sites: Sites) -> Tensor:
        value, intercept = sites["hyperplane"], sites["intercept"]
        total = value.numel() * math.log(self.rate / 2) - self.rate * value.abs().sum()
        if self.intercept_scale is not None:
            total = total + self._intercept_law(intercept).log_prob(intercept).sum()
        return total

    def expected_log_prob(self, moments: Moments) -> Tensor:
        """Mean of the log-density under normal factors: |beta| is then folded normal."""
        mean, variance = moments.mean[..., :-1], moments.variance[..., :-1]
        spread = variance.sqrt()
        ratio = mean / (math.sqrt(2) * spread)
        size = math.sqrt(2 / math.pi) * spread * (-ratio.square()).exp() + mean * ratio.erf()
        total = mean.numel() * math.log(self.rate / 2) - self.rate * size.sum()
        if self.intercept_scale is None:
            return total
        square = moments.mean[..., -1].square() + moments.variance[..., -1]
        constant = LOG_2PI / 2 + math.log(self.intercept_scale)
        return total - square.numel() * constant - square.sum() / (2 * self.intercept_scale**2)


@dataclass(frozen=True)
class Spatial:
    """Smooth images: neighbouring pixels have similar coefficients (E2EDT, eq. 15).

    The log-density is -strength beta' M beta, with M the Laplacian matrix of the grid of pixels,
    which is the sum of squared differences between neighbours. It is improper: an image of one
    constant costs nothing, and the intercepts are flat.

    Parameters
    ----------
    strength : float
        lambda of eq. 15, on the scaled features; there in nats for the sum over the rows.
    shape : (int, int) or (int, int, int)
        Height and width of the images, and their channels, which vary fastest (as in a NumPy
        array of an image) and are smoothed each by itself.

    Raises
    ------
    ValueError
        If ``strength`` is not positive and finite, for a shape of other lengths, and for
        coefficients of another number than the shape has pixels.
    """

    strength: float
    shape: tuple[int, int] | tuple[int, int, int]
    proper: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(strength=self.strength)
        shape = tuple(self.shape)
        if len(shape) not in (2, 3) or any(int(n) != n or n < 1 for n in shape):
            raise ValueError(
                "shape must be (height, width) or (height, width, channels), each 1 or more, got "
                f"{self.shape!r}."
            )
        object.__setattr__(self, "shape", tuple(int(n) for n in shape))

    def state(self, size: Size, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        self._check_width(size.n_features)
        return _stated(self, size, like, plates)

    def log_prob(self, sites: Sites) -> Tensor:
        return -self.strength * self.roughness(sites["hyperplane"])

    def expected_log_prob(self, moments: Moments) -> Tensor:
        """Mean of the log-density under normal factors: beta' M beta of the means, and trace."""
        rough = self.roughness(moments.mean[..., :-1])
        if moments.root is None:
            variance = moments.variance[..., :-1]
            spread = sum((one + other).sum() for one, other in self._neighbours(variance))
            return -self.strength * (rough + spread)
        # the trace of M root root' is beta' M beta summed over the columns of the root
        return -self.strength * (rough + self.roughness(moments.root[..., :-1, :].mT))

    def roughness(self, value: Tensor) -> Tensor:
        """beta' M beta of each image (..., d), summed: squared differences of neighbours."""
        parts = [(one - other).square().sum() for one, other in self._neighbours(value)]
        return parts[0] + parts[1]

    def _neighbours(self, value: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pixels and their neighbours below, and to the right."""
        self._check_width(value.shape[-1])
        height, width, *channels = self.shape
        image = value.reshape(*value.shape[:-1], height, width, *(channels or [1]))
        yield image[..., :-1, :, :], image[..., 1:, :, :]
        yield image[..., :-1, :], image[..., 1:, :]

    def _check_width(self, n_features: int) -> None:
        if math.prod(self.shape) != n_features:
            raise ValueError(
                f"Spatial has the shape {self.shape}, {math.prod(self.shape)} pixels, but there "
                f"are {n_features} features: give the shape of the images."
            )


@dataclass(frozen=True)
class FeatureCount:
    """At most two features a split, and the fewer the better (bivariate trees).

    The log-density is -rate phi(w), phi = 0, 1 or ``pair`` where none, one or two coefficients
    of an expert are not 0, and minus infinity beyond. It has no gradient: TAO descends it by
    search.

    Parameters
    ----------
    rate : float
        lambda, in units of the loss.
    pair : float
        C, what two features cost, in units of one.

    Raises
    ------
    ValueError
        If a number is not positive and finite.
    """

    rate: float = 1.0
    pair: float = 1.2
    proper: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive(rate=self.rate, pair=self.pair)

    def state(self, size: Size, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        return _stated(self, size, like, plates)

    def log_prob(self, sites: Sites) -> Tensor:
        value = sites["hyperplane"]
        cost = value.new_tensor([0.0, 1.0, self.pair, math.inf])
        return -self.rate * cost[(value != 0).sum(-1).clamp_max(3)].sum()


def _stated(
    prior: Spatial | FeatureCount, size: Size, like: Tensor, plates: Plates
) -> tuple[Tensor, Tensor]:
    """Flat sites, and the penalty as a factor."""
    wide = Constant(like, torch.Size((size.n_nodes, size.n_experts, size.n_features)))
    with plates.node, plates.expert:
        hyperplane = pyro.sample("hyperplane", wide.to_event(1))
        intercept = pyro.sample("intercept", Constant(like))
    pyro.factor("hyperplane_penalty", prior.log_prob({"hyperplane": hyperplane}))
    return hyperplane, intercept
