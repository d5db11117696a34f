"""Convergence statistics of chains, for either version of ArviZ."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree._utils.arviz_compat import arviz, major_version


def r_hat(values: ArrayLike) -> FloatArray:
    """Rank-normalised split R-hat, the larger of bulk and folded.

    Vehtari et al., "Rank-normalization, folding, and localization", Bayesian Analysis 16 (2021).

    For values (chain, draw, ...): NaN for a constant quantity, inf if every half of a chain is
    stuck at a different value. A single chain must have 8 draws, and its quarters are compared.
    """
    array = np.asarray(values)
    if array.ndim > 1 and len(array) == 1:  # ArviZ requires two chains
        half = array.shape[1] // 2
        array = np.concatenate([array[:, :half], array[:, -half:]])
    return _each(array, lambda statistics, one: statistics.rhat(one, method="rank"))


def ess(values: ArrayLike, kind: Literal["bulk", "tail", "mean"] = "bulk") -> FloatArray:
    """Effective sample size for the bulk, 5 % tails or mean of values (chain, draw, ...)."""
    tails = {"prob": (0.05, 0.95)} if kind == "tail" else {}
    return _each(values, lambda statistics, one: statistics.ess(one, method=kind, **tails))


def bfmi(energy: ArrayLike, change: ArrayLike | None = None) -> FloatArray:
    """Estimated Bayesian fraction of missing information by chain (Betancourt 2016).

    ``change`` are changes of the energy from transition to transition where draws were thinned.
    """
    values = _checked(energy)
    steps = np.diff(values, axis=1) if change is None else _checked(change)
    return (steps**2).mean(axis=1) / values.var(axis=1, ddof=1)


def _each(values: ArrayLike, statistic: Any) -> FloatArray:
    array = _checked(values)
    flat = array.reshape(*array.shape[:2], -1)
    statistics = _statistics()
    # Constant chains divide by 0: R-hat is inf, or NaN if they agree.
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [float(statistic(statistics, flat[:, :, j])) for j in range(flat.shape[2])]
    return np.array(found, dtype=np.float64).reshape(array.shape[2:])


def _checked(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < 2 or array.shape[1] < 4:
        raise ValueError(
            f"values must have shape (chain, draw, ...) with 4 draws or more, got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError("values must be finite; look for draws that are NaN or infinite.")
    return array


def _statistics() -> Any:
    """The module or object with ``rhat`` and ``ess`` of arrays (chain, draw)."""
    if major_version() > 0:
        from arviz_stats.base import array_stats  # noqa: PLC0415 - takes a second to import

        return array_stats
    return arviz()
