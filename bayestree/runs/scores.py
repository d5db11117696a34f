"""Scores of a fitted tree on rows with a known target, and its predictions as a table."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.diagnostics.scores import squared_scores
from bayestree.estimators._file_rows import parts_of
from bayestree.report.baseline import fit_baseline
from bayestree.runs.rows import Prepared

TINY = 1e-15
LEVEL = 0.9  # probability of the prediction intervals


def scored(
    estimator: Any,
    X: pd.DataFrame,
    y: AnyArray,
    weights: FloatArray | None,
    targets: Sequence[str] = (),
) -> dict[str, float]:
    """Scores of the predictions, and of the best constant one; of several ``targets``, of each.

    They are ``accuracy``, ``accuracy_of_most_frequent_class`` and ``log_loss`` (nats per row); or
    ``rmse``, in the units of y, and ``r2``, or what the ``scores`` of the estimator are. Without
    positive weights, all rows have weight 1.
    """
    found = predict_rows(estimator, X, y)
    return scores_of(estimator, y, *found, weights=weights, targets=targets)


def scores_of(
    estimator: Any,
    y: AnyArray,
    predicted: AnyArray,
    probability: FloatArray | None = None,
    *,
    weights: FloatArray | None,
    targets: Sequence[str] = (),
) -> dict[str, float]:
    """The scores of rows y, given the results of :func:`predict_rows`."""
    if weights is None or not weights.any():
        weights = np.ones(len(y))
    if len(targets) > 1:
        pairs = zip(targets, y.T, predicted.T, strict=True)
        each = {name: squared_scores(own, found, weights) for name, own, found in pairs}
        return {f"{score}: {name}": x for name, own in each.items() for score, x in own.items()}
    if probability is None:
        own: Callable[..., dict[str, float]] = getattr(estimator, "scores", squared_scores)
        return own(y, predicted, weights)
    most_frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    # Classes that do not occur in the training rows have probability 0; keep their loss finite.
    losses = -np.log(np.maximum(probability, TINY))
    return {
        "accuracy": float(np.average(predicted == y, weights=weights)),
        "accuracy_of_most_frequent_class": most_frequent / float(weights.sum()),
        "log_loss": float(np.average(losses, weights=weights)),
    }


def predict_rows(estimator: Any, X: pd.DataFrame, y: AnyArray) -> tuple[AnyArray, ...]:
    """Predictions of rows and, for classes, the probability of each row's true class."""
    if not hasattr(estimator, "classes_"):
        return (np.concatenate([estimator.predict(X.iloc[part]) for part in parts_of(X)]),)
    predicted, true_class = [], []
    for part in parts_of(X):
        probability = estimator.predict_proba(X.iloc[part])
        predicted.append(estimator.classes_[probability.argmax(axis=1)])
        true_class.append((probability * (y[part, None] == estimator.classes_)).sum(axis=1))
    return np.concatenate(predicted), np.concatenate(true_class)


def baseline_scores(rows: Prepared) -> dict[str, Any] | None:
    """The same scores for a linear model fitted to the training rows; None if it cannot be fitted.

    None if y comes with exposures or events, which it does not know.

    Includes its name (``model``) and the number of rows it was fitted to (``training_rows``).
    """
    classifies = rows.task == "classification"
    if rows.y.ndim > 1 or rows.task == "survival":
        return None
    baseline = fit_baseline(rows.X, rows.y, rows.weights, classifies=classifies)
    if baseline is None:
        return None
    scores = scored(baseline.model, rows.X_held, rows.y_held, rows.weights_held)
    scores.pop("accuracy_of_most_frequent_class", None)
    return {"model": baseline.name, "training_rows": baseline.n_rows, **scores}


def predictions(
    estimator: Any,
    X: pd.DataFrame,
    extra: FloatArray | None = None,
    targets: Sequence[str] = (),
) -> pd.DataFrame:
    """Predictions of rows: ``prediction``, and ``p(class)`` for each class or ``low`` and ``high``.

    Of several ``targets``, the columns of each, such as ``"prediction: height"``.

    The interval contains y with probability 0.9; trees without a model of y have none. Those of
    counts are for the exposures ``extra``. Of survival times, the prediction is a risk score, and
    there is a ``median``.
    """
    if len(targets) > 1:
        each = (predictions(estimator.output(j), X) for j in range(len(targets)))
        named = zip(targets, each, strict=True)
        return pd.concat([one.add_suffix(f": {name}") for name, one in named], axis=1)
    if not hasattr(estimator, "classes_"):
        survives = hasattr(estimator, "predict_median")
        given = {} if extra is None or survives else {"exposure": extra}
        table = pd.DataFrame({"prediction": estimator.predict(X, **given)})
        if survives:
            table["median"] = estimator.predict_median(X)
        if hasattr(estimator, "predict_interval"):
            table["low"], table["high"] = estimator.predict_interval(X, LEVEL, **given)
        return table
    probability = estimator.predict_proba(X)
    table = pd.DataFrame(probability, columns=[f"p({label})" for label in estimator.classes_])
    table.insert(0, "prediction", estimator.classes_[probability.argmax(axis=1)])
    return table


def format_scores(scores: dict[str, float]) -> str:
    """Scores on one line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())
