"""The answer on top of a report: a verdict, a score next to its baseline, and three sentences."""

from typing import NamedTuple

import numpy as np

from bayestree.report.features import in_a_phrase
from bayestree.report.findings import CHANCE, Finding, listed
from bayestree.report.scores import ScoreLine, Scores
from bayestree.report.study import Study, number, percent

NAMED = 3  # features named
OF_NOISE = 0.05  # of the largest loss: less may be noise where the rows of the fit are scored
RANK = {"ok": 0, "doubtful": 1, "failed": 2}
VERDICTS = {"ok": "Trust it", "doubtful": "Doubtful", "failed": "Do not trust it"}


class Reason(NamedTuple):
    """What speaks for or against the model, with its tone as in :class:`Finding`."""

    tone: str
    text: str


class Answer(NamedTuple):
    """What a reader needs first.

    ``score`` and ``references`` are pairs of a name and a text; ``tone`` is that of the worst
    reason.
    """

    sentences: list[str]
    tone: str
    reasons: list[Reason]
    score: tuple[str, str] | None
    references: list[tuple[str, str]]

    @property
    def verdict(self) -> str:
        return VERDICTS[self.tone]


def answer_of(study: Study, scores: Scores | None, findings: list[Finding]) -> Answer:
    """Write the answer from the scores and the findings."""
    line = _main_line(study, scores)
    reasons = _reasons(scores, line, findings)
    tone = max((one.tone for one in reasons), key=RANK.__getitem__)
    sentences = [_achieved(study, scores, line), _depends(study), _trusted(tone, reasons)]
    return Answer(
        [one for one in sentences if one],
        tone,
        reasons,
        None if line is None or scores is None else (f"{line.name}, {scores.rows}", line.text),
        [] if line is None or scores is None else _references(scores, line),
    )


def _main_line(study: Study, scores: Scores | None) -> ScoreLine | None:
    if scores is None:
        return None
    keys = ("accuracy",) if study.classifies else ("concordance", "explained_deviance", "rmse")
    return next((found for key in keys if (found := scores.get(key)) is not None), None)


def _references(scores: Scores, line: ScoreLine) -> list[tuple[str, str]]:
    """List the scores of the linear model, and of the best constant or of chance."""
    found = []
    if line.baseline is not None:
        found.append((scores.baseline.capitalize(), line.baseline_text))
    naive = scores.get("baseline")
    if line.key in ("accuracy", "rmse") and naive is not None:
        name = "Most frequent class" if line.is_share else "Mean of all rows"
        found.append((name, naive.text))
    elif line.key == "concordance":
        found.append(("Chance", "0.5"))
    elif line.key == "explained_deviance":
        found.append(("A constant rate", "0"))
    return found


def _achieved(study: Study, scores: Scores | None, line: ScoreLine | None) -> str:
    """Say in a sentence how good the predictions are."""
    if scores is None or line is None:
        return f"The page describes the {_kind(study)}; no rows were given to score it."
    names = [f"{name[0].lower()}{name[1:]}: {text}" for name, text in _references(scores, line)]
    beside = f" ({'; '.join(names)})" if names else ""
    if line.key == "accuracy":
        said = f"The {_kind(study)} predicts the right {_target(study)} for {percent(line.value)}"
        return f"{said} of {scores.rows}{beside}."
    if line.key == "concordance":
        said = f"The {_kind(study)} ranks {percent(line.value)} of the pairs of rows whose order is"
        return f"{said} known correctly by their risk (chance: {percent(0.5)})."
    if line.key == "explained_deviance":
        said = f"The {_kind(study)} explains {percent(line.value)} of the deviance of"
        return f"{said} {_target(study)} for {scores.rows}{beside}."
    said = f"The {_kind(study)} predicts {_target(study)} with a typical error of"
    return f"{said} {number(line.value, 3)} for {scores.rows}{beside}."


def _kind(study: Study) -> str:
    return "forest" if study.is_forest else "tree"


def _target(study: Study) -> str:
    return study.target if study.data.get("target") else "class" if study.classifies else "y"


def _depends(study: Study) -> str:
    """Say in a sentence which columns matter, and in which direction."""
    if study.effects:
        losses = [one.loss for one in study.effects if one.loss is not None]
        # A tree predicts the rows of its fit better by whatever it has learned of their noise.
        own = study.held is None or not len(study.held)
        least = OF_NOISE * max((one.value for one in losses), default=0.0) if own else 0.0
        sure = [one for one in study.effects if one.loss is None or one.loss.low > least]
        if not sure:
            return "No column has an established effect: shuffling one may not worsen predictions."
        first = sure[:NAMED]
        said = [
            study.columns[one.column]
            + ("" if one.trend == "unclear" else f" ({in_a_phrase(study, one)})")
            for one in first
        ]
        return f"What matters most is {listed(said, NAMED)}."
    if study.importance is None or study.image_shape is not None:
        return ""
    order = np.argsort(-study.importance.total, kind="stable")[:NAMED]
    used = [study.columns[j] for j in order if study.importance.total[j] > 0]
    return f"What matters most is {listed(used, NAMED)}." if used else ""


def _trusted(tone: str, reasons: list[Reason]) -> str:
    """Say in a sentence whether to rely on it, and why."""
    said = [one.text for one in reasons if one.tone == tone]
    begin = {
        "ok": "Its predictions can be relied on for rows like these",
        "doubtful": "Rely on it with caution",
        "failed": "Do not rely on it",
    }[tone]
    return f"{begin}: {listed(said, len(said))}."


def _reasons(
    scores: Scores | None, line: ScoreLine | None, findings: list[Finding]
) -> list[Reason]:
    """Judge scores, convergence and calibration."""
    found = []
    if scores is None or line is None:
        found.append(Reason("doubtful", "there are no scores"))
    else:
        found += _of_scores(scores, line)
    by_topic = {one.topic: one for one in findings}
    texts = {
        "Calibration": ("the probabilities are calibrated", "the probabilities are miscalibrated"),
        "Intervals": (
            "the intervals contain as many values as they claim, or more",
            "the intervals contain fewer values than they claim",
        ),
        "Convergence": ("the fit has converged", "the fit has not certainly converged"),
    }  # fmt: skip
    for topic, (good, bad) in texts.items():
        if topic in by_topic:
            tone = by_topic[topic].tone
            text = "the fit has not converged" if tone == "failed" else bad
            found.append(Reason(tone, good if tone == "ok" else text))
    return found


def _of_scores(scores: Scores, line: ScoreLine) -> list[Reason]:
    """Judge the score by whether its rows are new, and by what simpler models reach."""
    found = []
    if not scores.held_out:
        found.append(Reason("doubtful", "it was scored on the rows of the fit"))
    sign = -1 if line.key == "rmse" else 1  # of what is better
    naive = scores.get("baseline")
    floor = {"concordance": 0.5, "explained_deviance": 0.0}.get(line.key)
    floor = naive.value if floor is None and naive is not None else floor
    if floor is not None and sign * (line.value - floor) <= 0:
        found.append(Reason("failed", "it predicts no better than a constant"))
    elif line.baseline is not None:
        gap, error = sign * (line.value - line.baseline), CHANCE * (scores.baseline_error or 0.0)
        if gap < -error:
            found.append(Reason("doubtful", f"{scores.baseline} predicts better"))
        else:
            how = "better than" if gap > error else "as well as"
            found.append(Reason("ok", f"it predicts {how} {scores.baseline}"))
    else:
        found.append(Reason("ok", "it predicts better than a constant"))
    return found
