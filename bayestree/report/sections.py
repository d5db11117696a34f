"""The sections of a report: a function for each, and a macro of the same name.

It returns the heading and the variables of the macro, or None if there is nothing to show.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from bayestree._utils.arrays import FloatArray, class_numbers, weighted_quantiles
from bayestree._utils.progress import steps_of
from bayestree._utils.wording import counted, in_words, isolated, quantity
from bayestree.description import modes_of, sparsity_of
from bayestree.diagnostics import PolytopeSize, SplitUncertainty
from bayestree.diagnostics.printed import TreeIntervals, shown
from bayestree.diagnostics.sparsity import same_splits
from bayestree.export import filled_values
from bayestree.export.words import export_text
from bayestree.plots._predictions import draw_dependence
from bayestree.report import figures, trees
from bayestree.report.cards import leaf_cards, node_cards
from bayestree.report.rows import Effect, Range
from bayestree.report.scores import confusion_of, is_recorded, residuals, scores_of, worst_errors
from bayestree.report.study import Shown, Study, number, percent, with_minus
from bayestree.report.what_if import what_if
from bayestree.tree import Tree

DRAWN_LEAVES = 120  # of the drawn trees of a forest, so that the page stays below 3 MB
LISTED = 12  # nodes in a table
NUMBERS = 50  # of the tree, which has at most 25 numbers and the shares of other classes


class Section(NamedTuple):
    """A part of the report: its anchor, its heading, and the variables of its macro."""

    name: str
    title: str
    shown: Mapping[str, Any]


def sections(study: Study) -> list[Section]:
    """Make all sections with something to show."""
    makers: tuple[Callable[[Study], Shown], ...] = (
        features, view, tree, near_optimal, modes, evidence, sizes, uncertainty, scores, what_if,
        convergence, data, repeat,
    )  # fmt: skip
    made = [(make.__name__, make(study)) for make in steps_of(makers, "sections")]
    return [Section(name, *shown) for name, shown in made if shown is not None]


def data(study: Study) -> Shown:
    """Describe the training data."""
    y = None if study.train is None else study.train.y
    classes, quartiles = [], None
    if study.train is not None and y is not None and study.classifies:
        label = class_numbers(y, study.labels)
        total = np.bincount(label, study.train.weights, len(study.classes))
        classes = total.tolist()
    elif study.train is not None and y is not None:
        mass = study.train.weights
        own = y[mass > 0].astype(np.float64), mass[mass > 0]
        quartiles = weighted_quantiles(*own, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return "Data", {"facts": _facts(study), "classes": classes, "quartiles": quartiles}


def _facts(study: Study) -> list[tuple[str, str]]:
    facts = []
    if study.data.get("path"):
        facts.append(_files(study.data))
    named = {"target": "Target", "task": "Task", "weights": "Weights"}
    facts += [(name, str(study.data[key])) for key, name in named.items() if study.data.get(key)]
    facts.append(("Training rows", quantity(study.training_rows)))
    if study.held is not None and len(study.held):
        n_held = max(len(study.held), int(study.metrics.get("scored_rows", 0)))
        facts.append(("Held-out rows", quantity(study.metrics.get("held_out_rows", n_held))))
    sampled = study.metrics.get("sampled_training_rows")
    if sampled and sampled < study.metrics["training_rows"]:
        shown = [f"{sampled:,} training rows"]
        shown += [] if study.held is None else [f"{len(study.held):,} held-out rows"]
        facts.append(("Shown and scored: a sample of", " and ".join(shown)))
    if study.posterior is not None and study.train is not None and study.train.extra is not None:
        name = f"Sum of the {study.posterior.model.leaf.extra}s"
        facts.append((name, quantity(float(study.train.weights @ study.train.extra))))
    if not study.encoding.is_plain:
        facts.append(("Columns", str(len(study.columns))))
    facts.append(("Features", str(len(study.features))))
    return facts + [("Warning", warning) for warning in study.manifest.get("warnings", [])]


def _files(table: Mapping[str, Any]) -> tuple[str, str]:
    """Name the table, or the files of a data set, without the folders of a machine."""
    path = Path(table["path"])
    if "files" not in table:
        return "File", path.name
    n_files = counted(int(table["files"]), "file")
    return "Data set", f"{path.parent.name}/{path.name}: {n_files}, {int(table['rows']):,} rows"


def tree(
    study: Study,
    prefix: str = "",
    *,
    most_nodes: int = trees.MAX_NODES,
    most_leaves: int = DRAWN_LEAVES,
) -> tuple[str, dict[str, Any]]:
    """Draw the tree, or the first trees of a forest, whose anchors begin with the prefix."""
    drawn, leaves = [], 0
    for place, tree in enumerate(study.trees):
        leaves += tree.n_leaves
        if place and leaves > most_leaves:
            break
        own = f"{prefix}t{place + 1}-" if study.is_forest else prefix
        drawn.append(_drawn(study, trees.LabelledTree(study, tree, own), most_nodes))
    title = "Trees" if study.is_forest else "Tree"
    path = sparsity_of(study.estimator)
    summary = "" if path is None else path.summary
    if averages(study):
        summary += " Predictions are those of the posterior, which keeps all columns."
    if path is not None:
        summary = f"{summary} {filled_values(study.estimator)}".rstrip()
    return title, {"trees": drawn, "more": len(study.trees) - len(drawn), "sparsity": summary}


def _drawn(study: Study, labelled: trees.LabelledTree, most_nodes: int) -> dict[str, Any]:
    """Draw a tree on its sheets, and describe its nodes and leaves."""
    topology = labelled.tree.topology
    shown = trees.shown_nodes(labelled.node_rows, most_nodes)
    found = trees.sheets(topology, labelled.node_rows, shown)
    leaves = [~tip for sheet in found for tip in sheet.tips if tip < 0]
    rows = trees.rows_of_nodes(study, labelled.tree)
    return {
        "tree": labelled,
        "sheets": [(sheet, trees.drawing(study, labelled, sheet, rows=rows)) for sheet in found],
        "views": {kind for sheet in found for kind in trees.views_of(labelled, sheet, rows)},
        "beside": len(found) == 1 and len(found[0].tips) <= trees.FEW,
        "nodes": node_cards(study, labelled, shown),
        "leaves": leaf_cards(study, labelled, leaves),
        "hidden": topology.n_nodes - int(shown.sum()),
    }


def near_optimal(study: Study) -> Shown:
    """List sparse trees of about the same score, if there are several."""
    found = study.near_optimal
    if found is None or len(found) < 2:
        return None
    columns = [isolated(name) for name in found.names]
    used = [[found.names.index(name) for name in own] for own in found.columns]
    shown = [place for place, tree in enumerate(found) if same_splits(tree, study.tree)]
    return "A choice of trees", {
        "trees": [
            {
                "number": place + 1,
                "score": f"{found.score[place]:.3f}",
                "loss": f"{found.loss[place]:.3f}",
                "se": f"{found.se[place]:.3f}",
                "leaves": tree.n_leaves,
                "weight": float(found.weight[place]),
                "used": own,
                "columns": [columns[j] for j in own],
                "text": export_text(tree),
                "is_shown": place in shown[:1],
                "is_chosen": place == (shown or [0])[0],
                "note": filled_values(study.estimator, tree=tree),
            }
            for place, (tree, own) in enumerate(zip(found, used, strict=True))
        ],
        "choices": [(j, columns[j]) for j in sorted({j for own in used for j in own})],
    }


def modes(study: Study) -> Shown:
    """Compare the most probable trees of a mixture."""
    shown = trees.compared_modes(study)
    return None if shown is None else ("Modes of the posterior", shown)


def evidence(study: Study) -> Shown:
    """Show the evidence and the posterior of the tree's size, if its topology was sampled."""
    found = None if study.convergence is None else study.convergence.evidence
    if found is None:
        return None
    tables = {"Number of leaves": found.leaf_probabilities, "Depth": found.depth_probabilities}
    charts = []
    for name, table in tables.items():
        posterior = np.bincount(table.index, table["probability"]).astype(np.float64)
        chart = figures.sizes(posterior, None, f"{name}, posterior probabilities")
        charts.append((name, chart))
    return "Evidence and size of the tree", {"tables": tables, "charts": charts}


