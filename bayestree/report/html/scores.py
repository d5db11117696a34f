"""How good the predictions are: scores, and which classes are taken for which."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score, root_mean_squared_error

from bayestree._utils.arrays import FloatArray
from bayestree.report.html import words
from bayestree.report.html.study import Study
from bayestree.report.words import fitted_to

Labels = NDArray[Any]

MOST_CLASSES = 12  # of a table of confusions
TINY = 1e-15
# Scores that a run keeps: their names there, here and in words.
RECORDED = {
    "accuracy": ("accuracy", "Accuracy"),
    "accuracy_of_most_frequent_class": ("baseline", "\N{EM DASH} of the most frequent class"),
    "log_loss": ("log_loss", "Log-loss"),
    "rmse": ("rmse", "Root mean squared error"),
    "r2": ("r2", "R\N{SUPERSCRIPT TWO}"),
}


class Score(NamedTuple):
    """A score with its standard error, what to compare it with, and that of the linear model."""

    key: str
    name: str
    value: float
    error: float | None
    against: str
    is_share: bool = False
    baseline: float | None = None

    @property
    def text(self) -> str:
        """The value, as good as it is known."""
        if not self.is_share:
            return words.with_error(self.value, self.error)
        error = "" if self.error is None else f" \N{PLUS-MINUS SIGN} {100 * self.error:.1f}"
        return f"{100 * self.value:.1f}{error}{words.SPACE}%"

    @property
    def baseline_text(self) -> str:
        """The same score of the linear model."""
        if self.baseline is None:
            return ""
        return Score(self.key, "", self.baseline, None, "", self.is_share).text


class Scores(NamedTuple):
    """Scores of some rows.

    Attributes
    ----------
    each : tuple of Score
    rows : str
        How many rows, and what they are called.
    held_out : bool
    baseline : str
        Name of the linear model that the tree is compared with; empty without one.
    baseline_error : float, optional
        Standard error of the difference to it: of the accuracies, or of the root mean squares.
    baseline_rows : int, optional
        How many of the training rows it was fitted to; None for all.
    """

    each: tuple[Score, ...]
    rows: str
    held_out: bool
    baseline: str = ""
    baseline_error: float | None = None
    baseline_rows: int | None = None

    @property
    def baseline_fit(self) -> str:
        """Which rows the linear model was fitted to, in words."""
        return fitted_to(self.baseline_rows)

    def get(self, key: str) -> Score | None:
        """One of them, if it is there."""
        return next((score for score in self.each if score.key == key), None)


class Confusion(NamedTuple):
    """How many rows of each class are taken for which, shape (C, C): a line for each truth."""

    classes: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of each line."""
        return self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)


def scores_of(study: Study) -> Scores | None:
    """Scores of the held-out rows, or else of those of the fit; None without rows."""
    rows, found = study.scored, study.predicted
    if rows is None or rows.y is None or found is None or scored_before(study):
        return _of_record(study)
    weights = rows.weights if rows.weights.any() else np.ones(len(rows))
    each, error = (_of_classes if study.classifies else _of_values)(study, rows.y, found, weights)
    name = "" if study.baseline is None else study.baseline.name
    known = None if study.baseline is None else study.baseline.n_rows
    given = study.metrics.get("training_rows", 0 if study.train is None else len(study.train))
    return Scores(tuple(each), rows.counted, rows.held_out, name, error, _part(known, given))


def _part(known: int | None, given: int | None) -> int | None:
    """How many rows the linear model was fitted to, unless it was all that were given."""
    return None if known == given else known


def scored_before(study: Study) -> bool:
    """Whether the run has scored more rows than are at hand."""
    return study.scored is None or int(study.metrics.get("scored_rows", 0)) > len(study.scored)


def _of_record(study: Study) -> Scores | None:
    """What was scored before, where that is known."""
    metrics = study.metrics
    baseline = metrics.get("baseline", {})
    each = tuple(
        Score(
            key,
            name,
            float(metrics[record]),
            None,
            "",
            is_share=record.startswith("accuracy"),
            baseline=baseline.get(record),
        )
        for record, (key, name) in RECORDED.items()
        if record in metrics
    )
    if not each:
        return None
    kind = str(metrics.get("scored_on", "rows"))
    rows = metrics.get("scored_rows")
    said = f"{rows:,} {kind}" if rows else kind
    part = _part(baseline.get("training_rows"), metrics.get("training_rows"))
    name = str(baseline.get("model", ""))
    return Scores(each, said, kind == "held-out rows", name, baseline_rows=part)


