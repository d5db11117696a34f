"""What the priors shrank: weights of experts, and coefficients of their hyperplanes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.shrinkage import Shrinkage
from bayestree.plots import _style

FLOOR = 1e-6  # of the largest weight: intervals that reach below end at the axis
NAMED = 40  # features whose names are written, at most
KEPT = "Blues_r"  # colour map of shrinkage factors: what is shrunk to zero is white
HALF = 0.5


def shrinkage(
    estimator: Any,
    node: str | int = "root",
    ax: Axes | None = None,
    *,
    level: float = 0.9,
) -> Axes:
    """Sorted weights of a node's experts, posterior against prior, on a log scale.

    The k-th place is the k-th largest weight of each draw, whichever expert has it. Points are
    medians, bars central intervals; the grey band and its dashed middle are the prior's. The
    heading has the effective number of experts, (sum of r)^2 / sum of r^2: posterior median and
    interval. Intervals that reach below a millionth of the largest weight are cut there.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the Shrinkage it returned
    node : str or int
        Path of the node from the root, or its number.
    ax : Axes, optional
    level : float
        Probability of the intervals.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no such node, the split has no weights, or ``level`` is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    found = _style.result_of(estimator, Shrinkage, "shrinkage")
    place = _style.place_of(found.labels, node)
    if (found.weight == 1).all():
        raise ValueError(
            "every weight is 1: oblique splits have no weights to shrink; see "
            "plots.shrinkage_factors, or fit with n_experts of 2 or more."
        )
    tails = [(1 - level) / 2, HALF, (1 + level) / 2]
    bands = {"posterior": _quantiles(found.weight[:, :, place], tails)}
    if len(found.prior_weight):
        bands["prior"] = _quantiles(found.prior_weight, tails)
    top = max(float(band.max()) for band in bands.values())
    ax = ax or _style.new_axes(4.6, 3.2)
    for name, band in bands.items():
        # A weight that underflowed has no place on a log scale; this one is far below the axis.
        (_posterior if name == "posterior" else _prior)(ax, np.maximum(band, 1e-300))
    lowest = max(float(bands["posterior"][0].min()), FLOOR * top)
    n_experts = found.weight.shape[-1]
    ax.set(yscale="log", ylim=(lowest / 2, 2 * top), xlim=(0.5, n_experts + 0.5))
    ax.set(xlabel="place among the node's experts", ylabel="weight r")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    low, middle, high = np.quantile(found.effective[:, :, place], tails)
    _style.panel_title(ax, found.labels[place], f"effective: {middle:.1f} [{low:.1f}, {high:.1f}]")
    ax.legend(loc="upper right", frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def shrinkage_factors(estimator: Any, node: str | int = "root", ax: Axes | None = None) -> Axes:
    """Shrinkage factors of the coefficients of a node's experts, as a heat map.

    A row for each expert that votes and that half of the draws have, a column for each feature.
    White is left to the prior (factor 1: it alone speaks), dark is left alone (factor 0: the data
    alone speak). The sign of a coefficient stands where it is not shrunk away: where the factor is
    no more than 1/2, or nearly all draws agree on the sign, and the prior but bounds the size.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the Shrinkage it returned
    node : str or int
        Path of the node from the root, or its number.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no such node, or its factors are not known: there is a single draw, or no
        expert is in half of the draws.
    """
    found = _style.result_of(estimator, Shrinkage, "shrinkage")
    place = _style.place_of(found.labels, node)
    known = ~np.isnan(found.kappa[place]).all(axis=-1)
    if not known.any():
        raise ValueError(
            "the shrinkage factors are not known: one draw has no spread (fit with "
            "inference='svi'), or no expert is in half of the draws."
        )
    experts = np.flatnonzero(known & found.counts[place])
    if len(experts) == 0:
        experts = np.flatnonzero(known)
    kappa = found.kappa[place, experts]
    names = found.feature_names or tuple(f"x{j}" for j in range(kappa.shape[1]))
    if ax is None:
        longest = max(len(name) for name in names) if len(names) <= NAMED else 5
        height = 0.45 + max(0.28 * len(experts), 1.15) + 0.075 * longest
        ax = _style.new_axes(1.9 + min(0.28 * len(names), 11.0), height)
    image = ax.imshow(kappa, cmap=KEPT, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set(yticks=range(len(experts)), yticklabels=[f"expert {k}" for k in experts])
    if len(names) <= NAMED:
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=_style.SMALL)
        signed = ~found.shrunk_away[place, experts]
        _signs(ax, kappa, np.where(signed, found.coefficient[place, experts], 0.0))
    else:
        ax.set_xlabel("feature")
    _grid(ax, kappa.shape)
    _style.panel_title(ax, found.labels[place])
    bar = ax.figure.colorbar(image, ax=ax, ticks=[0, HALF, 1], aspect=12, fraction=0.1)
    bar.ax.invert_yaxis()
    bar.set_label("shrinkage", fontsize=_style.SMALL + 1)
    return ax


def _quantiles(weight: FloatArray, tails: list[float]) -> FloatArray:
    """Of each place over all draws, shape (tails, K)."""
    return np.quantile(weight.reshape(-1, weight.shape[-1]), tails, axis=0)


def _posterior(ax: Axes, band: FloatArray) -> None:
    low, middle, high = band
    places = np.arange(1, len(middle) + 1)
    ax.vlines(places, low, high, color=_style.POSTERIOR, linewidth=2.0, zorder=3)
    marker: dict[str, Any] = {"marker": "o", "markersize": 5, "markeredgecolor": "white"}
    ax.plot(
        places, middle, linestyle="", color=_style.POSTERIOR, zorder=4, label="posterior", **marker
    )


def _prior(ax: Axes, band: FloatArray) -> None:
    low, middle, high = band
    places = np.arange(1, len(middle) + 1)
    ax.fill_between(places, low, high, color="#DADADA", linewidth=0, zorder=1)
    ax.plot(places, middle, color=_style.INK, linewidth=1.0, linestyle="--", label="prior")


def _signs(ax: Axes, kappa: FloatArray, coefficient: FloatArray) -> None:
    """Signs of those that are not zero, to be read on dark cells and on light ones."""
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _style.SMALL}
    for row, column in np.argwhere(coefficient != 0):
        sign = "+" if coefficient[row, column] > 0 else "\N{MINUS SIGN}"
        color = "white" if kappa[row, column] <= HALF else _style.INK
        ax.text(column, row, sign, color=color, **middle)


def _grid(ax: Axes, shape: tuple[int, ...]) -> None:
    """Thin lines between the cells."""
    ax.set_xticks(np.arange(1, shape[1]) - HALF, minor=True)
    ax.set_yticks(np.arange(1, shape[0]) - HALF, minor=True)
    ax.grid(which="minor", color="#BBBBBB", linewidth=0.5)
    ax.tick_params(which="minor", length=0)
