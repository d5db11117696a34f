"""Scores of predicted numbers: real values, counts, and right-censored survival times."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid

from bayestree._utils.arrays import AnyArray, FloatArray

PAIRS = 2**22  # of rows that are compared at a time
TIED = 1e-8  # risks that differ by less than this share of the larger one are equal


def concordance(
    time: ArrayLike, event: ArrayLike, risk: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Harrell's concordance index: the share of comparable pairs whose risks have the right order.

    A pair is comparable if the row of the shorter time had the event; of two equal times, only
    one. Equal risks count one half (Harrell, Lee and Mark 1996).

    Parameters
    ----------
    time, event, risk : arrays, shape (n,)
        Times, whether the event was observed then, and scores that are larger for shorter survival.
    weights : array, shape (n,), optional
        A pair counts with the product of its weights.

    Returns
    -------
    float
        1 for the right order of all pairs, 0.5 for a constant risk.

    Raises
    ------
    ValueError
        If the shapes differ, a value is missing or infinite, or no pair is comparable.
    """
    t, d, r, w = _columns(
        time=time,
        event=event,
        risk=risk,
        weights=np.ones(np.shape(time)) if weights is None else weights,
    )
    size = TIED * np.abs(r)
    right = total = 0.0
    for some in _parts(np.flatnonzero(d > 0), len(t)):
        first = t[some, None]
        pair = ((first < t) | ((first == t) & (d == 0))) * w[some, None] * w
        difference = r[some, None] - r
        tied = np.abs(difference) <= np.maximum(size[some, None], size)
        right += float((pair * np.where(tied, 0.5, difference > 0)).sum())
        total += float(pair.sum())
    if total == 0:
        raise ValueError(
            "no two rows are comparable: there must be an event before the time of another row."
        )
    return right / total


