"""What is told of each node and leaf of a drawn tree."""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from scipy.special import expit

from bayestree._utils.arrays import FloatArray
from bayestree.report.html import charts, images, words
from bayestree.report.html.facets import MEASURED, FacetTable, point_facets, posterior_facets
from bayestree.report.html.labels import Labels
from bayestree.report.html.study import Study
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree, facet_threshold

PRINTED = 9  # nodes whose description is on paper as well
PICTURED = 60  # nodes with a histogram and the coefficients of their facets
CLASSES = 8  # of a leaf, that are listed
FARTHEST = 30.0  # log-odds beyond which a row is as sure as can be


class Step(NamedTuple):
    """A link to a node or leaf, and how it is called."""

    at: str
    text: str


class Side(NamedTuple):
    """Rows of a node, or of one of its sides, and what they are."""

    name: str
    at: str
    rows: str
    picture: Markup
    says: str


class NodeCard(NamedTuple):
    """The description of a node."""

    at: str
    path: str
    question: str
    crumbs: tuple[Step, ...]
    rows: str
    share: str
    sides: tuple[Side, ...]
    point: FacetTable | None
    posterior: FacetTable | None
    inside: str
    sizes: Markup | None
    size_text: str
    prior_text: str
    doubt: str
    histogram: Markup | None
    printed: bool


class LeafCard(NamedTuple):
    """The description of a leaf."""

    at: str
    path: str
    rows: str
    share: str
    says: str
    classes: tuple[tuple[int, str, str], ...]
    way: tuple[tuple[Step, str], ...]
    held: str
    slope: tuple[tuple[str, str], ...]
    image: Markup | None


class Sample(NamedTuple):
    """Training rows of a tree's pictures: which node they reach, and on which side of it."""

    margin: dict[int, FloatArray]
    labels: dict[int, NDArray[np.int64]]


def node_cards(study: Study, labels: Labels, shown: NDArray[np.bool_]) -> list[NodeCard]:
    """Descriptions of the nodes that are drawn."""
    order = np.argsort(-labels.rows, kind="stable")
    rank = {int(node): place for place, node in enumerate(order)}
    sample = _sample(study, labels.tree)
    return [
        _node_card(study, labels, int(node), rank[int(node)], sample)
        for node in np.flatnonzero(shown)
    ]


def _node_card(study: Study, labels: Labels, node: int, rank: int, sample: Sample) -> NodeCard:
    tree, path = labels.tree, labels.path(node)
    measured = study.splits_drawn and not study.is_forest and rank < MEASURED
    point = posterior = None
    if isinstance(tree, Tree):
        point = point_facets(study, tree, node, brief=rank >= PICTURED)
        posterior = posterior_facets(study, tree, node) if measured else None
    size, size_text, prior_text = _sizes(study, node)
    return NodeCard(
        at=f"{labels.prefix}{path}",
        path=path,
        question=labels.asks(node),
        crumbs=_crumbs(labels, path),
        rows=words.count(labels.rows[node], "row"),
        share=words.percent(labels.rows[node] / study.training_rows),
        sides=_sides(labels, node),
        point=point,
        posterior=posterior,
        inside=labels.sides[0],
        sizes=size,
        size_text=size_text,
        prior_text=prior_text,
        doubt=_doubt(study, node),
        histogram=_histogram(study, labels, node, sample) if rank < PICTURED else None,
        printed=rank < PRINTED,
    )


def leaf_cards(study: Study, labels: Labels, leaves: list[int]) -> list[LeafCard]:
    """Descriptions of the leaves that are drawn."""
    reached = None
    if study.held is not None and study.held.y is not None and len(study.held):
        reached = labels.tree.apply(study.held.matrix)
    faces = _faces(study, labels.tree)
    return [_leaf_card(study, labels, leaf, reached, faces) for leaf in leaves]


