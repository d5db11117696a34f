"""Whether given rows are those of a fit."""

from typing import Any

import numpy as np
from scipy.spatial import KDTree

from bayestree._utils.arrays import FloatArray

SINGLE = 1e-5  # relative difference of numbers that were stored in single precision


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