def sizes(study: Study) -> Shown:
    """Show the number of facets of each polytope, and the experts that contribute them."""
    found, shrunk = study.sizes, study.shrinkage
    if found is None or shrunk is None or (shrunk.weight == 1).all():
        return None
    charts = [_size_chart(study, node) for node in figures.first_nodes(study)]
    if found.n_leaves is not None:
        title = "Posterior of the number of leaves in use by a draw"
        chart = figures.sizes(found.leaf_probabilities(), None, title)
        charts.append(("leaves in use by a draw", chart))
    nodes = figures.first_nodes(study, figures.EXPERTS)
    return "Number of facets", {
        "rows": [_size_row(study, found, node) for node in figures.first_nodes(study, LISTED)],
        "charts": charts,
        "experts": [figures.shrinkage(shrunk, node) for node in nodes],
    }


def _size_row(study: Study, found: PolytopeSize, node: int) -> dict[str, Any]:
    table = study.size_posterior[node]
    return {
        "path": found.labels[node],
        "point": int(study.tree.n_facets[node]) if isinstance(study.tree, Tree) else None,
        "posterior": study.size_text(node),
        "mode": int(table.argmax()),
        "share": float(table.max()),
        "prior": study.prior_size(node),
        "box": f"{found.facets[:, :, node].mean():.1f}",
        "weights": f"{found.weights[:, :, node].mean():.1f}",
        "effective": f"{found.effective[:, :, node].mean():.1f}",
    }


