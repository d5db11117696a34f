"""Scores of the predictions, and the confusion matrix."""

from typing import NamedTuple

import numpy as np
from sklearn.metrics import r2_score, root_mean_squared_error

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.report import text
from bayestree.report.rows import LabelledRows
from bayestree.report.study import Study, training_rows_phrase

MAX_CLASSES = 12  # maximum number of classes in a confusion matrix
TINY = 1e-15
NAMES = {
    "accuracy": "Accuracy",
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
# Scores that a run records, with their keys here.
RECORDED = {
    "accuracy": "accuracy",
    "accuracy_of_most_frequent_class": "baseline",
    "log_loss": "log_loss",
    "rmse": "rmse",
    "r2": "r2",
    "mean_deviance": "mean_deviance",
    "explained_deviance": "explained_deviance",
    "concordance": "concordance",
}
REFERENCES = {
    "mean_deviance": "0 is best",
    "explained_deviance": "1 is best; 0 is as good as a constant rate",
    "concordance": "share of pairs in the right order: 1 is best, 0.5 is chance",
}


class Score(NamedTuple):
    """A score with its standard error, a reference, and the score of the linear model."""

    key: str
    value: float
    reference: str = ""
    error: float | None = None
    is_share: bool = False
    baseline: float | None = None

    @property
    def name(self) -> str:
        if self.key == "baseline":
            return f"\N{EM DASH} of the {'most frequent class' if self.is_share else 'mean'}"
        return NAMES[self.key]

    @property
    def text(self) -> str:
        if not self.is_share:
            return text.with_error(self.value, self.error)
        error = "" if self.error is None else f" \N{PLUS-MINUS SIGN} {100 * self.error:.1f}"
        return f"{100 * self.value:.1f}{error}{text.SPACE}%"

    @property
    def baseline_text(self) -> str:
        if self.baseline is None:
            return ""
        return self._replace(value=self.baseline, error=None).text


class Scores(NamedTuple):
    """Scores of some rows, such as ``"40 held-out rows"``, and of a linear model, if there is one.

    ``baseline_error`` is the standard error of the difference in accuracy or in root mean squared
    error; ``baseline_rows`` is the number of training rows of the linear model, None for all.
    """

    each: tuple[Score, ...]
    rows: str
    held_out: bool
    baseline: str = ""
    baseline_error: float | None = None
    baseline_rows: int | None = None

    @property
    def baseline_fit(self) -> str:
        return training_rows_phrase(self.baseline_rows)

    def get(self, key: str) -> Score | None:
        return next((score for score in self.each if score.key == key), None)


class Confusion(NamedTuple):
    """Counts of rows by true class (rows) and predicted class (columns), shape (C, C)."""

    classes: tuple[str, ...]
    counts: IntArray

    @property
    def shares(self) -> FloatArray:
        return self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)


def scores_of(study: Study) -> Scores | None:
    """Scores of the held-out rows, or else of the rows of the fit; None if there are none."""
    rows, found = study.scored, study.predicted
    if rows is None or rows.y is None or found is None or is_recorded(study):
        return _recorded(study)
    weights = rows.weights if rows.weights.any() else np.ones(len(rows))
    compute = _class_scores if study.classifies else _value_scores
    scores: list[Score] = []
    error = None
    if not study.survives:
        scores, error = compute(study, rows.y, found, weights)
    scores = [*_own_scores(study, rows, weights), *scores]
    if study.baseline is None:
        return Scores(tuple(scores), rows.counted, rows.held_out)
    n_rows: int | None = study.baseline.n_rows
    if n_rows == study.metrics.get("training_rows", 0 if study.train is None else len(study.train)):
        n_rows = None
    return Scores(tuple(scores), rows.counted, rows.held_out, study.baseline.name, error, n_rows)


def is_recorded(study: Study) -> bool:
    """Whether the scores are those recorded by the run, of more rows than are given here."""
    return study.scored is None or int(study.metrics.get("scored_rows", 0)) > len(study.scored)


