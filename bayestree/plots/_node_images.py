"""The coefficients of each node as an image, arranged as the tree."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bayestree._utils.arrays import AnyArray
from bayestree.plots import _style
from bayestree.plots._drawing import Panel, panels_as_tree
from bayestree.plots._facet_image import SIGNED, check_shape
from bayestree.protocols import FittedTree
from bayestree.tree import Tree

SIDE = 1.15  # inches of the longer side of an image
MAX_LEAVES = 40  # maximum number of leaves of a tree that can be drawn


def node_images(estimator: FittedTree | Tree, shape: tuple[int, int]) -> AnyArray:
    """Draw the coefficients of all nodes of an oblique tree as images, arranged as the tree.

    Ink on red pixels sends a row right, ink on blue pixels left; white pixels are not used. Each
    image has its own colour scale, and coefficients are per unit of each pixel in training
    (``tree_.scale``). The title counts the pixels that are used.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
        With one facet per node.
    shape : (int, int)
        Height and width of the images in pixels; the features are ordered row by row.

    Returns
    -------
    array of Axes, shape (V,), in the order of the nodes

    Raises
    ------
    ValueError
        If the shape does not match the number of features, a node has several facets, or the
        tree has no split or too many leaves.
    """
    tree = _style.linear_tree_of(estimator)
    height, width = check_shape(shape, tree)
    if tree.n_nodes == 0:
        raise ValueError(_style.NO_SPLIT)
    if (tree.n_facets > 1).any():
        raise ValueError("node_images draws one facet per node; use plots.facet_image for several.")
    if tree.n_leaves > MAX_LEAVES:
        raise ValueError(
            f"the tree has {tree.n_leaves} leaves, but at most {MAX_LEAVES} can be drawn; fit a "
            "smaller tree, or use plots.facet_image for single nodes."
        )
    unit = SIDE / max(height, width)
    panels = panels_as_tree(tree, Panel(unit * width, unit * height, above=0.2, below=0.05))
    plane = tree.standardised_hyperplane
    for panel, weights, label in zip(panels, plane, tree.topology.node_labels, strict=True):
        bound = max(float(np.abs(weights).max()), np.finfo(np.float64).tiny)
        image = weights.reshape(height, width)
        panel.imshow(image, cmap=SIGNED, vmin=-bound, vmax=bound, interpolation="nearest")
        panel.set(xticks=[], yticks=[])
        for spine in panel.spines.values():
            spine.set(color="#B8B8B8", linewidth=0.8)
        _style.panel_title(panel, label, f"{np.count_nonzero(weights)} px")
    _legend(panels[0].figure)
    return panels


def _legend(figure: Figure) -> None:
    place: dict[str, Any] = {"va": "top", "fontsize": 9, "transform": figure.transFigure}
    y = 1.0 - 0.08 / figure.get_figheight()
    inch = 1.0 / figure.get_figwidth()
    red, blue = "#B2182B", "#2166AC"
    figure.text(0.15 * inch, y, "ink here: left", color=blue, **place)
    figure.text(1.25 * inch, y, "ink here: right", color=red, **place)