def _of_classes(
    study: Study, y: Labels, found: Labels, weights: FloatArray
) -> tuple[list[Score], float | None]:
    """Scores of classes, and the standard error of the difference to the linear model."""
    assert study.probability is not None
    truth = y[:, None] == study.estimator.classes_
    right = (found == y).astype(np.float64)
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    loss = -np.log(np.maximum((study.probability * truth).sum(axis=1), TINY))
    brier = ((study.probability - truth) ** 2).sum(axis=1)
    even = np.log(len(study.classes))
    own: dict[str, FloatArray] = {}
    if study.baseline is not None and study.scored is not None:
        linear = study.baseline.model
        probability = linear.predict_proba(study.scored.X)
        own["accuracy"] = linear.classes_[probability.argmax(axis=1)] == y
        happened = (probability * (y[:, None] == linear.classes_)).sum(axis=1)
        own["log_loss"] = -np.log(np.maximum(happened, TINY))
    each = [
        _mean("accuracy", "Accuracy", right, weights, "share of rows predicted correctly", own),
        Score(
            "baseline",
            "\N{EM DASH} of the most frequent class",
            frequent / float(weights.sum()),
            None,
            "always predicting the most frequent class",
            is_share=True,
        ),
        _mean("log_loss", "Log-loss", loss, weights, f"nats; {even:.2f} for a uniform guess", own),
        _mean("brier", "Brier score", brier, weights, "squared distance: 0 is best, 2 worst", own),
    ]
    if study.calibration is not None:
        ece = study.calibration.ece
        against = f"{ece.if_calibrated:.3f} would be expected if calibrated"
        name = "Expected calibration error"
        each.append(Score("ece", name, ece.value, ece.error, against))
    return each, _error(right - own["accuracy"], weights) if own else None


def _mean(
    key: str,
    name: str,
    values: FloatArray,
    weights: FloatArray,
    against: str,
    baseline: dict[str, FloatArray],
) -> Score:
    """A mean over the rows with its standard error, and that of the linear model."""
    value = float(np.average(values, weights=weights))
    other = float(np.average(baseline[key], weights=weights)) if key in baseline else None
    error = _error(values, weights)
    return Score(key, name, value, error, against, is_share=key == "accuracy", baseline=other)


def _of_values(
    study: Study, y: Labels, found: Labels, weights: FloatArray
) -> tuple[list[Score], float | None]:
    """Scores of numbers, and the standard error of the difference to the linear model."""
    truth, guess = y.astype(np.float64), found.astype(np.float64)
    own = _sizes_of_errors(truth, guess, weights)
    mean = np.full(len(truth), np.average(truth, weights=weights))
    each = [
        Score(
            "rmse",
            "Root mean squared error",
            own.rmse,
            None,
            "in units of y; large errors count most",
        ),
        Score(
            "baseline",
            "\N{EM DASH} of the mean",
            _sizes_of_errors(truth, mean, weights).rmse,
            None,
            "always predicting the mean",
        ),
        _mean("mae", "Mean absolute error", np.abs(truth - guess), weights, "in units of y", {}),
    ]
    if own.r2 is not None:
        against = "1 is best; 0 is as good as the mean"
        each.append(Score("r2", "R\N{SUPERSCRIPT TWO}", own.r2, None, against))
    if study.baseline is None or study.scored is None:
        return each, None
    other = study.baseline.model.predict(study.scored.X)
    linear = _sizes_of_errors(truth, other, weights)
    # a - b = (a^2 - b^2) / (a + b), whose numerator is a mean over the rows
    apart = _error((truth - guess) ** 2 - (truth - other) ** 2, weights)
    total = own.rmse + linear.rmse
    compared = [score._replace(baseline=linear._asdict().get(score.key)) for score in each]
    return compared, None if apart is None or total == 0 else apart / total


class _Errors(NamedTuple):
    """How large the errors of predictions are."""

    rmse: float
    mae: float
    r2: float | None


def _sizes_of_errors(truth: FloatArray, guess: FloatArray, weights: FloatArray) -> _Errors:
    return _Errors(
        float(root_mean_squared_error(truth, guess, sample_weight=weights)),
        float(np.average(np.abs(truth - guess), weights=weights)),
        float(r2_score(truth, guess, sample_weight=weights)) if len(truth) > 1 else None,
    )


def _error(values: FloatArray, weights: FloatArray) -> float | None:
    """Standard error of a weighted mean of independent rows."""
    share = weights / weights.sum()
    away = values - np.average(values, weights=weights)
    return float(np.sqrt((share**2 * away**2).sum())) if len(values) > 1 else None


def confusion_of(study: Study) -> Confusion | None:
    """Which classes are taken for which, where these are few."""
    rows, found = study.scored, study.predicted
    if rows is None or rows.y is None or found is None or not study.classifies:
        return None
    labels = study.estimator.classes_
    if len(labels) > MOST_CLASSES:
        return None
    counts = np.array(
        [[int(((rows.y == true) & (found == guess)).sum()) for guess in labels] for true in labels]
    )
    return Confusion(study.classes, counts)
