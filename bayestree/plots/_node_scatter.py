"""The rows of each node, with the line that parts them."""

from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.inequality import inequality
from bayestree.plots import _style
from bayestree.plots._layout import Panel, panels_as_tree
from bayestree.tree import Tree, facet_threshold

PANEL = Panel(width=2.5, height=1.75, above=0.28, below=0.42, left=0.4)
MOST_LEAVES = 24  # drawn with all their nodes
MOST_POINTS = 1500  # of a panel
JITTER = 0.32  # of the distance between two classes
MARGIN = 0.06  # of the range of the rows, on every side
SHADE = "#E9E9E9"
POINT: dict[str, Any] = {"s": 9, "alpha": 0.75, "linewidths": 0, "zorder": 2}
LINE: dict[str, Any] = {"color": _style.INK, "linewidth": 1.4, "zorder": 3}


def node_scatter(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    node: str | int | None = None,
    ax: Axes | None = None,
) -> Any:
    """Scatter plot of the rows of a node, with its split; or of all nodes, laid out as the tree.

    A node of two features shows its rows in these, with its line. One of a single feature shows
    the rows along it, class by class (a regression tree: against y); one of more features shows
    them along their weighted sum. Rows in the grey part go right. The title counts the rows that
    reach the node, and those among them that the tree gets wrong in the end (a regression tree:
    the root of the mean squared error).

    Parameters
    ----------
    estimator : fitted estimator, or Tree
        With one facet a node: axis-aligned, bivariate or oblique.
    X : array, shape (n, d)
    y : array, shape (n,)
        Classes or values of the rows.
    node : str or int, optional
        Its path (``"root"``, ``"L"``, ``"LR"``, ...) or number; by default all nodes.
    ax : Axes, optional
        For a single node.

    Returns
    -------
    Axes, or array of Axes of shape (V,) in the order of the nodes

    Raises
    ------
    TypeError
        If the tree has other splits than linear ones.
    ValueError
        If X or y have other shapes, the node is not in the tree or has several facets, ``ax`` is
        given without a node, or the tree has no split, or too many leaves to draw all nodes.
    """
    tree = _style.polytopes_of(estimator)
    rows = _rows(estimator, tree, X, y)
    labels = tree.topology.node_labels
    if node is not None:
        chosen = _style.place_of(labels, node)
        ax = ax or _style.new_axes(1.7 * PANEL.width, 1.8 * PANEL.height)
        _panel(ax, tree, rows, chosen)
        _legend(ax, tree)
        return ax
    if ax is not None:
        raise ValueError("ax is for a single node; name it, or leave ax out.")
    if not labels:
        raise ValueError(_style.NO_SPLIT)
    if tree.n_leaves > MOST_LEAVES:
        raise ValueError(
            f"the tree has {tree.n_leaves} leaves, and at most {MOST_LEAVES} can be drawn with "
            "all nodes; name a node, or fit a smaller tree (max_leaves, ccp_alpha)."
        )
    panels = panels_as_tree(tree, PANEL)
    for place, panel in enumerate(panels):
        _panel(panel, tree, rows, place)
    _legend(panels[0], tree, panels[0].figure)
    return panels


class _Rows(NamedTuple):
    """Rows, their class numbers or values, the leaf each reaches, and how far that is off."""

    X: FloatArray
    y: NDArray[Any]
    reached: list[IntArray]
    error: FloatArray


class _Line(NamedTuple):
    """normal . x[features] = cut."""

    features: IntArray
    normal: FloatArray
    cut: float


def _rows(estimator: Any, tree: Tree, X: ArrayLike, y: ArrayLike) -> _Rows:
    """Checked rows; which of them reach each node; 0/1 or squared error of each."""
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != tree.n_features:
        raise ValueError(f"X must have shape (n, {tree.n_features}), got {rows.shape}.")
    target = np.asarray(y)
    if target.shape != (len(rows),):
        raise ValueError(f"y must have shape ({len(rows)},) as X has rows, got {target.shape}.")
    predicted = tree.predict(rows)
    if tree.value.ndim == 2:
        classes = np.asarray(getattr(estimator, "classes_", np.arange(tree.value.shape[1])))
        unknown = sorted({str(label) for label in target[~np.isin(target, classes)].tolist()})
        if unknown:
            raise ValueError(f"y holds classes that the tree does not know: {unknown[:5]}.")
        target = np.searchsorted(classes, target)
        error = (predicted.argmax(axis=1) != target).astype(np.float64)
    else:
        error = (predicted - target) ** 2
    reached = [np.empty(0, dtype=np.int64) for _ in range(tree.n_nodes)]
    for node, own, _ in tree.walk(rows):
        reached[node] = own
    return _Rows(rows, target, reached, error)


def _panel(ax: Axes, tree: Tree, rows: _Rows, node: int) -> None:
    own = tree.experts(node)
    if own.stop - own.start > 1:
        raise ValueError(
            f"node {tree.topology.node_labels[node]} has {own.stop - own.start} facets; "
            "node_scatter draws nodes of one. See plots.boundary and plots.tree."
        )
    plane = tree.hyperplane[own.start]
    cut = float(facet_threshold(tree.weight[own])[0] - tree.intercept[own.start])
    reached = rows.reached[node]
    shown = _some(reached)
    features = np.argsort(-np.abs(plane * tree.scale), kind="stable")[: np.count_nonzero(plane)]
    if len(features) == 2:
        _plane(ax, tree, rows, shown, _Line(features, plane[features], cut))
    else:
        _strip(ax, tree, rows, shown, plane, cut)
    ax.tick_params(labelsize=_style.SMALL - 1, length=2.5, pad=2)
    ax.locator_params(axis="x", nbins=5)
    _style.panel_title(ax, tree.topology.node_labels[node], _detail(tree, rows.error[reached]))


