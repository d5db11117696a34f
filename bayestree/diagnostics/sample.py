"""Whether a fit to a sample of the rows would gain from more of them."""

from typing import NamedTuple, Self

import numpy as np

from bayestree._utils.arrays import BoolArray, FloatArray


class SmallSampleWarning(UserWarning):
    """More rows in the sample of a data set would improve the tree."""


class ScoreSums(NamedTuple):
    """Sums over rows of w, w^2, w s, w^2 s and w^2 s^2, of weights w and log scores s."""

    n_rows: int
    sums: FloatArray  # (5,)

    @classmethod
    def of(cls, score: FloatArray, weights: FloatArray, chosen: BoolArray) -> Self:
        """Sum over some rows."""
        s, w = score[chosen], weights[chosen]
        return cls(len(s), np.array([w.sum(), w @ w, w @ s, w**2 @ s, w**2 @ s**2]))

    def plus(self, other: "ScoreSums") -> "ScoreSums":
        """Add the sums over other rows."""
        return ScoreSums(self.n_rows + other.n_rows, self.sums + other.sums)

    @property
    def mean(self) -> float:
        """The weighted mean of the scores."""
        return float(self.sums[2] / self.sums[0])

    @property
    def variance(self) -> float:
        """The variance of the mean over samples of rows."""
        total, squares, _, first, second = self.sums
        spread = second - 2 * self.mean * first + self.mean**2 * squares
        return float(max(spread, 0.0) / total**2)


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
    def of(cls, sample: ScoreSums, others: ScoreSums) -> Self:
        """Compare the scores of the rows in the sample and of the others."""
        error = float(np.sqrt(sample.variance + others.variance))
        return cls(sample.n_rows, others.n_rows, sample.mean, others.mean, error)

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
        found = (
            f"the {self.n_sample:,} rows of the sample score {self.difference:.2g} nats a row "
            f"higher than the other {self.n_others:,} (standard error {self.standard_error:.2g})"
        )
        if not self.gains:
            return f"{found}: no sign that more rows would improve a tree of this size"
        return (
            f"{found}: more rows would improve a tree of this size by up to some "
            f"{self.difference / 2:.2g} nats a row"
        )
