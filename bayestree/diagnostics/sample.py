"""The rows of a fit: whether a sample of them is large enough, and whether given rows are those."""

from typing import Any, NamedTuple, Self

import numpy as np
from scipy.spatial import KDTree

from bayestree._utils.arrays import FloatArray

SINGLE = 1e-5  # relative difference of numbers that were stored in single precision


class SmallSampleWarning(UserWarning):
    """More rows in the sample of a data set would improve the tree."""


def score_sums(score: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum 1, w, w^2, w s, w^2 s and w^2 s^2 over rows of weights w and log scores s, shape (6,)."""
    s, w = score, weights
    return np.array([len(s), w.sum(), w @ w, w @ s, w**2 @ s, w**2 @ s**2])


class SampleCheck(NamedTuple):
    """Log scores of the rows to which a tree was fitted, and of all others.

    Rows of the sample score higher as far as the fit follows their chance patterns. A model of p
    parameters fitted to n rows scores these p / n nats a row higher than others, and others
    p / (2 n) lower than the best parameters do (Akaike, 1974). Half the difference is thus about
    what any number of further rows could gain for a tree of the same size.

    Attributes
    ----------
    n_sample, n_others : int
        Numbers of rows.
    sample_score, others_score : float
        Their mean log scores, in nats a row, before the leaves were estimated from all rows.
    standard_error : float
        Of the difference.
    """

    n_sample: int
    n_others: int
    sample_score: float
    others_score: float
    standard_error: float

    @classmethod
    def of(cls, sums: FloatArray) -> Self:
        """Compare ``score_sums`` of the rows in the sample and of the others, shape (2, 6)."""
        number, total, squares, first, second, third = sums.T
        mean = first / total
        variance = (third - 2 * mean * second + mean**2 * squares) / total**2
        error = np.sqrt(np.maximum(variance, 0).sum())  # rounding may leave less than 0
        n_sample, n_others = map(int, number)
        return cls(n_sample, n_others, float(mean[0]), float(mean[1]), float(error))

    @property
    def difference(self) -> float:
        """By how much the rows of the sample score higher."""
        return self.sample_score - self.others_score

    @property
    def gains(self) -> bool:
        """Whether more rows would improve the fit: the difference exceeds two standard errors."""
        return self.difference > 2 * self.standard_error

    def to_json(self) -> dict[str, float]:
        """Return the numbers, the difference included."""
        return self._asdict() | {"difference": self.difference}

    def __str__(self) -> str:
        ending = "no sign that more rows would improve a tree of this size"
        if self.gains:
            ending = (
                "more rows would improve a tree of this size by up to some "
                f"{self.difference / 2:.2g} nats a row"
            )
        return (
            f"the {self.n_sample:,} rows of the sample score {self.difference:.2g} nats a row "
            f"higher than the other {self.n_others:,} (standard error {self.standard_error:.2g}): "
            f"{ending}"
        )


def check_fitted_rows(estimator: Any, X: FloatArray, given: float, remedy: str) -> None:
    """Raise ValueError if rows whose weights sum to ``given`` cannot be all rows of the fit.

    The fit keeps their total weight, the range of each column of numbers, and often a sample of
    the rows, all of which the features X (n, d) must have, unless n is 0. Differences within single
    precision do not matter. Ranges of a fit that went on with more rows are not known.
    """
    shown = estimator.fitted_.shown
    known = float(shown.tree.leaf_rows.sum())
    if not np.isclose(given, known, rtol=1e-6):
        raise ValueError(
            f"X, y and their weights must be all rows of the fit, with its weights: they sum to "
            f"{given:g}, those of the fit to {known:g}. {remedy}"
        )
    encoding: Any = estimator.encoding_
    if not len(X):
        return
    went_on = shown.stream or getattr(estimator, "warm_start", False)
    for column, own in zip(encoding.columns, encoding.places, strict=True):
        if (span := getattr(column, "span", None)) is not None and not went_on:
            ends = float(X[:, own[0]].min()), float(X[:, own[0]].max())
            if not np.allclose(ends, span, rtol=SINGLE, atol=SINGLE * (span[1] - span[0])):
                raise ValueError(
                    f"X must have the rows of the fit, but {column.name!r} is from {ends[0]:.9g} "
                    f"to {ends[1]:.9g}, in the fit from {span[0]:.9g} to {span[1]:.9g}. {remedy}"
                )
    sample = None if shown.reach is None else shown.reach.sample
    if sample is not None and not _among(sample, X, encoding):
        raise ValueError(f"X lacks most of a sample of the rows of the fit. {remedy}")


def _among(sample: FloatArray, X: FloatArray, encoding: Any) -> bool:
    """Return whether half of a sample or more are rows of X, apart from rounding.

    Values far away are nearer in a sample, and means of y depend on how the rows are encoded.
    """
    pairs = zip(encoding.columns, encoding.places, strict=True)
    each = [own for column, own in pairs if column.name not in encoding.by_y and len(own)]
    if not each:
        return True
    kept = np.concatenate(each)
    scale = np.maximum(np.ptp(sample[:, kept], axis=0), np.abs(sample[:, kept]).max(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    nearest = KDTree(X[:, kept] / scale).query(
        sample[:, kept] / scale, p=np.inf, distance_upper_bound=SINGLE
    )[0]
    return bool(np.isfinite(nearest).mean() >= 0.5)
