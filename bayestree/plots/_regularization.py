"""Error against model size along a regularization path."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayestree.plots import _style


def regularization_path(path: Any, ax: Axes | None = None) -> Axes:
    """Error of trees against their number of parameters, along a regularization path.

    As in the paper on sparse oblique trees: training error (open markers) and validation error
    (filled markers) against the number of non-zero coefficients. Numbers next to the markers are
    penalties; the tree with the lowest validation error is circled.

    Parameters
    ----------
    path : RegularizationPath
        Result of :func:`bayestree.regularization_path`.
    ax : Axes, optional

    Returns
    -------
    Axes
        The error is 1 - accuracy in per cent, or 1 - R^2 for regression.

    Raises
    ------
    TypeError
        If ``path`` is not a RegularizationPath.
    """
    if not hasattr(path, "nonzeros"):
        raise TypeError(
            f"path must come from bayestree.regularization_path, got {type(path).__name__}."
        )
    classifies = hasattr(path.estimators[0], "classes_")
    factor = 100.0 if classifies else 1.0
    ax = ax or _style.new_axes(5.0, 3.4)
    size = np.maximum(path.nonzeros, 1)  # log axis; a single leaf has no coefficients
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
    ring: dict[str, Any] = {"markersize": 12, "markerfacecolor": "none", "color": _style.DOUBT}
    ax.plot(size[best], error[best], "o", label=label, **ring)
    ax.set_xscale("log")
    ax.set(xlabel="non-zero coefficients", ylabel="error (%)" if classifies else "1 - R²")
    ax.margins(y=0.12)
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9)
    _style.open_frame(ax)
    return ax
