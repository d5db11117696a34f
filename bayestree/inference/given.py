"""The part of a soft tree's log-density that a sampler's trajectory moves in.

The shrinkages of ``InverseGammaScale``, if there are any, are given, and drawn between
trajectories.
"""

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.inference.hamiltonian import Place
from bayestree.inference.metric import Learnt, Whitening, expert_blocks
from bayestree.inference.potential import NumpyDensity, Sites, TorchDensity
from bayestree.models.priors import InverseGammaScale


class Given:
    """The log-density of all coordinates but the shrinkages, which come last and stay.

    In coordinates that the data and the present shrinkages make about equally wide.

    Parameters
    ----------
    density : NumpyDensity or TorchDensity
    vector : array, shape (D,)
        Whose shrinkages are given.
    information : Learnt
        Of the data, on the coordinates that move.
    """

    def __init__(
        self, density: NumpyDensity | TorchDensity, vector: FloatArray, information: Learnt
    ) -> None:
        self.density, self.start = density, vector
        self.moving = n_moving(density)
        curvature = np.zeros_like(vector)
        prior = density.model.priors.hyperplane
        if isinstance(prior, InverseGammaScale):
            free = density.layout.free(curvature)
            bend = (prior.shape + 0.5) * np.exp(-density.layout.free(vector)["shrinkage"])
            free["hyperplane"][...], free["intercept"][...] = bend[..., None], bend
        blocks = expert_blocks(density.layout)
        self.whitening = Whitening(information, blocks, curvature[: self.moving])

    @property
    def unit(self) -> FloatArray:
        """The mass of every coordinate."""
        return np.ones(self.moving)

    def vector(self, white: FloatArray) -> FloatArray:
        """The whole vector (D,) at white coordinates."""
        return np.append(self.whitening.position(white), self.start[self.moving :])

    def value_and_gradient(self, white: FloatArray) -> tuple[float, FloatArray]:
        """Log-density and gradient at white coordinates."""
        value, gradient = self.density.value_and_gradient(self.vector(white))
        return value, self.whitening.gradient(gradient[: self.moving])

    def place(self) -> Place:
        """Where the vector is."""
        white = self.whitening.white(self.start[: self.moving])
        return Place(white, *self.value_and_gradient(white))


def n_moving(density: NumpyDensity | TorchDensity) -> int:
    """Length of a vector without its shrinkages."""
    places = density.layout.places
    return places["shrinkage"].start if "shrinkage" in places else density.layout.length


def gradient_of_data(density: NumpyDensity | TorchDensity, vector: FloatArray) -> FloatArray:
    """Gradient of all but the shrinkages, without their pull on the coefficients.

    Other priors are as fixed as the data, and their pull is learnt with theirs.
    """
    _, gradient = density.value_and_gradient(vector)
    prior = density.model.priors.hyperplane
    if isinstance(prior, InverseGammaScale):
        at, into = density.layout.free(vector), density.layout.free(gradient)
        b = np.exp(at["shrinkage"])
        for name, own in (("hyperplane", b[..., None]), ("intercept", b)):
            into[name] += (2 * prior.shape + 1) * at[name] / (2 * own + at[name] ** 2)
    return gradient[: n_moving(density)]


def redraw_shrinkage(free: Sites, prior: InverseGammaScale, rng: np.random.Generator) -> None:
    """Draw the shrinkages b given the coefficients, in place, through the scales (CPT, eq. 6).

    1 / sigma^2 given beta and b is Gamma(a + 1/2, b + beta^2 / 2), and b given these is
    Gamma(e_0 + (d + 1) a, f_0 + sum of 1 / sigma^2).
    """
    coefficient = np.concatenate([free["hyperplane"], free["intercept"][..., None]], axis=-1)
    b = np.exp(free["shrinkage"])[..., None]
    precision = rng.standard_gamma(prior.shape + 0.5, coefficient.shape) / (b + coefficient**2 / 2)
    shape = prior.shrinkage_shape + coefficient.shape[-1] * prior.shape
    rate = prior.shrinkage_rate + precision.sum(-1)
    free["shrinkage"][...] = np.log(rng.standard_gamma(shape, rate.shape) / rate)
