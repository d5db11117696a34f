"""The figures of a report."""

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from bayestree import plots
from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics import SplitUncertainty
from bayestree.plots import _style
from bayestree.report.html import words
from bayestree.report.html.picture import picture
from bayestree.report.html.study import Study
from bayestree.report.rows import Rows

PANEL = (2.75, 2.05)  # inches of a small panel
PLOT = (4.6, 3.3)  # and of a figure alone
SCATTER = (3.3, 2.9)  # and of a pair of features
FIRST = 6  # nodes in figures with a panel for each
EXPERTS = 3  # nodes whose experts are shown
PAIRS = 3  # features of the pair plots
POINTS = 600  # rows of a scatter plot
CURVE = 300  # rows of a curve of sorted rows
LEVELS = np.linspace(0.1, 0.9, 9)
MARKERS = "osD^vP*X"


def first_nodes(study: Study, most: int = FIRST) -> list[int]:
    """Nodes that most rows reach, in the order of the tree."""
    rows = study.tree.topology.sum_below(study.tree.leaf_rows)
    return sorted(np.argsort(-rows, kind="stable")[:most].tolist())


def shrinkage(study: Study, node: int) -> Markup:
    """Sorted weights of the experts of a node beside their prior."""
    found = study.shrinkage
    assert found is not None
    low, middle, high = np.quantile(found.effective[:, :, node], [0.05, 0.5, 0.95])
    spoken = (
        f"Sorted weights of the experts of node {found.labels[node]}, posterior and prior; "
        f"effective number {middle:.1f}, 90 % interval {low:.1f} to {high:.1f}"
    )
    return picture(lambda ax: plots.shrinkage(found, node, ax), *PLOT, spoken)


def shrinkage_factors(study: Study, node: int) -> Markup | None:
    """How far each coefficient of a node is shrunk; None where nothing tells."""
    found = study.shrinkage
    assert found is not None
    known = ~np.isnan(found.kappa[node]).all(axis=-1)
    if not known.any():
        return None
    n_features = len(found.feature_names)
    n_experts = max(1, int((known & found.counts[node]).sum()))
    names = 0.075 * max(map(len, found.feature_names)) if n_features <= 40 else 0.4
    width = min(2.0 + 0.26 * n_features, 9.4)
    spoken = f"Shrinkage factors of the coefficients of node {found.labels[node]}, a row an expert"
    return picture(
        lambda ax: plots.shrinkage_factors(found, node, ax),
        width, 0.5 + max(0.3 * n_experts, 1.2) + names, spoken, on_paper=True,
    )  # fmt: skip


def doubt(study: Study, nodes: list[int]) -> list[Markup]:
    """P(right) of the rows at some nodes, sorted."""
    assert study.asked is not None
    rows = study.asked.sample(CURVE)
    found: SplitUncertainty = study.estimator.split_uncertainty(rows.X)
    drawn = []
    for node in nodes:
        spoken = (
            f"Probability of the right side at node {found.labels[node]} of "
            f"{words.count(len(rows), 'row')}, sorted"
        )
        draw = partial(_doubt, found=found, node=node)
        drawn.append(picture(draw, *PANEL, spoken, legend=False))
    return drawn


def _doubt(ax: Axes, *, found: SplitUncertainty, node: int) -> None:
    plots.split_uncertainty(found, ax=[ax], nodes=[node])


def elbo(study: Study) -> Markup | None:
    """Trace of the evidence lower bound, where one was climbed."""
    stats = study.estimator.posterior_.stats
    if "elbo" not in stats:
        return None
    trace = np.asarray(stats["elbo"])
    ends = f"from {trace[0]:.0f} to {trace[-1]:.0f} nats"
    spoken = f"Evidence lower bound over {len(trace)} epochs, {ends}"
    return picture(lambda ax: plots.elbo(study.estimator, ax), *PLOT, spoken)


def calibration(study: Study) -> Markup:
    """Reliability diagram."""
    found = study.calibration
    assert found is not None
    spoken = (
        f"Reliability diagram of {found.n_rows} rows: share that is right against probability, "
        f"expected calibration error {found.ece.value:.3f}"
    )
    return picture(lambda ax: plots.calibration(found, ax), 4.0, 4.1, spoken, legend=False)


def boundary(study: Study) -> Markup:
    """Map of a tree of two features, with some of the rows."""
    rows = None if study.scored is None else study.scored.sample(POINTS)
    spoken = f"Map of {' and '.join(study.features)} with borders and facets of the tree"
    X, y = (None, None) if rows is None else (rows.matrix, rows.y)
    return picture(
        lambda ax: plots.boundary(study.estimator, X, y, ax, resolution=200),
        5.4, 4.9, spoken, on_paper=True,
    )  # fmt: skip


