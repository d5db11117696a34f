"""A tree as nodes and links."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from bayestree._trees import has_draws, tree_of
from bayestree._utils.arrays import FloatArray
from bayestree._utils.inequality import inequality, limit
from bayestree._utils.wording import one_line
from bayestree.diagnostics.size import PolytopeSize
from bayestree.plots import _style
from bayestree.plots._layout import EDGES, GAP, TEXT, Text, draw_leaves, places
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

SLOT = (1.15, 2.0)  # inches of a leaf, by the length of its names
LARGEST = 14.0, 18.0  # inches of a figure of our own; then the text shrinks
LEVEL = 0.85  # inches from a node to those below it, at least
LINE = 1.25  # height of a line of text, in units of its size
LINK = 0.4  # inches between the boxes of nodes on a way
BAR = 0.6, 0.13  # inches of the bar of a leaf that has its text beside it
NAME = 1.6  # inches of the name of a feature
TERMS = 2  # of the condition of a node


def tree(
    estimator: Any,
    ax: Axes | None = None,
    *,
    sizes: bool | PolytopeSize = True,
    level: float = 0.9,
) -> Axes:
    """Drawing of the deterministic tree.

    A node says what goes left, and how many training rows reach it: of a split by one facet the
    condition, by its two largest terms; of a polytope, whose inside goes left, the facet nearest
    to the mean of the data and how many others bound it. These are the point estimate. Where there
    are several posterior draws, a line has the posterior of the number of facets: the most
    probable, with a central interval in brackets. The width of a link grows with its rows. A leaf
    shows the probabilities of the classes as a bar, or its mean. A tree that would be too wide
    grows from left to right.

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
    plan = _plan(found, node_texts)
    if ax is None:
        ax = _style.new_axes(
            max(min(plan.width, LARGEST[0]), 3.2) + 2 * _style.PAD,
            min(plan.height, LARGEST[1]) + (0.6 if measured is None else 0.9),
        )
        scale = min(1.0, LARGEST[0] / plan.width, LARGEST[1] / plan.height)
    else:
        room = ax.get_window_extent()
        width, height = room.width / ax.figure.dpi, room.height / ax.figure.dpi
        scale = min(1.0, width / plan.width, height / plan.height)
    size = max(scale * TEXT[1], TEXT[0])
    node_at, leaf_at = places(found.topology)
    text = Text(size, scale * plan.slot)
    if plan.lies:
        node_at, leaf_at = (at[:, ::-1] * [-plan.column, -plan.slot] for at in (node_at, leaf_at))
        text = Text(size, scale * plan.leaf, BAR[1], BAR[0], beside=True)
        ax.set(xlim=(-plan.column / 2, plan.width - plan.column / 2))
        ax.set(ylim=(-plan.slot * (found.n_leaves - 0.4), 0.6 * plan.slot + 0.2))
    else:
        edge = (1 + EDGES) / 2
        ax.set(xlim=(-edge, found.n_leaves - 1 + edge), ylim=(-found.depth - 0.62, 0.35))
    _links(ax, found, node_at, leaf_at, text)
    _nodes(ax, node_at, node_texts, size)
    draw_leaves(ax, found, leaf_at, text)
    if measured is not None and found.n_nodes:
        said = f"conditions: point estimate\nposterior: number of facets [{level:.0%} interval]"
        ax.set_title(said, loc="right", fontsize=_style.SMALL, color=_style.INK)
    ax.set_axis_off()
    return ax


class _Plan(NamedTuple):
    """A way to lay out a tree, with the inches that it takes at full size.

    Attributes
    ----------
    lies : bool
        Whether the tree grows from left to right, or downwards.
    width, height : float
    slot : float
        Of a leaf, across the direction of growth.
    column : float
        From a node to those next to it, in the direction of growth.
    leaf : float
        Width of a leaf's text.
    """

    lies: bool
    width: float
    height: float
    slot: float
    column: float
    leaf: float

    @property
    def excess(self) -> float:
        """How many times larger it is than the largest figure."""
        return max(self.width / LARGEST[0], self.height / LARGEST[1], 1.0)


