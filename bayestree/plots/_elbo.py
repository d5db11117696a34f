"""Trace of the ELBO of a variational fit."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray
from bayestree.plots import _style
from bayestree.protocols import FittedPosterior, FittedTree, kind_of

WINDOW = 20  # the running median covers 1 / WINDOW of the trace
STEEP = 10  # the first 1 / STEEP of the trace may lie outside the axis
ROOM = 0.12  # margin above and below, as a share of the range shown


def elbo(estimator: FittedTree | FittedPosterior, ax: Axes | None = None) -> Axes:
    """Trace of the evidence lower bound (ELBO) by epoch.

    The thin line is the bound estimated from one draw and minibatches, the thick line its running
    median over a twentieth of the epochs, the dashed line the bound of the finished fit on all
    rows (untempered, mean of several draws). The first tenth of the epochs and single estimates
    may lie below the axis. Where the thick line still rises, the fit has not converged; that it is
    level proves little, since the learning rate decays (see ``check_convergence``).

    With ``search_facets``, the trace is that of the final joint fit, which is a fifth as long: it
    starts where the search ended and should be level throughout. The gains of the search are in
    ``posterior_.settings["facet_trace"]``.

    Parameters
    ----------
    estimator : fitted estimator with ``inference="svi"``, or its Posterior
    ax : Axes, optional

    Raises
    ------
    ValueError
        If the posterior has no such trace.
    """
    trace, final = _trace_of(estimator)
    width = max(1, len(trace) // WINDOW)
    middle = pd.Series(trace).rolling(width, center=True, min_periods=1).median().to_numpy()
    ax = ax or _style.new_axes(5.0, 3.2)
    epochs = np.arange(1, len(trace) + 1)
    colour = _style.POSTERIOR
    ax.plot(epochs, trace, color=colour, linewidth=0.6, alpha=0.45, label="estimate")
    ax.plot(epochs, middle, color=colour, linewidth=1.8, label="running median")
    ax.axhline(final, color=_style.INK, linewidth=1.0, linestyle="--", label="finished fit")
    late = slice(len(trace) // STEEP, None)
    low, high = min(middle[late].min(), final), max(np.quantile(trace[late], 0.99), final)
    room = ROOM * (high - low) if high > low else 1.0
    ax.set(xlim=(0, len(trace) + 1), ylim=(low - room, high + room))
    ax.set(xlabel="epoch", ylabel="ELBO (nats)")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def _trace_of(estimator: object) -> tuple[FloatArray, float]:
    """The bound by epoch, and that of the finished fit."""
    posterior: Any = getattr(estimator, "posterior_", estimator)
    if not hasattr(posterior, "stats"):
        if hasattr(estimator, "fit"):
            check_is_fitted(estimator)
        raise TypeError(
            f"estimator must be a fitted estimator or a Posterior, got {kind_of(estimator)}."
        )
    if "elbo" not in posterior.stats:
        raise ValueError(
            f"inference={posterior.inference!r} recorded no ELBO; fit with inference='svi', and "
            "a tree that splits."
        )
    trace = np.asarray(posterior.stats["elbo"], dtype=np.float64)
    return trace, float(posterior.stats.get("final_elbo", trace[-1]))
