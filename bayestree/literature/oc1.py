"""OC1: coordinate descent, random jumps and restarts."""

from typing import Annotated

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.parameters import Count, Inference, NonNegative, Size, declare
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch
from bayestree.literature.cart_lc import Start

SHARE = 0.1  # of its first value, by which the probability of a sideways move falls


@declare
class OC1(PlaneSearch):
    """OC1 (Murthy, Kasif and Salzberg, "Induction of oblique decision trees", 1994).

    From each start, coefficients take in turn their best value given the others. A value as good
    as the present one is accepted with a probability that falls with every such move. If no
    coefficient improves the split, ``n_jumps`` random directions are tried with their best step
    lengths; one that improves the split returns to the coefficients. The starts are searched
    side by side. Nodes of few rows are split by one feature.

    {parameters}
    """

    start: Annotated[
        Start,
        Inference(
            "The first start: the best split by one feature, if there is one, or along a random "
            "direction, as all other starts are."
        ),
    ] = "axis"
    n_restarts: Annotated[Size, Inference("Number of additional starts.")] = 20
    n_jumps: Annotated[Size, Inference("Random directions that are tried at a local optimum.")] = 5
    sideways: Annotated[
        NonNegative,
        Inference("Probability of a first move that leaves the quality of the split as it is."),
    ] = 1.0
    rows_per_feature: Annotated[
        NonNegative, Inference("Nodes with fewer rows for each feature are split by one feature.")
    ] = 2.0
    max_sweeps: Annotated[Count, Inference("Maximum number of sweeps over the coefficients.")] = 100

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        axis = node.best_axis()
        if len(node.X) < self.rows_per_feature * node.n_features:
            return axis
        directions = rng.normal(size=(self.n_restarts + 1, node.n_features))
        starts = np.column_stack([directions, -node.cuts(directions).threshold])
        if self.start == "axis" and axis is not None:
            starts[0] = axis
        starts = starts[np.isfinite(starts).all(axis=1)]
        if not len(starts):
            return axis
        search = _CoordinateDescent(node, starts.copy(), rng, self.sideways)
        active = np.arange(len(starts))
        for _ in range(self.max_sweeps):
            improved = search.sweep(active)
            jumped = search.jump(active[~improved], self.n_jumps)
            active = np.concatenate([active[improved], jumped])
            if not len(active):
                break
        # in a tie, the first start
        planes = np.concatenate([starts[:1], search.planes])
        quality = node.qualities(planes)
        return planes[int((quality >= quality.max() - node.slack).argmax())]


class _CoordinateDescent:
    """Hyperplanes (S, d + 1) of several starts, their qualities, and the steps that improve them.

    ``sideways`` is the probability of a first move that does not change the quality.
    """

    def __init__(
        self, node: NodeRows, planes: FloatArray, rng: np.random.Generator, sideways: float
    ) -> None:
        self.node, self.rng, self.sideways = node, rng, sideways
        self.planes, self.quality = planes, node.qualities(planes)
        self.chance = np.full(len(planes), float(sideways))

    def sweep(self, active: IntArray) -> BoolArray:
        """Sweep once over the coefficients of the active planes; which of these improved."""
        improved = np.zeros(len(active), dtype=bool)
        for axis in np.eye(self.planes.shape[1]):
            before = self.planes[active]
            found = self.node.steps(before, np.broadcast_to(axis, before.shape))
            quality = self.node.qualities(found)
            better = quality > self.quality[active] + self.node.slack
            equal = ~better & (quality >= self.quality[active] - self.node.slack)
            moved = equal & (self.rng.random(len(active)) < self.chance[active])
            self._move(active[better | moved], found[better | moved], quality[better | moved])
            self.chance[active[better]] = self.sideways
            self.chance[active[equal]] -= SHARE * self.sideways
            improved |= better
        return improved

    def jump(self, stuck: IntArray, n_jumps: int) -> IntArray:
        """Move each plane along the first of some random directions that improves it; which."""
        if not len(stuck) or n_jumps == 0:
            return stuck[:0]
        origin = np.repeat(self.planes[stuck], n_jumps, axis=0)
        found = self.node.steps(origin, self.rng.normal(size=origin.shape))
        quality = self.node.qualities(found).reshape(len(stuck), n_jumps)
        better = quality > self.quality[stuck, None] + self.node.slack
        which, first = better.any(axis=1), better.argmax(axis=1)
        at = np.arange(len(stuck)), first
        self._move(
            stuck[which], found.reshape(len(stuck), n_jumps, -1)[at][which], quality[at][which]
        )
        return stuck[which]

    def _move(self, to: IntArray, planes: FloatArray, quality: FloatArray) -> None:
        """Replace planes, in units of their largest coefficient."""
        self.planes[to] = planes / np.abs(planes).max(axis=1, keepdims=True)
        self.quality[to] = quality
