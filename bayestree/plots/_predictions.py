"""Predictions against what was observed: calibration, coverage, rows, and error by size."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.diagnostics.scores import Calibration
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.plots import _style

MARKERS = "osD^vP*X"
ERRORS = 2  # half-length of the bars in standard errors
MARGIN = 0.03
LEVEL = 0.9  # inches of the name of a level
LETTERS = 24  # of the names of levels, from which they are turned
_ROW: dict[str, Any] = {
    "s": 15, "linewidths": 0.4, "edgecolors": "white", "alpha": 0.85, "zorder": 2
}  # fmt: skip


@_style.literal
def calibration(found: Calibration | Mapping[str, Calibration], ax: Axes | None = None) -> Axes:
    """Plot the accuracy of the most probable class against its probability.

    Each point is an equal-mass bin. Points below the diagonal are overconfident, points above it
    underconfident. Bars extend two standard errors (under perfect calibration) to each side: most
    should meet the diagonal. The legend shows the expected calibration error and, in brackets,
    its expectation if the probabilities were calibrated.

    Parameters
    ----------
    found : Calibration, or mapping of str to Calibration
        Result of :func:`bayestree.diagnostics.calibration`, or several by name.
    ax : Axes, optional

    Raises
    ------
    TypeError
        If something else is given.
    ValueError
        If the mapping is empty.
    """
    if not isinstance(found, Calibration | Mapping):
        raise TypeError(
            "found must be a result of bayestree.diagnostics.calibration or a mapping of names to "
            f"results, got {type(found).__name__}."
        )
    several = {"": found} if isinstance(found, Calibration) else found
    for name, one in several.items():
        if not isinstance(one, Calibration):
            raise TypeError(
                f"found must contain results of bayestree.diagnostics.calibration, got "
                f"{type(one).__name__} for {name!r}."
            )
    if not several:
        raise ValueError("found must not be empty: there is no result to draw.")
    ax = ax or _style.new_axes(3.9, 4.0 + 0.2 * len(several))
    ax.plot([0, 1], [0, 1], color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    low = min(_curve(ax, rank, *item) for rank, item in enumerate(several.items()))
    edges = (max(low - MARGIN, -MARGIN), 1 + MARGIN)
    ax.set(xlim=edges, ylim=edges, aspect="equal")
    ax.set(xlabel="probability of the most probable class", ylabel="accuracy")
    title = "calibration error [if calibrated]"
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    ax.legend(frameon=False, fontsize=9, title=title, title_fontsize=9, alignment="left", **place)
    _style.open_frame(ax)
    return ax


def _curve(ax: Axes, rank: int, name: str, one: Calibration) -> float:
    """Draw the bins of one result and return its smallest coordinate."""
    confidence, accuracy, error = one.bins[["confidence", "accuracy", "error"]].to_numpy().T
    label = f"{name}  {one.ece.value:.3f} [{one.ece.if_calibrated:.3f}]".strip()
    colour, marker = _style.PALETTE[rank % len(_style.PALETTE)], MARKERS[rank % len(MARKERS)]
    style: dict[str, Any] = {"label": label, "color": colour, "marker": marker, "markersize": 6}
    style |= {"markeredgecolor": "white", "markeredgewidth": 0.6, "linewidth": 1.2}
    ax.errorbar(confidence, accuracy, ERRORS * error, elinewidth=1.0, zorder=3 + rank, **style)
    return float(min(confidence.min(), accuracy.min()))


def draw_predicted(
    ax: Axes,
    predicted: FloatArray,
    observed: FloatArray,
    interval: tuple[FloatArray, FloatArray] | None,
    target: str,
) -> None:
    """Draw observed against predicted values, with their intervals if there are any.

    Diamonds are rows outside their intervals.
    """
    both = np.concatenate([predicted, observed])
    ends = [float(both.min()), float(both.max())]
    ax.plot(ends, ends, color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    missed = np.zeros(len(observed), dtype=bool)
    if interval is not None:
        low, high = interval
        missed = (observed < low) | (observed > high)
        ax.vlines(predicted, low, high, color=_style.QUIET, linewidth=0.6, alpha=0.35, zorder=1)
        diamond: dict[str, Any] = {"s": 16, "color": _style.DOUBT, "marker": "D", "zorder": 3}
        ax.scatter(predicted[missed], observed[missed], **diamond)
    point: dict[str, Any] = {"s": 14, "color": _style.POSTERIOR, "linewidths": 0, "alpha": 0.75}
    ax.scatter(predicted[~missed], observed[~missed], zorder=2, **point)
    ax.set(xlabel=f"predicted {target}", ylabel=f"observed {target}")
    ax.locator_params(nbins=6)
    _style.open_frame(ax)


def draw_coverage(ax: Axes, levels: FloatArray, inside: FloatArray, n_rows: int) -> None:
    """Draw the share of rows inside their intervals against the probability of the intervals.

    The band extends two standard errors to each side.
    """
    error = ERRORS * np.sqrt(levels * (1 - levels) / n_rows)
    ax.fill_between(levels, levels - error, levels + error, color=_style.BAND, linewidth=0)
    ax.plot([0, 1], [0, 1], color=_style.INK, linewidth=1.0, linestyle="--")
    ax.plot(levels, inside, color=_style.POSTERIOR, marker="o", markersize=5, linewidth=1.4)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="probability of the interval", ylabel="share of rows inside")
    _style.open_frame(ax)


class Scale(NamedTuple):
    """The name of a column in a plot, where its rows are, and the names of levels at 0, 1, ..."""

    name: str
    at: AnyArray
    levels: tuple[str, ...] = ()


def draw_classes(
    ax: Axes, x: Scale, y: Scale, labels: AnyArray, wrong: BoolArray, n_classes: int
) -> None:
    """Draw rows by two columns, with a colour and shape for each class, and rings at errors."""
    for label, colour in enumerate(_style.class_colours(n_classes)):
        members = labels == label
        marker = MARKERS[label % len(MARKERS)]
        ax.scatter(x.at[members], y.at[members], color=[colour], marker=marker, **_ROW)
    ring: dict[str, Any] = {"s": 46, "facecolors": "none", "linewidths": 1.0, "zorder": 3}
    ax.scatter(x.at[wrong], y.at[wrong], edgecolors=_style.INK, **ring)
    _scales(ax, x, y)


def draw_values(ax: Axes, x: Scale, y: Scale, values: FloatArray, target: str) -> None:
    """Draw rows by two columns in the colours of their values."""
    shade = ax.scatter(x.at, y.at, c=values, cmap=_style.VALUES, **_ROW)
    ax.figure.colorbar(shade, ax=ax, label=target, aspect=25)
    _scales(ax, x, y)


def _scales(ax: Axes, x: Scale, y: Scale) -> None:
    """Label both axes: levels by their names, times as dates."""
    for axis, scale in ((ax.xaxis, x), (ax.yaxis, y)):
        axis.set_label_text(scale.name)
        if scale.levels:
            names = [_style.cut(name, _style.SMALL, LEVEL) for name in scale.levels]
            axis.set_ticks(np.arange(len(names)), names)
        elif scale.at.dtype.kind == "M":
            _style.date_ticks(axis, 5)
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if len("".join(x.levels)) > LETTERS:
        ax.tick_params(axis="x", rotation=90)
    _style.open_frame(ax)


def regularization_path(path: Any, ax: Axes | None = None) -> Axes:
    """Plot the error of trees against their number of parameters, along a regularization path.

    As in the paper on sparse oblique trees: training error (open markers) and validation error
    (filled markers) against the number of non-zero coefficients. Numbers next to the markers are
    penalties; the tree with the lowest validation error is circled.

    Parameters
    ----------
    path : RegularizationPath
        Result of :func:`bayestree.regularization_path`.
    ax : Axes, optional

    Returns
    -------
    Axes
        The error is 1 - accuracy in per cent, or 1 - R^2 for regression.

    Raises
    ------
    TypeError
        If ``path`` is not a RegularizationPath.
    """
    if not hasattr(path, "nonzeros"):
        raise TypeError(
            f"path must come from bayestree.regularization_path, got {type(path).__name__}."
        )
    classifies = hasattr(path.estimators[0], "classes_")
    factor = 100.0 if classifies else 1.0
    ax = ax or _style.new_axes(5.0, 3.4)
    size = np.maximum(path.nonzeros, 1)  # log axis; a single leaf has no coefficients
    error = factor * (1 - path.score)
    train = factor * (1 - path.train_score)
    colour = _style.POSTERIOR
    ax.plot(size, train, "o-", color=colour, markerfacecolor="white", linewidth=1.0, label="train")
    ax.plot(size, error, "o-", color=colour, linewidth=1.6, label="validation")
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": _style.SMALL}
    for at, penalty in zip(zip(size, error, strict=True), path.lambdas, strict=True):
        ax.annotate(f"{penalty:.3g}", at, (0, 6), ha="center", color=_style.QUIET, **style)
    best = path.best
    label = f"λ = {path.lambdas[best]:.3g}, {path.leaves[best]:,} leaves"
    ring: dict[str, Any] = {"markersize": 12, "markerfacecolor": "none", "color": _style.DOUBT}
    ax.plot(size[best], error[best], "o", label=label, **ring)
    ax.set_xscale("log")
    ax.set(xlabel="non-zero coefficients", ylabel="error (%)" if classifies else "1 - R²")
    ax.margins(y=0.12)
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def sparsity_path(found: Any, ax: Axes | None = None) -> Axes:
    """Plot what trees of few columns a facet lose, against the number of columns.

    Each point is the mean loss of log density to the tree of full facets, with bars of one standard
    error to each side. The circle marks the tree that was chosen; it may have fewer facets and
    digits than the point at its number of columns.

    Parameters
    ----------
    found : SparsityPath, or fitted estimator
        Result of ``estimator.sparsity_path()``, or the estimator.
    ax : Axes, optional

    Raises
    ------
    AttributeError
        If the facets of the estimator's tree are full.
    TypeError
        If ``found`` has no path.
    """
    path = found.sparsity_path() if hasattr(found, "sparsity_path") else found
    if not isinstance(path, SparsityPath):
        raise TypeError(
            "found must be the result of sparsity_path() or a fitted convex polytope tree, got "
            f"{type(found).__name__}."
        )
    ax = ax or _style.new_axes(4.4, 3.2)
    size, loss, se = path.columns[1:-1], path.loss[1:-1], path.se[1:-1]
    ax.axhline(0.0, color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    bars: dict[str, Any] = {"color": _style.POSTERIOR, "linewidth": 1.4, "capsize": 2}
    ax.errorbar(size, loss, se, fmt="o-", markersize=5, zorder=2, **bars)
    label = f"chosen: {path.coefficients[-1]} of {path.coefficients[0]} coefficients"
    ring: dict[str, Any] = {"markersize": 12, "markerfacecolor": "none", "color": _style.DOUBT}
    ax.plot(path.columns[-1], path.loss[-1], "o", label=label, zorder=3, **ring)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set(xlabel="columns of a facet, at most", ylabel="loss (nats a row)")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax
