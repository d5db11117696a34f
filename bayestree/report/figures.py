"""The figures of a report: plots, as SVG in the font and colours of the page."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.layout_engine import ConstrainedLayoutEngine

from bayestree import plots
from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import CONTROL, counted, in_words, isolated
from bayestree.description import TreeDescription
from bayestree.diagnostics import Calibration, Shrinkage, SplitUncertainty
from bayestree.inference import Posterior
from bayestree.plots._node_panels import SIGNED
from bayestree.plots._node_views import NodeView
from bayestree.plots._polytopes import NAME, RARE, draw_sizes
from bayestree.plots._predictions import (
    Scale,
    draw_classes,
    draw_coverage,
    draw_predicted,
    draw_values,
)
from bayestree.plots._tree import NodePlace, draw_branch
from bayestree.report.rows import LabelledRows
from bayestree.report.study import LEVELS, Study, percent
from bayestree.tables import Column, Dates, Statistics

PANEL = (2.75, 2.05)  # inches of a small panel
PLOT = (4.6, 3.3)  # of a single figure
SCATTER = (3.3, 2.9)  # of a pair of features
SIZES = (2.2, 1.7)  # of the probabilities of sizes
FIRST = 6  # nodes in figures with a panel for each
EXPERTS = 3  # nodes whose experts are shown
PAIRS = 3  # features in the pair plots
JITTER = 0.25  # of a point around the place of its category
POINTS = 600  # maximum number of rows of a scatter plot
CURVE = 300  # maximum number of rows of a curve of sorted rows
MANY = 400  # points of a scatter plot above which they are drawn as an image
IMAGE_DPI = 160  # of points that are drawn as an image
IMAGE = 112  # pixels of the longer side of an image
SETTINGS: dict[str, Any] = {
    "text.usetex": False,
    "text.parse_math": False,  # keep dollar signs in names instead of reading them as TeX
    "svg.fonttype": "none",  # keep text as text, for screen readers, search and copying
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.linewidth": 0.7,
}
# Colours of plots that follow the light or dark setting of the page.
PAGE = {
    "#222222": "var(--ink)",
    "#000000": "var(--ink)",
    "#6e6e6e": "var(--quiet)",
    "#ffffff": "var(--paper)",
    "#dadada": "var(--band)",
    "#e9e9e9": "var(--band)",
    "#b8b8b8": "var(--link)",
    "#0072b2": "var(--accent-fill)",
    "#d55e00": "var(--doubt-fill)",
}
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)
FONT = re.compile(r"font-family: [^;]*; ?")  # that of the page is inherited
DIGITS = re.compile(r"(\.\d\d)\d+")  # of lengths: a hundredth of a point is enough
LENGTHS = ("d", "x", "y", "cx", "cy", "points", "width", "height")


class Group(NamedTuple):
    """What the page says of a drawn node or leaf: its kind, its text, and where it is described.

    Without an ``anchor`` it is no link; ``sheet`` is the anchor of the sheet that it opens.
    """

    kind: str
    title: str
    anchor: str = ""
    sheet: str = ""


def picture(
    draw: Callable[[Axes], object],
    size: tuple[float, float],
    alt: str,
    *,
    legend: bool = True,
    on_paper: bool = False,
    salt: str = "",
) -> Markup:
    """Draw a figure as SVG, with its width and height in inches and an alternative text.

    ``salt`` makes its ids differ from those of an equal figure.

    ``on_paper`` keeps the white background, which colour maps need.
    """
    with page_style(salt=f"{alt}{size[0]}{size[1]}{salt}"):
        layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
        figure = Figure(figsize=size, layout=layout)
        ax = figure.subplots()
        draw(ax)
        box = ax.get_legend()
        if box is not None and not legend:
            box.remove()
        svg = _svg(figure, "plot paper" if on_paper else "plot", on_paper=on_paper)
    svg.set("role", "img")
    return _markup(svg, alt, on_paper=on_paper)


def branch(
    described: TreeDescription,
    boxes: Mapping[int, str | NodeView],
    places: Sequence[NodePlace],
    groups: Mapping[str, Group],
    sides: tuple[str, str],
    alt: str,
) -> Markup:
    """Draw a part of a tree as SVG, whose ``groups`` by their paths link to the page.

    The boxes must be measured, and the tree drawn, in ``page_style``.
    """
    ax, _ = draw_branch(described, boxes, places, sides=sides)
    for one in (*ax.lines, *ax.patches):
        one.set_clip_on(False)
    figure: Any = ax.figure
    figure.set_layout_engine("none")
    ax.set_position((0.0, 0.0, 1.0, 1.0))
    linked = any(one.anchor for one in groups.values())
    svg = _svg(figure, "tree upright" if linked else "tree still")
    _link(svg, groups)
    svg.set("role", "group")
    svg.set("style", f"--drawn: {svg.get('width')}px")
    return _markup(svg, alt)


@contextmanager
def page_style(salt: str = "") -> Iterator[None]:
    """Draw as the page needs it; ``salt`` makes the ids of figures differ.

    That the font lacks letters does not matter: the browser draws the text with its own fonts.
    """
    settings: Any = SETTINGS | {"svg.hashsalt": salt}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def _svg(figure: Figure, kind: str, *, on_paper: bool = False) -> ElementTree.Element:
    """Write a figure as an SVG element without styles, metadata and names of other groups."""
    for ax in (axes := list[Any](figure.axes)):
        axes += ax.child_axes
        ax.patch.set_visible(on_paper)
        for points in ax.collections:
            if len(np.asarray(points.get_offsets())) > MANY:
                points.set_rasterized(True)
    _log_ticks(figure)
    figure.patch.set_visible(on_paper)
    file = io.StringIO()
    figure.dpi = IMAGE_DPI
    FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    svg = ElementTree.fromstring(CONTROL.sub(" ", file.getvalue()))
    _compact(svg)
    width, height = (96 * float(side) for side in figure.get_size_inches())  # in pixels
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}"}
    svg.attrib = {"class": kind, "viewBox": svg.get("viewBox", ""), **size}
    return svg


def _compact(svg: ElementTree.Element) -> None:
    """Leave out what shows nothing: metadata, styles, names and empty groups, spaces, decimals."""
    kept = []
    for one in svg:
        _compact(one)
        kind = one.tag.removeprefix(f"{{{SVG}}}")
        if kind == "g" and not one.get("id", "").startswith(("at-", "to-")):
            one.attrib.pop("id", None)
            kept += [one] if one.attrib else [*one]
        elif kind not in ("metadata", "style") and (kind != "defs" or len(one)):
            kept.append(one)
    svg[:] = kept
    for one in kept:
        one.tail = None
        one.text = (one.text or "").strip() or None
        _shorten(one.attrib)


def _shorten(attributes: dict[str, str]) -> None:
    """Leave out the font, as the page has its own, rotations by 0, spaces and decimals."""
    if attributes.get("transform", "").startswith("rotate(-0 "):
        attributes.pop("transform")
    if "style" in attributes:
        attributes["style"] = FONT.sub("", attributes["style"])
    for name in LENGTHS:
        if name in attributes:
            attributes[name] = DIGITS.sub(r"\1", " ".join(attributes[name].split()))


def _link(svg: ElementTree.Element, groups: Mapping[str, Group]) -> None:
    """Join the parts of each node and leaf to a link with its description, and name the links."""
    for parent in [*svg.iter()]:
        found: dict[str, ElementTree.Element] = {}
        for part in [*parent]:
            kind, _, name = part.get("id", "").partition("-")
            path = name.partition(".")[0]
            if kind not in ("at", "to"):
                continue
            part.attrib.pop("id")
            group = groups[path]
            if kind == "to":
                part.attrib |= {"class": "link", "data-to": group.anchor}
                continue
            if path not in found:
                found[path] = _target(group)
                parent.append(found[path])
            parent.remove(part)
            found[path].append(part)


def _target(group: Group) -> ElementTree.Element:
    """Make the element around the parts of a node or leaf."""
    known = {"class": group.kind}
    if group.anchor:
        known |= {"href": f"#{group.anchor}", "data-at": group.anchor, "aria-label": group.title}
    if group.sheet:
        known["data-sheet"] = group.sheet
    found = ElementTree.Element(f"{{{SVG}}}{'a' if group.anchor else 'g'}", known)
    ElementTree.SubElement(found, f"{{{SVG}}}title").text = group.title
    return found


def _markup(svg: ElementTree.Element, alt: str, *, on_paper: bool = False) -> Markup:
    """Write an SVG element with an alternative text, in the font and colours of the page."""
    svg.set("aria-label", alt)
    title = ElementTree.Element(f"{{{SVG}}}title")
    title.text = alt
    svg.insert(0, title)
    written = ElementTree.tostring(svg, encoding="unicode")
    for name in (f' xmlns="{SVG}"', f' xmlns:xlink="{XLINK}"'):  # HTML knows them
        written = written.replace(name, "", 1)
    if not on_paper:
        for colour, variable in PAGE.items():
            written = written.replace(colour, variable)
    return Markup(written)  # ElementTree has escaped all texts


def _log_ticks(figure: Figure) -> None:
    """Read the tick labels of logarithmic axes as formulas, as Matplotlib writes them."""
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log":
                for label in axis.get_ticklabels(which="both"):
                    label.set_parse_math(True)


def first_nodes(study: Study, most: int = FIRST) -> list[int]:
    """Return the nodes that most rows reach, in the order of the tree."""
    rows = study.tree.topology.sum_below(study.tree.leaf_rows)
    return sorted(np.argsort(-rows, kind="stable")[:most].tolist())


def shrinkage(found: Shrinkage, node: int) -> Markup:
    """Draw the sorted weights of the experts of a node, with their prior."""
    low, middle, high = np.quantile(found.effective[:, :, node], [0.05, 0.5, 0.95])
    alt = (
        f"Sorted weights of the experts of node {found.labels[node]}, posterior and prior; "
        f"effective number of weights {middle:.1f}, 90 % interval {low:.1f} to {high:.1f}"
    )
    return picture(partial(plots.shrinkage, found, node), PLOT, alt)


def shrinkage_factors(found: Shrinkage, node: int) -> Markup | None:
    """Draw the shrinkage of each coefficient of a node, if it is known."""
    known = ~np.isnan(found.kappa[node]).all(axis=-1)
    if not known.any():
        return None
    used = [found.feature_names[j] for j in found.features_in_use(node)]
    n_features = len(used)
    n_experts = max(1, int((known & found.counts[node]).sum()))
    names = min(NAME, 0.075 * max(map(len, used))) if n_features <= 40 else 0.4
    size = min(2.0 + 0.26 * n_features, 9.4), 0.5 + max(0.3 * n_experts, 1.2) + names
    label = found.labels[node]
    alt = f"Shrinkage factors of the coefficients of node {label}, one row per expert"
    return picture(partial(plots.shrinkage_factors, found, node), size, alt, on_paper=True)


def split_uncertainty(found: SplitUncertainty, nodes: list[int]) -> list[Markup]:
    """Draw P(right) of the rows at some nodes, sorted."""
    figures, rows = [], counted(len(found.mean), "row")
    for node in nodes:
        alt = f"Probability of the right side at node {found.labels[node]} of {rows}, sorted"
        draw = partial(plots.split_uncertainty, found, None, None, nodes=[node])
        figures.append(picture(draw, PANEL, alt, legend=False))
    return figures


def elbo(posterior: Posterior) -> Markup | None:
    """Draw the trace of the evidence lower bound, if it was recorded."""
    if "elbo" not in posterior.stats:
        return None
    trace = np.asarray(posterior.stats["elbo"])
    ends = f"from {trace[0]:.0f} to {trace[-1]:.0f} nats"
    unit = "step" if "n_steps" in posterior.stats else "epoch"
    alt = f"Evidence lower bound over {counted(len(trace), unit)}, {ends}"
    return picture(partial(plots.elbo, posterior), PLOT, alt)


def calibration(found: Calibration) -> Markup:
    """Draw the reliability diagram."""
    alt = (
        f"Reliability diagram of {found.n_rows} rows: share of correct predictions against "
        f"probability, expected calibration error {found.ece.value:.3f}"
    )
    return picture(partial(plots.calibration, found), (4.0, 4.1), alt, legend=False)


def boundary(study: Study) -> Markup:
    """Draw the map of a tree of two features, with some of the rows."""
    rows = None if study.scored is None else study.scored.sample(POINTS)
    alt = f"Map of {' and '.join(study.features)} with borders and facets of the tree"
    X, y = (None, None) if rows is None else (rows.matrix, rows.y)
    draw = partial(plots.boundary, study.estimator, X, y, resolution=200)
    return picture(draw, (5.4, 4.9), alt, on_paper=True)


def pairs(study: Study, rows: LabelledRows, columns: list[int]) -> list[Markup]:
    """Draw scatter plots of pairs of columns, with misclassified rows marked."""
    rows, encoding = rows.sample(POINTS), study.encoding
    matrix = rows.matrix
    scales = [_scale(encoding.columns[j], matrix[:, encoding.places[j]], j) for j in columns]
    figures = []
    for pair in combinations(scales, 2):
        alt = f"{counted(len(rows), 'row')} by {' and '.join(one.name for one in pair)}"
        draw = partial(_pair, study=study, rows=rows, pair=pair)
        figures.append(picture(draw, SCATTER, alt))
    return figures


def _scale(column: Column, block: FloatArray, seed: int) -> Scale:
    """Return a column's values, from its features (n, k), with categories spread around places."""
    found = column_scale(column, block)
    if not found.levels:
        return found
    spread = np.random.default_rng(seed).uniform(-JITTER, JITTER, len(block))
    return Scale(found.name, found.places + spread, found.levels)


