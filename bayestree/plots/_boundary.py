"""Map of a tree with two features: probabilities, borders and facets."""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.description import FittedModel, has_draws, tree_of
from bayestree.diagnostics.draws import tails
from bayestree.plots import _style
from bayestree.routed_tree import RoutedTree
from bayestree.tree import LOG2, Tree, facet_threshold

MARGIN = 0.06  # margin around the rows, as a share of their range
REACH = 2.5  # standard deviations shown if no rows are given
SHADE = 0.55  # colour strength of a class with probability 1
SHADED: dict[str, Any] = {
    "origin": "lower",
    "aspect": "auto",
    "interpolation": "bilinear",
    "zorder": 0,
}
POINT: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.4, "zorder": 4}
SIZE = 5.0, 4.4  # figure size in inches
BESIDE = 0.75  # inches to the left of the map
TICKS = 6  # maximum number of intervals between ticks
MANY_DRAWS = 100  # with more draws, the shading and the band use a coarser grid, ...
MIN_RESOLUTION = 80  # ... of at least this many points per side
COARSE = 2  # the band is smooth: every second grid point suffices
BORDER: dict[str, Any] = {"linewidths": 1.6, "zorder": 5}  # above the rows
BAND: dict[str, Any] = {"alpha": 0.2, "zorder": 1}
EDGE: dict[str, Any] = {"linewidths": 0.8, "linestyles": "dotted", "zorder": 1.5}
FACET: dict[str, Any] = {
    "linewidths": 0.9,
    "linestyles": [(0, (4, 2.5))],
    "alpha": 0.75,
    "zorder": 2,
}
CERTAIN = 1e-12  # probabilities are clipped to [CERTAIN, 1 - CERTAIN]