def pairs(study: Study, chosen: list[int]) -> list[Markup]:
    """Scatter plots of pairs of features, with the rows that are predicted wrongly marked."""
    assert study.scored is not None
    rows = study.scored.sample(POINTS)
    drawn = []
    for pair in combinations(chosen, 2):
        names = " and ".join(study.features[j] for j in pair)
        spoken = f"{words.count(len(rows), 'row')} by {names}"
        draw = partial(_pair, study=study, rows=rows, pair=pair)
        drawn.append(picture(draw, *SCATTER, spoken))
    return drawn


def _pair(ax: Axes, *, study: Study, rows: Rows, pair: tuple[int, int]) -> None:
    first, second = pair
    x, y = rows.matrix[:, first], rows.matrix[:, second]
    style: dict[str, Any] = {"s": 15, "linewidths": 0.4, "edgecolors": "white", "alpha": 0.85}
    assert rows.y is not None
    if study.classifies:
        wrong = study.estimator.predict(rows.X) != rows.y
        colours = _style.class_colours(len(study.classes))
        for label, colour in enumerate(colours):
            own = rows.y == study.estimator.classes_[label]
            marker = MARKERS[label % len(MARKERS)]
            ax.scatter(x[own], y[own], color=[colour], marker=marker, zorder=2, **style)
        ring: dict[str, Any] = {"s": 46, "facecolors": "none", "linewidths": 1.0, "zorder": 3}
        ax.scatter(x[wrong], y[wrong], edgecolors=_style.INK, **ring)
    else:
        shade = ax.scatter(x, y, c=rows.y.astype(float), cmap=_style.VALUES, zorder=2, **style)
        ax.figure.colorbar(shade, ax=ax, label=study.target, aspect=25)
    ax.set(xlabel=study.features[first], ylabel=study.features[second])
    ax.locator_params(nbins=5)
    _style.open_frame(ax)


# Regression.


def predicted(study: Study) -> Markup:
    """What was observed against what was predicted, with intervals where there are any."""
    assert study.scored is not None
    rows = study.scored.sample(CURVE)
    spoken = f"Observed against predicted values of {words.count(len(rows), 'row')}"
    return picture(lambda ax: _predicted(ax, study, rows), 4.2, 4.0, spoken)


def _predicted(ax: Axes, study: Study, rows: Rows) -> None:
    assert rows.y is not None
    value, y = study.estimator.predict(rows.X), rows.y.astype(np.float64)
    ends = [float(min(value.min(), y.min())), float(max(value.max(), y.max()))]
    ax.plot(ends, ends, color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    if study.drawn:
        low, high = study.estimator.predict_interval(rows.X, 0.9)
        missed = (y < low) | (y > high)
        ax.vlines(value, low, high, color=_style.QUIET, linewidth=0.6, alpha=0.35, zorder=1)
        ax.scatter(value[missed], y[missed], s=16, color=_style.DOUBT, zorder=3, marker="D",
                   label="outside its interval")  # fmt: skip
        value, y = value[~missed], y[~missed]
    ax.scatter(value, y, s=14, color=_style.POSTERIOR, linewidths=0, alpha=0.75, zorder=2)
    ax.set(xlabel=f"predicted {study.target}", ylabel=f"observed {study.target}")
    ax.locator_params(nbins=6)
    _style.open_frame(ax)


def coverage_of(study: Study) -> FloatArray | None:
    """Share of the scored rows inside their intervals of each of ``LEVELS``."""
    if not study.drawn or study.scored is None or not hasattr(study.estimator, "predict_interval"):
        return None
    rows = study.scored.sample()
    assert rows.y is not None
    y = rows.y.astype(np.float64)
    inside = []
    for level in LEVELS:
        low, high = study.estimator.predict_interval(rows.X, float(level))
        inside.append(float(((y >= low) & (y <= high)).mean()))
    return np.array(inside)


def coverage(inside: FloatArray, n: int) -> Markup:
    """Share of the rows inside their intervals against the probability of these."""
    spoken = f"Share of {n} rows inside their intervals against the probability of the intervals"

    def draw(ax: Axes) -> None:
        error = 2 * np.sqrt(LEVELS * (1 - LEVELS) / n)
        ax.fill_between(LEVELS, LEVELS - error, LEVELS + error, color="#DADADA", linewidth=0)
        ax.plot([0, 1], [0, 1], color=_style.INK, linewidth=1.0, linestyle="--")
        ax.plot(LEVELS, inside, color=_style.POSTERIOR, marker="o", markersize=5, linewidth=1.4)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set(xlabel="probability of the interval", ylabel="share of rows inside")
        _style.open_frame(ax)

    return picture(draw, 4.0, 3.8, spoken)
