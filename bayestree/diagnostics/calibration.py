"""Calibration and scores of predictions of held-out rows, and their comparison with a constant."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray

SUM_TOLERANCE = 1e-5  # probabilities may have been computed in single precision
N_RESAMPLES = 200
ERRORS = 2.0  # larger deviations, in standard errors, are not put down to chance


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
        How much lower the Brier score is than that of the frequencies of the classes among these
        rows: the larger the better, and 0 or less if the probabilities are worth no more. It is
        finite for any probabilities.
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
        """One row per score: value, error and if_calibrated."""
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
    top = p.argmax(axis=1)
    confidence = p.max(axis=1)
    shares = np.arange(n_bins) / n_bins
    # Bin edges are observed values: no bin is empty, and ties share a bin.
    starts = np.unique(np.sort(confidence)[(len(p) * shares).astype(np.int64)])
    gaps = _gaps(p, truth, starts, shares, np.random.default_rng(random_state))
    observed = p[np.arange(len(p)), truth]
    distance = (p**2).sum(axis=1) - 2 * observed + 1  # |p - e_y|^2; E = 1 - |p|^2 if calibrated
    frequency = np.bincount(truth, minlength=p.shape[1]) / len(p)
    constant = (frequency**2).sum() - 2 * frequency[truth] + 1
    return Calibration(
        accuracy=_mean(top == truth, confidence),
        ece=gaps[0],
        ece_width=gaps[1],
        ece_classwise=gaps[2],
        brier=_mean(distance, 1 - (p**2).sum(axis=1)),
        overconfidence=_overconfidence(confidence, top == truth),
        log_score=_log_score(observed, p),
        gain=_mean(constant - distance, ((p - frequency) ** 2).sum(axis=1)),
        n_rows=len(p),
        n_zero=int((observed == 0).sum()),
        bins=_reliability(confidence, top == truth, starts),
    )


def check_probability(probability: ArrayLike) -> FloatArray:
    """Probabilities (n, C), of which one column may be given for two classes."""
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
    """Column number of the class of each row."""
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


def _mean(values: NDArray[np.generic], if_calibrated: FloatArray) -> Score:
    """Mean over the rows and its standard error."""
    x = values.astype(np.float64)
    return Score(float(x.mean()), float(x.std() / np.sqrt(len(x))), float(if_calibrated.mean()))


def _overconfidence(confidence: FloatArray, right: BoolArray) -> Score:
    excess = confidence - right
    variance = max(float(excess.var()), float((confidence * (1 - confidence)).mean()))
    return Score(float(excess.mean()), float(np.sqrt(variance / len(excess))), 0.0)


def _log_score(observed: FloatArray, p: FloatArray) -> Score:
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    if (observed == 0).any():
        return Score(-np.inf, np.nan, float(-entropy.mean()))
    return _mean(np.log(observed), -entropy)


def _gaps(
    p: FloatArray, truth: IntArray, mass: FloatArray, width: FloatArray, rng: np.random.Generator
) -> list[Score]:
    """The three calibration errors, each with bootstrap error and expectation if calibrated."""
    n, n_classes = p.shape
    confidence, top = p.max(axis=1), p.argmax(axis=1)
    bins = [
        _bin_of(confidence, mass),
        _bin_of(confidence, width),
        _bin_of(p, width) + len(width) * np.arange(n_classes),
    ]

    def errors(observed: IntArray, count: FloatArray) -> list[float]:
        right = (top == observed) - confidence
        each = (observed[:, None] == np.arange(n_classes)) - p
        found = [_gap(own_bins, right * count, n) for own_bins in bins[:2]]
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
    """Bin of each value, given the lower edges of the bins."""
    return (np.searchsorted(starts, values, side="right") - 1).astype(np.int64)


def _gap(bins: IntArray, residual: FloatArray, n: int) -> float:
    """Sum over the bins of |total residual|, divided by n."""
    return float(np.abs(np.bincount(bins.ravel(), residual.ravel())).sum() / n)


def _reliability(confidence: FloatArray, right: BoolArray, starts: FloatArray) -> pd.DataFrame:
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


def _formatted(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format="{:.4f}".format)


def ranked_probability(
    y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None
) -> FloatArray:
    """Ranked probability score of each row (Epstein, 1969), shape (n,); 0 is perfect.

    The squared differences between the cumulative probabilities and those of the observed class,
    summed over the C - 1 cuts between the classes. It counts how far wrong classes are.

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


