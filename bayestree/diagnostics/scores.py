"""Calibration and scores of predictions of held-out rows, and their comparison with a constant."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray

SUM_TOLERANCE = 1e-5  # probabilities may have been computed in single precision
N_RESAMPLES = 200
PAIRS = 2**22  # of rows that are compared at a time
TIED = 1e-8  # risks that differ by less than this share of the larger one are equal


class Score(NamedTuple):
    """A score, its standard error, and its expectation under perfect calibration."""

    value: float
    error: float
    if_calibrated: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """Agreement of predicted probabilities with observed classes.

    Each score has a ``value``, an ``error`` (standard error: from the spread of the rows for
    means, by bootstrap over the rows for calibration errors) and ``if_calibrated``, its
    expectation if y were drawn from the probabilities. Calibration errors are positive even
    under perfect calibration: compare them with ``if_calibrated``, not with 0.

    Attributes
    ----------
    accuracy : Score
        Share of rows whose most probable class is correct.
    ece : Score
        Expected calibration error of the most probable class: mean gap between confidence and
        accuracy, in equal-mass bins (Naeini et al. 2015; Nixon et al. 2019).
    ece_width : Score
        The same in equal-width bins (Guo et al. 2017).
    ece_classwise : Score
        Gap between probability and frequency of each class in equal-width bins, averaged over
        the classes (Kull et al. 2019).
    brier : Score
        Mean squared difference of the probabilities from the one-hot class, summed over the
        classes: 0 is best, 2 worst.
    overconfidence : Score
        Mean probability of the most probable class minus accuracy: positive if probabilities
        are too high on average. No row contributes more than 1, so that a few extreme rows
        cannot decide the sign. The error is the larger of the empirical standard error and the
        one expected under calibration.
    log_score : Score
        Mean log-probability of the observed class, in nats (higher is better); -inf if an
        observed class was given probability 0.
    gain : Score
        How much lower the Brier score is than the score of the class frequencies among these rows:
        it is larger for better probabilities, and 0 or less if they predict no better. It is always
        finite.
    n_rows, n_zero : int
        Number of rows, and of rows whose class was given probability 0.
    bins : DataFrame
        The reliability table behind ``ece``: ``low``, ``high``, ``rows``, mean ``confidence``,
        ``accuracy``, and ``error``, the standard error of the accuracy if calibrated.
    """

    accuracy: Score
    ece: Score
    ece_width: Score
    ece_classwise: Score
    brier: Score
    overconfidence: Score
    log_score: Score
    gain: Score
    n_rows: int
    n_zero: int
    bins: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """Tabulate value, error and if_calibrated of each score."""
        scores = {name: found for name, found in vars(self).items() if isinstance(found, Score)}
        index = pd.Index(scores, name="score", dtype=object)
        return pd.DataFrame(scores.values(), index=index)

    def __str__(self) -> str:
        parts = [f"Calibration on {self.n_rows} rows", _formatted(self.to_frame())]
        if self.n_zero:
            parts.append(f"Rows whose class was given probability 0: {self.n_zero}.")
        return "\n".join(
            [*parts, "", "Reliability of the most probable class", _formatted(self.bins)]
        )


def calibration(
    y: ArrayLike,
    probability: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    n_bins: int = 15,
    random_state: int = 0,
) -> Calibration:
    """Compare predicted probabilities with observed classes of held-out rows.

    Parameters
    ----------
    y : array, shape (n,)
        Class numbers 0..C-1, or labels among ``classes``.
    probability : array, shape (n, C) or (n,)
        Probability of each class, rows summing to 1; of class 1 if one-dimensional.
    classes : array, shape (C,), optional
        Labels in the order of the columns, such as ``classes_`` of an estimator.
    weights : array, shape (n,), optional
        Rows of weight 0 are left out. The others count as so many, but errors as single rows.
    n_bins : int
        Number of bins of the calibration errors; ties in confidence reduce it.
    random_state : int
        Seed of the bootstrap and of the simulation of ``if_calibrated``.

    Returns
    -------
    Calibration
        Can be printed; see also ``to_frame`` and ``bins``.

    Raises
    ------
    ValueError
        If shapes disagree, a row of ``probability`` is not a distribution, a label is not among
        the classes, or ``n_bins`` is below 1.

    Examples
    --------
    >>> from bayestree.diagnostics import calibration
    >>> found = calibration([0, 1, 1, 0], [0.2, 0.9, 0.6, 0.4], n_bins=2)
    >>> round(found.brier.value, 3)
    0.185
    """
    p = check_probability(probability)
    truth = encoded(y, p, classes)
    if n_bins < 1:
        raise ValueError(f"n_bins must be 1 or more, got {n_bins}.")
    mass = np.ones(len(p)) if weights is None else np.asarray(weights, dtype=np.float64)
    p, truth, share = p[mass > 0], truth[mass > 0], mass[mass > 0] / mass.sum()
    top = p.argmax(axis=1)
    confidence = p.max(axis=1)
    shares = np.arange(n_bins) / n_bins
    # Bin edges are observed values: no bin is empty, and ties share a bin.
    order = np.argsort(confidence, kind="stable")
    below = mass[mass > 0][order].cumsum()
    starts = np.unique(confidence[order[np.searchsorted(below, below[-1] * shares, "right")]])
    gaps = _gaps(p, truth, share, (starts, shares), random_state)
    observed = p[np.arange(len(p)), truth]
    distance = (p**2).sum(axis=1) - 2 * observed + 1  # |p - e_y|^2; E = 1 - |p|^2 if calibrated
    frequency = np.bincount(truth, share, minlength=p.shape[1])
    constant = (frequency**2).sum() - 2 * frequency[truth] + 1
    found = _mean(confidence - (top == truth), 0 * confidence, share)
    least = float(np.sqrt(share**2 @ (confidence * (1 - confidence))))
    return Calibration(
        accuracy=_mean(top == truth, confidence, share),
        ece=gaps[0],
        ece_width=gaps[1],
        ece_classwise=gaps[2],
        brier=_mean(distance, 1 - (p**2).sum(axis=1), share),
        overconfidence=Score(found.value, max(found.error, least), 0.0),
        log_score=_log_score(observed, p, share),
        gain=_mean(constant - distance, ((p - frequency) ** 2).sum(axis=1), share),
        n_rows=len(p),
        n_zero=int((observed == 0).sum()),
        bins=_reliability(confidence, top == truth, starts, share),
    )


def check_probability(probability: ArrayLike) -> FloatArray:
    """Check probabilities (n, C); for two classes, one column is enough."""
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim == 1:
        p = np.stack([1 - p, p], axis=1)
    if p.ndim != 2 or p.shape[1] < 2 or len(p) == 0:
        raise ValueError(
            f"probability must have shape (n, classes) or (n,) with n > 0, got {p.shape}."
        )
    wrong = ~(p >= 0).all(axis=1) | ~(np.abs(p.sum(axis=1) - 1) <= SUM_TOLERANCE)
    if wrong.any():
        raise ValueError(
            f"probability must be non-negative and sum to 1 in each row; row {wrong.argmax()} is "
            f"{p[wrong.argmax()].tolist()}."
        )
    return p


def encoded(y: ArrayLike, p: FloatArray, classes: ArrayLike | None) -> IntArray:
    """Find the column of the class of each row."""
    labels = np.asarray(y)
    if labels.shape != (len(p),):
        raise ValueError(f"y must have shape ({len(p)},) like probability, got {labels.shape}.")
    known = np.arange(p.shape[1]) if classes is None else np.asarray(classes)
    if known.shape != (p.shape[1],):
        raise ValueError(f"classes must name {p.shape[1]} columns, got shape {known.shape}.")
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, labels, sorter=order)
    column = order[np.minimum(place, len(known) - 1)]
    unknown = known[column] != labels
    if unknown.any():
        raise ValueError(
            f"y contains {labels[unknown].tolist()[0]!r}, which is not among the classes "
            f"{known.tolist()}; pass the labels of the columns as classes=."
        )
    return column.astype(np.int64)


def _mean(values: NDArray[np.generic], if_calibrated: FloatArray, share: FloatArray) -> Score:
    """Average over the rows, with a standard error."""
    x = values.astype(np.float64)
    error = np.sqrt(share**2 @ (x - share @ x) ** 2)
    return Score(float(share @ x), float(error), float(share @ if_calibrated))


def _log_score(observed: FloatArray, p: FloatArray, share: FloatArray) -> Score:
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    if (observed == 0).any():
        return Score(-np.inf, np.nan, float(-share @ entropy))
    return _mean(np.log(observed), -entropy, share)


def _gaps(
    p: FloatArray, truth: IntArray, share: FloatArray, starts: tuple[FloatArray, ...], seed: int
) -> list[Score]:
    """Compute the three calibration errors, with bootstrap error and expectation if calibrated."""
    (n, n_classes), (mass, width), rng = p.shape, starts, np.random.default_rng(seed)
    confidence, top = p.max(axis=1), p.argmax(axis=1)
    bins = [
        _bin_of(confidence, mass),
        _bin_of(confidence, width),
        _bin_of(p, width) + len(width) * np.arange(n_classes),
    ]

    def errors(observed: IntArray, count: FloatArray) -> list[float]:
        right = (top == observed) - confidence
        each = (observed[:, None] == np.arange(n_classes)) - p
        count = count * share / (count @ share)
        found = [_gap(own_bins, right * count) for own_bins in bins[:2]]
        return [*found, _gap(bins[2], each * count[:, None]) / n_classes]

    once = np.ones(n)
    value = errors(truth, once)
    resampled, simulated = [], []
    cumulative = p.cumsum(axis=1)[:, :-1]
    for _ in range(N_RESAMPLES):
        count = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        resampled.append(errors(truth, count))
        drawn = (rng.uniform(size=(n, 1)) > cumulative).sum(axis=1)
        simulated.append(errors(drawn, once))
    error, expected = np.std(resampled, axis=0), np.mean(simulated, axis=0)
    return [Score(*map(float, score)) for score in zip(value, error, expected, strict=True)]


def _bin_of(values: FloatArray, starts: FloatArray) -> IntArray:
    """Find the bin of each value, given the lower edges of the bins."""
    return (np.searchsorted(starts, values, side="right") - 1).astype(np.int64)


def _gap(bins: IntArray, residual: FloatArray) -> float:
    """Sum over the bins of |total residual|."""
    return float(np.abs(np.bincount(bins.ravel(), residual.ravel())).sum())


def _reliability(
    confidence: FloatArray, right: BoolArray, starts: FloatArray, share: FloatArray
) -> pd.DataFrame:
    place = _bin_of(confidence, starts)
    grouped = pd.Series(confidence).groupby(pd.Series(place, name="bin"))
    own = share / np.bincount(place, share)[place]  # of the rows of the bin
    mean = np.bincount(place, own * confidence)
    return pd.DataFrame(
        {
            "low": grouped.min(),
            "high": grouped.max(),
            "rows": grouped.size(),
            "confidence": mean,
            "accuracy": np.bincount(place, own * right),
            "error": np.sqrt(mean * (1 - mean) * np.bincount(place, own**2)),
        }
    )


def _formatted(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format="{:.4f}".format)


def ranked_probability(
    y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None
) -> FloatArray:
    """Compute the ranked probability score of each row (Epstein, 1969), (n,); 0 is perfect.

    It sums, over the C - 1 cuts between the classes, the squared differences of cumulative
    probabilities from the indicators of the observed class: it counts how far wrong a class is.

    Parameters
    ----------
    y : array, shape (n,)
        Observed classes.
    probability : array, shape (n, C)
        Of the classes in their order.
    classes : array, shape (C,), optional
        Labels of the columns, such as ``classes_`` of a classifier; by default 0, 1, ...

    Raises
    ------
    ValueError
        If the probabilities do not sum to 1, the shapes differ, or y has other classes.

    Examples
    --------
    >>> from bayestree.diagnostics import ranked_probability
    >>> ranked_probability([0, 2], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]).tolist()
    [0.25, 1.25]
    """
    p = check_probability(probability)
    number = encoded(y, p, classes)
    below = number[:, None] <= np.arange(p.shape[1] - 1)
    return ((p.cumsum(axis=1)[:, :-1] - below) ** 2).sum(axis=1)


def concordance(
    time: ArrayLike, event: ArrayLike, risk: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Compute Harrell's concordance index: the share of comparable pairs in the right order.

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
    """Estimate the survival function by Kaplan and Meier's method (1958).

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
    """Count events, censored rows and rows at risk at each of the different times."""
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
    """Compute mean squared errors of survival probabilities at given times, shape (T,).

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
        If the shapes differ, or nobody is observed until some of ``times``.
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
    """Average :func:`brier_scores` over ascending ``times`` by the trapezoidal rule.

    0 is best; a probability of one half everywhere scores 0.25.
    """
    at = np.asarray(times, dtype=np.float64)
    if len(at) < 2 or (np.diff(at) <= 0).any():
        raise ValueError(f"times must be two or more in ascending order, got {times!r}.")
    scores = brier_scores(time, event, survival, at, reference=reference)
    return float(trapezoid(scores, at) / (at[-1] - at[0]))


def _columns(**named: ArrayLike) -> list[FloatArray]:
    """Check that arrays have one length and are finite, in double precision."""
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
    """Compute ``rmse`` and, for two rows or more, ``r2``, of arrays (n,)."""
    from sklearn.metrics import r2_score, root_mean_squared_error  # noqa: PLC0415 - slow

    scores = {"rmse": float(root_mean_squared_error(y, predicted, sample_weight=weights))}
    if len(y) > 1:
        scores["r2"] = float(r2_score(y, predicted, sample_weight=weights))
    return scores


def count_scores(
    y: FloatArray, rate: FloatArray, weights: FloatArray, exposure: FloatArray
) -> dict[str, float]:
    """Score counts by ``mean_deviance``, ``explained_deviance``, ``rmse`` and ``r2``.

    The explained share refers to the deviance of a constant rate.
    """
    from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance  # noqa: PLC0415 - slow

    expected = rate * exposure
    scores = {"mean_deviance": float(mean_poisson_deviance(y, expected, sample_weight=weights))}
    if len(y) > 1 and np.ptp(y / exposure) > 0:
        # with weights of exposure, the deviance of rates equals the deviance of counts
        d2 = d2_tweedie_score(y / exposure, rate, sample_weight=weights * exposure, power=1)
        scores["explained_deviance"] = float(d2)
    return scores | squared_scores(y, expected, weights)
