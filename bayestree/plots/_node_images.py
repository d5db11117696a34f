"""The weights of each node as an image, laid out as the tree."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bayestree.plots import _style
from bayestree.plots._layout import Panel, panels_as_tree

SIDE = 1.15  # inches of the longer side of an image
MOST_LEAVES = 40  # drawn at most
SIGNED = "RdBu_r"  # colour map of values about zero


def node_images(estimator: Any, shape: tuple[int, int]) -> NDArray[Any]:
    """Coefficients of all nodes of an oblique tree as images, laid out as the tree.

    Ink on red pixels sends a row right, ink on blue ones left; white pixels are not looked at.
    Each image has a scale of its own, in units of each pixel's scale in training
    (``tree_.scale``). Its title counts the pixels that matter.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
        With one facet a node.
    shape : (int, int)
        Rows and columns of the images; features run along the rows.

    Returns
    -------
    array of Axes, shape (V,), in the order of the nodes

    Raises
    ------
    ValueError
        If the shape does not hold the features, a node has several facets, or the tree has no
        split or too many leaves.
    """
    tree = _style.polytopes_of(estimator)
    height, width = shape
    if height * width != tree.n_features:
        raise ValueError(
            f"shape {height} x {width} has {height * width} pixels, but the tree has "
            f"{tree.n_features} features; give the shape of its images."
        )
    if tree.n_nodes == 0:
        raise ValueError(_style.NO_SPLIT)
    if (tree.n_facets > 1).any():
        raise ValueError("node_images draws one facet a node; see plots.facet_image for several.")
    if tree.n_leaves > MOST_LEAVES:
        raise ValueError(
            f"the tree has {tree.n_leaves} leaves, and at most {MOST_LEAVES} can be drawn; fit a "
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
    _explain(panels[0].figure)
    return panels


def _explain(figure: Figure) -> None:
    """What the colours say, above the tree."""
    place: dict[str, Any] = {"va": "top", "fontsize": 9, "transform": figure.transFigure}
    y = 1.0 - 0.08 / figure.get_figheight()
    inch = 1.0 / figure.get_figwidth()
    red, blue = "#B2182B", "#2166AC"
    figure.text(0.15 * inch, y, "ink here: left", color=blue, **place)
    figure.text(1.25 * inch, y, "ink here: right", color=red, **place)
