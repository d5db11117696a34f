"""Softplus in NumPy, for modules without torch."""

import numpy as np

from bayestree._utils.arrays import FloatArray

#: Added to every score, as in ``routing``, to keep its logarithm and log-odds finite.
MIN_SCORE = 1e6 * float(np.finfo(np.float64).tiny)


def softplus(x: FloatArray) -> FloatArray:
    """log(1 + exp(x)) = log(1 + exp(-|x|)) + max(x, 0), three times as fast as ``logaddexp``."""
    result = np.abs(x)
    np.negative(result, out=result)
    np.exp(result, out=result)
    np.log1p(result, out=result)
    result += np.maximum(x, 0.0)
    return result
