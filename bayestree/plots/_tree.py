"""A tree as nodes and links."""

from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import counted, one_line
from bayestree.description import TreeDescription
from bayestree.diagnostics.size import PolytopeSize
from bayestree.plots import _style
from bayestree.plots._drawing import EDGES, GAP, LINK, TEXT, LeafStyle, class_legend, draw_leaves
from bayestree.plots._layout import positions
from bayestree.protocols import BayesianTree, FittedTree, has_draws, tree_of
from bayestree.routed_tree import RoutedTree

SLOT = (1.15, 2.0)  # minimum and maximum inches of a leaf
MAX_SIZE = 14.0, 18.0  # maximum inches of a new figure; beyond it the text shrinks
LEVEL = 0.85  # minimum inches from a node to its children
LINE = 1.25  # height of a line of text, in units of its size
SPACE = 0.4  # inches between the boxes of a node and its child
BAR = 0.6, 0.13  # inches of the bar of a leaf with its text beside it
NAME = 1.6  # maximum inches of the name of a feature
TERMS, DIGITS = 2, 2  # of the condition of a node


def tree(
    estimator: FittedTree | RoutedTree,
    ax: Axes | None = None,
    *,
    sizes: bool | PolytopeSize = True,
    level: float = 0.9,
) -> Axes:
    """Draw the deterministic tree.

    A node shows its split and how many training rows reach it. A split by one facet is shown as a
    condition for going left, on its two largest terms. A polytope is shown by the facet nearest to
    the mean of the data and the number of its other facets, each of which is necessary for going
    left, but not sufficient. These are the point estimate. With several posterior draws, another
    line shows the posterior of the number of facets that alone cut off at least 1 % of the rows:
    its median, with a central interval in brackets. The width of a link grows with the number of
    its rows. A leaf shows the probabilities of the classes as a bar, or its mean. A tree
    that would be too wide grows from left to right.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
    ax : Axes, optional
        By default those of a new figure, as wide as the tree needs.
    sizes : bool or PolytopeSize
        The result of ``estimator.polytope_size()``, if it is available; True computes it, False
        shows the deterministic tree alone.
    level : float
        Probability of the interval of the number of facets.

    Raises
    ------
    ValueError
        If ``sizes`` describes another tree, or ``level`` is not between 0 and 1.
    """
    found = tree_of(estimator)
    measured = _measured(estimator, found, sizes)
    names = [_style.cut(one_line(name), TEXT[1], NAME) for name in found.feature_labels]
    described = TreeDescription(found, TERMS, DIGITS, features=names, separator="\n")
    node_texts = _node_texts(described, measured, level)
    plan = min(_upright(described, node_texts), _horizontal(described, node_texts),
               key=lambda plan: plan.excess)  # fmt: skip
    if ax is None:
        ax = _style.new_axes(
            max(min(plan.width, MAX_SIZE[0]), 3.2) + 2 * _style.PAD,
            min(plan.height, MAX_SIZE[1]) + (0.6 if measured is None else 0.9),
        )
        room = MAX_SIZE
    else:
        window = ax.get_window_extent()
        room = window.width / ax.figure.dpi, window.height / ax.figure.dpi
    scale = min(1.0, room[0] / plan.width, room[1] / plan.height)
    node_at, leaf_at, style = _placed(ax, found, plan, scale)
    _links(ax, described, node_at, leaf_at, style)
    _nodes(ax, node_at, node_texts, style.size)
    draw_leaves(ax, described, leaf_at, style)
    class_legend(ax, described, style)
    if measured is not None and found.n_nodes:
        title = f"conditions: point estimate\nposterior: number of facets [{level:.0%} interval]"
        ax.set_title(title, loc="right", fontsize=_style.SMALL, color=_style.INK)
    ax.set_axis_off()
    return ax


class _Plan(NamedTuple):
    """Dimensions in inches of a tree at full size, in one orientation.

    ``slot`` is the extent of a leaf across the direction of growth, ``column`` the distance from a
    node to its children along it, and ``leaf`` the width of the text of a leaf.
    """

    horizontal: bool
    width: float
    height: float
    slot: float
    column: float
    leaf: float

    @property
    def excess(self) -> float:
        """Size relative to the largest figure; 1 if it fits."""
        return max(self.width / MAX_SIZE[0], self.height / MAX_SIZE[1], 1.0)


def _node_extent(node_texts: list[str]) -> tuple[float, float]:
    """Width and height of the largest node, in inches."""
    lines = [text.splitlines() for text in node_texts] or [[""]]
    wide = max(_style.inches(line, TEXT[1]) for text in lines for line in text) + 2 * GAP
    return wide, LINE * TEXT[1] / 72 * max(map(len, lines)) + GAP


def _leaf_width(described: TreeDescription) -> float:
    labels = [f"{name}: 100.0 %" for name in described.classes or ("",)]
    widest = max(_style.inches(label, TEXT[1]) for label in labels) + 1.1 * GAP
    return float(np.clip(widest, *SLOT))


