"""How good the predictions are: scores, the confusion matrix, residuals, and the worst errors."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import counted, in_words, isolated
from bayestree.diagnostics.scores import squared_scores
from bayestree.plots import _style
from bayestree.report import figures
from bayestree.report.rows import LabelledRows
from bayestree.report.study import SPACE, Study, number, percent, training_rows_phrase, with_minus

MAX_CLASSES = 12  # maximum number of classes in a confusion matrix
TINY = 1e-15
FREQUENT = "always predicting the most frequent class"
NAMES = {
    "accuracy": "Accuracy",
    "baseline": "\N{EM DASH} of the mean",
    "log_loss": "Log-loss",
    "brier": "Brier score",
    "ece": "Expected calibration error",
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
    "r2": "R\N{SUPERSCRIPT TWO}",
    "mean_deviance": "Mean Poisson deviance",
    "explained_deviance": "Explained share of the deviance",
    "concordance": "Concordance",
}
RECORDED = {"baseline": "accuracy_of_most_frequent_class"}  # names of a run that differ from ours
REFERENCES = {
    "mean_deviance": "0 is best",
    "explained_deviance": "1 is best; 0 is as good as a constant rate",
    "concordance": "share of pairs in the right order: 1 is best, 0.5 is chance",
}


class ScoreLine(NamedTuple):
    """A score with its standard error, a reference, and the score of the linear model."""

    key: str
    value: float
    reference: str = ""
    error: float | None = None
    is_share: bool = False
    baseline: float | None = None

    @property
    def name(self) -> str:
        if self.key == "baseline" and self.is_share:
            return "\N{EM DASH} of the most frequent class"
        return NAMES[self.key]

    @property
    def text(self) -> str:
        if not self.is_share:
            return with_error(self.value, self.error)
        error = "" if self.error is None else f" \N{PLUS-MINUS SIGN} {100 * self.error:.1f}"
        return f"{100 * self.value:.1f}{error}{SPACE}%"

    @property
    def baseline_text(self) -> str:
        if self.baseline is None:
            return ""
        return self._replace(value=self.baseline, error=None).text


def with_error(value: float, error: float | None) -> str:
    """Write a value with its standard error, both to the two leading digits of the error."""
    if error is None or not error > 0:
        return number(value)
    places = max(0, 1 - math.floor(math.log10(error)))
    return with_minus(f"{value:,.{places}f} \N{PLUS-MINUS SIGN} {error:,.{places}f}")


class Scores(NamedTuple):
    """Scores of some rows, such as ``"40 held-out rows"``, and of a linear model, if there is one.

    ``baseline_error`` is the standard error of the difference in accuracy or in root mean squared
    error; ``baseline_rows`` is the number of training rows of the linear model, None for all.
    """

    each: list[ScoreLine]
    rows: str
    held_out: bool
    baseline: str = ""
    baseline_error: float | None = None
    baseline_rows: int | None = None

    @property
    def baseline_fit(self) -> str:
        return training_rows_phrase(self.baseline_rows)

    def get(self, key: str) -> ScoreLine | None:
        return next((score for score in self.each if score.key == key), None)


def scores_of(study: Study) -> Scores | None:
    """Score the held-out rows, or else the rows of the fit; None if there are none."""
    rows = study.scored
    if rows is None or is_recorded(study):
        return _recorded(study)
    weights = rows.weights
    scores, error = _own_scores(study, rows, weights), None
    if not study.survives:
        compute = _class_scores if study.classifies else _value_scores
        more, error = compute(study, rows, weights)
        scores += more
    if study.baseline is None:
        return Scores(scores, rows.counted, rows.held_out)
    n_rows: int | None = study.baseline.n_rows
    if n_rows == study.metrics.get("training_rows", 0 if study.train is None else len(study.train)):
        n_rows = None
    return Scores(scores, rows.counted, rows.held_out, study.baseline.name, error, n_rows)


def is_recorded(study: Study) -> bool:
    """Tell whether the scores are as recorded by the run, of more rows than are given here."""
    return study.scored is None or int(study.metrics.get("scored_rows", 0)) > len(study.scored)


def _recorded(study: Study) -> Scores | None:
    """Return the scores recorded by a run, if there are any."""
    metrics = study.metrics
    baseline, scores = metrics.get("baseline", {}), []
    for key in NAMES:
        record = RECORDED.get(key, key)
        if record in metrics:
            own = {"is_share": record.startswith("accuracy"), "baseline": baseline.get(record)}
            scores.append(ScoreLine(key, float(metrics[record]), **own))
    if not scores:
        return None
    kind = str(metrics.get("scored_on", "rows"))
    rows = metrics.get("scored_rows")
    n_rows = baseline.get("training_rows")
    return Scores(
        scores,
        f"{rows:,} {kind}" if rows else kind,
        kind == "held-out rows",
        str(baseline.get("model", "")),
        baseline_rows=None if n_rows == metrics.get("training_rows") else n_rows,
    )


def _class_scores(
    study: Study, rows: LabelledRows, weights: FloatArray
) -> tuple[list[ScoreLine], float | None]:
    """Score a classification; return the standard error of the difference in accuracy too."""
    y, (right, loss, brier) = rows.target, row_scores(study, rows).values()
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    uniform = np.log(len(study.classes))
    linear: dict[str, FloatArray] = {}
    if study.baseline is not None:
        model = study.baseline.model
        probability = model.predict_proba(rows.X)
        linear["accuracy"] = model.classes_[probability.argmax(axis=1)] == y
        likelihood = (probability * (y[:, None] == model.classes_)).sum(axis=1)
        linear["log_loss"] = -np.log(np.maximum(likelihood, TINY))
    scores = [
        _mean("accuracy", right, weights, "share of rows predicted correctly", linear),
        ScoreLine("baseline", frequent / float(weights.sum()), FREQUENT, is_share=True),
        _mean("log_loss", loss, weights, f"nats; {uniform:.2f} for a uniform guess", linear),
        _mean("brier", brier, weights, "squared distance: 0 is best, 2 worst", linear),
    ]
    if study.calibration is not None:
        ece = study.calibration.ece
        reference = f"{ece.if_calibrated:.3f} would be expected if calibrated"
        scores.append(ScoreLine("ece", ece.value, reference, ece.error))
    return scores, mean_error(right - linear["accuracy"], weights) if linear else None


def row_scores(study: Study, rows: LabelledRows) -> dict[str, FloatArray]:
    """Score each scored row (n,): of values, by the squared (``rmse``) and the absolute error."""
    y = rows.target
    if study.probability is None:
        error = y.astype(np.float64) - study.predicted.astype(np.float64)
        return {"rmse": error**2, "mae": np.abs(error)}
    truth = y[:, None] == study.labels
    likelihood = (study.probability * truth).sum(axis=1)
    return {
        "accuracy": (study.predicted == y).astype(np.float64),
        "log_loss": -np.log(np.maximum(likelihood, TINY)),
        "brier": ((study.probability - truth) ** 2).sum(axis=1),
    }


def _own_scores(study: Study, rows: LabelledRows, weights: FloatArray) -> list[ScoreLine]:
    """Score counts or survival times."""
    if study.classifies or not hasattr(study.estimator, "scores"):
        return []
    found = study.estimator.scores(rows.response, study.estimator.predict(rows.X), weights)
    return [ScoreLine(key, found[key], text) for key, text in REFERENCES.items() if key in found]


def _mean(
    key: str,
    values: FloatArray,
    weights: FloatArray,
    reference: str,
    baseline: dict[str, FloatArray],
) -> ScoreLine:
    """Average over the rows, with the standard error, and the average of the linear model."""
    value = float(np.average(values, weights=weights))
    other = float(np.average(baseline[key], weights=weights)) if key in baseline else None
    error = mean_error(values, weights)
    return ScoreLine(key, value, reference, error, key == "accuracy", other)


def _value_scores(
    study: Study, rows: LabelledRows, weights: FloatArray
) -> tuple[list[ScoreLine], float | None]:
    """Score a regression; return the standard error of the difference in RMSE too."""
    truth, guess = rows.target.astype(np.float64), study.predicted.astype(np.float64)
    row = row_scores(study, rows)
    mean = np.full(len(truth), np.average(truth, weights=weights))
    tree, constant = (squared_scores(truth, one, weights) for one in (guess, mean))
    linear: dict[str, float] = {}
    distance: dict[str, FloatArray] = {}
    if study.baseline is not None:
        other = study.baseline.model.predict(rows.X)
        linear, distance["mae"] = squared_scores(truth, other, weights), np.abs(truth - other)
    units = "in units of y; large errors count most"
    scores = [
        ScoreLine("rmse", tree["rmse"], units, baseline=linear.get("rmse")),
        ScoreLine("baseline", constant["rmse"], "always predicting the mean"),
        _mean("mae", row["mae"], weights, "in units of y", distance),
    ]
    if "r2" in tree:
        best = "1 is best; 0 is as good as the mean"
        scores.append(ScoreLine("r2", tree["r2"], best, baseline=linear.get("r2")))
    if not linear:
        return scores, None
    apart = row["rmse"] - (truth - other) ** 2
    return scores, root_error(apart, weights, tree["rmse"] + linear["rmse"])


def root_error(difference: FloatArray, weights: FloatArray, total: float) -> float | None:
    """Estimate the standard error of a difference of two roots of mean squares, of this ``total``.

    a - b = (a^2 - b^2) / (a + b), and the numerator is the mean of ``difference`` over the rows.
    """
    error = mean_error(difference, weights)
    return None if error is None or total == 0 else error / total


def mean_error(values: FloatArray, weights: FloatArray) -> float | None:
    """Estimate the standard error of a weighted mean of independent rows."""
    share = weights / weights.sum()
    deviation = values - np.average(values, weights=weights)
    return float(np.sqrt((share**2 * deviation**2).sum())) if len(values) > 1 else None


def confusion_of(study: Study) -> list[list[float]] | None:
    """Count the rows by true class, and within it by prediction, if there are few classes."""
    rows, labels = study.scored, study.labels if study.classifies else ()
    if rows is None or not 0 < len(labels) <= MAX_CLASSES:
        return None
    return [
        [float(rows.weights @ ((rows.y == true) & (study.predicted == guess))) for guess in labels]
        for true in labels
    ]


WORST = 8  # rows in the table
COLUMNS = 4  # of each
DIGITS = 4  # of values of columns
BINS = 10  # of the residuals, by their predictions
IN_BIN = 8  # minimum number of rows of a bin


def worst_errors(study: Study) -> dict[str, Any] | None:
    """List the rows with the largest errors, if rows may be shown and there are errors."""
    rows = study.scored
    if not study.example_rows or study.survives or rows is None:
        return None
    loss = row_scores(study, rows)["log_loss" if study.classifies else "mae"]
    wrong = (study.predicted != rows.target) & (rows.weights > 0)
    order = np.argsort(-np.where(wrong, loss, -np.inf), kind="stable")
    order = order[: min(WORST, np.count_nonzero(wrong))]
    if not len(order):
        return None
    columns = [] if study.image_shape else _main_columns(study)
    return {
        "columns": [study.columns[j] for j in columns],
        "rows": [
            {
                "number": int(row),
                "cells": cells,
                **_outcome(study, rows, int(row)),
                **_row_image(study, rows, int(row)),
            }
            for row, cells in zip(order, _cells(study, rows.taken(order), columns), strict=True)
        ],
        "wrong": int(np.count_nonzero(wrong)),
    }


def _main_columns(study: Study) -> list[int]:
    """Choose the columns that matter most."""
    if study.effects:
        return [one.column for one in study.effects[:COLUMNS]]
    if study.importance is None:
        return [*range(min(COLUMNS, len(study.columns)))]
    order = np.argsort(-study.importance.total, kind="stable")[:COLUMNS]
    return [j for j in order.tolist() if study.importance.total[j] > 0]


def _cells(study: Study, rows: LabelledRows, columns: list[int]) -> list[list[str]]:
    """Write the values of some rows, as they are in the table."""
    shown = study.encoding.shown(rows.X)
    return [[isolated(in_words(shown[j][k], DIGITS)) for j in columns] for k in range(len(rows))]


def _outcome(study: Study, rows: LabelledRows, row: int) -> dict[str, str]:
    """Write the true and the predicted value of a row, and how sure the prediction was."""
    true, guess = rows.target[row], study.predicted[row]
    if study.probability is None:
        error = number(float(true) - float(guess), 3)
        return {"true": number(float(true)), "predicted": number(float(guess)), "error": error}
    known = dict(zip(study.labels.tolist(), study.classes, strict=True))
    return {
        "true": known.get(true, str(true)),
        "predicted": known[guess],
        "error": percent(float(study.probability[row].max())),
    }


def _row_image(study: Study, rows: LabelledRows, row: int) -> dict[str, Markup]:
    """Show a row as an image, if it is one."""
    if study.image_shape is None:
        return {}
    values = rows.taken(np.array([row])).matrix[0]
    alt = f"Row {row} as an image"
    low, high = float(values.min()), float(values.max())
    return {"image": figures.grey_image(values, low, high, study.image_shape, alt)}


def residuals(study: Study) -> Markup | None:
    """Draw the residuals of a regression against its predictions, with their means in bins."""
    rows = study.scored
    if study.classifies or study.survives or rows is None:
        return None
    kept = np.flatnonzero(rows.weights > 0)
    guess = study.predicted[kept].astype(np.float64)
    residual = rows.target[kept].astype(np.float64) - guess
    alt = f"Residuals of {counted(len(kept), 'row')} against their predictions"
    draw = partial(_draw_residuals, guess=guess, residual=residual, target=study.target)
    return figures.picture(draw, (4.2, 4.0), alt, legend=False)


def _draw_residuals(ax: Axes, *, guess: FloatArray, residual: FloatArray, target: str) -> None:
    first = slice(None, None, max(1, -(-len(guess) // figures.POINTS)))
    ax.axhline(0.0, color=_style.INK, linewidth=0.8, linestyle="--")
    ax.plot(guess[first], residual[first], "o", color=_style.POSTERIOR, markersize=3, alpha=0.5)
    order = np.argsort(guess, kind="stable")
    for part in np.array_split(order, min(BINS, max(1, len(order) // IN_BIN))):
        if len(part) > 1:
            middle, error = residual[part].mean(), residual[part].std(ddof=1) / len(part) ** 0.5
            at = guess[part].mean()
            ax.plot([at, at], [middle - 2 * error, middle + 2 * error], color=_style.INK)
            ax.plot(at, middle, "s", color=_style.INK, markersize=4)
    ax.set_xlabel(f"predicted {target}")
    ax.set_ylabel("observed minus predicted")
    _style.open_frame(ax)
