"""Tolerances that follow from sampling error."""

import numpy as np
from numpy.typing import ArrayLike


def at_least(share: float, n: int) -> float:
    """A share of n rows less four standard errors."""
    return share - 4 * np.sqrt(share * (1 - share) / n)


def z_score(difference: ArrayLike) -> float:
    """The mean of differences between paired losses of rows, in standard errors."""
    values = np.asarray(difference, dtype=float)
    if not np.ptp(values):
        return 0.0 if not values[0] else np.copysign(np.inf, values[0])
    return values.mean() / (values.std(ddof=1) / np.sqrt(len(values)))
