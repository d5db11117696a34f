"""Small charts beside the text, in the colours of the page."""

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree.report.html import words
from bayestree.report.html.svg import element, lines

STACK = (240.0, 12.0)  # width and height of a bar of classes
COLUMN, TALL, FOOT = 22.0, 84.0, 30.0  # of a bar of a size: width, height, room for the numbers
RARE = 0.005  # sizes at either end that are no more probable are not shown
BINS = 30  # of a histogram, as many on either side
HISTOGRAM = (360.0, 96.0)


def stack(shares: FloatArray, spoken: str) -> Markup:
    """Shares of the classes as parts of a bar."""
    width, height = STACK
    parts, start = [], 0.0
    for label, share in enumerate(shares.tolist()):
        if share > 0:
            parts.append(
                element("rect", x=f"{start:.2f}", width=f"{width * share:.2f}", height=height,
                        fill=f"var(--c{label})")
            )  # fmt: skip
            start += width * share
    frame = element("rect", width=width, height=height, class_="frame")
    return _chart("stack", width, height, spoken, [*parts, frame])


def on_track(value: float, low: float, high: float, spoken: str) -> Markup:
    """A value as a place between two others."""
    width, height = STACK
    share = (value - low) / (high - low) if high > low else 0.5
    place = height / 2 + share * (width - height)
    return _chart("stack", width, height, spoken, [
        element("line", x1=0.0, x2=width, y1=height / 2, y2=height / 2, class_="track"),
        element("circle", cx=place, cy=height / 2, r=height / 2, class_="mean"),
    ])  # fmt: skip


def sizes(posterior: FloatArray, prior: FloatArray | None, spoken: str) -> Markup:
    """Bars of the posterior of a number, the prior as an outline.

    Parameters
    ----------
    posterior, prior : arrays, shape (sizes,)
        Probability of 0, 1, ...
    """
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
        parts.append(_outline(prior, low, high, column, top))
    every = max(1, int(np.ceil(16 / column)))
    for size in range(low, high + 1, every):
        middle = 1 + column * (size - low + 0.5)
        parts.append(lines(middle, TALL + 15, [(str(size), "tick")], 0, text_anchor="middle"))
    parts.append(element("line", x1=0.0, x2=width, y1=TALL, y2=TALL, class_="axis"))
    return _chart("sizes", width, height, spoken, parts)


def _outline(prior: FloatArray, low: int, high: int, column: float, top: float) -> Markup:
    """Steps over the prior of each size."""
    path = f"M1 {TALL:g}"
    for size in range(low, high + 1):
        tall = (TALL - 16) * (float(prior[size]) if size < len(prior) else 0.0) / top
        path += f"V{TALL - tall:.1f}H{1 + column * (size - low + 1):.1f}"
    return element("path", d=f"{path}V{TALL:g}", class_="prior")


def histogram(
    margin: FloatArray,
    labels: NDArray[np.int64] | None,
    sides: tuple[str, str],
    ticks: tuple[str, str] | None,
    spoken: str,
) -> Markup:
    """Rows by how far on either side of a border they are, in the colours of their classes.

    Parameters
    ----------
    margin : array, shape (n,)
        Above 0 on the right.
    labels : array of int, shape (n,), optional
        Class of each row.
    sides : (str, str)
    ticks : (str, str), optional
        What is written at the two ends.
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
    middle = width / 2
    parts += [
        element("line", x1=0.0, x2=width, y1=height, y2=height, class_="axis"),
        element("line", x1=middle, x2=middle, y1=0.0, y2=height, class_="border"),
        lines(middle - 8, height + 16, [(f"\N{LEFTWARDS ARROW} {sides[0]}", "tick")], 0,
              text_anchor="end"),
        lines(middle + 8, height + 16, [(f"{sides[1]} \N{RIGHTWARDS ARROW}", "tick")], 0),
    ]  # fmt: skip
    if ticks is not None:
        parts += [
            lines(0.0, height + 16, [(ticks[0], "tick")], 0),
            lines(width, height + 16, [(ticks[1], "tick")], 0, text_anchor="end"),
        ]
    return _chart("histogram", width, height + 22, spoken, parts)


def said_sizes(posterior: FloatArray) -> str:
    """The likeliest sizes with their probabilities."""
    order = np.argsort(-posterior, kind="stable")[:4]
    return ", ".join(
        f"{size} with {words.percent(float(posterior[size]))}"
        for size in sorted(order.tolist())
        if posterior[size] > RARE
    )


def _chart(kind: str, width: float, height: float, spoken: str, parts: list[Markup]) -> Markup:
    return element(
        "svg", *parts, class_=f"chart {kind}", viewBox=f"0 0 {width:g} {height:g}",
        width=width, height=height, role="img", aria_label=spoken,
    )  # fmt: skip
