"""A tree as nodes and links."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayestree._inequality import inequality, limit
from bayestree._trees import has_draws, tree_of
from bayestree.diagnostics.polytopes import n_facets
from bayestree.diagnostics.size import PolytopeSize
from bayestree.plots import _style
from bayestree.plots._layout import EDGES, GAP, TEXT, Text, draw_leaves, places
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree, facet_threshold

Floats = NDArray[np.float64]

SLOT = (1.15, 2.0)  # inches of a leaf in a figure of our own, by the length of its names
WIDEST = 22.0  # inches
NEAR = 3.0  # standard deviations
TERMS = 2  # of the condition of a node


def tree(
    estimator: Any,
    ax: Axes | None = None,
    *,
    sizes: bool | PolytopeSize = True,
    level: float = 0.9,
) -> Axes:
    """Drawing of the deterministic tree.

    A node says how many training rows reach it and what goes left: of a split by one facet the
    condition, by its two largest terms; of a polytope the number of its facets, whose inside goes
    left. Where there are several posterior draws, that is the most probable number of facets,
    with a central interval in brackets; else that of the deterministic tree within three standard
    deviations of the mean of each feature. The width of a link grows with its rows. A leaf shows
    the probabilities of the classes as a bar, or its mean.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
    ax : Axes, optional
        A new figure is as wide as the tree needs.
    sizes : bool or PolytopeSize
        What ``estimator.polytope_size()`` returned, if it is at hand; True measures it, False
        shows the deterministic tree alone.
    level : float
        Probability that the interval holds the number of facets.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If ``sizes`` are those of another tree, or ``level`` is not between 0 and 1.
    """
    found = tree_of(estimator)
    measured = _measured(estimator, found, sizes)
    node_texts = _node_texts(found, measured, level)
    if ax is None:
        ax = _new_axes(found)
    text = _text_of(_style.width_of(ax) / (found.n_leaves + EDGES), node_texts)
    node_at, leaf_at = places(found.topology)
    _links(ax, found, node_at, leaf_at, _side_names(found, measured), text.size)
    _nodes(ax, node_at, node_texts, text.size)
    draw_leaves(ax, found, leaf_at, text)
    if measured is not None and found.n_nodes:
        _note(ax, f"[ ]  {level:.0%} interval")
    ax.set(
        xlim=(-0.5 - EDGES / 2, found.n_leaves - 0.5 + EDGES / 2), ylim=(-found.depth - 0.62, 0.35)
    )
    ax.set_axis_off()
    return ax


def _new_axes(tree: RoutedTree) -> Axes:
    """As wide as the tree needs."""
    names = tree.class_labels if tree.value.ndim == 2 else ("",)
    widest = max(_style.inches(f"{name}00.00", TEXT[1]) for name in names)
    slot = float(np.clip(widest + 1.1 * GAP, *SLOT))
    width = float(np.clip(slot * (tree.n_leaves + EDGES) + 2 * _style.PAD, 3.2, WIDEST))
    return _style.new_axes(width, 1.0 + 0.85 * (tree.depth + 1))


def _text_of(slot: float, node_texts: list[str]) -> Text:
    """The largest text with which nodes side by side, which have two leaves of room, stay apart."""
    lines = {line for text in node_texts for line in text.splitlines()}
    widest = max((_style.inches(line, TEXT[1]) for line in lines), default=0.0) + 2 * GAP
    return Text(float(np.clip(TEXT[1] * 2 * slot / widest, *TEXT)), slot)


def _rows_below(tree: RoutedTree, child: int) -> float:
    """Training rows that reach a node, or a leaf ``~child``."""
    if child < 0:
        return float(tree.leaf_rows[~child])
    return float(tree.leaf_rows[tree.topology.subtree_leaves(child)].sum())


def _facets_near(tree: Tree, node: int) -> int:
    """Facets that bound a node's polytope where rows are to be expected."""
    own = tree.experts(node)
    low, high = tree.center - NEAR * tree.scale, tree.center + NEAR * tree.scale
    planes = (tree.weight[own], tree.hyperplane[own], tree.intercept[own])
    return max(n_facets(*planes, low, high), 1)


