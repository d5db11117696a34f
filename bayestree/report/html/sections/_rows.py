"""Which features the splits use, and the rows by these."""

from bayestree.report.html import figures, words
from bayestree.report.html.features import used_features
from bayestree.report.html.sections._section import CLASS_KEY, Section
from bayestree.report.html.study import Study

MOST_USED = 15  # features listed


def features(study: Study) -> Section | None:
    """The share of each feature in the splits, and how far its coefficients were shrunk."""
    used = used_features(study.trees, study.features)
    if not used:
        return None
    factors = []
    if study.shrinkage is not None:
        for node in figures.first_nodes(study, figures.EXPERTS):
            drawn = figures.shrinkage_factors(study, node)
            if drawn is not None:
                factors.append((study.shrinkage.labels[node], drawn))
    top = used[0][1]
    return Section(
        "features",
        "Which features are used",
        {
            "used": [(name, share, share / top) for name, share in used[:MOST_USED]],
            "hidden": len(used) - MOST_USED,
            "unused": len(study.features) - len(used),
            "factors": factors,
        },
    )


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
    used = [name for name, _ in used_features(study.trees, study.features)[: figures.PAIRS]]
    chosen = [study.features.index(name) for name in used]
    if len(chosen) < 2:
        return None
    return Section(
        "view",
        "The rows",
        {
            "map": None,
            "pairs": figures.pairs(study, chosen),
            "n": words.quantity(min(len(study.scored), figures.POINTS)),
            "kind": study.scored.name,
            "key": list(enumerate(study.classes)) if len(study.classes) <= CLASS_KEY else [],
            "classifies": study.classifies,
        },
    )
