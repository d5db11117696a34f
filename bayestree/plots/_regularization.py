"""Error against size over a series of penalties."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayestree.plots import _style


def regularization_path(path: Any, ax: Axes | None = None) -> Axes:
    """Error of trees by their number of parameters, over a series of penalties.

    As in the paper on sparse oblique trees: training error (open marks) and validation error
    (full ones) against the number of coefficients that are not 0. Figures beside the marks are
    penalties; the tree of least validation error is ringed, with its number of leaves.

    Parameters
    ----------
    path : RegularizationPath
        Of :func:`bayestree.regularization_path`.
    ax : Axes, optional

    Returns
    -------
    Axes
        The error is 1 - accuracy in per cent, or 1 - R^2 of a regression.

    Raises
    ------
    TypeError
        If ``path`` is none.
    """
    if not hasattr(path, "nonzeros"):
        raise TypeError(
            f"path must come from bayestree.regularization_path, got {type(path).__name__}."
        )
    classifies = hasattr(path.estimators[0], "classes_")
    factor = 100.0 if classifies else 1.0
    ax = ax or _style.new_axes(5.0, 3.4)
    size = np.maximum(path.nonzeros, 1)  # a single leaf has none, and the axis is logarithmic
    error = factor * (1 - path.score)
    train = factor * (1 - path.train_score)
    colour = _style.POSTERIOR
    ax.plot(size, train, "o-", color=colour, markerfacecolor="white", linewidth=1.0, label="train")
    ax.plot(size, error, "o-", color=colour, linewidth=1.6, label="validation")
    for place, penalty in enumerate(path.lambdas):
        ax.annotate(
            f"{penalty:.3g}",
            (size[place], error[place]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            color=_style.QUIET,
            fontsize=_style.SMALL,
        )
    best = path.best
    label = f"λ = {path.lambdas[best]:.3g}, {path.leaves[best]:,} leaves"
    ring: dict[str, Any] = {
        "marker": "o",
        "markersize": 12,
        "markerfacecolor": "none",
        "linestyle": "none",
    }
    ax.plot(size[best : best + 1], error[best : best + 1], color=_style.DOUBT, label=label, **ring)
    ax.set_xscale("log")
    ax.set(xlabel="coefficients that are not 0", ylabel="error (%)" if classifies else "1 - R²")
    ax.margins(y=0.12)
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax
