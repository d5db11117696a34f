"""How good the predictions are: scores, and which classes are taken for which."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score, root_mean_squared_error

from bayestree.report.html import words
from bayestree.report.html.study import Study

Floats = NDArray[np.float64]
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
    """A score: its name, value and standard error, and what to hold it against."""

    key: str
    name: str
    value: float
    error: float | None
    against: str
    is_share: bool = False

    @property
    def text(self) -> str:
        """The value, as good as it is known."""
        if not self.is_share:
            return words.with_error(self.value, self.error)
        error = "" if self.error is None else f" \N{PLUS-MINUS SIGN} {100 * self.error:.1f}"
        return f"{100 * self.value:.1f}{error}{words.SPACE}%"


class Scores(NamedTuple):
    """Scores of some rows."""

    each: tuple[Score, ...]
    rows: str
    held_out: bool

    def value(self, key: str) -> float | None:
        """One of them, if it is there."""
        return next((score.value for score in self.each if score.key == key), None)


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
    if study.classifies:
        each = _of_classes(study, rows.y, found, weights)
    else:
        each = _of_values(rows.y, found, weights)
    name = f"{words.count(len(rows), 'held-out row' if rows.held_out else 'training row')}"
    return Scores(tuple(each), name, rows.held_out)


def scored_before(study: Study) -> bool:
    """Whether the run has scored more rows than are at hand."""
    return study.scored is None or int(study.metrics.get("scored_rows", 0)) > len(study.scored)


def _of_record(study: Study) -> Scores | None:
    """What was scored before, where that is known."""
    metrics = study.metrics
    each = tuple(
        Score(key, name, float(metrics[record]), None, "", is_share=record.startswith("accuracy"))
        for record, (key, name) in RECORDED.items()
        if record in metrics
    )
    if not each:
        return None
    kind = str(metrics.get("scored_on", "rows"))
    rows = metrics.get("scored_rows")
    return Scores(each, f"{rows:,} {kind}" if rows else kind, kind == "held-out rows")


def _of_classes(study: Study, y: Labels, found: Labels, weights: Floats) -> list[Score]:
    assert study.probability is not None
    truth = y[:, None] == study.estimator.classes_
    right = (found == y).astype(np.float64)
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    loss = -np.log(np.maximum((study.probability * truth).sum(axis=1), TINY))
    brier = ((study.probability - truth) ** 2).sum(axis=1)
    even = np.log(len(study.classes))
    each = [
        _mean("accuracy", "Accuracy", right, weights, "share of the rows that is right"),
        Score(
            "baseline",
            "\N{EM DASH} of the most frequent class",
            frequent / float(weights.sum()),
            None,
            "what naming one class throughout would reach",
            is_share=True,
        ),
        _mean("log_loss", "Log-loss", loss, weights, f"nats; guessing evenly costs {even:.2f}"),
        _mean("brier", "Brier score", brier, weights, "squared distance: 0 is best, 2 worst"),
    ]
    if study.calibration is not None:
        ece = study.calibration.ece
        against = f"true probabilities would show {ece.if_calibrated:.3f} on average"
        name = "Expected calibration error"
        each.append(Score("ece", name, ece.value, ece.error, against))
    return each


def _mean(key: str, name: str, values: Floats, weights: Floats, against: str) -> Score:
    """A mean over the rows with its standard error."""
    value = float(np.average(values, weights=weights))
    error = _error(values, weights)
    return Score(key, name, value, error, against, is_share=key == "accuracy")


def _of_values(y: Labels, found: Labels, weights: Floats) -> list[Score]:
    truth, guess = y.astype(np.float64), found.astype(np.float64)
    mean = np.full(len(truth), np.average(truth, weights=weights))
    rmse, base = (
        float(root_mean_squared_error(truth, one, sample_weight=weights)) for one in (guess, mean)
    )
    each = [
        Score("rmse", "Root mean squared error", rmse, None, "in units of y; large misses count"),
        Score("baseline", "\N{EM DASH} of the mean", base, None, "what one value would reach"),
        _mean("mae", "Mean absolute error", np.abs(truth - guess), weights, "in units of y"),
    ]
    if len(truth) > 1:
        r2 = float(r2_score(truth, guess, sample_weight=weights))
        against = "1 is best; 0 is as good as the mean"
        each.append(Score("r2", "R\N{SUPERSCRIPT TWO}", r2, None, against))
    return each


def _error(values: Floats, weights: Floats) -> float | None:
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
