"""Matplotlib's figures as part of a page: in its font, and in its colours by day and by night."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

DRAWING: dict[str, Any] = {
    "svg.fonttype": "none",  # text is text: it can be read aloud, searched and copied
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.linewidth": 0.7,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}
# Colours of the pictures that are the page's own: ink, what is quiet, paper, the prior's band.
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
MANY = 400  # points of a scatter above which they are an image
FONT = re.compile(r"'DejaVu Sans'[^;\"]*")
HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
ABOUT = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
GROUP = re.compile(r'<g id="[^"]*"')  # names that are the same in every figure
OPENING = re.compile(r"<svg [^>]*>")


def picture(
    draw: Callable[[Axes], object],
    width: float,
    height: float,
    spoken: str,
    *,
    legend: bool = True,
    on_paper: bool = False,
) -> Markup:
    """What a function draws, as SVG.

    Parameters
    ----------
    draw : callable
        Draws on the Axes it is given.
    width, height : float
        In inches.
    spoken : str
        What is to be seen, for those who do not.
    legend : bool
        Whether a legend is left inside.
    on_paper : bool
        Keep white for white, as a map of colours needs.
    """
    own: Any = DRAWING | {"svg.hashsalt": f"{spoken}{width}{height}"}  # names are of one picture
    with mpl.rc_context(own):
        figure = Figure(
            figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
        )
        ax = figure.subplots()
        draw(ax)
        box = ax.get_legend()
        if box is not None and not legend:
            box.remove()
        return written(figure, spoken, on_paper=on_paper)


def written(figure: Figure, spoken: str, *, on_paper: bool = False) -> Markup:
    """A figure as SVG that has no style of its own outside its elements."""
    for ax in figure.axes:
        for points in ax.collections:
            if len(np.asarray(points.get_offsets())) > MANY:
                points.set_rasterized(True)
    _without_formulas(figure)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The browser draws the text, in whatever script, by fonts of its own.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(buffer, format="svg", transparent=not on_paper, metadata={"Date": None})
    text = HEAD.sub("", buffer.getvalue())
    for pattern in (STYLE, ABOUT):
        text = pattern.sub("", text)
    text = GROUP.sub("<g", text)
    text = FONT.sub("var(--sans)", text)
    if not on_paper:
        for drawn, own in PAGE.items():
            text = text.replace(drawn, own)
    width, height = (72 * float(side) for side in figure.get_size_inches())
    kind = "plot paper" if on_paper else "plot"
    opening = (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" width="{width * 4 / 3:.0f}" '
        f'height="{height * 4 / 3:.0f}" role="img" aria-label="{escape(spoken)}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    # Matplotlib escapes what is text in it.
    return Markup(OPENING.sub(lambda _: opening, text, count=1))


def _without_formulas(figure: Figure) -> None:
    """Let dollar signs be dollar signs: names are a person's own, and seldom TeX."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log":  # whose numbers Matplotlib writes as formulas
                for label in axis.get_ticklabels(which="both"):
                    label.set_parse_math(True)
