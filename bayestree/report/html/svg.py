"""SVG elements, small charts in the colours of the page, and rows of numbers as images."""

import base64
import io
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.image import imsave

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.description import TreeDescription
from bayestree.report.html import text

PLACES = 1  # decimals of a length in pixels
STACK = (240.0, 12.0)  # width and height of a bar of classes
COLUMN, TALL, FOOT = 22.0, 84.0, 30.0  # width and height of a size's bar, and room for the numbers
RARE = 0.005  # probability below which sizes at either end are not shown
BINS = 30  # number of bins of a histogram
HISTOGRAM = (360.0, 96.0)
IMAGE = 112  # pixels of the longer side of an image


def element(name: str, *inside: Any, **attributes: Any) -> Markup:
    """An element; ``class_`` is written ``class``, and underscores inside a name as hyphens.

    Attributes that are None are omitted; the content is escaped unless it is Markup.
    """
    written = "".join(
        f' {_attribute(key)}="{_written(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(escape(one) for one in inside)
    # the content is escaped above, and names are those of this package
    return Markup(f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>")


def _attribute(key: str) -> str:
    return key if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _written(value: Any) -> str:
    return f"{round(value, PLACES):g}" if isinstance(value, float) else escape(value)


def lines(x: float, y: float, texts: Iterable[tuple[str, str]], step: float, **more: Any) -> Markup:
    """Lines of text below each other, each with its class."""
    return Markup("").join(
        element("text", line, x=x, y=y + step * place, class_=kind or None, **more)
        for place, (line, kind) in enumerate(texts)
        if line
    )


def value_bar(
    described: TreeDescription, child: int, x: float, y: float, width: float, height: float
) -> Markup:
    """The class shares of a node or leaf as parts of a bar, or its mean as a dot on a track."""
    value = described.value(child)
    if not described.classifies:
        middle = y + height / 2
        place = x + height / 2 + described.position(float(value[0])) * (width - height)
        track = element("line", x1=x, x2=x + width, y1=middle, y2=middle, class_="track")
        return track + element("circle", cx=place, cy=middle, r=height / 2, class_="mean")
    bar, start = Markup(""), x
    for label, share in enumerate(value.tolist()):
        if share > 0:
            bar += element(
                "rect", x=f"{start:.2f}", y=y, width=f"{width * share:.2f}", height=height,
                fill=f"var(--c{label})",
            )  # fmt: skip
            start += width * share
    return bar + element("rect", x=x, y=y, width=width, height=height, class_="frame")


def value_chart(described: TreeDescription, child: int, alt: str) -> Markup:
    """The bar of a node or leaf as a chart of its own."""
    return _chart("stack", *STACK, alt, [value_bar(described, child, 0.0, 0.0, *STACK)])


def sizes(posterior: FloatArray, prior: FloatArray | None, title: str) -> Markup:
    """Bars of the posterior probability of 0, 1, ... facets or leaves; the prior as an outline."""
    tables = [posterior] if prior is None else [posterior, prior]
    likely = np.concatenate([np.flatnonzero(table > RARE) for table in tables])
    low, high = int(min(likely.min(), 1)), int(likely.max())
    top = max(float(table.max()) for table in tables)
    column = min(COLUMN, 300 / (high - low + 1))
    width, height = column * (high - low + 1) + 2, TALL + FOOT
    parts = []
    for size in range(low, min(high + 1, len(posterior))):
        tall = (TALL - 16) * float(posterior[size]) / top
        x = 1 + column * (size - low)
        parts.append(
            element("rect", x=x + 2, y=TALL - tall, width=column - 4, height=tall, class_="bar")
        )
    if prior is not None:
        path = f"M1 {TALL:g}"
        for size in range(low, high + 1):
            tall = (TALL - 16) * (float(prior[size]) if size < len(prior) else 0.0) / top
            path += f"V{TALL - tall:.1f}H{1 + column * (size - low + 1):.1f}"
        parts.append(element("path", d=f"{path}V{TALL:g}", class_="prior"))
    for size in range(low, high + 1, max(1, int(np.ceil(16 / column)))):
        middle = 1 + column * (size - low + 0.5)
        parts.append(lines(middle, TALL + 15, [(str(size), "tick")], 0, text_anchor="middle"))
    parts.append(element("line", x1=0.0, x2=width, y1=TALL, y2=TALL, class_="axis"))
    most_probable = ", ".join(
        f"{size} with {text.percent(float(posterior[size]))}"
        for size in sorted(np.argsort(-posterior, kind="stable")[:4].tolist())
        if posterior[size] > RARE
    )
    return _chart("sizes", width, height, f"{title}: {most_probable}", parts)


def histogram(
    margin: FloatArray,
    labels: IntArray | None,
    sides: tuple[str, str],
    ticks: tuple[str, str],
    alt: str,
) -> Markup:
    """Rows by their distance from a border, positive on the right, in the colours of their classes.

    ``ticks`` are the labels at the two ends, or empty.
    """
    width, height = HISTOGRAM
    reach = float(np.quantile(np.abs(margin), 0.98)) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    column = np.clip(np.digitize(margin, edges[1:-1]), 0, BINS - 1)
    kinds = np.zeros(len(margin), dtype=np.int64) if labels is None else labels
    table = np.zeros((int(kinds.max(initial=0)) + 1, BINS))
    np.add.at(table, (kinds, column), 1)
    step, scale = width / BINS, (height - 8) / max(table.sum(axis=0).max(), 1)
    base = np.full(BINS, height)
    parts = []
    for label, counts in enumerate(table):
        tall = scale * counts
        path = "".join(
            f"M{step * k + 0.5:.1f} {base[k]:.1f}h{step - 1:.1f}v{-tall[k]:.1f}h{1 - step:.1f}z"
            for k in np.flatnonzero(counts)
        )
        base = base - tall
        fill = "var(--bar)" if labels is None else f"var(--c{label})"
        if path:
            parts.append(element("path", d=path, fill=fill, class_="bin"))
    middle, foot = width / 2, height + 16
    left, right = f"\N{LEFTWARDS ARROW} {sides[0]}", f"{sides[1]} \N{RIGHTWARDS ARROW}"
    low, high = ticks
    parts += [
        element("line", x1=0.0, x2=width, y1=height, y2=height, class_="axis"),
        element("line", x1=middle, x2=middle, y1=0.0, y2=height, class_="border"),
        lines(middle - 8, foot, [(left, "tick")], 0, text_anchor="end"),
        lines(middle + 8, foot, [(right, "tick")], 0),
        lines(0.0, foot, [(low, "tick")], 0),
        lines(width, foot, [(high, "tick")], 0, text_anchor="end"),
    ]
    return _chart("histogram", width, height + 22, alt, parts)


def _chart(kind: str, width: float, height: float, alt: str, parts: list[Markup]) -> Markup:
    return element(
        "svg", *parts, class_=f"chart {kind}", viewBox=f"0 0 {width:g} {height:g}",
        width=width, height=height, role="img", aria_label=alt,
    )  # fmt: skip


def grey_image(
    values: FloatArray, low: float, high: float, shape: tuple[int, int], alt: str
) -> Markup:
    """Numbers as shades of grey, from white at ``low`` to black at ``high``."""
    place = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return _image(mpl.colormaps["Greys"](place), shape, alt)


def signed_image(values: FloatArray, shape: tuple[int, int], alt: str) -> Markup:
    """Numbers of both signs as an image: red above 0, blue below, white at 0."""
    top = float(np.abs(values).max())
    place = 0.5 + 0.5 * values / top if top > 0 else np.full(len(values), 0.5)
    return _image(mpl.colormaps["RdBu_r"](place), shape, alt)


def _image(colours: FloatArray, shape: tuple[int, int], alt: str) -> Markup:
    """Colours (pixels, 4) as an image without smoothing."""
    height, width = shape
    raster = np.rint(255 * colours[:, :3]).astype(np.uint8).reshape(height, width, 3)
    file = io.BytesIO()
    imsave(file, raster, format="png", metadata={"Software": ""})
    data = base64.b64encode(file.getvalue()).decode()
    scale = IMAGE / max(shape)
    size = {"width": round(scale * width), "height": round(scale * height)}
    image = element("image", href=f"data:image/png;base64,{data}", **size)
    return element(
        "svg", element("title", alt), image, class_="chart pixels", role="img",
        aria_label=alt, viewBox=f"0 0 {size['width']} {size['height']}", **size,
    )  # fmt: skip
