"""Trees as nodes and links: their layout, their leaves, and whole trees or branches."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import counted, one_line
from bayestree.description import FittedModel, TreeDescription, has_draws, tree_of, visits
from bayestree.diagnostics.size import PolytopeSize
from bayestree.plots import _style
from bayestree.plots._node_views import NodeRows, NodeView, left_handle, view_of
from bayestree.routed_tree import RoutedTree
from bayestree.topology import Topology
from bayestree.tree import Tree

BAR_WIDTH = 0.8  # of a leaf, in units of leaves
GAP = 0.1  # inches between the texts of two leaves
MAX_NAMED = 10  # maximum number of classes in the legend
TEXT = (2.5, 9.0)  # minimum and maximum size of text, in points
EDGES = 0.2  # left and right margins together, in units of leaves
LINK = "#B8B8B8"
SLOT = (1.15, 2.0)  # minimum and maximum inches of a leaf
MAX_SIZE = 14.0, 18.0  # maximum inches of a new figure; beyond it the text shrinks
MIN_HEIGHT = 0.45  # minimum inches of a level
LINE = 1.25  # height of a line of text, in units of its size
SPACE = 0.4  # inches between the boxes of a node and its child
BAR = 0.6, 0.13  # inches of the bar of a leaf with its text beside it
NAME = 1.6  # maximum inches of the name of a feature
TERMS, DIGITS = 2, 2  # of the condition of a node
SPARSE_TERMS, MOST_FACETS = 5, 3  # of a sparse facet, and of a node with such facets
VIEWED_TIPS = 8  # maximum number of tips of a tree whose nodes show rows or bars
BAR_INCHES, TEXT_BELOW = 0.15, 0.42  # height of the bar of a leaf, and of the text below it

At = Mapping[int, FloatArray]  # positions of nodes and of leaves ``~leaf``


@dataclass(frozen=True)
class NodePlace:
    """Position of a node, or of a leaf ``~leaf``, in a drawing.

    ``across`` is the position across the direction of growth: tips at 0, 1, 2, ... from left to
    right, and a node halfway between its children. ``line`` is the position in an outline, in which
    a node precedes all nodes and leaves below it. The root has no parent.
    """

    child: int
    parent: int | None
    depth: int
    across: float
    line: int


def layout(
    topology: Topology, root: int = 0, is_open: Container[int] | None = None
) -> list[NodePlace]:
    """Place the branch below ``root``, in the order of an outline.

    Only nodes that are open, by default all, have their children drawn.
    """
    places: list[NodePlace] = []
    n_tips = 0
    for line, (child, steps) in enumerate(visits(topology, root, is_open)):
        parent = steps[-1][0] if steps else None
        places.append(NodePlace(child, parent, len(steps), n_tips, line))
        n_tips += child < 0 or (is_open is not None and child not in is_open)
    below: dict[int, list[float]] = {}
    for line, place in reversed([*enumerate(places)]):
        across = sum(below[place.child]) / 2 if place.child in below else place.across
        places[line] = replace(place, across=across)
        if place.parent is not None:
            below.setdefault(place.parent, []).append(across)
    return places


class LeafStyle(NamedTuple):
    """Style of the leaves: text size in points, inches for a line of text, and size of the bar.

    ``bar`` and ``width`` are in units of the Axes. The text is ``beside`` the bar in one line, or
    below it in two.
    """

    size: float
    slot: float
    bar: float
    width: float = BAR_WIDTH
    beside: bool = False


@_style.literal
def tree(
    estimator: FittedModel | RoutedTree,
    ax: Axes | None = None,
    *,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    sizes: bool | PolytopeSize | None = None,
    level: float = 0.9,
) -> Axes:
    """Draw the deterministic tree.

    A node shows its split and how many training rows reach it. A split by one facet is shown as a
    condition for going left, on its two largest terms; a split by several facets is shown by the
    facet nearest to the mean of the data, which is necessary for going left but not sufficient, and
    by the number of its other facets. The facets of a sparse tree are shown with up to five terms,
    three of a node, and a row goes left if it satisfies each of them. With full facets and several
    posterior draws, another line shows the posterior of the number of facets that alone cut off at
    least 1 % of the rows: its median, with a central interval in brackets. The width of a link
    grows with the number of its rows. A leaf shows the probabilities of the classes as a bar, or
    its mean. A tree that would be too wide grows from left to right.

    In a tree of up to eight leaves, a node that uses more than two features shows its terms as
    bars: how much each contributes per standard deviation, relative to the largest one of the
    facet, and to which side a larger value leads. If there are more than six terms, it shows the
    five largest. With rows, a node that uses one or two features shows those that reach it, in the
    colours of their classes or values, with its border; the part that goes left is grey.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
    ax : Axes, optional
        By default those of a new figure, as wide as the tree needs.
    X : array, shape (n, d), optional
        Rows to draw, with ``y``.
    y : array, shape (n,), optional
        Classes or values of the rows.
    sizes : bool or PolytopeSize, optional
        The result of ``estimator.polytope_size()``, if it is available; True computes it, False
        shows the deterministic tree alone. By default it is computed for full facets only: the
        number of sparse facets was chosen, and the posterior does not describe it.
    level : float
        Probability of the interval of the number of facets.

    Raises
    ------
    ValueError
        If ``sizes`` describes another tree, ``level`` is not between 0 and 1, one of X and y is
        missing, they have the wrong shape, or y has unknown classes.
    """
    found = tree_of(estimator)
    if (X is None) != (y is None):
        raise ValueError("X and y belong together; give both, or neither.")
    rows = None
    if X is not None and y is not None and isinstance(found, Tree):
        rows = NodeRows.of(estimator, found, X, y)
    described = plain_description(found)
    if sizes is None:
        sizes = not described.is_sparse
    measured = _measured(estimator, found, sizes)
    places = layout(found.topology)
    boxes = boxes_of(described, places, measured, level, rows=rows)
    room = 0.6 if measured is None else 0.9
    ax, style = draw_branch(described, boxes, places, ax, room=room)
    has_rows = any(isinstance(one, NodeView) and one.rows is not None for one in boxes.values())
    class_legend(ax, described, style, [left_handle()] if has_rows else [])
    if measured is not None and found.n_nodes:
        title = f"conditions: point estimate\nposterior: number of facets [{level:.0%} interval]"
        ax.set_title(title, loc="right", fontsize=_style.SMALL, color=_style.INK)
    return ax


def plain_description(
    tree: RoutedTree, features: Sequence[str] = (), classes: Sequence[str] = ()
) -> TreeDescription:
    """Describe a tree to draw, whose conditions have a line for each term.

    ``features`` and ``classes`` replace the names of the tree.
    """
    names = features or [one_line(name) for name in tree.feature_labels]
    cut = [_style.cut(name, TEXT[1], NAME) for name in names]
    return TreeDescription(
        tree,
        TERMS,
        DIGITS,
        features=cut,
        classes=classes,
        separator="\n",
        sparse_terms=SPARSE_TERMS,
    )


def draw_branch(
    described: TreeDescription,
    boxes: Mapping[int, str | NodeView],
    places: Sequence[NodePlace],
    ax: Axes | None = None,
    *,
    sides: tuple[str, str] | None = None,
    room: float = 0.0,
) -> tuple[Axes, LeafStyle]:
    """Draw the part of a tree that has these places; return its Axes and the style of its leaves.

    Nodes whose children have no place are closed: they show how many leaves are below. In an SVG
    file, the groups of a node or leaf are called ``at-`` and its path, and its link ``to-`` and its
    path. ``sides`` replaces the names of the sides. A new figure has ``room`` in
    inches above and below the tree.
    """
    plan = min(_plans(described, boxes, places), key=lambda plan: plan.excess)
    if ax is None:
        drawn = max(min(plan.width, MAX_SIZE[0]), 3.2), min(plan.height, MAX_SIZE[1])
        ax = _style.new_axes(drawn[0] + 2 * _style.PAD, drawn[1] + room)
        most = MAX_SIZE
    else:
        window = ax.get_window_extent()
        most = drawn = window.width / ax.figure.dpi, window.height / ax.figure.dpi
    scale = min(1.0, most[0] / plan.width, most[1] / plan.height)
    at, style = plan.at, plan.style(scale)
    ax.set(xlim=plan.xlim, ylim=plan.ylim)
    inch = scale * np.ptp([plan.xlim, plan.ylim], axis=1) / drawn  # in the units of the Axes
    open_nodes = {one.parent for one in places}
    root, names = places[0].child, sides or described.common_sides
    for place in places[1:]:
        start, end = at[cast(int, place.parent)], at[place.child]
        _link(ax, described, place.child, start, end)
        if place.parent == root:
            side = int(described.tree.topology.children[root, 1] == place.child)
            _side_name(ax, plan.middle(places[0].child, place.child), names[side], side, style)
    for child in (place.child for place in places if place.child >= 0):
        box: str | NodeView
        if is_open := child in open_nodes:
            box = boxes[child]
        else:
            leaves = counted(len(described.tree.topology.subtree_leaves(child)), "leaf")
            box = f"{leaves}\n{counted(round(described.rows(child)), 'row')}"
        if isinstance(box, NodeView):
            size = inch * (box.width, box.height)
            view = ax.inset_axes((*(at[child] - size / 2), *size), transform=ax.transData, zorder=3)
            view.set_gid(f"at-{described.path(child)}")
            box.draw(view, style.size / TEXT[1], names)
        else:
            _node(ax, described.path(child), at[child], box, style.size, is_open=is_open)
    draw_leaves(ax, described, {~child: xy for child, xy in at.items() if child < 0}, style)
    ax.set_axis_off()
    return ax, style


class _Plan(NamedTuple):
    """A tree at full size in one orientation.

    ``width`` and ``height`` are in inches, as are ``slot``, the extent of a leaf across the
    direction of growth, ``leaf``, the width of its text, and ``extent``, that of a node or leaf
    along the direction of growth. The unit of positions across is a slot in a tree that grows
    downwards; other units are inches.
    """

    horizontal: bool
    width: float
    height: float
    slot: float
    leaf: float
    at: dict[int, FloatArray]
    extent: Mapping[int, float]
    xlim: tuple[float, float]
    ylim: tuple[float, float]

    @property
    def excess(self) -> float:
        """Size relative to the largest figure; 1 if it fits."""
        return max(self.width / MAX_SIZE[0], self.height / MAX_SIZE[1], 1.0)

    def style(self, scale: float) -> LeafStyle:
        """Return the style of the leaves at some scale."""
        size = max(scale * TEXT[1], TEXT[0])
        if self.horizontal:
            return LeafStyle(size, scale * self.leaf, BAR[1], BAR[0], beside=True)
        return LeafStyle(size, scale * self.slot, BAR_INCHES)

    def middle(self, parent: int, child: int) -> FloatArray:
        """Return the middle of the part of a link that no box covers."""
        start, end = self.at[parent], self.at[child]
        length = abs(end - start)[0 if self.horizontal else 1]
        share = 0.5 + (self.extent[parent] - self.extent[child]) / (4 * length)
        return start + share * (end - start)


def _plans(
    described: TreeDescription, boxes: Mapping[int, str | NodeView], places: Sequence[NodePlace]
) -> Iterator[_Plan]:
    """Plan a tree that grows downwards, and another that grows from left to right."""
    closed = _size("1,000 leaves\n1,000,000 rows")
    sizes = {
        one.child: _size(boxes[one.child]) if one.child in boxes else closed
        for one in places
        if one.child >= 0
    }
    wide, high = np.max([*sizes.values(), _size("")], axis=0).tolist()
    labels = [f"{name}: 100.0 %" for name in described.classes or ("",)]
    widest = max(_style.inches(label, TEXT[1]) for label in labels) + 1.1 * GAP
    leaf = float(np.clip(widest, *SLOT))
    n_tips, depth = _extent(places)
    heights = {one.child: sizes[one.child][1] if one.child >= 0 else BAR_INCHES for one in places}
    top, at = 0.0, {}
    for level in range(depth + 1):
        here = [one for one in places if one.depth == level]
        for one in here:
            at[one.child] = np.array([one.across, -top - heights[one.child] / 2])
        top += max(MIN_HEIGHT, *(heights[one.child] for one in here)) + SPACE
    slot, edge = max(leaf, wide / 2), (1 + EDGES) / 2
    low = min(
        float(xy[1]) - heights[child] / 2 - TEXT_BELOW * (child < 0) for child, xy in at.items()
    )
    limits = (-edge, n_tips - 1 + edge), (low, GAP / 2)
    size = slot * (n_tips + EDGES), GAP / 2 - low
    yield _Plan(False, *size, slot, leaf, at, heights, *limits)
    slot, column = high / 2 + GAP / 2, wide + SPACE
    leaf += _style.inches(f", {described.tree.leaf_rows.max():,.0f} rows", TEXT[1])
    at = {one.child: np.array([one.depth * column, -one.across * slot]) for one in places}
    size = column * (depth + 0.5) + BAR[0] + leaf, slot * (n_tips + 0.2) + 0.2
    limits = (-column / 2, size[0] - column / 2), (-slot * (n_tips - 0.4), 0.6 * slot + 0.2)
    widths = {one.child: sizes[one.child][0] if one.child >= 0 else BAR[0] for one in places}
    yield _Plan(True, *size, slot, leaf, at, widths, *limits)


def _extent(places: Sequence[NodePlace]) -> tuple[int, int]:
    """Return the number of tips and the depth."""
    tips = {one.child for one in places} - {one.parent for one in places}
    return len(tips), max(one.depth for one in places)


def _size(box: str | NodeView) -> tuple[float, float]:
    """Return the room in inches that the box of a node takes."""
    if isinstance(box, NodeView):
        return box.width + GAP, box.height
    lines = box.splitlines() or [""]
    wide = max(_style.inches(line, TEXT[1]) for line in lines) + 2 * GAP
    return wide, LINE * TEXT[1] / 72 * len(lines) + GAP


def _link(
    ax: Axes, described: TreeDescription, child: int, start: FloatArray, end: FloatArray
) -> None:
    ax.plot(
        *zip(start, end, strict=True),
        color=LINK,
        linewidth=0.6 + 5.0 * described.share(child),
        solid_capstyle="round",
        zorder=1,
        gid=f"to-{described.path(child)}",
    )


def _side_name(ax: Axes, place: FloatArray, name: str, side: int, style: LeafStyle) -> None:
    """Name a side of the root next to its link."""
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
    """Return the posterior of the number of facets, if there is one to show."""
    if not isinstance(sizes, PolytopeSize):
        shown = sizes and has_draws(estimator)
        return cast(Any, estimator).polytope_size() if shown else None
    if sizes.labels != tree.topology.node_labels:
        raise ValueError(
            f"sizes describes the nodes {', '.join(sizes.labels)}, but the tree has "
            f"{', '.join(tree.topology.node_labels)}; pass the sizes of the same estimator."
        )
    return sizes


def boxes_of(
    described: TreeDescription,
    places: Sequence[NodePlace],
    measured: PolytopeSize | None,
    level: float,
    *,
    rows: NodeRows | None = None,
    more: Sequence[str] = (),
) -> dict[int, str | NodeView]:
    """Say what the boxes of the open nodes show: rows, bars or the condition, and counts.

    The counts are the posterior of the number of facets, if it is ``measured``, and the number of
    training rows; ``more`` has another line for each node of the tree.
    """
    boxes: dict[int, str | NodeView] = {}
    bounds = np.empty(0) if measured is None else measured.interval(level).astype(int)
    is_viewed = _extent(places)[0] <= VIEWED_TIPS
    for node in sorted({one.parent for one in places if one.parent is not None}):
        lines = []
        if measured is not None:
            low, high = bounds[node].tolist()
            lines.append(f"posterior: {measured.median()[node]} [{low}, {high}]")
        lines.append(counted(round(described.rows(node)), "row"))
        lines += [line for line in more[node : node + 1] if line]
        condition = _condition(described, node)
        view = view_of(described, node, condition, lines, rows) if is_viewed else None
        boxes[node] = view or "\n".join([condition, *lines])
    return boxes


def _condition(described: TreeDescription, node: int) -> str:
    """Write the condition for left at a node: its nearest facet, and the number of others."""
    if described.linear is None:
        return described.tree.split_name
    sparse = bool(described.linear.is_conjunction[node])
    shown = described.half_spaces(node, MOST_FACETS if sparse else 1)
    others = described.n_facets(node) - len(shown)
    more = f"\n+ {counted(others, 'facet')}" if others else ""
    texts = [str(facet) if facet.left else "no feature" for facet in shown]
    return "\nand ".join(texts) + more


def _node(ax: Axes, path: str, at: FloatArray, text: str, size: float, *, is_open: bool) -> None:
    box: dict[str, Any] = {"boxstyle": "round,pad=0.35", "facecolor": "white", "linewidth": 0.9}
    box |= {"edgecolor": _style.INK, "linestyle": "-" if is_open else "--"}
    place: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
    x, y = at.tolist()
    ax.text(x, y, text, fontsize=size, color=_style.INK, bbox=box, gid=f"at-{path}", **place)


def draw_leaves(ax: Axes, described: TreeDescription, leaf_at: At, style: LeafStyle) -> None:
    """Draw leaves as a bar of its classes or in the colour of its mean, with its rows."""
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
    counts = [counted(round(weight), "row") for weight in tree.leaf_rows.tolist()]
    if _style.inches(max(counts, key=len), style.size) > style.slot:  # leave out the noun
        counts = [count.split()[0] for count in counts]
    for leaf, (x, y) in leaf_at.items():
        gid = f"at-{described.path(~leaf)}"
        start, bottom = x - style.width / 2, y - style.bar / 2
        frame = Rectangle((start, bottom), style.width, style.bar, facecolor="none")
        frame.set(edgecolor=_style.INK, linewidth=0.9, zorder=4, gid=gid)
        for number, (share, colour) in enumerate(zip(shares[leaf], palettes[leaf], strict=True)):
            part = Rectangle((start, bottom), style.width * share, style.bar, facecolor=colour)
            part.set(linewidth=0, zorder=3, gid=f"{gid}.{number}")
            ax.add_patch(part)
            start += style.width * share
        ax.add_patch(frame)
        _leaf_text(ax, (x, y), [labels[leaf], counts[leaf]], style, f"{gid}.text")


def class_legend(
    ax: Axes, described: TreeDescription, style: LeafStyle, more: Sequence[Patch] = ()
) -> None:
    """Name the classes below the tree if they are few, and ``more`` colours."""
    classes = described.classes if len(described.classes) <= MAX_NAMED else ()
    handles = [*_style.class_handles(classes), *more]
    names = [str(one.get_label()) for one in handles]
    if not handles:
        return
    columns = _style.legend_columns(names, _style.width_of(ax))
    ax.legend(
        handles=_style.line_by_line(handles, columns),
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=columns,
        frameon=False,
        fontsize=max(style.size, _style.SMALL),
        handlelength=1.0,
        handleheight=1.0,
    )


def _class_labels(described: TreeDescription, style: LeafStyle) -> list[str]:
    """Write the most probable class of each leaf, cut to the room, with its probability."""
    value = described.tree.value
    room = style.slot - GAP * style.size / TEXT[1] - _style.inches(": 100.0 %", style.size)
    names = [_style.cut(name, style.size, room) for name in described.classes]
    if names != list(described.classes):  # "class 5" is also known as "5"
        names = [_style.cut(n.removeprefix("class "), style.size, room) for n in described.classes]
    return [
        f"{names[best]}: {100 * value[leaf, best]:.1f} %".removeprefix(": ")
        for leaf, best in enumerate(value.argmax(axis=1))
    ]


def _leaf_text(
    ax: Axes, at: tuple[float, float], lines: list[str], style: LeafStyle, gid: str
) -> None:
    x, y = at
    align: dict[str, Any] = {"ha": "center", "va": "top"}
    if style.beside:
        x, align = x + 0.58 * style.width, {"ha": "left", "va": "center"}
    else:
        y -= 0.875 * style.bar
    text = (", " if style.beside else "\n").join(lines)
    ax.text(x, y, text, fontsize=style.size, color=_style.INK, zorder=4, gid=gid, **align)
