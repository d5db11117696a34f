"""Where a drawing of a tree has its nodes and leaves, and its leaves themselves."""

from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import one_line
from bayestree.plots import _style
from bayestree.routed_tree import RoutedTree
from bayestree.topology import Topology

BAR_WIDTH, BAR_HEIGHT = 0.8, 0.16  # of a leaf, in units of leaves and of levels
GAP = 0.1  # inches between the texts of two leaves
NAMED = 10  # classes in the legend, at most
TEXT = (2.5, 9.0)  # least and largest size of the text, in points
EDGES = 0.2  # on the left and right together, in units of leaves
# Of a tree of panels, in inches:
LINK = 0.35  # from a panel to the one below
LEAF = 0.18  # height of the bar of a leaf
HEADING = 0.32  # above all
NARROWEST = 0.95  # slot of a leaf


class Text(NamedTuple):
    """How leaves are written.

    Attributes
    ----------
    size : float
        Points.
    slot : float
        Inches of room for a line.
    bar : float
        Height of the bar of a leaf, in units of the Axes.
    width : float
        Width of that bar, in units of the Axes.
    beside : bool
        Whether the text stands on the right of the bar, in one line, or below it in two.
    """

    size: float
    slot: float
    bar: float = BAR_HEIGHT
    width: float = BAR_WIDTH
    beside: bool = False


def places(topology: Topology) -> tuple[FloatArray, FloatArray]:
    """Where nodes (V, 2) and leaves (L, 2) are: leaves side by side, parents above the middle."""
    node_at = np.zeros((topology.n_nodes, 2))
    leaf_at = np.zeros((topology.n_leaves, 2))
    node_at[:, 1] = -topology.node_depth
    leaf_at[:, 1] = -topology.leaf_depth
    # Read from left to right, paths are in the order of their words.
    order = np.argsort([label.replace("root", "") for label in topology.leaf_labels])
    leaf_at[order, 0] = np.arange(topology.n_leaves)
    for node in range(topology.n_nodes - 1, -1, -1):
        ends = [node_at[c] if c >= 0 else leaf_at[~c] for c in topology.children[node]]
        node_at[node, 0] = (ends[0][0] + ends[1][0]) / 2
    return node_at, leaf_at


class Panel(NamedTuple):
    """Inches of a panel, and of what is written above it, below it and on its left."""

    width: float
    height: float
    above: float
    below: float
    left: float = 0.0


def panels_as_tree(tree: RoutedTree, panel: Panel) -> NDArray[Any]:
    """Axes of a new Figure, one for each node where a drawing of the tree has it, shape (V,).

    Links and leaves are drawn, and there is room for a line of text above the root's panel.
    """
    node_at, leaf_at = places(tree.topology)
    level = panel.height + panel.above + panel.below + LINK
    slot = max((panel.width + panel.left + 2 * _style.PAD) / 2, NARROWEST)
    text = Text(_style.SMALL, slot, LEAF / level)
    leaf_at[:, 1] += (0.5 * panel.height + panel.above - 0.5 * LEAF) / level  # level with titles
    top = (0.5 * panel.height + panel.above + HEADING) / level
    bottom = min(
        (node_at[:, 1] - (0.5 * panel.height + panel.below) / level).min(),
        (leaf_at[:, 1] - (LEAF + 0.45) / level).min(),
    )
    width, height = slot * (tree.n_leaves + EDGES) + panel.left, level * (top - bottom)
    figure = Figure(figsize=(width, height))
    ground = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    left = -0.5 - EDGES / 2 - panel.left / slot
    ground.set(xlim=(left, left + width / slot), ylim=(bottom, top))
    ground.set_axis_off()
    _link_panels(ground, tree, panel, node_at, leaf_at)
    draw_leaves(ground, tree, leaf_at, text, legend=False)
    share = (panel.width / width, panel.height / height)
    corners = [
        ((x - left) * slot / width - share[0] / 2, (y - bottom) * level / height - share[1] / 2)
        for x, y in node_at
    ]
    return np.array([figure.add_axes((*corner, *share)) for corner in corners], dtype=object)


def _link_panels(
    ground: Axes, tree: RoutedTree, panel: Panel, node_at: FloatArray, leaf_at: FloatArray
) -> None:
    """Lines from below a panel to what is above the next one, or to a leaf."""
    level = panel.height + panel.above + panel.below + LINK
    above, below = 0.5 * panel.height + panel.above, 0.5 * panel.height + panel.below
    for (x, y), pair in zip(node_at, tree.topology.children.tolist(), strict=True):
        for child in pair:
            end = leaf_at[~child] if child < 0 else node_at[child]
            rise = 0.5 * LEAF if child < 0 else above
            ends = ([x, end[0]], [y - below / level, end[1] + rise / level])
            ground.plot(*ends, color="#B8B8B8", linewidth=1.6, zorder=1)


