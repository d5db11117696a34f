"""CART-LC: coordinate descent from the best cut of one feature."""

from typing import Annotated, Literal

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Inference, Model, NonNegative, declare
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch

SHIFTS = (-0.25, 0.0, 0.25)  # gamma of the book
Start = Literal["axis", "random"]


@declare
class CartLC(PlaneSearch):
    """CART with linear combinations (Breiman, Friedman, Olshen and Stone, 1984, section 5.2.2).

    As described by Murthy, Kasif and Salzberg (1994, figure 2): features are centred at their
    medians and divided by their interquartile ranges. In turn, each coefficient and the threshold
    take their best values given the others, until a cycle gains too little; then features that
    hardly contribute are removed. Deterministic from the best cut of one feature.

    {parameters}
    """

    start: Annotated[
        Start,
        Inference(
            "Start from the best split by one feature, if there is one, or along a random "
            "direction."
        ),
    ] = "axis"
    tolerance: Annotated[
        NonNegative,
        Inference("Gain of a cycle, relative to the gain of the split, at which the search ends."),
    ] = 0.001
    deletion: Annotated[
        NonNegative,
        Model(
            "A feature is removed if that costs less than this share of what the most important "
            "feature contributes (beta of the book); 0 keeps all."
        ),
    ] = 0.1

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        plane = started(node, self.start, rng)
        if plane is None:
            return None
        least = float(node.quality(np.zeros((len(node.statistics), 1)), node.statistics.sum(1))[0])
        units = _units(node)
        best, before = float(node.qualities(plane[None])[0]), -np.inf
        while best - before > max(self.tolerance * (best - least), node.slack):
            before = best
            for moves in units:
                plane, best = _improved(node, plane, best, node.steps(_copies(plane), moves))
            turned = node.best(plane[None, :-1])
            if turned is not None:
                plane, best = _improved(node, plane, best, turned[None])
        return self._without_minor(node, plane, least)

    def _without_minor(self, node: NodeRows, plane: FloatArray, least: float) -> FloatArray:
        """Remove features one by one, the least important first."""
        while self.deletion > 0 and (used := np.flatnonzero(plane[:-1])).size > 1:
            directions = np.repeat(plane[None, :-1], len(used), axis=0)
            directions[np.arange(len(used)), used] = 0.0
            cuts = node.cuts(directions)
            whole = float(node.qualities(plane[None])[0])
            loss = whole - np.maximum(cuts.quality, least)  # a cut that is not possible gains 0
            minor = int(loss.argmin())
            if loss[minor] >= self.deletion * loss.max() or not np.isfinite(cuts.quality[minor]):
                break
            plane = np.append(directions[minor], -cuts.threshold[minor])
        return plane


def started(node: NodeRows, start: Start, rng: np.random.Generator) -> FloatArray | None:
    """Find the best cut of one feature, or of a random direction; None if no cut is possible."""
    axis = node.best_axis() if start == "axis" else None
    return node.best(rng.normal(size=(1, node.n_features))) if axis is None else axis


def _units(node: NodeRows) -> FloatArray:
    """Return changes of the score by a unit of x_j + gamma, scaled features, (d, 3, d + 1)."""
    first, middle, third = node.quartiles
    spread = np.where(third > first, third - first, 1.0)
    moves = np.zeros((node.n_features, len(SHIFTS), node.n_features + 1))
    for j in range(node.n_features):
        moves[j, :, j] = 1.0 / spread[j]
        moves[j, :, -1] = np.array(SHIFTS) - middle[j] / spread[j]
    return moves


def _copies(plane: FloatArray) -> FloatArray:
    return np.repeat(plane[None], len(SHIFTS), axis=0)


def _improved(
    node: NodeRows, plane: FloatArray, best: float, candidates: FloatArray
) -> tuple[FloatArray, float]:
    """Return the best of the candidates (P, d + 1) if it beats the plane, and its quality."""
    quality = node.qualities(candidates)
    first = int(quality.argmax())
    if quality[first] > best + node.slack:
        return candidates[first], float(quality[first])
    return plane, best
