"""Ranks of simulation-based calibration (Talts et al. 2018)."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from bayestree.plots import _style

BINS = 20  # at most, where not said
PER_BIN = 5  # simulations expected in a bin, at least


def ranks(
    ranks: ArrayLike,
    n_draws: int,
    ax: Axes | None = None,
    *,
    n_bins: int | None = None,
    level: float = 0.99,
) -> Axes:
    """Histogram of the ranks of true values among posterior draws.

    If the posterior is right, every rank is as likely, and a bar ends outside the grey band with
    probability ``1 - level`` or less; those that do are hatched. A heap in the middle says that
    the posterior is too wide, heaps at both ends that it is too narrow, a slope that it is
    biased.

    Parameters
    ----------
    ranks : array of int, shape (simulations,)
        Number of draws below the true value, 0 to ``n_draws``.
    n_draws : int
        Draws that each true value was ranked among.
    ax : Axes, optional
    n_bins : int, optional
        By default as many as hold equally many ranks, up to 20, with 5 simulations or more
        expected in each. Bins hold whole ranks; where their number does not divide
        ``n_draws + 1``, some hold one more, and the band is higher there.
    level : float
        Probability of the band, for each bar.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If ranks are not whole numbers from 0 to ``n_draws``, there are more bins than ranks, or
        ``level`` is not between 0 and 1.
    """
    found = _checked(ranks, n_draws)
    bins = _default_bins(len(found), n_draws) if n_bins is None else n_bins
    if not 1 <= bins <= n_draws + 1:
        raise ValueError(f"n_bins must lie between 1 and n_draws + 1 = {n_draws + 1}, got {bins}.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    edges = np.linspace(0, n_draws + 1, bins + 1).round()
    counts = np.histogram(found, edges)[0]
    share = np.diff(edges) / (n_draws + 1)
    tails = np.array([[(1 - level) / 2], [(1 + level) / 2]])
    low, high = np.asarray(binom.ppf(tails, len(found), share))
    ax = ax or _style.new_axes(4.2, 2.8)
    # Ranks are whole: a bar over the ranks a to b - 1 reaches from a - 1/2 to b - 1/2.
    edges = edges - 0.5
    _band(ax, edges, low, high, len(found) * share, level)
    _bars(ax, edges, counts, (counts < low) | (counts > high))
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.12 * max(counts.max(), high.max())))
    ax.set(xlabel=f"rank among {n_draws} draws", ylabel="simulations")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax


def _checked(ranks: ArrayLike, n_draws: int) -> NDArray[Any]:
    found = np.asarray(ranks)
    if found.ndim != 1 or len(found) == 0:
        raise ValueError(f"ranks must have shape (simulations,), one or more, got {found.shape}.")
    if not (np.equal(found, np.rint(found)) & (found >= 0) & (found <= n_draws)).all():
        raise ValueError(f"ranks must be whole numbers from 0 to n_draws = {n_draws}.")
    return found


def _default_bins(n_simulations: int, n_draws: int) -> int:
    """The most bins with enough simulations in each; of equal width, if that costs few of them."""
    most = int(np.clip(n_simulations // PER_BIN, 1, min(BINS, n_draws + 1)))
    equal = max(bins for bins in range(1, most + 1) if (n_draws + 1) % bins == 0)
    return equal if 2 * equal >= most else most


def _band(
    ax: Axes,
    edges: NDArray[Any],
    low: NDArray[Any],
    high: NDArray[Any],
    expected: NDArray[Any],
    level: float,
) -> None:
    """What equally likely ranks give: counts expected, and the range of nearly all of them."""
    ax.stairs(
        high, edges, baseline=low, fill=True, color="#DADADA", label=f"{level:.0%} if uniform"
    )
    line: dict[str, Any] = {"baseline": None, "color": _style.INK, "zorder": 3}
    ax.stairs(expected, edges, linewidth=1.0, linestyle="--", **line)
    for bound in (low, high):
        ax.stairs(bound, edges, linewidth=0.7, **line)


def _bars(ax: Axes, edges: NDArray[Any], counts: NDArray[Any], out: NDArray[np.bool_]) -> None:
    width = np.diff(edges)
    bars = ax.bar(
        edges[:-1], counts, width, align="edge", edgecolor="white", linewidth=0.8, zorder=2
    )
    for bar, outside in zip(bars, out, strict=True):
        bar.set_facecolor(_style.DOUBT if outside else _style.POSTERIOR)
        bar.set_hatch("///" if outside else None)
