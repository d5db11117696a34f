"""Which features the splits use, and the rows by these."""

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import FloatArray
from bayestree.report import splits
from bayestree.report.html import figures, images, words
from bayestree.report.html.sections._section import CLASS_KEY, Section
from bayestree.report.html.study import Study

MOST_USED = 15  # features listed


def features(study: Study) -> Section | None:
    """The share of each feature in the splits, and how far its coefficients were shrunk."""
    found = study.importance
    factors = []
    if study.shrinkage is not None:
        for node in figures.first_nodes(study, figures.EXPERTS):
            drawn = figures.shrinkage_factors(study, node)
            if drawn is not None:
                factors.append((study.shrinkage.labels[node], drawn))
    if found is None and not factors:
        return None
    total = np.zeros(len(study.features)) if found is None else found.total
    used = np.argsort(-total, kind="stable")[: np.count_nonzero(total)]
    asked = "" if study.asked is None else study.asked.counted
    return Section(
        "features",
        "Which features are used",
        {
            "used": [
                (study.features[j], float(total[j]), float(total[j] / total[used[0]]))
                for j in used[:MOST_USED]
            ],
            "hidden": len(used) - MOST_USED,
            "unused": len(study.features) - len(used),
            "image": _map_of(study, total),
            "asked": asked,
            "means": splits.IMPORTANCE_MEANS,
            "factors": factors,
        },
    )


def _map_of(study: Study, total: FloatArray) -> Markup | None:
    """The importance of the pixels as an image."""
    if study.image_shape is None or not total.any():
        return None
    return images.shades(total, study.image_shape, "Importance of each pixel: dark is important")


def view(study: Study) -> Section | None:
    """The map of a tree of two features; of more, pairs of those that are used most."""
    linear_map = study.tree.n_features == 2 and not study.is_forest
    if linear_map:
        return Section(
            "view",
            "The map",
            {"map": figures.boundary(study), "drawn": study.splits_drawn, "pairs": [],
             "classifies": study.classifies},
        )  # fmt: skip
    if study.scored is None or study.tree.n_features < 2:
        return None
    if study.importance is None:
        return None
    total = study.importance.total
    chosen = np.argsort(-total, kind="stable")[: min(figures.PAIRS, np.count_nonzero(total))]
    if len(chosen) < 2:
        return None
    return Section(
        "view",
        "The rows",
        {
            "map": None,
            "pairs": figures.pairs(study, chosen.tolist()),
            "n": words.quantity(min(len(study.scored), figures.POINTS)),
            "kind": study.scored.name,
            "key": list(enumerate(study.classes)) if len(study.classes) <= CLASS_KEY else [],
            "classifies": study.classifies,
        },
    )