def _leaf_card(
    study: Study,
    labels: Labels,
    leaf: int,
    reached: NDArray[np.int64] | None,
    faces: dict[int, Markup],
) -> LeafCard:
    tree, path = labels.tree, labels.path(~leaf)
    rows = float(tree.leaf_rows[leaf])
    classes = []
    if tree.value.ndim == 2:
        order = np.argsort(-tree.value[leaf], kind="stable")[:CLASSES]
        classes = [
            (label, study.classes[label], f"{tree.value[leaf, label]:.3f}")
            for label in order[tree.value[leaf][order] > 0].tolist()
        ]
    return LeafCard(
        at=f"{labels.prefix}{path}",
        path=path,
        rows=words.count(rows, "row"),
        share=words.percent(rows / study.training_rows),
        says=labels.leaf_text(leaf),
        classes=tuple(classes),
        way=_way(labels, path),
        held=_held(study, tree, leaf, reached),
        slope=_slope(study, tree, leaf),
        image=faces.get(leaf),
    )


def _faces(study: Study, tree: RoutedTree) -> dict[int, Markup]:
    """The mean image of some of the training rows in each leaf, where rows are images."""
    if study.image_shape is None or study.train is None:
        return {}
    X = study.train.sample().matrix
    low, high, leaves = float(X.min()), float(X.max()), tree.apply(X)
    return {
        leaf: images.between(
            X[leaves == leaf].mean(axis=0), low, high, study.image_shape,
            "Mean of the training rows that end here, as an image",
        )
        for leaf in np.unique(leaves).tolist()
    }  # fmt: skip


def _crumbs(labels: Labels, path: str) -> tuple[Step, ...]:
    """The nodes above, from the root."""
    if path == "root":
        return ()
    ends = ["root", *(path[:length] for length in range(1, len(path)))]
    return tuple(Step(f"{labels.prefix}{end}", end) for end in ends)


def _way(labels: Labels, path: str) -> tuple[tuple[Step, str], ...]:
    """What is asked on the way to a leaf, and which side it takes."""
    if path == "root":
        return ()
    number = {label: node for node, label in enumerate(labels.tree.topology.node_labels)}
    steps = []
    for length, side in enumerate(path):
        at = path[:length] or "root"
        step = Step(f"{labels.prefix}{at}", f"{at}: {labels.asks(number[at])}")
        steps.append((step, labels.sides["LR".index(side)]))
    return tuple(steps)


def _sides(labels: Labels, node: int) -> tuple[Side, ...]:
    """The rows of a node, and of its two sides."""
    children = labels.tree.topology.children[node].tolist()
    named = [("all", node), *zip(labels.sides, children, strict=True)]
    return tuple(_side(labels, name, child) for name, child in named)


def _side(labels: Labels, name: str, child: int) -> Side:
    mean, says = labels.mean_of(child), labels.says(labels.mean_of(child))
    if labels.tree.value.ndim == 1:
        low, high = float(labels.tree.value.min()), float(labels.tree.value.max())
        picture = charts.on_track(float(mean[0]), low, high, f"{name}: {says}")
    else:
        picture = charts.stack(mean, f"{name}: {says}")
    at = f"{labels.prefix}{labels.path(child)}"
    return Side(name, at, words.quantity(labels.rows_of(child)), picture, says)


def _sizes(study: Study, node: int) -> tuple[Markup | None, str, str]:
    """The number of facets of a node: a chart, and in words by the posterior and the prior."""
    if study.is_forest or study.sizes is None:
        return None, "", ""
    found, prior = study.size_table, study.prior_table
    low, high = study.sizes.interval()[node].astype(int)
    text, before = words.posterior(int(study.sizes.median()[node]), low, high), ""
    expected = None if prior is None else prior[node]
    if expected is not None:
        mean = float(expected @ np.arange(len(expected)))
        before = f"; the prior expects {mean:.1f}"
    spoken = f"Posterior of the number of facets: {charts.said_sizes(found[node])}"
    return charts.sizes(found[node], expected, spoken), text, before


