"""Pareto smoothed importance sampling, of many rows at once.

Vehtari et al., "Pareto smoothed importance sampling", JMLR 25 (2024). ArviZ smooths a row at a
time, in a millisecond; its versions 0.x and 1.x have opposite signs.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from bayestree._utils.arrays import FloatArray

SPREAD = 1e-9  # log ratios that differ by less count as equal
LOG_TINY = float(np.log(np.finfo(np.float64).tiny))
NEGLIGIBLE = 10 * np.finfo(np.float64).eps  # weight of a trial shape
MIN_DRAWS = 30  # draws, a fifth of which form the tail
MIN_TAIL = 5  # values to which a tail is fitted
PRIOR_K, PRIOR_SIZE = 0.5, 10  # prior of k: its mean, and the number of values that it counts as
BLOCK = 2**20  # trial shapes times values in memory


def psis(log_ratios: ArrayLike, reff: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Return the smoothed importance weights of draws, and the shape of their tail.

    A large log ratio is a large weight; a heavy right tail has a large positive k.

    Parameters
    ----------
    log_ratios : array, shape (..., S)
        Log of target over proposal at each of S draws from the proposal, up to a constant; -inf
        means weight 0.
    reff : float
        Number of effective draws per draw from a chain.

    Returns
    -------
    log_weights : array, shape (..., S)
        The weights sum to 1. They are usable if k is below :func:`good_k`.
    k : array, shape (...)
        The shape of the generalised Pareto distribution of the largest ratios: -inf if these
        are all equal (no tail), and inf for fewer than 30 draws, or too few with positive weight.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64)
    wrong = int((np.isnan(ratios) | np.isposinf(ratios)).sum())
    if wrong or not np.isfinite(ratios).any(axis=-1).all():
        raise ValueError(
            "log_ratios must be finite or -inf, with at least one finite; "
            f"{wrong} of {ratios.size} are NaN or inf: look for draws whose log-density is NaN."
        )
    if not reff > 0:
        raise ValueError(f"reff must be positive, got {reff}.")
    n_draws = ratios.shape[-1]
    rows = ratios.reshape(-1, n_draws)
    rows = rows - rows.max(axis=1, keepdims=True)
    size = int(np.ceil(min(n_draws / 5, 3 * np.sqrt(n_draws / reff))))
    if n_draws < MIN_DRAWS:
        k = np.where(np.ptp(rows, axis=1) < SPREAD, -np.inf, np.inf)
    else:
        k = np.full(len(rows), -np.inf)
        tailed = np.partition(rows, -size, axis=1)[:, -size] <= -SPREAD
        # -inf would break the fit; weights below the smallest number are negligible.
        rows[tailed], k[tailed] = _smoothed(np.maximum(rows[tailed], LOG_TINY), size)
    log_weights = rows - logsumexp(rows, axis=1, keepdims=True)
    return log_weights.reshape(ratios.shape), k.reshape(ratios.shape[:-1])


def pareto_k(log_ratios: ArrayLike, reff: float = 1.0) -> float:
    """Return the shape of the tail of all importance ratios (see :func:`psis`)."""
    return float(psis(np.ravel(log_ratios), reff)[1])


def good_k(n_draws: int) -> float:
    """Return the threshold min(1 - 1 / log10(S), 0.7) of k (Vehtari et al. 2024, 3.2.4)."""
    return float(min(1 - 1 / np.log10(n_draws), 0.7)) if n_draws > 1 else -np.inf


def _smoothed(rows: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Replace the largest ``size`` values of each row by quantiles of the Pareto fit; return k.

    The tail is shorter where values equal the cutoff. None exceeds the largest raw one, 0.
    """
    order = np.argsort(rows, axis=1)
    ascending = np.take_along_axis(rows, order, axis=1)
    cutoff = ascending[:, -size - 1, None]
    length = (ascending > cutoff).sum(axis=1)
    k = np.full(len(rows), np.inf)
    for n in np.unique(length[length >= MIN_TAIL]):
        same = np.flatnonzero(length == n)
        trials = 30 + int(np.sqrt(n))
        for some in np.array_split(same, -(-len(same) * n * trials // BLOCK)):
            base = np.exp(cutoff[some])
            shape, scale = _pareto_fit(np.exp(ascending[some, -n:]) - base, trials)
            log_beyond = np.log1p(-np.arange(0.5, n) / n)  # log P(tail > quantile)
            with np.errstate(invalid="ignore", over="ignore"):
                tail = scale * np.where(
                    shape == 0, -log_beyond, np.expm1(-shape * log_beyond) / shape
                )
                smooth = np.minimum(np.log(tail + base), 0.0)
            # The fit fails if a few ratios exceed all others by far: an extremely heavy tail.
            fitted = np.isfinite(smooth).all(axis=1)
            ascending[some[fitted], -n:] = smooth[fitted]
            k[some[fitted]] = shape[fitted, 0]
    found = np.empty_like(rows)
    np.put_along_axis(found, order, ascending, axis=1)
    return found, k


def _pareto_fit(tail: FloatArray, n_trials: int) -> tuple[FloatArray, FloatArray]:
    """Fit generalised Pareto distributions to ascending values (rows, n); shapes and scales.

    Zhang and Stephens, "A new and efficient estimation method for the generalized Pareto
    distribution", Technometrics 51 (2009): the mean of trial values by their profile likelihood.
    """
    n = tail.shape[1]
    grid = 1 - np.sqrt(n_trials / (np.arange(1, n_trials + 1) - 0.5))
    with np.errstate(all="ignore"):  # trial shapes with likelihood 0 overflow
        b = grid / (3 * tail[:, [int(n / 4 + 0.5) - 1]]) + 1 / tail[:, -1:]
        k = np.log1p(-b[:, :, None] * tail[:, None]).mean(axis=2)
        score = n * (np.log(-b / k) - k - 1)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        weight = np.where(weight >= NEGLIGIBLE, weight, 0.0)
        mean = (b * weight).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
        shape = np.log1p(-mean * tail).mean(axis=1, keepdims=True)
        scale = -shape / mean
    return (n * shape + PRIOR_SIZE * PRIOR_K) / (n + PRIOR_SIZE), scale