def _size_chart(study: Study, node: int) -> tuple[str, Markup]:
    label = study.tree.topology.node_labels[node]
    prior = None if study.size_prior is None else study.size_prior[node]
    title = f"Posterior of the number of facets of node {label}"
    return label, figures.sizes(study.size_posterior[node], prior, title)


def uncertainty(study: Study) -> Shown:
    """Show the uncertainty of the splits about the rows on which they are judged."""
    if study.uncertainty is None or study.evaluated is None:
        return None
    return "Uncertainty of the splits", {
        "rows": study.uncertainty_table.iloc[figures.first_nodes(study, LISTED)],
        "panels": figures.split_uncertainty(study.uncertainty, figures.first_nodes(study)),
        "sources": _sources(study.uncertainty),
        "numbers": None if study.intervals is None else _numbers(study.intervals),
    }


def _numbers(found: TreeIntervals) -> list[tuple[str, ...]]:
    """List numbers of the tree with their intervals."""
    table = shown(found).iloc[:NUMBERS]
    return [(*names, *map(with_minus, row)) for names, *row in table.itertuples()]


def _sources(found: SplitUncertainty) -> str:
    """Say in a sentence which share of the uncertainty of y more rows would reduce."""
    if found.total_entropy is not None and found.mutual_information is not None:
        what, unit = "entropy", "nats"
        each = found.total_entropy, found.mutual_information
    elif found.total_variance is not None and found.explained is not None:
        what, unit = "variance", "squared units of y"
        each = found.total_variance, found.explained
    else:
        return ""
    total, posterior = (float(np.average(one, weights=found.weights)) for one in each)
    share = posterior / total if total > 0 else 0.0
    return (
        f"The mean {what} of a prediction is {number(total, 3)} {unit}. Of this, "
        f"{percent(share)} is due to uncertainty about the tree, which more rows would "
        "reduce; the rest is noise in the data."
    )


