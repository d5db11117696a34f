"""Metropolis moves on a soft tree's posterior, where a gradient-based sampler is slow.

Each is a proposal on the unconstrained vector that leaves the posterior invariant.
Low density separates useful facets: gradients seldom carry an expert from one to another, but a
draw from the prior sometimes does. A half-space, and its complement with the branches swapped,
describe the same split: two modes of nearly equal mass. And the boundary of an expert hardly
determines its weight and the size of its coefficients: a long, curved ridge, along which an expert
slides in one step.
"""

import math
from collections.abc import Callable

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.potential import Layout, Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology

LOG2 = math.log(2.0)
# Minimum log-weight of an expert whose boundary is flipped or kept; below it, no row is affected.
MIN_LOG_WEIGHT = -50.0
SHORTEST = 0.03  # smallest standard deviation of a slide, on the log scale; the largest is 1


Expert = tuple[int, int]  # node and number within the node
Slide = Callable[[Sites, Expert, float], float]


class Jumps:
    """Proposals for the experts of a tree; ``value`` is the log-density of a vector."""

    def __init__(
        self, model: SoftTree, layout: Layout, value: Callable[[FloatArray], float]
    ) -> None:
        self.model, self.layout, self.value = model, layout, value
        self.shape = layout.shapes["intercept"]
        children = model.topology.children
        self.pairs = [_matching(model.topology, *map(int, pair)) for pair in children]
        self.mirrored = [node for node, pairs in enumerate(self.pairs) if pairs is not None]
        self.slides: list[Slide] = [self.sharpen]
        if model.split.weighted:
            self.slides += [self.shift, self.trade] if self.shape[1] > 1 else [self.shift]

    @staticmethod
    def covers(model: SoftTree) -> bool:
        """Whether experts can be drawn from a model's priors."""
        weights_vary = model.split.weighted and model.priors.weight.sites
        return not weights_vary and all(
            prior.implements("draw_expert") for prior in model.split_priors
        )

    def refresh(
        self, vector: FloatArray, now: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Propose a draw from the prior for one expert.

        The acceptance ratio is that of the likelihoods: log joints minus log priors.
        """
        node, expert = (int(rng.integers(length)) for length in self.shape)
        new = vector.copy()
        free = self.layout.free(new)
        old_prior = self._log_prior(free, node, expert)
        for prior in self.model.split_priors:
            prior.draw_expert(free, (node, expert), rng)
        value = self.value(new)
        gain = (value - self._log_prior(free, node, expert)) - (now - old_prior)
        return (new, value) if _accepts(gain, rng) else (vector, now)

    def mirror(
        self, vector: FloatArray, now: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Propose to flip one facet of a node in place and to swap the node's branches.

        The boundary at which the expert alone would split at 1/2 is kept: beta' = -beta and
        b' = 2 t - b, with the threshold t of its weight r, softplus(t) = log(2) / r. The move is
        its own inverse and preserves volume. Nodes with branches of different shapes are skipped.
        """
        if not self.mirrored:
            return vector, now
        node = self.mirrored[int(rng.integers(len(self.mirrored)))]
        expert = int(rng.integers(self.shape[1]))
        new = vector.copy()
        free = self.layout.free(new)
        border = _border(free, (node, expert))
        if math.isnan(border):
            return vector, now
        free["hyperplane"][node, expert] *= -1
        free["intercept"][node, expert] = 2 * border - free["intercept"][node, expert]
        dimensions = self.model.dimensions
        for dimension, first, second in self.pairs[node] or ():
            for name, value in free.items():
                if dimension in dimensions[name]:
                    value[[first, second]] = value[[second, first]]
        changed = self.value(new)
        return (new, changed) if _accepts(changed - now, rng) else (vector, now)

    def slide(
        self, vector: FloatArray, now: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Propose to move an expert along one of the curves on which the boundary stays.

        The length of the move is normal, with a standard deviation between ``SHORTEST`` and 1.
        """
        slide = self.slides[int(rng.integers(len(self.slides)))]
        node, expert = (int(rng.integers(length)) for length in self.shape)
        length = SHORTEST ** rng.random() * rng.standard_normal()
        new = vector.copy()
        log_volume = slide(self.layout.free(new), (node, expert), length)
        if math.isnan(log_volume):
            return vector, now
        value = self.value(new)
        return (new, value) if _accepts(value - now + log_volume, rng) else (vector, now)

    # Slides change the sites in place and return the logarithm of the change of volume, NaN if the
    # expert has no boundary. A slide of -length is the inverse of one of length.

    def sharpen(self, free: Sites, expert: Expert, length: float) -> float:
        """Multiply the expert's distances from its boundary, and its scales."""
        border, factor = _border(free, expert), math.exp(length)
        if math.isnan(border):
            return math.nan
        free["hyperplane"][expert] *= factor
        free["intercept"][expert] = border + factor * (free["intercept"][expert] - border)
        self.model.priors.hyperplane.rescale(free, expert, length)
        return length * (len(free["hyperplane"][expert]) + 1)

    def shift(self, free: Sites, expert: Expert, length: float) -> float:
        """Multiply the expert's weight, and move its intercept so that the boundary stays."""
        old = _border(free, expert)
        free["log_weight"][expert] += length
        distance = _border(free, expert) - old
        if math.isnan(distance):
            return math.nan
        free["intercept"][expert] += distance
        return 0.0

    def trade(self, free: Sites, expert: Expert, length: float) -> float:
        """Exchange weight with the next expert of the node; the sum of the weights stays.

        In the coordinates log(r + r') and log(r / r'), which keep volume, only the latter changes.
        """
        node, first = expert
        pair = [first, (first + 1) % self.shape[1]]
        old = free["log_weight"][node, pair]
        odds = old[0] - old[1] + length
        total = np.logaddexp(*old)
        free["log_weight"][node, pair] = total - np.logaddexp(0.0, [-odds, odds])
        return 0.0

    def _log_prior(self, free: Sites, node: int, expert: int) -> float:
        """Log-density of one expert, up to a constant."""
        dimensions = self.model.dimensions
        own = {n: value[node, expert] for n, value in free.items() if "node" in dimensions[n]}
        return sum(prior.log_density(own, self.shape[1]) for prior in self.model.split_priors)


def _border(free: Sites, expert: Expert) -> float:
    """The activation t at which an expert alone splits at 1/2, softplus(t) = log(2) / r.

    NaN for a negligible weight.
    """
    log_weight = float(free["log_weight"][expert]) if "log_weight" in free else 0.0
    if log_weight < MIN_LOG_WEIGHT:
        return math.nan
    rate = LOG2 * math.exp(-log_weight)
    return rate + math.log(-math.expm1(-rate))


Swap = tuple[str, int, int]  # dimension, and the two entries that are exchanged


def _matching(topology: Topology, left: int, right: int) -> list[Swap] | None:
    """Entries exchanged when two branches are swapped; None if their shapes differ."""
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


def _accepts(gain: float, rng: np.random.Generator) -> bool:
    return bool(-rng.standard_exponential() < gain)
