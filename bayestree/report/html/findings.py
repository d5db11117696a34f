"""What was found, in a few sentences at the head of the report."""

from typing import NamedTuple

import numpy as np

from bayestree.diagnostics import Calibration
from bayestree.report import splits
from bayestree.report.html import words
from bayestree.report.html.scores import Score, Scores
from bayestree.report.html.study import Study
from bayestree.tree import Tree

UNSURE = 0.1  # share of rows on which a split is called unsure
FEW = 3  # features named
HIT = 2.0  # standard errors within which a calibration error is one by chance


class Finding(NamedTuple):
    """A sentence with what it is about; ``tone`` is "", "ok", "doubtful" or "failed"."""

    about: str
    says: str
    tone: str = ""


def findings(study: Study, scores: Scores | None) -> list[Finding]:
    """The findings, those that there are."""
    found = [
        _prediction(study, scores),
        _tree(study),
        _first_split(study),
        _certainty(study),
        _calibration(study),
        _convergence(study),
    ]
    return [one for one in found if one is not None]


def _prediction(study: Study, scores: Scores | None) -> Finding | None:
    if scores is None:
        return None
    own, base = scores.get("accuracy" if study.classifies else "rmse"), scores.get("baseline")
    if own is None:
        return None
    if study.classifies:
        says = f"{words.percent(own.value)} of the predictions for {scores.rows} are right"
        one_answer = "always predicting the most frequent class would be right for"
    else:
        says = f"Predictions for {scores.rows} miss by {words.number(own.value, 3)}"
        says += " (root mean square)"
        one_answer = "always predicting the mean would miss by"
    if own.baseline is not None:
        says += f"; {_compared(own, scores)}"
    if base is not None:
        value = words.percent(base.value) if study.classifies else words.number(base.value, 3)
        says += f"; {one_answer} {value}"
    if not scores.held_out:
        says += ". The model was fitted to these rows, so expect worse on new rows"
    return Finding("Prediction", f"{says}.")


def _compared(own: Score, scores: Scores) -> str:
    """The score of the linear model, and how much better or worse the tree is."""
    assert own.baseline is not None
    text = words.percent(own.baseline) if own.is_share else words.number(own.baseline, 3)
    verb = "is right for" if own.is_share else "misses by"
    said = f"{scores.baseline}, {scores.baseline_fit}, {verb} {text}"
    if scores.baseline_error is None:
        return said
    unit = 100 if own.is_share else 1
    gap = words.with_error(unit * (own.value - own.baseline), unit * scores.baseline_error)
    return f"{said} (difference {gap}{' percentage points' if own.is_share else ''})"


def _tree(study: Study) -> Finding:
    tree = study.tree
    if study.is_forest:
        leaves = sum(one.n_leaves for one in study.trees)
        together = words.count(leaves, "leaf", "leaves")
        says = f"{len(study.trees)} trees with {together} together; a prediction is their mean."
        return Finding("Forest", says)
    if tree.n_nodes == 0:
        return Finding("Tree", "The tree has one leaf: no split met the growth limits.")
    says = (
        f"{words.count(tree.n_nodes, 'split').capitalize()} and {tree.n_leaves} leaves, "
        f"{words.count(tree.depth, 'level')} deep."
    )
    sizes = study.sizes
    if sizes is not None and sizes.n_leaves is not None:
        low, high = np.quantile(sizes.n_leaves, [0.05, 0.95], method="inverted_cdf").astype(int)
        says += f" The posterior uses {low} leaves." if low == high else (
            f" The posterior uses {low} to {high} leaves (90{words.SPACE}%)."
        )  # fmt: skip
    return Finding("Tree", says)


def _first_split(study: Study) -> Finding | None:
    tree = study.tree
    if study.is_forest or tree.n_nodes == 0 or not isinstance(tree, Tree):
        return None
    n_facets = int(tree.n_facets[0])
    shape = "A single hyperplane" if n_facets == 1 else f"A polytope of {n_facets} facets"
    if study.sizes is not None:
        low, high = study.sizes.interval()[0].astype(int)
        if not n_facets == low == high == 1:
            median = int(study.sizes.median()[0])
            shape += (
                f" in the point estimate; the posterior has {words.posterior(median, low, high)}"
            )
    if study.importance is None:
        return Finding("First split", f"{shape}.")
    share = study.importance.nodes[0][0]
    chief = [study.features[j] for j in splits.strongest(share)]
    looks = f"its side depends mostly on {words.listed(chief, FEW)}" if chief else ""
    return Finding("First split", f"{shape}; {looks}." if looks else f"{shape}.")


def _certainty(study: Study) -> Finding | None:
    if study.uncertainty is None or study.asked is None:
        return None
    unsure = study.doubt_table["unsure"].fillna(0.0)
    worst = int(unsure.to_numpy().argmax())
    share = float(unsure.iloc[worst])
    where = "" if len(unsure) == 1 else f"At node {unsure.index[worst]}, the least sure one, "
    says = (
        f"{where}{words.percent(share)} of the {study.asked.name} might belong on the other side "
        f"of the split (a chance above 10{words.SPACE}%)."
    )
    return Finding("Certainty", says, "" if share < UNSURE else "doubtful")


def _calibration(study: Study) -> Finding | None:
    found = study.calibration
    if found is None or study.scored is None or not study.scored.held_out:
        return None
    says, tone = _verdict(found)
    if found.n_zero:
        rows = words.count(found.n_zero, "held-out row")
        verb = "holds" if found.n_zero == 1 else "hold"
        says += f" {rows} {verb} a class that was given probability 0."
        tone = "doubtful"
    return Finding("Calibration", says, tone)


def _verdict(found: Calibration) -> tuple[str, str]:
    """Whether probabilities are calibrated, or in which direction they err."""
    excess, ece = found.overconfidence, found.ece
    if abs(excess.value) > HIT * excess.error:
        kind = "too confident" if excess.value > 0 else "not confident enough"
        claimed, right = found.accuracy.if_calibrated, found.accuracy.value
        gap, error = 100 * abs(excess.value), 100 * excess.error
        return (
            f"Probabilities are {kind}: that of the predicted class is {words.percent(claimed)} on "
            f"average, and the prediction is right for {words.percent(right)} of the rows "
            f"(difference {words.with_error(gap, error)} percentage points)."
        ), "doubtful"
    if ece.value > ece.if_calibrated + HIT * ece.error:
        return (
            "Probabilities are off, some too high and some too low: expected calibration error "
            f"{ece.value:.3f}; {ece.if_calibrated:.3f} would be expected if calibrated."
        ), "doubtful"
    return (
        "Probabilities are well calibrated as far as these rows can tell: expected calibration "
        f"error {ece.value:.3f}; {ece.if_calibrated:.3f} would be expected if calibrated."
    ), "ok"


def _convergence(study: Study) -> Finding | None:
    found = study.convergence
    if found is None:
        return None
    says, tone = {
        "yes": ("The inference has converged.", "ok"),
        "doubtful": ("The inference has converged, with some doubt.", "doubtful"),
        "no": ("The inference has not converged: see the checks below.", "failed"),
        "not known": (
            "Too little was recorded to tell whether the inference has converged.",
            "doubtful",
        ),
    }[found.settled]
    if found.converged:
        says += f" Intervals of the nodes: {found.intervals}"
    return Finding("Convergence", says, tone)