def _plan(tree: RoutedTree, node_texts: list[str]) -> _Plan:
    """The layout that can be drawn larger; downwards, if both fit."""
    lines = [text.splitlines() for text in node_texts] or [[""]]
    wide = max(_style.inches(line, TEXT[1]) for text in lines for line in text) + 2 * GAP
    high = LINE * TEXT[1] / 72 * max(map(len, lines)) + GAP
    names = tree.class_labels if tree.value.ndim == 2 else ("",)
    leaf = max(_style.inches(f"{one_line(name)}: 100.0 %", TEXT[1]) for name in names) + 1.1 * GAP
    leaf = float(np.clip(leaf, *SLOT))
    slot, level = max(leaf, wide / 2), max(LEVEL, high + LINK)
    stands = _Plan(
        False, slot * (tree.n_leaves + EDGES), level * (tree.depth + 0.97), slot, level, leaf
    )
    slot, column = high / 2 + GAP / 2, wide + LINK
    rows = _style.inches(f", {tree.leaf_rows.max():,.0f} rows", TEXT[1])
    width = column * (tree.depth + 0.5) + BAR[0] + leaf + rows
    lies = _Plan(True, width, slot * (tree.n_leaves + 0.2) + 0.2, slot, column, leaf + rows)
    return min(stands, lies, key=lambda plan: plan.excess)


def _rows_below(tree: RoutedTree, child: int) -> float:
    """Training rows that reach a node, or a leaf ``~child``."""
    if child < 0:
        return float(tree.leaf_rows[~child])
    return float(tree.leaf_rows[tree.topology.subtree_leaves(child)].sum())


def _links(
    ax: Axes, tree: RoutedTree, node_at: FloatArray, leaf_at: FloatArray, text: Text
) -> None:
    total = max(float(tree.leaf_rows.sum()), 1.0)
    for node, pair in enumerate(tree.topology.children):
        for side, (word, child) in enumerate(zip(_side_names(tree), pair, strict=True)):
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
                _side(ax, 0.4 * node_at[node] + 0.6 * end, word, side, text)


def _side(ax: Axes, place: FloatArray, word: str, side: int, text: Text) -> None:
    """What one of the ways from the root is called, beside its link."""
    x, y = place
    if text.beside:
        align: dict[str, Any] = {"ha": "right", "va": ("bottom", "top")[side]}
    else:
        x += (-0.08, 0.08)[side]
        align = {"ha": ("right", "left")[side], "va": "bottom"}
    ax.text(x, y, word, fontsize=0.9 * text.size, style="italic", color=_style.INK, **align)


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
    """Condition, posterior of the facets, and rows of each node."""
    names = [_style.cut(one_line(name), TEXT[1], NAME) for name in tree.feature_labels]
    sizes = [""] * tree.n_nodes
    if measured is not None:
        bounds = measured.interval(level).astype(int).tolist()
        sizes = [
            f"posterior: {median} [{low}, {high}]\n"
            for median, (low, high) in zip(measured.median().tolist(), bounds, strict=True)
        ]
    return [
        f"{_split_text(tree, v, names)}\n{size}{_style.rows(_rows_below(tree, v))}"
        for v, size in enumerate(sizes)
    ]


def _split_text(tree: RoutedTree, node: int, names: list[str]) -> str:
    """What goes left at a node: the condition of its nearest facet, and how many there are."""
    if not isinstance(tree, Tree):
        return tree.split_name
    nearest, *others = tree.nearest_experts(node).tolist()
    more = f"\n+ {len(others)} facet{'s' * (len(others) > 1)}" if others else ""
    plane, strength = tree.hyperplane[nearest], np.abs(tree.standardised_hyperplane[nearest])
    if not strength.any():
        return f"no feature{more}"
    terms, first = inequality(
        plane, strength, names, max_features=TERMS, decimals=2, separator="\n"
    )
    bound = float(tree.facet_limit[nearest] / plane[first])
    return f"{terms} {limit(bound, float(tree.scale[first]), 2)}{more}"


def _side_names(tree: RoutedTree) -> tuple[str, str]:
    """What the ways from the root are called: a condition holds or not, a polytope has insides."""
    if isinstance(tree, Tree) and (tree.n_facets == 1).all():
        return "yes", "no"
    return tree.side_names


def _nodes(ax: Axes, node_at: FloatArray, node_texts: list[str], size: float) -> None:
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
