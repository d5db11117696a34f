"""Log-densities of priors on hyperplanes with their gradients written out, up to constants.

Sites are those of :mod:`bayestree.inference.potential`: shrinkages by their logarithms.
"""

from typing import Any, Protocol

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.models.penalties import Laplace, Spatial
from bayestree.models.priors import Flat, HyperplanePrior, InverseGammaScale

Sites = dict[str, FloatArray]


class PriorGradient(Protocol):
    """Of ``hyperplane``, ``intercept`` and what the prior states beside them."""

    def value(self, free: Sites) -> float:
        """Log-density, with the Jacobian of the shrinkages."""

    def set_gradient(self, free: Sites, into: Sites) -> None:
        """Write its gradient."""


class ScaleGradient:
    """Of ``InverseGammaScale`` with the scales integrated out."""

    def __init__(self, prior: InverseGammaScale) -> None:
        self.prior = prior

    def value(self, free: Sites) -> float:
        prior = self.prior
        b, width = np.exp(free["shrinkage"]), free["hyperplane"].shape[-1] + 1
        ratio = free["hyperplane"] ** 2 / (2 * b[..., None])
        tail = np.log1p(ratio).sum() + np.log1p(free["intercept"] ** 2 / (2 * b)).sum()
        own = (prior.shrinkage_shape - 0.5 * width) * free["shrinkage"] - prior.shrinkage_rate * b
        return float(own.sum() - (prior.shape + 0.5) * tail)

    def set_gradient(self, free: Sites, into: Sites) -> None:
        prior = self.prior
        b, width = np.exp(free["shrinkage"]), free["hyperplane"].shape[-1] + 1
        pull = 2 * prior.shape + 1
        plane, offset = free["hyperplane"], free["intercept"]
        into["hyperplane"][...] = -pull * plane / (2 * b[..., None] + plane**2)
        into["intercept"][...] = -pull * offset / (2 * b + offset**2)
        # coefficients times minus their own gradients, over two
        shrunk = (into["hyperplane"] * plane).sum(-1) + into["intercept"] * offset
        into["shrinkage"][...] = (
            prior.shrinkage_shape - 0.5 * width - prior.shrinkage_rate * b - 0.5 * shrunk
        )


class FlatGradient:
    """Of ``Flat``: nothing."""

    def __init__(self, prior: Flat) -> None:
        pass

    def value(self, free: Sites) -> float:
        return 0.0

    def set_gradient(self, free: Sites, into: Sites) -> None:
        into["hyperplane"][...] = into["intercept"][...] = 0.0


class LaplaceGradient:
    """Of ``Laplace``; 0 where a coefficient is 0."""

    def __init__(self, prior: Laplace) -> None:
        self.rate = prior.rate
        scale = prior.intercept_scale
        self.precision = 0.0 if scale is None else scale**-2

    def value(self, free: Sites) -> float:
        size, square = np.abs(free["hyperplane"]).sum(), (free["intercept"] ** 2).sum()
        return float(-self.rate * size - 0.5 * self.precision * square)

    def set_gradient(self, free: Sites, into: Sites) -> None:
        into["hyperplane"][...] = -self.rate * np.sign(free["hyperplane"])
        into["intercept"][...] = -self.precision * free["intercept"]


class SpatialGradient:
    """Of ``Spatial``: -2 strength M beta."""

    def __init__(self, prior: Spatial) -> None:
        self.strength = prior.strength
        height, width, *channels = prior.shape
        self.image = (height, width, *(channels or [1]))

    def value(self, free: Sites) -> float:
        image = self._images(free["hyperplane"])
        rough = sum((np.diff(image, axis=axis) ** 2).sum() for axis in (-3, -2))
        return float(-self.strength * rough)

    def set_gradient(self, free: Sites, into: Sites) -> None:
        image = self._images(free["hyperplane"])
        found = np.zeros(image.shape)
        for axis in (-3, -2):
            # what flows into a pixel from the next one leaves that one
            flow = np.diff(image, axis=axis)
            ends = [(0, 0)] * image.ndim
            ends[axis] = (1, 1)
            found += np.diff(np.pad(flow, ends), axis=axis)
        into["hyperplane"][...] = 2 * self.strength * found.reshape(free["hyperplane"].shape)
        into["intercept"][...] = 0.0

    def _images(self, plane: FloatArray) -> FloatArray:
        return plane.reshape(*plane.shape[:-1], *self.image)


WRITTEN: dict[type, Any] = {
    Flat: FlatGradient,
    InverseGammaScale: ScaleGradient,
    Laplace: LaplaceGradient,
    Spatial: SpatialGradient,
}


def prior_gradient(prior: HyperplanePrior) -> PriorGradient | None:
    """The gradient of a prior, where it is written out."""
    kind = WRITTEN.get(type(prior))
    return None if kind is None else kind(prior)
