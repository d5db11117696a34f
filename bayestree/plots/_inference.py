"""Posteriors: the trace of the bound, ranks among draws, and the sides of rows at each split."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, class_numbers
from bayestree.description import FittedModel, FittedPosterior, kind_of
from bayestree.diagnostics.draws import spread, tails
from bayestree.diagnostics.uncertainty import SplitUncertainty
from bayestree.plots import _style

WINDOW = 20  # the running median covers 1 / WINDOW of the trace
STEEP = 10  # the first 1 / STEEP of the trace may lie outside the axis
ROOM = 0.12  # margin above and below, as a share of the range shown
BINS = 20  # maximum of the default number of bins
PER_BIN = 5  # minimum expected number of simulations per bin


def elbo(estimator: FittedModel | FittedPosterior, ax: Axes | None = None) -> Axes:
    """Plot the trace of the evidence lower bound (ELBO) by epoch, or of VI by step.

    The thin line is the bound estimated from one draw and minibatches, and the thick line is its
    running median over a twentieth of the trace. The dashed line is the bound of the finished fit
    on all rows (untempered, mean of several draws). The first tenth of the trace and single
    estimates may lie below the axis. Where the thick line still rises, the fit has not converged;
    that it is level proves little, since the learning rate decays (see ``check_convergence``).

    Parameters
    ----------
    estimator : fitted estimator with a variational posterior, or its Posterior
    ax : Axes, optional

    Raises
    ------
    ValueError
        If the posterior has no such trace.
    """
    trace, final, unit = _trace_of(estimator)
    width = max(1, len(trace) // WINDOW)
    middle = pd.Series(trace).rolling(width, center=True, min_periods=1).median().to_numpy()
    ax = ax or _style.new_axes(5.0, 3.2)
    numbers = np.arange(1, len(trace) + 1)
    colour = _style.POSTERIOR
    ax.plot(numbers, trace, color=colour, linewidth=0.6, alpha=0.45, label="estimate")
    ax.plot(numbers, middle, color=colour, linewidth=1.8, label="running median")
    ax.axhline(final, color=_style.INK, linewidth=1.0, linestyle="--", label="finished fit")
    late = slice(len(trace) // STEEP, None)
    low, high = min(middle[late].min(), final), max(np.quantile(trace[late], 0.99), final)
    room = ROOM * (high - low) if high > low else 1.0
    ax.set(xlim=(0, len(trace) + 1), ylim=(low - room, high + room))
    ax.set(xlabel=unit, ylabel="ELBO (nats)")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def _trace_of(estimator: object) -> tuple[FloatArray, float, str]:
    """Return the bound by epoch or step, the bound of the finished fit, and which of the two."""
    posterior: Any = getattr(estimator, "posterior_", estimator)
    if not hasattr(posterior, "stats"):
        if hasattr(estimator, "fit"):
            check_is_fitted(estimator)
        raise TypeError(
            f"estimator must be a fitted estimator or a Posterior, got {kind_of(estimator)}."
        )
    if "elbo" not in posterior.stats:
        raise ValueError(
            f"inference={posterior.inference!r} recorded no ELBO; fit with inference='svi', and "
            "a tree that splits."
        )
    trace = np.asarray(posterior.stats["elbo"], dtype=np.float64)
    unit = "step" if "n_steps" in posterior.stats else "epoch"
    return trace, float(posterior.stats.get("final_elbo", trace[-1])), unit


def ranks(
    ranks: ArrayLike,
    n_draws: int,
    ax: Axes | None = None,
    *,
    n_bins: int | None = None,
    level: float = 0.99,
) -> Axes:
    """Plot a histogram of the ranks of true values among posterior draws (Talts et al. 2018).

    If the posterior is correct, all ranks are equally likely, and a bar ends outside the grey band
    with probability ``1 - level`` or less; such bars are hatched. A hump in the middle indicates
    that the posterior is too wide, humps at both ends that it is too narrow, a slope that it is
    biased.

    Parameters
    ----------
    ranks : array of int, shape (simulations,)
        Number of draws below the true value, 0 to ``n_draws``.
    n_draws : int
        Number of draws among which each true value was ranked.
    ax : Axes, optional
    n_bins : int, optional
        By default up to 20 bins of equally many ranks with at least 5 expected simulations each.
        If the number of bins does not divide ``n_draws + 1``, some bins contain one more rank,
        and the band is higher there.
    level : float
        Probability of the band for each bar.

    Raises
    ------
    ValueError
        If ranks are not integers from 0 to ``n_draws``, there are more bins than ranks, or
        ``level`` is not between 0 and 1.
    """
    found = _check_ranks(ranks, n_draws)
    bins = _default_bins(len(found), n_draws) if n_bins is None else n_bins
    if not 1 <= bins <= n_draws + 1:
        raise ValueError(f"n_bins must lie between 1 and n_draws + 1 = {n_draws + 1}, got {bins}.")
    ends = np.array(tails(level))[:, None]
    edges = np.linspace(0, n_draws + 1, bins + 1).round()
    counts = np.histogram(found, edges)[0]
    share = np.diff(edges) / (n_draws + 1)
    low, high = np.asarray(binom.ppf(ends, len(found), share))
    ax = ax or _style.new_axes(4.2, 2.8)
    edges = edges - 0.5  # the bar of ranks a to b - 1 spans a - 1/2 to b - 1/2
    ax.stairs(
        high, edges, baseline=low, fill=True, color=_style.BAND, label=f"{level:.0%} if uniform"
    )
    line: dict[str, Any] = {"baseline": None, "color": _style.INK, "zorder": 3}
    ax.stairs(len(found) * share, edges, linewidth=1.0, linestyle="--", **line)
    for bound in (low, high):
        ax.stairs(bound, edges, linewidth=0.7, **line)
    edge: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.8, "zorder": 2}
    bars = ax.bar(edges[:-1], counts, np.diff(edges), **edge)
    for bar, outside in zip(bars, (counts < low) | (counts > high), strict=True):
        bar.set_facecolor(_style.DOUBT if outside else _style.POSTERIOR)
        bar.set_hatch("///" if outside else None)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.12 * max(counts.max(), high.max())))
    ax.set(xlabel=f"rank among {n_draws} draws", ylabel="simulations")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def _check_ranks(ranks: ArrayLike, n_draws: int) -> AnyArray:
    found = np.asarray(ranks)
    if found.ndim != 1 or len(found) == 0:
        raise ValueError(f"ranks must have shape (simulations,), one or more, got {found.shape}.")
    if not (np.equal(found, np.rint(found)) & (found >= 0) & (found <= n_draws)).all():
        raise ValueError(f"ranks must be integers from 0 to n_draws = {n_draws}.")
    return found


def _default_bins(n_simulations: int, n_draws: int) -> int:
    """Choose as many bins as simulations allow, of equal width unless that halves their number."""
    max_bins = int(np.clip(n_simulations // PER_BIN, 1, min(BINS, n_draws + 1)))
    equal = max(bins for bins in range(1, max_bins + 1) if (n_draws + 1) % bins == 0)
    return equal if 2 * equal >= max_bins else max_bins


PANEL = _style.PanelSize(2.5, 2.0, above=0.3)
HALF = 0.5  # P(right) at the border; rows less likely to reach a node are not shown
STRIP = (-0.2, -0.08)  # vertical extent of the strip of classes
MARGIN_BINS = 30  # of a histogram of rows
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
    edges = np.linspace(-reach, reach, MARGIN_BINS + 1)
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
