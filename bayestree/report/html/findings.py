"""What was found, in a few sentences at the head of the report."""

from typing import NamedTuple

import numpy as np

from bayestree.report.html import words
from bayestree.report.html.features import used_features
from bayestree.report.html.scores import Scores
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
    own, base = scores.value("accuracy" if study.classifies else "rmse"), scores.value("baseline")
    if own is None:
        return None
    if study.classifies:
        says = f"{words.percent(own)} of the predictions for {scores.rows} are right"
        if base is not None:
            says += (
                f"; always naming the most frequent class would be right for {words.percent(base)}"
            )
    else:
        says = f"Predictions for {scores.rows} miss by {words.number(own, 3)} (root mean square)"
        if base is not None:
            says += f"; always predicting the mean would miss by {words.number(base, 3)}"
    if not scores.held_out:
        says += ". The fit has seen these rows, so this is too good to expect of others"
    return Finding("Prediction", f"{says}.")


def _tree(study: Study) -> Finding:
    tree = study.tree
    if study.is_forest:
        leaves = sum(one.n_leaves for one in study.trees)
        together = words.count(leaves, "leaf", "leaves")
        says = f"{len(study.trees)} trees with {together} together; a prediction is their mean."
        return Finding("Forest", says)
    if tree.n_nodes == 0:
        return Finding("Tree", "The tree has one leaf: no split was worth its price.")
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
    chief = [name for name, _ in used_features([tree], study.features, node=0)[:FEW]]
    looks = f"it looks chiefly at {words.listed(chief)}"
    if study.sizes is None:
        n_facets = int(tree.n_facets[0])
        shape = "A single hyperplane" if n_facets == 1 else f"A polytope of {n_facets} facets"
    else:
        mode = int(study.size_table[0].argmax())
        low, high = study.sizes.interval()[0].astype(int)
        size = words.count(mode, "facet")
        shape = f"A polytope of {size} (90{words.SPACE}% interval {low} to {high})"
        if mode == high == 1:
            shape = "A single hyperplane"
    return Finding("First split", f"{shape}; {looks}.")


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
    if found.n_zero:
        rows = words.count(found.n_zero, "held-out row")
        says = f"Probabilities are too sure: of {rows} the class was given probability 0."
        return Finding("Calibration", says, "doubtful")
    ece = found.ece
    true = ece.value <= ece.if_calibrated + HIT * ece.error
    says = (
        f"Probabilities {'come true as far as the rows can tell' if true else 'are off'}: the "
        f"expected calibration error is {ece.value:.3f}; on so many rows true probabilities "
        f"would show {ece.if_calibrated:.3f} on average."
    )
    return Finding("Calibration", says, "ok" if true else "doubtful")


def _convergence(study: Study) -> Finding | None:
    found = study.convergence
    if found is None:
        return None
    says, tone = {
        "yes": ("The inference has settled.", "ok"),
        "doubtful": ("The inference has settled, with some doubt.", "doubtful"),
        "no": ("The inference has not settled: see the checks below.", "failed"),
        "not known": (
            "Too little was recorded to tell whether the inference has settled.",
            "doubtful",
        ),
    }[found.settled]
    if found.converged:
        says += f" Intervals of the nodes: {found.intervals}"
    return Finding("Convergence", says, tone)
