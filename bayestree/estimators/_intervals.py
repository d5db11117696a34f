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

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central interval of y, or of the time of the event, with posterior probability ``level``.

        Its ends are quantiles of the mixture of all modes, draws and leaves; of a forest, of the
        leaves of all soft trees.

        Returns
        -------
        low, high : arrays, shape (n,)

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        return self._interval(X, level)

    def _interval(
        self, X: ArrayLike, level: float, known: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The interval of ``predict_interval``, for the ``known`` number of each row."""
        ends = np.array(tails(level))

        def quantiles(rows: FloatArray, some: FloatArray | None) -> tuple[FloatArray, ...]:
            return (*self._quantiles(rows, some, ends),)

        return self._by_parts(X, quantiles, known)

    def in_interval(self, X: ArrayLike, y: ArrayLike, level: float = 0.9) -> FloatArray:
        """Whether each row of y is inside its ``predict_interval``, shape of y, as 0 or 1.

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
        """Quantiles of the mixture of modes, draws and leaves, (levels, n) or (levels, n, q)."""
        posteriors, weights = self._mixed_posteriors()
        X, n_outputs = self._standardise(rows), self.n_outputs_
        if n_outputs == 1:
            return self._units.decode(mixture_quantiles(posteriors, weights, X, levels, known))
        each = [
            mixture_quantiles([one.output(number) for one in posteriors], weights, X, levels)
            for number in range(n_outputs)
        ]
        return self._units.decode(np.stack(each, axis=-1))
