"""Reliability diagram."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from bayestree.diagnostics.calibration import Calibration
from bayestree.plots import _style

MARKERS = "osD^vP*"
ERRORS = 2  # half-length of the bars in standard errors
MARGIN = 0.03


def calibration(found: Calibration | Mapping[str, Calibration], ax: Axes | None = None) -> Axes:
    """Reliability diagram: accuracy of the most probable class against its probability.

    Each point is an equal-mass bin. Points below the diagonal are overconfident, points above it
    underconfident. Bars extend two standard errors (under perfect calibration) to each side: most
    should meet the diagonal. The legend shows the expected calibration error and, in brackets,
    its expectation if the probabilities were calibrated.

    Parameters
    ----------
    found : Calibration, or mapping of str to Calibration
        Result of :func:`bayestree.diagnostics.calibration`, or several by name.
    ax : Axes, optional

    Raises
    ------
    TypeError
        If something else is given.
    ValueError
        If the mapping is empty.
    """
    if not isinstance(found, Calibration | Mapping):
        raise TypeError(
            "found must be a result of bayestree.diagnostics.calibration or a mapping of names to "
            f"results, got {type(found).__name__}."
        )
    several = {"": found} if isinstance(found, Calibration) else found
    for name, one in several.items():
        if not isinstance(one, Calibration):
            raise TypeError(
                f"found must contain results of bayestree.diagnostics.calibration, got "
                f"{type(one).__name__} for {name!r}."
            )
    if not several:
        raise ValueError("found must not be empty: there is no result to draw.")
    ax = ax or _style.new_axes(3.9, 4.0 + 0.2 * len(several))
    ax.plot([0, 1], [0, 1], color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    low = min(_curve(ax, rank, *item) for rank, item in enumerate(several.items()))
    edges = (max(low - MARGIN, -MARGIN), 1 + MARGIN)
    ax.set(xlim=edges, ylim=edges, aspect="equal")
    ax.set(xlabel="probability of the most probable class", ylabel="accuracy")
    title = "calibration error [if calibrated]"
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    ax.legend(frameon=False, fontsize=9, title=title, title_fontsize=9, alignment="left", **place)
    _style.open_frame(ax)
    return ax


def _curve(ax: Axes, rank: int, name: str, one: Calibration) -> float:
    """Draw the bins of one result and return its smallest coordinate."""
    confidence, accuracy, error = one.bins[["confidence", "accuracy", "error"]].to_numpy().T
    ax.errorbar(
        confidence,
        accuracy,
        ERRORS * error,
        label=f"{name}  {one.ece.value:.3f} [{one.ece.if_calibrated:.3f}]".strip(),
        color=_style.PALETTE[rank % len(_style.PALETTE)],
        marker=MARKERS[rank % len(MARKERS)],
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linewidth=1.2,
        elinewidth=1.0,
        zorder=3 + rank,
    )
    return float(min(confidence.min(), accuracy.min()))
