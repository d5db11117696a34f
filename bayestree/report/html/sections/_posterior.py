"""What the posterior says of the splits: their sizes, and how sure they are."""

from typing import Any

import numpy as np
from markupsafe import Markup

from bayestree.diagnostics import SplitUncertainty
from bayestree.report.html import charts, figures, words
from bayestree.report.html.sections._section import Section
from bayestree.report.html.study import Study
from bayestree.report.splits import UNSURE_MEANS
from bayestree.tree import Tree

LISTED = 12  # nodes in a table


def sizes(study: Study) -> Section | None:
    """How many facets each polytope has, and which experts carry them."""
    if study.sizes is None or study.shrinkage is None or (study.shrinkage.weight == 1).all():
        return None
    found, prior = study.sizes, study.prior_table
    nodes = figures.first_nodes(study, figures.EXPERTS)
    leaves = None
    if found.n_leaves is not None:
        table = found.leaf_probabilities()
        spoken = f"Posterior of the number of leaves in use: {charts.said_sizes(table)}"
        leaves = charts.sizes(table, None, spoken)
    return Section(
        "sizes",
        "How many facets",
        {
            "rows": [_size_row(study, node) for node in figures.first_nodes(study, LISTED)],
            "has_prior": prior is not None,
            "charts": [_size_chart(study, node) for node in figures.first_nodes(study)],
            "leaves": leaves,
            "experts": [(found.labels[node], figures.shrinkage(study, node)) for node in nodes],
            "hidden": max(0, study.tree.n_nodes - LISTED),
        },
    )


def _size_row(study: Study, node: int) -> dict[str, Any]:
    """The size of one polytope by three measures."""
    found, prior, tree = study.sizes, study.prior_table, study.tree
    assert found is not None
    table = study.size_table
    low, high = found.interval()[node].astype(int)
    expected = None if prior is None else float(prior[node] @ np.arange(prior.shape[1]))
    return {
        "path": found.labels[node],
        "point": int(tree.n_facets[node]) if isinstance(tree, Tree) else None,
        "posterior": words.posterior(int(found.median()[node]), low, high),
        "mode": int(table[node].argmax()),
        "share": float(table[node].max()),
        "prior": None if expected is None else f"{expected:.1f}",
        "weights": f"{found.weights[:, :, node].mean():.1f}",
        "effective": f"{found.effective[:, :, node].mean():.1f}",
    }


def _size_chart(study: Study, node: int) -> tuple[str, Markup]:
    """The posterior of the number of facets of one node, with its name."""
    label, own = study.tree.topology.node_labels[node], study.size_table[node]
    prior = None if study.prior_table is None else study.prior_table[node]
    spoken = f"Posterior of the number of facets of node {label}: {charts.said_sizes(own)}"
    return label, charts.sizes(own, prior, spoken)


def doubt(study: Study) -> Section | None:
    """How sure the splits are of the rows that were asked."""
    if study.uncertainty is None or study.asked is None:
        return None
    return Section(
        "doubt",
        "How sure the splits are",
        {
            "rows": [_doubt_row(study, node) for node in figures.first_nodes(study, LISTED)],
            "panels": figures.doubt(study, figures.first_nodes(study)),
            "asked": study.asked.counted,
            "means": UNSURE_MEANS,
            "shares": _origin(study.uncertainty),
            "hidden": max(0, study.tree.n_nodes - LISTED),
        },
    )


def _doubt_row(study: Study, node: int) -> dict[str, Any]:
    row = study.doubt_table.iloc[node]
    return {
        "path": study.tree.topology.node_labels[node],
        "rows": words.quantity(float(row["rows"])),
        "disagreement": words.percent(float(row["disagreement"])),
        "unsure": words.percent(float(row["unsure"])),
        "share": float(np.nan_to_num(row["unsure"])),
    }


def _origin(found: SplitUncertainty) -> str:
    """How much of the uncertainty of y more rows would lessen, in words."""
    if found.total_entropy is not None and found.mutual_information is not None:
        what, unit = "entropy", "nats"
        total, ours = found.total_entropy.mean(), found.mutual_information.mean()
    elif found.total_variance is not None and found.explained is not None:
        what, unit = "variance", "squared units of y"
        total, ours = found.total_variance.mean(), found.explained.mean()
    else:
        return ""
    share = float(ours / total) if total > 0 else 0.0
    return (
        f"The mean {what} of a prediction is {words.number(float(total), 3)} {unit}. "
        f"{words.percent(share)} of it lies in the posterior, and more rows would lessen it; the "
        "rest lies in the data."
    )