def _doubt(study: Study, node: int) -> str:
    """How sure the split is of the rows that were asked, in words."""
    if study.is_forest or study.uncertainty is None or study.asked is None:
        return ""
    row = study.doubt_table.iloc[node]
    if not row["rows"] > 0.5:
        return f"Hardly any of the {study.asked.name} come here, so that nothing tells."
    return (
        f"Of the {words.quantity(round(row['rows']))} {study.asked.name} that come here, "
        f"{words.percent(row['unsure'])} are unsure: their chance of the other side is above "
        f"10{words.SPACE}%. On average it is {words.percent(row['disagreement'])}."
    )


def _held(study: Study, tree: RoutedTree, leaf: int, reached: NDArray[np.int64] | None) -> str:
    """What became of the held-out rows of a leaf."""
    if reached is None or study.held is None or study.held.y is None:
        return ""
    own = study.held.y[reached == leaf]
    if len(own) == 0:
        return "No held-out row ends here."
    rows = words.count(len(own), "held-out row") + (" ends" if len(own) == 1 else " end")
    if tree.value.ndim == 1:
        return f"{rows} here; their mean is {words.number(float(own.astype(np.float64).mean()))}."
    best = int(tree.value[leaf].argmax())
    right = int((own == study.estimator.classes_[best]).sum())
    return f"{rows} here; {right} of them {'is' if right == 1 else 'are'} {study.classes[best]}."


def _slope(study: Study, tree: RoutedTree, leaf: int) -> tuple[tuple[str, str], ...]:
    """Terms of a linear leaf, the strongest first."""
    slope = tree.slope if isinstance(tree, Tree) else None
    if slope is None:
        return ()
    strength = np.abs(slope[leaf] * tree.scale)
    order = np.argsort(-strength, kind="stable")[: min(CLASSES, np.count_nonzero(strength))]
    return tuple(
        (study.features[j], words.number(float(slope[leaf, j]), 3)) for j in order.tolist()
    )


def _sample(study: Study, tree: RoutedTree) -> Sample:
    """Where some of the training rows lie at each node."""
    margin: dict[int, FloatArray] = {}
    labels: dict[int, NDArray[np.int64]] = {}
    if study.train is None:
        return Sample(margin, labels)
    rows = study.train.sample()
    X = rows.matrix
    coded = None
    if study.classifies and rows.y is not None and np.isin(rows.y, study.estimator.classes_).all():
        coded = np.searchsorted(study.estimator.classes_, rows.y)
    for node, reached, _ in tree.walk(X):
        margin[node] = log_odds(tree, node, X[reached])
        if coded is not None:
            labels[node] = coded[reached]
    return Sample(margin, labels)


def log_odds(tree: RoutedTree, node: int, X: FloatArray) -> FloatArray:
    """Of going right at a node, shape (n,), within what is worth telling."""
    if isinstance(tree, Tree):
        own = tree.experts(node)
        if own.stop - own.start == 1:
            activation = X @ tree.hyperplane[own.start] + tree.intercept[own.start]
            return activation - facet_threshold(tree.weight[own])[0]
    score = np.maximum(tree.score(node, X), np.exp(-FARTHEST))
    return score + np.log(-np.expm1(-score))


def _histogram(study: Study, labels: Labels, node: int, sample: Sample) -> Markup | None:
    margin = sample.margin.get(node)
    if margin is None or len(margin) == 0:
        return None
    ticks = None
    if study.splits_drawn:
        steepness = study.estimator.posterior_.model.steepness
        reach = steepness * (float(np.quantile(np.abs(margin), 0.98)) or 1.0)
        low, high = float(expit(-reach)), float(expit(reach))
        ticks = f"P({labels.sides[1]}) = {low:.2g}", f"{high:.2g}"
        if high > 0.995:
            ticks = f"P({labels.sides[1]}) < 0.01", "> 0.99"
    spoken = (
        f"Histogram of {words.count(len(margin), 'training row')} by the side of the split: "
        f"{words.quantity((margin <= 0).sum())} {labels.sides[0]}, "
        f"{words.quantity((margin > 0).sum())} {labels.sides[1]}"
    )
    return charts.histogram(margin, sample.labels.get(node), labels.sides, ticks, spoken)
