"""Weights of several posteriors of the same data, from their predictions of rows left out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls
from scipy.special import logsumexp, softmax

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.loo import Loo

GAP = 1e-6  # nats by which the total score may be below its maximum
MAX_STEPS = 1000  # a dozen suffice unless rounding errors of the gradient exceed the gap
SHORTEST = 1e-10  # share of a Newton step
ENOUGH = 1e-4  # share of the rise that the slope promises
SUM_SCALE = 1e3


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
        Zero or more, with sum 1; equal if every row has the same density under all models. Their
        total score is below the highest one by less than a millionth of a nat. Without
        ``prior_rows``, one of several models that predict alike may have the weight of all.

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
    if prior_rows:  # log w_m is the log score of a row that model m alone can explain
        density = np.concatenate([density, np.eye(n_models)])
        rows = np.append(rows, np.full(n_models, prior_rows))
    return _highest_score(density[rows > 0], rows[rows > 0])


def _highest_score(density: FloatArray, rows: FloatArray) -> FloatArray:
    """The weights w that maximise f(w) = sum_n v_n log sum_m w_m p_nm, v = ``rows``.

    f is concave, and its gradient g has w . g = sum v. So f lies below its maximum by at most
    max_u (u - w) . g = max g - sum v. Near the maximum an EM step, w <- w g / sum v, moves weights
    by a tiny share where two models predict nearly alike, or where an unneeded model has a gradient
    of nearly sum v. Steps are therefore those of Newton's method under the constraints, and EM,
    which never lowers f, takes the rare ones that rounding errors prevent from raising it.
    """
    total, n_models = rows.sum(), density.shape[1]
    weights = np.full(n_models, 1 / n_models)
    for _ in range(MAX_STEPS):
        mixed = density @ weights
        gradient = (rows / mixed) @ density
        if gradient.max() - total < GAP:
            break
        target = _newton_target(density / mixed[:, None], rows)
        length, slope, score = 1.0, gradient @ (target - weights), rows @ np.log(mixed)
        while length > SHORTEST:
            found = (1 - length) * weights + length * target
            with np.errstate(divide="ignore"):  # a weight of 0 may exclude a row
                rise = rows @ np.log(density @ found) - score
            if rise > ENOUGH * length * slope > 0:
                break
            length /= 2
        weights = found if length > SHORTEST else weights * gradient / total
        weights /= weights.sum()
    return weights


def _newton_target(ratio: FloatArray, rows: FloatArray) -> FloatArray:
    """The weights u that maximise the quadratic approximation of f at the current weights.

    With ratios q_nm = p_nm / p(y_n), which average to 1 under w, it is a constant minus
    sum_n v_n (2 - sum_m u_m q_nm)^2 / 2. Its maximum with u >= 0 is a least-squares problem; a row
    of large weight makes the sum of u nearly 1, whatever the models.
    """
    system = np.sqrt(rows)[:, None] * np.insert(ratio, ratio.shape[1], 2.0, axis=1)
    triangle = np.linalg.qr(system)[1]
    sum_row = np.full(triangle.shape[1], SUM_SCALE * np.sqrt(rows.sum()))
    system = np.concatenate([triangle, sum_row[None]])
    found: FloatArray = nnls(system[:, :-1], system[:, -1])[0]
    return found / found.sum()


def elbo_weights(elbo: ArrayLike) -> FloatArray:
    """Weights in proportion to exp(ELBO), shape (M,): a lower bound of each mode's evidence."""
    return softmax(np.asarray(elbo, dtype=np.float64))


def mixed_loo(
    each: Sequence[Loo], weights: ArrayLike, *, row_weights: ArrayLike | None = None
) -> Loo:
    """Leave-one-out score of the mixture of several posteriors of the same rows.

    Parameters
    ----------
    each : sequence of M Loo
    weights : array, shape (M,)
        The weights are taken as given, although they may have been chosen by the same scores.
    row_weights : array, shape (n,), optional
        Weights by which the terms of the rows were multiplied; by default 1.

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
    rows = (
        np.ones(len(kept[0][0].k))
        if row_weights is None
        else np.asarray(row_weights, dtype=np.float64)
    )
    log_weight = np.log([[weight] for _, weight in kept])
    elpd_row = rows * logsumexp(log_weight + [one.elpd_row / rows for one, _ in kept], axis=0)
    fitted_row = rows * logsumexp(log_weight + [one.fitted_row / rows for one, _ in kept], axis=0)
    return Loo.of(
        elpd_row,
        fitted_row,
        k=np.max([one.k for one, _ in kept], axis=0),
        good_k=min(one.good_k for one, _ in kept),
        n_draws=sum(one.n_draws for one, _ in kept),
        corrected=any(one.corrected for one, _ in kept),
    )
