"""Moves between modes of a soft tree's posterior, for samplers that walk along gradients.

Each is a Metropolis proposal on the unconstrained vector that leaves the posterior as it is.
A facet that is needed is surrounded by valleys: gradients seldom carry an expert there, a fresh
draw from the prior sometimes does. And a half-space says the same as its complement with the
branches swapped: two modes of nearly equal mass.
"""

import math
from collections.abc import Callable

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.potential import Layout, Sites
from bayestree.models.priors import GammaProcess, InverseGammaScale
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

LOG2 = math.log(2.0)
LEAST = -50.0  # log-weight of an expert that is worth turning; it borders on no row below


class Jumps:
    """Proposals for the experts of a tree.

    Parameters
    ----------
    model : SoftTree
        With a ``GammaProcess`` (or weights of 1) and ``InverseGammaScale``.
    layout : Layout
    value : callable
        Log-density of a vector.
    """

    def __init__(
        self, model: SoftTree, layout: Layout, value: Callable[[FloatArray], float]
    ) -> None:
        self.model, self.layout, self.value = model, layout, value
        self.shape = layout.shapes["intercept"]
        children = model.topology.children
        self.pairs = [_matching(model.topology, *map(int, pair)) for pair in children]
        self.mirrored = [node for node, pairs in enumerate(self.pairs) if pairs is not None]

    @staticmethod
    def covers(model: SoftTree) -> bool:
        """Whether fresh experts can be drawn from a model's priors."""
        return isinstance(model.priors.hyperplane, InverseGammaScale)

    def refresh(
        self, vector: FloatArray, now: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Propose a fresh draw from the prior for one expert."""
        node, expert = (int(rng.integers(length)) for length in self.shape)
        new = vector.copy()
        free = self.layout.free(new)
        gone = self._log_prior(free, node, expert)
        self._draw(free, node, expert, rng)
        value = self.value(new)
        gain = (value - self._log_prior(free, node, expert)) - (now - gone)
        return (new, value) if _accepts(gain, rng) else (vector, now)

    def mirror(
        self, vector: FloatArray, now: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Propose to turn one facet of a node round, where it stands, and swap the branches.

        The facet's own border, where it alone would split at 1/2, is kept: b' = 2 t - b with the
        threshold t of its weight. Twice the same is nothing, and volume is preserved. Nodes whose
        branches have different shapes are left out.
        """
        if not self.mirrored:
            return vector, now
        node = self.mirrored[int(rng.integers(len(self.mirrored)))]
        expert = int(rng.integers(self.shape[1]))
        new = vector.copy()
        free = self.layout.free(new)
        log_weight = float(free["log_weight"][node, expert]) if "log_weight" in free else 0.0
        if log_weight < LEAST:
            return vector, now
        rate = LOG2 * math.exp(-log_weight)
        border = rate + math.log(-math.expm1(-rate))
        free["hyperplane"][node, expert] *= -1
        free["intercept"][node, expert] = 2 * border - free["intercept"][node, expert]
        dimensions = self.model.dimensions
        for dimension, first, second in self.pairs[node] or ():
            for name, value in free.items():
                if dimension in dimensions[name]:
                    value[[first, second]] = value[[second, first]]
        changed = self.value(new)
        return (new, changed) if _accepts(changed - now, rng) else (vector, now)

    def _draw(self, free: Sites, node: int, expert: int, rng: np.random.Generator) -> None:
        prior = self._scale_prior
        log_b = _log_gamma(prior.shrinkage_shape, prior.shrinkage_rate, rng)
        unit = math.exp(0.5 * log_b) / math.sqrt(prior.shape)
        plane = free["hyperplane"][node, expert]
        plane[...] = unit * rng.standard_t(2 * prior.shape, len(plane))
        free["intercept"][node, expert] = unit * rng.standard_t(2 * prior.shape)
        free["shrinkage"][node, expert] = log_b
        if "log_weight" in free:
            process = self._process
            fresh = _log_gamma(process.concentration / self.shape[1], process.rate, rng)
            free["log_weight"][node, expert] = fresh

    def _log_prior(self, free: Sites, node: int, expert: int) -> float:
        """Log-density of one expert, up to a constant."""
        prior, log_b = self._scale_prior, free["shrinkage"][node, expert]
        b = math.exp(log_b)
        coefficient = np.append(free["hyperplane"][node, expert], free["intercept"][node, expert])
        tail = np.log1p(coefficient**2 / (2 * b)).sum()
        power = prior.shrinkage_shape - 0.5 * len(coefficient)
        total = power * log_b - prior.shrinkage_rate * b - (prior.shape + 0.5) * tail
        if "log_weight" in free:
            process, log_weight = self._process, free["log_weight"][node, expert]
            total += process.concentration / self.shape[1] * log_weight
            total -= process.rate * math.exp(log_weight)
        return float(total)

    @property
    def _scale_prior(self) -> InverseGammaScale:
        prior = self.model.priors.hyperplane
        assert isinstance(prior, InverseGammaScale)
        return prior

    @property
    def _process(self) -> GammaProcess:
        prior = self.model.priors.weight
        assert isinstance(prior, GammaProcess)
        return prior


Swap = tuple[str, int, int]  # dimension, and the two entries that are exchanged


def _matching(topology: Topology, left: int, right: int) -> list[Swap] | None:
    """Entries exchanged when two branches are; None if the shapes of the branches differ."""
    if left < 0 and right < 0:
        return [("leaf", ~left, ~right)]
    if left < 0 or right < 0:
        return None
    pairs: list[Swap] = [("node", left, right)]
    children: IntArray = topology.children
    for first, second in zip(children[left], children[right], strict=True):
        below = _matching(topology, int(first), int(second))
        if below is None:
            return None
        pairs += below
    return pairs


def _log_gamma(shape: float, rate: float, rng: np.random.Generator) -> float:
    """Logarithm of a gamma draw that cannot underflow, as in ``LogGamma``."""
    boosted = math.log(rng.standard_gamma(shape + 1))
    return boosted - rng.standard_exponential() / shape - math.log(rate)


def _accepts(gain: float, rng: np.random.Generator) -> bool:
    return bool(-rng.standard_exponential() < gain)