def _upright(described: TreeDescription, node_texts: list[str]) -> _Plan:
    """A tree that grows downwards."""
    (wide, high), leaf, tree = _node_extent(node_texts), _leaf_width(described), described.tree
    slot, level = max(leaf, wide / 2), max(LEVEL, high + SPACE)
    width, height = slot * (tree.n_leaves + EDGES), level * (tree.depth + 0.97)
    return _Plan(False, width, height, slot, level, leaf)


def _horizontal(described: TreeDescription, node_texts: list[str]) -> _Plan:
    """A tree that grows from left to right."""
    (wide, high), tree = _node_extent(node_texts), described.tree
    slot, column = high / 2 + GAP / 2, wide + SPACE
    rows = _style.inches(f", {tree.leaf_rows.max():,.0f} rows", TEXT[1])
    leaf = _leaf_width(described) + rows
    width = column * (tree.depth + 0.5) + BAR[0] + leaf
    return _Plan(True, width, slot * (tree.n_leaves + 0.2) + 0.2, slot, column, leaf)


def _placed(
    ax: Axes, tree: RoutedTree, plan: _Plan, scale: float
) -> tuple[FloatArray, FloatArray, LeafStyle]:
    """Positions of nodes (V, 2) and leaves (L, 2), and the style of leaves; sets the limits."""
    size = max(scale * TEXT[1], TEXT[0])
    node_at, leaf_at = positions(tree.topology)
    if plan.horizontal:
        node_at, leaf_at = (at[:, ::-1] * [-plan.column, -plan.slot] for at in (node_at, leaf_at))
        ax.set(xlim=(-plan.column / 2, plan.width - plan.column / 2))
        ax.set(ylim=(-plan.slot * (tree.n_leaves - 0.4), 0.6 * plan.slot + 0.2))
        return node_at, leaf_at, LeafStyle(size, scale * plan.leaf, BAR[1], BAR[0], beside=True)
    edge = (1 + EDGES) / 2
    ax.set(xlim=(-edge, tree.n_leaves - 1 + edge), ylim=(-tree.depth - 0.62, 0.35))
    return node_at, leaf_at, LeafStyle(size, scale * plan.slot)


def _links(
    ax: Axes, described: TreeDescription, node_at: FloatArray, leaf_at: FloatArray, style: LeafStyle
) -> None:
    for node, children in enumerate(described.tree.topology.children.tolist()):
        for side, child in enumerate(children):
            end = node_at[child] if child >= 0 else leaf_at[~child]
            ax.plot(
                *zip(node_at[node], end, strict=True),
                color=LINK,
                linewidth=0.6 + 5.0 * described.share(child),
                solid_capstyle="round",
                zorder=1,
            )
            if node == 0:
                name = described.common_sides[side]
                _side_name(ax, 0.4 * node_at[node] + 0.6 * end, name, side, style)


def _side_name(ax: Axes, place: FloatArray, name: str, side: int, style: LeafStyle) -> None:
    """Name of a side of the root, beside its link."""
    x, y = place
    if style.beside:
        align: dict[str, Any] = {"ha": "right", "va": ("bottom", "top")[side]}
    else:
        x += (-0.08, 0.08)[side]
        align = {"ha": ("right", "left")[side], "va": "bottom"}
    ax.text(x, y, name, fontsize=0.9 * style.size, style="italic", color=_style.INK, **align)


def _measured(
    estimator: object, tree: RoutedTree, sizes: bool | PolytopeSize
) -> PolytopeSize | None:
    """Posterior of the number of facets, if there is one to show."""
    if isinstance(sizes, PolytopeSize):
        if sizes.labels != tree.topology.node_labels:
            raise ValueError(
                f"sizes describes the nodes {', '.join(sizes.labels)}, but the tree has "
                f"{', '.join(tree.topology.node_labels)}; pass the sizes of the same estimator."
            )
        return sizes
    if not sizes or not has_draws(estimator):
        return None
    return cast(BayesianTree, estimator).polytope_size()


def _node_texts(
    described: TreeDescription, measured: PolytopeSize | None, level: float
) -> list[str]:
    """Condition, posterior of the number of facets, and rows of each node."""
    n_nodes = described.tree.n_nodes
    sizes = [""] * n_nodes
    if measured is not None:
        bounds = measured.interval(level).astype(int).tolist()
        sizes = [
            f"posterior: {median} [{low}, {high}]\n"
            for median, (low, high) in zip(measured.median().tolist(), bounds, strict=True)
        ]
    return [
        f"{_condition(described, v)}\n{sizes[v]}{counted(round(described.rows(v)), 'row')}"
        for v in range(n_nodes)
    ]


def _condition(described: TreeDescription, node: int) -> str:
    """Condition of the left side of a node: its nearest facet, and the number of the others."""
    if described.linear is None:
        return described.tree.split_name
    (nearest,) = described.half_spaces(node, 1)
    others = described.n_facets(node) - 1
    more = f"\n+ {counted(others, 'facet')}" if others else ""
    return f"{nearest if nearest.left else 'no feature'}{more}"


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
