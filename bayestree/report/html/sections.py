"""The sections of a report: what each shows, and where there is nothing to show, why."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bayestree.report.html import charts, figures, words
from bayestree.report.html.drawing import lying, standing
from bayestree.report.html.features import used_features
from bayestree.report.html.labels import Labels, labels_of
from bayestree.report.html.nodes import leaf_cards, node_cards
from bayestree.report.html.scores import confusion_of, scores_of
from bayestree.report.html.sheets import Sheet, sheets, shown_nodes
from bayestree.report.html.study import Study
from bayestree.routed_tree import RoutedTree

MOST_USED = 15  # features listed
DRAWN_LEAVES = 400  # of the trees of a forest that are drawn
CLASS_KEY = 20  # classes in a key of colours


class Section(NamedTuple):
    """A part of the report: its place in the page, heading, and what its template is given."""

    name: str
    title: str
    shown: Mapping[str, Any]


def sections(study: Study) -> list[Section]:
    """All sections for which there is something to show."""
    makers: list[Callable[[Study], Section | None]] = [
        _data,
        _tree,
        _sizes,
        _doubt,
        _features,
        _view,
        _scores,
        _convergence,
        _repeat,
    ]
    return [section for make in makers if (section := make(study)) is not None]


def _data(study: Study) -> Section:
    tree = study.tree
    classes = []
    if study.classifies:
        total = (tree.leaf_rows[:, None] * tree.value).sum(axis=0)
        classes = [
            (label, name, words.quantity(float(total[label])), float(total[label] / total.sum()))
            for label, name in enumerate(study.classes)
        ]
    span = None
    if not study.classifies and study.train is not None and study.train.y is not None:
        y = study.train.y.astype(np.float64)
        span = [words.number(float(q)) for q in np.quantile(y, [0, 0.25, 0.5, 0.75, 1])]
    return Section(
        "data",
        "The data",
        {
            "facts": _facts(study),
            "classes": classes,
            "span": span,
            "features": [
                (name, words.number(float(center)), words.number(float(scale)))
                for name, center, scale in zip(study.features, tree.center, tree.scale, strict=True)
            ],
        },
    )


def _facts(study: Study) -> list[tuple[str, str]]:
    """What is known of the table."""
    data = dict(study.data)
    facts = []
    for key, name in (
        ("path", "File"),
        ("target", "Predicted"),
        ("task", "Task"),
        ("weights", "Weights"),
    ):
        if data.get(key):
            facts.append((name, str(data[key])))
    facts.append(("Training rows", words.quantity(study.training_rows)))
    if study.held is not None and len(study.held):
        facts.append(("Held-out rows", words.quantity(len(study.held))))
    facts.append(("Features", str(len(study.features))))
    return facts


class Drawn(NamedTuple):
    """A tree with its sheets and the descriptions of its nodes and leaves."""

    name: str
    labels: Labels
    sheets: list[dict[str, Any]]
    nodes: list[Any]
    leaves: list[Any]
    hidden: int


def _tree(study: Study) -> Section:
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
            "asked": study.asked.name if study.asked is not None else "",
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
        "wide": len(sheet.tips) > 4,
    }


def _sizes(study: Study) -> Section | None:
    if study.sizes is None or study.shrinkage is None:
        return None
    if (study.shrinkage.weight == 1).all():
        return None
    table = study.size_table
    found, prior = study.sizes, study.prior_table
    low_high = found.interval().astype(int)
    rows = []
    for node in figures.first_nodes(study, 12):
        expected = None if prior is None else float(prior[node] @ np.arange(prior.shape[1]))
        rows.append(
            {
                "path": found.labels[node],
                "mode": int(table[node].argmax()),
                "low": low_high[node, 0],
                "high": low_high[node, 1],
                "share": float(table[node].max()),
                "prior": None if expected is None else f"{expected:.1f}",
                "weights": f"{found.weights[:, :, node].mean():.1f}",
                "effective": f"{found.effective[:, :, node].mean():.1f}",
            }
        )
    nodes = figures.first_nodes(study, figures.EXPERTS)

    return Section(
        "sizes",
        "How many facets",
        {
            "rows": rows,
            "has_prior": prior is not None,
            "charts": [
                (
                    found.labels[node],
                    charts.sizes(
                        table[node],
                        None if prior is None else prior[node],
                        f"Posterior of the facets of {found.labels[node]}: {charts.said_sizes(table[node])}",
                    ),
                )
                for node in figures.first_nodes(study, figures.FIRST)
            ],
            "leaves": None
            if found.n_leaves is None
            else charts.sizes(found.leaf_probabilities(), None, "Posterior of the leaves in use"),
            "experts": [(found.labels[node], figures.shrinkage(study, node)) for node in nodes],
            "hidden": max(0, study.tree.n_nodes - 12),
        },
    )


def _doubt(study: Study) -> Section | None:
    if study.uncertainty is None or study.asked is None:
        return None
    frame = study.doubt_table
    nodes = figures.first_nodes(study)
    parts = study.uncertainty
    shares = None
    if parts.mutual_information is not None and parts.total_entropy is not None:
        total = float(parts.total_entropy.mean())
        shares = ("entropy", total, float(parts.mutual_information.mean()))
    elif parts.explained is not None and parts.total_variance is not None:
        shares = ("variance", float(parts.total_variance.mean()), float(parts.explained.mean()))
    return Section(
        "doubt",
        "How sure the splits are",
        {
            "rows": [
                {
                    "path": str(frame.index[node]),
                    "rows": words.quantity(round(float(frame["rows"].iloc[node]), 1)),
                    "disagreement": words.percent(float(frame["disagreement"].iloc[node])),
                    "unsure": words.percent(float(frame["unsure"].iloc[node])),
                    "share": float(np.nan_to_num(frame["unsure"].iloc[node])),
                }
                for node in figures.first_nodes(study, 12)
            ],
            "panels": [figures.doubt(study, node) for node in nodes],
            "asked": study.asked.name,
            "n": words.quantity(len(study.asked)),
            "shares": None if shares is None else _told(shares),
            "hidden": max(0, study.tree.n_nodes - 12),
        },
    )


def _told(shares: tuple[str, float, float]) -> str:
    """How much of the uncertainty more rows would lessen, in words."""
    what, total, ours = shares
    unit = "nats" if what == "entropy" else "squared units of y"
    share = ours / total if total > 0 else 0.0
    return (
        f"The mean {what} of a prediction is {words.number(total, 3)} {unit}. "
        f"{words.percent(share)} of it lies in the posterior, and more rows would lessen it; the "
        "rest lies in the data."
    )


def _features(study: Study) -> Section | None:
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


def _view(study: Study) -> Section | None:
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


def _scores(study: Study) -> Section | None:
    found = scores_of(study)
    if found is None:
        return None
    shown: dict[str, Any] = {
        "scores": found,
        "confusion": confusion_of(study),
        "calibration": None,
        "predicted": None,
        "coverage": None,
    }
    if study.calibration is not None:
        shown["calibration"] = figures.calibration(study)
        shown["ece"] = study.calibration.ece
        shown["bins"] = study.calibration.bins.to_dict("records")
    if not study.classifies:
        shown["predicted"] = figures.predicted(study)
        inside = figures.coverage_of(study)
        if inside is not None and study.scored is not None:
            n = len(study.scored.sample())
            shown["coverage"] = figures.coverage(inside, n)
            shown["inside"] = words.percent(float(inside[-1]))
        shown["drawn"] = study.drawn
    return Section("scores", "How good the predictions are", shown)


def _convergence(study: Study) -> Section | None:
    found = study.convergence
    if found is None:
        if study.is_forest:
            return None
        return Section(
            "convergence",
            "Whether the fit has settled",
            {"point": True, "inference": study.inference},
        )
    has_trace = "elbo" in study.estimator.posterior_.stats
    quantities = [
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
    return Section(
        "convergence",
        "Whether the fit can be trusted",
        {
            "point": False,
            "found": found,
            "inference": study.inference,
            "n_draws": study.n_draws,
            "elbo": figures.elbo(study) if has_trace else None,
            "quantities": quantities,
        },
    )


def _repeat(study: Study) -> Section:
    parameters = study.estimator.get_params(deep=False)
    manifest = dict(study.manifest)
    versions = manifest.get("versions") or {}
    stages = manifest.get("seconds") or manifest.get("stages") or {}
    return Section(
        "repeat",
        "How to repeat it",
        {
            "command": study.command,
            "estimator": type(study.estimator).__name__,
            "parameters": [(name, repr(value)) for name, value in sorted(parameters.items())],
            "versions": sorted((str(k), str(v)) for k, v in dict(versions).items()),
            "stages": [(str(k), f"{float(v):.1f}") for k, v in dict(stages).items()]
            if isinstance(stages, Mapping)
            else [],
            "sha256": study.data.get("sha256"),
            "started": manifest.get("started"),
            "seed": manifest.get("seed"),
        },
    )
