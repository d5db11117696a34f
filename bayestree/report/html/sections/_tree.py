"""The tree, with the description of each node and leaf."""

from typing import Any, NamedTuple

from bayestree.report.html.labels import Labels, labels_of
from bayestree.report.html.lying import lying
from bayestree.report.html.nodes import LeafCard, NodeCard, leaf_cards, node_cards
from bayestree.report.html.sections._section import CLASS_KEY, Section
from bayestree.report.html.sheets import Sheet, sheets, shown_nodes
from bayestree.report.html.standing import is_small, standing
from bayestree.report.html.study import Study
from bayestree.report.splits import UNSURE_MEANS
from bayestree.routed_tree import RoutedTree

DRAWN_LEAVES = 400  # of the trees of a forest that are drawn


class Drawn(NamedTuple):
    """A tree with its sheets and the descriptions of its nodes and leaves."""

    name: str
    labels: Labels
    sheets: list[dict[str, Any]]
    nodes: list[NodeCard]
    leaves: list[LeafCard]
    hidden: int


def tree(study: Study) -> Section:
    """The drawn tree, or those of a forest that are drawn."""
    drawn, leaves = [], 0
    for place, tree in enumerate(study.trees):
        leaves += tree.n_leaves
        if place and leaves > DRAWN_LEAVES:
            break
        prefix = f"t{place + 1}-" if study.is_forest else ""
        drawn.append(_drawn(study, tree, prefix, f"Tree {place + 1} of {len(study.trees)}"))
    return Section(
        "tree",
        "The trees" if study.is_forest else "The tree",
        {
            "trees": drawn,
            "more": len(study.trees) - len(drawn),
            "key": list(enumerate(study.classes)) if len(study.classes) <= CLASS_KEY else [],
            "sided": drawn[0].labels.sides,
            "doubt": study.uncertainty is not None,
            "asked": study.asked.counted if study.asked is not None else "",
            "unsure_means": UNSURE_MEANS,
            "drawn": study.splits_drawn,
            "n_draws": study.n_draws,
            "classifies": study.classifies,
        },
    )


def _drawn(study: Study, tree: RoutedTree, prefix: str, name: str) -> Drawn:
    labels = labels_of(study, tree, prefix)
    shown = shown_nodes(tree.topology, labels.rows)
    found = sheets(tree.topology, labels.rows, shown)
    leaves = [~tip for sheet in found for tip in sheet.tips if tip < 0]
    return Drawn(
        name=name,
        labels=labels,
        sheets=[_sheet(labels, sheet, place) for place, sheet in enumerate(found)],
        nodes=node_cards(study, labels, shown),
        leaves=leaf_cards(study, labels, leaves),
        hidden=tree.n_nodes - int(shown.sum()),
    )


def _sheet(labels: Labels, sheet: Sheet, place: int) -> dict[str, Any]:
    path = labels.path(sheet.root)
    ends = [] if path == "root" else ["root", *(path[:n] for n in range(1, len(path) + 1))]
    return {
        "at": f"{labels.prefix}{path}",
        "path": path,
        "first": place == 0,
        "above": [(f"{labels.prefix}{end}", end) for end in ends],
        "standing": standing(labels, sheet),
        "lying": lying(labels, sheet),
        "small": is_small(sheet),
    }
