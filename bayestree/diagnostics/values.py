"""Scores of predicted numbers: real values, and counts."""

import numpy as np
from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance, r2_score
from sklearn.metrics import root_mean_squared_error as rmse

from bayestree._utils.arrays import FloatArray


def squared_scores(y: FloatArray, predicted: FloatArray, weights: FloatArray) -> dict[str, float]:
    """``rmse`` and, for two rows or more, ``r2``, all arrays being (n,)."""
    scores = {"rmse": float(rmse(y, predicted, sample_weight=weights))}
    if len(y) > 1:
        scores["r2"] = float(r2_score(y, predicted, sample_weight=weights))
    return scores


def count_scores(
    y: FloatArray, rate: FloatArray, weights: FloatArray, exposure: FloatArray
) -> dict[str, float]:
    """``mean_deviance`` of the counts of a row, its explained share, ``rmse`` and ``r2``.

    The explained share is that of the deviance of a constant rate.
    """
    expected = rate * exposure
    scores = {"mean_deviance": float(mean_poisson_deviance(y, expected, sample_weight=weights))}
    if len(y) > 1 and np.ptp(y / exposure) > 0:
        # with weights of exposure, the deviance of rates is that of counts
        d2 = d2_tweedie_score(y / exposure, rate, sample_weight=weights * exposure, power=1)
        scores["explained_deviance"] = float(d2)
    return scores | squared_scores(y, expected, weights)
