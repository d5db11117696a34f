"""Checks of the inference: the trace of the ELBO, and ranks of simulation-based calibration."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.description import FittedModel, FittedPosterior, kind_of
from bayestree.diagnostics.draws import tails
from bayestree.plots import _style

WINDOW = 20  # the running median covers 1 / WINDOW of the trace
STEEP = 10  # the first 1 / STEEP of the trace may lie outside the axis
ROOM = 0.12  # margin above and below, as a share of the range shown
BINS = 20  # maximum of the default number of bins
PER_BIN = 5  # minimum expected number of simulations per bin


def elbo(estimator: FittedModel | FittedPosterior, ax: Axes | None = None) -> Axes:
    """Plot the trace of the evidence lower bound (ELBO) by epoch, or of VI by step.

    The thin line is the bound estimated from one draw and minibatches, the thick line its running
    median over a twentieth of them. The dashed line is the bound of the finished fit on all
    rows (untempered, mean of several draws). The first tenth of the trace and single estimates
    may lie below the axis. Where the thick line still rises, the fit has not converged; that it is
    level proves little, since the learning rate decays (see ``check_convergence``).

    With ``search_facets``, the trace shows the final joint fit, which is a fifth as long: it
    starts where the search ended and should be level throughout. The gains of the search are in
    ``posterior_.settings["facet_trace"]``.

    Parameters
    ----------
    estimator : fitted estimator with a variational posterior, or its Posterior
    ax : Axes, optional

    Raises
    ------
    ValueError
        If the posterior has no such trace.
    """
    trace, final, unit = _trace_of(estimator)
    width = max(1, len(trace) // WINDOW)
    middle = pd.Series(trace).rolling(width, center=True, min_periods=1).median().to_numpy()
    ax = ax or _style.new_axes(5.0, 3.2)
    numbers = np.arange(1, len(trace) + 1)
    colour = _style.POSTERIOR
    ax.plot(numbers, trace, color=colour, linewidth=0.6, alpha=0.45, label="estimate")
    ax.plot(numbers, middle, color=colour, linewidth=1.8, label="running median")
    ax.axhline(final, color=_style.INK, linewidth=1.0, linestyle="--", label="finished fit")
    late = slice(len(trace) // STEEP, None)
    low, high = min(middle[late].min(), final), max(np.quantile(trace[late], 0.99), final)
    room = ROOM * (high - low) if high > low else 1.0
    ax.set(xlim=(0, len(trace) + 1), ylim=(low - room, high + room))
    ax.set(xlabel=unit, ylabel="ELBO (nats)")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def _trace_of(estimator: object) -> tuple[FloatArray, float, str]:
    """Return the bound by epoch or step, the bound of the finished fit, and which of the two."""
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
    unit = "step" if "n_steps" in posterior.stats else "epoch"
    return trace, float(posterior.stats.get("final_elbo", trace[-1])), unit


def ranks(
    ranks: ArrayLike,
    n_draws: int,
    ax: Axes | None = None,
    *,
    n_bins: int | None = None,
    level: float = 0.99,
) -> Axes:
    """Plot a histogram of the ranks of true values among posterior draws (Talts et al. 2018).

    If the posterior is correct, all ranks are equally likely, and a bar ends outside the grey band
    with probability ``1 - level`` or less; such bars are hatched. A hump in the middle indicates
    that the posterior is too wide, humps at both ends that it is too narrow, a slope that it is
    biased.

    Parameters
    ----------
    ranks : array of int, shape (simulations,)
        Number of draws below the true value, 0 to ``n_draws``.
    n_draws : int
        Number of draws among which each true value was ranked.
    ax : Axes, optional
    n_bins : int, optional
        By default up to 20 bins of equally many ranks with at least 5 expected simulations each.
        If the number of bins does not divide ``n_draws + 1``, some bins contain one more rank,
        and the band is higher there.
    level : float
        Probability of the band for each bar.

    Raises
    ------
    ValueError
        If ranks are not integers from 0 to ``n_draws``, there are more bins than ranks, or
        ``level`` is not between 0 and 1.
    """
    found = _check_ranks(ranks, n_draws)
    bins = _default_bins(len(found), n_draws) if n_bins is None else n_bins
    if not 1 <= bins <= n_draws + 1:
        raise ValueError(f"n_bins must lie between 1 and n_draws + 1 = {n_draws + 1}, got {bins}.")
    ends = np.array(tails(level))[:, None]
    edges = np.linspace(0, n_draws + 1, bins + 1).round()
    counts = np.histogram(found, edges)[0]
    share = np.diff(edges) / (n_draws + 1)
    low, high = np.asarray(binom.ppf(ends, len(found), share))
    ax = ax or _style.new_axes(4.2, 2.8)
    edges = edges - 0.5  # the bar of ranks a to b - 1 spans a - 1/2 to b - 1/2
    ax.stairs(
        high, edges, baseline=low, fill=True, color=_style.BAND, label=f"{level:.0%} if uniform"
    )
    line: dict[str, Any] = {"baseline": None, "color": _style.INK, "zorder": 3}
    ax.stairs(len(found) * share, edges, linewidth=1.0, linestyle="--", **line)
    for bound in (low, high):
        ax.stairs(bound, edges, linewidth=0.7, **line)
    edge: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.8, "zorder": 2}
    bars = ax.bar(edges[:-1], counts, np.diff(edges), **edge)
    for bar, outside in zip(bars, (counts < low) | (counts > high), strict=True):
        bar.set_facecolor(_style.DOUBT if outside else _style.POSTERIOR)
        bar.set_hatch("///" if outside else None)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.12 * max(counts.max(), high.max())))
    ax.set(xlabel=f"rank among {n_draws} draws", ylabel="simulations")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def _check_ranks(ranks: ArrayLike, n_draws: int) -> AnyArray:
    found = np.asarray(ranks)
    if found.ndim != 1 or len(found) == 0:
        raise ValueError(f"ranks must have shape (simulations,), one or more, got {found.shape}.")
    if not (np.equal(found, np.rint(found)) & (found >= 0) & (found <= n_draws)).all():
        raise ValueError(f"ranks must be integers from 0 to n_draws = {n_draws}.")
    return found


def _default_bins(n_simulations: int, n_draws: int) -> int:
    """Choose as many bins as simulations allow, of equal width unless that halves their number."""
    max_bins = int(np.clip(n_simulations // PER_BIN, 1, min(BINS, n_draws + 1)))
    equal = max(bins for bins in range(1, max_bins + 1) if (n_draws + 1) % bins == 0)
    return equal if 2 * equal >= max_bins else max_bins
