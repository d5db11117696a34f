"""What the box of a node shows: its rows with the part that goes left, or its terms as bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import ArrayLike

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, class_numbers
from bayestree._utils.wording import Days, alone, counted
from bayestree.description import TreeDescription, features_of
from bayestree.plots import _style
from bayestree.tree import LOG2, Tree

JITTER = 0.32  # of the distance between two classes
MARGIN = 0.06  # on every side, as a share of the range of the rows
FINE = 81  # points along a side of the grid on which a polytope is drawn
SHADE = "#E9E9E9"
ROW_STYLE: dict[str, Any] = {"s": 9, "alpha": 0.75, "linewidths": 0, "zorder": 2}
CUT_STYLE: dict[str, Any] = {"color": _style.INK, "linewidth": 1.4, "zorder": 3}
BORDER: dict[str, Any] = {"colors": _style.INK, "linewidths": 1.4, "linestyles": "-", "zorder": 3}


class NodeRows(NamedTuple):
    """Rows, their class numbers or values, the rows that reach each node, and their errors."""

    X: FloatArray
    y: AnyArray
    reached: list[IntArray]
    error: FloatArray

    @classmethod
    def of(cls, estimator: object, tree: Tree, X: ArrayLike, y: ArrayLike) -> "NodeRows":
        """Check the rows, route them, and compute the 0/1 or squared error of each."""
        rows = features_of(estimator, X)
        if rows.ndim != 2 or rows.shape[1] != tree.n_features:
            raise ValueError(f"X must have shape (n, {tree.n_features}), got {rows.shape}.")
        target = np.asarray(y)
        if target.shape != (len(rows),):
            raise ValueError(f"y must have shape ({len(rows)},) to match X, got {target.shape}.")
        predicted = tree.predict(rows)
        if tree.value.ndim == 2:
            target, classes = _with_classes(estimator, tree, target)
            unknown = sorted({str(label) for label in target[~np.isin(target, classes)].tolist()})
            if unknown:
                raise ValueError(
                    f"y has classes that the tree does not know: {unknown[:5]}; its classes are "
                    f"{[str(label) for label in classes[:5]]}{', …' * (len(classes) > 5)}."
                )
            target = class_numbers(target, classes)
            error = (predicted.argmax(axis=1) != target).astype(np.float64)
        else:
            error = (predicted - target) ** 2
        reached = [np.empty(0, dtype=np.int64) for _ in range(tree.n_nodes)]
        for node, here, _ in tree.walk(rows):
            reached[node] = here
        return cls(rows, target, reached, error)

    def some(self, node: int, most: int) -> IntArray:
        """Return at most ``most`` of the rows that reach a node."""
        reached = self.reached[node]
        if len(reached) <= most:
            return reached
        return np.sort(np.random.default_rng(0).choice(reached, most, replace=False))


def _with_classes(estimator: object, tree: Tree, y: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return y, and the classes as y names them: a bare tree has names, or numbers from 0."""
    classes = getattr(estimator, "classes_", None)
    if classes is not None:
        return y, np.asarray(classes)
    text, numbers = y.astype(str), np.arange(tree.value.shape[1])
    names = np.array(tree.class_names or numbers.astype(str))
    for given, known in ((text, names), (text, np.array(tree.class_labels)), (y, numbers)):
        if np.isin(given, known).all():
            return given, known
    return text, names


def features_in_use(tree: Tree, node: int) -> IntArray:
    """Return the features that the facets of a node use, the strongest first."""
    strength = np.abs(tree.standardised_hyperplane[tree.experts(node)]).max(axis=0, initial=0.0)
    return np.argsort(-strength, kind="stable")[: np.count_nonzero(strength)]


