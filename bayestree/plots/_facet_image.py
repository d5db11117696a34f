"""Weights of facets as images, where the features are pixels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayestree.plots import _style

SIGNED = "RdBu_r"  # colour map of values about zero


def facet_image(
    estimator: Any,
    node: str | int = "root",
    shape: tuple[int, int] = (28, 28),
    ax: Any = None,
) -> NDArray[Any]:
    """Coefficients of a node's facets as images, one panel for each facet.

    Red pixels push a row out of the polytope when they are bright, blue ones keep it in; white
    ones do not matter. All panels have one scale, in units of each pixel's scale in training
    (``tree_.scale``). The facet of the greatest weight r comes first.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
    node : str or int
        Path of the node from the root (``"root"``, ``"L"``, ``"LR"``, ...), or its number.
    shape : (int, int)
        Rows and columns of the images; features run along the rows.
    ax : array of Axes, optional
        One for each facet.

    Returns
    -------
    array of Axes, shape (facets,)

    Raises
    ------
    ValueError
        If the shape does not hold the features, or there is no such node.
    """
    tree = _style.polytopes_of(estimator)
    height, width = shape
    if height * width != tree.n_features:
        raise ValueError(
            f"shape {height} x {width} has {height * width} pixels, but the tree has "
            f"{tree.n_features} features; give the shape of its images."
        )
    place = _style.place_of(tree.topology.node_labels, node)
    own = np.arange(tree.n_experts_total)[tree.experts(place)]
    own = own[np.argsort(-tree.weight[own], kind="stable")]
    images = tree.standardised_hyperplane[own].reshape(-1, height, width)
    axes = _style.panels(ax, len(own), _style.Size(1.7, 1.7 * height / width + 0.3, aside=0.9))
    # A facet of zeros has no largest coefficient to scale by.
    bound = max(float(np.abs(images).max()), np.finfo(np.float64).tiny)
    for panel, image, weight in zip(axes, images, tree.weight[own], strict=True):
        drawn = panel.imshow(image, cmap=SIGNED, vmin=-bound, vmax=bound, interpolation="nearest")
        panel.set(xticks=[], yticks=[])
        panel.set_title(f"r = {weight:.3g}", fontsize=_style.SMALL)
    bar = axes[0].figure.colorbar(
        drawn,
        ax=list(axes),
        label="inside  \N{LEFTWARDS ARROW}  coefficient  \N{RIGHTWARDS ARROW}  outside",
        aspect=14,
        shrink=0.9,
    )
    bar.outline.set_visible(False)
    return axes
