"""Shrinkage by the priors: weights of experts and coefficients of their hyperplanes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bayestree._utils.arrays import FloatArray
from bayestree.description import FittedEstimator
from bayestree.diagnostics.draws import tails
from bayestree.diagnostics.shrinkage import Shrinkage
from bayestree.plots import _style

FLOOR = 1e-6  # intervals are cut off at this share of the largest weight
MAX_NAMES = 40  # with more features, names are omitted
COLOURS = "Blues_r"  # colour map of shrinkage factors: white means shrunk to zero
HALF = 0.5


def shrinkage(
    estimator: FittedEstimator | Shrinkage,
    node: str | int = "root",
    ax: Axes | None = None,
    *,
    level: float = 0.9,
) -> Axes:
    """Sorted weights of a node's experts, posterior against prior, on a log scale.

    The k-th place shows the k-th largest weight of each draw, whichever expert has it. Points are
    medians, bars central intervals; the grey band and the dashed line are those of the prior. The
    title gives the posterior median and interval of the effective number of weights,
    (sum r)^2 / sum r^2. Intervals are cut off at a millionth of the largest weight.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the Shrinkage it returned
    node : str or int
        Path of the node from the root, or its number.
    ax : Axes, optional
    level : float
        Probability of the intervals.

    Raises
    ------
    ValueError
        If there is no such node, the split has no weights, or ``level`` is not between 0 and 1.
    """
    low, high = tails(level)
    found = _style.result_of(estimator, Shrinkage, "shrinkage")
    place = _style.index_of(found.labels, node)
    if (found.weight == 1).all():
        raise ValueError(
            "every weight is 1: oblique splits have no weights to shrink; use "
            "plots.shrinkage_factors, or fit with n_experts of 2 or more."
        )
    probs = [low, HALF, high]
    bands = {"posterior": _quantiles(found.weight[:, :, place], probs)}
    if len(found.prior_weight):
        bands["prior"] = _quantiles(found.prior_weight, probs)
    top = max(float(band.max()) for band in bands.values())
    ax = ax or _style.new_axes(4.6, 3.2)
    for name, band in bands.items():
        # Weights that underflowed to 0 are drawn far below the logarithmic axis.
        (_posterior if name == "posterior" else _prior)(ax, np.maximum(band, 1e-300))
    lowest = max(float(bands["posterior"][0].min()), FLOOR * top)
    n_experts = found.weight.shape[-1]
    ax.set(yscale="log", ylim=(lowest / 2, 2 * top), xlim=(0.5, n_experts + 0.5))
    ax.set(xlabel="place among the node's experts", ylabel="weight r")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    low, middle, high = np.quantile(found.effective[:, :, place], probs)
    _style.panel_title(
        ax, found.labels[place], f"effective weights: {middle:.1f} [{low:.1f}, {high:.1f}]"
    )
    ax.legend(loc="upper right", frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def shrinkage_factors(
    estimator: FittedEstimator | Shrinkage, node: str | int = "root", ax: Axes | None = None
) -> Axes:
    """Shrinkage factors of the coefficients of a node's experts, as a heat map.

    One row per expert that votes and occurs in half of the draws, one column per feature that takes
    part: those that the fit ignores, such as constant ones, have none. White
    (factor 1) means determined by the prior, dark (factor 0) by the data. The sign of a
    coefficient is shown unless it is shrunk away: if the factor is at most 1/2, or nearly all
    draws agree on the sign, so that the prior only limits the size.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the Shrinkage it returned
    node : str or int
        Path of the node from the root, or its number.
    ax : Axes, optional

    Raises
    ------
    ValueError
        If there is no such node, or its factors are unknown: there is a single draw, or no
        expert occurs in half of the draws.
    """
    found = _style.result_of(estimator, Shrinkage, "shrinkage")
    place = _style.index_of(found.labels, node)
    known = ~np.isnan(found.kappa[place]).all(axis=-1)
    if not known.any():
        raise ValueError(
            "the shrinkage factors are unknown: a single draw has no spread (fit with "
            "inference='svi'), or no expert occurs in half of the draws."
        )
    experts = np.flatnonzero(known & found.counts[place])
    if len(experts) == 0:
        experts = np.flatnonzero(known)
    columns = found.features_in_use(place)
    kappa = found.kappa[place, experts][:, columns]
    every = found.feature_names or tuple(f"x{j}" for j in range(found.kappa.shape[-1]))
    names = [every[j] for j in columns]
    if ax is None:
        longest = max(len(name) for name in names) if len(names) <= MAX_NAMES else 5
        height = 0.45 + max(0.28 * len(experts), 1.15) + 0.075 * longest
        ax = _style.new_axes(1.9 + min(0.28 * len(names), 11.0), height)
    image = ax.imshow(kappa, cmap=COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set(yticks=range(len(experts)), yticklabels=[f"expert {k}" for k in experts])
    if len(names) <= MAX_NAMES:
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=_style.SMALL)
        signed = np.where(found.shrunk_away[place, experts], 0.0, found.coefficient[place, experts])
        _signs(ax, kappa, signed[:, columns])
    else:
        ax.set_xlabel("feature")
    _grid(ax, kappa.shape)
    _style.panel_title(ax, found.labels[place])
    bar = ax.figure.colorbar(image, ax=ax, ticks=[0, HALF, 1], aspect=12, fraction=0.1)
    bar.ax.invert_yaxis()
    bar.set_label("shrinkage", fontsize=_style.SMALL + 1)
    return ax


def _quantiles(weight: FloatArray, probs: list[float]) -> FloatArray:
    """Quantiles of each place over all draws, shape (probs, K)."""
    return np.quantile(weight.reshape(-1, weight.shape[-1]), probs, axis=0)


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
    """Write the signs of non-zero coefficients, legible on dark and light cells."""
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _style.SMALL}
    for row, column in np.argwhere(coefficient != 0):
        sign = "+" if coefficient[row, column] > 0 else "\N{MINUS SIGN}"
        color = "white" if kappa[row, column] <= HALF else _style.INK
        ax.text(column, row, sign, color=color, **middle)


def _grid(ax: Axes, shape: tuple[int, ...]) -> None:
    ax.set_xticks(np.arange(1, shape[1]) - HALF, minor=True)
    ax.set_yticks(np.arange(1, shape[0]) - HALF, minor=True)
    ax.grid(which="minor", color="#BBBBBB", linewidth=0.5)
    ax.tick_params(which="minor", length=0)
