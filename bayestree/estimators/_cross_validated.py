"""The score of rows that are left out, by refits."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from bayestree._utils.arrays import FloatArray, IntArray, smallest_class, split_rows
from bayestree._utils.progress import Track, fitting
from bayestree.diagnostics.loo import Loo
from bayestree.inference import pointwise
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.protocols import Mode, modes_of
from bayestree.tables.files import as_pandas

SEED = 0  # of the folds: those of two models of the same rows are the same


def cross_validated(
    estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, n_folds: int
) -> Loo:
    """K-fold score of a fitted estimator: each fold is scored by a refit to the other rows."""
    X = as_pandas(X)
    data, numbers = estimator._training_rows(X, y, sample_weight)
    labels = y if hasattr(estimator, "classes_") else None
    if labels is not None and estimator._leaf_family(len(estimator.classes_)).ordered:
        # Refits keep the order of the fit, which plain labels do not state.
        order = pd.CategoricalDtype(estimator.classes_, ordered=True)
        y = labels = pd.Series(np.asarray(labels), dtype=order)
    _check_folds(n_folds, len(numbers), None if labels is None else np.asarray(labels)[numbers])
    rows = data.weights.numpy(force=True).astype(np.float64)

    def some(values: Any, places: IntArray) -> Any:
        return None if values is None else _safe_indexing(values, numbers[places])

    every = np.arange(len(numbers))
    elpd = np.empty(len(numbers))
    folds = split_rows(len(numbers), some(labels, every), n_folds, SEED)
    with fitting(estimator.verbose):
        for train, held in Track(folds, "folds", show=bool(estimator.verbose)):
            again = clone(estimator)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SingleLeafWarning)  # the fit of all rows says so
                again.fit(*(some(one, train) for one in (X, y, sample_weight)))
            elpd[held] = log_scores(again, some(X, held), some(y, held))
    fitted = log_scores(estimator, some(X, every), some(y, every))
    return Loo.of(rows * elpd, rows * fitted, n_folds=n_folds)


def log_scores(estimator: Any, X: ArrayLike, y: ArrayLike) -> FloatArray:
    """Log predictive density of each row: of its class, or of y in its units under all modes."""
    if hasattr(estimator, "classes_"):
        probability = estimator.predict_proba(X)
        own = estimator._encode(np.ravel(y))
        found: FloatArray = np.log(probability[np.arange(len(own)), own])
        return found
    data, _ = estimator._training_rows(X, y, None)
    data = data._replace(weights=torch.ones_like(data.weights))
    modes = modes_of(estimator) or [Mode(0, 1.0, estimator)]
    posteriors = [mode.estimator.posterior_ for mode in modes]
    each = [pointwise.log_density(one.model, one.each(), data) for one in posteriors]
    density: FloatArray = logsumexp(each, axis=0, b=[[mode.weight] for mode in modes])
    return density - np.log(estimator._units.y_scale).sum()


def _check_folds(n_folds: int, n_rows: int, labels: FloatArray | None) -> None:
    if not 2 <= n_folds <= n_rows:
        raise ValueError(
            f"n_folds must be between 2 and the number of rows, {n_rows}, got {n_folds}."
        )
    label, count = (None, n_folds) if labels is None else smallest_class(labels)
    if count < n_folds:
        remedy = f"set n_folds={count}" if count > 1 else "give it more rows, or leave it out"
        raise ValueError(
            f"n_folds={n_folds} needs as many rows of each class, but class {label!r} has {count}: "
            f"{remedy}."
        )
