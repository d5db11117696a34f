"""Plots of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.inequality import in_words
from bayestree.explain.turns import DIGITS, Turn
from bayestree.plots import _style

if TYPE_CHECKING:
    from bayestree.explain.dependence import Interactions, PartialDependence
    from bayestree.explain.explanation import Explanation
    from bayestree.explain.importance import Importance
    from bayestree.explain.regression import Regression
    from bayestree.explain.shapley import ShapleyValues

PANEL = _style.Size(3.2, 2.3, above=0.1)
BARS = 6  # features shown of each turn
MOST = 12  # features shown at once
HALF = 0.5  # strength from which the matrix is light
GAP = 0.06  # from the end of a curve to the missing value, as a share of its width
LETTERS = 30  # of the names of all levels, from which they are turned
NAME = 1.3  # maximum inches of the name of a feature
TOWARDS = (_style.PALETTE[0], _style.PALETTE[5])  # inside, outside


def draw_turns(found: Explanation, ax: Any = None) -> AnyArray:
    """One panel for each turn: effects of features on the facet with the largest vote.

    The last panel has the terms of the regression in the leaf, if there is one.
    """
    regression = found.regression
    if not found.turns and regression is None:
        raise ValueError(_style.NO_SPLIT)
    axes = _style.panels(ax, len(found.turns) + (regression is not None), PANEL)
    for panel, turn in zip(axes, found.turns, strict=False):
        _turn(panel, turn, found)
    if regression is not None:
        _regression(axes[-1], regression, found)
    return axes


def _regression(ax: Axes, regression: Regression, found: Explanation) -> None:
    _style.panel_title(ax, f"leaf {found.leaf}", f"{in_words(regression.total, DIGITS)}")
    _effects(ax, regression.effects, found)
    ax.set_xlabel(f"effect on the {regression.quantity}", fontsize=_style.SMALL)


def _effects(ax: Axes, effects: FloatArray, found: Explanation) -> int:
    """Bars of the largest effects, with the columns and their values; return how many."""
    _style.open_frame(ax)
    ax.tick_params(labelsize=_style.SMALL)
    order = np.argsort(-np.abs(effects), kind="stable")[: min(BARS, np.count_nonzero(effects))]
    place = np.arange(len(order))
    ax.barh(place, effects[order], color=[TOWARDS[int(one > 0)] for one in effects[order]])
    ax.axvline(0.0, color=_style.INK, linewidth=0.8)
    words = [(found.features[j], in_words(found.cells[j], DIGITS)) for j in order]
    labels = [" = ".join(_style.cut(one, _style.SMALL, NAME) for one in pair) for pair in words]
    ax.set_yticks(place, labels, fontsize=_style.SMALL)
    ax.invert_yaxis()
    return len(order)


def _turn(ax: Axes, turn: Turn, found: Explanation) -> None:
    detail = turn.side if turn.belief is None else f"{turn.side}, P = {turn.belief.probability:.2f}"
    _style.panel_title(ax, turn.node, detail)
    if not len(turn.experts) or not turn.effects[0].any():
        ax.set_axis_off()
        return
    effects = turn.effects[0]
    n_bars = _effects(ax, effects, found)
    # The effects that reach the facet from the mean of the data: their sum there.
    border = float(turn.distance[0] + effects.sum())
    if np.isfinite(border):
        ax.axvline(border, color=_style.QUIET, linestyle="--", linewidth=1.0)
        ax.plot(effects.sum(), n_bars - 0.4, "v", color=_style.INK, markersize=5, clip_on=False)
    share = "" if len(turn.experts) == 1 else f"\nfacet with {turn.share[0]:.0%} of the votes"
    ax.set_xlabel(f"effect, inside to outside{share}", fontsize=_style.SMALL)


def draw_importance(found: Importance, ax: Any = None) -> AnyArray:
    """Losses and shares of votes of the most important features, with their intervals."""
    axes = _style.panels(ax, 2, _style.Size(3.4, 0.7 + 0.24 * min(MOST, len(found.features)), 0.1))
    table = found.to_frame().iloc[:MOST][::-1]
    names = [_style.cut(str(name), _style.SMALL, NAME) for name in table.index]
    titles = {"loss": "loss of log score", "votes": "share of votes"}
    for panel, (name, title) in zip(axes, titles.items(), strict=True):
        value, low, high = (table[f"{name}{end}"].to_numpy() for end in ("", "_low", "_high"))
        place = np.arange(len(table))
        panel.barh(place, value, color=_style.POSTERIOR, alpha=0.5)
        panel.hlines(place, low, high, color=_style.INK, linewidth=1.4)
        if f"{name}_prior" in table:
            panel.plot(table[f"{name}_prior"], place, "|", color=_style.INK, label="prior")
        panel.set_yticks(place, names, fontsize=_style.SMALL)
        panel.axvline(0.0, color=_style.INK, linewidth=0.8)
        _style.panel_title(panel, title, f"{found.level:.0%} intervals")
        _style.open_frame(panel)
    return axes


def draw_shapley(found: ShapleyValues, ax: Axes | None, row: int) -> Axes:
    """Contributions to one prediction, a group of bars for each feature."""
    values = found.contributions[row]
    order = np.argsort(-np.abs(values).max(axis=1), kind="stable")[:MOST]
    ax = _style.new_axes(5.0, 0.9 + 0.3 * len(order)) if ax is None else ax
    n_outputs = values.shape[1]
    colours = _style.class_colours(n_outputs)
    labels = found.classes or (None,)
    for output, label in enumerate(labels):
        place = np.arange(len(order)) + 0.8 * ((output + 0.5) / n_outputs - 0.5)
        ax.barh(place, values[order, output], 0.8 / n_outputs, color=colours[output], label=label)
    names = [_style.cut(found.features[j], _style.SMALL, NAME) for j in order]
    ax.set_yticks(np.arange(len(order)), names, fontsize=_style.SMALL)
    ax.invert_yaxis()
    ax.axvline(0.0, color=_style.INK, linewidth=0.8)
    ax.set_xlabel("Shapley value")
    if found.classes:
        ax.legend(frameon=False, fontsize=_style.SMALL)
    _style.open_frame(ax)
    return ax


def draw_dependence(
    found: PartialDependence, ax: Axes | None, *, output: int, curves: bool
) -> Axes:
    """The average with its interval, and thin curves of the rows.

    Categories have points instead of curves, and so have missing values, on the right.
    """
    absent = pd.isna(found.grid)
    levels = found.grid.dtype.kind == "O"
    apart = np.ones(len(absent), dtype=bool) if levels else absent
    ax = _style.new_axes(max(4.2, 1.0 + 0.4 * apart.sum()), 3.0) if ax is None else ax
    if not levels:
        _curve(ax, found, output, np.flatnonzero(~absent), curves=curves)
    if apart.any():
        _points(ax, found, output, np.flatnonzero(apart), curves=curves)
    ax.set_xlabel(found.feature)
    ax.set_ylabel(f"P({found.classes[output]})" if found.classes else "prediction")
    _style.open_frame(ax)
    return ax


def _curve(
    ax: Axes, found: PartialDependence, output: int, places: IntArray, *, curves: bool
) -> None:
    """The prediction at known numbers or times."""
    grid = found.grid[places]
    if curves:
        lines = found.curves[:, places, output].T
        ax.plot(grid, lines, color=_style.QUIET, linewidth=0.5, alpha=0.4, zorder=1)
    band = (found.low[places, output], found.high[places, output])
    ax.fill_between(grid, *band, color=_style.POSTERIOR, alpha=_style.FAINT, linewidth=0)
    ax.plot(grid, found.mean[places, output], color=_style.POSTERIOR, linewidth=2.0)
    if grid.dtype.kind == "M":
        _style.date_ticks(ax.xaxis, 6)


def _points(
    ax: Axes, found: PartialDependence, output: int, places: IntArray, *, curves: bool
) -> None:
    """The prediction at categories, or at the missing value on the right of the curve."""
    at = np.arange(len(places), dtype=float)
    if len(places) < len(found.grid):
        low, high = ax.get_xlim()
        at = np.array([high + GAP * (high - low)])
    if curves:
        each = found.curves[:, places, output]
        spread = np.broadcast_to(at, each.shape)
        ax.plot(spread.ravel(), each.ravel(), "_", color=_style.QUIET, alpha=0.4, zorder=1)
    ax.vlines(at, found.low[places, output], found.high[places, output], color=_style.POSTERIOR)
    ax.plot(at, found.mean[places, output], "o", color=_style.POSTERIOR)
    names = [in_words(found.grid[place], DIGITS) for place in places]
    if len(places) < len(found.grid):
        over = ax.get_xaxis_transform()
        label = ax.text(at[0], 1.0, names[0], transform=over, fontsize=_style.SMALL)
        label.set(ha="center", va="bottom")
        return
    names = [_style.cut(name, _style.SMALL, NAME) for name in names]
    ax.set_xticks(at, names, fontsize=_style.SMALL)
    if sum(map(len, names)) > LETTERS:
        ax.tick_params(axis="x", rotation=90)
    ax.set_xlim(-0.5, len(places) - 0.5)


def draw_interactions(found: Interactions, ax: Axes | None) -> Axes:
    """The strengths as a matrix with their numbers."""
    size = len(found.features)
    ax = _style.new_axes(2.2 + 0.5 * size, 1.4 + 0.5 * size) if ax is None else ax
    ax.imshow(found.strength, cmap=_style.VALUES, vmin=0.0, vmax=1.0)
    names = [_style.cut(name, _style.SMALL, NAME) for name in found.features]
    ax.set_xticks(np.arange(size), names, fontsize=_style.SMALL, rotation=45, ha="right")
    ax.set_yticks(np.arange(size), names, fontsize=_style.SMALL)
    for (j, k), value in np.ndenumerate(found.strength):
        if j != k:
            colour = "black" if value > HALF else "white"
            ax.text(k, j, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    return ax