def _some(reached: IntArray) -> IntArray:
    """All rows of a node, or as many as can be told apart."""
    if len(reached) <= MOST_POINTS:
        return reached
    return np.sort(np.random.default_rng(0).choice(reached, MOST_POINTS, replace=False))


def _detail(tree: Tree, error: FloatArray) -> str:
    if tree.value.ndim == 2:
        return f"{int(error.sum()):,} of {len(error):,} wrong"
    return f"rmse {np.sqrt(error.mean()) if len(error) else 0:.3g}, {len(error):,} rows"


def _plane(ax: Axes, tree: Tree, rows: _Rows, shown: IntArray, line: _Line) -> None:
    """Rows in two features, the line between them, and its right side in grey."""
    features, normal, cut = line
    points = rows.X[np.ix_(shown, features)]
    low, high = _window(points, tree, features)
    x, y = np.meshgrid(*zip(low, high, strict=True))
    score = normal[0] * x + normal[1] * y - cut
    # one cell, over which the score is linear: its border is the line itself
    beyond = 1.0 + np.abs(score).max()
    ax.contourf(x, y, score, levels=[0.0, beyond], colors=[SHADE], zorder=0)
    ax.axline(
        (low[0], (cut - normal[0] * low[0]) / normal[1]), slope=-normal[0] / normal[1], **LINE
    )
    _points(ax, tree, points[:, 0], points[:, 1], rows.y[shown])
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    names = tree.feature_labels
    ax.set_xlabel(_cut(names[features[0]], PANEL.width), fontsize=_style.SMALL, labelpad=1)
    ax.set_ylabel(_cut(names[features[1]], PANEL.height), fontsize=_style.SMALL, labelpad=1)
    ax.locator_params(axis="y", nbins=4)


def _strip(
    ax: Axes, tree: Tree, rows: _Rows, shown: IntArray, plane: FloatArray, cut: float
) -> None:
    """Rows along a feature or a sum of features, class by class or against y."""
    used = np.flatnonzero(plane)
    names = tree.feature_labels
    lead, text = 1.0, "nothing: no feature is used"
    if len(used):
        strength = np.abs(plane * tree.scale)
        found, first = inequality(plane, strength, names, max_features=3, decimals=2)
        lead, text = float(plane[first]), found.rsplit(" ", 1)[0]
    value = rows.X[shown] @ plane / lead
    spread = np.abs(plane / lead) @ tree.scale if len(used) else 1.0
    low, high = _limits(np.append(value, cut / lead), float(spread))
    ax.axvspan(*((cut / lead, high) if lead > 0 else (low, cut / lead)), color=SHADE, zorder=0)
    ax.axvline(cut / lead, **LINE)
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
    ax.set_xlabel(_cut(text, PANEL.width), fontsize=_style.SMALL, labelpad=1)


def _points(ax: Axes, tree: Tree, x: FloatArray, y: FloatArray, target: NDArray[Any]) -> None:
    if tree.value.ndim == 2:
        colours: Any = _style.class_colours(tree.value.shape[1])[target]
        # in any order, so that no class lies on top
        order = np.random.default_rng(0).permutation(len(x))
        ax.scatter(x[order], y[order], c=colours[order], **POINT)
        return
    low, high = float(tree.value.min()), float(tree.value.max())
    scale = Normalize(low, high if high > low else low + 1.0)
    ax.scatter(x, y, c=target, cmap=mpl.colormaps[_style.VALUES], norm=scale, **POINT)


def _window(points: FloatArray, tree: Tree, features: IntArray) -> tuple[FloatArray, FloatArray]:
    pairs = [_limits(points[:, k], float(tree.scale[j])) for k, j in enumerate(features)]
    low, high = np.array(pairs).T
    return low, high


def _limits(values: FloatArray, spread: float) -> tuple[float, float]:
    """The range of some values with a margin; a standard deviation about them where it is none."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    room = MARGIN * (high - low) or spread
    return low - room, high + room


def _cut(text: str, room: float) -> str:
    return _style.cut(text, _style.SMALL, room)


def _legend(ax: Axes, tree: Tree, figure: Figure | None = None) -> None:
    """Classes and the grey side: above the tree, or beside a single panel."""
    handles = [Patch(facecolor=SHADE, edgecolor="#B8B8B8", label="goes right")]
    if tree.value.ndim == 2:
        names = tree.class_labels
        colours = _style.class_colours(len(names))
        handles = [
            *(Patch(facecolor=c, label=n) for n, c in zip(names, colours, strict=True)),
            *handles,
        ]
    frame: dict[str, Any] = {"frameon": False, "handlelength": 1.0, "handleheight": 1.0}
    if figure is None:
        ax.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            fontsize=_style.SMALL,
            **frame,
        )
        return
    labels = [str(handle.get_label()) for handle in handles]
    columns = _style.legend_columns(labels, figure.get_figwidth())
    figure.legend(handles=handles, loc="upper right", ncols=columns, fontsize=9, **frame)
