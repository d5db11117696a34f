"""Predictions against what was observed, and the effects of columns on them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree._utils.wording import in_words
from bayestree.diagnostics.scores import Calibration
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.diagnostics.uncertainty import Dependence
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
    places: AnyArray
    levels: tuple[str, ...] = ()


def draw_classes(
    ax: Axes, x: Scale, y: Scale, labels: AnyArray, wrong: BoolArray, n_classes: int
) -> None:
    """Draw rows by two columns, with a colour and shape for each class, and rings at errors."""
    for label, colour in enumerate(_style.class_colours(n_classes)):
        members = labels == label
        marker = MARKERS[label % len(MARKERS)]
        ax.scatter(x.places[members], y.places[members], color=[colour], marker=marker, **_ROW)
    ring: dict[str, Any] = {"s": 46, "facecolors": "none", "linewidths": 1.0, "zorder": 3}
    ax.scatter(x.places[wrong], y.places[wrong], edgecolors=_style.INK, **ring)
    _scales(ax, x, y)


def draw_values(ax: Axes, x: Scale, y: Scale, values: FloatArray, target: str) -> None:
    """Draw rows by two columns in the colours of their values."""
    shade = ax.scatter(x.places, y.places, c=values, cmap=_style.VALUES, **_ROW)
    ax.figure.colorbar(shade, ax=ax, label=target, aspect=25)
    _scales(ax, x, y)


def _scales(ax: Axes, x: Scale, y: Scale) -> None:
    """Label both axes: levels by their names, times as dates."""
    for axis, scale in ((ax.xaxis, x), (ax.yaxis, y)):
        axis.set_label_text(scale.name)
        if scale.levels:
            names = [_style.cut(name, _style.SMALL, LEVEL) for name in scale.levels]
            axis.set_ticks(np.arange(len(names)), names)
        elif scale.places.dtype.kind == "M":
            _style.date_ticks(axis, 5)
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if len("".join(x.levels)) > LETTERS:
        ax.tick_params(axis="x", rotation=90)
    _style.open_frame(ax)


def regularization_path(path: Any, ax: Axes | None = None) -> Axes:
    """Plot the error of trees against their number of parameters, along a regularization path.

    As in the paper on sparse oblique trees, it shows the training error (open markers) and the
    validation error (filled markers) against the number of non-zero coefficients. Numbers next to
    the markers are penalties; the tree with the lowest validation error is circled.

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
    """Plot the loss of sparse trees against their number of coefficients.

    Each point is the mean loss of log density to the best of them, with bars of one standard error
    to each side. The circle marks the tree that was chosen.

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
    size, loss, se = path.coefficients[:-1], path.loss[:-1], path.se[:-1]
    ax.axhline(0.0, color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    bars: dict[str, Any] = {"color": _style.POSTERIOR, "linewidth": 1.4, "capsize": 2}
    ax.errorbar(size, loss, se, fmt="o-", markersize=5, zorder=2, **bars)
    label = f"chosen: {path.coefficients[-1]} coefficients"
    ring: dict[str, Any] = {"markersize": 12, "markerfacecolor": "none", "color": _style.DOUBT}
    ax.plot(path.coefficients[-1], path.loss[-1], "o", label=label, zorder=3, **ring)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set(xlabel="coefficients of all facets", ylabel="loss (nats a row)")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


PANEL = _style.PanelSize(3.2, 2.3, above=0.1)
BARS = 6  # features shown of each turn
MOST = 12  # features shown at once
DIGITS = 3  # of the value of a feature
HALF = 0.5  # strength from which the matrix is light
GAP = 0.06  # from the end of a curve to the missing value, as a share of its width
NAME_LETTERS = 30  # of the names of all levels, from which they are turned
NAME = 1.3  # maximum inches of the name of a feature
TOWARDS = (_style.PALETTE[0], _style.PALETTE[5])  # inside, outside


class Effects(NamedTuple):
    """A panel: effects (c,) of the columns that add up, and where their sum meets a border.

    There are no ``effects`` where nothing decides, and no ``border`` without a facet.
    """

    name: str
    detail: str
    effects: FloatArray | None
    label: str
    border: float | None = None


@_style.literal
def draw_effects(
    panels: Sequence[Effects], names: Sequence[str], cells: Sequence[Any], ax: Any = None
) -> AnyArray:
    """Draw panels of the effects of columns, with their names and values in the row."""
    if not panels:
        raise ValueError(_style.NO_SPLIT)
    axes = _style.panels(ax, len(panels), PANEL)
    words = [(name, in_words(cell, DIGITS)) for name, cell in zip(names, cells, strict=True)]
    labels = [" = ".join(_style.cut(one, _style.SMALL, NAME) for one in pair) for pair in words]
    for panel, found in zip(axes, panels, strict=True):
        _style.panel_title(panel, found.name, found.detail)
        if found.effects is None:
            panel.set_axis_off()
        else:
            _effects(panel, found.effects, found.border, labels)
            panel.set_xlabel(found.label, fontsize=_style.SMALL)
    return axes


def _effects(ax: Axes, effects: FloatArray, border: float | None, labels: Sequence[str]) -> None:
    """Draw the largest effects; a triangle marks their sum, a dashed line the border."""
    ax.tick_params(labelsize=_style.SMALL)
    order = np.argsort(-np.abs(effects), kind="stable")[: min(BARS, np.count_nonzero(effects))]
    colours = [TOWARDS[int(one > 0)] for one in effects[order]]
    ax.barh(np.arange(len(order)), effects[order], color=colours)
    _name_bars(ax, [labels[j] for j in order])
    if border is not None and np.isfinite(border):
        ax.axvline(border, color=_style.QUIET, linestyle="--", linewidth=1.0)
        style: dict[str, Any] = {"color": _style.INK, "markersize": 5, "clip_on": False}
        ax.plot(effects.sum(), len(order) - 0.4, "v", **style)


def _name_bars(ax: Axes, names: Sequence[str]) -> None:
    """Name horizontal bars at 0, 1, ..., the first at the top, and draw the line at 0."""
    ax.set_yticks(np.arange(len(names)), names, fontsize=_style.SMALL)
    ax.invert_yaxis()
    ax.axvline(0.0, color=_style.INK, linewidth=0.8)
    _style.open_frame(ax)


@_style.literal
def draw_importance(table: pd.DataFrame, level: float, ax: Any = None) -> AnyArray:
    """Draw losses and shares of votes of the first features of a table, with their intervals."""
    axes = _style.panels(ax, 2, _style.PanelSize(3.4, 0.7 + 0.24 * min(MOST, len(table)), 0.1))
    table = table.iloc[:MOST]
    names = [_style.cut(str(name), _style.SMALL, NAME) for name in table.index]
    titles = {"loss": "loss of log score", "votes": "share of votes"}
    for panel, (name, title) in zip(axes, titles.items(), strict=True):
        value, low, high = (table[f"{name}{end}"].to_numpy() for end in ("", "_low", "_high"))
        place = np.arange(len(table))
        panel.barh(place, value, color=_style.POSTERIOR, alpha=0.5)
        panel.hlines(place, low, high, color=_style.INK, linewidth=1.4)
        if f"{name}_prior" in table:
            panel.plot(table[f"{name}_prior"], place, "|", color=_style.INK, label="prior")
        _name_bars(panel, names)
        _style.panel_title(panel, title, f"{level:.0%} intervals")
    return axes


@_style.literal
def draw_shapley(
    values: FloatArray, features: Sequence[str], classes: Sequence[str], ax: Axes | None
) -> Axes:
    """Draw contributions (c, C) to one prediction, a group of bars for each column."""
    order = np.argsort(-np.abs(values).max(axis=1), kind="stable")[:MOST]
    ax = _style.new_axes(5.0, 0.9 + 0.3 * len(order)) if ax is None else ax
    n_outputs = values.shape[1]
    colours = _style.class_colours(n_outputs)
    labels = classes or (None,)
    for output, label in enumerate(labels):
        place = np.arange(len(order)) + 0.8 * ((output + 0.5) / n_outputs - 0.5)
        ax.barh(place, values[order, output], 0.8 / n_outputs, color=colours[output], label=label)
    _name_bars(ax, [_style.cut(features[j], _style.SMALL, NAME) for j in order])
    ax.set_xlabel("Shapley value")
    if classes:
        ax.legend(frameon=False, fontsize=_style.SMALL)
    return ax


@_style.literal
def draw_dependence(found: Dependence, ax: Axes | None, *, curves: bool) -> Axes:
    """Draw the average with its interval, and thin curves of the rows.

    Categories have points instead of curves, and so have missing values, on the right.
    """
    absent = pd.isna(found.grid)
    levels = found.grid.dtype.kind == "O"
    apart = np.ones(len(absent), dtype=bool) if levels else absent
    ax = _style.new_axes(max(4.2, 1.0 + 0.4 * apart.sum()), 3.0) if ax is None else ax
    if not levels:
        _dependence(ax, found.at(np.flatnonzero(~absent)), curves=curves)
    if apart.any():
        _points(ax, found.at(np.flatnonzero(apart)), beside=not levels, curves=curves)
    ax.set_xlabel(found.feature)
    ax.set_ylabel(found.label)
    _style.open_frame(ax)
    return ax


def _dependence(ax: Axes, found: Dependence, *, curves: bool) -> None:
    """Draw the prediction at known numbers or times."""
    if curves:
        style: dict[str, Any] = {"color": _style.QUIET, "linewidth": 0.5, "alpha": 0.4}
        ax.plot(found.grid, found.curves.T, zorder=1, **style)
    band: dict[str, Any] = {"color": _style.POSTERIOR, "alpha": _style.FAINT, "linewidth": 0}
    ax.fill_between(found.grid, found.low, found.high, **band)
    ax.plot(found.grid, found.mean, color=_style.POSTERIOR, linewidth=2.0)
    if found.grid.dtype.kind == "M":
        _style.date_ticks(ax.xaxis, 6)


def _points(ax: Axes, found: Dependence, *, beside: bool, curves: bool) -> None:
    """Draw the prediction at categories, or at the missing value ``beside`` the curve."""
    at = np.arange(len(found.grid), dtype=float)
    if beside:
        low, high = ax.get_xlim()
        at = np.array([high + GAP * (high - low)])
    if curves:
        spread = np.broadcast_to(at, found.curves.shape)
        ax.plot(spread.ravel(), found.curves.ravel(), "_", color=_style.QUIET, alpha=0.4, zorder=1)
    ax.vlines(at, found.low, found.high, color=_style.POSTERIOR)
    ax.plot(at, found.mean, "o", color=_style.POSTERIOR)
    names = [in_words(value, DIGITS) for value in found.grid]
    if beside:
        over = ax.get_xaxis_transform()
        label = ax.text(at[0], 1.0, names[0], transform=over, fontsize=_style.SMALL)
        label.set(ha="center", va="bottom")
        return
    names = [_style.cut(name, _style.SMALL, NAME) for name in names]
    ax.set_xticks(at, names, fontsize=_style.SMALL)
    if sum(map(len, names)) > NAME_LETTERS:
        ax.tick_params(axis="x", rotation=90)
    ax.set_xlim(-0.5, len(names) - 0.5)


@_style.literal
def draw_interactions(strength: FloatArray, features: Sequence[str], ax: Axes | None) -> Axes:
    """Draw the strengths of pairs of columns as a matrix with their numbers."""
    size = len(features)
    ax = _style.new_axes(2.2 + 0.5 * size, 1.4 + 0.5 * size) if ax is None else ax
    ax.imshow(strength, cmap=_style.VALUES, vmin=0.0, vmax=1.0)
    names = [_style.cut(name, _style.SMALL, NAME) for name in features]
    ax.set_xticks(np.arange(size), names, fontsize=_style.SMALL, rotation=45, ha="right")
    ax.set_yticks(np.arange(size), names, fontsize=_style.SMALL)
    for (j, k), value in np.ndenumerate(strength):
        if j != k:
            colour = "black" if value > HALF else "white"
            ax.text(k, j, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    return ax
