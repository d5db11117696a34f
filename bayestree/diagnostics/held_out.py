"""Whether predictions of held-out rows are calibrated, and better than a constant one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.calibration import Calibration

ERRORS = 2.0  # larger deviations, in standard errors, are not put down to chance


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
