"""The findings of a report, as sentences, and above them the answer with its verdict."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bayestree._utils.wording import counted
from bayestree.diagnostics import Calibration
from bayestree.diagnostics.verdict import TOLERATED
from bayestree.report.rows import most_important
from bayestree.report.scores import ScoreLine, Scores, with_error
from bayestree.report.sections import in_a_phrase
from bayestree.report.study import SPACE, Study, number, percent
from bayestree.report.trees import MOST_FACETS, LabelledTree
from bayestree.tree import Tree

UNCERTAIN = 0.1  # share of uncertain rows from which a split is doubtful
FEW = 3  # features named
COVERED = 0.9  # of new values by their intervals, whose shares are in ``Study.coverage``
ERRORS = 50.0  # of a constant, from which so few of a tree are no chance
LEAKED = 0.02  # of the error of a constant, below which a single column is too good to be true
CHANCE = 2.0  # standard errors up to which a calibration error may be due to chance


class Finding(NamedTuple):
    """A sentence and its topic; ``tone`` is "", "ok", "doubtful" or "failed"."""

    topic: str
    text: str
    tone: str = ""


def findings_of(study: Study, scores: Scores | None) -> list[Finding]:
    """Return all findings that apply to a study."""
    others = (_tree, _first_split, _uncertainty, _calibration, _intervals, _convergence)
    found = [_prediction(study, scores), _leak(study, scores), *(find(study) for find in others)]
    return [one for one in found if one is not None]


def _prediction(study: Study, scores: Scores | None) -> Finding | None:
    if scores is None:
        return None
    if study.survives and (concordance := scores.get("concordance")) is not None:
        sentence = f"Of the pairs of {scores.rows} whose order is known, the risk scores order "
        return Finding("Prediction", f"{sentence}{percent(concordance.value)} correctly.")
    score, naive = scores.get("accuracy" if study.classifies else "rmse"), scores.get("baseline")
    if score is None:
        return None
    write: Callable[[float], str] = percent if study.classifies else partial(number, digits=3)
    if study.classifies:
        sentence = f"{percent(score.value)} of the predictions for {scores.rows} are correct"
        constant = "always predicting the most frequent class would be correct for"
    else:
        sentence = f"The root mean squared error of the predictions for {scores.rows} is "
        sentence += write(score.value)
        constant = "always predicting the mean would have an error of"
    if score.baseline is not None:
        sentence += f"; {_compared(score, scores)}"
    if naive is not None:
        sentence += f"; {constant} {write(naive.value)}"
    if not scores.held_out:
        sentence += ". The model was fitted to these rows, so expect worse predictions of new rows"
    return Finding("Prediction", f"{sentence}.")


def _leak(study: Study, scores: Scores | None) -> Finding | None:
    """Name the column that nearly determines y alone, as what is recorded after y does."""
    tree, key = study.tree, "accuracy" if study.classifies else "rmse"
    score, naive = (None, None) if scores is None else map(scores.get, (key, "baseline"))
    if study.is_forest or not isinstance(tree, Tree) or not (score and naive and study.scored):
        return None
    wrong = [1 - one.value if study.classifies else one.value for one in (score, naive)]
    places = study.estimator.encoding_.places
    used = [name for name, own in zip(study.columns, places, strict=True) if tree.used[own].any()]
    few = study.classifies and wrong[1] * len(study.scored.target) < ERRORS
    if few or not len(used) == 1 < len(places) or wrong[0] > LEAKED * wrong[1]:
        return None
    target = _target(study)
    sentence = (
        f"{used[0]} alone predicts {target} almost without error. Leave it out if it is known only "
        f"after {target}, or is computed from it."
    )
    return Finding("Likely leak", sentence, "doubtful")


def _compared(score: ScoreLine, scores: Scores) -> str:
    """Write the score of the linear model, and the difference of the tree."""
    assert score.baseline is not None
    value = percent(score.baseline) if score.is_share else number(score.baseline, 3)
    verb = "is correct for" if score.is_share else "has an error of"
    sentence = f"{scores.baseline}, {scores.baseline_fit}, {verb} {value}"
    if scores.baseline_error is None:
        return sentence
    unit = 100 if score.is_share else 1
    gap = with_error(unit * (score.value - score.baseline), unit * scores.baseline_error)
    return f"{sentence} (difference {gap}{' percentage points' if score.is_share else ''})"


def _tree(study: Study) -> Finding:
    tree = study.tree
    if study.is_forest:
        total = counted(sum(one.n_leaves for one in study.trees), "leaf")
        combined = getattr(study.estimator, "_combined", "a prediction is their mean")
        sentence = f"{len(study.trees)} trees with {total} in total; {combined}."
        return Finding("Forest", sentence)
    if tree.n_nodes == 0:
        return Finding("Tree", "The tree has one leaf: no split met the growth limits.")
    sentence = (
        f"{counted(tree.n_nodes, 'split').capitalize()} and {tree.n_leaves} leaves, "
        f"{counted(tree.depth, 'level')} deep."
    )
    sizes = study.sizes
    if sizes is not None and sizes.n_leaves is not None:
        low, high = np.quantile(sizes.n_leaves, [0.05, 0.95], method="inverted_cdf").astype(int)
        span = f"{low} leaves" if low == high else f"{low} to {high} leaves (90{SPACE}%)"
        sentence += f" The posterior uses {span}."
    return Finding("Tree", sentence)


def _first_split(study: Study) -> Finding | None:
    tree = study.tree
    if study.is_forest or tree.n_nodes == 0 or not isinstance(tree, Tree):
        return None
    n_facets = int(tree.n_facets[0])
    shape = "A single hyperplane" if n_facets == 1 else f"A polytope of {n_facets} facets"
    if study.is_sparse and n_facets <= MOST_FACETS:
        shape = f"A row goes left if {LabelledTree(study, tree).label(0)}"
    elif study.sizes is not None:
        low, high = study.sizes.interval()[0].astype(int)
        if not n_facets == low == high == 1:
            shape += f" in the point estimate; the posterior has {study.size_text(0)}"
    if study.importance is None:
        return Finding("First split", f"{shape}.")
    share = study.importance.nodes[0][0]
    main = [study.columns[j] for j in most_important(share)]
    depends = f"; the side of a row depends mostly on {listed(main, FEW)}" if main else ""
    return Finding("First split", f"{shape}{depends}.")


def listed(names: Sequence[str], most: int | None = None) -> str:
    """List the first names, by default all, with commas and an *and*."""
    shown = [*names[:most]]
    if most is not None and len(names) > most:
        shown.append(f"{len(names) - most} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _uncertainty(study: Study) -> Finding | None:
    if study.uncertainty is None or study.evaluated is None:
        return None
    uncertain = study.uncertainty_table["unsure"].fillna(0.0)
    worst = int(uncertain.to_numpy().argmax())
    share = float(uncertain.iloc[worst])
    where = ""
    if len(uncertain) > 1:
        where = f"At node {uncertain.index[worst]}, the most uncertain one, "
    sentence = (
        f"{where}{percent(share)} of the {study.evaluated.kind} may belong on the other side "
        f"of the split (posterior probability above 10{SPACE}%)."
    )
    return Finding("Uncertainty", sentence, "" if share < UNCERTAIN else "doubtful")


def _calibration(study: Study) -> Finding | None:
    found = study.calibration
    if found is None or study.scored is None or not study.scored.held_out:
        return None
    sentence, tone = _verdict(found)
    if found.n_zero:
        rows = counted(found.n_zero, "held-out row")
        verb = "has" if found.n_zero == 1 else "have"
        sentence += f" {rows} {verb} a class with a predicted probability of 0."
        tone = "doubtful"
    return Finding("Calibration", sentence, tone)


def _verdict(found: Calibration) -> tuple[str, str]:
    """Judge whether probabilities are calibrated, or in which direction they err."""
    excess, ece = found.overconfidence, found.ece
    if abs(excess.value) > max(CHANCE * excess.error, TOLERATED):
        kind = "too confident" if excess.value > 0 else "not confident enough"
        claimed, right = found.accuracy.if_calibrated, found.accuracy.value
        gap, error = 100 * abs(excess.value), 100 * excess.error
        return (
            f"Probabilities are {kind}: the predicted class has {percent(claimed)} on "
            f"average, but {percent(right)} of the predictions are correct "
            f"(difference {with_error(gap, error)} percentage points)."
        ), "doubtful"
    if ece.value > ece.if_calibrated + max(CHANCE * ece.error, TOLERATED):
        return (
            "Probabilities are miscalibrated, some too high and some too low: expected calibration "
            f"error {ece.value:.3f}; {ece.if_calibrated:.3f} would be expected if calibrated."
        ), "doubtful"
    return (
        "Probabilities are well calibrated, to within 5 points as far as these rows can tell: the "
        f"expected calibration error is {ece.value:.3f}, and {ece.if_calibrated:.3f} if calibrated."
    ), "ok"


def _intervals(study: Study) -> Finding | None:
    """Judge whether 90 % intervals of new values contain as many of them."""
    rows = study.scored
    if study.coverage is None or rows is None or not rows.held_out:
        return None
    share, n_rows = float(study.coverage[0][-1]), study.coverage[1]
    error = (COVERED * (1 - COVERED) / n_rows) ** 0.5
    sentence = (
        f"{percent(share)} of {counted(n_rows, 'held-out row')} lie in their 90{SPACE}% intervals."
    )
    # Those of counts contain more, as no bounds of whole numbers contain 90 % exactly.
    too_few = COVERED - share > max(CHANCE * error, TOLERATED)
    return Finding("Intervals", sentence, "doubtful" if too_few else "ok")


def _convergence(study: Study) -> Finding | None:
    found = study.convergence
    if found is None:
        return None
    sentence, tone = {
        "yes": ("The inference has converged.", "ok"),
        "doubtful": ("The inference has probably converged; some checks are doubtful.", "doubtful"),
        "no": ("The inference has not converged; see the checks below.", "failed"),
        "not known": (
            "Too little was recorded to tell whether the inference has converged.",
            "doubtful",
        ),
    }[found.settled]
    if found.converged:
        sentence += f" Intervals of the nodes: {found.intervals}"
    return Finding("Convergence", sentence, tone)


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
    nothing = study.convergence is not None and study.convergence.no_better_than_constant
    reasons = _reasons(scores, line, findings, nothing=nothing)
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
    share, target, rows = percent(line.value), _target(study), f"{scores.rows}{beside}."
    said = {
        "accuracy": f"predicts the right {target} for {share} of {rows}",
        "concordance": f"ranks {share} of the pairs of rows whose order is known correctly by "
        f"their risk (chance: {percent(0.5)}).",
        "explained_deviance": f"explains {share} of the deviance of {target} for {rows}",
        "rmse": f"predicts {target} with a typical error of {number(line.value, 3)} for {rows}",
    }
    return f"The {_kind(study)} {said[line.key]}"


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
    return f"{begin}: {listed(said)}."


def _reasons(
    scores: Scores | None, line: ScoreLine | None, findings: list[Finding], *, nothing: bool
) -> list[Reason]:
    """Judge scores, convergence and calibration; ``nothing`` is what the fit itself says."""
    found = []
    if scores is None or line is None:
        found.append(Reason("doubtful", "there are no scores"))
    else:
        found += _of_scores(scores, line, nothing=nothing)
    by_topic = {one.topic: one for one in findings}
    texts = {
        "Calibration": ("the probabilities are calibrated", "the probabilities are miscalibrated"),
        "Intervals": (
            "the intervals contain at least as many values as they claim",
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


def _of_scores(scores: Scores, line: ScoreLine, *, nothing: bool) -> list[Reason]:
    """Judge the score by whether its rows are new, and by what simpler models reach."""
    found = []
    if not scores.held_out:
        found.append(Reason("doubtful", "it was scored on the rows of the fit"))
        if nothing:
            text = "nothing shows that it predicts new rows better than a constant"
            return [*found, Reason("failed", text)]
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
