"""Values far away from all others of a column, such as codes for missing values (-999)."""

import math

import numpy as np

from bayestree._utils.arrays import FloatArray, weighted_quantiles
from bayestree.estimators._file_rows import FileRows
from bayestree.routed_tree import chunks

SAMPLE = 10_000  # rows from which quartiles are estimated
FAR = 10.0  # interquartile ranges between a quartile and a detached value, at least
GAP = 5.0  # distance of a detached value from the others, in units of their range, at least,
KEPT = 0.25  # and after it is drawn in
LARGEST = 1e150  # larger values, whose squares overflow, are left to be refused


def drawn_in(X: FloatArray | FileRows, weights: FloatArray) -> FloatArray | FileRows:
    """Rows whose detached values are moved near the others; X itself if there are none.

    A single code such as -999 would otherwise determine the unit of its column, in which all other
    values are the same, or the gradients of a fit. Long tails without a wide gap stay as they are,
    and so do columns of which more than half are equal, such as indicators of rare categories.
    """
    low, high = _limits(X, weights)
    if not np.isfinite([low, high]).any():
        return X
    return X.within(low, high) if isinstance(X, FileRows) else np.clip(X, low, high)


def _limits(X: FloatArray | FileRows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds of the values of each column, shape (d,); infinite without detached values."""
    n_rows, d = X.shape
    counted = np.flatnonzero(weights > 0)
    some = counted[:: math.ceil(len(counted) / SAMPLE)]
    first, third = weighted_quantiles(X[some], weights[some], [0.25, 0.75])
    with np.errstate(over="ignore"):
        reach = FAR * (third - first)
    low, below = np.full(d, np.inf), np.full(d, -np.inf)
    high, above = np.full(d, -np.inf), np.full(d, np.inf)
    for part in chunks(n_rows, d):
        rows = X[part][weights[part] > 0]
        under = (rows < first - reach) & (rows > -LARGEST)
        over = (rows > third + reach) & (rows < LARGEST)
        near = ~(under | over)
        low = np.minimum(low, rows.min(axis=0, where=near, initial=np.inf))
        high = np.maximum(high, rows.max(axis=0, where=near, initial=-np.inf))
        below = np.maximum(below, rows.max(axis=0, where=under, initial=-np.inf))
        above = np.minimum(above, rows.min(axis=0, where=over, initial=np.inf))
    span = np.where(third > first, high - low, np.inf)
    with np.errstate(invalid="ignore"):
        gaps = np.where(np.isfinite([below, above]), [low - below, above - high], 0.0) > GAP * span
    kept = KEPT * span
    return np.where(gaps[0], low - kept, -np.inf), np.where(gaps[1], high + kept, np.inf)
