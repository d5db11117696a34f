"""Scores of the predictions, and the confusion matrix."""

import math
from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.diagnostics.scores import squared_scores
from bayestree.report.rows import LabelledRows
from bayestree.report.study import SPACE, Study, number, training_rows_phrase, with_minus

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
    rows, found = study.scored, study.predicted
    if rows is None or rows.y is None or found is None or is_recorded(study):
        return _recorded(study)
    weights = rows.weights if rows.weights.any() else np.ones(len(rows))
    scores, error = _own_scores(study, rows, weights), None
    if not study.survives:
        compute = _class_scores if study.classifies else _value_scores
        more, error = compute(study, rows.y, found, weights)
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
    study: Study, y: AnyArray, found: AnyArray, weights: FloatArray
) -> tuple[list[ScoreLine], float | None]:
    """Score a classification; return the standard error of the difference in accuracy too."""
    right, loss, brier = row_scores(study, y, found).values()
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    uniform = np.log(len(study.classes))
    linear: dict[str, FloatArray] = {}
    if study.baseline is not None and study.scored is not None:
        model = study.baseline.model
        probability = model.predict_proba(study.scored.X)
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


def row_scores(study: Study, y: AnyArray, found: AnyArray) -> dict[str, FloatArray]:
    """Score each row (n,): of values, by the squared (``rmse``) and the absolute error."""
    if study.probability is None:
        error = y.astype(np.float64) - found.astype(np.float64)
        return {"rmse": error**2, "mae": np.abs(error)}
    truth = y[:, None] == study.labels
    likelihood = (study.probability * truth).sum(axis=1)
    return {
        "accuracy": (found == y).astype(np.float64),
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
    study: Study, y: AnyArray, found: AnyArray, weights: FloatArray
) -> tuple[list[ScoreLine], float | None]:
    """Score a regression; return the standard error of the difference in RMSE too."""
    truth, guess, row = y.astype(np.float64), found.astype(np.float64), row_scores(study, y, found)
    mean = np.full(len(truth), np.average(truth, weights=weights))
    tree, constant = (squared_scores(truth, one, weights) for one in (guess, mean))
    linear: dict[str, float] = {}
    distance: dict[str, FloatArray] = {}
    if study.baseline is not None and study.scored is not None:
        other = study.baseline.model.predict(study.scored.X)
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


def confusion_of(study: Study) -> list[list[int]] | None:
    """Count the rows by true class, and within it by prediction, if there are few classes."""
    rows, found = study.scored, study.predicted
    if rows is None or found is None or not 0 < len(study.classes) <= MAX_CLASSES:
        return None
    labels = study.labels
    return [
        [int(((rows.y == true) & (found == guess)).sum()) for guess in labels] for true in labels
    ]
