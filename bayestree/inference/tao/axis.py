"""Axis-aligned splits by exact search over features and cuts."""

from dataclasses import dataclass

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.inference.tao.solvers import NodeSplit, reduced_loss

MAX_ELEMENTS = 4_000_000  # maximum size of the arrays sorted at a time


@dataclass(frozen=True)
class AxisSolver:
    """The best feature, cut and direction: the exact minimum of the reduced problem.

    The children are given, so x_j > t may go right or left. In a tie, the current split is kept;
    next, a split that sends all rows to one side is preferred.
    """

    rate: float = 0.0  # penalty of a split that uses a feature

    def penalty(self, split: NodeSplit) -> float:
        return self.rate if split.hyperplane.any() else 0.0

    def __call__(
        self, X: AnyArray, right: BoolArray, weight: FloatArray, current: NodeSplit
    ) -> NodeSplit:
        signed = np.where(right, weight, -weight)
        one_side = float(min(weight[right].sum(), weight[~right].sum()))
        loss, feature, cut, direction = best_cut(X, right, signed)
        lowest = min(loss + self.rate, one_side)
        current_value = reduced_loss(current, X, right, weight) + self.penalty(current)
        margin = 1e-12 * float(weight.sum())  # rounding of sums in different orders
        if current_value <= lowest + margin:
            return current
        if one_side <= loss + self.rate + margin:
            return NodeSplit.constant(current, right=bool(signed.sum() > 0))
        coefficients = np.zeros(X.shape[1], X.dtype)
        coefficients[feature] = direction
        return NodeSplit.linear(coefficients, -direction * cut)


def best_cut(X: AnyArray, right: BoolArray, signed: FloatArray) -> tuple[float, int, float, float]:
    """Smallest weighted 0/1 loss of direction * (x_j - cut) > 0, and its j, cut, direction.

    ``signed`` are the weights of the rows, negative for the left class. The loss is infinite if
    all features are constant.
    """
    best = (np.inf, 0, 0.0, 1.0)
    wide = max(1, MAX_ELEMENTS // len(X))
    all_right = -float(signed[~right].sum())  # loss of sending every row right
    for start in range(0, X.shape[1], wide):
        part = X[:, start : start + wide]
        order = np.argsort(part, axis=0, kind="stable")
        values = np.take_along_axis(part, order, axis=0)
        # Sending the rows below the cut left adds the sum of their signed weights to this loss.
        left = np.cumsum(signed[order], axis=0)[:-1]
        possible = values[1:] > values[:-1]
        for direction in (1.0, -1.0):
            base = all_right if direction > 0 else float(signed[right].sum())
            loss = np.where(possible, base + direction * left, np.inf)
            if loss.size == 0:
                continue
            row, column = np.unravel_index(int(loss.argmin()), loss.shape)
            if loss[row, column] < best[0]:
                cut = _between(values[row, column], values[row + 1, column], direction)
                best = (float(loss[row, column]), start + int(column), cut, direction)
    return best


def _between(low: np.floating, high: np.floating, direction: float) -> float:
    """A cut such that direction * (x - cut) > 0 for exactly one of the two.

    The midpoint, except for adjacent floating-point numbers.
    """
    middle = low + (high - low) / 2
    if low < middle < high:
        return float(middle)
    return float(low if direction > 0 else high)