def kaplan_meier(time: ArrayLike, event: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Kaplan and Meier's estimate of the survival function (1958).

    Parameters
    ----------
    time, event : arrays, shape (n,)

    Returns
    -------
    times, survival : arrays, shape (m,)
        The different times, and the probability of survival beyond each.
    """
    t, d = _columns(time=time, event=event)
    times, died, _, at_risk = _counts(t, d)
    survival: FloatArray = np.cumprod(1 - died / at_risk, dtype=np.float64)
    return times, survival


def _counts(t: FloatArray, d: FloatArray) -> tuple[AnyArray, ...]:
    """The different times, and the numbers of events, of censored rows and at risk at each."""
    times, place = np.unique(t, return_inverse=True)
    died, censored = (np.bincount(place, kind, len(times)) for kind in (d > 0, d == 0))
    return times, died, censored, len(t) - np.searchsorted(np.sort(t), times)


def brier_scores(
    time: ArrayLike,
    event: ArrayLike,
    survival: ArrayLike,
    times: ArrayLike,
    *,
    reference: tuple[ArrayLike, ArrayLike] | None = None,
) -> FloatArray:
    """Mean squared error of survival probabilities at given times, shape (T,).

    Rows that were censored before a time are replaced by others, which are weighted by the inverse
    of their probability of not being censored (Graf, Schmoor, Sauerbrei and Schumacher 1999).

    Parameters
    ----------
    time, event : arrays, shape (n,)
    survival : array, shape (n, T)
        Predicted probabilities of survival beyond ``times``.
    times : array, shape (T,)
        Times at which rows are still under observation.
    reference : pair of arrays, optional
        Times and events of the rows from which the censoring is estimated, such as the training
        rows; by default the rows themselves.

    Raises
    ------
    ValueError
        If the shapes differ, or nobody is observed as long as one of ``times``.
    """
    t, d = _columns(time=time, event=event)
    at, predicted = np.asarray(times, dtype=np.float64), np.asarray(survival, dtype=np.float64)
    if predicted.shape != (len(t), len(at)):
        raise ValueError(
            f"survival must have shape ({len(t)}, {len(at)}), one row for each row of the data and "
            f"one column for each time, got {predicted.shape}."
        )
    known, seen = t, d
    if reference is not None:
        known, seen = _columns(time=reference[0], event=reference[1])
    steps, events, censored, at_risk = _counts(known, seen)
    # At equal times events come first, after which a row is no longer at risk of censoring. Where
    # no row is left at risk none is censored, and any divisor gives a factor of 1.
    left = np.maximum(at_risk - events, 1.0)
    beyond = np.concatenate([[1.0], np.cumprod(1 - censored / left)])
    before, until = beyond[np.searchsorted(steps, t)], beyond[np.searchsorted(steps, at, "right")]
    late = before == 0
    if (until == 0).any() or (late & (d > 0) & (t <= at.max())).any():
        raise ValueError(
            "times must be earlier than the time from which all rows are censored; the latest is "
            f"{at.max():g}; the largest known time is {known.max():g}."
        )
    died = (t[:, None] <= at) & (d[:, None] > 0)
    alive = t[:, None] > at
    safe = np.where(late, 1.0, before)[:, None]
    missed = np.where(died, predicted**2 / safe, 0.0)
    missed += np.where(alive, (1 - predicted) ** 2 / until, 0.0)
    return missed.mean(axis=0)


def integrated_brier_score(
    time: ArrayLike,
    event: ArrayLike,
    survival: ArrayLike,
    times: ArrayLike,
    *,
    reference: tuple[ArrayLike, ArrayLike] | None = None,
) -> float:
    """Mean of :func:`brier_scores` over ``times``, which ascend, by the trapezoidal rule.

    0 is best, and 0.25 that of a probability of one half everywhere.
    """
    at = np.asarray(times, dtype=np.float64)
    if len(at) < 2 or (np.diff(at) <= 0).any():
        raise ValueError(f"times must be two or more in ascending order, got {times!r}.")
    scores = brier_scores(time, event, survival, at, reference=reference)
    return float(trapezoid(scores, at) / (at[-1] - at[0]))


def _columns(**named: ArrayLike) -> list[FloatArray]:
    """The arrays in double precision, of one length and finite."""
    found = {name: np.asarray(values, dtype=np.float64) for name, values in named.items()}
    shapes = {name: values.shape for name, values in found.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"{', '.join(shapes)} must have the same shape (n,), got {shapes}.")
    for name, values in found.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got infinite or missing values.")
    return list(found.values())


def _parts(rows: AnyArray, n: int) -> list[AnyArray]:
    return np.array_split(rows, -(-max(len(rows), 1) * n // PAIRS) or 1)


def squared_scores(y: FloatArray, predicted: FloatArray, weights: FloatArray) -> dict[str, float]:
    """``rmse`` and, for two rows or more, ``r2``, all arrays being (n,)."""
    from sklearn.metrics import r2_score, root_mean_squared_error  # noqa: PLC0415 - slow

    scores = {"rmse": float(root_mean_squared_error(y, predicted, sample_weight=weights))}
    if len(y) > 1:
        scores["r2"] = float(r2_score(y, predicted, sample_weight=weights))
    return scores


def count_scores(
    y: FloatArray, rate: FloatArray, weights: FloatArray, exposure: FloatArray
) -> dict[str, float]:
    """``mean_deviance`` of the counts of a row, its explained share, ``rmse`` and ``r2``.

    The explained share is that of the deviance of a constant rate.
    """
    from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance  # noqa: PLC0415 - slow

    expected = rate * exposure
    scores = {"mean_deviance": float(mean_poisson_deviance(y, expected, sample_weight=weights))}
    if len(y) > 1 and np.ptp(y / exposure) > 0:
        # with weights of exposure, the deviance of rates is that of counts
        d2 = d2_tweedie_score(y / exposure, rate, sample_weight=weights * exposure, power=1)
        scores["explained_deviance"] = float(d2)
    return scores | squared_scores(y, expected, weights)
