"""A tree as interactive SVG of lines below each other: for narrow screens."""

import numpy as np
from markupsafe import Markup

from bayestree.report.html import words
from bayestree.report.html.drawing import (
    BAR,
    TEXT,
    Place,
    leaf_bar,
    leaf_text,
    link_to,
    weight,
    whole,
)
from bayestree.report.html.labels import Labels
from bayestree.report.html.sheets import Sheet
from bayestree.report.html.svg import element, lines

ACROSS, LINE, INDENT, MARGIN = 343.0, 46.0, (10.0, 22.0), 12.0
GLYPH, SHORT = 6.0, 44.0  # half a node's mark, width of a leaf's bar
NARROWER = 2.5  # links than in a standing tree


def lying(labels: Labels, sheet: Sheet) -> Markup:
    """A sheet as lines below each other, indented by their depth."""
    places = _places(labels, sheet)
    height = LINE * len(places)
    parts = [_elbow(labels, place, places[place.above]) for place in places.values()
             if place.above is not None]  # fmt: skip
    parts += [_line(labels, sheet, place) for place in places.values()]
    return whole("lying", ACROSS, height, labels, sheet, parts)


def _places(labels: Labels, sheet: Sheet) -> dict[int, Place]:
    """Nodes and tips in the order in which they are read, parents before their children."""
    topology = labels.tree.topology
    first = topology.node_depth[sheet.root] if sheet.root >= 0 else 0
    deepest = max((int(topology.node_depth[node] - first) for node in sheet.nodes), default=0) + 1
    indent = float(np.clip(110 / deepest, *INDENT))
    places: dict[int, Place] = {}
    waiting: list[tuple[int, int | None, int]] = [(sheet.root, None, 0)]
    while waiting:
        child, above, depth = waiting.pop()
        places[child] = Place(child, MARGIN + indent * depth, LINE * (len(places) + 0.5), above)
        if child in sheet.nodes:
            left, right = topology.children[child].tolist()
            waiting += [(right, child, depth + 1), (left, child, depth + 1)]
    return places


def _elbow(labels: Labels, place: Place, above: Place) -> Markup:
    """A link down from a node and across to one below it."""
    return element(
        "path", class_="link",
        d=f"M{above.x:.1f} {above.y + GLYPH:.1f}V{place.y:.1f}H{place.x:.1f}",
        stroke_width=max(weight(labels, place.child) / NARROWER, 1.0),
        data_to=f"{labels.prefix}{labels.path(place.child)}",
    )  # fmt: skip


def _line(labels: Labels, sheet: Sheet, place: Place) -> Markup:
    """A node or tip as two lines of text behind its mark."""
    child, path = place.child, labels.path(place.child)
    side = "" if place.above is None else f"{words.side_of(path, labels.sides)} \N{MIDDLE DOT} "
    rows = f"{side}{words.count(labels.rows_of(child), 'row')}"
    hit = element(
        "rect", x=place.x - GLYPH - 3, y=place.y - LINE / 2 + 1, width=ACROSS - place.x,
        height=LINE - 2, class_="hit",
    )  # fmt: skip
    if child < 0:
        start = place.x + SHORT + 8
        mark = leaf_bar(labels, ~child, place.x, place.y - 7, SHORT, BAR)
        text = leaf_text(labels, ~child, ACROSS - start - 4)
    else:
        start = place.x + GLYPH + 8
        mark = element("circle", cx=place.x, cy=place.y, r=GLYPH, class_="box")
        text = words.cut(labels.asks(child), TEXT, ACROSS - start - 4)
    is_closed = child >= 0 and child not in sheet.nodes
    if is_closed:
        n_leaves = len(labels.tree.topology.subtree_leaves(child))
        text = f"{n_leaves} leaves \N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
    if child >= 0 and labels.unsure is not None and not is_closed and labels.unsure[child] > 0:
        rows = f"{rows} \N{MIDDLE DOT} {words.percent(float(labels.unsure[child]))} unsure"
    written = lines(start, place.y - 3, [(text, "asks"), (rows, "rows")], 16)
    kind = "leaf" if child < 0 else "branch" if is_closed else "node"
    sheet_of = f"{labels.prefix}{path}" if is_closed else None
    return link_to(labels, child, hit, mark, written, kind=kind, sheet=sheet_of)
