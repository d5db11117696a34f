"""Drawings of explanations: effects, importance, Shapley values, dependence and interactions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.wording import in_words
from bayestree.plots import _style

PANEL = _style.PanelSize(3.2, 2.3, above=0.1)
BARS = 6  # features shown of each turn
MOST = 12  # features shown at once
DIGITS = 3  # of the value of a feature
HALF = 0.5  # strength from which the matrix is light
GAP = 0.06  # from the end of a curve to the missing value, as a share of its width
LETTERS = 30  # of the names of all levels, from which they are turned
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


class Dependence(NamedTuple):
    """Predictions at G values of a column: mean and band (G,), and the curves (n, G) of rows."""

    feature: str
    grid: AnyArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    curves: FloatArray
    label: str

    def at(self, places: IntArray) -> "Dependence":
        """Return the predictions at some of the values."""
        grid, mean, low, high, curves = (one[..., places] for one in self[1:6])
        return Dependence(self.feature, grid, mean, low, high, curves, self.label)


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
        _curve(ax, found.at(np.flatnonzero(~absent)), curves=curves)
    if apart.any():
        _points(ax, found.at(np.flatnonzero(apart)), beside=not levels, curves=curves)
    ax.set_xlabel(found.feature)
    ax.set_ylabel(found.label)
    _style.open_frame(ax)
    return ax


def _curve(ax: Axes, found: Dependence, *, curves: bool) -> None:
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
    if sum(map(len, names)) > LETTERS:
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
