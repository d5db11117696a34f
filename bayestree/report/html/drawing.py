"""What both drawings of a tree share: links to descriptions, bars of leaves, widths."""

from typing import NamedTuple

from markupsafe import Markup

from bayestree.report.html import words
from bayestree.report.html.labels import Labels
from bayestree.report.html.sheets import Sheet
from bayestree.report.html.svg import element, title

TEXT = 12.0  # size of the text, in pixels; that of the second line is one less
BAR = 12.0  # height of the bar of a leaf
LINK = (1.2, 13.0)  # widths of links without rows and with all


class Place(NamedTuple):
    """Where a node or tip of a sheet is."""

    child: int
    x: float
    y: float
    above: int | None  # the node that it hangs from


def whole(
    kind: str, width: float, height: float, labels: Labels, sheet: Sheet, parts: list[Markup]
) -> Markup:
    """A drawing of a sheet from its parts."""
    name = f"Tree from {labels.path(sheet.root)}: {words.count(len(sheet.nodes), 'split')} drawn"
    return element(
        "svg", *parts, class_=f"tree {kind}", viewBox=f"0 0 {width:g} {height:g}",
        width=width, height=height, style=f"--drawn: {width:g}px", role="group", aria_label=name,
    )  # fmt: skip


def link_to(
    labels: Labels, child: int, *inside: Markup, kind: str, sheet: str | None = None
) -> Markup:
    """A node or leaf that can be chosen: a link to its description."""
    path, spoken = labels.path(child), labels.spoken(child)
    return element(
        "a", title(spoken), *inside, href=f"#{labels.prefix}{path}", class_=kind,
        data_at=f"{labels.prefix}{path}", data_sheet=sheet, aria_label=spoken,
    )  # fmt: skip


def weight(labels: Labels, child: int) -> float:
    """Width of the link to a node or leaf: as its rows, drawn from the least width."""
    share = labels.rows_of(child) / max(float(labels.tree.leaf_rows.sum()), 1e-300)
    return LINK[0] + (LINK[1] - LINK[0]) * share


def leaf_text(labels: Labels, leaf: int, room: float) -> str:
    """What a leaf predicts; of a class too long for the room the beginning."""
    text = labels.leaf_text(leaf)
    if labels.tree.value.ndim == 1 or words.width(text, TEXT) <= room:
        return words.cut(text, TEXT, room)
    name, probability = text.rsplit(" ", 1)
    return f"{words.cut(name, TEXT, room - words.width(probability + ' ', TEXT))} {probability}"


def leaf_bar(labels: Labels, leaf: int, x: float, y: float, width: float, height: float) -> Markup:
    """The classes of a leaf as parts of a bar; a mean as a place between the least and largest."""
    value = labels.tree.value
    if value.ndim == 1:
        low, high = float(value.min()), float(value.max())
        share = (float(value[leaf]) - low) / (high - low) if high > low else 0.5
        middle = y + height / 2
        track = element("line", x1=x, x2=x + width, y1=middle, y2=middle, class_="track")
        return track + element(
            "circle", cx=x + share * width, cy=middle, r=height / 2, class_="mean"
        )
    parts, start = [], x
    for label, share in enumerate(value[leaf].tolist()):
        if share > 0:
            parts.append(
                element("rect", x=f"{start:.2f}", y=y, width=f"{width * share:.2f}", height=height,
                        fill=f"var(--c{label})")
            )  # fmt: skip
            start += width * share
    return Markup("").join(parts) + element(
        "rect", x=x, y=y, width=width, height=height, class_="frame"
    )
