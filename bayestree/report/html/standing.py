"""A tree as interactive SVG with its root above: for wide screens and paper."""

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup

from bayestree.report.html import words
from bayestree.report.html.drawing import (
    BAR,
    TEXT,
    Place,
    leaf_bar,
    link_to,
    weight,
    whole,
)
from bayestree.report.html.labels import Labels
from bayestree.report.html.sheets import Sheet
from bayestree.report.html.svg import element, lines

SLOT = (80.0, 200.0)  # width of a tip, by how many there are
PAGE, BESIDE = 1140.0, 560.0  # width that the tips share: of many, and of few
FEW = 4  # tips of a small sheet
LEVEL, TOP, BELOW = 56.0, 6.0, 74.0  # below a node, above the root, below a tip
BOX, LINE = 42.0, 16.0  # height of a node with two lines, and of a line
PAD, WIDEST = 9.0, 300.0  # beside the text of a node, most width


def is_small(sheet: Sheet) -> bool:
    """Whether a sheet leaves room for a text beside it."""
    return len(sheet.tips) <= FEW


def standing(labels: Labels, sheet: Sheet) -> Markup:
    """A sheet with its root above."""
    shared = BESIDE if is_small(sheet) else PAGE
    slot = float(np.clip(shared / len(sheet.tips), *SLOT))
    places = _places(labels, sheet, slot)
    width = slot * len(sheet.tips)
    height = max(place.y for place in places.values()) + BELOW
    parts = [*_links(labels, sheet, places)]
    for place in places.values():
        if place.child < 0:
            parts.append(_leaf(labels, place, slot))
        elif place.child in sheet.nodes:
            room = _room(labels, sheet, place.child, slot)
            parts.append(_node(labels, place, room, width))
        else:
            parts.append(_branch(labels, place, slot))
    return whole("standing", width, height, labels, sheet, parts)


def _places(labels: Labels, sheet: Sheet, slot: float) -> dict[int, Place]:
    topology = labels.tree.topology
    first = topology.node_depth[sheet.root] if sheet.root >= 0 else 0
    above = {child: node for node in sheet.nodes for child in topology.children[node].tolist()}
    top, level = TOP + _tall(labels) / 2, LEVEL + _tall(labels)
    places = {}
    for rank, tip in enumerate(sheet.tips):
        depth = (topology.node_depth[tip] if tip >= 0 else topology.leaf_depth[~tip]) - first
        places[tip] = Place(tip, slot * (rank + 0.5), top + level * float(depth), above.get(tip))
    for node in reversed(sheet.nodes):
        ends = [places[child].x for child in topology.children[node].tolist()]
        depth = float(topology.node_depth[node] - first)
        places[node] = Place(node, sum(ends) / 2, top + level * depth, above.get(node))
    return dict(sorted(places.items(), key=lambda item: (item[1].y, item[1].x)))


def _tall(labels: Labels) -> float:
    """Height of a node."""
    return BOX + (LINE if labels.posterior else 0.0)


def _room(labels: Labels, sheet: Sheet, node: int, slot: float) -> float:
    """Width that a node may take: that of the tips below it, and no less than one and a half."""
    below, waiting = 0, [node]
    while waiting:
        child = waiting.pop()
        if child in sheet.nodes:
            waiting += labels.tree.topology.children[child].tolist()
        else:
            below += 1
    return max(below * slot - 16, 1.5 * slot)


