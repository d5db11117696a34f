"""Intervals of y from the posterior of a regressor."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
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
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}.")
        levels = np.array([(1 - level) / 2, 1 - (1 - level) / 2])

        def bounds(rows: FloatArray, some: FloatArray | None) -> tuple[FloatArray, FloatArray]:
            posteriors, weights = self._mixed_posteriors()
            X = self._standardise(rows)
            found = mixture_quantiles(posteriors, weights, X, levels, some)
            low, high = self._units.decode(found)
            return low, high

        low, high = self._by_parts(X, bounds, known)
        return low, high
