"""Colours, texts, panels and new Axes that all plots share."""

import unicodedata
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from io import BytesIO
from typing import Any, NamedTuple, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cbook import is_math_text
from matplotlib.colors import Normalize, to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from bayestree import description
from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import CONTROL, FIRST_STRONG, POP, written
from bayestree.description import kind_of, tree_of
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

PALETTE = description.PALETTE
INK = "#222222"
VALUES = "cividis"  # colour map of real values
POSTERIOR = PALETTE[0]
QUIET = "#6E6E6E"  # secondary text
DOUBT = PALETTE[5]
BAND = "#DADADA"  # what is expected, behind what is found
FAINT = 0.25  # opacity of an interval behind its mean or median
SMALL = 8.0  # size of text in small panels
ALONE = 1.4  # enlargement of a single panel
COLUMNS = 4  # maximum number of panels side by side
PAD = 0.07  # inches around everything
HINTED = 1.05  # hinting on screens widens letters by at most this factor
LEGEND_HANDLE, LEGEND_LINE = 0.45, 0.2  # inches beside the text of an entry, and of a line
LONGEST = 1_000  # letters of a name, more of which are not even measured
MAX_PANELS = 12  # nodes shown by default

NO_SPLIT = "the tree has no split: there is no node to draw."

Result = TypeVar("Result")
Given = ParamSpec("Given")


def literal(draw: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function, which returns its Axes, write names as they are: dollars are no formulas.

    Control characters, which are not allowed in SVG files, become spaces.
    """

    @wraps(draw)
    def drawn(*args: Given.args, **given: Given.kwargs) -> Result:
        with mpl.rc_context({"text.parse_math": False, "text.usetex": False}):
            axes = draw(*args, **given)
        for figure in {ax.figure for ax in np.ravel(np.array(axes, dtype=object))}:
            for text in figure.findobj(Text):
                if CONTROL.search(said := text.get_text()):
                    text.set_text(CONTROL.sub(" ", said))
        return axes

    return drawn


def linear_tree_of(estimator: object) -> Tree:
    """Return the deterministic tree, whose splits must be half-spaces or polytopes."""
    found = tree_of(estimator)
    if not isinstance(found, Tree):
        raise TypeError(
            f"the splits of this tree are of the kind {found.split_name!r}, which has no facets to "
            "draw; use plots.tree, which draws any tree."
        )
    return found


class DisplayedFigure(Figure):
    """A figure that notebooks show without pyplot, which registers how others are shown."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_axes(width: float, height: float, **grid: Any) -> Any:
    """Create Axes, or a grid of them, in a Figure of these inches that pyplot does not know."""
    layout = ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD)
    return DisplayedFigure(figsize=(width, height), layout=layout).subplots(**grid)


def width_of(ax: Axes) -> float:
    """Measure the width of Axes in inches.

    Axes of our own figures fill the figure, but report that width only after drawing.
    """
    figure = ax.figure
    if isinstance(figure, Figure) and len(figure.axes) == 1 and figure.get_layout_engine():
        return float(figure.get_size_inches()[0]) - 2 * PAD
    return float(ax.get_window_extent().width / figure.dpi)


class PanelSize(NamedTuple):
    """Inches of a panel, and of the space beside and above the panels for shared elements."""

    width: float
    height: float
    aside: float = 0.0
    above: float = 0.0


def panels(ax: Any, n_panels: int, size: PanelSize) -> AnyArray:
    """Return the given Axes, one for each panel, or new Axes, shape (n_panels,)."""
    if ax is not None:
        given = np.ravel(np.array(ax, dtype=object))
        if len(given) != n_panels:
            raise ValueError(
                f"ax must hold {n_panels} Axes, one for each panel, got {len(given)}; leave it "
                "out, or name fewer nodes."
            )
        return given
    rows = -(-n_panels // COLUMNS)
    columns = -(-n_panels // rows)
    larger = ALONE if n_panels == 1 else 1.0
    width, height = larger * size.width * columns, larger * size.height * rows
    shape = {"nrows": rows, "ncols": columns, "squeeze": False}
    grid = new_axes(width + size.aside, height + size.above, **shape).ravel()
    for spare in grid[n_panels:]:
        spare.remove()
    return grid[:n_panels]


def panel_title(ax: Axes, name: str, detail: str = "") -> None:
    """Give a small panel a title: its name on the left, a detail on the right."""
    ax.set_title(name, loc="left", fontsize=SMALL + 1, fontweight="bold", pad=4)
    ax.set_title(detail, loc="right", fontsize=SMALL, color=QUIET, pad=4)


def label_first_column(axes: AnyArray, label: str) -> None:
    """Label the vertical axis once in each row of panels."""
    for ax in axes:
        place = ax.get_subplotspec()
        if place is None or place.is_first_col():
            ax.set_ylabel(label)


def shared_legend(axes: AnyArray, *, outside: bool, more: Sequence[Artist] = ()) -> None:
    """Draw one legend for all panels: above them, or inside the first panel.

    ``more`` are labelled handles to add to the handles of the first panel.
    """
    handles, labels = axes[0].get_legend_handles_labels()
    handles, labels = [*handles, *more], [*labels, *(str(one.get_label()) for one in more)]
    if not outside:
        axes[0].legend(handles, labels, frameon=False, fontsize=SMALL)
        return
    figure = axes[0].figure
    width, height = figure.get_size_inches()
    columns = legend_columns(labels, width)
    more_lines = -(-len(handles) // columns) - 1
    figure.set_size_inches(width, height + LEGEND_LINE * more_lines)
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "handlelength": 1.4}
    entries = line_by_line(handles, columns), line_by_line(labels, columns)
    figure.legend(*entries, loc="outside upper right", ncols=columns, columnspacing=1.4, **style)


def inches(text: str, size: float) -> float:
    """Measure the width in inches of a line of text of a size in points, in any script."""
    formula = mpl.rcParams["text.parse_math"] and is_math_text(text)
    return _inches("".join(map(_measured, text)), size, formula=formula)


@lru_cache(maxsize=4096)
def _inches(text: str, size: float, *, formula: bool) -> float:
    measure = text_to_path.get_text_width_height_descent
    return HINTED * float(measure(text, FontProperties(size=size), formula)[0]) / 72


def _measured(letter: str) -> str:
    """Replace a letter that the font lacks, East Asian or a mark, by a letter of its width."""
    if unicodedata.category(letter) in ("Mn", "Cf"):  # accents and marks of direction
        return ""
    return "\N{EM DASH}" if unicodedata.east_asian_width(letter) in "WF" else letter


def cut(text: str, size: float, room: float) -> str:
    """Cut a text to a width in inches; empty if fewer than two letters fit.

    The direction of what follows does not change if the end of an isolated name is cut off.
    """
    text = type(text)(CONTROL.sub(" ", text))
    if len(text) < LONGEST and inches(text, size) <= room:
        return text

    def shortened(length: int) -> str:
        kept = text[:length]
        end = POP * (kept.count(FIRST_STRONG) - kept.count(POP))
        return type(text)(f"{kept.rstrip()}{end}\N{HORIZONTAL ELLIPSIS}")

    most = range(min(len(text), LONGEST))
    fits = bisect(most, 0, key=lambda length: inches(shortened(length), size) > room) - 1
    return shortened(fits) if fits > 1 else ""


def line_by_line(entries: Sequence[Any], columns: int) -> list[Any]:
    """Order the entries of a legend to be read line by line: Matplotlib fills columns first."""
    return [one for column in range(columns) for one in entries[column::columns]]


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Count the legend entries that fit side by side into a width in inches."""
    widest = LEGEND_HANDLE + max(inches(label, 9) for label in labels)
    return max(1, min(len(labels), int((width - LEGEND_HANDLE) / widest)))


def open_frame(ax: Axes) -> None:
    """Remove the top and right spines."""
    ax.spines[["top", "right"]].set_visible(False)


def date_ticks(axis: Axis, n_ticks: int) -> None:
    """Label times at up to ``n_ticks`` places."""
    # Two ticks are enough: where more are wanted, some ranges (such as 3 to 4 years) have no
    # interval of Matplotlib's with at most n_ticks, and it warns.
    locator = AutoDateLocator(minticks=2, maxticks=n_ticks)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))


def result_of(given: Any, kind: type[Result], method: str, *arguments: Any) -> Result:
    """Return a given result, or the result of a method of a fitted estimator."""
    if isinstance(given, kind):
        return given
    if not hasattr(given, method):
        raise TypeError(
            f"estimator must be a fitted estimator with a posterior, or the {kind.__name__} that "
            f"its {method} returns, got {kind_of(given)}."
        )
    return getattr(given, method)(*arguments)


def chosen_nodes(
    labels: Sequence[str], rows: AnyArray, nodes: Sequence[str | int] | None
) -> list[int]:
    """Return the indices of the named nodes, by default of the nodes that most rows reach."""
    if len(labels) == 0:
        raise ValueError(NO_SPLIT)
    if nodes is None:
        most = np.argsort(-np.asarray(rows), kind="stable")[:MAX_PANELS]
        return sorted(int(node) for node in most)
    return [index_of(labels, node) for node in nodes]


def index_of(labels: Sequence[str], node: str | int) -> int:
    """Return the index of the node with a label or number."""
    if len(labels) == 0:
        raise ValueError(NO_SPLIT)
    if isinstance(node, str) and node in labels:
        return list(labels).index(node)
    if not isinstance(node, str) and 0 <= node < len(labels):
        return int(node)
    shown = ", ".join(labels[:MAX_PANELS]) + (", ..." if len(labels) > MAX_PANELS else "")
    raise ValueError(f"node {written(node)} is not in the tree; its nodes are {shown}.")


def value_colours(tree: RoutedTree) -> dict[str, Any]:
    """Return the colour map of a regression tree and its scale, from the smallest leaf up."""
    low, high = float(tree.value.min()), float(tree.value.max())
    scale = Normalize(low, high if high > low else low + 1.0)
    return {"cmap": mpl.colormaps[VALUES], "norm": scale}


def class_handles(names: Sequence[str]) -> list[Patch]:
    """Return the entries of a legend for the classes."""
    pairs = zip(names, class_colours(len(names)), strict=True)
    return [Patch(facecolor=colour, label=CONTROL.sub(" ", name)) for name, colour in pairs]


def class_colours(n_classes: int) -> FloatArray:
    """Return a colour for each class, shape (C, 3)."""
    if n_classes <= len(PALETTE):
        return np.array([to_rgb(colour) for colour in PALETTE[:n_classes]])
    return np.asarray(mpl.colormaps["turbo"](np.linspace(0.05, 0.95, n_classes)))[:, :3]