def _links(labels: Labels, sheet: Sheet, places: dict[int, Place]) -> Iterator[Markup]:
    for place in places.values():
        if place.above is None:
            continue
        start = places[place.above]
        above = (
            BAR if place.child < 0 else _tall(labels) / 2 if place.child in sheet.nodes else BOX / 2
        )
        begin, end = start.y + _tall(labels) / 2, place.y - above
        middle = (begin + end) / 2
        bend = f"{start.x:.1f} {middle:.1f} {place.x:.1f} {middle:.1f}"
        path = f"M{start.x:.1f} {begin:.1f}C{bend} {place.x:.1f} {end:.1f}"
        yield element(
            "path", d=path, class_="link", stroke_width=weight(labels, place.child),
            data_to=f"{labels.prefix}{labels.path(place.child)}",
        )  # fmt: skip
        if start.child == sheet.root:
            left = place.x < start.x
            yield element(
                "text", words.side_of(labels.path(place.child), labels.sides),
                x=(start.x + 3 * place.x) / 4 + (-12 if left else 12), y=begin + 20,
                text_anchor="end" if left else "start", class_="side",
            )  # fmt: skip


def _node(labels: Labels, place: Place, room: float, end: float) -> Markup:
    """A node as a box no wider than its room, inside a drawing that is ``end`` wide."""
    room, tall = min(room, WIDEST) - 2 * PAD, _tall(labels)
    rows = words.count(labels.rows_of(place.child), "row")
    said = [(words.cut(labels.nodes[place.child], TEXT, room), "asks")]
    if labels.posterior:
        said.append((words.cut(labels.posterior[place.child], TEXT - 1, room), "rows"))
    said.append((rows, "rows"))
    width = max(words.width(text, TEXT) for text, _ in said) + 2 * PAD
    middle = float(np.clip(place.x, width / 2 + 1, max(end - width / 2 - 1, width / 2 + 1)))
    corner = (middle - width / 2, place.y - tall / 2)
    inside = [
        element("rect", x=corner[0], y=corner[1], width=width, height=tall, rx=5, class_="box"),
        lines(middle, corner[1] + 17, said, LINE, text_anchor="middle"),
    ]
    if labels.unsure is not None and labels.unsure[place.child] > 0:
        share = float(labels.unsure[place.child]) * (width - 10)
        inside.append(
            element("rect", x=corner[0] + 5, y=corner[1] + tall - 3.5, width=max(share, 1.5),
                    height=3.0, class_="unsure")
        )  # fmt: skip
    return link_to(labels, place.child, *inside, kind="node")


def _leaf(labels: Labels, place: Place, slot: float) -> Markup:
    width = min(slot - 14, 104.0)
    left = place.x - width / 2
    says = words.wrapped(labels.leaf_text(~place.child), TEXT, slot - 8)
    text = [(line, "asks") for line in says]
    text.append((words.count(labels.rows_of(place.child), "row"), "rows"))
    tall = 26 + LINE * len(text)
    hit = element(
        "rect", x=left - 4, y=place.y - BAR - 4, width=width + 8, height=tall, class_="hit"
    )
    return link_to(
        labels,
        place.child,
        hit,
        leaf_bar(labels, ~place.child, left, place.y - BAR, width, BAR),
        lines(place.x, place.y + 18, text, LINE, text_anchor="middle"),
        kind="leaf",
    )


def _branch(labels: Labels, place: Place, slot: float) -> Markup:
    """A branch that is closed, and where it is continued."""
    path = labels.path(place.child)
    n_leaves = len(labels.tree.topology.subtree_leaves(place.child))
    width = min(slot - 6, 104.0)
    leaves = words.count(n_leaves, "leaf", "leaves")
    text = [
        (leaves if words.width(leaves, TEXT) < width else f"{n_leaves:,}", "asks"),
        (words.count(labels.rows_of(place.child), "row"), "rows"),
    ]
    more = element(
        "text", "\N{BLACK DOWN-POINTING SMALL TRIANGLE}", x=place.x, y=place.y + BOX / 2 + 14,
        text_anchor="middle", class_="asks",
    )  # fmt: skip
    box = element(
        "rect", x=place.x - width / 2, y=place.y - BOX / 2, width=width, height=BOX, rx=5,
        class_="box",
    )  # fmt: skip
    return link_to(
        labels,
        place.child,
        box,
        more,
        lines(place.x, place.y - 4, text, 16, text_anchor="middle"),
        kind="branch",
        sheet=f"{labels.prefix}{path}",
    )
