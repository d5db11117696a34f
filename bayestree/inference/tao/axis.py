"""Axis-aligned splits by exact search: the least weighted 0/1 loss over features and cuts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.inference.tao.solvers import NodeSplit, reduced_loss

ELEMENTS = 4_000_000  # numbers sorted at a time; bounds memory


@dataclass(frozen=True)
class AxisSolver:
    """The best feature, cut and side: the exact minimum of the reduced problem.

    The children are what they are, so x_j > t may go right or left. Where the present split is as
    good it stays; where sending all rows to one side is, no feature is used.

    Parameters
    ----------
    rate : float
        What the objective adds for a split that uses a feature.
    """

    rate: float = 0.0

    def penalty(self, split: NodeSplit) -> float:
        return self.rate if split.hyperplane.any() else 0.0

    def __call__(
        self,
        X: NDArray[np.floating],
        right: BoolArray,
        weight: FloatArray,
        current: NodeSplit,
    ) -> NodeSplit:
        signed = np.where(right, weight, -weight)
        one_side = float(min(weight[right].sum(), weight[~right].sum()))
        loss, feature, cut, direction = best_cut(X, right, signed)
        least = min(loss + self.rate, one_side)
        now = reduced_loss(current, X, right, weight) + self.penalty(current)
        # sums of weights in another order may differ in their last digits
        margin = 1e-12 * float(weight.sum())
        if now <= least + margin:
            return current
        if one_side <= loss + self.rate + margin:
            return NodeSplit.constant(current, right=bool(signed.sum() > 0))
        coefficients = np.zeros(X.shape[1], X.dtype)
        coefficients[feature] = direction
        return NodeSplit.linear(coefficients, -direction * cut)


def best_cut(
    X: NDArray[np.floating], right: BoolArray, signed: FloatArray
) -> tuple[float, int, float, float]:
    """The least weighted 0/1 loss of direction * (x_j - cut) > 0, with its j, cut, direction.

    ``signed`` holds the weights of the rows, those of the left class negative. The loss is
    infinite where all features are constant.
    """
    best = (np.inf, 0, 0.0, 1.0)
    wide = max(1, ELEMENTS // len(X))
    all_right = -float(signed[~right].sum())  # of sending every row right
    for start in range(0, X.shape[1], wide):
        part = X[:, start : start + wide]
        order = np.argsort(part, axis=0, kind="stable")
        values = np.take_along_axis(part, order, axis=0)
        # rows up to the cut go left: what that adds to the loss of sending all right
        left = np.cumsum(signed[order], axis=0)[:-1]
        possible = values[1:] > values[:-1]
        for direction in (1.0, -1.0):
            base = all_right if direction > 0 else float(signed[right].sum())
            loss = np.where(possible, base + direction * left, np.inf)
            if loss.size == 0:
                continue
            place = int(loss.argmin())
            row, column = np.unravel_index(place, loss.shape)
            if loss[row, column] < best[0]:
                cut = _between(values[row, column], values[row + 1, column], direction)
                best = (float(loss[row, column]), start + int(column), cut, direction)
    return best


def _between(low: np.floating, high: np.floating, direction: float) -> float:
    """A cut such that direction * (x - cut) > 0 for one of the two and not for the other.

    Half-way, but for neighbours in their precision, between which there is no number.
    """
    middle = low + (high - low) / 2
    if low < middle < high:
        return float(middle)
    return float(low if direction > 0 else high)
