"""What the pictures share: colours that the colour-blind can tell apart, and new Axes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import TextPath
from numpy.typing import NDArray

from bayestree._trees import tree_of
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

# Okabe and Ito's palette, the two that differ most in hue and in lightness first; its black is
# left to lines and text.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK = "#222222"
VALUES = "cividis"  # colour map of real values
POSTERIOR = PALETTE[0]
QUIET = "#6E6E6E"  # text beside the point
DOUBT = PALETTE[5]
FAINT = 0.25  # opacity of an interval behind its middle
SMALL = 8.0  # size of text in small panels
ALONE = 1.4  # a panel alone is so much larger
COLUMNS = 4  # panels side by side, at most
PAD = 0.07  # inches around everything
HINTED = 1.05  # letters on a screen are this much wider than their outlines, at most
LEGEND_HANDLE, LEGEND_LINE = 0.45, 0.2  # inches beside the text of an entry, and of a line
MOST_PANELS = 12  # nodes shown where none are named


NO_SPLIT = "the tree has no split: there is no node to draw."

Result = TypeVar("Result")


class Fitted(Protocol):
    """A fitted estimator, as far as a picture needs it."""

    tree_: RoutedTree

    def predict(self, X: Any) -> NDArray[Any]:
        """Class or value of each row."""


def polytopes_of(estimator: object) -> Tree:
    """The deterministic tree, which is to have polytopes."""
    found = tree_of(estimator)
    if not isinstance(found, Tree):
        raise TypeError(
            f"the splits of this tree are of the kind {found.split_name!r}, which has no facets to "
            "draw; plots.tree draws any tree."
        )
    return found


def new_axes(width: float, height: float) -> Axes:
    """Axes of a new Figure, in inches, outside pyplot's list of figures."""
    axes: Axes = _new_figure(width, height).subplots()
    return axes


def _new_figure(width: float, height: float) -> Figure:
    layout = ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD)
    return Figure(figsize=(width, height), layout=layout)


def width_of(ax: Axes) -> float:
    """Inches from the left to the right of Axes.

    Those of a figure of our own are as wide as the figure, but know it only when it is drawn.
    """
    figure = ax.figure
    if isinstance(figure, Figure) and len(figure.axes) == 1 and figure.get_layout_engine():
        return float(figure.get_size_inches()[0]) - 2 * PAD
    return float(ax.get_window_extent().width / figure.dpi)


class Size(NamedTuple):
    """Inches of a panel, and of the room on the right and above for what the panels share."""

    width: float
    height: float
    aside: float = 0.0
    above: float = 0.0


