"""Weights of several posteriors of the same data, from their predictions of rows left out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.loo import Loo

GAP = 1e-4  # nats by which the total score may be below its maximum
MAX_STEPS = 100_000  # the last ones change weights that the rows hardly determine


def stacking_weights(
    log_density: ArrayLike, *, row_weights: ArrayLike | None = None, prior_rows: float = 0.0
) -> FloatArray:
    """The weights of the mixture with the highest total log score.

    They maximise sum_n v_n log sum_m w_m p_m(y_n), where p_m(y_n) is the predictive density of
    row n under model m, fitted without this row, and v_n the weight of the row (Yao, Vehtari,
    Simpson and Gelman, "Using stacking to average Bayesian predictive distributions", Bayesian
    Analysis 2018).

    Parameters
    ----------
    log_density : array, shape (n, M)
        log p_m(y_n).
    row_weights : array, shape (n,), optional
        A weight is a number of equal rows; by default 1.
    prior_rows : float
        Rows in favour of each model that are added to the given ones: the weights are then the
        mode of their posterior under a Dirichlet prior, which keeps few rows from deciding alone.

    Returns
    -------
    array, shape (M,)
        Zero or more, with sum 1; equal if every row has the same density under all models.

    Raises
    ------
    ValueError
        If a shape is wrong, a number is NaN or +inf, a row has density 0 under all models, or
        ``row_weights`` or ``prior_rows`` are negative.
    """
    scores = np.asarray(log_density, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"log_density must have shape (rows, models), got {scores.shape}.")
    if not prior_rows >= 0:
        raise ValueError(f"prior_rows must be 0 or more, got {prior_rows}.")
    rows = np.ones(len(scores)) if row_weights is None else np.asarray(row_weights, np.float64)
    if rows.shape != (len(scores),) or not (np.isfinite(rows) & (rows >= 0)).all():
        raise ValueError(
            f"row_weights must be {len(scores)} finite numbers of 0 or more, got shape "
            f"{rows.shape} with a minimum of {rows.min(initial=np.inf):g}."
        )
    highest = scores.max(axis=1, keepdims=True)
    if not np.isfinite(highest).all():  # the maximum of a row with NaN is NaN
        raise ValueError(
            "log_density must be below inf, and above -inf for one model or more of each row; rows "
            f"{np.flatnonzero(~np.isfinite(highest.ravel()))[:5].tolist()} are not."
        )
    density = np.exp(scores - highest)
    n_models = density.shape[1]
    total = rows.sum() + n_models * prior_rows
    if total == 0:
        return np.full(n_models, 1 / n_models)
    weights = np.full(n_models, 1 / n_models)
    for _ in range(MAX_STEPS):
        # f(w) = sum_n v_n log p(y_n) + prior_rows sum_m log w_m has a gradient g with
        # w . g = total, and is concave: f lies below its maximum by at most
        # max_u (u - w) . g = max g - total. An EM step is w <- w g / total.
        gradient = (rows / (density @ weights)) @ density
        if prior_rows:
            gradient += prior_rows / weights
        if gradient.max() - total < GAP:
            break
        weights = weights * gradient / total
    found: FloatArray = weights / weights.sum()
    return found


def elbo_weights(elbo: ArrayLike) -> FloatArray:
    """Weights in proportion to exp(ELBO), shape (M,): a lower bound of each mode's evidence."""
    found: FloatArray = softmax(np.asarray(elbo, dtype=np.float64))
    return found


def mixed_loo(each: Sequence[Loo], weights: ArrayLike) -> Loo:
    """Leave-one-out score of the mixture of several posteriors of the same rows.

    Parameters
    ----------
    each : sequence of M Loo
    weights : array, shape (M,)
        The weights are taken as given, although they may have been chosen by the same scores.

    Returns
    -------
    Loo
        The Pareto k of a row is the largest among the posteriors of positive weight.

    Raises
    ------
    ValueError
        If there is not one weight for each score, or the scores are of different rows.
    """
    share = np.asarray(weights, dtype=np.float64)
    if share.shape != (len(each),) or len({len(one.k) for one in each}) > 1:
        raise ValueError(
            f"each of {len(each)} scores needs a weight and the same rows, got weights of shape "
            f"{share.shape} and {[len(one.k) for one in each]} rows."
        )
    kept = [(one, weight) for one, weight in zip(each, share, strict=True) if weight > 0]
    log_weight = np.log([[weight] for _, weight in kept])
    elpd_row = logsumexp(log_weight + [one.elpd_row for one, _ in kept], axis=0)
    fitted_row = logsumexp(log_weight + [one.fitted_row for one, _ in kept], axis=0)
    n = len(elpd_row)
    return replace(
        kept[0][0],
        elpd=float(elpd_row.sum()),
        se=float(np.sqrt(n) * elpd_row.std(ddof=1)) if n > 1 else np.nan,
        p_loo=float((fitted_row - elpd_row).sum()),
        elpd_row=elpd_row,
        fitted_row=fitted_row,
        k=np.max([one.k for one, _ in kept], axis=0),
        good_k=min(one.good_k for one, _ in kept),
        n_draws=sum(one.n_draws for one, _ in kept),
        corrected=any(one.corrected for one, _ in kept),
    )