def view(study: Study) -> Shown:
    """Draw the map of a tree of two numbers, or pair plots of the most important columns."""
    if study.tree.n_features == 2 and study.encoding.is_plain and not study.is_forest:
        return "Map", {"map": figures.boundary(study)}
    if study.scored is None or len(study.columns) < 2 or study.importance is None:
        return None
    total = study.importance.total
    used = np.argsort(-total, kind="stable")[: min(figures.PAIRS, np.count_nonzero(total))]
    if len(used) < 2:
        return None
    n_rows = min(len(study.scored), figures.POINTS)
    return "Rows", {
        "map": None,
        "pairs": figures.pairs(study, study.scored, used.tolist()),
        "rows": counted(n_rows, study.scored.kind.removesuffix("s")),
    }


def scores(study: Study) -> Shown:
    """Show scores, the confusion matrix, and calibration or coverage."""
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
        "residuals": residuals(study),
        "errors": worst_errors(study),
    }
    if study.calibration is not None:
        shown["calibration"] = figures.calibration(study.calibration)
    if not study.classifies and study.scored is not None:
        shown["predicted"] = None if study.survives else figures.predicted(study, study.scored)
        if study.coverage is not None:
            shown["coverage"] = figures.coverage(*study.coverage)
            shown["inside"] = percent(float(study.coverage[0][-1]))
    return "Quality of the predictions", shown


def convergence(study: Study) -> Shown:
    """Show the verdicts on the inference, each with its remedy."""
    posterior = study.posterior
    if posterior is None:
        return None
    shown = None if study.convergence is None else figures.elbo(posterior)
    return "Convergence", {"elbo": shown}


def repeat(study: Study) -> Shown:
    """Show the command, and everything on which the fit depends."""
    started, stages = study.manifest.get("started"), study.manifest.get("seconds", {})
    return "How to reproduce the fit", {
        "started": started and f"{datetime.fromisoformat(started):%Y-%m-%d %H:%M} UTC",
        "seconds": {name: seconds for name, seconds in stages.items() if seconds >= 0.05},
        "several_modes": len(modes_of(study.estimator)) > 1,
    }


MAX_USED = 12  # maximum number of features in a table
CURVES = 4  # columns with a figure
CURVE = (2.6, 2.0)  # its width and height in inches
DIGITS = 3  # of values of a column


def features(study: Study) -> Shown:
    """Show the importance and the effect of each feature, and the shrinkage of its coefficients."""
    found, factors = study.importance, []
    if (shrunk := study.shrinkage) is not None:
        nodes = figures.first_nodes(study, figures.EXPERTS)
        factors = [chart for node in nodes if (chart := figures.shrinkage_factors(shrunk, node))]
    if found is None and not factors:
        return None
    total = np.zeros(len(study.columns)) if found is None else found.total
    used = np.argsort(-total, kind="stable")[: np.count_nonzero(total)]
    in_tree = len(used)
    if averages(study):
        tree = cast(Tree, study.tree)
        in_tree = sum(bool(tree.used[own].any()) for own in study.encoding.places)
    measured = bool(study.effects) and study.effects[0].loss is not None
    return "Features", {
        "effects": effect_lines(study) if measured else [],
        "used": [
            (study.columns[j], float(total[j]), float(total[j] / total[used[0]]))
            for j in used[:MAX_USED]
        ],
        "trends": {study.columns[one.column]: in_a_phrase(study, one) for one in study.effects},
        "curves": _curves(study),
        "hidden": 0 if measured else len(used) - MAX_USED,
        "unused": len(study.columns) - in_tree,
        "averages": averages(study),
        "image": importance_image(study, total),
        "factors": factors,
        "noun": "feature" if study.encoding.is_plain else "column",
    }


def averages(study: Study) -> bool:
    """Whether predictions are those of the posterior, while the tree shown is sparse."""
    if sparsity_of(study.estimator) is None:
        return False
    return study.estimator.fitted_.averages(study.estimator.prediction)


