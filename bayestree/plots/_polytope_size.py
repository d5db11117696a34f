"""How many facets each polytope has, and how many were expected before the data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.size import Measure, PolytopeSize
from bayestree.plots import _style

NAMES: dict[Measure, str] = {
    "facets": "facets",
    "weights": "experts that vote",
    "effective": "effective experts",
}
PANEL = _style.Size(2.0, 1.75, above=0.3)
RARE = 0.005  # sizes beyond the last that has this probability somewhere are not shown


def polytope_size(
    estimator: Any,
    measure: Measure = "facets",
    ax: Any = None,
    *,
    nodes: Sequence[str | int] | None = None,
    prior: bool = True,
) -> NDArray[Any]:
    """Posterior of the size of each polytope beside its prior, one panel for each node.

    Bars are the posterior, the dashed outline is the prior of the same quantity. Where the two
    agree, the data said nothing of the size. The last panel has the number of leaves in use, if
    it is known.

    Parameters
    ----------
    estimator : fitted estimator with a posterior, or the PolytopeSize it returned
    measure : {"facets", "weights", "effective"}
        See :class:`bayestree.diagnostics.PolytopeSize`; ``effective`` in whole numbers.
    ax : array of Axes, optional
        One for each panel.
    nodes : sequence of str or int, optional
        Paths of nodes from the root, or their numbers; by default the 12 that most rows reach.
    prior : bool
        Whether the prior is drawn, where it is known.

    Returns
    -------
    array of Axes, shape (panels,)

    Raises
    ------
    ValueError
        If the tree has no split, there is no such node or measure, or ``ax`` has not one Axes for
        each panel.
    """
    if measure not in NAMES:
        raise ValueError(f"measure must be one of {', '.join(NAMES)}, got {measure!r}.")
    size = _style.result_of(estimator, PolytopeSize, "polytope_size")
    chosen = _style.chosen_nodes(size.labels, size.rows, nodes)
    posterior = size.probabilities(measure)[chosen]
    expected = size.prior_probabilities(measure)[chosen] if prior and size.prior else None
    leaves = None if size.n_leaves is None else size.leaf_probabilities()
    axes = _style.panels(ax, len(chosen) + (leaves is not None), PANEL)
    for place, (panel, node) in enumerate(zip(axes, chosen, strict=False)):
        _bars(panel, posterior[place], None if expected is None else expected[place])
        _style.panel_title(panel, size.labels[node], f"{size.rows[node]:,.0f} rows")
        panel.set_xlabel(NAMES[measure])
    _common_range(axes[: len(chosen)], posterior, expected)
    if leaves is not None:
        _bars(axes[-1], leaves, None)
        _range(axes[-1], leaves[None], least=len(leaves))
        _style.panel_title(axes[-1], "tree")
        axes[-1].set_xlabel("leaves in use")
    _style.label_first_column(axes, "probability")
    _style.shared_legend(axes, outside=ax is None)
    return axes


def _bars(ax: Axes, posterior: FloatArray, prior: FloatArray | None) -> None:
    ax.bar(np.arange(len(posterior)), posterior, 0.8, color=_style.POSTERIOR, label="posterior")
    if prior is not None:
        edges = np.arange(len(prior) + 1) - 0.5
        line: dict[str, Any] = {"color": _style.INK, "linewidth": 1.1, "linestyle": (0, (3, 1.5))}
        ax.stairs(prior, edges, label="prior", **line)


def _common_range(axes: NDArray[Any], posterior: FloatArray, prior: FloatArray | None) -> None:
    for ax in axes:
        _range(ax, *(table for table in (posterior, prior) if table is not None))


def _range(ax: Axes, *tables: FloatArray, least: int = 1) -> None:
    """Axes that hold all sizes that are not rare in some of the tables (nodes, sizes).

    They begin at ``least``, or before.
    """
    likely = [np.flatnonzero((table > RARE).any(axis=0)) for table in tables]
    low, high = min(found[0] for found in likely), max(found[-1] for found in likely)
    top = max(float(table.max()) for table in tables)
    ax.set(xlim=(min(low, least) - 0.6, high + 0.6), ylim=(0, 1.05 * top))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.tick_params(labelsize=_style.SMALL)
    _style.open_frame(ax)
