"""The part of a soft tree's log-density on which a sampler's trajectory moves.

Sites that the prior on hyperplanes can draw given the others (the shrinkages of
``InverseGammaScale``) are fixed, and drawn between trajectories.
"""

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.inference.hamiltonian import Place
from bayestree.inference.metric import Precision, Whitening, expert_blocks
from bayestree.inference.potential import TreeDensity


class Given:
    """The log-density of the coordinates that move, given those that do not, in a whitened space.

    ``vector`` (D,) is the start, whose coordinates from ``layout.n_moving`` on are fixed;
    ``information`` is that of the data on the others.
    """

    def __init__(self, density: TreeDensity, vector: FloatArray, information: Precision) -> None:
        self.density, self.start = density, vector
        layout, prior = density.layout, density.model.priors.hyperplane
        self.moving = layout.n_moving
        curvature = np.zeros_like(vector)
        if self.moving < layout.length:
            free, precision = layout.free(curvature), prior.precision(layout.free(vector))
            free["hyperplane"][...] = precision[..., :-1]
            free["intercept"][...] = precision[..., -1]
        self.whitening = Whitening(information, expert_blocks(layout), curvature[: self.moving])

    @property
    def unit(self) -> FloatArray:
        """The mass of every coordinate, 1."""
        return np.ones(self.moving)

    def vector(self, white: FloatArray) -> FloatArray:
        """The whole vector (D,) at white coordinates."""
        return np.concatenate([self.whitening.position(white), self.start[self.moving :]])

    def value_and_gradient(self, white: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = self.density.value_and_gradient(self.vector(white))
        return value, self.whitening.gradient(gradient[: self.moving])

    def place(self) -> Place:
        """The start, with its log-density and gradient."""
        white = self.whitening.white(self.start[: self.moving])
        return Place(white, *self.value_and_gradient(white))


def gradient_of_data(density: TreeDensity, vector: FloatArray) -> FloatArray:
    """Gradient along the coordinates that move, from which the metric is estimated.

    It excludes a prior whose precision is known at each draw; any other prior is as fixed as the
    data, and estimated with them.
    """
    _, gradient = density.value_and_gradient(vector)
    layout = density.layout
    if layout.n_moving < layout.length:
        into, prior = layout.free(gradient), layout.free(np.empty_like(vector))
        density.model.priors.hyperplane.set_gradient(layout.free(vector), prior)
        for name in ("hyperplane", "intercept"):
            into[name] -= prior[name]
    return gradient[: layout.n_moving]
