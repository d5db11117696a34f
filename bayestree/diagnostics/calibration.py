"""Do probabilities come true? Reliability table, calibration errors and proper scores."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayestree._utils.arrays import FloatArray, IntArray

SUM_TOLERANCE = 1e-5  # of probabilities of a row, which may come from single precision
N_RESAMPLES = 200


class Score(NamedTuple):
    """A score with its sampling error, and what it would be if the probabilities were true."""

    value: float
    error: float
    if_calibrated: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """How well predicted probabilities agree with what happened.

    Each score has ``value``, ``error`` (standard error: of means by their spread, of
    calibration errors by bootstrap over the rows) and ``if_calibrated``, its expectation if y
    were drawn from the probabilities. A calibration error is above zero even then: compare it
    with ``if_calibrated``, not with 0.

    Attributes
    ----------
    accuracy : Score
        Share of rows whose most probable class is right.
    ece : Score
        Expected calibration error of the most probable class: mean gap between confidence and
        accuracy, in bins of equally many rows (Naeini et al. 2015; Nixon et al. 2019).
    ece_width : Score
        The same in bins of equal width (Guo et al. 2017).
    ece_classwise : Score
        Mean over the classes of the gap between probability and frequency of each, in bins of
        equal width (Kull et al. 2019).
    brier : Score
        Mean squared distance of the probabilities from what happened, summed over the classes:
        0 is best, 2 worst.
    overconfidence : Score
        Mean probability of the most probable class less the share of rows where it is right:
        positive if the probabilities are too high on average, negative if too low. Every row
        counts alike, and none by more than 1, so that a few extreme rows do not decide the sign.
        The error is the larger of two: from the spread of the rows, and expected if calibrated.
    log_score : Score
        Mean log-probability of what happened, in nats: the higher the better. -inf if a class
        that happened was given probability 0.
    n_rows, n_zero : int
        Rows, and those whose class was given probability 0.
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
    n_rows: int
    n_zero: int
    bins: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """One row for each score: value, error and if_calibrated."""
        names = (
            "accuracy",
            "ece",
            "ece_width",
            "ece_classwise",
            "brier",
            "overconfidence",
            "log_score",
        )
        rows = [getattr(self, name) for name in names]
        return pd.DataFrame(rows, index=pd.Index(names, name="score", dtype=object))

    def __str__(self) -> str:
        parts = [f"Calibration on {self.n_rows} rows", _text(self.to_frame())]
        if self.n_zero:
            parts.append(f"{self.n_zero} rows hold a class that was given probability 0.")
        return "\n".join([*parts, "", "Reliability of the most probable class", _text(self.bins)])


def calibration(
    y: ArrayLike,
    probability: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    n_bins: int = 15,
    random_state: int = 0,
) -> Calibration:
    """Compare predicted probabilities with what happened.

    Parameters
    ----------
    y : array, shape (n,)
        Class numbers 0..C-1, or labels among ``classes``. Rows that no fit has seen.
    probability : array, shape (n, C) or (n,)
        Of each class, rows summing to 1; of class 1 if one-dimensional.
    classes : array, shape (C,), optional
        Labels in the order of the columns, as ``classes_`` of an estimator.
    n_bins : int
        Bins of the calibration errors. Fewer where many rows have one confidence.
    random_state : int
        Of the bootstrap and of what is expected of calibrated probabilities.

    Returns
    -------
    Calibration
        ``print`` shows it; see ``to_frame`` and ``bins``.

    Raises
    ------
    ValueError
        If shapes disagree, a row of ``probability`` is no distribution, a label is not among
        the classes, or ``n_bins`` is below 1.

    Examples
    --------
    >>> from bayestree.diagnostics import calibration
    >>> found = calibration([0, 1, 1, 0], [0.2, 0.9, 0.6, 0.4], n_bins=2)
    >>> round(found.brier.value, 3)
    0.185
    """
    p = _checked(probability)
    truth = _encoded(y, p, classes)
    if n_bins < 1:
        raise ValueError(f"n_bins must be 1 or more, got {n_bins}.")
    top = p.argmax(axis=1)
    confidence = p.max(axis=1)
    shares = np.arange(n_bins) / n_bins
    # Starts that are values themselves: no bin is empty, and equal confidences stay together.
    starts = np.unique(np.sort(confidence)[(len(p) * shares).astype(np.int64)])
    gaps = _gaps(p, truth, starts, shares, np.random.default_rng(random_state))
    happened = p[np.arange(len(p)), truth]
    distance = (p**2).sum(axis=1) - 2 * happened + 1
    return Calibration(
        accuracy=_mean(top == truth, confidence),
        ece=gaps[0],
        ece_width=gaps[1],
        ece_classwise=gaps[2],
        brier=_mean(distance, 1 - (p**2).sum(axis=1)),
        overconfidence=_overconfidence(confidence, top == truth),
        log_score=_log_score(happened, p),
        n_rows=len(p),
        n_zero=int((happened == 0).sum()),
        bins=_reliability(confidence, top == truth, starts),
    )


