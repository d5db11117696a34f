"""Descriptions of the nodes and leaves of a drawn tree, with the facets of each node."""

from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from scipy.special import expit

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, class_numbers
from bayestree._utils.wording import counted, quantity
from bayestree.description import POLYTOPE_RULE, TreeDescription
from bayestree.diagnostics import Facets
from bayestree.report import figures, text
from bayestree.report.study import Study
from bayestree.report.trees import LabelledTree, printed
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
ALT_TEXT = "Coefficients as an image: red pixels point out of the polytope, blue pixels into it"

Card = dict[str, Any]  # variables of a template


class Sample(NamedTuple):
    """Some training rows at each node: their log-odds of the right side, and their classes."""

    margin: dict[int, FloatArray]
    labels: dict[int, IntArray]


def node_cards(study: Study, tree: LabelledTree, shown: BoolArray) -> list[Card]:
    """Descriptions of the nodes that are drawn."""
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
    size_text, likely, prior_text = _size_texts(study, node)
    return {
        "anchor": tree.anchor(node),
        "path": tree.path(node),
        "steps": _steps(tree, node),
        "rows": counted(tree.rows(node), "row"),
        "share": text.percent(tree.share(node)),
        "sides": _sides(tree, node),
        "point": point,
        "posterior": posterior,
        "likely": likely,
        "meaning": "" if study.sizes is None else study.sizes.meaning,
        "size_text": size_text,
        "prior_text": prior_text,
        "uncertainty": _uncertainty(study, node),
        "histogram": _histogram(study, tree, node, sample) if rank < MAX_PICTURED else None,
        "printed": rank < MAX_PRINTED,
    }


def leaf_cards(study: Study, tree: LabelledTree, leaves: list[int]) -> list[Card]:
    """Descriptions of the leaves that are drawn."""
    reached = None
    if study.held is not None and study.held.y is not None and len(study.held):
        reached = tree.tree.apply(study.held.matrix)
    images = _mean_images(study, tree.tree)
    return [
        {
            "anchor": tree.anchor(~leaf),
            "path": tree.path(~leaf),
            "rows": counted(tree.rows(~leaf), "row"),
            "share": text.percent(tree.share(~leaf)),
            "prediction": tree.leaf_label(leaf),
            "classes": _classes(tree, leaf),
            "steps": _steps(tree, ~leaf),
            "held": _held_out(study, tree, leaf, reached),
            "slope": _slope(tree, leaf),
            "image": images.get(leaf),
        }
        for leaf in leaves
    ]


def _classes(tree: LabelledTree, leaf: int) -> tuple[tuple[int, str, str], ...]:
    """Number, name and probability of the most frequent classes of a leaf."""
    if not tree.classifies:
        return ()
    value = tree.tree.value[leaf]
    order = np.argsort(-value, kind="stable")[:CLASSES]
    return tuple(
        (label, tree.classes[label], f"{value[label]:.3f}")
        for label in order[value[order] > 0].tolist()
    )


def _mean_images(study: Study, tree: RoutedTree) -> dict[int, Markup]:
    """The mean image of some of the training rows in each leaf, if rows are images."""
    if study.image_shape is None or study.train is None:
        return {}
    X = study.train.sample().matrix
    low, high, leaves = float(X.min()), float(X.max()), tree.apply(X)
    alt = "Mean of the training rows of this leaf, as an image"
    return {
        leaf: figures.grey_image(X[leaves == leaf].mean(axis=0), low, high, study.image_shape, alt)
        for leaf in np.unique(leaves).tolist()
    }


def _steps(tree: LabelledTree, child: int) -> list[Card]:
    """The nodes on the path from the root to a node or leaf."""
    path = tree.path(child)
    if path == "root":
        return []
    number = {label: node for node, label in enumerate(tree.tree.topology.node_labels)}
    steps = []
    for length, letter in enumerate(path):
        node = number[path[:length] or "root"]
        side = tree.side_names["LR".index(letter)]
        step = {"anchor": tree.anchor(node), "path": tree.path(node), "condition": tree.line(node)}
        steps.append(step | {"side": side})
    return steps


def _sides(tree: LabelledTree, node: int) -> list[Card]:
    """The rows of a node, and of its two sides."""
    children = tree.tree.topology.children[node].tolist()
    return [
        {
            "name": name,
            "anchor": tree.anchor(child),
            "rows": quantity(tree.rows(child)),
            "stack": tree.stack(child),
            "summary": tree.value_text(child),
        }
        for name, child in [("all", node), *zip(tree.side_names, children, strict=True)]
    ]


def _size_texts(study: Study, node: int) -> tuple[str, str, str]:
    """The number of facets of a node in words: posterior, its most probable values, and prior."""
    if study.sizes is None:
        return "", "", ""
    prior_text = ""
    if study.size_prior is not None:
        prior = study.size_prior[node]
        prior_text = f"; its prior mean is {prior @ np.arange(len(prior)):.1f}"
    return study.size_text(node), figures.most_probable(study.size_posterior[node]), prior_text


def _uncertainty(study: Study, node: int) -> str:
    """Uncertainty of the split about the rows on which it is judged, as a sentence."""
    if study.is_forest or study.uncertainty is None or study.evaluated is None:
        return ""
    row = study.uncertainty_table.iloc[node]
    if not row["rows"] > 0.5:
        return f"Too few {study.evaluated.kind} reach this node to judge its split."
    return (
        f"Of the {quantity(round(row['rows']))} {study.evaluated.kind} that reach this node, "
        f"{text.percent(row['unsure'])} are uncertain: the posterior probability of the other side "
        f"exceeds 10{text.SPACE}%. Its mean over all of them is "
        f"{text.percent(row['disagreement'])}."
    )


