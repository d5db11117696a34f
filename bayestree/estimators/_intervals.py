"""Intervals of y from the posterior of a regressor."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.draws import tails
from bayestree.estimators._fitted import FittedTree
from bayestree.inference import Posterior
from bayestree.inference.posterior import mixture_quantiles


class PredictiveIntervals(FittedTree):
    """A regressor whose posterior gives intervals of y."""

    def _mixed_posteriors(self) -> tuple[Sequence[Posterior], FloatArray]:
        """The posteriors whose mixture predicts y, and their weights."""
        return [self.posterior_], np.ones(1)

    def _interval(
        self, X: ArrayLike, level: float, known: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The interval of ``predict_interval``, for the ``known`` number of each row."""
        ends = np.array(tails(level))

        def quantiles(rows: FloatArray, some: FloatArray | None) -> tuple[FloatArray, ...]:
            return (*self._quantiles(rows, some, ends),)

        low, high = self._by_parts(X, quantiles, known)
        return low, high

    def in_interval(self, X: ArrayLike, y: ArrayLike, level: float = 0.9) -> FloatArray:
        """Whether each row of y is inside its ``predict_interval``, shape (n,), as 0 or 1.

        A censored time has the probability of it, given that the row survived until then.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1, or y has another number of rows than X.
        """
        values, extra = self._separate(y)
        low, high = self._interval(X, level, extra)
        found = np.asarray(values, dtype=np.float64)
        if found.shape != low.shape or found.size == 0:
            raise ValueError(
                f"y must have shape {low.shape} with one row or more, got {found.shape}."
            )
        return ((low <= found) & (found <= high)).astype(np.float64)

    def _quantiles(
        self, rows: FloatArray, known: FloatArray | None, levels: FloatArray
    ) -> FloatArray:
        """Quantiles of y, shape (levels, n), of the mixture of all modes, draws and leaves."""
        posteriors, weights = self._mixed_posteriors()
        X = self._standardise(rows)
        found = mixture_quantiles(posteriors, weights, X, levels, known)
        return self._units.decode(found)