def _checked(probability: ArrayLike) -> FloatArray:
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
            f"probability must be 0 or more and sum to 1 in each row; row {wrong.argmax()} is "
            f"{p[wrong.argmax()].tolist()}."
        )
    return p


def _encoded(y: ArrayLike, p: FloatArray, classes: ArrayLike | None) -> IntArray:
    """Column of the class of each row."""
    labels = np.asarray(y)
    if labels.shape != (len(p),):
        raise ValueError(f"y must have shape ({len(p)},), as probability, got {labels.shape}.")
    known = np.arange(p.shape[1]) if classes is None else np.asarray(classes)
    if known.shape != (p.shape[1],):
        raise ValueError(f"classes must name {p.shape[1]} columns, got shape {known.shape}.")
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, labels, sorter=order)
    column = order[np.minimum(place, len(known) - 1)]
    strange = known[column] != labels
    if strange.any():
        raise ValueError(
            f"y holds {labels[strange].tolist()[0]!r}, which is not among the classes "
            f"{known.tolist()}; give the labels of the columns as classes=."
        )
    return column.astype(np.int64)


def _mean(values: NDArray[np.generic], if_calibrated: FloatArray) -> Score:
    """Mean over the rows and its standard error."""
    own = values.astype(np.float64)
    return Score(
        float(own.mean()), float(own.std() / np.sqrt(len(own))), float(if_calibrated.mean())
    )


def _overconfidence(confidence: FloatArray, right: NDArray[np.bool_]) -> Score:
    """Mean of confidence less accuracy; 0 if calibrated."""
    excess = confidence - right
    variance = max(float(excess.var()), float((confidence * (1 - confidence)).mean()))
    return Score(float(excess.mean()), float(np.sqrt(variance / len(excess))), 0.0)


def _log_score(happened: FloatArray, p: FloatArray) -> Score:
    positive = p > 0
    entropy = -(p * np.log(np.where(positive, p, 1.0))).sum(axis=1)
    if (happened == 0).any():
        return Score(-np.inf, np.nan, float(-entropy.mean()))
    return _mean(np.log(happened), -entropy)


def _gaps(
    p: FloatArray,
    truth: IntArray,
    mass: FloatArray,
    width: FloatArray,
    rng: np.random.Generator,
) -> list[Score]:
    """The three calibration errors, each with bootstrap error and expectation if calibrated."""
    n, n_classes = p.shape
    confidence, top = p.max(axis=1), p.argmax(axis=1)
    bins = [
        _bin_of(confidence, mass),
        _bin_of(confidence, width),
        _bin_of(p, width) + len(width) * np.arange(n_classes),
    ]

    def errors(happened: IntArray, count: FloatArray) -> list[float]:
        right = (top == happened) - confidence
        each = (happened[:, None] == np.arange(n_classes)) - p
        found = [_gap(b, r * count, n) for b, r in zip(bins[:2], (right, right), strict=True)]
        return [*found, _gap(bins[2], each * count[:, None], n) / n_classes]

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
    """Bin of each value, given where the bins start."""
    return (np.searchsorted(starts, values, side="right") - 1).astype(np.int64)


def _gap(bins: IntArray, residual: FloatArray, n: int) -> float:
    """Sum over bins of the absolute total residual, over n."""
    return float(np.abs(np.bincount(bins.ravel(), residual.ravel())).sum() / n)


def _reliability(
    confidence: FloatArray, right: NDArray[np.bool_], starts: FloatArray
) -> pd.DataFrame:
    rows = pd.DataFrame({"confidence": confidence, "accuracy": right.astype(np.float64)})
    grouped = rows.groupby(pd.Series(_bin_of(confidence, starts), name="bin"))
    mean, count = grouped["confidence"].mean(), grouped.size()
    return pd.DataFrame(
        {
            "low": grouped["confidence"].min(),
            "high": grouped["confidence"].max(),
            "rows": count,
            "confidence": mean,
            "accuracy": grouped["accuracy"].mean(),
            "error": np.sqrt(mean * (1 - mean) / count),
        }
    )


def _text(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format="{:.4f}".format)
