"""Types of arrays, and functions of them that several layers share."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]


def class_numbers(y: AnyArray, classes: AnyArray) -> IntArray:
    """Return the number of each label (n,) in the classes, which hold all labels, in any order."""
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, y, sorter=order)]


def hashed(numbers: AnyArray) -> NDArray[np.uint64]:
    """Return the hashes of whole numbers from 0 on (SplitMix64), which are evenly distributed."""
    key = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
    return key ^ (key >> np.uint64(31))


def shuffled(random: Any, weights: FloatArray) -> IntArray:
    """Return the row (n,) whose value each gets: a permutation or, for copies, in proportion."""
    if np.ptp(weights) == 0:
        return random.permutation(len(weights))
    return random.choice(len(weights), len(weights), p=weights / weights.sum())


def weighted_quantiles(
    values: FloatArray, weights: FloatArray, levels: Sequence[float]
) -> FloatArray:
    """Compute quantiles (levels, ...) over the first axis of values (S, ...) with weights (S,).

    Each is the smallest value at or below which this share of the weights lies: a value with
    weight 2 counts as two equal values.
    """
    order = np.argsort(values, axis=0, kind="stable")
    below = np.cumsum(weights[order], axis=0) / weights.sum()
    # The tolerance is for the rounding of the sums.
    place = np.stack([(below < level * (1 - 1e-12)).sum(axis=0) for level in levels])
    at = np.take_along_axis(order, np.minimum(place, len(values) - 1), axis=0)
    return np.take_along_axis(values, at, axis=0)


@lru_cache
def gauss_hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights (M,) of the mean over a standard normal."""
    node, weight = np.polynomial.hermite_e.hermegauss(n_nodes)
    return node, weight / weight.sum()


#: Added to every score, as in ``routing``, to keep its logarithm and log-odds finite.
MIN_SCORE = 1e6 * float(np.finfo(np.float64).tiny)


@np.errstate(under="ignore")
def softplus(x: FloatArray) -> FloatArray:
    """log(1 + exp(x)) = log(1 + exp(-|x|)) + max(x, 0), three times as fast as ``logaddexp``."""
    result = np.abs(x)
    np.negative(result, out=result)
    np.exp(result, out=result)
    np.log1p(result, out=result)
    result += np.maximum(x, 0.0)
    return result


Fold = tuple[IntArray, IntArray]


def split_rows(n_rows: int, labels: ArrayLike | None, n_folds: int, seed: int) -> list[Fold]:
    """Return the training and scored rows of each fold, stratified if all classes have enough rows.

    ``labels`` (n,) are the classes of the rows, None if y is not a class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold  # noqa: PLC0415 - slow to import

    enough = labels is not None and smallest_class(labels)[1] >= n_folds
    kind = StratifiedKFold if enough else KFold
    split = kind(n_folds, shuffle=True, random_state=seed).split(np.empty((n_rows, 0)), labels)
    return [(np.asarray(train), np.asarray(held)) for train, held in split]


def smallest_class(labels: ArrayLike) -> tuple[Any, int]:
    """Return the class with the fewest rows, and their number."""
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    return values.tolist()[counts.argmin()], int(counts.min())
