"""The nodes of a tree one by one: their rows with the line that divides them, and their images."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.description import FittedModel, TreeDescription
from bayestree.plots import _style
from bayestree.plots._node_views import NodeRows, draw_node, features_in_use, left_handle
from bayestree.plots._tree import EDGES, LINK, LeafStyle, draw_leaves, layout
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

# Inches in a tree of panels:
PANEL_LINK = 0.35  # from a panel to the one below
LEAF = 0.18  # height of the bar of a leaf
HEADING = 0.32  # above the root
MIN_WIDTH = 0.95  # width of a leaf with its margins
SCATTER_LEAVES = 24  # maximum number of leaves of a tree that is drawn with all its nodes
MAX_POINTS = 1500  # maximum number of rows drawn in a panel
SIGNED = "RdBu_r"  # colour map of signed values
SIDE = 1.15  # inches of the longer side of an image
IMAGE_LEAVES = 40  # maximum number of leaves of a tree that can be drawn with images


class Panel(NamedTuple):
    """Inches of a panel, and of the texts above, below and on the left of it."""

    width: float
    height: float
    above: float
    below: float
    left: float = 0.0


PANEL = Panel(width=2.5, height=1.75, above=0.28, below=0.42, left=0.4)


def panels_as_tree(tree: RoutedTree, panel: Panel) -> AnyArray:
    """Create Axes in a new Figure, one for each node, arranged as the tree, shape (V,).

    Links and leaves are drawn, and there is room for a line of text above the root's panel.
    """
    places = layout(tree.topology)
    at = {one.child: np.array([one.across, -float(one.depth)]) for one in places}
    node_at = np.array([at[node] for node in range(tree.n_nodes)]).reshape(-1, 2)
    leaf_at = np.array([at[~leaf] for leaf in range(tree.n_leaves)])
    above, below = 0.5 * panel.height + panel.above, 0.5 * panel.height + panel.below
    level = above + below + PANEL_LINK
    slot = max((panel.width + panel.left + 2 * _style.PAD) / 2, MIN_WIDTH)
    leaf_at[:, 1] += (above - 0.5 * LEAF) / level  # level with the titles of panels
    top = (above + HEADING) / level
    bottom = min(
        (node_at[:, 1] - below / level).min(), (leaf_at[:, 1] - (LEAF + 0.45) / level).min()
    )
    width, height = slot * (tree.n_leaves + EDGES) + panel.left, level * (top - bottom)
    figure = _style.DisplayedFigure(figsize=(width, height))
    ground = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    left = -0.5 - EDGES / 2 - panel.left / slot
    ground.set(xlim=(left, left + width / slot), ylim=(bottom, top))
    ground.set_axis_off()
    for (x, y), children in zip(node_at, tree.topology.children.tolist(), strict=True):
        for child in children:
            end = leaf_at[~child] if child < 0 else node_at[child]
            rise = 0.5 * LEAF if child < 0 else above
            ends = ([x, end[0]], [y - below / level, end[1] + rise / level])
            ground.plot(*ends, color=LINK, linewidth=1.6, zorder=1)
    style = LeafStyle(_style.SMALL, slot, LEAF / level)
    draw_leaves(ground, TreeDescription(tree), dict(enumerate(leaf_at)), style)
    share = (panel.width / width, panel.height / height)
    corners = [
        ((x - left) * slot / width - share[0] / 2, (y - bottom) * level / height - share[1] / 2)
        for x, y in node_at
    ]
    return np.array([figure.add_axes((*corner, *share)) for corner in corners], dtype=object)


@_style.literal
def node_scatter(
    estimator: FittedModel | Tree,
    X: ArrayLike,
    y: ArrayLike,
    node: str | int | None = None,
    ax: Axes | None = None,
) -> Any:
    """Plot the rows and the split of a node, or of all nodes arranged as the tree.

    A node that uses two features shows its rows by these features, with its border: a line, or
    the polytope of several facets. A node that uses one feature, or the weighted sum of several
    in a single facet, shows the rows along it, by class or, in regression, against y. Rows in the
    grey part go left. The title counts the rows that reach the node and those whose final
    prediction is wrong; in regression it has their root mean squared error.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
        With one facet per node: axis-aligned, bivariate or oblique; or with several that use at
        most two features.
    X : array, shape (n, d)
    y : array, shape (n,)
        Classes or values of the rows.
    node : str or int, optional
        Path (``"root"``, ``"L"``, ``"LR"``, ...) or number of a node; by default all nodes.
    ax : Axes, optional
        Only with ``node``.

    Returns
    -------
    Axes, or array of Axes of shape (V,) in the order of the nodes

    Raises
    ------
    TypeError
        If the splits of the tree are not linear.
    ValueError
        If X or y have the wrong shape or y has unknown classes, the node is not in the tree or
        has several facets that use more than two features, ``ax`` is given without a node, or the
        tree has no split or too many leaves to draw all nodes.
    """
    tree = _style.linear_tree_of(estimator)
    rows = NodeRows.of(estimator, tree, X, y)
    labels = tree.topology.node_labels
    if node is not None:
        chosen = _style.index_of(labels, node)
        ax = ax or _style.new_axes(1.7 * PANEL.width, 1.8 * PANEL.height)
        _panel(ax, tree, rows, chosen)
        _legend(ax, tree)
        return ax
    if ax is not None:
        raise ValueError("ax is for a single node; pass node as well, or omit ax.")
    if not labels:
        raise ValueError(_style.NO_SPLIT)
    if tree.n_leaves > SCATTER_LEAVES:
        raise ValueError(
            f"the tree has {tree.n_leaves} leaves, but at most {SCATTER_LEAVES} can be drawn with "
            "all nodes; pass node, or fit a smaller tree (max_leaves, ccp_alpha)."
        )
    panels = panels_as_tree(tree, PANEL)
    for place, panel in enumerate(panels):
        _panel(panel, tree, rows, place)
    _legend(panels[0], tree, panels[0].figure)
    return panels


def _panel(ax: Axes, tree: Tree, rows: NodeRows, node: int) -> None:
    if tree.n_facets[node] > 1 and len(features_in_use(tree, node)) > 2:
        raise ValueError(
            f"node {tree.topology.node_labels[node]} has {tree.n_facets[node]} facets, but "
            "node_scatter draws several facets by one or two features; use plots.tree."
        )
    described, room = TreeDescription(tree), (PANEL.width, PANEL.height)
    draw_node(ax, described, rows, node, MAX_POINTS, room)
    ax.tick_params(labelsize=_style.SMALL - 1, length=2.5, pad=2)
    error = rows.error[rows.reached[node]]
    detail = f"{int(error.sum()):,} of {len(error):,} wrong"
    if tree.value.ndim == 1:
        root = np.sqrt(error.mean()) if len(error) else 0
        detail = f"rmse {root:.3g}, {len(error):,} rows"
    _style.panel_title(ax, tree.topology.node_labels[node], detail)


def _legend(ax: Axes, tree: Tree, figure: Figure | None = None) -> None:
    """Explain the classes and the grey side, above the tree or next to a single panel."""
    handles = _style.class_handles(tree.class_labels) if tree.value.ndim == 2 else []
    handles += [left_handle()]
    frame: dict[str, Any] = {"frameon": False, "handlelength": 1.0, "handleheight": 1.0}
    frame["handles"] = handles
    if figure is None:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=_style.SMALL, **frame)
        return
    labels = [str(handle.get_label()) for handle in handles]
    columns = _style.legend_columns(labels, figure.get_figwidth())
    figure.legend(loc="upper right", ncols=columns, fontsize=9, **frame)


def facet_image(
    estimator: FittedModel | Tree,
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
    height, width = _check_shape(shape, tree)
    place = _style.index_of(tree.topology.node_labels, node)
    experts = np.arange(tree.n_experts_total)[tree.experts(place)]
    experts = experts[np.argsort(-tree.weight[experts], kind="stable")]
    images = tree.standardised_hyperplane[experts]
    axes = _style.panels(
        ax, len(experts), _style.PanelSize(1.7, 1.7 * height / width + 0.3, aside=0.9)
    )
    for panel, image, weight in zip(axes, images, tree.weight[experts], strict=True):
        drawn = _signed(panel, image, shape, float(np.abs(images).max()))
        panel.set_title(f"r = {weight:.3g}", fontsize=_style.SMALL)
    bar = axes[0].figure.colorbar(
        drawn, ax=list(axes), label="coefficient\n(above 0: outside)", aspect=14, shrink=0.9
    )
    bar.outline.set_visible(False)
    return axes


def _check_shape(shape: tuple[int, int], tree: Tree) -> tuple[int, int]:
    """Return the shape of an image, which must have a pixel for each feature."""
    height, width = shape
    if height * width != tree.n_features:
        raise ValueError(
            f"shape {height} x {width} has {height * width} pixels, but the tree has "
            f"{tree.n_features} features; pass the shape of its images."
        )
    return shape


def _signed(ax: Axes, values: FloatArray, shape: tuple[int, int], largest: float) -> AxesImage:
    """Draw values as pixels, in the darkest colours at ``largest``, which may be 0."""
    bound = max(largest, np.finfo(np.float64).tiny)
    ax.set(xticks=[], yticks=[])
    colours: dict[str, Any] = {"cmap": SIGNED, "vmin": -bound, "vmax": bound}
    return ax.imshow(values.reshape(shape), interpolation="nearest", **colours)


def node_images(estimator: FittedModel | Tree, shape: tuple[int, int]) -> AnyArray:
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
    height, width = _check_shape(shape, tree)
    if tree.n_nodes == 0:
        raise ValueError(_style.NO_SPLIT)
    if (tree.n_facets > 1).any():
        raise ValueError("node_images draws one facet per node; use plots.facet_image for several.")
    if tree.n_leaves > IMAGE_LEAVES:
        raise ValueError(
            f"the tree has {tree.n_leaves} leaves, but at most {IMAGE_LEAVES} can be drawn; fit a "
            "smaller tree, or use plots.facet_image for single nodes."
        )
    unit = SIDE / max(height, width)
    panels = panels_as_tree(tree, Panel(unit * width, unit * height, above=0.2, below=0.05))
    plane = tree.standardised_hyperplane
    for panel, weights, label in zip(panels, plane, tree.topology.node_labels, strict=True):
        _signed(panel, weights, shape, float(np.abs(weights).max()))
        panel.spines[:].set(color=LINK, linewidth=0.8)
        _style.panel_title(panel, label, f"{np.count_nonzero(weights)} px")
    figure = panels[0].figure
    place: dict[str, Any] = {"va": "top", "fontsize": 9, "transform": figure.transFigure}
    width, height = figure.get_size_inches()
    for x, side, colour in ((0.15, "left", "#2166AC"), (1.25, "right", "#B2182B")):
        figure.text(x / width, 1.0 - 0.08 / height, f"ink here: {side}", color=colour, **place)
    return panels
