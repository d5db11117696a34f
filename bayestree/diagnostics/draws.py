"""Draws by site name, as in ``Posterior.draws``, and what all diagnostics read from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray, IntArray

Draws = Mapping[str, NDArray[Any]]

SHARE = 0.01  # of log 2: the least largest vote of an expert that counts


def weight_of(draws: Draws, one: Any) -> FloatArray:
    """Weights of the experts of some draws; 1 for splits without."""
    return np.exp(log_weight_of(draws, one))


def log_weight_of(draws: Draws, one: Any) -> FloatArray:
    """Their logarithms."""
    if "log_weight" not in draws:
        return np.zeros(draws["intercept"][one].shape)
    return draws["log_weight"][one].astype(np.float64)


def effective_number(parts: FloatArray) -> FloatArray:
    """(sum of c)^2 / sum of c^2 over the last axis; 0 where all are 0."""
    square = np.maximum((parts**2).sum(axis=-1), np.finfo(np.float64).tiny)
    return parts.sum(axis=-1) ** 2 / square


def spread(length: int, most: int) -> IntArray:
    """At most so many of 0..length - 1, evenly spread."""
    return np.unique(np.linspace(0, length - 1, min(most, length)).round().astype(np.int64))


def kept_draws(draws: Draws, max_draws: int) -> IntArray:
    """The draws of each chain that are measured, evenly spread.

    Raises
    ------
    ValueError
        If ``max_draws`` is below 1.
    """
    if max_draws < 1:
        raise ValueError(f"max_draws must be 1 or more, got {max_draws}.")
    n_chains, n_draws = draws["intercept"].shape[:2]
    return spread(n_draws, max(1, max_draws // n_chains))


def check_level(level: float) -> None:
    """Refuse what is no probability of an interval.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")


def tails(level: float) -> list[float]:
    """Where a central interval of probability ``level`` begins and ends."""
    check_level(level)
    return [(1 - level) / 2, (1 + level) / 2]
