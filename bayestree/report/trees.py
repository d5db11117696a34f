"""The drawn trees of a report: their sheets, the labels of nodes and leaves, and outlines.

Large trees are drawn on several sheets: each has a few levels, and the branches below it have
sheets of their own.
"""

import heapq
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree._utils.wording import counted
from bayestree.description import HalfSpace, TreeDescription
from bayestree.plots._tree import Place, layout, node_texts_of, plain_description
from bayestree.report import figures, text
from bayestree.report.study import Study
from bayestree.routed_tree import RoutedTree
from bayestree.topology import Topology

TARGET_TIPS, MAX_TIPS = 10, 12  # desired and maximum number of tips of a sheet
DEEPEST = 7  # maximum number of levels of a sheet
SMALL = 3  # leaves of a branch that may be opened up to the maximum
MAX_NODES = 250  # maximum number of nodes of a tree that are drawn and described
FEW = 4  # maximum number of tips of a sheet with its panel beside it
TERMS, DIGITS = 2, 3  # of the condition of a node
DOT = " \N{MIDDLE DOT} "


class Sheet(NamedTuple):
    """A part of a tree: its open nodes, parents first, and the places of these and of the tips."""

    nodes: tuple[int, ...]
    places: list[Place]

    @property
    def root(self) -> int:
        """The uppermost node, or ``~leaf`` of a tree without a split."""
        return self.places[0].child

    @property
    def tips(self) -> tuple[int, ...]:
        """The ends from left to right: ``~leaf``, or the node of a closed branch."""
        return tuple(place.child for place in self.places if place.child not in self.nodes)

    def kind(self, child: int) -> str:
        """Whether a child is a leaf, a node, or a closed branch, which has a sheet of its own."""
        if child < 0:
            return "leaf"
        return "node" if child in self.nodes else "branch"


def shown_nodes(rows: FloatArray, most: int = MAX_NODES) -> BoolArray:
    """Nodes to draw, shape (V,): those of the most rows, which include all nodes above them."""
    shown = np.zeros(len(rows), dtype=bool)
    # with equal rows the upper node comes first, because its number is smaller
    shown[np.argsort(-rows, kind="stable")[:most]] = True
    return shown


def sheets(topology: Topology, rows: FloatArray, shown: BoolArray) -> list[Sheet]:
    """The sheets of a tree, the root's first.

    Of the nodes ``shown``, shape (V,), the branches of the most ``rows``, shape (V,), are opened
    first.
    """
    leaves = topology.sum_below(np.ones(topology.n_leaves))
    found, waiting = [], [0]
    for root in waiting:
        opened = _opened(topology, root, rows, leaves, shown) if topology.n_nodes else set()
        sheet = Sheet(tuple(sorted(opened)), layout(topology, root, opened))
        found.append(sheet)
        waiting += [tip for tip in sheet.tips if tip >= 0 and shown[tip]]
    return found


def _opened(
    topology: Topology, root: int, rows: FloatArray, leaves: FloatArray, shown: BoolArray
) -> set[int]:
    """Nodes that are open on the sheet of a branch."""
    depth = topology.node_depth - topology.node_depth[root]
    opened, n_tips = set[int](), 1
    closed = [(-rows[root], root)]
    while closed:
        _, node = heapq.heappop(closed)
        full = n_tips >= (MAX_TIPS if leaves[node] <= SMALL else TARGET_TIPS)
        if not shown[node] or full or depth[node] >= DEEPEST:
            continue
        opened.add(node)
        n_tips += 1
        for child in topology.children[node].tolist():
            if child >= 0:
                heapq.heappush(closed, (-rows[child], child))
    return opened


