"""The sections of a report: each function returns one, or None if there is nothing to show."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from bayestree._utils.arrays import FloatArray, class_numbers
from bayestree._utils.progress import steps_of
from bayestree._utils.wording import counted, quantity
from bayestree.description import POLYTOPE_RULE, modes_of
from bayestree.diagnostics import SplitUncertainty
from bayestree.diagnostics.draws import VARIATIONAL
from bayestree.report import figures, rows, text
from bayestree.report.cards import leaf_cards, node_cards
from bayestree.report.modes import compared_modes
from bayestree.report.scores import confusion_of, is_recorded, scores_of
from bayestree.report.study import Study
from bayestree.report.trees import (
    FEW,
    LabelledTree,
    Sheet,
    drawing,
    outline,
    sheets,
    shown_nodes,
)
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

CLASS_KEY = 20  # maximum number of classes in a key of colours
DRAWN_LEAVES = 400  # maximum number of leaves of the drawn trees of a forest
LISTED = 12  # nodes in a table
MAX_USED = 15  # maximum number of features in a table


class Section(NamedTuple):
    """A part of the report: its anchor, its heading, and the variables of its template."""

    name: str
    title: str
    shown: Mapping[str, Any]


def sections(study: Study) -> list[Section]:
    """All sections with something to show."""
    makers: tuple[Callable[[Study], Section | None], ...] = (
        data, tree, modes, evidence, sizes, uncertainty, features, view, scores, convergence,
        repeat,
    )  # fmt: skip
    made = (make(study) for make in steps_of(makers, "sections"))
    return [section for section in made if section is not None]


def data(study: Study) -> Section:
    """The training data."""
    y = None if study.train is None else study.train.y
    classes, quartiles = [], None
    if study.train is not None and y is not None and study.classifies:
        label = class_numbers(y, study.labels)
        total = np.bincount(label, study.train.weights, len(study.classes))
        classes = [
            (label, name, quantity(float(total[label])), float(total[label] / total.sum()))
            for label, name in enumerate(study.classes)
        ]
    elif y is not None:
        values = np.quantile(y.astype(np.float64), [0, 0.25, 0.5, 0.75, 1])
        quartiles = [text.number(float(value)) for value in values]
    units = zip(study.features, study.tree.center.tolist(), study.tree.scale.tolist(), strict=True)
    shown = {
        "facts": _facts(study),
        "classes": classes,
        "quartiles": quartiles,
        "features": [(name, text.number(mean), text.number(unit)) for name, mean, unit in units],
    }
    return Section("data", "Data", shown)


def _facts(study: Study) -> list[tuple[str, str]]:
    facts = []
    if study.data.get("path"):
        facts.append(("File", Path(study.data["path"]).name))  # without folders of this machine
    named = {"target": "Target", "task": "Task", "weights": "Weights"}
    facts += [(name, str(study.data[key])) for key, name in named.items() if study.data.get(key)]
    facts.append(("Training rows", quantity(study.training_rows)))
    if study.held is not None and len(study.held):
        n_held = max(len(study.held), int(study.metrics.get("scored_rows", 0)))
        facts.append(("Held-out rows", quantity(n_held)))
    if study.posterior is not None and study.train is not None and study.train.extra is not None:
        name = f"Sum of the {study.posterior.model.leaf.extra}s"
        facts.append((name, quantity(float(study.train.weights @ study.train.extra))))
    if not study.encoding.is_plain:
        facts.append(("Columns", str(len(study.columns))))
    facts.append(("Features", str(len(study.features))))
    facts += [("Warning", warning) for warning in study.manifest.get("warnings", [])]
    return facts


def tree(study: Study) -> Section:
    """The drawn tree, or the first trees of a forest."""
    drawn, leaves = [], 0
    for place, tree in enumerate(study.trees):
        leaves += tree.n_leaves
        if place and leaves > DRAWN_LEAVES:
            break
        prefix = f"t{place + 1}-" if study.is_forest else ""
        drawn.append(_drawn(study, tree, prefix, f"Tree {place + 1} of {len(study.trees)}"))
    return Section(
        "tree",
        "Trees" if study.is_forest else "Tree",
        {
            "trees": drawn,
            "more": len(study.trees) - len(drawn),
            "key": _class_key(study),
            "sides": drawn[0]["tree"].side_names,
            "rule": POLYTOPE_RULE,
            "uncertain": study.uncertainty is not None,
            "rows": study.evaluated.counted if study.evaluated is not None else "",
            "definition": rows.UNCERTAIN_DEFINITION,
            "has_draws": study.has_split_draws,
            "n_draws": study.n_draws,
            "classifies": study.classifies,
        },
    )


def modes(study: Study) -> Section | None:
    """The most probable trees of a mixture."""
    shown = compared_modes(study)
    return None if shown is None else Section("modes", "Modes of the posterior", shown)


def evidence(study: Study) -> Section | None:
    """The evidence and the posterior of the size of the tree, if its topology was sampled."""
    shown = _sampled_sizes(study)
    return None if shown is None else Section("evidence", "Evidence and size of the tree", shown)


def _sampled_sizes(study: Study) -> dict[str, Any] | None:
    """The log evidence, and charts and tables of the number of leaves and of the depth."""
    found = None if study.convergence is None else study.convergence.evidence
    if found is None:
        return None
    several = len(found.runs) > 1
    return {
        "log_evidence": text.with_minus(f"{found.log_evidence:,.2f}"),
        "error": f"{found.standard_error:.2f}" if several else "",
        "runs": counted(len(found.runs), "run"),
        "several": several,
        "tables": [
            _size_table("Number of leaves", found.leaf_probabilities),
            _size_table("Depth", found.depth_probabilities),
        ],
    }


def _size_table(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """A chart and the rows of a table of the posterior of a size."""
    probability, error = table["probability"].to_numpy(), table["error"].to_numpy()
    posterior = np.bincount(table.index, probability).astype(np.float64)
    return {
        "name": name,
        "chart": figures.sizes(posterior, None, f"{name}, posterior probabilities"),
        "rows": [*zip(table.index, probability.tolist(), error.tolist(), strict=True)],
    }


def _class_key(study: Study) -> list[tuple[int, str]]:
    return list(enumerate(study.classes)) if len(study.classes) <= CLASS_KEY else []


def _drawn(study: Study, tree: RoutedTree, prefix: str, name: str) -> dict[str, Any]:
    """A tree with its sheets and the descriptions of its nodes and leaves."""
    labelled = LabelledTree(study, tree, prefix)
    shown = shown_nodes(labelled.node_rows)
    found = sheets(tree.topology, labelled.node_rows, shown)
    leaves = [~tip for sheet in found for tip in sheet.tips if tip < 0]
    return {
        "name": name,
        "tree": labelled,
        "n_leaves": tree.n_leaves,
        "sheets": [_sheet(study, labelled, sheet) for sheet in found],
        "beside": len(found) == 1 and len(found[0].tips) <= FEW,
        "nodes": node_cards(study, labelled, shown),
        "leaves": leaf_cards(study, labelled, leaves),
        "hidden": tree.n_nodes - int(shown.sum()),
    }


def _sheet(study: Study, labelled: LabelledTree, sheet: Sheet) -> dict[str, Any]:
    path = labelled.path(sheet.root)
    ends = [] if path == "root" else ["root", *(path[:n] for n in range(1, len(path) + 1))]
    return {
        "anchor": labelled.anchor(sheet.root),
        "first": path == "root",
        "above": [(f"{labelled.prefix}{end}", end) for end in ends],
        "drawing": drawing(study, labelled, sheet),
        "outline": outline(labelled, sheet),
    }


def sizes(study: Study) -> Section | None:
    """The number of facets of each polytope, and the experts that contribute them."""
    if study.sizes is None or study.shrinkage is None or (study.shrinkage.weight == 1).all():
        return None
    found = study.sizes
    nodes = figures.first_nodes(study, figures.EXPERTS)
    leaves = None
    if found.n_leaves is not None:
        title = "Posterior of the number of leaves in use by a draw"
        leaves = figures.sizes(found.leaf_probabilities(), None, title)
    return Section(
        "sizes",
        "Number of facets",
        {
            "rows": [_size_row(study, node) for node in figures.first_nodes(study, LISTED)],
            "has_prior": study.size_prior is not None,
            "meaning": found.meaning,
            "variational": VARIATIONAL if found.variational else "",
            "charts": [_size_chart(study, node) for node in figures.first_nodes(study)],
            "leaves": leaves,
            "experts": [figures.shrinkage(study, node) for node in nodes],
            "hidden": max(0, study.tree.n_nodes - LISTED),
        },
    )


def _size_row(study: Study, node: int) -> dict[str, Any]:
    found, prior, tree = study.sizes, study.size_prior, study.tree
    assert found is not None
    table = study.size_posterior[node]
    expected = None if prior is None else float(prior[node] @ np.arange(prior.shape[1]))
    return {
        "path": found.labels[node],
        "point": int(tree.n_facets[node]) if isinstance(tree, Tree) else None,
        "posterior": study.size_text(node),
        "mode": int(table.argmax()),
        "share": float(table.max()),
        "prior": None if expected is None else f"{expected:.1f}",
        "box": f"{found.facets[:, :, node].mean():.1f}",
        "weights": f"{found.weights[:, :, node].mean():.1f}",
        "effective": f"{found.effective[:, :, node].mean():.1f}",
    }


def _size_chart(study: Study, node: int) -> tuple[str, Markup]:
    label = study.tree.topology.node_labels[node]
    prior = None if study.size_prior is None else study.size_prior[node]
    title = f"Posterior of the number of facets of node {label}"
    return label, figures.sizes(study.size_posterior[node], prior, title)


def uncertainty(study: Study) -> Section | None:
    """Uncertainty of the splits about the rows on which they are judged."""
    if study.uncertainty is None or study.evaluated is None:
        return None
    return Section(
        "uncertainty",
        "Uncertainty of the splits",
        {
            "rows": [_uncertainty_row(study, node) for node in figures.first_nodes(study, LISTED)],
            "panels": figures.split_uncertainty(study, figures.first_nodes(study)),
            "measured_on": study.evaluated.counted,
            "definition": rows.UNCERTAIN_DEFINITION,
            "sources": _sources(study.uncertainty),
            "hidden": max(0, study.tree.n_nodes - LISTED),
        },
    )


def _uncertainty_row(study: Study, node: int) -> dict[str, Any]:
    row = study.uncertainty_table.iloc[node]
    return {
        "path": study.tree.topology.node_labels[node],
        "rows": quantity(float(row["rows"])),
        "disagreement": text.percent(float(row["disagreement"])),
        "uncertain": text.percent(float(row["unsure"])),
        "share": float(np.nan_to_num(row["unsure"])),
    }


def _sources(found: SplitUncertainty) -> str:
    """The share of the uncertainty of y that more rows would reduce, as a sentence."""
    if found.total_entropy is not None and found.mutual_information is not None:
        what, unit = "entropy", "nats"
        total, posterior = found.total_entropy.mean(), found.mutual_information.mean()
    elif found.total_variance is not None and found.explained is not None:
        what, unit = "variance", "squared units of y"
        total, posterior = found.total_variance.mean(), found.explained.mean()
    else:
        return ""
    share = float(posterior / total) if total > 0 else 0.0
    return (
        f"The mean {what} of a prediction is {text.number(float(total), 3)} {unit}. Of this, "
        f"{text.percent(share)} is due to uncertainty about the tree, which more rows would "
        "reduce; the rest is noise in the data."
    )


def features(study: Study) -> Section | None:
    """The importance of each feature, and the shrinkage of its coefficients."""
    found = study.importance
    factors = []
    if study.shrinkage is not None:
        nodes = figures.first_nodes(study, figures.EXPERTS)
        factors = [chart for node in nodes if (chart := figures.shrinkage_factors(study, node))]
    if found is None and not factors:
        return None
    total = np.zeros(len(study.columns)) if found is None else found.total
    used = np.argsort(-total, kind="stable")[: np.count_nonzero(total)]
    return Section(
        "features",
        "Features",
        {
            "used": [
                (study.columns[j], float(total[j]), float(total[j] / total[used[0]]))
                for j in used[:MAX_USED]
            ],
            "hidden": len(used) - MAX_USED,
            "unused": len(study.columns) - len(used),
            "image": _importance_image(study, total),
            "measured_on": "" if study.evaluated is None else study.evaluated.counted,
            "definition": rows.IMPORTANCE_DEFINITION,
            "factors": factors,
            "noun": "feature" if study.encoding.is_plain else "column",
        },
    )


def _importance_image(study: Study, total: FloatArray) -> Markup | None:
    if study.image_shape is None or not total.any():
        return None
    alt = "Importance of each pixel: dark pixels are important"
    return figures.grey_image(total, 0.0, float(total.max()), study.image_shape, alt)


def view(study: Study) -> Section | None:
    """The map of a tree of two numbers, or pair plots of the most important columns."""
    shown: dict[str, Any] = {"classifies": study.classifies, "map": None}
    if study.tree.n_features == 2 and study.encoding.is_plain and not study.is_forest:
        shown |= {"map": figures.boundary(study), "has_draws": study.has_split_draws}
        return Section("view", "Map", shown)
    if study.scored is None or len(study.columns) < 2 or study.importance is None:
        return None
    total = study.importance.total
    used = np.argsort(-total, kind="stable")[: min(figures.PAIRS, np.count_nonzero(total))]
    if len(used) < 2:
        return None
    n_rows = min(len(study.scored), figures.POINTS)
    shown |= {
        "pairs": figures.pairs(study, used.tolist()),
        "rows": counted(n_rows, study.scored.kind.removesuffix("s")),
        "key": _class_key(study),
    }
    return Section("view", "Rows", shown)


def scores(study: Study) -> Section | None:
    """Scores, the confusion matrix, and calibration or coverage."""
    found = scores_of(study)
    if found is None:
        return None
    shown: dict[str, Any] = {
        "scores": found,
        "recorded": is_recorded(study),
        "n": 0 if study.scored is None else len(study.scored),
        "confusion": confusion_of(study),
        "calibration": None,
        "predicted": None,
        "coverage": None,
    }
    if study.calibration is not None:
        shown["calibration"] = figures.calibration(study)
        shown["bins"] = study.calibration.bins.to_dict("records")
    if not study.classifies:
        shown["predicted"] = None if study.survives else figures.predicted(study)
        shown["has_draws"] = study.has_draws
        inside = figures.coverage_of(study)
        if inside is not None and study.scored is not None:
            shown["coverage"] = figures.coverage(inside, len(study.scored.sample()))
            shown["inside"] = text.percent(float(inside[-1]))
    return Section("scores", "Quality of the predictions", shown)


def convergence(study: Study) -> Section | None:
    """The verdicts on the inference, each with its remedy."""
    if study.is_forest:
        return None
    found = study.convergence
    shown: dict[str, Any] = {"found": found, "inference": study.inference}
    if found is not None:
        shown["elbo"] = figures.elbo(study)
        shown["quantities"] = [
            {
                "name": name,
                "vary": int(row["vary"]),
                "r_hat": f"{row['r_hat']:.3f}",
                "bulk": f"{row['ess_bulk']:,.0f}",
                "tail": f"{row['ess_tail']:,.0f}",
                "worst": row["worst"],
            }
            for name, row in found.quantities.iterrows()
        ]
    return Section("convergence", "Convergence", shown)


def repeat(study: Study) -> Section:
    """The command, and everything on which the fit depends."""
    manifest = study.manifest
    parameters = study.estimator.get_params(deep=False)
    started, stages = manifest.get("started"), manifest.get("seconds", {})
    time = "" if started is None else f"{datetime.fromisoformat(started):%Y-%m-%d %H:%M} UTC"
    return Section(
        "repeat",
        "How to reproduce the fit",
        {
            "command": study.command,
            "estimator": type(study.estimator).__name__,
            "parameters": [
                (name, repr(value), ", ".join(map(text.number, study.learned_prior.get(name, ()))))
                for name, value in sorted(parameters.items())
            ],
            "several_modes": len(modes_of(study.estimator)) > 1,
            "versions": sorted(dict(manifest.get("versions", {})).items()),
            "run_file": study.run_file,
            "seconds": ", ".join(
                f"{name} {seconds:,.1f}" for name, seconds in stages.items() if seconds >= 0.05
            ),
            "sha256": study.data.get("sha256"),
            "started": time,
            "seed": manifest.get("seed"),
        },
    )