def draw_node(
    ax: Axes,
    described: TreeDescription,
    rows: NodeRows,
    node: int,
    most: int,
    room: tuple[float, float],
) -> None:
    """Draw the rows of a node by its two features, or along one or a sum; shade what goes left.

    At most ``most`` rows are drawn. Names are those of the description, cut to the ``room``, width
    and height in inches.
    """
    n_features = len(features_in_use(cast(Tree, described.linear), node))
    draw = _plane if n_features == 2 else _strip
    draw(ax, described, rows, rows.some(node, most), node, room)


def left_handle() -> Patch:
    """Return the entry of a legend for the shaded part."""
    return Patch(facecolor=SHADE, edgecolor="#B8B8B8", label="goes left")


def _beyond(tree: Tree, node: int, X: FloatArray) -> FloatArray:
    """Return a number for each row that is positive where it goes right, (n,).

    That of a single facet, or of facets that must all hold, is linear between the facets.
    """
    experts = tree.experts(node)
    if tree.n_facets[node] > 1 and not tree.is_conjunction[node]:
        return tree.score(node, X) - LOG2
    plane = tree.hyperplane[experts]
    size = np.maximum(np.abs(plane * tree.scale).max(axis=1), np.finfo(np.float64).tiny)
    return np.asarray(((X @ plane.T - tree.facet_limit[experts]) / size).max(axis=1))


def _plane(
    ax: Axes,
    described: TreeDescription,
    rows: NodeRows,
    shown: IntArray,
    node: int,
    room: tuple[float, float],
) -> None:
    """Draw rows by two features, the border of the node, and its left side in grey."""
    tree = cast(Tree, described.linear)
    features = features_in_use(tree, node)
    points = rows.X[np.ix_(shown, features)]
    axes = [_axis(points[:, k], float(tree.scale[j])) for k, j in enumerate(features)]
    x, y = (_ticks(one, fine=tree.n_facets[node] > 1) for one in axes)
    grid = np.zeros((len(y), len(x), tree.n_features))
    grid[..., features[0]], grid[..., features[1]] = np.meshgrid(
        axes[0].snapped(x), axes[1].snapped(y)
    )
    beyond = _beyond(tree, node, grid.reshape(-1, tree.n_features)).reshape(grid.shape[:2])
    # Between the points of the grid a contour is linear, as facets are.
    lowest = min(-1.0, 2 * float(beyond.min()))
    ax.contourf(x, y, beyond, levels=[lowest, 0.0], colors=[SHADE], zorder=0)
    if beyond.min() < 0 < beyond.max():
        ax.contour(x, y, beyond, levels=[0.0], **BORDER)
    shift = np.random.default_rng(0).uniform(-JITTER, JITTER, points.shape)
    points = points + shift * [one.binary for one in axes]
    _points(ax, tree, points[:, 0], points[:, 1], rows.y[shown])
    used = [described.features[j] for j in features]
    names = [_cut(alone(name), room[k]) for k, name in enumerate(used)]
    ax.set(xlim=axes[0].limits, ylim=axes[1].limits)
    ax.set_xlabel(names[0], fontsize=_style.SMALL, labelpad=1)
    ax.set_ylabel(names[1], fontsize=_style.SMALL, labelpad=1)
    for one, along, n_ticks, name in zip(axes, (ax.xaxis, ax.yaxis), (5, 4), used, strict=True):
        along.set_major_locator(FixedLocator([0, 1]) if one.binary else MaxNLocator(n_ticks))
        _date_ticks(along, name)


def _date_ticks(axis: Axis, name: str) -> None:
    if isinstance(name, Days):
        _style.date_ticks(axis, 4)


class _Axis(NamedTuple):
    """Limits of an axis; if ``binary``, the feature is 0 or 1, and rows lie around them."""

    limits: tuple[float, float]
    binary: bool

    def snapped(self, values: FloatArray) -> FloatArray:
        """Return the values of the feature at some places of the axis."""
        return np.greater(values, 0.5).astype(np.float64) if self.binary else values


def _axis(values: FloatArray, spread: float) -> _Axis:
    if len(values) and np.isin(values, (0.0, 1.0)).all():
        return _Axis((-0.5, 1.5), True)
    return _Axis(_limits(values, spread), False)


