"""A tree of two features as a map: probabilities, borders and facets."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from bayestree.plots import _style
from bayestree.tree import LOG2, Tree, facet_threshold

Floats = NDArray[np.float64]

MARGIN = 0.06  # of the range of the rows, on every side
REACH = 2.5  # standard deviations shown where there are no rows
SHADE = 0.55  # strength of the colour of a certain class
POINT: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.4, "zorder": 4}
FACET: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2.5)), "alpha": 0.75, "zorder": 2}
STEPS = 600  # points of a facet, to find where its node is reached


class _Window(NamedTuple):
    """The rectangle shown, and a grid over it."""

    low: Floats
    high: Floats
    x: Floats
    y: Floats

    @property
    def rows(self) -> Floats:
        """Points of the grid, shape (r * r, 2)."""
        return np.stack([side.ravel() for side in np.meshgrid(self.x, self.y)], axis=1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return len(self.y), len(self.x)


def boundary(
    estimator: Any,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    resolution: int = 300,
) -> Axes:
    """Map of a tree fitted to two features.

    The shade is what ``predict_proba`` (``predict``, for a regressor) says: full colour where it
    is sure of a class, white where all classes are as likely. Solid lines are the borders of the
    deterministic tree. Dashed lines are the facets of each node: the half-spaces that contain
    its inner side, drawn where they bound it.

    Parameters
    ----------
    estimator : fitted classifier or regressor
    X : array, shape (n, 2), optional
        Rows to draw; they also set the window, which otherwise is that of most training rows.
    y : array, shape (n,), optional
        Classes or values of the rows, shown by their colour.
    ax : Axes, optional
    resolution : int
        Points of the grid on each side.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the tree does not have two features, or X and y do not match.
    """
    tree = _style.tree_of(estimator)
    if tree.n_features != 2:
        raise ValueError(
            f"boundary draws trees of 2 features, this one has {tree.n_features}; fit two "
            "columns, or use plots.tree."
        )
    rows = None if X is None else np.asarray(X, dtype=np.float64)
    target = None if y is None else np.asarray(y)
    _check_rows(rows, target)
    ax = ax or _style.new_axes(5.0, 4.4)
    window = _window(tree, rows, resolution)
    classifies = tree.value.ndim == 2
    (_shade_classes if classifies else _shade_values)(ax, estimator, tree, window)
    _borders(ax, tree, window)
    if rows is not None:
        _points(ax, estimator, tree, rows, target)
    _frame(ax, tree, window)
    return ax


def _check_rows(rows: Floats | None, target: NDArray[Any] | None) -> None:
    if rows is None:
        if target is not None:
            raise ValueError("y is given without X, the rows it belongs to.")
        return
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise ValueError(f"X must have shape (n, 2), got {rows.shape}.")
    if target is not None and target.shape != (len(rows),):
        raise ValueError(f"y must have shape ({len(rows)},) as X has rows, got {target.shape}.")


def _window(tree: Tree, rows: Floats | None, resolution: int) -> _Window:
    if rows is None or len(rows) == 0:
        low, high = tree.center - REACH * tree.scale, tree.center + REACH * tree.scale
    else:
        low, high = rows.min(axis=0), rows.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        low, high = low - MARGIN * width, high + MARGIN * width
    x, y = (np.linspace(low[j], high[j], resolution) for j in range(2))
    return _Window(low, high, x, y)


def _named(estimator: Any, rows: Floats) -> Any:
    """Rows with the names that the estimator was fitted with, so that it does not warn."""
    names = getattr(estimator, "feature_names_in_", None)
    return rows if names is None else pd.DataFrame(rows, columns=list(names))


def _shade_classes(ax: Axes, estimator: Any, tree: Tree, window: _Window) -> None:
    if hasattr(estimator, "predict_proba"):
        probability = estimator.predict_proba(_named(estimator, window.rows))
    else:
        probability = tree.predict(window.rows)
    n_classes = probability.shape[1]
    sure = (probability.max(axis=1, keepdims=True) - 1 / n_classes) / (1 - 1 / n_classes)
    ink = 1 - probability @ _style.class_colours(n_classes)
    image = (1 - SHADE * sure * ink).clip(0, 1).reshape(*window.shape, 3)
    ax.imshow(image, origin="lower", extent=_extent(window), aspect="auto", zorder=0)


def _shade_values(ax: Axes, estimator: Any, tree: Tree, window: _Window) -> None:
    rows = window.rows
    value = tree.predict(rows) if estimator is tree else estimator.predict(_named(estimator, rows))
    image = ax.imshow(
        value.reshape(window.shape),
        origin="lower",
        extent=_extent(window),
        aspect="auto",
        cmap=_style.VALUES,
        zorder=0,
    )
    ax.figure.colorbar(image, ax=ax, label="expected value")


def _extent(window: _Window) -> tuple[float, float, float, float]:
    left, bottom = (float(v) for v in window.low)
    right, top = (float(v) for v in window.high)
    return left, right, bottom, top


def _borders(ax: Axes, tree: Tree, window: _Window) -> None:
    """Where each node splits at 1/2, on the part of the plane that reaches it, and its facets."""
    rows = window.rows
    for node, reached, _ in tree.walk(rows):
        score = np.full(len(rows), np.nan)
        score[reached] = tree.score(node, rows[reached])
        finite = score[reached]
        if finite.min() < LOG2 < finite.max():
            field = score.reshape(window.shape)
            ax.contour(
                window.x, window.y, field, [LOG2], colors=_style.INK, linewidths=1.6, zorder=3
            )
        for segment in _facets(tree, node, window):
            ax.plot(*segment.T, color=_style.INK, **FACET)


def _facets(tree: Tree, node: int, window: _Window) -> Iterator[Floats]:
    """The segments on which each facet of a node bounds its polytope; gaps are nan."""
    own = tree.experts(node)
    normal = tree.hyperplane[own]
    bound = facet_threshold(tree.weight[own]) - tree.intercept[own]
    # The sides of the window bound like facets do.
    normals = np.concatenate([normal, np.eye(2), -np.eye(2)])
    bounds = np.concatenate([bound, window.high, -window.low])
    for k in range(len(normal)):
        ends = _clip(normals, bounds, k)
        if ends is None:
            continue
        segment = np.linspace(*ends, STEPS)
        segment[~_reaches(tree, node, segment)] = np.nan
        if np.isfinite(segment).any():
            yield segment


def _clip(normals: Floats, bounds: Floats, k: int) -> tuple[Floats, Floats] | None:
    """Ends of the part of the line normal_k . x = bound_k where all other bounds hold."""
    squared = float(normals[k] @ normals[k])
    if squared == 0:
        return None
    foot = normals[k] * (bounds[k] / squared)
    along = np.array([-normals[k, 1], normals[k, 0]]) / np.sqrt(squared)
    others = np.arange(len(normals)) != k
    slope = normals[others] @ along
    room = bounds[others] - normals[others] @ foot
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = room / slope
    low = cut[slope < 0].max(initial=-np.inf)
    high = cut[slope > 0].min(initial=np.inf)
    if (room[slope == 0] < 0).any() or not low < high:
        return None
    return foot + low * along, foot + high * along


def _reaches(tree: Tree, node: int, rows: Floats) -> NDArray[np.bool_]:
    """Whether each row reaches a node."""
    for found, reached, _ in tree.walk(rows):
        if found == node:
            member = np.zeros(len(rows), dtype=bool)
            member[reached] = True
            return member
    return np.zeros(len(rows), dtype=bool)


def _points(
    ax: Axes, estimator: Any, tree: Tree, rows: Floats, target: NDArray[Any] | None
) -> None:
    if target is None:
        ax.scatter(rows[:, 0], rows[:, 1], color=_style.INK, s=_point_size(rows), **POINT)
    elif tree.value.ndim == 2:
        _class_points(ax, estimator, tree, rows, target)
    else:
        _value_points(ax, rows, target)


def _point_size(rows: Floats) -> float:
    """Area of a point: less where there are many."""
    return float(np.clip(14 * (500 / max(len(rows), 1)) ** 0.5, 3.0, 18.0))


def _class_points(ax: Axes, estimator: Any, tree: Tree, rows: Floats, target: NDArray[Any]) -> None:
    names = _style.class_names(tree)
    labels = getattr(estimator, "classes_", np.arange(len(names)))
    colours = _style.class_colours(len(names))
    for label, name, colour in zip(labels, names, colours, strict=True):
        own = rows[target == label]
        ax.scatter(own[:, 0], own[:, 1], color=colour, label=name, s=_point_size(rows), **POINT)
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(len(names), 5),
        markerscale=1.4,
        frameon=False,
        handletextpad=0.1,
    )


def _value_points(ax: Axes, rows: Floats, target: NDArray[Any]) -> None:
    # On the scale of the shade, so that a point that vanishes is one that is predicted well.
    shade = ax.images[-1]
    ax.scatter(rows[:, 0], rows[:, 1], c=shade.to_rgba(target), s=_point_size(rows), **POINT)


def _frame(ax: Axes, tree: Tree, window: _Window) -> None:
    left, right, bottom, top = _extent(window)
    ax.set(xlim=(left, right), ylim=(bottom, top))
    first, second = _style.feature_names(tree)
    ax.set(xlabel=first, ylabel=second)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
