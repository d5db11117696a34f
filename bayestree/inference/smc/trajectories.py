"""Hamiltonian trajectories of all particles at once, between draws of the scales.

Given the scales of the coefficients the prior is normal, and its precision, which spans many orders
of magnitude, enters the mass of each coefficient. The curvature of the likelihood is estimated from
the gradients of all particles.
"""

from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.inference.smc.likelihood import Rows
from bayestree.inference.smc.particles import Particles, Prior

STEPS = 8  # leapfrog steps of a trajectory
TARGET = 0.75  # mean acceptance probability
SPREAD = 4.0  # ratio of the largest step size to the smallest
RATE = 0.3  # of the adaptation of the logarithm of the step size


class Moved(NamedTuple):
    """Result of a trajectory of each particle."""

    particles: Particles
    acceptance: float
    second_moment: FloatArray  # of the gradients of the log-likelihood, (D,)


class Trajectories:
    """Trajectories at a temperature, given scales drawn for each particle."""

    def __init__(self, rows: Rows, prior: Prior, curvature: FloatArray, spread: FloatArray) -> None:
        self.rows, self.prior, self.power = rows, prior, rows.power
        self.curvature, self.spread = curvature, spread
        self.moving = prior.layout.n_moving

    def move(self, particles: Particles, step_size: float, rng: np.random.Generator) -> Moved:
        """One trajectory of each particle, accepted by its energy."""
        layout, hyperplane = self.prior.layout, self.prior.model.priors.hyperplane
        self.used = self._in_use(particles)
        free = layout.free(particles.vectors)
        hyperplane.redraw(free, rng)
        self.precision = np.zeros_like(particles.vectors)
        into, drawn = layout.free(self.precision), hyperplane.draw_precision(free, rng)
        into["hyperplane"][...], into["intercept"][...] = drawn[..., :-1], drawn[..., -1]
        self.law_precision = self.precision.copy()
        coefficients = self.precision > 0
        self.precision += np.where(coefficients, 0.0, 1.0 / self.spread**2) + self.curvature
        count = len(particles.vectors)
        step = step_size * SPREAD ** -rng.random((count, 1)) / np.sqrt(self.precision) * self.used
        momentum = rng.standard_normal(particles.vectors.shape) * self.used
        value, slope, data = self._value_and_gradient(particles)
        start = value - 0.5 * (momentum**2).sum(1)
        moved = Particles(particles.vectors.copy(), particles.splits)
        second = (data**2 * self.used).sum(0) / np.maximum(self.used.sum(0), 1)
        lost = np.zeros(count, dtype=bool)
        for _ in range(STEPS):
            momentum += 0.5 * step * slope
            moved.vectors += step * momentum
            lost |= ~self.prior.possible(moved.vectors)
            moved.vectors[lost] = particles.vectors[lost]
            value, slope, data = self._value_and_gradient(moved)
            momentum += 0.5 * step * slope
        gain = value - 0.5 * (momentum**2).sum(1) - start
        gain = np.where(np.isfinite(gain) & ~lost, gain, -np.inf)
        accept = -rng.standard_exponential(count) < gain
        moved.vectors[~accept] = particles.vectors[~accept]
        return Moved(moved, float(np.exp(np.minimum(gain, 0.0)).mean()), second)

    def _in_use(self, particles: Particles) -> BoolArray:
        """Coordinates that move: of nodes that split, and of leaves in use, (P, D)."""
        used = np.zeros(particles.vectors.shape, dtype=bool)
        free = self.prior.layout.free(used)
        for name in ("log_weight", "hyperplane", "intercept"):
            if name in free:
                free[name][particles.splits] = True
        leaves = particles.leaves_in_use(self.prior.model)
        for name in self.prior.model.leaf.sites:
            free[name][leaves] = True
        used[:, self.moving :] = False
        return used

    def _value_and_gradient(
        self, particles: Particles
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Tempered log-density (P,), its gradient, and that of the tempered log-likelihood."""
        value, gradient = self.rows.value_and_gradient(particles)
        value, gradient = self.power * value, self.power * gradient
        prior_value, prior_gradient = self.prior.moving(particles.vectors, self.used)
        pull = self.law_precision * particles.vectors * self.used
        value = value + prior_value - 0.5 * (pull * particles.vectors).sum(1)
        return value, (gradient + prior_gradient - pull) * self.used, gradient


def adapted(step_size: float, acceptance: float) -> float:
    """The step size for the next trajectories."""
    return float(step_size * np.exp(RATE * (acceptance - TARGET)))
