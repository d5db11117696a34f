"""Plots of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from bayestree._utils.arrays import AnyArray
from bayestree.explain.turns import Turn
from bayestree.plots import _style

if TYPE_CHECKING:
    from bayestree.explain.explanation import Explanation

PANEL = _style.Size(3.2, 2.3, above=0.1)
BARS = 6  # features shown of each turn
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
