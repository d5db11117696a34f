"""The trees of a mixture: their weights, what they have in common, and where they differ."""

from typing import Any

import numpy as np

from bayestree.fitted import modes_of, shown_mode
from bayestree.report.html import text
from bayestree.report.html.study import Study
from bayestree.report.rows import Rows
from bayestree.report.text import export_text

MODES_SHOWN = 3  # trees that are written out
COMPARED_ROWS = 500  # rows on which they are compared


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
    drawn = [
        (mode.number, mode.weight, export_text(mode.estimator.tree_, max_features=2, max_facets=2))
        for mode in found[:MODES_SHOWN]
    ]
    return {"modes": shown, "trees": drawn, "rows": "" if rows is None else rows.counted}


def _differences(study: Study, mode: Any, rows: Rows) -> tuple[float, float]:
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
