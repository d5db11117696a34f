"""Scores of a fitted tree on rows whose target is known, and its predictions as a table."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import r2_score, root_mean_squared_error

from bayestree import tables
from bayestree.estimators._file_rows import parts_of
from bayestree.report.baseline import fit_baseline
from bayestree.runs.rows import Prepared
from bayestree.tables import InputError

TINY = 1e-15
LEVEL = 0.9  # probability of the intervals of predictions


def scored(
    estimator: Any, X: pd.DataFrame, y: NDArray[Any], weights: NDArray[np.float64] | None
) -> dict[str, float]:
    """Scores of the predictions, and of the best constant one.

    Parameters
    ----------
    estimator : a fitted estimator of this package
    X : DataFrame, shape (n, d)
    y : array, shape (n,)
    weights : array, shape (n,), optional
        By default, and where all are zero, each row counts once.

    Returns
    -------
    dict
        ``accuracy``, ``accuracy_of_most_frequent_class`` and ``log_loss`` (nats a row); or
        ``rmse``, in the units of y, and ``r2``.
    """
    return scores_of(y, *said_of(estimator, X, y), weights=weights)


def scores_of(
    y: NDArray[Any],
    found: NDArray[Any],
    own: NDArray[np.float64] | None = None,
    *,
    weights: NDArray[np.float64] | None,
) -> dict[str, float]:
    """The scores of rows y (n,), by what :func:`said_of` gives."""
    if weights is None or not weights.any():
        weights = np.ones(len(y))
    if own is None:
        scores = {"rmse": float(root_mean_squared_error(y, found, sample_weight=weights))}
        if len(y) > 1:
            scores["r2"] = float(r2_score(y, found, sample_weight=weights))
        return scores
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    return {
        "accuracy": float(np.average(found == y, weights=weights)),
        "accuracy_of_most_frequent_class": frequent / float(weights.sum()),
        # A class that training did not hold has probability 0; its loss stays finite.
        "log_loss": float(np.average(-np.log(np.maximum(own, TINY)), weights=weights)),
    }


def baseline_scores(rows: Prepared) -> dict[str, Any] | None:
    """The same scores of a linear model that was fitted to the training rows.

    Returns
    -------
    dict or None
        ``model``, its name, ``training_rows``, those that it was fitted to, and its scores; None
        where it cannot be fitted.
    """
    classifies = rows.task == "classification"
    found = fit_baseline(rows.X, rows.y, rows.weights, classifies=classifies)
    if found is None:
        return None
    scores = scored(found.model, rows.X_held, rows.y_held, rows.weights_held)
    scores.pop("accuracy_of_most_frequent_class", None)
    return {"model": found.name, "training_rows": found.n_rows, **scores}


def said_of(estimator: Any, X: pd.DataFrame, y: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """What is predicted of each row and, of classes, the probability of its own."""
    if not hasattr(estimator, "classes_"):
        return (np.concatenate([estimator.predict(X.iloc[part]) for part in parts_of(X)]),)
    found, own = [], []
    for part in parts_of(X):
        probability = estimator.predict_proba(X.iloc[part])
        found.append(estimator.classes_[probability.argmax(axis=1)])
        own.append((probability * (y[part, None] == estimator.classes_)).sum(axis=1))
    return np.concatenate(found), np.concatenate(own)


def predictions(estimator: Any, X: pd.DataFrame) -> pd.DataFrame:
    """Predictions of rows: ``prediction``, and ``p(class)`` for each class or ``low`` and ``high``.

    The interval holds y with probability 0.9; trees without a model of y have none.
    """
    if not hasattr(estimator, "classes_"):
        table = pd.DataFrame({"prediction": estimator.predict(X)})
        if hasattr(estimator, "predict_interval"):
            table["low"], table["high"] = estimator.predict_interval(X, LEVEL)
        return table
    probability = estimator.predict_proba(X)
    table = pd.DataFrame(probability, columns=[f"p({label})" for label in estimator.classes_])
    table.insert(0, "prediction", estimator.classes_[probability.argmax(axis=1)])
    return table


def target_or_why_not(column: pd.Series, *, is_text: bool) -> NDArray[Any] | str:
    """A column of a person's table to score rows against, or why it cannot be."""
    try:
        tables.check_complete(column.to_frame())
        return (column.astype(str) if is_text else tables.numbers(column)).to_numpy()
    except InputError as error:
        return str(error)


def listed(scores: dict[str, float]) -> str:
    """Scores in a line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())
