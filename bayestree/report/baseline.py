"""A linear model of the training rows, with which a tree's scores are compared."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bayestree.diagnostics.draws import spread

WORK = 20_000_000  # limit of rows x features x classes: a few seconds, and memory for the rows
FEWEST = 500  # rows, however many features and classes there are
STEPS = 300


class Baseline(NamedTuple):
    """A fitted linear model.

    Attributes
    ----------
    name : str
    model : Pipeline
    n_rows : int
        How many rows it was fitted to: all training rows of positive weight, or an evenly spaced
        subset of a large table.
    """

    name: str
    model: Pipeline
    n_rows: int


def fit_baseline(
    X: Any, y: NDArray[Any], weights: ArrayLike, *, classifies: bool
) -> Baseline | None:
    """Fit logistic regression, or ridge regression, to standardised features.

    Parameters
    ----------
    X : DataFrame or array, shape (n, d)
        Only the rows of the fit are read into memory.
    y : array, shape (n,)
    weights : array, shape (n,)
        Relative weights: their scale does not matter.
    classifies : bool

    Returns
    -------
    Baseline or None
        None if the rows of positive weight hold fewer than two classes, or none at all.
    """
    counted = np.flatnonzero(np.asarray(weights) > 0)
    n_classes = len(np.unique(y[counted])) if classifies else 1
    if len(counted) == 0 or (classifies and n_classes < 2):
        return None
    most = max(WORK // (X.shape[1] * n_classes), FEWEST)
    kept = counted[spread(len(counted), most)]
    if classifies and len(np.unique(y[kept])) < 2:
        return None
    name = "logistic regression" if classifies else "ridge regression"
    linear = LogisticRegression(max_iter=STEPS) if classifies else Ridge()
    # As arrays in double precision first: whether a table has names or is held on disk in single
    # precision must not change the numbers.
    steps = [("numbers", FunctionTransformer(_numbers)), ("units", StandardScaler())]
    model = Pipeline([*steps, ("linear", linear)])
    relative = np.asarray(weights, dtype=np.float64)[kept]
    relative /= relative.mean()  # else weights of 1/n would leave the penalty as large as n rows do
    given = {"units__sample_weight": relative, "linear__sample_weight": relative}
    rows = X.iloc[kept] if hasattr(X, "iloc") else np.asarray(X)[kept]
    target = y[kept] if classifies else y[kept].astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough fit is good enough
        model.fit(rows, target, **given)
    return Baseline(name, model, len(kept))


def _numbers(X: Any) -> NDArray[np.float64]:
    return np.asarray(X, dtype=np.float64)
