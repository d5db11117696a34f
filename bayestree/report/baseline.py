"""A linear model of the training rows as a baseline for the scores of a tree."""

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bayestree.diagnostics.draws import spread
from bayestree.protocols import features_of

WORK = 20_000_000  # maximum of rows x features x classes, to bound time (a few seconds) and memory
MIN_ROWS = 500  # minimum number of rows in any case
STEPS = 300


class Baseline(NamedTuple):
    """A fitted linear model, and the number of training rows that it used."""

    name: str
    model: Pipeline
    n_rows: int


def fit_baseline(
    X: Any, y: NDArray[Any], weights: ArrayLike, *, classifies: bool, estimator: Any = None
) -> Baseline | None:
    """Fit a logistic or ridge regression to standardised features, those of ``estimator``.

    Of a large table only an evenly spaced subset is used, and only these rows are read. Weights
    are relative. Returns None if no row has a positive weight, or for fewer than two classes.
    """
    positive = np.flatnonzero(np.asarray(weights) > 0)
    n_classes = len(np.unique(y[positive])) if classifies else 1
    if len(positive) == 0 or (classifies and n_classes < 2):
        return None
    max_rows = max(WORK // (X.shape[1] * n_classes), MIN_ROWS)
    kept = positive[spread(len(positive), max_rows)]
    if classifies and len(np.unique(y[kept])) < 2:
        return None
    name = "logistic regression" if classifies else "ridge regression"
    linear = LogisticRegression(max_iter=STEPS) if classifies else Ridge()
    # Convert to double precision first, so that names or single precision on disk change nothing.
    steps = [
        ("numbers", FunctionTransformer(partial(features_of, estimator))),
        ("units", StandardScaler()),
    ]
    model = Pipeline([*steps, ("linear", linear)])
    relative = np.asarray(weights, dtype=np.float64)[kept]
    relative /= relative.mean()  # else weights of 1/n would make the penalty n times as strong
    given = {"units__sample_weight": relative, "linear__sample_weight": relative}
    rows = X.iloc[kept] if hasattr(X, "iloc") else np.asarray(X)[kept]
    target = y[kept] if classifies else y[kept].astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough fit is good enough
        model.fit(rows, target, **given)
    return Baseline(name, model, len(kept))


def training_rows_phrase(n_rows: int | None) -> str:
    """A phrase for the training rows that a baseline used; None means all."""
    return f"fitted to {'the same' if n_rows is None else f'{n_rows:,} of the'} training rows"