def _recorded(study: Study) -> Scores | None:
    """The scores recorded by a run, if there are any."""
    metrics = study.metrics
    baseline = metrics.get("baseline", {})
    scores = tuple(
        Score(
            key,
            float(metrics[record]),
            is_share=record.startswith("accuracy"),
            baseline=baseline.get(record),
        )
        for record, key in RECORDED.items()
        if record in metrics
    )
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
) -> tuple[list[Score], float | None]:
    """Scores of a classification, and the standard error of the difference in accuracy."""
    assert study.probability is not None
    truth = y[:, None] == study.labels
    right = (found == y).astype(np.float64)
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    loss = -np.log(np.maximum((study.probability * truth).sum(axis=1), TINY))
    brier = ((study.probability - truth) ** 2).sum(axis=1)
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
        Score(
            "baseline",
            frequent / float(weights.sum()),
            "always predicting the most frequent class",
            is_share=True,
        ),
        _mean("log_loss", loss, weights, f"nats; {uniform:.2f} for a uniform guess", linear),
        _mean("brier", brier, weights, "squared distance: 0 is best, 2 worst", linear),
    ]
    if study.calibration is not None:
        ece = study.calibration.ece
        reference = f"{ece.if_calibrated:.3f} would be expected if calibrated"
        scores.append(Score("ece", ece.value, reference, ece.error))
    return scores, _error(right - linear["accuracy"], weights) if linear else None


def _own_scores(study: Study, rows: LabelledRows, weights: FloatArray) -> list[Score]:
    """Scores of counts or survival times."""
    if study.classifies or not hasattr(study.estimator, "scores"):
        return []
    found = study.estimator.scores(rows.response, study.estimator.predict(rows.X), weights)
    return [Score(key, found[key], text) for key, text in REFERENCES.items() if key in found]


def _mean(
    key: str,
    values: FloatArray,
    weights: FloatArray,
    reference: str,
    baseline: dict[str, FloatArray],
) -> Score:
    """A mean over the rows with its standard error, and the mean of the linear model."""
    value = float(np.average(values, weights=weights))
    other = float(np.average(baseline[key], weights=weights)) if key in baseline else None
    error = _error(values, weights)
    return Score(key, value, reference, error, key == "accuracy", other)


def _value_scores(
    study: Study, y: AnyArray, found: AnyArray, weights: FloatArray
) -> tuple[list[Score], float | None]:
    """Scores of a regression, and the standard error of the difference in RMSE."""
    truth, guess = y.astype(np.float64), found.astype(np.float64)
    tree = _errors(truth, guess, weights)
    mean = np.full(len(truth), np.average(truth, weights=weights))
    scores = [
        Score("rmse", tree["rmse"], "in units of y; large errors count most"),
        Score("baseline", _errors(truth, mean, weights)["rmse"], "always predicting the mean"),
        _mean("mae", np.abs(truth - guess), weights, "in units of y", {}),
    ]
    if "r2" in tree:
        scores.append(Score("r2", tree["r2"], "1 is best; 0 is as good as the mean"))
    if study.baseline is None or study.scored is None:
        return scores, None
    other = study.baseline.model.predict(study.scored.X)
    linear = _errors(truth, other, weights)
    # a - b = (a^2 - b^2) / (a + b), and the numerator is a mean over the rows
    difference = _error((truth - guess) ** 2 - (truth - other) ** 2, weights)
    total = tree["rmse"] + linear["rmse"]
    compared = [score._replace(baseline=linear.get(score.key)) for score in scores]
    return compared, None if difference is None or total == 0 else difference / total


def _errors(truth: FloatArray, guess: FloatArray, weights: FloatArray) -> dict[str, float]:
    found = {
        "rmse": float(root_mean_squared_error(truth, guess, sample_weight=weights)),
        "mae": float(np.average(np.abs(truth - guess), weights=weights)),
    }
    if len(truth) > 1:
        found["r2"] = float(r2_score(truth, guess, sample_weight=weights))
    return found


def _error(values: FloatArray, weights: FloatArray) -> float | None:
    """Standard error of a weighted mean of independent rows."""
    share = weights / weights.sum()
    deviation = values - np.average(values, weights=weights)
    return float(np.sqrt((share**2 * deviation**2).sum())) if len(values) > 1 else None


def confusion_of(study: Study) -> Confusion | None:
    """The confusion matrix, if there are few classes."""
    rows, found = study.scored, study.predicted
    if rows is None or rows.y is None or found is None or not study.classifies:
        return None
    labels = study.labels
    if len(labels) > MAX_CLASSES:
        return None
    counts = np.array(
        [[int(((rows.y == true) & (found == guess)).sum()) for guess in labels] for true in labels]
    )
    return Confusion(study.classes, counts)
