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
from typing import Any

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.inference.samplers.density import Layout, Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import matching

LOG2 = math.log(2.0)
# Minimum log-weight of an expert whose boundary is flipped or kept; below it, no row is affected.
MIN_LOG_WEIGHT = -50.0
Expert = tuple[Any, int]  # node, or an index of several, and number within the node
Slide = Callable[[Sites, Expert, Any], Any]
SHORTEST = 0.03  # smallest standard deviation of a slide, on the log scale; the largest is 1


class BorderMoves:
    """The slides of the experts of a model.

    They change free sites in place and return the logarithm of the change of volume, NaN if the
    expert has no boundary. A slide of -length inverts a slide of length.
    """

    def __init__(self, model: SoftTree, n_experts: int) -> None:
        self.model, self.n_experts = model, n_experts
        self.slides: list[Slide] = [self.sharpen]
        if model.split.weighted:
            self.slides += [self.shift, self.trade] if n_experts > 1 else [self.shift]

    def sharpen(self, free: Sites, expert: Expert, length: Any) -> Any:
        """Multiply the expert's distances from its boundary, and its scales."""
        level, factor = border(free, expert), np.exp(length)
        free["hyperplane"][expert] *= factor[..., None]
        free["intercept"][expert] = level + factor * (free["intercept"][expert] - level)
        self.model.priors.hyperplane.rescale(free, expert, length)
        return length * (free["hyperplane"].shape[-1] + 1) + 0.0 * level

    def shift(self, free: Sites, expert: Expert, length: Any) -> Any:
        """Multiply the expert's weight; its boundary, and the slope of its score there, stay.

        The score is r softplus(a) and its slope r sigmoid(a): where r is small, the score is nearly
        linear in a, and r / c with c a is the same function.
        """
        level, slope = border(free, expert), _log_slope(free, expert)
        free["log_weight"][expert] += length
        new = border(free, expert)
        shrunk: Any = slope - _log_slope(free, expert)
        factor = np.exp(shrunk)
        free["hyperplane"][expert] *= factor[..., None]
        free["intercept"][expert] = new + factor * (free["intercept"][expert] - level)
        self.model.priors.hyperplane.rescale(free, expert, shrunk)
        return shrunk * (free["hyperplane"].shape[-1] + 1)

    def trade(self, free: Sites, expert: Expert, length: Any) -> Any:
        """Exchange weight with the next expert of the node; the sum of the weights stays.

        In the coordinates log(r + r') and log(r / r'), which keep volume, only the latter changes.
        """
        node, first = expert
        second, weight = (node, (first + 1) % self.n_experts), free["log_weight"]
        total = np.logaddexp(weight[expert], weight[second])
        odds = weight[expert] - weight[second] + length
        weight[expert], weight[second] = (
            total - np.logaddexp(0.0, -odds),
            total - np.logaddexp(0.0, odds),
        )
        return 0.0 * length


def border(free: Sites, expert: Expert) -> FloatArray:
    """Return the activation t at which an expert alone splits at 1/2, softplus(t) = log(2) / r."""
    log_weight = free["log_weight"][expert] if "log_weight" in free else 0.0  # NaN if negligible
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rate = LOG2 * np.exp(-log_weight)
        level: FloatArray = rate + np.log(-np.expm1(-rate))
    return np.where(np.asarray(log_weight) < MIN_LOG_WEIGHT, np.nan, level)[()]


def _log_slope(free: Sites, expert: Expert) -> FloatArray:
    """Compute log of r sigmoid(t), the slope of an expert's score along its activation t."""
    with np.errstate(invalid="ignore"):  # of a negligible weight
        silent: FloatArray = np.logaddexp(0.0, -border(free, expert))
    return free["log_weight"][expert] - silent


def expert_sites(layout: Layout, model: SoftTree) -> list[str]:
    """Return the names of the sites that each expert has."""
    dimensions = model.dimensions
    return [name for name in layout.shapes if dimensions[name][:2] == ("node", "expert")]


def draw_nodes(layout: Layout, model: SoftTree, count: int, rng: np.random.Generator) -> Sites:
    """Draw free sites of the experts of nodes from the prior, each (count, K, ...)."""
    shapes = {name: layout.shapes[name][1:] for name in expert_sites(layout, model)}
    free = {name: np.empty((count, *shape)) for name, shape in shapes.items()}
    for prior in model.split_priors:
        prior.draw_expert(free, ..., rng)
    return free


class ExpertMoves(BorderMoves):
    """Proposals for the experts of a tree; ``value`` is the log-density of a vector."""

    def __init__(
        self, model: SoftTree, layout: Layout, value: Callable[[FloatArray], float]
    ) -> None:
        super().__init__(model, layout.shapes["intercept"][1])
        self.layout, self.value = layout, value
        self.shape = layout.shapes["intercept"]
        children = model.topology.children
        self.pairs = [matching(model.topology, *map(int, pair)) for pair in children]
        self.mirrored = [node for node, pairs in enumerate(self.pairs) if pairs is not None]

    @staticmethod
    def covers(model: SoftTree) -> bool:
        """Return whether experts can be drawn from a model's priors."""
        weights_vary = model.split.weighted and model.priors.weight.sites
        return not weights_vary and all(
            prior.implements("draw_expert") for prior in model.split_priors
        )

    def refresh(
        self, vector: FloatArray, now: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Propose a draw from the prior for one expert.

        The likelihoods give the acceptance ratio: log joints minus log priors.
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
        level = border(free, (node, expert))
        if math.isnan(level):
            return vector, now
        free["hyperplane"][node, expert] *= -1
        free["intercept"][node, expert] = 2 * level - free["intercept"][node, expert]
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
        """Propose to move an expert along a curve on which the boundary stays."""
        slide = self.slides[int(rng.integers(len(self.slides)))]
        node, expert = (int(rng.integers(length)) for length in self.shape)
        length = SHORTEST ** rng.random() * rng.standard_normal()
        new = vector.copy()
        log_volume = slide(self.layout.free(new), (node, expert), length)
        if math.isnan(log_volume):
            return vector, now
        value = self.value(new)
        return (new, value) if _accepts(value - now + log_volume, rng) else (vector, now)

    def _log_prior(self, free: Sites, node: int, expert: int) -> float:
        """Compute the log-density of one expert, up to a constant."""
        dimensions = self.model.dimensions
        own = {n: value[node, expert] for n, value in free.items() if "node" in dimensions[n]}
        return sum(prior.log_density(own, self.shape[1]) for prior in self.model.split_priors)


def _accepts(gain: float, rng: np.random.Generator) -> bool:
    return bool(-rng.standard_exponential() < gain)
