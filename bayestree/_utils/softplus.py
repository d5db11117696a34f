"""The vote of an expert in NumPy, for all that runs without torch."""

import numpy as np

from bayestree._utils.arrays import FloatArray

#: Added to every score, as in ``routing``, so that its logarithm and log-odds are finite.
LEAST_SCORE = 1e6 * float(np.finfo(np.float64).tiny)


def softplus(x: FloatArray) -> FloatArray:
    """log(1 + exp(x)) in passes that NumPy vectorises: a third of the time of ``logaddexp``."""
    result = np.abs(x)
    np.negative(result, out=result)
    np.exp(result, out=result)
    np.log1p(result, out=result)
    result += np.maximum(x, 0.0)
    return result