class _Window(NamedTuple):
    """The rectangle shown, and a grid over it."""

    low: FloatArray
    high: FloatArray
    x: FloatArray
    y: FloatArray

    @property
    def rows(self) -> FloatArray:
        """Points of the grid, shape (r * r, 2)."""
        return np.stack([side.ravel() for side in np.meshgrid(self.x, self.y)], axis=1)

    def grid(self, values: FloatArray) -> FloatArray:
        """Return values at ``rows`` as a grid, shape (r, r, ...)."""
        return values.reshape(len(self.y), len(self.x), *values.shape[1:])

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top."""
        return self.low[0], self.high[0], self.low[1], self.high[1]


@_style.literal
def boundary(
    estimator: FittedModel | RoutedTree,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    resolution: int = 300,
    band: bool = True,
    level: float = 0.9,
    region: str | None = None,
) -> Axes:
    """Draw the map of a tree that was fitted to two features.

    The shading shows ``predict_proba`` (``predict`` for a regressor): full colour where one class
    is certain, white where all classes are equally likely. Solid lines are the borders of the
    deterministic tree. Dashed lines are the facets of each node: the half-spaces that contain
    its inner side, drawn where they bound it. In the grey band, the side is undecided: the credible
    interval of P(right) contains 1/2. With ``region`` it is the band of a node or leaf instead: at
    least 95 % of the draws send what lies within its solid edge there, and at least 5 % what lies
    within its dotted edge (see ``rule_probability``).

    Parameters
    ----------
    estimator : fitted classifier or regressor
    X : array, shape (n, 2), optional
        Rows to draw; they also set the window, which otherwise covers most training rows.
    y : array, shape (n,), optional
        Classes or values of the rows, shown by colour.
    ax : Axes, optional
    resolution : int
        Grid points per side; shading and band use fewer if there are more than 100 draws.
    band : bool
        Whether to draw the credible band of each border, if there are several draws.
    level : float
        Probability of the band.
    region : str, optional
        Path of a node or leaf from the root, such as ``"LR"``.

    Raises
    ------
    ValueError
        If the tree does not have two columns of complete numbers, X and y do not match, ``level``
        is not between 0 and 1, or there is no such ``region`` or no posterior for it.
    """
    tree = tree_of(estimator)
    bayesian = cast(Any, estimator) if has_draws(estimator) else None
    encoding = getattr(estimator, "encoding_", None)
    if encoding is not None and not encoding.is_plain:
        raise ValueError(
            "boundary draws two columns of numbers without missing values, but this tree was "
            "fitted to others; use plots.tree."
        )
    if tree.n_features != 2:
        raise ValueError(
            f"boundary draws trees with 2 features, but this one has {tree.n_features}; fit two "
            "columns, or use plots.tree."
        )
    if region is not None and bayesian is None:
        raise ValueError("region needs the draws of a posterior, but this tree has none.")
    rows = None if X is None else np.asarray(X, dtype=np.float64)
    target = None if y is None else np.asarray(y)
    _check_rows(rows, target)
    is_new = ax is None
    ax = ax or _style.new_axes(*SIZE)
    window = _window(tree, rows, resolution)
    shaded = _window(tree, rows, _draw_resolution(bayesian, resolution))
    (_shade_classes if tree.value.ndim == 2 else _shade_values)(ax, estimator, shaded)
    if band and bayesian is not None:
        coarse = _window(tree, rows, max(len(shaded.x) // COARSE, 2))
        if region is None:
            _bands(ax, bayesian, tree, coarse, level)
        else:
            _region(ax, bayesian, coarse, level, region)
    _borders(ax, tree, window)
    if rows is not None:
        _points(ax, estimator, tree, rows, target)
    _legend(ax, is_new=is_new)
    left, right, bottom, top = window.extent
    first, second = tree.feature_labels
    ax.set(xlim=(left, right), ylim=(bottom, top), xlabel=first, ylabel=second)
    ax.locator_params(nbins=TICKS)
    _style.open_frame(ax)
    return ax


def _check_rows(rows: FloatArray | None, target: NDArray[Any] | None) -> None:
    if rows is None:
        if target is not None:
            raise ValueError("y is given without X; pass the rows as X too.")
        return
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise ValueError(f"X must have shape (n, 2), got {rows.shape}.")
    if target is not None and target.shape != (len(rows),):
        raise ValueError(f"y must have shape ({len(rows)},) to match X, got {target.shape}.")


def _window(tree: RoutedTree, rows: FloatArray | None, resolution: int) -> _Window:
    if rows is None or len(rows) == 0:
        low, high = tree.center - REACH * tree.scale, tree.center + REACH * tree.scale
    else:
        low, high = rows.min(axis=0), rows.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        low, high = low - MARGIN * width, high + MARGIN * width
    x, y = (np.linspace(low[j], high[j], resolution) for j in range(2))
    return _Window(low, high, x, y)


def _with_names(estimator: object, rows: FloatArray) -> Any:
    """Give rows the feature names of the fit, which avoids a warning."""
    names = getattr(estimator, "feature_names_in_", None)
    return rows if names is None else pd.DataFrame(rows, columns=list(names))


def _shade_classes(ax: Axes, estimator: FittedModel | RoutedTree, window: _Window) -> None:
    predict = getattr(estimator, "predict_proba", None) or estimator.predict
    probability = predict(_with_names(estimator, window.rows))
    n_classes = probability.shape[1]
    certainty = (probability.max(axis=1, keepdims=True) - 1 / n_classes) / (1 - 1 / n_classes)
    ink = 1 - probability @ _style.class_colours(n_classes)
    image = window.grid((1 - SHADE * certainty * ink).clip(0, 1))
    ax.imshow(image, extent=window.extent, **SHADED)


def _shade_values(ax: Axes, estimator: FittedModel | RoutedTree, window: _Window) -> None:
    value = estimator.predict(_with_names(estimator, window.rows))
    image = ax.imshow(window.grid(value), extent=window.extent, cmap=_style.VALUES, **SHADED)
    ax.figure.colorbar(image, ax=ax, label="expected value")


def _draw_resolution(bayesian: Any, resolution: int) -> int:
    """Choose the points per side at which draws are averaged: fewer if there are many draws."""
    if bayesian is None:
        return resolution
    posterior = bayesian.posterior_
    share = np.sqrt(MANY_DRAWS / (posterior.n_chains * posterior.n_draws))
    return int(np.clip(resolution * share, min(MIN_RESOLUTION, resolution), resolution))


def _bands(ax: Axes, bayesian: Any, tree: RoutedTree, window: _Window, level: float) -> None:
    """Draw the regions in which the side of each node is undecided in the posterior."""
    rows = _with_names(bayesian, window.rows)
    interval = bayesian.split_uncertainty(rows, level=level).interval
    # The colour map of values contains all greys, so the band is white there.
    colour = _style.INK if tree.value.ndim == 2 else "white"
    for field in _band_fields(tree, interval, window.rows):
        if field.min() < 0 < field.max():
            grid = window.grid(field)
            ax.contourf(window.x, window.y, grid, [field.min(), 0], colors=[colour], **BAND)
            ax.contour(window.x, window.y, grid, [0], colors=[colour], **EDGE)
    key: dict[str, Any] = {"facecolor": to_rgba(colour, BAND["alpha"]), "edgecolor": _style.INK}
    ax.fill([], [], label=f"{level:.0%} band", linestyle=":", linewidth=0.8, **key)


def _region(ax: Axes, bayesian: Any, window: _Window, level: float, region: str) -> None:
    """Draw the inner and the outer region of a node or leaf in the posterior."""
    found = bayesian.rule_probability(_with_names(bayesian, window.rows), level=level)
    if region not in found.labels:
        raise ValueError(f"region must be one of {', '.join(found.labels)}, got {region!r}.")
    share = window.grid(found.region[:, found.labels.index(region)])
    edges: dict[str, Any] = {"colors": [_style.DOUBT], "linewidths": 1.4, "zorder": 5}
    ax.contourf(window.x, window.y, share, tails(level), colors=[_style.INK], **BAND)
    for edge, line in zip(tails(level), ("dotted", "solid"), strict=True):
        if share.min() < edge < share.max():
            ax.contour(window.x, window.y, share, [edge], linestyles=[line], **edges)
        label = f"{region} in {100 * edge:.3g} % of draws"
        ax.plot([], [], color=_style.DOUBT, linestyle=line, linewidth=1.4, label=label)


def _borders(ax: Axes, tree: RoutedTree, window: _Window) -> None:
    """Draw the border P(right) = 1/2 of each node where the node is reached, and its facets."""
    rows = window.rows
    for node, reached, _ in tree.walk(rows):
        _border(ax, tree, window, reached, tree.score(node, rows[reached]) - LOG2, BORDER)
        if isinstance(tree, Tree):
            at = tree.experts(node)
            activation = rows[reached] @ tree.hyperplane[at].T + tree.intercept[at]
            beyond = (activation - facet_threshold(tree.weight[at])).max(axis=1)
            _border(ax, tree, window, reached, beyond, FACET)


def _border(
    ax: Axes,
    tree: RoutedTree,
    window: _Window,
    reached: IntArray,
    beyond: FloatArray,
    style: dict[str, Any],
) -> None:
    """Draw where a function of the rows that reach a node is 0, as far as they lie on both sides.

    On the map of values, which is dark in places, lines have a white outline.
    """
    if beyond.min() < 0 < beyond.max():
        field = np.full(len(window.x) * len(window.y), np.nan)
        field[reached] = beyond
        lines = ax.contour(
            window.x, window.y, window.grid(field), [0], colors=[_style.INK], **style
        )
        if tree.value.ndim == 1:
            wide = style["linewidths"] + 1
            lines.set_path_effects([withStroke(linewidth=wide, foreground="white")])


def _points(
    ax: Axes,
    estimator: FittedModel | RoutedTree,
    tree: RoutedTree,
    rows: FloatArray,
    target: NDArray[Any] | None,
) -> None:
    """Draw the rows, smaller if there are many, in the colours of their classes or values."""
    style = POINT | {"s": float(np.clip(14 * (500 / max(len(rows), 1)) ** 0.5, 3.0, 18.0))}
    if target is None:
        ax.scatter(*rows.T, color=_style.INK, **style)
        return
    if tree.value.ndim == 1:
        shade = ax.images[-1]  # the same colour scale: well-predicted points blend in
        ax.scatter(rows[:, 0], rows[:, 1], c=shade.to_rgba(target), **style)
        return
    names = tree.class_labels
    labels = getattr(estimator, "classes_", np.arange(len(names)))
    colours = _style.class_colours(len(names))
    for label, name, colour in zip(labels, names, colours, strict=True):
        ax.scatter(*rows[target == label].T, color=colour, label=name, **style)


def _legend(ax: Axes, *, is_new: bool) -> None:
    """Explain the classes, then the band, above the map. New figures grow to make room."""
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        return
    order = sorted(range(len(labels)), key=lambda k: handles[k] in ax.patches)
    room = SIZE[0] - 2 * _style.PAD - BESIDE if is_new else _style.width_of(ax)
    texts = [_style.cut(labels[k], 9, room - 2 * _style.LEGEND_HANDLE) for k in order]
    columns = _style.legend_columns(texts, room)
    lines = -(-len(texts) // columns)
    if is_new:
        figure: Any = ax.figure
        figure.set_size_inches(SIZE[0], SIZE[1] + _style.LEGEND_LINE * (lines - 1))
    ax.legend(
        _style.line_by_line([handles[k] for k in order], columns),
        _style.line_by_line(texts, columns),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=columns,
        markerscale=1.4,
        frameon=False,
        fontsize=9,
        columnspacing=1.2,
        handletextpad=0.4,
        handlelength=1.2,
    )


def _band_fields(tree: RoutedTree, interval: FloatArray, rows: FloatArray) -> Iterator[FloatArray]:
    """Yield a field (n,) for each node, negative in its band and continuous across the edge.

    In the band, the credible interval (n, V, 2) of P(right) at ``rows`` contains 1/2; the band
    ends where the deterministic tree does not reach the node.
    """
    low, high = np.moveaxis(logit(interval.clip(CERTAIN, 1 - CERTAIN)), -1, 0)
    # beyond[v] is negative where the path to v is taken; a maximum intersects such regions.
    beyond = np.full((tree.n_nodes, len(rows)), -np.inf)
    for node, pair in enumerate(tree.topology.children):
        yield np.maximum(np.maximum(low[:, node], -high[:, node]), beyond[node])
        outside = np.log(np.maximum(tree.score(node, rows), np.finfo(np.float64).tiny) / LOG2)
        for child, side in zip(pair, (outside, -outside), strict=True):
            if child >= 0:
                beyond[child] = np.maximum(beyond[node], side)
