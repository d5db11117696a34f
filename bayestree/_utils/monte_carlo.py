"""Statistics of Monte Carlo draws: of chains and of importance weights, of many quantities at once.

R-hat, effective sample sizes and E-BFMI of chains; Pareto smoothed importance sampling (Vehtari et
al., JMLR 25, 2024). ArviZ has the same, but takes a second to import and a millisecond for each
quantity or row; its versions 0.x and 1.x have opposite signs of k. Intervals of few draws, which it
does not have.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import logsumexp, ndtri
from scipy.stats import rankdata

from bayestree._utils.arrays import FloatArray, IntArray

STILL = 1e-15  # range below which a quantity never changes
SPREAD = 1e-9  # log ratios that differ by less count as equal
LOG_TINY = float(np.log(np.finfo(np.float64).tiny))
NEGLIGIBLE = 10 * np.finfo(np.float64).eps  # weight of a trial shape
MIN_DRAWS = 30  # draws, a fifth of which form the tail
MIN_TAIL = 5  # values to which a tail is fitted
PRIOR_K, PRIOR_SIZE = 0.5, 10  # prior of k: its mean, and the number of values that it counts as
BLOCK = 2**20  # trial shapes times values in memory


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


def numbered_chains(each: Sequence[IntArray]) -> IntArray:
    """Join the chains of the draws of several posteriors, whose numbers all begin at 0."""
    before = np.cumsum([0, *(chains.max() + 1 for chains in each)])
    return np.concatenate([own + first for own, first in zip(each, before, strict=False)])


def effective_draws(values: FloatArray, weights: FloatArray, chains: IntArray) -> FloatArray:
    """Compute effective numbers of draws by an analysis of variance, one way, between chains.

    Draws of one chain resemble each other: with the variance b between chains and w within them,
    the weighted mean has the variance b sum_c W_c^2 + w sum_s w_s^2, where W_c are the weights of
    the chains, and n independent draws would have (b + w) / n. Unlike ``ess``, this needs no order
    and few draws of each chain, and a chain of a single draw is an independent one.

    ``values`` are (S, ...), of draws from ``chains`` (S,) with weights (S,); the result is (...).
    """
    share = weights / weights.sum()
    names, place = np.unique(chains, return_inverse=True)
    member = (place == np.arange(len(names))[:, None]) * share
    of_chain = member.sum(axis=1)
    flat = values.reshape(len(values), -1)
    mean = member @ flat / of_chain[:, None]
    within = share @ (flat - mean[place]) ** 2
    between = of_chain @ (mean - share @ flat) ** 2
    # their expectations are w (1 - a) and b (1 - B) + w (a - A)
    a, A, B = float(share @ (share / of_chain[place])), float(share @ share), of_chain @ of_chain
    w = within / (1 - a) if 1 - a > STILL else np.zeros_like(within)
    b = np.maximum(between - w * (a - A), 0.0) / (1 - B) if 1 - B > STILL else np.zeros_like(w)
    total, least = b + w, np.finfo(np.float64).tiny
    found = np.where(total > least, total / np.maximum(b * B + w * A, least), 1 / A)
    return found.reshape(values.shape[1:])


def central_interval(
    values: FloatArray, weights: FloatArray, chains: IntArray, level: float
) -> FloatArray:
    """Compute the ends (2, ...) of central intervals from few and dependent draws.

    A new draw is below the quantile q of n independent ones, whose rank is n q + 1/2, with the
    probability (n q + 1/2) / (n + 1). This is p for q = p - (1/2 - p) / n, so that an interval
    between the quantiles p and 1 - p of few draws would hold too little. Here n is the effective
    number of draws, but at least p / 5 of them stay outside at each end: the extremes of a few
    chains that disagree say little about the posterior.

    The arguments are those of :func:`effective_draws`.
    """
    order = np.argsort(values, axis=0, kind="stable")
    share = weights[order] / weights.sum()
    below, ordered = np.cumsum(share, axis=0) - share / 2, np.take_along_axis(values, order, axis=0)
    p = (1 - level) / 2
    outside = np.maximum(p - level / 2 / effective_draws(values, weights, chains), p / 5)
    return np.stack([_at(ordered, below, q) for q in (outside, 1 - outside)])


def _at(ordered: FloatArray, below: FloatArray, level: FloatArray) -> FloatArray:
    """Interpolate ascending values (S, ...) where ``below`` (S, ...) reaches a level (...)."""
    after = (below < level).sum(axis=0)[None]
    ends = [np.clip(place, 0, len(ordered) - 1) for place in (after - 1, after)]
    (first, last), (low, high) = (
        [np.take_along_axis(one, place, axis=0)[0] for place in ends] for one in (below, ordered)
    )
    gap = np.where(last > first, last - first, 1.0)
    share = np.clip((level - first) / gap, 0.0, 1.0)
    return np.where(share > 0, low + (high - low) * share, low)


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


def pareto_k(log_ratios: ArrayLike) -> float:
    """Return the shape of the tail of all importance ratios (see :func:`psis`)."""
    return float(psis(np.ravel(log_ratios))[1])


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
