"""Types of arrays, and functions of them that several layers share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]


def class_numbers(y: AnyArray, classes: AnyArray) -> IntArray:
    """Position of each label (n,) among the classes, which hold all labels, in any order."""
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, y, sorter=order)]


def weighted_quantiles(
    values: FloatArray, weights: FloatArray, levels: Sequence[float]
) -> FloatArray:
    """Quantiles over the first axis of values (S, ...) with weights (S,), shape (levels, ...).

    Each is the smallest value at or below which this share of the weights lies: a value with
    weight 2 counts as two equal values.
    """
    order = np.argsort(values, axis=0, kind="stable")
    below = np.cumsum(weights[order], axis=0) / weights.sum()
    # The tolerance is for the rounding of the sums.
    place = np.stack([(below < level * (1 - 1e-12)).sum(axis=0) for level in levels])
    at = np.take_along_axis(order, np.minimum(place, len(values) - 1), axis=0)
    return np.take_along_axis(values, at, axis=0)
