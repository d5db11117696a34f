"""What the box of a node shows in a drawn tree: its rows, or the terms of its facets as bars.

A view has a size in inches, and is drawn on Axes whose unit is an inch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.patches import FancyBboxPatch, Rectangle

from bayestree._utils.wording import counted
from bayestree.description import TreeDescription
from bayestree.plots import _style
from bayestree.plots._node_rows import NodeRows, draw_node, features_in_use
from bayestree.tree import Tree

SIZE, TICKS = 8.0, 6.5  # of texts, in points
LINE = 1.3 * SIZE / 72  # inches from one line to the next
PAD = 0.08  # inches between the frame of a view and what it shows
PANEL = 1.75, 1.15  # inches of the rows of a node
LABELS = 0.53, 0.34  # inches of the labels on the left of them and below
BAR, BAR_LINE = 0.95, 0.55  # inches of bars, and height of a bar in lines
POINT = 5.0  # area of the marker of a row
MOST_POINTS = 400  # rows drawn in a node
MOST_TERMS, FEWER_TERMS = 6, 5  # of a facet as bars: all of them, or the largest
MOST_LINES, MOST_FACETS = 12, 3  # of a node
APART = 0.35  # lines between two facets


@dataclass(frozen=True)
class NodeView:
    """What the box of a node shows.

    Attributes
    ----------
    width, height : float
        In inches.
    text : tuple of str
        Lines below the picture.
    bars : tuple of tuples of (str, float)
        For each facet, its terms and limit with the lengths of their bars: from -1, a larger value
        leads to the left, to 1, to the right; 0 has none.
    rows : NodeRows, optional
        To draw instead of bars.
    """

    described: TreeDescription
    node: int
    width: float
    height: float
    text: tuple[str, ...]
    bars: tuple[tuple[tuple[str, float], ...], ...] = ()
    rows: NodeRows | None = None

    def draw(self, ax: Axes, scale: float, sides: tuple[str, str]) -> None:
        """Draw on Axes from 0 to ``width`` and ``height``, with texts enlarged by ``scale``.

        Bars point to ``sides``.
        """
        frame = FancyBboxPatch(
            (0.0, 0.0), self.width, self.height, boxstyle="round,pad=0,rounding_size=0.06"
        )
        frame.set(facecolor="white", edgecolor=_style.INK, linewidth=0.9, clip_on=False)
        ax.add_patch(frame)
        ax.set(xlim=(0.0, self.width), ylim=(0.0, self.height))
        ax.set_axis_off()
        if self.rows is None:
            self._draw_bars(ax, scale, sides)
        else:
            self._draw_rows(ax, self.rows, scale)
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": _style.INK}
        for place, line in enumerate(reversed(self.text)):
            at = self.width / 2, PAD + (place + 0.5) * LINE
            ax.text(*at, line, fontsize=scale * SIZE, **style)

    def _draw_rows(self, ax: Axes, rows: NodeRows, scale: float) -> None:
        left = (self.width - LABELS[0] - PANEL[0]) / 2 + LABELS[0]
        corner = left, self.height - PAD - PANEL[1]
        panel = ax.inset_axes((*corner, *PANEL), transform=ax.transData)
        panel.patch.set_visible(False)
        draw_node(panel, self.described, rows, self.node, MOST_POINTS, PANEL)
        for points in panel.collections:
            if isinstance(points, PathCollection):
                points.set(sizes=[POINT * scale**2], clip_on=False)  # which would enlarge files
        panel.tick_params(labelsize=scale * TICKS, length=2 * scale, pad=1.5 * scale, width=0.6)
        for label in (panel.xaxis.label, panel.yaxis.label):
            label.set_fontsize(scale * (SIZE - 1))
        panel.yaxis.labelpad = 2.5 * scale
        panel.spines[:].set(linewidth=0.6, color=_style.QUIET)

    def _draw_bars(self, ax: Axes, scale: float, sides: tuple[str, str]) -> None:
        middle, y = self.width - PAD - BAR / 2, self.height - PAD - LINE / 2
        quiet: dict[str, Any] = {"color": _style.QUIET, "fontsize": scale * TICKS, "va": "center"}
        ax.text(middle - 0.02, y, f"\N{LEFTWARDS ARROW} {sides[0]}", ha="right", **quiet)
        ax.text(middle + 0.02, y, f"{sides[1]} \N{RIGHTWARDS ARROW}", ha="left", **quiet)
        style: dict[str, Any] = {"ha": "right", "va": "center", "color": _style.INK}
        for facet in self.bars:
            top = y - LINE / 2
            for text, length in facet:
                y -= LINE
                ax.text(middle - BAR / 2 - PAD, y, text, fontsize=scale * SIZE, **style)
                if length:
                    size = length * BAR / 2, BAR_LINE * LINE
                    bar = Rectangle((middle, y - size[1] / 2), *size, facecolor=_style.QUIET)
                    ax.add_patch(bar).set(linewidth=0)
            ax.plot((middle, middle), (top, y + LINE / 2), color=_style.INK, linewidth=0.6)
            y -= APART * LINE


def view_kind(tree: Tree | None, node: int, *, has_rows: bool) -> str:
    """Return what a node shows besides texts, by its number of features: "rows", "bars" or ""."""
    n_features = 0 if tree is None else len(features_in_use(tree, node))
    if n_features > 2:
        return "bars"
    return "rows" if n_features and has_rows else ""


def view_of(
    described: TreeDescription,
    node: int,
    condition: str,
    below: Sequence[str],
    rows: NodeRows | None,
) -> NodeView | None:
    """Return the view of a node; None where its condition alone is clearer.

    Parameters
    ----------
    described : TreeDescription
        With a line for each term of a facet.
    condition : str
        The condition in words, for a node whose rows are drawn.
    below : sequence of str
        Further lines.
    rows : NodeRows, optional
        Drawn where a node uses one or two features.
    """
    tree, kind = described.linear, view_kind(described.linear, node, has_rows=rows is not None)
    if tree is None or not kind:
        return None
    if kind == "bars":
        return _bars(described, tree, node, below)
    room = LABELS[0] + PANEL[0]
    if described.n_facets(node) > MOST_FACETS:
        condition = counted(described.n_facets(node), "facet")
    text = (*_wrapped(condition, room), *below)
    width = max(room, *(_style.inches(line, SIZE) for line in text)) + 2 * PAD
    height = PANEL[1] + LABELS[1] + len(text) * LINE + 2 * PAD
    return NodeView(described, node, width, height, text, rows=rows)


def _bars(described: TreeDescription, tree: Tree, node: int, below: Sequence[str]) -> NodeView:
    """Return the view of a node with many features: bars of the terms of its nearest facets."""
    bars: list[tuple[tuple[str, float], ...]] = []
    for expert in tree.nearest_experts(node)[:MOST_FACETS].tolist():
        terms = _terms(described, tree, expert)
        if bars and sum(map(len, bars)) + len(terms) > MOST_LINES:
            break
        if bars:
            terms = ((f"and {terms[0][0]}", terms[0][1]), *terms[1:])
        bars.append(terms)
    hidden = described.n_facets(node) - len(bars)
    text = (*([f"+ {counted(hidden, 'facet')}"] if hidden else []), *below)
    widest = max(_style.inches(term, SIZE) for facet in bars for term, _ in facet)
    width = max(widest + PAD + BAR, *(_style.inches(line, SIZE) for line in text)) + 2 * PAD
    lines = 1 + sum(map(len, bars)) + APART * len(bars) + len(text)
    height = lines * LINE + 2 * PAD
    return NodeView(described, node, width, height, text, tuple(bars))


def _terms(described: TreeDescription, tree: Tree, expert: int) -> tuple[tuple[str, float], ...]:
    """Write the terms of a facet and its limit, with the lengths of their bars."""
    strength = tree.standardised_hyperplane[expert]
    n_terms = int(np.count_nonzero(strength))
    facet = described.half_space(expert, MOST_TERMS if n_terms <= MOST_TERMS else FEWER_TERMS)
    if not facet.limit:
        return ((str(facet), 0.0),)
    by_size = np.argsort(-np.abs(strength), kind="stable").tolist()
    order = [facet.first, *(j for j in by_size if j != facet.first)]
    lengths = (strength[order] / np.abs(strength).max()).tolist()
    terms = facet.terms.split("\n")
    is_hidden = n_terms > MOST_TERMS  # the last line counts the others
    shown = lengths[: len(terms) - is_hidden] + [0.0] * is_hidden
    relation = facet.left.rpartition(" ")[2]
    return (*zip(terms, shown, strict=True), (f"{relation} {facet.limit}", 0.0))


def _wrapped(text: str, room: float) -> list[str]:
    """Join short lines as far as they fit into a room in inches."""
    lines: list[str] = []
    for part in text.split("\n"):
        joined = f"{lines[-1]} {part}" if lines else part
        if lines and not part.startswith("and ") and _style.inches(joined, SIZE) <= room:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines
