"""Tolerances that follow from sampling error."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from bayestree._utils.monte_carlo import ess


def at_least(share: float, n: int) -> float:
    """A share of n rows less four standard errors."""
    return share - 4 * np.sqrt(share * (1 - share) / n)


def z_score(difference: ArrayLike) -> float:
    """The mean of differences between paired losses of rows, in standard errors."""
    values = np.asarray(difference, dtype=float)
    if not np.ptp(values):
        return 0.0 if not values[0] else np.copysign(np.inf, values[0])
    return values.mean() / (values.std(ddof=1) / np.sqrt(len(values)))


def assert_law(draws, law):
    """Values (n, q) of one chain have a law, by bounded moments of its distribution function."""
    place = law.cdf(draws)
    for moment, expected in ((place, 1 / 2), ((place - 0.5) ** 2, 1 / 12)):
        error = moment.std(0) / np.sqrt(ess(moment[None], "mean"))
        assert (np.abs(moment.mean(0) - expected) < 4 * error).all()


def quickly(cases, quick):
    """Cases of a slow comparison, of which the fast tests run those numbered ``quick``."""
    slow = pytest.mark.statistical
    return [
        pytest.param(case, marks=() if number in quick else slow)
        for number, case in enumerate(cases)
    ]