def new_panels(n_panels: int, size: Size) -> NDArray[Any]:
    """Axes of a new Figure outside pyplot's list, shape (n_panels,)."""
    rows = -(-n_panels // COLUMNS)
    columns = -(-n_panels // rows)
    larger = ALONE if n_panels == 1 else 1.0
    width, height = larger * size.width * columns, larger * size.height * rows
    figure = _new_figure(width + size.aside, height + size.above)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in grid[n_panels:]:
        spare.remove()
    return grid[:n_panels]


def panels(ax: Any, n_panels: int, size: Size) -> NDArray[Any]:
    """The Axes given, one for each panel, or new ones.

    Raises
    ------
    ValueError
        If another number of Axes is given.
    """
    if ax is None:
        return new_panels(n_panels, size)
    given = np.ravel(np.array(ax, dtype=object))
    if len(given) != n_panels:
        raise ValueError(
            f"ax must hold {n_panels} Axes, one for each panel, got {len(given)}; leave it out, "
            "or name fewer nodes."
        )
    return given


def panel_title(ax: Axes, name: str, detail: str = "") -> None:
    """What a small panel shows on the left, a number of it on the right."""
    ax.set_title(name, loc="left", fontsize=SMALL + 1, fontweight="bold", pad=4)
    ax.set_title(detail, loc="right", fontsize=SMALL, color=QUIET, pad=4)


def label_first_column(axes: NDArray[Any], label: str) -> None:
    """The label of the vertical axis, once in each row of panels."""
    for ax in axes:
        place = ax.get_subplotspec()
        if place is None or place.is_first_col():
            ax.set_ylabel(label)


def shared_legend(axes: NDArray[Any], *, outside: bool, more: Sequence[Artist] = ()) -> None:
    """One legend for all panels: above them in a figure of our own, else in the first.

    ``more`` are handles with labels, beside those of the first panel.
    """
    handles, labels = axes[0].get_legend_handles_labels()
    handles, labels = [*handles, *more], [*labels, *(str(one.get_label()) for one in more)]
    if not outside:
        axes[0].legend(handles, labels, frameon=False, fontsize=SMALL)
        return
    figure = axes[0].figure
    width, height = figure.get_size_inches()
    columns = legend_columns(labels, width)
    further = -(-len(handles) // columns) - 1
    figure.set_size_inches(width, height + LEGEND_LINE * further)
    order = line_by_line(len(handles), columns)
    place = {"loc": "outside upper right", "ncols": columns, "fontsize": 9}
    figure.legend(
        [handles[k] for k in order],
        [labels[k] for k in order],
        frameon=False,
        handlelength=1.4,
        columnspacing=1.4,
        **place,
    )


def inches(text: str, size: float) -> float:
    """Width of a line of text of so many points."""
    width = TextPath((0, 0), text, size=size).get_extents().width if text else 0.0
    return HINTED * float(width) / 72


def rows(weight: float) -> str:
    """So many rows, to the nearest whole number."""
    return f"{weight:,.0f} row{'s' * (round(weight) != 1)}"


def cut(text: str, size: float, room: float) -> str:
    """As much of a text as so many inches hold; nothing, if that is less than two letters."""
    if inches(text, size) <= room:
        return text
    for length in range(len(text) - 1, 1, -1):
        shorter = f"{text[:length].rstrip()}\N{HORIZONTAL ELLIPSIS}"
        if inches(shorter, size) <= room:
            return shorter
    return ""


def line_by_line(n_entries: int, columns: int) -> list[int]:
    """Order of entries for Matplotlib, which fills columns, that is to be read along the lines."""
    return [k for column in range(columns) for k in range(column, n_entries, columns)]


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Entries that fit side by side into so many inches."""
    widest = LEGEND_HANDLE + max(inches(label, 9) for label in labels)
    return max(1, min(len(labels), int((width - LEGEND_HANDLE) / widest)))


def open_frame(ax: Axes) -> None:
    """No lines at the top and on the right."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def result_of(given: Any, kind: type[Result], method: str, *arguments: Any) -> Result:
    """The result itself, or what a fitted estimator's method returns.

    Raises
    ------
    TypeError
        If ``given`` is neither.
    """
    if isinstance(given, kind):
        return given
    if not hasattr(given, method):
        raise TypeError(
            f"estimator must be a fitted estimator with a posterior, or the {kind.__name__} that "
            f"its {method} returns, got {type(given).__name__}."
        )
    found: Result = getattr(given, method)(*arguments)
    return found


def chosen_nodes(
    labels: Sequence[str], rows: NDArray[Any], nodes: Sequence[str | int] | None
) -> list[int]:
    """Places of the nodes named; of those that most rows reach, where none are.

    Raises
    ------
    ValueError
        If the tree has no split, or no node of that name.
    """
    if len(labels) == 0:
        raise ValueError(NO_SPLIT)
    if nodes is None:
        most = np.argsort(-np.asarray(rows), kind="stable")[:MOST_PANELS]
        return sorted(int(node) for node in most)
    return [place_of(labels, node) for node in nodes]


def place_of(labels: Sequence[str], node: str | int) -> int:
    """Place of the node with a label, or with a number.

    Raises
    ------
    ValueError
        If there is none, or the tree has no split.
    """
    if len(labels) == 0:
        raise ValueError(NO_SPLIT)
    if isinstance(node, str) and node in labels:
        return list(labels).index(node)
    if not isinstance(node, str) and 0 <= node < len(labels):
        return int(node)
    shown = ", ".join(labels[:MOST_PANELS]) + (", ..." if len(labels) > MOST_PANELS else "")
    raise ValueError(f"node {node!r} is not in the tree; its nodes are {shown}.")


def class_colours(n_classes: int) -> NDArray[np.float64]:
    """One colour for each class, shape (C, 3)."""
    if n_classes <= len(PALETTE):
        return np.array([to_rgb(colour) for colour in PALETTE[:n_classes]])
    return np.asarray(mpl.colormaps["turbo"](np.linspace(0.05, 0.95, n_classes)))[:, :3]
