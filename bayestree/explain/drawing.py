"""Plots of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from bayestree._utils.arrays import AnyArray
from bayestree.explain.turns import Turn
from bayestree.plots import _style

if TYPE_CHECKING:
    from bayestree.explain.dependence import Interactions, PartialDependence
    from bayestree.explain.explanation import Explanation
    from bayestree.explain.importance import Importance
    from bayestree.explain.shapley import ShapleyValues

PANEL = _style.Size(3.2, 2.3, above=0.1)
BARS = 6  # features shown of each turn
MOST = 12  # features shown at once
HALF = 0.5  # strength from which the matrix is light
NAME = 1.3  # maximum inches of the name of a feature
TOWARDS = (_style.PALETTE[0], _style.PALETTE[5])  # inside, outside


def draw_turns(found: Explanation, ax: Any = None) -> AnyArray:
    """One panel for each turn: effects of features on the facet with the largest vote."""
    if not found.turns:
        raise ValueError(_style.NO_SPLIT)
    axes = _style.panels(ax, len(found.turns), PANEL)
    names = [_style.cut(name, _style.SMALL, NAME) for name in found.features]
    for panel, turn in zip(axes, found.turns, strict=True):
        _turn(panel, turn, names, found)
    return axes


def _turn(ax: Axes, turn: Turn, names: list[str], found: Explanation) -> None:
    detail = turn.side if turn.belief is None else f"{turn.side}, P = {turn.belief.probability:.2f}"
    _style.panel_title(ax, turn.node, detail)
    _style.open_frame(ax)
    ax.tick_params(labelsize=_style.SMALL)
    if not len(turn.experts) or not turn.effects[0].any():
        ax.set_axis_off()
        return
    effects = turn.effects[0]
    order = np.argsort(-np.abs(effects), kind="stable")[: min(BARS, np.count_nonzero(effects))]
    place = np.arange(len(order))
    ax.barh(place, effects[order], color=[TOWARDS[int(one > 0)] for one in effects[order]])
    ax.axvline(0.0, color=_style.INK, linewidth=0.8)
    # The effects that reach the facet from the mean of the data: their sum there.
    border = float(turn.distance[0] + effects.sum())
    if np.isfinite(border):
        ax.axvline(border, color=_style.QUIET, linestyle="--", linewidth=1.0)
        ax.plot(effects.sum(), len(order) - 0.4, "v", color=_style.INK, markersize=5, clip_on=False)
    labels = [f"{names[j]} = {found.row[j]:.3g}" for j in order]
    ax.set_yticks(place, labels, fontsize=_style.SMALL)
    ax.invert_yaxis()
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
    """The average with its interval, and thin curves of the rows."""
    ax = _style.new_axes(4.2, 3.0) if ax is None else ax
    if curves:
        lines = found.curves[:, :, output].T
        ax.plot(found.grid, lines, color=_style.QUIET, linewidth=0.5, alpha=0.4, zorder=1)
    band = (found.low[:, output], found.high[:, output])
    ax.fill_between(found.grid, *band, color=_style.POSTERIOR, alpha=_style.FAINT, linewidth=0)
    ax.plot(found.grid, found.mean[:, output], color=_style.POSTERIOR, linewidth=2.0)
    ax.set_xlabel(found.feature)
    ax.set_ylabel(f"P({found.classes[output]})" if found.classes else "prediction")
    _style.open_frame(ax)
    return ax


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
