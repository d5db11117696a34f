"""Pareto-smoothed importance sampling for either version of ArviZ, with one sign convention.

A LARGE log ratio is a LARGE weight; a heavy right tail has a large positive k. ArviZ 0.x uses this
sign and ArviZ 1.x the opposite one, without any indication in the results.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from bayestree._utils.arrays import FloatArray
from bayestree._utils.arviz_compat import arviz, major_version

SPREAD = 1e-9  # log ratios that differ by less count as equal
LOG_TINY = float(np.log(np.finfo(np.float64).tiny))
MIN_DRAWS = 30  # draws, a fifth of which form the tail


def psis(log_ratios: ArrayLike, reff: float = 1.0) -> tuple[FloatArray, float]:
    """Smoothed importance weights and the shape of their tail.

    Vehtari et al., "Pareto smoothed importance sampling", JMLR 25 (2024).

    Parameters
    ----------
    log_ratios : array of S values, any shape
        log of target over proposal at each draw from the proposal, up to a constant; -inf means
        weight 0.
    reff : float
        Effective draws per draw, for draws from a chain.

    Returns
    -------
    log_weights : array of the same shape
        Smoothed and normalised: the weights sum to 1.
    k : float
        Shape of the generalised Pareto distribution of the largest ratios: weights are usable
        below :func:`good_k`. -inf if the largest ratios are all equal (no tail), inf if there are
        fewer than 30 draws, or too few with positive weight.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64)
    flat = ratios.ravel()
    wrong = int((np.isnan(flat) | np.isposinf(flat)).sum())
    if wrong or not np.isfinite(flat).any():
        raise ValueError(
            f"log_ratios must be finite or -inf, with at least one finite; {wrong} of {flat.size} "
            "are NaN or inf: look for draws whose log-density is NaN."
        )
    if not reff > 0:
        raise ValueError(f"reff must be positive, got {reff}.")
    flat = flat - flat.max()
    tail = int(np.ceil(min(flat.size / 5, 3 * np.sqrt(flat.size / reff))))
    if flat.size < MIN_DRAWS:
        log_weights, k = flat - logsumexp(flat), -np.inf if np.ptp(flat) < SPREAD else np.inf
    elif np.partition(flat, -tail)[-tail] > -SPREAD:
        log_weights, k = flat - logsumexp(flat), -np.inf
    else:
        # -inf would break the fit; weights below the smallest number are negligible.
        log_weights, k = _smooth(np.maximum(flat, LOG_TINY), reff)
    return log_weights.reshape(ratios.shape), k


def pareto_k(log_ratios: ArrayLike, reff: float = 1.0) -> float:
    """Shape of the tail of importance ratios (see :func:`psis`)."""
    return psis(log_ratios, reff)[1]


def good_k(n_draws: int) -> float:
    """Threshold min(1 - 1 / log10(S), 0.7) of k for S draws (Vehtari et al. 2024, 3.2.4)."""
    return float(min(1 - 1 / np.log10(n_draws), 0.7)) if n_draws > 1 else -np.inf


def _smooth(flat: FloatArray, reff: float) -> tuple[FloatArray, float]:
    weights: Any
    k: Any
    if major_version() > 0:
        from arviz_stats.base import array_stats  # noqa: PLC0415 - takes a second to import

        weights, k = array_stats.psislw(-flat, r_eff=reff)
    else:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # Trial shapes with likelihood 0 overflow.
            weights, k = arviz().psislw(flat, reff)
    # The fit fails if a few ratios exceed all others by far: an extremely heavy tail.
    return np.asarray(weights, dtype=np.float64), np.inf if np.isnan(k) else float(k)