def column_scale(column: Column, block: FloatArray) -> Scale:
    """Return a column's values from its features (n, k): numbers, times or places of levels."""
    if not column.levels or isinstance(column, Statistics):
        is_dated = isinstance(column, Dates)
        values = pd.Series(column.decoded(block), dtype="datetime64[ns]" if is_dated else float)
        return Scale(isolated(column.name if is_dated else column.labels[0]), values.to_numpy())
    levels = [*column.levels, *([None] if column.gaps else [])]
    known = column.encode(pd.Series(levels, dtype=object))
    place = np.abs(block[:, None] - known).sum(axis=-1).argmin(axis=1)
    return Scale(isolated(column.name), place, tuple(in_words(one, 3) for one in levels))


def _pair(ax: Axes, *, study: Study, rows: LabelledRows, pair: tuple[Scale, Scale]) -> None:
    if not study.classifies:
        draw_values(ax, *pair, rows.target.astype(float), study.target)
        return
    label = np.full(len(rows), -1)
    for number, name in enumerate(study.labels):
        label[rows.y == name] = number
    wrong = study.estimator.predict(rows.X) != rows.y
    draw_classes(ax, *pair, label, wrong, len(study.classes))


def predicted(study: Study, rows: LabelledRows) -> Markup:
    """Draw observed against predicted values of a regression, with intervals if there are any."""
    rows = rows.sample(CURVE)
    draw = partial(
        draw_predicted,
        predicted=study.expected(rows),
        observed=rows.target.astype(np.float64),
        interval=study.interval(rows, 0.9) if study.has_draws else None,
        target=study.target,
    )
    alt = f"Observed against predicted values of {counted(len(rows), 'row')}"
    return picture(draw, (4.2, 4.0), alt)