def _held_out(study: Study, tree: LabelledTree, leaf: int, reached: IntArray | None) -> str:
    """The held-out rows of a leaf, as a sentence."""
    if reached is None or study.held is None or study.held.y is None:
        return ""
    y = study.held.y[reached == leaf]
    if len(y) == 0:
        return "No held-out row reaches this leaf."
    reach = f"{counted(len(y), 'held-out row')} {'reaches' if len(y) == 1 else 'reach'} this leaf"
    if study.held.extra is not None or study.survives:
        return f"{reach}."
    if not tree.classifies:
        return f"{reach}, with a mean of {text.number(float(y.astype(np.float64).mean()))}."
    best = int(tree.tree.value[leaf].argmax())
    right = int((y == study.labels[best]).sum())
    return f"{reach}; {right} of them {'is' if right == 1 else 'are'} {tree.classes[best]}."


def _slope(tree: LabelledTree, leaf: int) -> tuple[tuple[str, str], ...]:
    """Coefficients of a linear leaf, the strongest first."""
    found = tree.slopes(leaf)[:CLASSES]
    return tuple((tree.features[j], text.number(one, 3)) for j, one in found)


def _sample(study: Study, tree: RoutedTree) -> Sample:
    """Some of the training rows at each node."""
    margin: dict[int, FloatArray] = {}
    labels: dict[int, IntArray] = {}
    if study.train is None:
        return Sample(margin, labels)
    rows = study.train.sample()
    X = rows.matrix
    coded = None
    if study.classifies and rows.y is not None and np.isin(rows.y, study.labels).all():
        coded = class_numbers(rows.y, study.labels)
    for node, reached, _ in tree.walk(X):
        margin[node] = log_odds(tree, node, X[reached])
        if coded is not None:
            labels[node] = coded[reached]
    return Sample(margin, labels)


def log_odds(tree: RoutedTree, node: int, X: FloatArray) -> FloatArray:
    """Log-odds of the right side at a node, shape (n,), limited to ``MAX_LOG_ODDS``."""
    if isinstance(tree, Tree) and tree.n_facets[node] == 1:
        expert = tree.experts(node).start
        return X @ tree.hyperplane[expert] - tree.facet_limit[expert]
    score = np.maximum(tree.score(node, X), np.exp(-MAX_LOG_ODDS))
    return score + np.log(-np.expm1(-score))


def _histogram(study: Study, tree: LabelledTree, node: int, sample: Sample) -> Markup | None:
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
    labels, n_classes = sample.labels.get(node), len(tree.classes)
    return figures.margins(margin, labels, n_classes, tree.side_names, ticks, alt)


def _posterior_facets(study: Study, tree: RoutedTree, node: int) -> Card | None:
    """The facets that draws share, with probabilities and intervals; None if they share none."""
    found: Facets = study.bayesian.facets(tree.topology.node_labels[node])
    common = np.flatnonzero(found.probability >= RARE_FACET)[:MAX_FACETS]
    if len(common) == 0:
        return None
    rows = [_posterior_row(study, found, int(facet)) for facet in common]
    return {"rows": rows, "hidden": len(found.counts) - len(rows), "n_draws": found.n_draws}


def _point_facets(study: Study, tree: Tree, node: int, *, brief: bool) -> Card:
    """The facets of the point estimate in the order of ``export_text``, the nearest first.

    A brief table has no coefficients.
    """
    described = TreeDescription(tree, TERMS, DIGITS, features=study.features)
    rows = []
    for facet in described.half_spaces(node, MAX_FACETS):
        left, bound = printed(facet)
        strength: FloatArray = tree.standardised_hyperplane[facet.expert]
        coefficients: list[Card] = []
        if not brief and np.count_nonzero(strength) > 1:
            plane = tree.hyperplane[facet.expert]
            shares = strength**2 / (strength**2).sum()
            coefficients = _coefficients(study, plane / np.linalg.norm(plane), shares)
        image = None if brief else _strength_image(study, strength)
        row = {"left": left, "limit": text.with_minus(bound), "coefficients": coefficients}
        rows.append(row | {"image": image, "probability": None, "interval": ""})
    n_facets = described.n_facets(node)
    size = counted(n_facets, "facet")
    return {"rows": rows, "hidden": n_facets - len(rows), "size": size, "rule": POLYTOPE_RULE}


def _posterior_row(study: Study, found: Facets, facet: int) -> Card:
    left, *limits = found.terms(facet, study.features, TERMS)
    middle, low, high = map(text.with_minus, limits)
    shares = found.strength[facet] ** 2
    intervals = found.normal_interval[facet]
    return {
        "left": text.relation(left),
        "limit": middle,
        "coefficients": _coefficients(study, found.normal[facet], shares, intervals),
        "image": _strength_image(study, found.strength[facet]),
        "probability": float(found.probability[facet]),
        "interval": f"{low} to {high}",
    }


def _coefficients(
    study: Study, normal: FloatArray, shares: FloatArray, intervals: FloatArray | None = None
) -> list[Card]:
    """The largest coefficients of a unit normal (d,), with their intervals (d, 2) if any."""
    most = min(WEIGHTS, np.count_nonzero(shares)) if intervals is None else WEIGHTS
    return [
        {
            "name": study.features[j],
            "strength": float(shares[j]),
            "value": text.number(float(normal[j]), 3),
            "interval": ""
            if intervals is None
            else " to ".join(text.number(float(end), 3) for end in intervals[j]),
        }
        for j in np.argsort(-shares, kind="stable")[:most].tolist()
    ]


def _strength_image(study: Study, strength: FloatArray) -> Markup | None:
    """Coefficients per unit of each feature as an image, if rows are images."""
    if study.image_shape is None:
        return None
    return figures.signed_image(strength, study.image_shape, ALT_TEXT)
