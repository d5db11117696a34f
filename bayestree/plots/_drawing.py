"""Leaves of drawn trees, and trees of panels."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import counted
from bayestree.description import TreeDescription
from bayestree.plots import _style
from bayestree.plots._layout import positions
from bayestree.routed_tree import RoutedTree

BAR_WIDTH, BAR_HEIGHT = 0.8, 0.16  # of a leaf, in units of leaves and of levels
GAP = 0.1  # inches between the texts of two leaves
MAX_NAMED = 10  # maximum number of classes in the legend
TEXT = (2.5, 9.0)  # minimum and maximum size of text, in points
EDGES = 0.2  # left and right margins together, in units of leaves
LINK = "#B8B8B8"
# Inches in a tree of panels:
PANEL_LINK = 0.35  # from a panel to the one below
LEAF = 0.18  # height of the bar of a leaf
HEADING = 0.32  # above the root
MIN_WIDTH = 0.95  # width of a leaf with its margins


class LeafStyle(NamedTuple):
    """Style of the leaves: text size in points, inches for a line of text, and size of the bar.

    ``bar`` and ``width`` are in units of the Axes. The text is ``beside`` the bar in one line, or
    below it in two.
    """

    size: float
    slot: float
    bar: float = BAR_HEIGHT
    width: float = BAR_WIDTH
    beside: bool = False


def draw_leaves(
    ax: Axes, described: TreeDescription, leaf_at: FloatArray, style: LeafStyle
) -> None:
    """Draw each leaf as a bar of its classes or in the colour of its mean, with its rows."""
    tree = described.tree
    palettes: list[Any]
    if described.classifies:
        shares, colours = tree.value, _style.class_colours(len(described.classes))
        palettes = [colours] * tree.n_leaves
        labels = _class_labels(described, style)
    else:
        shares, scale = np.ones((tree.n_leaves, 1)), _style.value_colours(tree)
        palettes = [[scale["cmap"](scale["norm"](value))] for value in tree.value]
        labels = [f"{value:.4g}" for value in tree.value]
    counts = _counts(tree, style)
    for leaf, (x, y) in enumerate(leaf_at):
        start, bottom = x - style.width / 2, y - style.bar / 2
        frame = Rectangle((start, bottom), style.width, style.bar, facecolor="none")
        frame.set(edgecolor=_style.INK, linewidth=0.9, zorder=4)
        for share, colour in zip(shares[leaf], palettes[leaf], strict=True):
            part = Rectangle((start, bottom), style.width * share, style.bar, facecolor=colour)
            part.set(linewidth=0, zorder=3)
            ax.add_patch(part)
            start += style.width * share
        ax.add_patch(frame)
        _leaf_text(ax, x, y, [labels[leaf], counts[leaf]], style)


def class_legend(ax: Axes, described: TreeDescription, style: LeafStyle) -> None:
    """Name the classes below the tree if they are few."""
    names = described.classes
    if not 0 < len(names) <= MAX_NAMED:
        return
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=colour, label=name)
        for name, colour in zip(names, _style.class_colours(len(names)), strict=True)
    ]
    ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0 if style.beside else 0.02),
        ncols=_style.legend_columns(names, _style.width_of(ax)),
        frameon=False,
        fontsize=max(style.size, _style.SMALL),
        handlelength=1.0,
        handleheight=1.0,
    )


def _class_labels(described: TreeDescription, style: LeafStyle) -> list[str]:
    """The most probable class of each leaf, cut to the room, with its probability."""
    value = described.tree.value
    room = style.slot - GAP * style.size / TEXT[1] - _style.inches(": 100.0 %", style.size)
    names = [_style.cut(name, style.size, room) for name in described.classes]
    if names != list(described.classes):  # "class 5" is also known as "5"
        names = [_style.cut(n.removeprefix("class "), style.size, room) for n in described.classes]
    return [
        f"{names[best]}: {100 * value[leaf, best]:.1f} %".removeprefix(": ")
        for leaf, best in enumerate(value.argmax(axis=1))
    ]


def _counts(tree: RoutedTree, style: LeafStyle) -> list[str]:
    """Rows of each leaf; without the noun if it is too wide."""
    counts = [counted(round(weight), "row") for weight in tree.leaf_rows.tolist()]
    fits = _style.inches(max(counts, key=len), style.size) <= style.slot
    return counts if fits else [count.split()[0] for count in counts]


def _leaf_text(ax: Axes, x: float, y: float, lines: list[str], style: LeafStyle) -> None:
    align: dict[str, Any] = {"ha": "center", "va": "top"}
    if style.beside:
        x, align = x + 0.58 * style.width, {"ha": "left", "va": "center"}
    else:
        y -= 0.875 * style.bar
    text = (", " if style.beside else "\n").join(lines)
    ax.text(x, y, text, fontsize=style.size, color=_style.INK, zorder=4, **align)


class Panel(NamedTuple):
    """Inches of a panel, and of the texts above, below and on the left of it."""

    width: float
    height: float
    above: float
    below: float
    left: float = 0.0


def panels_as_tree(tree: RoutedTree, panel: Panel) -> AnyArray:
    """Axes of a new Figure, one for each node, arranged as the tree, shape (V,).

    Links and leaves are drawn, and there is room for a line of text above the root's panel.
    """
    node_at, leaf_at = positions(tree.topology)
    above, below = 0.5 * panel.height + panel.above, 0.5 * panel.height + panel.below
    level = above + below + PANEL_LINK
    slot = max((panel.width + panel.left + 2 * _style.PAD) / 2, MIN_WIDTH)
    leaf_at[:, 1] += (above - 0.5 * LEAF) / level  # level with the titles of panels
    top = (above + HEADING) / level
    bottom = min(
        (node_at[:, 1] - below / level).min(), (leaf_at[:, 1] - (LEAF + 0.45) / level).min()
    )
    width, height = slot * (tree.n_leaves + EDGES) + panel.left, level * (top - bottom)
    figure = Figure(figsize=(width, height))
    ground = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    left = -0.5 - EDGES / 2 - panel.left / slot
    ground.set(xlim=(left, left + width / slot), ylim=(bottom, top))
    ground.set_axis_off()
    for (x, y), children in zip(node_at, tree.topology.children.tolist(), strict=True):
        for child in children:
            end = leaf_at[~child] if child < 0 else node_at[child]
            rise = 0.5 * LEAF if child < 0 else above
            ends = ([x, end[0]], [y - below / level, end[1] + rise / level])
            ground.plot(*ends, color=LINK, linewidth=1.6, zorder=1)
    style = LeafStyle(_style.SMALL, slot, LEAF / level)
    draw_leaves(ground, TreeDescription(tree), leaf_at, style)
    share = (panel.width / width, panel.height / height)
    corners = [
        ((x - left) * slot / width - share[0] / 2, (y - bottom) * level / height - share[1] / 2)
        for x, y in node_at
    ]
    return np.array([figure.add_axes((*corner, *share)) for corner in corners], dtype=object)
