"""Statistics of chains: R-hat, effective sample sizes and E-BFMI, of many quantities at once.

ArviZ has the same statistics, but takes a second to import and a millisecond for each quantity.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

from bayestree._utils.arrays import FloatArray

STILL = 1e-15  # range below which a quantity never changes


def r_hat(values: ArrayLike) -> FloatArray:
    """Compute rank-normalised split R-hat, the larger of bulk and folded.

    Vehtari et al., "Rank-normalization, folding, and localization", Bayesian Analysis 16 (2021).

    For values (chain, draw, ...): NaN for a constant quantity, inf if every half of a chain is
    stuck at a different value. The quarters of a single chain, of 8 draws or more, are compared.
    """
    array = np.asarray(values)
    if array.ndim > 1 and len(array) == 1:
        array = _halves(array)
    halves = _halves(_checked(array))
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.fmax(*(_reduction(_normal_scores(one)) for one in (halves, folded)))


def ess(values: ArrayLike, kind: Literal["bulk", "tail", "mean"] = "bulk") -> FloatArray:
    """Compute effective sample sizes for bulk, 5 % tails or mean of values (chain, draw, ...)."""
    array = _checked(values)
    if kind == "tail":
        ends = np.quantile(array, (0.05, 0.95), axis=(0, 1))
        return np.minimum(*(_effective(_halves((array <= end).astype(float))) for end in ends))
    halves = _halves(array)
    return _effective(_normal_scores(halves) if kind == "bulk" else halves)


def bfmi(energy: ArrayLike, change: ArrayLike | None = None) -> FloatArray:
    """Return the estimated Bayesian fraction of missing information by chain (Betancourt 2016).

    ``change`` are changes of the energy from transition to transition where draws were thinned.
    """
    values = _checked(energy)
    steps = np.diff(values, axis=1) if change is None else _checked(change)
    return (steps**2).mean(axis=1) / values.var(axis=1, ddof=1)


def _checked(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < 2 or array.shape[1] < 4:
        raise ValueError(
            f"values must have shape (chain, draw, ...) with 4 draws or more, got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError("values must be finite; look for draws that are NaN or infinite.")
    return array


def _halves(values: FloatArray) -> FloatArray:
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _normal_scores(values: FloatArray) -> FloatArray:
    """Replace the values of all chains by normal quantiles of their ranks (Blom 1958)."""
    rank = rankdata(values.reshape(-1, *values.shape[2:]), axis=0).reshape(values.shape)
    return ndtri((rank - 0.375) / (values.shape[0] * values.shape[1] + 0.25))


def _reduction(values: FloatArray) -> FloatArray:
    """Compute by how much longer chains would narrow the distribution of all draws."""
    n = values.shape[1]
    between = n * values.mean(axis=1).var(axis=0, ddof=1)
    within = values.var(axis=1, ddof=1).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that never change
        return np.sqrt((between / within + n - 1) / n)


def _effective(values: FloatArray) -> FloatArray:
    """Compute effective sample sizes by Geyer's initial monotone sequence (1992)."""
    n_chains, n = values.shape[:2]
    total, shape = n_chains * n, values.shape[2:]
    flat = values.reshape(n_chains, n, -1)
    away = flat - flat.mean(axis=1, keepdims=True)
    wave = rfft(away, next_fast_len(2 * n, real=True), axis=1)
    power = irfft(np.abs(wave) ** 2, next_fast_len(2 * n, real=True), axis=1)
    covariance = power[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    every = covariance[0] + (flat.mean(axis=1).var(axis=0, ddof=1) if n_chains > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that never change
        rho = 1 - (within - covariance) / every
    rho[0] = 1.0
    n_pairs = max((n - 1) // 2, 1)
    even = rho[0 : 2 * n_pairs : 2]
    pair = even + rho[1 : 2 * n_pairs : 2]
    # The sums of pairs of lags are positive and fall; they are counted up to the first that is not.
    positive = np.logical_and.accumulate(pair > 0, axis=0)
    last = np.minimum(positive.sum(axis=0), n_pairs - 1)
    counted = np.arange(n_pairs)[:, None] < last
    time = 2 * np.where(counted, np.minimum.accumulate(pair, axis=0), 0.0).sum(axis=0) - 1
    at = np.arange(flat.shape[2])
    ends = (even[last, at] > 0) | (pair[last, at] >= 0)
    time = np.maximum(time + np.where(ends, even[last, at], 0.0), 1 / np.log10(total))
    still = np.ptp(flat, axis=(0, 1)) < STILL
    return np.where(still, total, total / time).reshape(shape)
