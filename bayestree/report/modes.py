"""The trees of a mixture: their weights, what they have in common, and where they differ."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import FloatArray
from bayestree.description import Mode, modes_of, shown_mode
from bayestree.export.text import export_text
from bayestree.report import text
from bayestree.report.rows import (
    LabelledRows,
    PermutationImportance,
    most_important,
    permutation_importance,
)
from bayestree.report.study import Study
from bayestree.report.trees import LabelledTree, drawing, sheets

MODES_SHOWN = 3  # trees that are drawn and written out
LEVELS = 2  # splits below each other in a drawing, so that trees fit beside each other
FEATURES = 8  # features whose importance is compared
GROUPS = 5  # leaves of the shown tree in which the trees differ most
NAMED = 2  # features that a node names
COMPARED_ROWS = 500  # rows on which trees are compared


def compared_modes(study: Study) -> dict[str, Any] | None:
    """The trees of a mixture, the most probable first, and how far they differ."""
    found = modes_of(study.estimator)
    if not found:
        return None
    rows = None if study.evaluated is None else study.evaluated.sample(COMPARED_ROWS)
    own, shown = shown_mode(study.estimator), []
    for mode in found:
        line = {
            "number": mode.number,
            "weight": mode.weight,
            "leaves": mode.estimator.get_n_leaves(),
            "depth": mode.estimator.get_depth(),
            "is_shown": own is not None and mode.number == own.number,
        }
        if rows is not None:
            apart, alike = _differences(study, mode.estimator, rows)
            line |= {"apart": text.number(apart), "alike": alike}
        shown.append(line)
    first = found[:MODES_SHOWN]
    used = [
        None if rows is None else permutation_importance([m.estimator.tree_], rows, study.encoding)
        for m in first
    ]
    drawn = [
        {
            "number": mode.number,
            "weight": mode.weight,
            "drawing": _drawing(study, mode, own_use),
            "text": export_text(mode.estimator.tree_, max_features=2, max_facets=2),
        }
        for mode, own_use in zip(first, used, strict=True)
    ]
    return {
        "modes": shown,
        "trees": drawn,
        "distilled": own is None,
        "features": _features(study, [one.total for one in used if one is not None]),
        "groups": [] if rows is None else _groups(study, found, rows),
        "rows": "" if rows is None else rows.counted,
    }


def _drawing(study: Study, mode: Mode, used: PermutationImportance | None) -> Markup:
    """The upper splits of a mode, with the features that matter most to each."""
    tree = mode.estimator.tree_
    labelled = LabelledTree(study, tree, f"m{mode.number}-")
    used_by: list[str] = []
    if used is not None:
        orders = [most_important(share)[:NAMED] for share in used.nodes[0]]
        used_by = [", ".join(study.columns[j] for j in order) for order in orders]
    shown = tree.topology.node_depth < LEVELS
    sheet = sheets(tree.topology, labelled.node_rows, shown)[0]
    return drawing(study, labelled, sheet, used_by, linked=False)


def _features(study: Study, totals: Sequence[FloatArray]) -> list[tuple[str, list[float]]]:
    """The most important features, with their importance for each tree."""
    table = np.array(totals).reshape(len(totals), len(study.columns))
    order = np.argsort(-table.sum(axis=0), kind="stable")[:FEATURES]
    return [(study.columns[j], table[:, j].tolist()) for j in order if table[:, j].any()]


def _groups(study: Study, found: Sequence[Mode], rows: LabelledRows) -> list[dict[str, Any]]:
    """The leaves of the shown tree in which the modes disagree most about the rows.

    A mode disagrees about a row if it predicts another class than the mixture; in regression the
    disagreement is the standard deviation of the predictions.
    """
    whole: Any = study.estimator
    each = np.array([mode.estimator.predict(rows.X) for mode in found])
    mean, weights = whole.predict(rows.X), np.array([mode.weight for mode in found])
    apart = weights @ (each != mean if study.classifies else (each - mean) ** 2)
    size = apart if study.classifies else np.sqrt(apart)
    leaf, tree = whole.apply(rows.X), study.tree
    total = np.bincount(leaf, size, tree.n_leaves)
    count = np.bincount(leaf, minlength=tree.n_leaves)
    paths = LabelledTree(study, tree)
    return [
        {
            "path": paths.anchor(~one),
            "rows": int(count[one]),
            "apart": text.percent(share) if study.classifies else text.number(share),
        }
        for one in np.argsort(-total, kind="stable")[:GROUPS]
        if (share := float(total[one] / max(count[one], 1))) > 0
    ]


def _differences(study: Study, mode: Any, rows: LabelledRows) -> tuple[float, float]:
    """Mean distance of a mode's predictions from the mixture's, and agreement about leaves.

    The latter is the share of the pairs of rows that its tree and the shown one both put into one
    leaf or both into two.
    """
    whole: Any = study.estimator
    predict = "predict_proba" if study.classifies else "predict"
    apart = np.abs(getattr(mode, predict)(rows.X) - getattr(whole, predict)(rows.X)).mean()
    together = [leaf[:, None] == leaf for leaf in (mode.apply(rows.X), whole.apply(rows.X))]
    pairs = np.triu_indices(len(rows), 1)
    return float(apart), float((together[0] == together[1])[pairs].mean()) if len(rows) > 1 else 1.0