def _links(
    ax: Axes,
    tree: RoutedTree,
    node_at: Floats,
    leaf_at: Floats,
    words: tuple[str, str],
    size: float,
) -> None:
    total = max(float(tree.leaf_rows.sum()), 1.0)
    for node, pair in enumerate(tree.topology.children):
        for side, (word, child) in enumerate(zip(words, pair, strict=True)):
            end = node_at[child] if child >= 0 else leaf_at[~child]
            width = 0.6 + 5.0 * _rows_below(tree, int(child)) / total
            ax.plot(
                *zip(node_at[node], end, strict=True),
                color="#B8B8B8",
                linewidth=width,
                solid_capstyle="round",
                zorder=1,
            )
            if node == 0:
                middle = (node_at[node] + end) / 2
                align, gap = (("right", -0.08), ("left", 0.08))[side]
                ax.text(
                    middle[0] + gap,
                    middle[1] + 0.08,
                    word,
                    ha=align,
                    va="bottom",
                    fontsize=0.9 * size,
                    style="italic",
                    color=_style.INK,
                )


def _measured(estimator: Any, tree: RoutedTree, sizes: bool | PolytopeSize) -> PolytopeSize | None:
    """Posterior of the facets, where there is one to show."""
    if isinstance(sizes, PolytopeSize):
        if sizes.labels != tree.topology.node_labels:
            raise ValueError(
                f"sizes describes the nodes {', '.join(sizes.labels)}, but the tree has "
                f"{', '.join(tree.topology.node_labels)}; measure the estimator that is drawn."
            )
        return sizes
    if not sizes or not has_draws(estimator):
        return None
    measured: PolytopeSize = estimator.polytope_size()
    return measured


def _node_texts(tree: RoutedTree, measured: PolytopeSize | None, level: float) -> list[str]:
    """Facets and rows of each node."""
    nodes = range(tree.n_nodes)
    if measured is None:
        splits = [_split_text(tree, v) for v in nodes]
    else:
        bounds = measured.interval(level).astype(int)
        splits = [
            f"{_facets(count)} [{low}, {high}]"
            for count, (low, high) in zip(measured.mode().tolist(), bounds, strict=True)
        ]
    return [
        f"{text}\n{_rows_below(tree, v):,.0f} rows" for v, text in zip(nodes, splits, strict=True)
    ]


def _split_text(tree: RoutedTree, node: int) -> str:
    """What goes left at a node: of one facet the condition, of several their number."""
    if not isinstance(tree, Tree):
        return tree.split_name
    own = tree.experts(node)
    plane, strength = tree.hyperplane[own.start], np.abs(tree.standardised_hyperplane[own.start])
    if own.stop - own.start > 1:
        return _facets(_facets_near(tree, node))
    if not strength.any():
        return "no feature"
    terms, first = inequality(
        plane,
        strength,
        tree.feature_labels,
        max_features=TERMS,
        decimals=2,
        separator="\n",
    )
    bound = (facet_threshold(tree.weight[own])[0] - tree.intercept[own.start]) / plane[first]
    return f"{terms} {limit(float(bound), float(tree.scale[first]), 2)}"


def _side_names(tree: RoutedTree, measured: PolytopeSize | None) -> tuple[str, str]:
    """What the ways from the root are called: a condition holds or not, a polytope has insides."""
    if isinstance(tree, Tree) and measured is None and (tree.n_facets == 1).all():
        return "yes", "no"
    return tree.side_names


def _facets(count: int) -> str:
    return f"{count} facet{'s' * (count != 1)}"


def _nodes(ax: Axes, node_at: Floats, node_texts: list[str], size: float) -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": _style.INK}
    for (x, y), text in zip(node_at, node_texts, strict=True):
        ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=size,
            color=_style.INK,
            bbox={**box, "linewidth": 0.9},
            zorder=3,
        )


def _note(ax: Axes, text: str) -> None:
    ax.text(
        0.99,
        1.0,
        text,
        ha="right",
        va="top",
        fontsize=_style.SMALL,
        color=_style.INK,
        transform=ax.transAxes,
    )
