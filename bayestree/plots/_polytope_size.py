"""Posterior and prior of the number of facets of each polytope."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree.description import FittedEstimator
from bayestree.diagnostics.size import Measure, PolytopeSize
from bayestree.plots import _style

NAMES: dict[Measure, str] = {
    "cutting": "facets",
    "facets": "facets in the box",
    "weights": "experts that vote",
    "effective": "effective votes",
}
PANEL = _style.Size(2.0, 1.75, above=0.3)
RARE = 0.005  # the axis ends at the largest size with a higher probability in some panel


def polytope_size(
    estimator: FittedEstimator | PolytopeSize,
    measure: Measure | None = None,
    ax: Any = None,
    *,
    nodes: Sequence[str | int] | None = None,
    prior: bool = True,
) -> NDArray[Any]:
    """Posterior and prior of the size of each polytope, one panel per node.

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
    for place, (panel, node) in enumerate(zip(axes, chosen, strict=False)):
        _bars(panel, *(table[place] for table in tables))
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
    """Axis range that contains ``minimum`` and all sizes that are not rare in every table."""
    likely = [np.flatnonzero((table > RARE).any(axis=0)) for table in tables]
    low, high = min(found[0] for found in likely), max(found[-1] for found in likely)
    top = max(float(table.max()) for table in tables)
    ax.set(xlim=(min(low, minimum) - 0.6, high + 0.6), ylim=(0, 1.05 * top))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.tick_params(labelsize=_style.SMALL)
    _style.open_frame(ax)