def importance_image(study: Study, total: FloatArray) -> Markup | None:
    """Show the importance of the pixels, if rows are images."""
    if study.image_shape is None or not total.any():
        return None
    alt = "Importance of each pixel: dark pixels are important"
    return figures.grey_image(total, 0.0, float(total.max()), study.image_shape, alt)


def effect_lines(study: Study) -> list[dict[str, Any]]:
    """List the columns with their loss and their share of the votes on a common scale."""
    lines = [one for one in study.effects if one.loss is not None and one.votes is not None]
    top = {
        name: max((getattr(one, name).high for one in lines), default=0.0) or 1.0
        for name in ("loss", "votes")
    }
    return [
        {
            "name": study.columns[one.column],
            "loss": _bar(cast(Range, one.loss), top["loss"], _loss_text),
            "votes": _bar(cast(Range, one.votes), top["votes"], percent),
            "trend": in_a_phrase(study, one),
        }
        for one in lines
    ]


def _loss_text(value: float) -> str:
    return with_minus(f"{round(value, 3) + 0.0:.3f}")  # 0 has no sign


def _bar(found: Range, top: float, write: Any) -> dict[str, Any]:
    """Place a number and its interval on a scale from 0 to ``top``, in percent."""
    value, low, high = (100 * min(max(0.0, one / top), 1.0) for one in found)
    text, ends = write(found.value), f"{write(found.low)} to {write(found.high)}"
    is_sure = found.low < found.high
    return {
        "value": value,
        "low": low,
        "width": high - low if is_sure else 0.0,
        "text": text,
        "interval": ends if is_sure else "",
    }


def predicted_quantity(study: Study, effect: Effect) -> str:
    """Name what a curve shows."""
    if study.classifies:
        return f"P({study.classes[effect.output]})"
    return "risk score" if study.survives else f"predicted {study.target}"


def in_a_phrase(study: Study, effect: Effect) -> str:
    """Describe the direction of an effect, such as ``"P(yes) rises from 10 % to 80 %"``."""
    mean, quantity = effect.mean, predicted_quantity(study, effect)
    write = percent if study.classifies else partial(number, digits=3)
    low, high = write(float(mean.min())), write(float(mean.max()))
    if effect.trend == "unclear":
        return f"{quantity} stays near {low}" if low == high else f"unclear ({low} to {high})"
    if effect.trend in ("rises", "falls"):
        ends = (low, high) if effect.trend == "rises" else (high, low)
        return f"{quantity} {effect.trend} from {' to '.join(ends)}"
    values = effect.curve.grid[effect.known]
    least, most = (
        isolated(in_words(values[place], DIGITS)) for place in (mean.argmin(), mean.argmax())
    )
    where = "for" if effect.trend == "levels" else "at"
    course = "" if effect.trend == "levels" else "rises and falls: "
    return f"{quantity} {course}{high} {where} {most}, {low} {where} {least}"


def _curves(study: Study) -> list[Markup]:
    """Draw the partial dependence on the first columns, all on one scale."""
    first = study.effects[:CURVES]
    ends = [(one.curve.low, one.curve.high) for one in first]
    if not ends:
        return []
    low, high = min(one.min() for one, _ in ends), max(one.max() for _, one in ends)
    margin = 0.05 * float(high - low) or 0.05
    limits = float(low) - margin, float(high) + margin
    return [_curve(study, one, limits) for one in first]


def _curve(study: Study, effect: Effect, limits: tuple[float, float]) -> Markup:
    name = study.columns[effect.column]
    found = replace(effect.curve, feature=name, label=predicted_quantity(study, effect))

    def draw(ax: Axes) -> None:
        draw_dependence(found, ax, curves=False)
        ax.set_ylim(limits)

    alt = f"Partial dependence on {name}: {in_a_phrase(study, effect)}"
    return figures.picture(draw, CURVE, alt, legend=False)
