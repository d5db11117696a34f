"""The nodes of a tree one by one: their rows with the line that divides them, and their images."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, class_numbers
from bayestree.description import FittedModel, TreeDescription, features_of
from bayestree.plots import _style
from bayestree.plots._tree import EDGES, LINK, LeafStyle, draw_leaves, layout, positions
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

# Inches in a tree of panels:
PANEL_LINK = 0.35  # from a panel to the one below
LEAF = 0.18  # height of the bar of a leaf
HEADING = 0.32  # above the root
MIN_WIDTH = 0.95  # width of a leaf with its margins
SCATTER_LEAVES = 24  # maximum number of leaves of a tree that is drawn with all its nodes
MAX_POINTS = 1500  # maximum number of rows drawn in a panel
JITTER = 0.32  # of the distance between two classes
MARGIN = 0.06  # on every side, as a share of the range of the rows
SHADE = "#E9E9E9"
POINT: dict[str, Any] = {"s": 9, "alpha": 0.75, "linewidths": 0, "zorder": 2}
LINE: dict[str, Any] = {"color": _style.INK, "linewidth": 1.4, "zorder": 3}
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
    at = positions(layout(tree.topology))
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
    figure = Figure(figsize=(width, height))
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


def node_scatter(
    estimator: FittedModel | Tree,
    X: ArrayLike,
    y: ArrayLike,
    node: str | int | None = None,
    ax: Axes | None = None,
) -> Any:
    """Plot the rows and the split of a node, or of all nodes arranged as the tree.

    A node that uses two features shows its rows by these features, with its line. A node that
    uses one feature, or the weighted sum of several, shows the rows along it, by class or, in
    regression, against y. Rows in the grey part go right. The title counts the rows that reach
    the node and those whose final prediction is wrong; in regression it has their root mean
    squared error.

    Parameters
    ----------
    estimator : fitted estimator, or Tree
        With one facet per node: axis-aligned, bivariate or oblique.
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
        has several facets, ``ax`` is given without a node, or the tree has no split or too many
        leaves to draw all nodes.
    """
    tree = _style.linear_tree_of(estimator)
    rows = _rows(estimator, tree, X, y)
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


class _Rows(NamedTuple):
    """Rows, their class numbers or values, the rows that reach each node, and their errors."""

    X: FloatArray
    y: AnyArray
    reached: list[IntArray]
    error: FloatArray


def _rows(estimator: object, tree: Tree, X: ArrayLike, y: ArrayLike) -> _Rows:
    """Check the rows, route them, and compute the 0/1 or squared error of each."""
    rows = features_of(estimator, X)
    if rows.ndim != 2 or rows.shape[1] != tree.n_features:
        raise ValueError(f"X must have shape (n, {tree.n_features}), got {rows.shape}.")
    target = np.asarray(y)
    if target.shape != (len(rows),):
        raise ValueError(f"y must have shape ({len(rows)},) to match X, got {target.shape}.")
    predicted = tree.predict(rows)
    if tree.value.ndim == 2:
        classes = np.asarray(getattr(estimator, "classes_", np.arange(tree.value.shape[1])))
        unknown = sorted({str(label) for label in target[~np.isin(target, classes)].tolist()})
        if unknown:
            raise ValueError(f"y has classes that the tree does not know: {unknown[:5]}.")
        target = class_numbers(target, classes)
        error = (predicted.argmax(axis=1) != target).astype(np.float64)
    else:
        error = (predicted - target) ** 2
    reached = [np.empty(0, dtype=np.int64) for _ in range(tree.n_nodes)]
    for node, here, _ in tree.walk(rows):
        reached[node] = here
    return _Rows(rows, target, reached, error)


def _panel(ax: Axes, tree: Tree, rows: _Rows, node: int) -> None:
    if tree.n_facets[node] > 1:
        raise ValueError(
            f"node {tree.topology.node_labels[node]} has {tree.n_facets[node]} facets, but "
            "node_scatter draws nodes with one; use plots.boundary or plots.tree."
        )
    expert = tree.experts(node).start
    plane = tree.hyperplane[expert]
    shown = reached = rows.reached[node]
    if len(reached) > MAX_POINTS:
        shown = np.sort(np.random.default_rng(0).choice(reached, MAX_POINTS, replace=False))
    features = np.argsort(-np.abs(plane * tree.scale), kind="stable")[: np.count_nonzero(plane)]
    if len(features) == 2:
        _plane(ax, tree, rows, shown, expert, features)
    else:
        _strip(ax, tree, rows, shown, expert)
    ax.tick_params(labelsize=_style.SMALL - 1, length=2.5, pad=2)
    ax.locator_params(axis="x", nbins=5)
    error = rows.error[reached]
    detail = f"{int(error.sum()):,} of {len(error):,} wrong"
    if tree.value.ndim == 1:
        root = np.sqrt(error.mean()) if len(error) else 0
        detail = f"rmse {root:.3g}, {len(error):,} rows"
    _style.panel_title(ax, tree.topology.node_labels[node], detail)


def _plane(
    ax: Axes, tree: Tree, rows: _Rows, shown: IntArray, expert: int, features: IntArray
) -> None:
    """Draw rows by two features, the dividing line, and its right side in grey."""
    normal, cut = tree.hyperplane[expert, features], float(tree.facet_limit[expert])
    points = rows.X[np.ix_(shown, features)]
    limits = [_limits(points[:, k], float(tree.scale[j])) for k, j in enumerate(features)]
    low, high = np.array(limits).T
    x, y = np.meshgrid(*zip(low, high, strict=True))
    score = normal[0] * x + normal[1] * y - cut
    # the score is linear over a single cell, so that the border of its contour is the line itself
    beyond = 1.0 + np.abs(score).max()
    ax.contourf(x, y, score, levels=[0.0, beyond], colors=[SHADE], zorder=0)
    start = (low[0], (cut - normal[0] * low[0]) / normal[1])
    ax.axline(start, slope=-normal[0] / normal[1], **LINE)
    _points(ax, tree, points[:, 0], points[:, 1], rows.y[shown])
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    names = [tree.feature_labels[j] for j in features]
    ax.set_xlabel(_cut(names[0], PANEL.width), fontsize=_style.SMALL, labelpad=1)
    ax.set_ylabel(_cut(names[1], PANEL.height), fontsize=_style.SMALL, labelpad=1)
    ax.locator_params(axis="y", nbins=4)


def _strip(ax: Axes, tree: Tree, rows: _Rows, shown: IntArray, expert: int) -> None:
    """Draw rows along a feature or a sum of features, by class or against y."""
    plane = tree.hyperplane[expert]
    described = TreeDescription(tree, max_terms=3, digits=2, features=tree.feature_labels)
    facet = described.half_space(expert)
    lead, cut = float(plane[facet.first]) or 1.0, facet.bound
    value = rows.X[shown] @ plane / lead
    spread = np.abs(plane / lead) @ tree.scale if facet.left else 1.0
    low, high = _limits(np.append(value, cut), float(spread))
    ax.axvspan(*((cut, high) if lead > 0 else (low, cut)), color=SHADE, zorder=0)
    ax.axvline(cut, **LINE)
    target = rows.y[shown]
    if tree.value.ndim == 1:
        _points(ax, tree, value, target, target)
    else:
        noise = np.random.default_rng(0).uniform(-JITTER, JITTER, len(shown))
        here = np.unique(target)
        level = np.searchsorted(here, target)
        _points(ax, tree, value, level + noise, target)
        ax.set_yticks(range(len(here)), [_cut(tree.class_labels[c], 0.8) for c in here])
        ax.set_ylim(-0.6, max(len(here), 1) - 0.4)
    ax.set_xlim(low, high)
    name = _cut(facet.terms or "no feature", PANEL.width)
    ax.set_xlabel(name, fontsize=_style.SMALL, labelpad=1)


def _points(ax: Axes, tree: Tree, x: FloatArray, y: FloatArray, target: AnyArray) -> None:
    if tree.value.ndim == 2:
        colours: Any = _style.class_colours(tree.value.shape[1])[target]
        # in random order, so that no class hides the others
        order = np.random.default_rng(0).permutation(len(x))
        ax.scatter(x[order], y[order], c=colours[order], **POINT)
        return
    ax.scatter(x, y, c=target, **_style.value_colours(tree), **POINT)


def _limits(values: FloatArray, spread: float) -> tuple[float, float]:
    """Return the range of values with a margin, or with ``spread`` if they are equal."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    room = MARGIN * (high - low) or spread
    return low - room, high + room


def _cut(text: str, room: float) -> str:
    return _style.cut(text, _style.SMALL, room)


def _legend(ax: Axes, tree: Tree, figure: Figure | None = None) -> None:
    """Explain the classes and the grey side, above the tree or next to a single panel."""
    handles = _style.class_handles(tree.class_labels) if tree.value.ndim == 2 else []
    handles += [Patch(facecolor=SHADE, edgecolor=LINK, label="goes right")]
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