def _ticks(axis: _Axis, *, fine: bool) -> FloatArray:
    """Return the places along an axis between which the border of a node is linear."""
    if axis.binary:
        return np.array([-0.5, 0.5, np.nextafter(0.5, 1.0), 1.5])
    return np.linspace(*axis.limits, FINE if fine else 2)


def _strip(
    ax: Axes,
    described: TreeDescription,
    rows: NodeRows,
    shown: IntArray,
    node: int,
    room: tuple[float, float],
) -> None:
    """Draw rows along a feature or the sum of the only facet, by class or against y."""
    tree = cast(Tree, described.linear)
    experts = tree.experts(node)
    short = TreeDescription(tree, max_terms=3, digits=2, features=described.features)
    facets = [short.half_space(expert) for expert in range(experts.start, experts.stop)]
    facet, cut = facets[0], np.array([one.bound for one in facets])
    planes = tree.hyperplane[experts]
    lead = np.array([one.divisor for one in facets])
    along = planes[0] / lead[0]
    value = rows.X[shown] @ along
    ends = cut[np.isfinite(cut)] if facet.left else cut[:0]
    low, high = _limits(np.append(value, ends), float(np.abs(along) @ tree.scale) or 1.0)
    inside = max(cut[lead < 0], default=low), min(cut[lead > 0], default=high)
    ax.axvspan(max(inside[0], low), max(min(inside[1], high), low), color=SHADE, zorder=0)
    for end in ends:
        ax.axvline(end, **CUT_STYLE)
    target = rows.y[shown]
    if tree.value.ndim == 1:
        _points(ax, tree, value, target, target)
    else:
        noise = np.random.default_rng(0).uniform(-JITTER, JITTER, len(shown))
        here = np.unique(target)
        level = np.searchsorted(here, target)
        _points(ax, tree, value, level + noise, target)
        ax.set_yticks(
            range(len(here)), [_cut(described.classes[c], min(0.8, room[1] / 2)) for c in here]
        )
        ax.set_ylim(-0.6, max(len(here), 1) - 0.4)
    ax.set_xlim(low, high)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    _date_ticks(ax.xaxis, facet.only)
    # "age is not missing" has no limit, and its rows lie along "age missing".
    terms = facet.terms if facet.limit else described.features[facet.first]
    name = _cut(terms if facet.left else "no feature", room[0])
    ax.set_xlabel(name, fontsize=_style.SMALL, labelpad=1)


def _points(ax: Axes, tree: Tree, x: FloatArray, y: FloatArray, target: AnyArray) -> None:
    if tree.value.ndim == 2:
        colours: Any = _style.class_colours(tree.value.shape[1])[target]
        # in random order, so that no class hides the others
        order = np.random.default_rng(0).permutation(len(x))
        ax.scatter(x[order], y[order], c=colours[order], **ROW_STYLE)
        return
    ax.scatter(x, y, c=target, **_style.value_colours(tree), **ROW_STYLE)


def _limits(values: FloatArray, spread: float) -> tuple[float, float]:
    """Return the range of values with a margin, or with ``spread`` if they are equal."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    room = MARGIN * (high - low) or spread
    return low - room, high + room


def _cut(text: str, room: float) -> str:
    return _style.cut(text, _style.SMALL, room)


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
    """What the box of a node shows."""

    described: TreeDescription
    node: int
    width: float  # in inches
    height: float
    text: tuple[str, ...]  # lines below the picture
    #: For each facet, its terms and limit with the lengths of their bars: from -1, a larger value
    #: leads to the left, to 1, to the right; 0 has none.
    bars: tuple[tuple[tuple[str, float], ...], ...] = ()
    rows: NodeRows | None = None  # to draw instead of bars

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

    ``described`` has a line for each term of a facet, and ``below`` are further lines. Rows are
    drawn, with the condition in words, where a node uses one or two features.
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