def draw_leaves(
    ax: Axes, tree: RoutedTree, leaf_at: FloatArray, text: Text, *, legend: bool = True
) -> None:
    """Each leaf as a bar of its classes or in the colour of its mean, with its rows.

    Parameters
    ----------
    ax : Axes
        A unit is a leaf across and a level down.
    leaf_at : array, shape (L, 2)
    text : Text
    legend : bool
        Whether the classes are named below the tree, where they are few.
    """
    if tree.value.ndim == 1:
        _value_leaves(ax, tree, leaf_at, text)
        return
    _class_leaves(ax, tree, leaf_at, text)
    if legend and tree.value.shape[1] <= NAMED:
        _class_legend(ax, tree, text)


def _class_leaves(ax: Axes, tree: RoutedTree, leaf_at: FloatArray, text: Text) -> None:
    names = [one_line(name) for name in tree.class_labels]
    colours = _style.class_colours(len(names))
    room = text.slot - GAP * text.size / TEXT[1] - _style.inches(": 100.0 %", text.size)
    shown = [_style.cut(name, text.size, room) for name in names]
    counts = _counts(tree, text)
    for leaf, (x, y) in enumerate(leaf_at):
        start = x - text.width / 2
        for share, colour in zip(tree.value[leaf], colours, strict=True):
            bar = Rectangle(
                (start, y - text.bar / 2),
                text.width * share,
                text.bar,
                facecolor=colour,
                linewidth=0,
                zorder=3,
            )
            ax.add_patch(bar)
            start += text.width * share
        best = int(tree.value[leaf].argmax())
        label = f"{shown[best]}: {100 * tree.value[leaf, best]:.1f} %".removeprefix(": ")
        _leaf_frame(ax, x, y, text)
        _leaf_text(ax, x, y, f"{label}\n{counts[leaf]}", text)


def _class_legend(ax: Axes, tree: RoutedTree, text: Text) -> None:
    names = [one_line(name) for name in tree.class_labels]
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=colour, label=name)
        for name, colour in zip(names, _style.class_colours(len(names)), strict=True)
    ]
    ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0 if text.beside else 0.02),
        ncols=_style.legend_columns(names, _style.width_of(ax)),
        frameon=False,
        fontsize=max(text.size, _style.SMALL),
        handlelength=1.0,
        handleheight=1.0,
    )


def _value_leaves(ax: Axes, tree: RoutedTree, leaf_at: FloatArray, text: Text) -> None:
    low, high = float(tree.value.min()), float(tree.value.max())
    scale = Normalize(low, high if high > low else low + 1.0)
    colours = mpl.colormaps[_style.VALUES]
    counts = _counts(tree, text)
    for leaf, (x, y) in enumerate(leaf_at):
        bar = Rectangle(
            (x - text.width / 2, y - text.bar / 2),
            text.width,
            text.bar,
            facecolor=colours(scale(tree.value[leaf])),
            linewidth=0,
            zorder=3,
        )
        ax.add_patch(bar)
        _leaf_frame(ax, x, y, text)
        _leaf_text(ax, x, y, f"{tree.value[leaf]:.4g}\n{counts[leaf]}", text)


def _leaf_frame(ax: Axes, x: float, y: float, text: Text) -> None:
    corner = (x - text.width / 2, y - text.bar / 2)
    frame = Rectangle(corner, text.width, text.bar, facecolor="none", edgecolor=_style.INK)
    frame.set(linewidth=0.9, zorder=4)
    ax.add_patch(frame)


def _counts(tree: RoutedTree, text: Text) -> list[str]:
    """Rows of each leaf; without that word where it is too wide."""
    counts = [_style.rows(weight) for weight in tree.leaf_rows.tolist()]
    longest = max(counts, key=len)
    fits = _style.inches(longest, text.size) <= text.slot
    return counts if fits else [count.split()[0] for count in counts]


def _leaf_text(ax: Axes, x: float, y: float, lines: str, text: Text) -> None:
    place: dict[str, Any] = {"ha": "center", "va": "top"}
    if text.beside:
        x, lines = x + 0.58 * text.width, lines.replace("\n", ", ")
        place = {"ha": "left", "va": "center"}
    else:
        y -= 0.875 * text.bar
    ax.text(x, y, lines, fontsize=text.size, color=_style.INK, zorder=4, **place)
