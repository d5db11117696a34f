"""A tree as interactive SVG: upright for wide screens and paper, an outline for narrow screens.

Large trees are drawn on several sheets: each has a few levels, and the branches below it have
sheets of their own.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.wording import counted
from bayestree.plots._tree import Place, layout
from bayestree.report.html import text
from bayestree.report.html.labels import DOT, LabelledTree
from bayestree.report.html.svg import element, lines, value_bar
from bayestree.topology import Topology

TARGET_TIPS, MAX_TIPS = (
    10,
    12,
)  # desired and maximum number of leaves and closed branches of a sheet
DEEPEST = 7  # maximum number of levels of a sheet
SMALL = 3  # leaves of a branch that may be opened up to the maximum
MAX_NODES = 250  # maximum number of nodes of a tree that are drawn and described
FEW = 4  # maximum number of tips of a sheet with its panel beside it
TEXT, SMALL_TEXT, LINE = 12.0, 11.0, 16.0  # sizes of text, and height of a line, in pixels
BAR = 12.0  # height of the bar of a leaf
LINK = (1.2, 13.0)  # widths of links with no rows and with all rows


class Sheet(NamedTuple):
    """A part of a tree: its open nodes, parents first, and the places of these and of the tips."""

    nodes: tuple[int, ...]
    places: list[Place]

    @property
    def root(self) -> int:
        """The uppermost node, or ``~leaf`` of a tree without a split."""
        return self.places[0].child

    @property
    def tips(self) -> tuple[int, ...]:
        """The ends from left to right: ``~leaf``, or the node of a closed branch."""
        return tuple(place.child for place in self.places if place.child not in self.nodes)


def shown_nodes(rows: FloatArray, most: int = MAX_NODES) -> BoolArray:
    """Nodes to draw, shape (V,): those of the most rows, which include all nodes above them."""
    shown = np.zeros(len(rows), dtype=bool)
    # with equal rows the upper node comes first, because its number is smaller
    shown[np.argsort(-rows, kind="stable")[:most]] = True
    return shown


def sheets(topology: Topology, rows: FloatArray, shown: BoolArray) -> list[Sheet]:
    """The sheets of a tree, the root's first.

    Of the nodes ``shown``, shape (V,), the branches of the most ``rows``, shape (V,), are opened
    first.
    """
    leaves = topology.sum_below(np.ones(topology.n_leaves))
    found, waiting = [], [0]
    for root in waiting:
        opened = _opened(topology, root, rows, leaves, shown) if topology.n_nodes else set()
        sheet = Sheet(tuple(sorted(opened)), layout(topology, root, opened))
        found.append(sheet)
        waiting += [tip for tip in sheet.tips if tip >= 0 and shown[tip]]
    return found


def _opened(
    topology: Topology, root: int, rows: FloatArray, leaves: FloatArray, shown: BoolArray
) -> set[int]:
    """Nodes that are open on the sheet of a branch."""
    depth = topology.node_depth - topology.node_depth[root]
    opened, n_tips = set[int](), 1
    closed = [(-rows[root], root)]
    while closed:
        _, node = heapq.heappop(closed)
        full = n_tips >= (MAX_TIPS if leaves[node] <= SMALL else TARGET_TIPS)
        if not shown[node] or full or depth[node] >= DEEPEST:
            continue
        opened.add(node)
        n_tips += 1
        for child in topology.children[node].tolist():
            if child >= 0:
                heapq.heappush(closed, (-rows[child], child))
    return opened


class Drawing(ABC):
    """A drawing of a sheet in one orientation."""

    kind: ClassVar[str]
    width: float
    height: float

    def __init__(self, tree: LabelledTree, sheet: Sheet) -> None:
        self.tree = tree
        self.sheet = sheet
        self.at = {place.child: place for place in sheet.places}

    @abstractmethod
    def position(self, place: Place) -> tuple[float, float]:
        """Pixels from the left and from the top."""

    @abstractmethod
    def link(self, parent: Place, place: Place) -> Iterator[Markup]:
        """The link from a node to a child."""

    @abstractmethod
    def item(self, place: Place) -> Markup:
        """A node, a leaf or a closed branch."""

    def markup(self) -> Markup:
        """The drawing as SVG; links come first and so lie below."""
        order = sorted(self.sheet.places, key=lambda place: self.position(place)[::-1])
        parts: list[Markup] = []
        for place in order:
            if place.parent is not None:
                parts += self.link(self.at[place.parent], place)
        parts += [self.item(place) for place in order]
        root = self.tree.path(self.sheet.root)
        name = f"Tree from {root}: {counted(len(self.sheet.nodes), 'split')} drawn"
        return element(
            "svg", *parts, class_=f"tree {self.kind}", role="group", aria_label=name,
            viewBox=f"0 0 {self.width:g} {self.height:g}", width=self.width, height=self.height,
            style=f"--drawn: {self.width:g}px",
        )  # fmt: skip

    def path(self, child: int, d: str, width: float) -> Markup:
        return element(
            "path", d=d, class_="link", stroke_width=width, data_to=self.tree.anchor(child)
        )

    def link_width(self, child: int) -> float:
        return LINK[0] + (LINK[1] - LINK[0]) * self.tree.share(child)

    def is_closed(self, child: int) -> bool:
        """Whether a child is a branch with a sheet of its own."""
        return child >= 0 and child not in self.sheet.nodes

    def chosen_by(self, child: int, *inside: Markup) -> Markup:
        """A link from the drawn node or leaf to its description."""
        anchor, alt = self.tree.anchor(child), self.tree.summary(child)
        kind = "leaf" if child < 0 else "branch" if self.is_closed(child) else "node"
        return element(
            "a", element("title", alt), *inside, href=f"#{anchor}", class_=kind, data_at=anchor,
            data_sheet=anchor if self.is_closed(child) else None, aria_label=alt,
        )  # fmt: skip

    def n_leaves(self, node: int) -> int:
        return len(self.tree.tree.topology.subtree_leaves(node))


class Upright(Drawing):
    """A sheet with its root at the top."""

    kind = "upright"
    SLOT = (80.0, 200.0)  # minimum and maximum width of a tip
    PAGE, BESIDE = 1140.0, 560.0  # width of a drawing of many and of few tips
    LEVEL, TOP, BELOW = 56.0, 6.0, 74.0  # below a node, above the root, below a tip
    BOX, PAD, MAX_WIDTH = 42.0, 9.0, 300.0  # height of a node of two lines, margin, maximum width
    TIP = 104.0  # maximum width of the bar of a leaf and of a closed branch

    def __init__(self, tree: LabelledTree, sheet: Sheet) -> None:
        super().__init__(tree, sheet)
        shared = self.BESIDE if len(sheet.tips) <= FEW else self.PAGE
        self.slot = float(np.clip(shared / len(sheet.tips), *self.SLOT))
        self.node_height = self.BOX + (LINE if tree.posterior else 0.0)
        self.width = self.slot * len(sheet.tips)
        self.height = max(self.position(place)[1] for place in sheet.places) + self.BELOW

    def position(self, place: Place) -> tuple[float, float]:
        level = self.LEVEL + self.node_height
        top = self.TOP + self.node_height / 2
        return self.slot * (place.across + 0.5), top + level * place.depth

    def link(self, parent: Place, place: Place) -> Iterator[Markup]:
        (x, y), (to_x, to_y) = self.position(parent), self.position(place)
        open_half = self.BOX / 2 if self.is_closed(place.child) else self.node_height / 2
        start, end = y + self.node_height / 2, to_y - (BAR if place.child < 0 else open_half)
        middle = (start + end) / 2
        bend = f"{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f}"
        d = f"M{x:.1f} {start:.1f}C{bend} {to_x:.1f} {end:.1f}"
        yield self.path(place.child, d, self.link_width(place.child))
        if parent.parent is None:
            left = to_x < x
            yield element(
                "text", self.tree.side(place.child), x=(x + 3 * to_x) / 4 + (-12 if left else 12),
                y=start + 20, text_anchor="end" if left else "start", class_="side",
            )  # fmt: skip

    def item(self, place: Place) -> Markup:
        if place.child < 0:
            return self.leaf(place)
        return self.branch(place) if self.is_closed(place.child) else self.node(place)

    def room(self, node: int) -> float:
        """Width available to a node: that of the tips below it, but at least one and a half."""
        below = sum(self.is_below(tip, node) for tip in self.sheet.tips)
        return min(max(below * self.slot - 16, 1.5 * self.slot), self.MAX_WIDTH) - 2 * self.PAD

    def is_below(self, child: int, node: int) -> bool:
        above = self.at[child].parent
        while above is not None and above != node:
            above = self.at[above].parent
        return above == node

    def node(self, place: Place) -> Markup:
        """A box with the condition, the posterior and the rows of a node."""
        tree, node, tall, room = self.tree, place.child, self.node_height, self.room(place.child)
        x, y = self.position(place)
        texts = [(text.cut(tree.conditions[node], TEXT, room), "condition")]
        if tree.posterior:
            texts.append((text.cut(tree.posterior[node], SMALL_TEXT, room), "rows"))
        texts.append((counted(tree.rows(node), "row"), "rows"))
        width = max(text.width(line, TEXT) for line, _ in texts) + 2 * self.PAD
        left = width / 2 + 1
        middle = float(np.clip(x, left, max(self.width - left, left)))
        corner = (middle - width / 2, y - tall / 2)
        inside = [
            element("rect", x=corner[0], y=corner[1], width=width, height=tall, rx=5, class_="box"),
            lines(middle, corner[1] + 17, texts, LINE, text_anchor="middle"),
        ]
        if tree.uncertain is not None and tree.uncertain[node] > 0:
            share = float(tree.uncertain[node]) * (width - 10)
            inside.append(
                element("rect", x=corner[0] + 5, y=corner[1] + tall - 3.5, width=max(share, 1.5),
                        height=3.0, class_="uncertain")
            )  # fmt: skip
        return self.chosen_by(node, *inside)

    def leaf(self, place: Place) -> Markup:
        """The bar of a leaf above its prediction and rows."""
        (x, y), leaf = self.position(place), place.child
        width = min(self.slot - 14, self.TIP)
        left = x - width / 2
        label = text.wrapped(self.tree.leaf_label(~leaf), TEXT, self.slot - 8)
        texts = [(line, "condition") for line in label]
        texts.append((counted(self.tree.rows(leaf), "row"), "rows"))
        hit = element(
            "rect", x=left - 4, y=y - BAR - 4, width=width + 8, height=26 + LINE * len(texts),
            class_="hit",
        )  # fmt: skip
        bar = value_bar(self.tree, leaf, left, y - BAR, width, BAR)
        return self.chosen_by(leaf, hit, bar, lines(x, y + 18, texts, LINE, text_anchor="middle"))

    def branch(self, place: Place) -> Markup:
        """A closed branch with its number of leaves."""
        (x, y), node = self.position(place), place.child
        width = min(self.slot - 6, self.TIP)
        leaves = counted(self.n_leaves(node), "leaf")
        short = leaves if text.width(leaves, TEXT) < width else leaves.split()[0]
        texts = [(short, "condition"), (counted(self.tree.rows(node), "row"), "rows")]
        box = element(
            "rect", x=x - width / 2, y=y - self.BOX / 2, width=width, height=self.BOX, rx=5,
            class_="box",
        )  # fmt: skip
        arrow = ("\N{BLACK DOWN-POINTING SMALL TRIANGLE}", "condition")
        more = lines(x, y + self.BOX / 2 + 14, [arrow], 0, text_anchor="middle")
        written = lines(x, y - 4, texts, LINE, text_anchor="middle")
        return self.chosen_by(node, box, more, written)


class Still(Upright):
    """An upright sheet without links, as one of several side by side."""

    kind = "still"
    BESIDE = 330.0  # three of them in the width of the page

    def chosen_by(self, child: int, *inside: Markup) -> Markup:
        return element("g", element("title", self.tree.summary(child)), *inside)


class Outline(Drawing):
    """A sheet as lines below each other, indented by their depth."""

    kind = "outline"
    width = 343.0
    ROW, INDENT, MARGIN = 46.0, (10.0, 22.0), 12.0  # height of a line, indents, left margin
    GLYPH, SHORT = 6.0, 44.0  # radius of the mark of a node, width of the bar of a leaf
    NARROWER = 2.5  # factor by which links are narrower than in an upright tree

    def __init__(self, tree: LabelledTree, sheet: Sheet) -> None:
        super().__init__(tree, sheet)
        deepest = max(place.depth for place in sheet.places)
        self.indent = float(np.clip(110 / max(deepest, 1), *self.INDENT))
        self.height = self.ROW * len(sheet.places)

    def position(self, place: Place) -> tuple[float, float]:
        return self.MARGIN + self.indent * place.depth, self.ROW * (place.line + 0.5)

    def link(self, parent: Place, place: Place) -> Iterator[Markup]:
        (x, y), (to_x, to_y) = self.position(parent), self.position(place)
        d = f"M{x:.1f} {y + self.GLYPH:.1f}V{to_y:.1f}H{to_x:.1f}"
        width = max(self.link_width(place.child) / self.NARROWER, 1.0)
        yield self.path(place.child, d, width)

    def item(self, place: Place) -> Markup:
        """A mark with two lines of text behind it."""
        (x, y), child, tree = self.position(place), place.child, self.tree
        hit = element(
            "rect", x=x - self.GLYPH - 3, y=y - self.ROW / 2 + 1, width=self.width - x,
            height=self.ROW - 2, class_="hit",
        )  # fmt: skip
        start = x + (self.SHORT if child < 0 else self.GLYPH) + 8
        room = self.width - start - 4
        details = [] if place.parent is None else [tree.side(child)]
        details.append(counted(tree.rows(child), "row"))
        if child < 0:
            mark = value_bar(tree, child, x, y - 7, self.SHORT, BAR)
            label = self.leaf_label(~child, room)
        else:
            mark = element("circle", cx=x, cy=y, r=self.GLYPH, class_="box")
            label = text.cut(tree.line(child), TEXT, room)
        if self.is_closed(child):
            label = f"{self.n_leaves(child)} leaves \N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
        elif child >= 0 and tree.uncertain is not None and tree.uncertain[child] > 0:
            details.append(f"{text.percent(float(tree.uncertain[child]))} uncertain")
        texts = [(label, "condition"), (DOT.join(details), "rows")]
        return self.chosen_by(child, hit, mark, lines(start, y - 3, texts, LINE))

    def leaf_label(self, leaf: int, room: float) -> str:
        """Prediction of a leaf; the name of a class is cut to the room."""
        label = self.tree.leaf_label(leaf)
        if not self.tree.classifies or text.width(label, TEXT) <= room:
            return text.cut(label, TEXT, room)
        name, probability = label.rsplit(" ", 1)
        return f"{text.cut(name, TEXT, room - text.width(f'{probability} ', TEXT))} {probability}"