@dataclass(frozen=True)
class HeldOut:
    """The calibration of predictions on held-out rows.

    Attributes
    ----------
    holds : bool
        Whether the rows are consistent with calibrated probabilities or intervals.
    says : str
        The figures, in a sentence or two.
    constant : str
        The best constant prediction, in words; empty if predictions were not compared with it.
    better : bool
        Whether predictions are better than the constant one by more than chance.
    """

    holds: bool
    says: str
    constant: str = ""
    better: bool = True


def held_out_classes(found: Calibration) -> HeldOut:
    """Judge class probabilities by their calibration error, and compare them with frequencies.

    Parameters
    ----------
    found : Calibration
        Calibration of held-out rows.
    """
    ece = found.ece
    holds = found.n_zero == 0 and ece.value <= ece.if_calibrated + ERRORS * ece.error
    says = (
        f"On {_rows(found.n_rows)}, accuracy is {found.accuracy.value:.1%} and the expected "
        f"calibration error {ece.value:.3f} ({ece.if_calibrated:.3f} if calibrated)."
    )
    if found.n_zero:
        says += f" {_rows(found.n_zero)} had a class that was given probability 0."
    gain = found.gain
    says += (
        f" Their Brier score is {_apart(gain.value)} that of the class frequencies, by "
        f"{abs(gain.value):.3f} (standard error {gain.error:.3f})."
    )
    return HeldOut(holds, says, "the class frequencies", _found(gain.value, gain.error))


def held_out_values(y: ArrayLike, low: ArrayLike, high: ArrayLike, level: float) -> HeldOut:
    """Judge predictive intervals by their coverage.

    Parameters
    ----------
    y, low, high : arrays, shape (n,)
        Values of held-out rows, and the ends of their intervals.
    level : float
        Nominal probability of the intervals.

    Raises
    ------
    ValueError
        If there are no rows, or the numbers of values and intervals differ.
    """
    values, ends = np.asarray(y, dtype=np.float64), (np.asarray(low), np.asarray(high))
    if values.shape != ends[0].shape or values.size == 0:
        raise ValueError(
            f"y must have shape {ends[0].shape} with one row or more, got {values.shape}."
        )
    return held_out_intervals((values >= ends[0]) & (values <= ends[1]), level)


def held_out_intervals(
    inside: ArrayLike,
    level: float,
    *,
    at_least: bool = False,
    residual: tuple[FloatArray, FloatArray] | None = None,
) -> HeldOut:
    """Judge predictive intervals by the rows inside them, and compare predictions with the mean.

    Parameters
    ----------
    inside : array, shape (n,)
        Whether each held-out row is inside its interval, or the probability of it.
    level : float
        Nominal probability of the intervals.
    at_least : bool
        Whether more rows than this may be inside, as with intervals of whole numbers.
    residual : pair of arrays, shape (n,), optional
        From :func:`residuals`.
    """
    found = np.asarray(inside, dtype=np.float64)
    share, n = float(found.mean()), len(found)
    apart = share - level
    error = ERRORS * float(np.sqrt(level * (1 - level) / n))
    holds = abs(apart) <= error or (at_least and apart > 0)
    says = f"On {_rows(n)}, {share:.1%} of the values lie inside their {level:.0%} intervals."
    if residual is None or not np.any(residual[1]):  # nothing can beat the mean of equal values
        return HeldOut(holds, says)
    own, constant = map(np.square, residual)
    whole = float(constant.mean())
    ratio = float(own.mean()) / whole
    gain = 1 - ratio
    # The standard error of a ratio of means, by the delta method.
    spread = float((own - ratio * constant).std() / (whole * np.sqrt(n)))
    says += (
        f" The mean squared error is {_apart(gain)} that of the mean of y, by {abs(gain):.1%} "
        f"(standard error {spread:.1%})."
    )
    return HeldOut(holds, says, "the mean", _found(gain, spread))


def residuals(
    y: ArrayLike, predicted: ArrayLike, exposure: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Distances of values (n,) from their predictions, and from their mean rate times exposure."""
    values = np.asarray(y, dtype=np.float64)
    scale = np.ones(len(values)) if exposure is None else np.asarray(exposure, dtype=np.float64)
    return values - np.asarray(predicted), values - scale * (values.sum() / scale.sum())


def _found(gain: float, error: float) -> bool:
    """Whether a gain over a constant prediction is more than chance."""
    return gain > ERRORS * error


def _apart(gain: float) -> str:
    return "below" if gain > 0 else "above"


def _rows(n: int) -> str:
    return f"{n:,} held-out row{'' if n == 1 else 's'}"
