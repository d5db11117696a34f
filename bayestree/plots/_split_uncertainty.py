"""The side of each row at each split: its posterior, and its distance from the border."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from bayestree._utils.arrays import FloatArray, IntArray, class_numbers
from bayestree.description import FittedModel
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.uncertainty import SplitUncertainty
from bayestree.plots import _style

PANEL = _style.PanelSize(2.5, 2.0, above=0.3)
HALF = 0.5  # P(right) at the border; rows less likely to reach a node are not shown
STRIP = (-0.2, -0.08)  # vertical extent of the strip of classes
BINS = 30  # of a histogram of rows
DRAWN = 500  # rows of a line, evenly spaced among the sorted ones
MARK = 9.0  # area of the marker of an uncertain row


def split_uncertainty(
    estimator: FittedModel | SplitUncertainty,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Any = None,
    *,
    nodes: Sequence[str | int] | None = None,
) -> NDArray[Any]:
    """Plot P(right) of the rows at each node, one panel per node.

    The rows with a probability of at least 1/2 of reaching the node are sorted by the mean of
    P(right), the probability of leaving its polytope. The line is the mean, the band the credible
    interval. Marks are rows whose side is uncertain: the posterior probability of the side that the
    point estimate does not take exceeds 10 %. The title has their share of all rows, weighted by
    the probability of reaching the node, as in the table of ``split_uncertainty``. A hard split
    appears as a step with a thin band, a soft one as a slope, and one that the data do not
    determine has a wide band. The strip below shows the colours of ``y``: a good split separates
    them.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the SplitUncertainty it returned
    X : array, shape (n, d)
        Rows; omit for a SplitUncertainty.
    y : array, shape (n,), optional
        Classes or values of the rows. Classes of a given estimator have the same colours as in
        the other plots; other labels, such as a finer grouping, have colours of their own.
    ax : array of Axes, optional
        One per node.
    nodes : sequence of str or int, optional
        Paths of nodes from the root, or their numbers; by default the 12 that most rows reach.

    Returns
    -------
    array of Axes, shape (nodes,)

    Raises
    ------
    ValueError
        If X is missing or y does not match it, the tree has no split, or there is no such node.
    """
    if not isinstance(estimator, SplitUncertainty) and X is None:
        raise ValueError("X is missing; pass the rows whose sides are to be shown.")
    found = _style.result_of(estimator, SplitUncertainty, "split_uncertainty", X)
    colours, handles = (None, []) if y is None else _colours_of(np.asarray(y), found, estimator)
    chosen = _style.chosen_nodes(found.labels, found.reached.sum(axis=0), nodes)
    shares = found.to_frame()["unsure"].to_numpy()
    axes = _style.panels(ax, len(chosen), PANEL)
    for panel, node in zip(axes, chosen, strict=True):
        rows = np.flatnonzero(found.reached[:, node] >= HALF)
        rows = rows[np.argsort(found.mean[rows, node], kind="stable")]
        drawn = spread(len(rows), DRAWN)
        _rows(panel, 1 + drawn, found, rows[drawn], node)
        if colours is not None and len(rows):
            extent, style = (0.5, len(rows) + 0.5, *STRIP), {"aspect": "auto", "zorder": 1}
            panel.imshow(colours[rows][None], extent=extent, interpolation="nearest", **style)
        share = "" if np.isnan(shares[node]) else f"{100 * shares[node]:.1f} % uncertain"
        _style.panel_title(panel, found.labels[node], share)
        bottom = STRIP[0] if colours is not None else -0.03
        panel.set(xlim=(0.5, max(len(rows), 1) + 0.5), ylim=(bottom, 1.03))
        panel.set(xlabel="rows, sorted", yticks=[0, HALF, 1], yticklabels=["0", "½", "1"])
        panel.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
        panel.tick_params(labelsize=_style.SMALL)
        _style.open_frame(panel)
    _style.label_first_column(axes, "P(right)")
    _style.shared_legend(axes, outside=ax is None, more=handles)
    return axes


def draw_margins(
    ax: Axes,
    margin: FloatArray,
    labels: IntArray | None,
    n_classes: int,
    sides: tuple[str, str],
    ends: tuple[str, str],
) -> None:
    """Draw rows by their distance from a border, positive on the right, stacked by class.

    ``labels`` are class numbers, if they are known, and ``ends`` the labels at the two ends of the
    axis.
    """
    reach = float(np.quantile(np.abs(margin), 0.98)) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    kinds = np.zeros(len(margin), dtype=np.int64) if labels is None else labels
    colours = [_style.POSTERIOR] if labels is None else [*_style.class_colours(n_classes)]
    shown = np.clip(margin, -reach, reach)
    for kind in range(len(colours) - 1, -1, -1):  # the lower parts of the stack cover the upper
        height = np.histogram(shown[kinds <= kind], edges)[0]
        ax.stairs(height, edges, fill=True, color=colours[kind], linewidth=0)
    ax.axvline(0.0, color=_style.INK, linewidth=1.2)
    left, right = f"\N{LEFTWARDS ARROW} {sides[0]}", f"{sides[1]} \N{RIGHTWARDS ARROW}"
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": _style.SMALL, "va": "top"}
    places = ((-reach, 0, ends[0], "left"), (0.0, -6, left, "right"), (0.0, 6, right, "left"),
              (reach, 0, ends[1], "right"))  # fmt: skip
    for x, aside, words, align in places:
        ax.annotate(words, (x, 0.0), (aside, -4), color=_style.INK, ha=align, **style)
    ax.set(xlim=(-reach, reach), xticks=[], yticks=[])
    ax.spines[["left", "top", "right"]].set_visible(False)


def _colours_of(
    y: NDArray[Any], found: SplitUncertainty, estimator: object
) -> tuple[FloatArray, list[Patch]]:
    """Return the colours of the rows, shape (n, 3), and legend entries of the classes."""
    if y.shape != (len(found.mean),):
        raise ValueError(f"y must have shape ({len(found.mean)},) to match X, got {y.shape}.")
    if found.total_entropy is None and y.dtype.kind in "biuf":
        scale = Normalize(float(y.min()), float(y.max()))
        return np.asarray(mpl.colormaps[_style.VALUES](scale(y)))[:, :3], []
    classes = np.asarray(getattr(estimator, "classes_", np.unique(y)))
    if not np.isin(y, classes).all():  # labels other than the classes
        classes = np.unique(y)
    palette = _style.class_colours(len(classes))
    named = zip(classes, palette, strict=True) if len(classes) <= len(_style.PALETTE) else []
    handles = [Patch(color=tuple(colour), label=str(name)) for name, colour in named]
    return palette[class_numbers(y, classes)], handles


def _rows(ax: Axes, places: IntArray, found: SplitUncertainty, rows: IntArray, node: int) -> None:
    """Draw sorted rows at their places, and mark those that are uncertain."""
    mean, uncertain = found.mean[rows, node], found.unsure[rows, node]
    low, high = found.interval[rows, node].T
    ax.axhline(HALF, color=_style.INK, linewidth=0.8, linestyle=":", zorder=1)
    band: dict[str, Any] = {"alpha": _style.FAINT, "linewidth": 0, "step": "mid"}
    ax.fill_between(places, low, high, color=_style.POSTERIOR, label="interval", **band)
    ax.plot(places, mean, color=_style.POSTERIOR, linewidth=1.4, label="mean")
    mark: dict[str, Any] = {"s": MARK, "color": _style.DOUBT, "linewidths": 0, "zorder": 3}
    ax.scatter(places[uncertain], mean[uncertain], label="uncertain", **mark)
