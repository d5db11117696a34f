"""CO2: descent on a convex-concave bound of the loss of a stump."""

from typing import Annotated

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.parameters import Count, Inference, Model, Positive, declare
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch
from bayestree.literature.cart_lc import Start, started

NUS = (0.1, 1.0, 10.0)  # tried if nu is None
RATES = (0.1, 1.0)  # tried if learning_rate is None
MEMORY = 0.9  # of the momentum, and of the leaves
SMOOTHING = 1e-3  # share of the node's mean in each leaf: keeps the losses finite
CHECKS = 20  # a candidate is taken every so many steps


@declare
class CO2(PlaneSearch):
    """CO2 (Norouzi, Collins, Fleet and Kohli, "CO2 forest", 2015), the split of a single tree.

    For a row of score s = w . x and a stump whose leaves have the losses l(right) and l(left), the
    loss of the leaf that the row reaches is at most

    max(s + l(right), -s + l(left)) - abs(s),

    which is convex minus convex in w and tight for large abs(s). It is minimised by projected
    gradient descent with momentum under abs(w)^2 <= nu, from the best split by one feature; the
    leaves follow the rows that attain the maximum. Losses are -log P(y), for numbers the squared
    error in units of the node's variance. All rows are used in each step. The splits on the way
    are compared by their impurity.

    {parameters}
    """

    start: Annotated[
        Start,
        Inference(
            "Start from the best split by one feature, if there is one, or along a random "
            "direction."
        ),
    ] = "axis"
    nu: Annotated[
        Positive | None,
        Model(
            "Maximum square of the norm of w on the scaled features; small values smooth the "
            f"bound. By default the best of {NUS} for each node."
        ),
    ] = None
    learning_rate: Annotated[
        Positive | None,
        Inference(f"Step size over sqrt(nu); by default the best of {RATES} for each node."),
    ] = None
    steps: Annotated[Count, Inference("Number of gradient steps.")] = 200

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        start = started(node, self.start, rng)
        if start is None:
            return None
        grid = [
            (nu, rate)
            for nu in (NUS if self.nu is None else (self.nu,))
            for rate in (RATES if self.learning_rate is None else (self.learning_rate,))
        ]
        found = [start[None], *self._path(node, start, np.array(grid))]
        planes = np.concatenate(found)
        quality = node.qualities(planes)
        best = planes[int((quality >= quality.max() - node.slack).argmax())]
        # the threshold that is best on all rows
        return best if np.array_equal(best, start) else node.best(best[None, :-1])

    def _path(self, node: NodeRows, start: FloatArray, grid: FloatArray) -> list[FloatArray]:
        """Return hyperplanes (L, d + 1) on the way of the descent, by pair of nu and step size."""
        radius, rate = np.sqrt(grid[:, :1]), grid[:, 1:]
        plane = start / np.linalg.norm(start) * radius
        momentum, path = np.zeros_like(plane), []
        leaves = _Leaves(node, plane @ node.with_ones.T > 0)
        for step in range(1, self.steps + 1):
            score = plane @ node.with_ones.T
            right = 2.0 * score + leaves.difference() > 0  # the side that attains the maximum
            sign = 2.0 * (right.astype(np.float64) - (score > 0))
            momentum = MEMORY * momentum + (1.0 - MEMORY) * ((sign * node.share) @ node.with_ones)
            plane = plane - rate * radius * momentum
            norm = np.linalg.norm(plane, axis=1, keepdims=True)
            plane *= np.minimum(1.0, radius / np.maximum(norm, np.finfo(np.float64).tiny))
            leaves.follow(right)
            if step % CHECKS == 0 or step == self.steps:
                path.append(plane.copy())
        return path


class _Leaves:
    """The two leaves of each of L stumps, as weighted means of the rows' targets."""

    def __init__(self, node: NodeRows, right: BoolArray) -> None:
        self.node = node
        self.numeric = node.y.dtype.kind == "f"
        groups = node.groups() if not self.numeric else None
        # one column for each class, or y and its variance
        self.groups = groups
        self.target = node.y[:, None] if groups is None else np.eye(int(groups.max()) + 1)[groups]
        self.mean = node.share @ self.target
        self.variance = float(node.share @ np.square(self.target - self.mean).sum(axis=1))
        self.value = self._means(right)

    def _means(self, right: BoolArray) -> FloatArray:
        """Compute means (2, L, c) of the rows on the left and on the right."""
        sides = np.stack([~right, right]) * self.node.share
        total = sides.sum(axis=-1, keepdims=True) + SMOOTHING
        return (sides @ self.target + SMOOTHING * self.mean) / total

    def follow(self, right: BoolArray) -> None:
        self.value = MEMORY * self.value + (1.0 - MEMORY) * self._means(right)

    def difference(self) -> FloatArray:
        """Compute loss on the right minus loss on the left, shape (L, m)."""
        if self.groups is None:
            error = np.square(self.node.y - self.value) / (2.0 * max(self.variance, 1e-300))
            return error[1] - error[0]
        log = np.log(self.value)
        return (log[0] - log[1])[:, self.groups]
