"""The units in which a fit measures the features."""

from typing import Literal

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree.estimators._file_rows import FileRows

RANGE = 6.0  # range of a column in units of "standard", at most
TOO_LARGE = "holds values too large to be squared (beyond about 1e150); rescale them."

#: Units of the features: the standard deviation, but at least a sixth of the range; one unit for
#: all; the range, scaled to [-1, 1]; exactly the standard deviation; the units of the data.
UnitRule = Literal["standard", "common", "range", "variance", "none"]


def units(
    X: FloatArray | FileRows, weights: FloatArray, rule: UnitRule
) -> tuple[FloatArray, FloatArray]:
    """Center and unit of each column, shape (d,); the unit of a constant column is 1.

    ``"standard"`` is the weighted standard deviation, but at least a sixth of the range (about its
    size for a normal column), so that a feature that is rarely non-zero does not outweigh all
    others where it is. ``"common"`` is the root mean square deviation over all columns.
    """
    with np.errstate(over="ignore"):
        center, deviation, low, span = _measured(X, weights)
    if not np.isfinite(deviation).all():
        raise ValueError(f"X {TOO_LARGE}")
    if rule == "none":
        return np.zeros_like(center), np.ones_like(center)
    if rule == "common":
        varies = span > 0
        together = np.sqrt((deviation[varies] ** 2).mean()) if varies.any() else 1.0
        return center, np.where(varies, together, 1.0)
    if rule == "range":
        center, unit = low + span / 2, span / 2
    else:
        unit = deviation if rule == "variance" else np.maximum(deviation, span / RANGE)
    # Rounding leaves a constant column of large values a spread far below its last digit.
    tiny = np.finfo(np.float64).eps * np.abs(center)
    return center, np.where(unit > 10 * tiny, unit, 1.0)


def _measured(
    X: FloatArray | FileRows, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean, root mean square deviation, minimum and range of each column."""
    if not isinstance(X, FileRows):
        center = np.average(X, axis=0, weights=weights)
        deviation = np.sqrt(np.average((X - center) ** 2, axis=0, weights=weights))
        return center, deviation, X.min(axis=0), np.ptp(X, axis=0)
    total = weights.sum()
    sums, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    for part in X.slices():
        rows = X[part]
        sums += weights[part] @ rows
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    center = sums / total
    for part in X.slices():
        square += weights[part] @ (X[part] - center) ** 2
    return center, np.sqrt(square / total), low, high - low
