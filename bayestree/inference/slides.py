"""Moves of experts along the curves on which their boundaries stay.

The boundary of an expert hardly determines its weight and the size of its coefficients. All
functions take one expert, or an index of many.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.inference.potential import Sites
from bayestree.models.soft_tree import SoftTree

LOG2 = math.log(2.0)
# Minimum log-weight of an expert whose boundary is flipped or kept; below it, no row is affected.
MIN_LOG_WEIGHT = -50.0

Expert = tuple[Any, int]  # node, or an index of several, and number within the node
Slide = Callable[[Sites, Expert, Any], Any]


class Slides:
    """The slides of the experts of a model.

    They change free sites in place and return the logarithm of the change of volume, NaN if the
    expert has no boundary. A slide of -length is the inverse of one of length.
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
    """The activation t at which an expert alone splits at 1/2, softplus(t) = log(2) / r.

    NaN for a negligible weight.
    """
    log_weight = free["log_weight"][expert] if "log_weight" in free else 0.0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rate = LOG2 * np.exp(-log_weight)
        level: FloatArray = rate + np.log(-np.expm1(-rate))
    return np.where(np.asarray(log_weight) < MIN_LOG_WEIGHT, np.nan, level)[()]


def _log_slope(free: Sites, expert: Expert) -> FloatArray:
    """log of r sigmoid(t), the slope of an expert's score along its activation at the border t."""
    with np.errstate(invalid="ignore"):  # of a negligible weight
        silent: FloatArray = np.logaddexp(0.0, -border(free, expert))
    return free["log_weight"][expert] - silent
