"""The Matplotlib figures of a report, as SVG in the font and colours of the page."""

import io
import re
import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from bayestree import plots
from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.inequality import in_words
from bayestree._utils.wording import counted, isolated
from bayestree.plots import _style
from bayestree.report.html.study import Study
from bayestree.report.rows import Rows
from bayestree.tables import Column, Dates, Statistics

PANEL = (2.75, 2.05)  # inches of a small panel
PLOT = (4.6, 3.3)  # of a single figure
SCATTER = (3.3, 2.9)  # of a pair of features
FIRST = 6  # nodes in figures with a panel for each
EXPERTS = 3  # nodes whose experts are shown
PAIRS = 3  # features in the pair plots
JITTER = 0.25  # of a point around the place of its category
LEVEL = 0.9  # inches of the name of a level
LETTERS = 24  # of the names of levels, from which they are turned
POINTS = 600  # maximum number of rows of a scatter plot
CURVE = 300  # maximum number of rows of a curve of sorted rows
MANY = 400  # points of a scatter plot above which they are drawn as an image
LEVELS = np.linspace(0.1, 0.9, 9)
MARKERS = "osD^vP*X"
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # keep text as text, for screen readers, search and copying
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.linewidth": 0.7,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}
# Colours of plots that follow the light or dark setting of the page.
PAGE = {
    "#222222": "var(--ink)",
    "#000000": "var(--ink)",
    "#6e6e6e": "var(--quiet)",
    "#ffffff": "var(--paper)",
    "#dadada": "var(--band)",
    "#e9e9e9": "var(--band)",
    "#0072b2": "var(--accent-fill)",
    "#d55e00": "var(--doubt-fill)",
}
FONT = re.compile(r"'DejaVu Sans'[^;\"]*")
HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
UNUSED = re.compile(r"<style.*?</style>|<metadata>.*?</metadata>", re.DOTALL)
GROUP = re.compile(r'<g id="[^"]*"')  # ids that recur in every figure
OPENING = re.compile(r"<svg [^>]*>")


def picture(
    draw: Callable[[Axes], object],
    width: float,
    height: float,
    alt: str,
    *,
    legend: bool = True,
    on_paper: bool = False,
) -> Markup:
    """Draw a figure as SVG, with its width and height in inches and an alternative text.

    ``on_paper`` keeps the white background, which colour maps need.
    """
    settings: Any = SETTINGS | {"svg.hashsalt": f"{alt}{width}{height}"}  # ids of one figure
    with mpl.rc_context(settings):
        layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
        figure = Figure(figsize=(width, height), layout=layout)
        ax = figure.subplots()
        draw(ax)
        box = ax.get_legend()
        if box is not None and not legend:
            box.remove()
        return _svg(figure, alt, on_paper=on_paper)


