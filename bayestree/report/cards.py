"""Descriptions of the nodes and leaves of a drawn tree, with the facets of each node."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from scipy.special import expit

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, class_numbers
from bayestree._utils.wording import counted, quantity
from bayestree.description import TreeDescription
from bayestree.diagnostics import Facets
from bayestree.plots._inference import draw_margins
from bayestree.report import figures
from bayestree.report.study import SPACE, Study, number, percent, with_minus
from bayestree.report.trees import LabelledTree, printed, typographic
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

MAX_PRINTED = 9  # nodes whose description appears on paper as well
MAX_PICTURED = 60  # nodes with a histogram and the coefficients of their facets
CLASSES = 8  # maximum number of classes or slopes of a leaf
MAX_LOG_ODDS = 30.0  # maximum absolute log-odds of a side
MAX_MATCHED = 24  # nodes whose facets are matched across the draws: those of the most rows
TERMS, DIGITS = 4, 3  # of a facet, as in export_text
MAX_FACETS = 8  # maximum number of facets of a node
RARE_FACET = 0.05  # share of the draws below which a facet is not shown
WEIGHTS = 6  # maximum number of coefficients of a facet
MARGINS = (4.2, 1.3)  # inches of a histogram
ALT_TEXT = "Coefficients as an image: red pixels point out of the polytope, blue pixels into it"

Card = dict[str, Any]  # variables of a template


class Sample(NamedTuple):
    """Some training rows at each node: their log-odds of the right side, and their classes."""

    margin: dict[int, FloatArray]
    labels: dict[int, IntArray]


def node_cards(study: Study, tree: LabelledTree, shown: BoolArray) -> list[Card]:
    """Describe the nodes that are drawn."""
    order = np.argsort(-tree.node_rows, kind="stable")
    rank = {node: place for place, node in enumerate(order.tolist())}
    sample = _sample(study, tree.tree)
    return [
        _node_card(study, tree, node, rank[node], sample) for node in np.flatnonzero(shown).tolist()
    ]


def _node_card(study: Study, tree: LabelledTree, node: int, rank: int, sample: Sample) -> Card:
    point = posterior = None
    if tree.linear is not None:
        point = _point_facets(study, tree.linear, node, brief=rank >= MAX_PICTURED)
        if study.has_split_draws and rank < MAX_MATCHED:
            posterior = _posterior_facets(study, tree.tree, node)
    return {
        "at": node,
        "steps": _steps(tree, node),
        "sides": [("all", node), *zip(tree.side_names, tree.children(node), strict=True)],
        "point": point,
        "posterior": posterior,
        "uncertainty": _uncertainty(study, node),
        "histogram": _histogram(study, tree, node, sample) if rank < MAX_PICTURED else None,
        "printed": rank < MAX_PRINTED,
    }


def leaf_cards(study: Study, tree: LabelledTree, leaves: list[int]) -> list[Card]:
    """Describe the leaves that are drawn."""
    reached = None
    if study.held is not None and study.held.y is not None and len(study.held):
        reached = tree.tree.apply(study.held.matrix)
    images = _mean_images(study, tree.tree)
    return [
        {
            "at": ~leaf,
            "classes": _classes(tree, leaf),
            "steps": _steps(tree, ~leaf),
            "held": _held_out(study, tree, leaf, reached),
            "slopes": tree.slopes(leaf)[:CLASSES],
            "image": images.get(leaf),
        }
        for leaf in leaves
    ]


def _classes(tree: LabelledTree, leaf: int) -> list[tuple[int, float]]:
    """Return the most frequent classes of a leaf with their probabilities."""
    if not tree.classifies:
        return []
    value = tree.tree.value[leaf]
    order = np.argsort(-value, kind="stable")[:CLASSES]
    return [(label, float(value[label])) for label in order[value[order] > 0].tolist()]


def _mean_images(study: Study, tree: RoutedTree) -> dict[int, Markup]:
    """Draw the mean of some of the training rows in each leaf, if rows are images."""
    if study.image_shape is None or study.train is None:
        return {}
    X = study.train.sample().matrix
    low, high, leaves = float(X.min()), float(X.max()), tree.apply(X)
    alt = "Mean of the training rows of this leaf, as an image"
    return {
        leaf: figures.grey_image(X[leaves == leaf].mean(axis=0), low, high, study.image_shape, alt)
        for leaf in np.unique(leaves).tolist()
    }


def _steps(tree: LabelledTree, child: int) -> list[tuple[int, str]]:
    """Return the nodes on the path from the root to a node or leaf, with the sides taken."""
    path, labels = tree.path(child), tree.tree.topology.node_labels
    letters = enumerate(path if path != "root" else "")
    return [(labels.index(path[:n] or "root"), tree.side_names["LR".index(s)]) for n, s in letters]


def _uncertainty(study: Study, node: int) -> str:
    """State the uncertainty of the split about the rows on which it is judged."""
    if study.is_forest or study.uncertainty is None or study.evaluated is None:
        return ""
    row = study.uncertainty_table.iloc[node]
    if not row["rows"] > 0.5:
        return f"Too few {study.evaluated.kind} reach this node to judge its split."
    return (
        f"Of the {quantity(round(row['rows']))} {study.evaluated.kind} that reach this node, "
        f"{percent(row['unsure'])} are uncertain: the posterior probability of the other side "
        f"exceeds 10{SPACE}%. Its mean over all of them is "
        f"{percent(row['disagreement'])}."
    )


def _held_out(study: Study, tree: LabelledTree, leaf: int, reached: IntArray | None) -> str:
    """Count the held-out rows of a leaf in a sentence."""
    if reached is None or study.held is None or study.held.y is None:
        return ""
    y, mass = study.held.y[reached == leaf], study.held.weights[reached == leaf]
    total = float(mass.sum())
    if total == 0:
        return "No held-out row reaches this leaf."
    reach = f"{counted(total, 'held-out row')} {'reaches' if total == 1 else 'reach'} this leaf"
    if study.held.extra is not None or study.survives:
        return f"{reach}."
    if not tree.classifies:
        return f"{reach}, with a mean of {number(float(mass @ y.astype(np.float64)) / total)}."
    best = int(tree.tree.value[leaf].argmax())
    right = float(mass @ (y == study.labels[best]))
    verb = "is" if right == 1 else "are"
    return f"{reach}; {quantity(right)} of them {verb} {tree.classes[best]}."


def _sample(study: Study, tree: RoutedTree) -> Sample:
    """Measure some of the training rows at each node."""
    found = Sample({}, {})
    if study.train is None:
        return found
    rows = study.train.sample()
    X, coded = rows.matrix, None
    if study.classifies and rows.y is not None and np.isin(rows.y, study.labels).all():
        coded = class_numbers(rows.y, study.labels)
    for node, reached, _ in tree.walk(X):
        found.margin[node] = log_odds(tree, node, X[reached])
        if coded is not None:
            found.labels[node] = coded[reached]
    return found


def log_odds(tree: RoutedTree, node: int, X: FloatArray) -> FloatArray:
    """Return the log-odds of the right side at a node, (n,), at least ``-MAX_LOG_ODDS``."""
    if isinstance(tree, Tree) and tree.n_facets[node] == 1:
        expert = tree.experts(node).start
        return X @ tree.hyperplane[expert] - tree.facet_limit[expert]
    score = np.maximum(tree.score(node, X), np.exp(-MAX_LOG_ODDS))
    return score + np.log(-np.expm1(-score))


def _histogram(study: Study, tree: LabelledTree, node: int, sample: Sample) -> Markup | None:
    """Draw some training rows by their distance from the border, if any reach the node."""
    margin = sample.margin.get(node)
    if margin is None or len(margin) == 0:
        return None
    left, right = tree.side_names
    ticks = "", ""
    if study.has_split_draws and study.posterior is not None:
        steepness = study.posterior.model.steepness
        reach = steepness * (float(np.quantile(np.abs(margin), 0.98)) or 1.0)
        low, high = float(expit(-reach)), float(expit(reach))
        ticks = f"P({right}) = {low:.2g}", f"{high:.2g}"
        if high > 0.995:
            ticks = f"P({right}) < 0.01", "> 0.99"
    alt = (
        f"Histogram of {counted(len(margin), 'training row')} by the side of the split: "
        f"{quantity((margin <= 0).sum())} {left}, {quantity((margin > 0).sum())} {right}"
    )
    draw = partial(
        draw_margins,
        margin=margin,
        labels=sample.labels.get(node),
        n_classes=len(tree.classes),
        sides=tree.side_names,
        ends=ticks,
    )
    return figures.picture(draw, MARGINS, alt, salt=tree.anchor(node))


def _posterior_facets(study: Study, tree: RoutedTree, node: int) -> Card | None:
    """List the facets that draws share, with probabilities and intervals, if there are any."""
    found: Facets = study.soft.facets(tree.topology.node_labels[node])
    common = np.flatnonzero(found.probability >= RARE_FACET)[:MAX_FACETS]
    if len(common) == 0:
        return None
    rows = [_posterior_row(study, found, int(facet)) for facet in common]
    return {"rows": rows, "hidden": len(found.counts) - len(rows), "n_draws": found.n_draws}


def _point_facets(study: Study, tree: Tree, node: int, *, brief: bool) -> Card:
    """List the facets of the point estimate in the order of ``export_text``, the nearest first.

    A brief table has no coefficients.
    """
    described = TreeDescription(tree, TERMS, DIGITS, features=study.features)
    rows = []
    for facet in described.half_spaces(node, MAX_FACETS):
        left, bound = printed(facet)
        strength: FloatArray = tree.standardised_hyperplane[facet.expert]
        row: Card = {"left": left, "limit": bound, "coefficients": [], "image": None}
        if not brief and np.count_nonzero(strength) > 1:
            plane = tree.hyperplane[facet.expert]
            shares = strength**2 / (strength**2).sum()
            row["coefficients"] = _coefficients(study, plane / np.linalg.norm(plane), shares)
        if not brief:
            row["image"] = _strength_image(study, strength)
        rows.append(row | {"probability": None, "interval": ""})
    n_facets = described.n_facets(node)
    size = counted(n_facets, "facet")
    return {"rows": rows, "hidden": n_facets - len(rows), "size": size}


def _posterior_row(study: Study, found: Facets, facet: int) -> Card:
    left, *limits = found.terms(facet, study.features, TERMS)
    middle, low, high = map(with_minus, limits)
    strength, intervals = found.strength[facet], found.normal_interval[facet]
    return {
        "left": typographic(left),
        "limit": middle,
        "coefficients": _coefficients(study, found.normal[facet], strength**2, intervals),
        "image": _strength_image(study, strength),
        "probability": float(found.probability[facet]),
        "interval": f"{low} to {high}",
    }


def _coefficients(
    study: Study, normal: FloatArray, shares: FloatArray, intervals: FloatArray | None = None
) -> list[Card]:
    """List the largest coefficients of a unit normal (d,), with their intervals (d, 2) if any."""
    most = min(WEIGHTS, np.count_nonzero(shares)) if intervals is None else WEIGHTS
    return [
        {
            "name": study.features[j],
            "strength": float(shares[j]),
            "value": number(float(normal[j]), 3),
            "interval": ""
            if intervals is None
            else " to ".join(number(float(end), 3) for end in intervals[j]),
        }
        for j in np.argsort(-shares, kind="stable")[:most].tolist()
    ]


def _strength_image(study: Study, strength: FloatArray) -> Markup | None:
    """Show the coefficients per unit of each feature as an image, if rows are images."""
    if study.image_shape is None:
        return None
    return figures.signed_image(strength, study.image_shape, ALT_TEXT)
