"""A tree as interactive SVG: standing on wide screens and paper, lying on narrow ones."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from bayestree.report.html import words
from bayestree.report.html.labels import Labels
from bayestree.report.html.sheets import Sheet
from bayestree.report.html.svg import element, lines, title

TEXT = 12.0  # size of the text, in pixels; that of the second line is one less
SLOT = (80.0, 172.0)  # width of a tip, by how many there are
PAGE, BESIDE = 940.0, 448.0  # width that the tips share: of many, and of few
LEVEL, TOP, BELOW = 98.0, 28.0, 58.0  # from a level to the next, above the root, below a tip
BOX, PAD = 42.0, 9.0  # height of a node, and what is beside its text
BAR = 12.0  # height of the bar of a leaf
LINK = (1.2, 13.0)  # widths of links without rows and with all
FEW = 4  # tips of a small sheet
# Lying:
ACROSS, LINE, INDENT, MARGIN = 343.0, 46.0, (10.0, 22.0), 12.0
GLYPH, SHORT = 6.0, 44.0  # half a node's mark, width of a leaf's bar


class Place(NamedTuple):
    """Where a node or tip of a sheet is."""

    child: int
    x: float
    y: float
    above: int | None  # the node that it hangs from


def is_small(sheet: Sheet) -> bool:
    """Whether a sheet leaves room for a text beside it."""
    return len(sheet.tips) <= FEW


def standing(labels: Labels, sheet: Sheet) -> Markup:
    """A sheet with its root above."""
    room = BESIDE if is_small(sheet) else PAGE
    slot = float(np.clip(room / len(sheet.tips), *SLOT))
    places = _standing_places(labels, sheet, slot)
    width = slot * len(sheet.tips)
    height = max(place.y for place in places.values()) + BELOW
    parts = [*_standing_links(labels, sheet, places)]
    for place in places.values():
        if place.child < 0:
            parts.append(_leaf(labels, place, slot))
        elif place.child in sheet.nodes:
            parts.append(_node(labels, place, _room(labels, sheet, place.child, slot)))
        else:
            parts.append(_branch(labels, place, slot))
    return _whole("standing", width, height, labels, sheet, parts)


def lying(labels: Labels, sheet: Sheet) -> Markup:
    """A sheet as lines below each other, indented by their depth."""
    places = _lying_places(labels, sheet)
    height = LINE * len(places)
    parts = [_elbow(labels, place, places[place.above]) for place in places.values()
             if place.above is not None]  # fmt: skip
    parts += [_line(labels, sheet, place) for place in places.values()]
    return _whole("lying", ACROSS, height, labels, sheet, parts)


def _whole(
    kind: str, width: float, height: float, labels: Labels, sheet: Sheet, parts: list[Markup]
) -> Markup:
    name = f"Tree from {labels.path(sheet.root)}: {words.count(len(sheet.nodes), 'split')} drawn"
    return element(
        "svg", *parts, class_=f"tree {kind}", viewBox=f"0 0 {width:g} {height:g}",
        width=width, height=height, role="group", aria_label=name,
    )  # fmt: skip


def _link_to(
    labels: Labels, child: int, *inside: Markup, kind: str, sheet: str | None = None
) -> Markup:
    """A node or leaf that can be chosen: a link to its description."""
    path, spoken = labels.path(child), labels.spoken(child)
    return element(
        "a", title(spoken), *inside, href=f"#{labels.prefix}{path}", class_=kind,
        data_at=f"{labels.prefix}{path}", data_sheet=sheet, aria_label=spoken,
    )  # fmt: skip


def _weight(labels: Labels, child: int) -> float:
    """Width of the link to a node or leaf: as its rows, drawn from the least width."""
    share = labels.rows_of(child) / max(float(labels.tree.leaf_rows.sum()), 1e-300)
    return LINK[0] + (LINK[1] - LINK[0]) * share


# Standing.


def _standing_places(labels: Labels, sheet: Sheet, slot: float) -> dict[int, Place]:
    topology = labels.tree.topology
    first = topology.node_depth[sheet.root] if sheet.root >= 0 else 0
    above = {child: node for node in sheet.nodes for child in topology.children[node].tolist()}
    places = {}
    for rank, tip in enumerate(sheet.tips):
        depth = (topology.node_depth[tip] if tip >= 0 else topology.leaf_depth[~tip]) - first
        places[tip] = Place(tip, slot * (rank + 0.5), TOP + LEVEL * float(depth), above.get(tip))
    for node in reversed(sheet.nodes):
        ends = [places[child].x for child in topology.children[node].tolist()]
        depth = float(topology.node_depth[node] - first)
        places[node] = Place(node, sum(ends) / 2, TOP + LEVEL * depth, above.get(node))
    return dict(sorted(places.items(), key=lambda item: (item[1].y, item[1].x)))


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


def _standing_links(labels: Labels, sheet: Sheet, places: dict[int, Place]) -> Iterator[Markup]:
    for place in places.values():
        if place.above is None:
            continue
        start = places[place.above]
        begin, end = start.y + BOX / 2, place.y - (BAR if place.child < 0 else BOX / 2)
        middle = (begin + end) / 2
        bend = f"{start.x:.1f} {middle:.1f} {place.x:.1f} {middle:.1f}"
        path = f"M{start.x:.1f} {begin:.1f}C{bend} {place.x:.1f} {end:.1f}"
        yield element(
            "path", d=path, class_="link", stroke_width=_weight(labels, place.child),
            data_to=f"{labels.prefix}{labels.path(place.child)}",
        )  # fmt: skip
        if start.child == sheet.root:
            left = place.x < start.x
            yield element(
                "text", words.side_of(labels.path(place.child), labels.sides),
                x=(start.x + 3 * place.x) / 4 + (-12 if left else 12), y=begin + 20,
                text_anchor="end" if left else "start", class_="side",
            )  # fmt: skip


def _node(labels: Labels, place: Place, room: float) -> Markup:
    most = min(room, 260.0)
    question = words.cut(labels.nodes[place.child], TEXT, most - 2 * PAD)
    rows = words.count(labels.rows_of(place.child), "row")
    width = max(words.width(question, TEXT), words.width(rows, TEXT - 1)) + 2 * PAD
    corner = (place.x - width / 2, place.y - BOX / 2)
    inside = [
        element("rect", x=corner[0], y=corner[1], width=width, height=BOX, rx=5, class_="box"),
        lines(place.x, place.y - 4, [(question, "asks"), (rows, "rows")], 16, text_anchor="middle"),
    ]
    if labels.unsure is not None and labels.unsure[place.child] > 0:
        share = float(labels.unsure[place.child]) * (width - 10)
        inside.append(
            element("rect", x=corner[0] + 5, y=corner[1] + BOX - 3.5, width=max(share, 1.5),
                    height=3.0, class_="unsure")
        )  # fmt: skip
    return _link_to(labels, place.child, *inside, kind="node")


def _leaf(labels: Labels, place: Place, slot: float) -> Markup:
    width = min(slot - 14, 104.0)
    left = place.x - width / 2
    text = [
        (_leaf_text(labels, ~place.child, slot - 8), "asks"),
        (words.count(labels.rows_of(place.child), "row"), "rows"),
    ]
    hit = element("rect", x=left - 4, y=place.y - BAR - 4, width=width + 8, height=58, class_="hit")
    return _link_to(
        labels,
        place.child,
        hit,
        leaf_bar(labels, ~place.child, left, place.y - BAR, width, BAR),
        lines(place.x, place.y + 18, text, 16, text_anchor="middle"),
        kind="leaf",
    )


def _leaf_text(labels: Labels, leaf: int, room: float) -> str:
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
    return _link_to(
        labels,
        place.child,
        box,
        more,
        lines(place.x, place.y - 4, text, 16, text_anchor="middle"),
        kind="branch",
        sheet=f"{labels.prefix}{path}",
    )


# Lying.


def _lying_places(labels: Labels, sheet: Sheet) -> dict[int, Place]:
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
        stroke_width=max(_weight(labels, place.child) / 2.5, 1.0),
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
        text = _leaf_text(labels, ~child, ACROSS - start - 4)
    else:
        start = place.x + GLYPH + 8
        mark = element("circle", cx=place.x, cy=place.y, r=GLYPH, class_="box")
        text = words.cut(labels.nodes[child], TEXT, ACROSS - start - 4)
    is_closed = child >= 0 and child not in sheet.nodes
    if is_closed:
        n_leaves = len(labels.tree.topology.subtree_leaves(child))
        text = f"{n_leaves} leaves \N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
    if child >= 0 and labels.unsure is not None and not is_closed and labels.unsure[child] > 0:
        rows = f"{rows} \N{MIDDLE DOT} {words.percent(float(labels.unsure[child]))} unsure"
    written = lines(start, place.y - 3, [(text, "asks"), (rows, "rows")], 16)
    kind = "leaf" if child < 0 else "branch" if is_closed else "node"
    sheet_of = f"{labels.prefix}{path}" if is_closed else None
    return _link_to(labels, child, hit, mark, written, kind=kind, sheet=sheet_of)