def coverage(inside: FloatArray, n_rows: int) -> Markup:
    """Draw the shares of rows in their intervals of some levels."""
    alt = f"Share of {n_rows} rows inside their intervals against the probability of the intervals"
    draw = partial(draw_coverage, levels=LEVELS, inside=inside, n_rows=n_rows)
    return picture(draw, (4.0, 3.8), alt)


def sizes(posterior: FloatArray, prior: FloatArray | None, title: str) -> Markup:
    """Draw the probabilities of 0, 1, ... facets or leaves, with the prior as an outline."""
    alt = f"{title}: {most_probable(posterior)}"
    draw = partial(draw_sizes, posterior=posterior, prior=prior)
    return picture(draw, SIZES, alt, legend=False)


def most_probable(posterior: FloatArray) -> str:
    """List the most probable sizes with their probabilities, in words."""
    return ", ".join(
        f"{size} with {percent(float(posterior[size]))}"
        for size in sorted(np.argsort(-posterior, kind="stable")[:4].tolist())
        if posterior[size] > RARE
    )


def grey_image(
    values: FloatArray, low: float, high: float, shape: tuple[int, int], alt: str
) -> Markup:
    """Show numbers as shades of grey, from white at ``low`` to black at ``high``."""
    place = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return _image(mpl.colormaps["Greys"](place), shape, alt)


def signed_image(values: FloatArray, shape: tuple[int, int], alt: str) -> Markup:
    """Show numbers of both signs as an image: red above 0, blue below, white at 0."""
    top = float(np.abs(values).max())
    place = 0.5 + 0.5 * values / top if top > 0 else np.full(len(values), 0.5)
    return _image(mpl.colormaps[SIGNED](place), shape, alt)


def _image(colours: FloatArray, shape: tuple[int, int], alt: str) -> Markup:
    """Show colours (pixels, 4) as an image without smoothing."""
    height, width = shape
    raster = np.rint(255 * colours[:, :3]).astype(np.uint8).reshape(height, width, 3)
    file = io.BytesIO()
    imsave(file, raster, format="png", metadata={"Software": ""})
    data = base64.b64encode(file.getvalue()).decode()
    scale = IMAGE / max(shape)
    size = f'width="{round(scale * width)}" height="{round(scale * height)}"'
    source = f"data:image/png;base64,{data}"
    # numbers and letters of base 64 need no escape
    return Markup(f'<img class="pixels" {size} src="{source}" alt="{escape(alt)}">')
