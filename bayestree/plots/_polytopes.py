"""Polytopes against their priors: number of facets, weights of experts, and coefficients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree.description import FittedModel
from bayestree.diagnostics.draws import tails
from bayestree.diagnostics.shrinkage import Shrinkage
from bayestree.diagnostics.size import Measure, PolytopeSize
from bayestree.plots import _style

NAMES: dict[Measure, str] = {
    "cutting": "facets",
    "facets": "facets in the box",
    "weights": "experts that vote",
    "effective": "effective votes",
}
PANEL = _style.PanelSize(2.0, 1.75, above=0.3)
RARE = 0.005  # the axis ends at the largest size with a higher probability in some panel
FLOOR = 1e-6  # intervals are cut off at this share of the largest weight
MAX_NAMES = 40  # with more features, names are omitted
NAME = 1.6  # maximum inches of the name of a feature
COLOURS = "Blues_r"  # colour map of shrinkage factors: white means shrunk to zero
HALF = 0.5


def polytope_size(
    estimator: FittedModel | PolytopeSize,
    measure: Measure | None = None,
    ax: Any = None,
    *,
    nodes: Sequence[str | int] | None = None,
    prior: bool = True,
) -> NDArray[Any]:
    """Plot posterior and prior of the size of each polytope, one panel per node.

    Bars show the posterior, the dashed outline the prior of the same quantity. Where they agree,
    the data are uninformative about the size. The last panel shows the number of leaves
    that training rows reach in a draw, if known.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the PolytopeSize it returned
    measure : {"cutting", "facets", "weights", "effective"}, optional
        See :class:`bayestree.diagnostics.PolytopeSize`; ``effective`` is rounded to integers. By
        default the facets that alone cut off at least 1 % of the node's rows (``"cutting"``), or
        ``"facets"`` for models of earlier versions.
    ax : array of Axes, optional
        One per panel.
    nodes : sequence of str or int, optional
        Paths of nodes from the root, or their numbers; by default the 12 that most rows reach.
    prior : bool
        Whether to draw the prior, if it is known.

    Returns
    -------
    array of Axes, shape (panels,)

    Raises
    ------
    ValueError
        If the tree has no split, there is no such node or measure, or the number of ``ax`` is
        wrong.
    """
    if measure not in (None, *NAMES):
        raise ValueError(f"measure must be one of {', '.join(NAMES)}, got {measure!r}.")
    size = _style.result_of(estimator, PolytopeSize, "polytope_size")
    measure = measure or size.headline
    chosen = _style.chosen_nodes(size.labels, size.rows, nodes)
    posterior = size.probabilities(measure)[chosen]
    known = size.prior if measure != size.headline else size.has_prior
    expected = size.prior_probabilities(measure)[chosen] if prior and known else None
    leaves = None if size.n_leaves is None else size.leaf_probabilities()
    axes = _style.panels(ax, len(chosen) + (leaves is not None), PANEL)
    tables = [posterior] if expected is None else [posterior, expected]
    for panel, node, *own in zip(axes, chosen, *tables, strict=False):
        _bars(panel, *own)
        _range(panel, *tables)
        _style.panel_title(panel, size.labels[node], f"{size.rows[node]:,.0f} rows")
        panel.set_xlabel(NAMES[measure])
    if leaves is not None:
        _bars(axes[-1], leaves)
        _range(axes[-1], leaves[None], minimum=len(leaves))
        _style.panel_title(axes[-1], "tree")
        axes[-1].set_xlabel("leaves in use by a draw")
    _style.label_first_column(axes, "probability")
    _style.shared_legend(axes, outside=ax is None)
    return axes


def draw_sizes(ax: Axes, posterior: FloatArray, prior: FloatArray | None = None) -> None:
    """Draw the probabilities of the sizes 0, 1, ..., and their prior as an outline."""
    _bars(ax, posterior, prior)
    _range(ax, *(table[None] for table in (posterior, prior) if table is not None))


def _bars(ax: Axes, posterior: FloatArray, prior: FloatArray | None = None) -> None:
    ax.bar(np.arange(len(posterior)), posterior, 0.8, color=_style.POSTERIOR, label="posterior")
    if prior is not None:
        edges = np.arange(len(prior) + 1) - 0.5
        line: dict[str, Any] = {"color": _style.INK, "linewidth": 1.1, "linestyle": (0, (3, 1.5))}
        ax.stairs(prior, edges, label="prior", **line)


def _range(ax: Axes, *tables: FloatArray, minimum: int = 1) -> None:
    """Limit the axes to ``minimum`` and all sizes that are not rare in every table."""
    likely = [np.flatnonzero((table > RARE).any(axis=0)) for table in tables]
    low, high = min(found[0] for found in likely), max(found[-1] for found in likely)
    top = max(float(table.max()) for table in tables)
    ax.set(xlim=(min(low, minimum) - 0.6, high + 0.6), ylim=(0, 1.05 * top))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.tick_params(labelsize=_style.SMALL)
    _style.open_frame(ax)


def shrinkage(
    estimator: FittedModel | Shrinkage,
    node: str | int = "root",
    ax: Axes | None = None,
    *,
    level: float = 0.9,
) -> Axes:
    """Plot the sorted weights of a node's experts, posterior and prior, on a log scale.

    The k-th place shows the k-th largest weight of each draw, whichever expert has it. Points are
    medians, bars central intervals; the grey band and the dashed line show the prior. The
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
    n_experts = found.weight.shape[-1]
    places = np.arange(1, n_experts + 1)
    for name, band in bands.items():
        # Weights that underflowed to 0 are drawn far below the logarithmic axis.
        least, middle, most = np.maximum(band, 1e-300)
        line: dict[str, Any] = {"color": _style.INK, "linewidth": 1.0, "linestyle": "--"}
        if name == "prior":
            ax.fill_between(places, least, most, color=_style.BAND, linewidth=0, zorder=1)
        else:
            ax.vlines(places, least, most, color=_style.POSTERIOR, linewidth=2.0, zorder=3)
            line = {"color": _style.POSTERIOR, "linestyle": "", "zorder": 4}
            line |= {"marker": "o", "markersize": 5, "markeredgecolor": "white"}
        ax.plot(places, middle, label=name, **line)
    lowest = max(float(bands["posterior"][0].min()), FLOOR * top)
    ax.set(yscale="log", ylim=(lowest / 2, 2 * top), xlim=(0.5, n_experts + 0.5))
    ax.set(xlabel="place among the node's experts", ylabel="weight r")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    low, middle, high = np.quantile(found.effective[:, :, place], probs)
    detail = f"effective weights: {middle:.1f} [{low:.1f}, {high:.1f}]"
    _style.panel_title(ax, found.labels[place], detail)
    ax.legend(loc="upper right", frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


@_style.literal
def shrinkage_factors(
    estimator: FittedModel | Shrinkage, node: str | int = "root", ax: Axes | None = None
) -> Axes:
    """Plot the shrinkage factors of the coefficients of a node's experts as a heat map.

    There is a row for each expert that votes and occurs in half of the draws, and a column for each
    feature that the fit does not ignore. White (factor 1) means that the prior determines the
    coefficient, dark (factor 0) that the data do. The sign of a coefficient is shown unless it is
    shrunk away: if the factor is at most 1/2, or nearly all draws agree on the sign, so that the
    prior only limits the size.

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
    names = [_style.cut(every[j], _style.SMALL, NAME) for j in columns]
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
    ax.set_xticks(np.arange(1, kappa.shape[1]) - HALF, minor=True)
    ax.set_yticks(np.arange(1, kappa.shape[0]) - HALF, minor=True)
    ax.grid(which="minor", color="#BBBBBB", linewidth=0.5)
    ax.tick_params(which="minor", length=0)
    _style.panel_title(ax, found.labels[place])
    bar = ax.figure.colorbar(image, ax=ax, ticks=[0, HALF, 1], aspect=12, fraction=0.1)
    bar.ax.invert_yaxis()
    bar.set_label("shrinkage", fontsize=_style.SMALL + 1)
    return ax


def _quantiles(weight: FloatArray, probs: list[float]) -> FloatArray:
    """Return the quantiles of each place over all draws, shape (probs, K)."""
    return np.quantile(weight.reshape(-1, weight.shape[-1]), probs, axis=0)


def _signs(ax: Axes, kappa: FloatArray, coefficient: FloatArray) -> None:
    """Write the signs of non-zero coefficients, legible on dark and light cells."""
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _style.SMALL}
    for row, column in np.argwhere(coefficient != 0):
        sign = "+" if coefficient[row, column] > 0 else "\N{MINUS SIGN}"
        color = "white" if kappa[row, column] <= HALF else _style.INK
        ax.text(column, row, sign, color=color, **middle)