def _svg(figure: Figure, alt: str, *, on_paper: bool) -> Markup:
    """A figure as SVG whose style is confined to its elements."""
    for ax in figure.axes:
        for points in ax.collections:
            if len(np.asarray(points.get_offsets())) > MANY:
                points.set_rasterized(True)
    _disable_formulas(figure)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The browser draws the text with its own fonts, in any script.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(buffer, format="svg", transparent=not on_paper, metadata={"Date": None})
    svg = UNUSED.sub("", HEAD.sub("", buffer.getvalue()))
    svg = FONT.sub("var(--sans)", GROUP.sub("<g", svg))
    if not on_paper:
        for colour, variable in PAGE.items():
            svg = svg.replace(colour, variable)
    width, height = (72 * float(side) for side in figure.get_size_inches())
    kind = "plot paper" if on_paper else "plot"
    opening = (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" width="{width * 4 / 3:.0f}" '
        f'height="{height * 4 / 3:.0f}" role="img" aria-label="{escape(alt)}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    # Matplotlib escapes the texts of the figure.
    return Markup(OPENING.sub(lambda _: opening, svg, count=1))


def _disable_formulas(figure: Figure) -> None:
    """Keep dollar signs in names instead of reading them as TeX."""
    for label in figure.findobj(Text):
        label.set_parse_math(False)
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log":  # Matplotlib writes its tick labels as formulas
                for label in axis.get_ticklabels(which="both"):
                    label.set_parse_math(True)


def first_nodes(study: Study, most: int = FIRST) -> list[int]:
    """Nodes that most rows reach, in the order of the tree."""
    rows = study.tree.topology.sum_below(study.tree.leaf_rows)
    return sorted(np.argsort(-rows, kind="stable")[:most].tolist())


def shrinkage(study: Study, node: int) -> Markup:
    """Sorted weights of the experts of a node, with their prior."""
    found = study.shrinkage
    assert found is not None
    low, middle, high = np.quantile(found.effective[:, :, node], [0.05, 0.5, 0.95])
    alt = (
        f"Sorted weights of the experts of node {found.labels[node]}, posterior and prior; "
        f"effective number of weights {middle:.1f}, 90 % interval {low:.1f} to {high:.1f}"
    )
    return picture(lambda ax: plots.shrinkage(found, node, ax), *PLOT, alt)


def shrinkage_factors(study: Study, node: int) -> Markup | None:
    """Shrinkage of each coefficient of a node; None if it is not known."""
    found = study.shrinkage
    assert found is not None
    known = ~np.isnan(found.kappa[node]).all(axis=-1)
    if not known.any():
        return None
    used = [found.feature_names[j] for j in found.features_in_use(node)]
    n_features = len(used)
    n_experts = max(1, int((known & found.counts[node]).sum()))
    names = 0.075 * max(map(len, used)) if n_features <= 40 else 0.4
    size = min(2.0 + 0.26 * n_features, 9.4), 0.5 + max(0.3 * n_experts, 1.2) + names
    label = found.labels[node]
    alt = f"Shrinkage factors of the coefficients of node {label}, one row per expert"
    return picture(lambda ax: plots.shrinkage_factors(found, node, ax), *size, alt, on_paper=True)


def split_uncertainty(study: Study, nodes: list[int]) -> list[Markup]:
    """P(right) of the rows at some nodes, sorted."""
    assert study.evaluated is not None
    rows, found = study.evaluated, study.uncertainty
    assert found is not None
    figures = []
    for node in nodes:
        alt = (
            f"Probability of the right side at node {found.labels[node]} of "
            f"{counted(len(rows), 'row')}, sorted"
        )
        draw = partial(plots.split_uncertainty, found, None, None, nodes=[node])
        figures.append(picture(draw, *PANEL, alt, legend=False))
    return figures


def elbo(study: Study) -> Markup | None:
    """Trace of the evidence lower bound, if it was recorded."""
    stats = study.bayesian.posterior_.stats
    if "elbo" not in stats:
        return None
    trace = np.asarray(stats["elbo"])
    ends = f"from {trace[0]:.0f} to {trace[-1]:.0f} nats"
    alt = f"Evidence lower bound over {len(trace)} epochs, {ends}"
    return picture(lambda ax: plots.elbo(study.bayesian, ax), *PLOT, alt)


def calibration(study: Study) -> Markup:
    """Reliability diagram."""
    found = study.calibration
    assert found is not None
    alt = (
        f"Reliability diagram of {found.n_rows} rows: share of correct predictions against "
        f"probability, expected calibration error {found.ece.value:.3f}"
    )
    return picture(lambda ax: plots.calibration(found, ax), 4.0, 4.1, alt, legend=False)


def boundary(study: Study) -> Markup:
    """Map of a tree of two features, with some of the rows."""
    rows = None if study.scored is None else study.scored.sample(POINTS)
    alt = f"Map of {' and '.join(study.features)} with borders and facets of the tree"
    X, y = (None, None) if rows is None else (rows.matrix, rows.y)
    return picture(
        lambda ax: plots.boundary(study.bayesian, X, y, ax, resolution=200),
        5.4, 4.9, alt, on_paper=True,
    )  # fmt: skip


class Scale(NamedTuple):
    """The name of a column in a plot, where its rows are, and the names of levels at 0, 1, ..."""

    name: str
    at: AnyArray
    levels: tuple[str, ...] = ()


def pairs(study: Study, columns: list[int]) -> list[Markup]:
    """Scatter plots of pairs of columns, with misclassified rows marked."""
    assert study.scored is not None
    rows = study.scored.sample(POINTS)
    matrix, encoding = rows.matrix, study.encoding
    scales = [_scale(encoding.columns[j], matrix[:, encoding.places[j]], j) for j in columns]
    figures = []
    for pair in combinations(scales, 2):
        alt = f"{counted(len(rows), 'row')} by {' and '.join(one.name for one in pair)}"
        draw = partial(_pair, study=study, rows=rows, pair=pair)
        figures.append(picture(draw, *SCATTER, alt))
    return figures


def _scale(column: Column, block: FloatArray, seed: int) -> Scale:
    """Values of a column, from its features (n, k): categories are spread around their places."""
    if not column.levels or isinstance(column, Statistics):
        values: AnyArray = block[:, 0]
        if column.gaps:
            values = np.where(block[:, -1] > 0, np.nan, values)
        name = column.labels[0]
        if isinstance(column, Dates) and column.parts[0] == "days":
            name, values = column.name, pd.to_datetime(values, unit="D").to_numpy()
        return Scale(isolated(name), values)
    levels = [*column.levels, *([None] if column.gaps else [])]
    known = column.encode(pd.Series(levels, dtype=object))
    place = np.abs(block[:, None] - known).sum(axis=-1).argmin(axis=1)
    spread = np.random.default_rng(seed).uniform(-JITTER, JITTER, len(block))
    return Scale(isolated(column.name), place + spread, tuple(in_words(one, 3) for one in levels))


def _pair(ax: Axes, *, study: Study, rows: Rows, pair: tuple[Scale, Scale]) -> None:
    x, y = pair[0].at, pair[1].at
    style: dict[str, Any] = {"s": 15, "linewidths": 0.4, "edgecolors": "white", "alpha": 0.85}
    assert rows.y is not None
    if study.classifies:
        wrong = study.estimator.predict(rows.X) != rows.y
        for label, colour in enumerate(_style.class_colours(len(study.classes))):
            members = rows.y == study.labels[label]
            marker = MARKERS[label % len(MARKERS)]
            ax.scatter(x[members], y[members], color=[colour], marker=marker, zorder=2, **style)
        ring: dict[str, Any] = {"s": 46, "facecolors": "none", "linewidths": 1.0, "zorder": 3}
        ax.scatter(x[wrong], y[wrong], edgecolors=_style.INK, **ring)
    else:
        shade = ax.scatter(x, y, c=rows.y.astype(float), cmap=_style.VALUES, zorder=2, **style)
        ax.figure.colorbar(shade, ax=ax, label=study.target, aspect=25)
    for axis, scale in ((ax.xaxis, pair[0]), (ax.yaxis, pair[1])):
        axis.set_label_text(scale.name)
        if scale.levels:
            names = [_style.cut(name, _style.SMALL, LEVEL) for name in scale.levels]
            axis.set_ticks(np.arange(len(names)), names)
        elif scale.at.dtype.kind == "M":
            _style.date_ticks(axis, 5)
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if len("".join(pair[0].levels)) > LETTERS:
        ax.tick_params(axis="x", rotation=90)
    _style.open_frame(ax)


def predicted(study: Study) -> Markup:
    """Observed against predicted values of a regression, with intervals if there are any."""
    assert study.scored is not None
    rows = study.scored.sample(CURVE)
    alt = f"Observed against predicted values of {counted(len(rows), 'row')}"
    return picture(lambda ax: _predicted(ax, study, rows), 4.2, 4.0, alt)


def _predicted(ax: Axes, study: Study, rows: Rows) -> None:
    assert rows.y is not None
    value, y = study.expected(rows), rows.y.astype(np.float64)
    ends = [float(min(value.min(), y.min())), float(max(value.max(), y.max()))]
    ax.plot(ends, ends, color=_style.INK, linewidth=1.0, linestyle="--", zorder=1)
    if study.has_draws:
        low, high = study.interval(rows, 0.9)
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
    """Share of the scored rows inside their intervals, for each of ``LEVELS``."""
    if not study.has_draws or study.scored is None or study.classifies:
        return None
    rows = study.scored.sample()
    inside = (study.bayesian.in_interval(rows.X, rows.response, float(one)) for one in LEVELS)
    return np.array([float(one.mean()) for one in inside])


def coverage(inside: FloatArray, n: int) -> Markup:
    """Share of rows inside their intervals against the probability of the intervals."""
    alt = f"Share of {n} rows inside their intervals against the probability of the intervals"

    def draw(ax: Axes) -> None:
        error = 2 * np.sqrt(LEVELS * (1 - LEVELS) / n)
        ax.fill_between(LEVELS, LEVELS - error, LEVELS + error, color="#DADADA", linewidth=0)
        ax.plot([0, 1], [0, 1], color=_style.INK, linewidth=1.0, linestyle="--")
        ax.plot(LEVELS, inside, color=_style.POSTERIOR, marker="o", markersize=5, linewidth=1.4)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set(xlabel="probability of the interval", ylabel="share of rows inside")
        _style.open_frame(ax)

    return picture(draw, 4.0, 3.8, alt)
