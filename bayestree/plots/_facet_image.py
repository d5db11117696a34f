"""The coefficients of facets as images, for features that are pixels."""

from typing import Any

import numpy as np

from bayestree._utils.arrays import AnyArray
from bayestree.plots import _style
from bayestree.protocols import FittedTree
from bayestree.tree import Tree

SIGNED = "RdBu_r"  # colour map of signed values


def facet_image(
    estimator: FittedTree | Tree,
    node: str | int = "root",
    shape: tuple[int, int] = (28, 28),
    ax: Any = None,
) -> AnyArray:
    """Draw the coefficients of a node's facets as images, one panel for each facet.

    Bright red pixels push a row out of the polytope, bright blue pixels keep it inside; white
    pixels are not used. All panels share one colour scale, and coefficients are per unit of each
    pixel in training (``tree_.scale``). The facet with the largest weight r comes first.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
    node : str or int
        Path of the node from the root (``"root"``, ``"L"``, ``"LR"``, ...), or its number.
    shape : (int, int)
        Height and width of the images in pixels; the features are ordered row by row.
    ax : array of Axes, optional
        One for each facet.

    Returns
    -------
    array of Axes, shape (facets,)

    Raises
    ------
    ValueError
        If the shape does not match the number of features, or there is no such node.
    """
    tree = _style.linear_tree_of(estimator)
    height, width = check_shape(shape, tree)
    place = _style.index_of(tree.topology.node_labels, node)
    experts = np.arange(tree.n_experts_total)[tree.experts(place)]
    experts = experts[np.argsort(-tree.weight[experts], kind="stable")]
    images = tree.standardised_hyperplane[experts].reshape(-1, height, width)
    axes = _style.panels(ax, len(experts), _style.Size(1.7, 1.7 * height / width + 0.3, aside=0.9))
    bound = max(float(np.abs(images).max()), np.finfo(np.float64).tiny)  # a facet may be all 0
    for panel, image, weight in zip(axes, images, tree.weight[experts], strict=True):
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


def check_shape(shape: tuple[int, int], tree: Tree) -> tuple[int, int]:
    """The shape of an image, which must have a pixel for each feature."""
    height, width = shape
    if height * width != tree.n_features:
        raise ValueError(
            f"shape {height} x {width} has {height * width} pixels, but the tree has "
            f"{tree.n_features} features; pass the shape of its images."
        )
    return shape