class LabelledTree(TreeDescription):
    """The description of one of the trees of a study, with its labels and anchors on the page.

    ``prefix`` distinguishes the anchors of the trees of a forest or a mixture, of which the study
    has no posterior. ``conditions`` are those of the
    point estimate; ``posterior`` has the posterior number of facets of each node, if there is one;
    ``uncertain`` (V,) is the share of the evaluated rows about which each split is uncertain.
    """

    def __init__(self, study: Study, tree: RoutedTree, prefix: str = "") -> None:
        super().__init__(tree, TERMS, DIGITS, features=study.features, classes=study.classes)
        self.prefix = prefix
        self.posterior_polytopes = not prefix and study.n_experts > 1
        self.conditions = tuple(map(self._short_condition, range(tree.n_nodes)))
        self.posterior: tuple[str, ...] = ()
        if self.posterior_polytopes and study.sizes is not None:
            self.posterior = tuple(
                f"posterior {study.size_text(node)}" for node in range(tree.n_nodes)
            )
        self.uncertain = None
        if not prefix and study.uncertainty is not None:
            self.uncertain = np.nan_to_num(study.uncertainty_table["unsure"].to_numpy())

    @cached_property
    def in_lines(self) -> TreeDescription:
        """The description whose conditions have a line for each term, as they are drawn."""
        return plain_description(self.tree, self.features, self.classes)

    @property
    def side_names(self) -> tuple[str, str]:
        """Names of the sides: of a condition that is written in full, of a polytope, or others."""
        if self.linear is None or self.posterior_polytopes or self.has_polytopes:
            return self.tree.side_names
        is_complete = (np.count_nonzero(self.linear.hyperplane, axis=1) <= TERMS).all()
        return ("yes", "no") if is_complete else ("left", "right")

    def side(self, child: int) -> str:
        return self.side_names["LR".index(self.path(child)[-1])]

    def anchor(self, child: int) -> str:
        return f"{self.prefix}{self.path(child)}"

    def line(self, node: int) -> str:
        """Condition of a node in the point estimate, and its posterior, on one line."""
        return DOT.join([self.conditions[node], *self.posterior[node : node + 1]])

    def leaf_label(self, leaf: int) -> str:
        value = self.tree.value[leaf]
        if not self.classifies:
            return text.number(float(value))
        best = int(value.argmax())
        return f"{self.classes[best]} ({value[best]:.2f})"

    def value_text(self, child: int) -> str:
        """The most frequent class of a node or leaf with its share, or the mean."""
        value = self.value(child)
        if not self.classifies:
            return f"{self.tree.quantity} {text.number(float(value[0]))}"
        best = int(value.argmax())
        return f"{self.classes[best]} ({text.percent(float(value[best]))})"

    def stack(self, child: int) -> list[tuple[str, float]]:
        """The parts of the bar of a node or leaf: colours, and lengths in per cent.

        They are the shares of the classes, or a mean on the scale of the leaves.
        """
        value = self.value(child)
        if not self.classifies:
            return [("var(--accent-fill)", 100 * self.position(float(value[0])))]
        shares = enumerate((100 * value).tolist())
        return [(f"var(--c{label})", share) for label, share in shares if share > 0]

    def summary(self, child: int) -> str:
        """Description of a node or leaf in a line, for tooltips and screen readers."""
        rows = counted(self.rows(child), "row")
        if child < 0:
            return f"Leaf {self.path(child)}: {self.leaf_label(~child)}, {rows}"
        uncertain = ""
        if self.uncertain is not None:
            uncertain = f", {text.percent(self.uncertain[child])} uncertain"
        return f"Node {self.path(child)}: {self.line(child)}, {rows}{uncertain}"

    def _short_condition(self, node: int) -> str:
        """The condition of a hyperplane or its main features, or the number of facets."""
        if self.linear is None:
            return self.tree.split_name
        if self.n_facets(node) > 1 or self.posterior_polytopes:
            return counted(self.n_facets(node), "facet")
        expert = self.linear.experts(node).start
        strength = self._strength[expert]
        used = np.count_nonzero(strength)
        if used <= TERMS:
            return " ".join(printed(self.half_space(expert))).strip()
        order = np.argsort(-strength, kind="stable")[:TERMS]
        return f"{', '.join(self.features[j] for j in order)} + {used - TERMS} more"


def printed(facet: HalfSpace) -> tuple[str, str]:
    """The left side and the limit of a facet with typographic signs."""
    if not facet.left:
        return ("every row" if facet.bound >= 0 else "no row"), ""
    return text.relation(facet.left), facet.limit


def drawing(
    study: Study, tree: LabelledTree, sheet: Sheet, more: Sequence[str] = (), *, linked: bool = True
) -> Markup:
    """Draw a sheet; its nodes and leaves link to their descriptions unless it stands alone.

    ``more`` has another line of text for each node of the tree.
    """
    groups = {tree.path(one.child): _group(tree, sheet, one, linked=linked) for one in sheet.places}
    alt = f"Tree from {tree.path(sheet.root)}: {counted(len(sheet.nodes), 'split')} drawn"
    with figures.page_style():
        measured = study.sizes if tree.posterior else None
        texts = node_texts_of(tree.in_lines, sheet.nodes, measured, 0.9)
        if more:
            texts = {node: f"{own}\n{more[node]}".rstrip() for node, own in texts.items()}
        return figures.branch(tree.in_lines, texts, sheet.places, groups, tree.side_names, alt)


def _group(tree: LabelledTree, sheet: Sheet, place: Place, *, linked: bool) -> figures.Group:
    anchor = tree.anchor(place.child) if linked else ""
    kind = sheet.kind(place.child)
    return figures.Group(
        kind, tree.summary(place.child), anchor, anchor if kind == "branch" else ""
    )


def outline(tree: LabelledTree, sheet: Sheet) -> list[dict[str, Any]]:
    """The nodes and leaves of a sheet as lines below each other, for narrow screens."""
    lines = []
    for place in sheet.places:
        child, kind = place.child, sheet.kind(place.child)
        details = [] if place.parent is None else [tree.side(child)]
        details.append(counted(tree.rows(child), "row"))
        if kind == "leaf":
            label = tree.leaf_label(~child)
        elif kind == "branch":
            label = f"{len(tree.tree.topology.subtree_leaves(child))} leaves"
        else:
            label = tree.line(child)
            if tree.uncertain is not None and tree.uncertain[child] > 0:
                details.append(f"{text.percent(float(tree.uncertain[child]))} uncertain")
        lines.append(
            {
                "kind": kind,
                "anchor": tree.anchor(child),
                "depth": place.depth,
                "label": label,
                "details": DOT.join(details),
                "stack": tree.stack(child) if kind == "leaf" else None,
            }
        )
    return lines
