"""Whether a fit to a sample of the rows would gain from more of them."""

from typing import NamedTuple, Self

import numpy as np

from bayestree._utils.arrays import FloatArray


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
