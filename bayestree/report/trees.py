"""The drawn trees of a report: their sheets, labels and outlines, and the trees of a mixture.

Large trees are drawn on several sheets: each has a few levels, and the branches below it have
sheets of their own. Of a mixture, the most probable trees are drawn and compared.
"""

import heapq
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from sklearn.metrics import rand_score

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.wording import counted
from bayestree.description import HalfSpace, Mode, TreeDescription, modes_of, shown_mode
from bayestree.export.words import export_text
from bayestree.plots._node_views import NodeRows, view_kind
from bayestree.plots._tree import VIEWED_TIPS, NodePlace, boxes_of, layout, plain_description
from bayestree.report import figures
from bayestree.report.rows import PermutationImportance, most_important, permutation_importance
from bayestree.report.study import MINUS, Study, number, percent, with_minus
from bayestree.routed_tree import RoutedTree
from bayestree.topology import Topology
from bayestree.tree import Tree

TARGET_TIPS, MAX_TIPS = 10, 12  # desired and maximum number of tips of a sheet
DEEPEST = 7  # maximum number of levels of a sheet
SMALL = 3  # leaves of a branch that may be opened up to the maximum
MAX_NODES = 250  # maximum number of nodes of a tree that are drawn and described
FEW = 4  # maximum number of tips of a sheet with its panel beside it
TERMS, DIGITS = 2, 3  # of the condition of a node
MOST_FACETS = 3  # of a node that are written in a line
ROWS = 200  # drawn in the nodes of a tree
DOT = " \N{MIDDLE DOT} "
SUBTRACTION = re.compile(r" - (?=[0-9.\[])")  # between two terms
SIGNS = {"<=": "\N{LESS-THAN OR EQUAL TO}", ">=": "\N{GREATER-THAN OR EQUAL TO}"}

MODES_SHOWN = 3  # trees of a mixture that are drawn and written out
LEVELS = 2  # splits below each other in their drawings, so that they fit next to each other
FEATURES = 8  # features whose importance is compared
GROUPS = 5  # leaves of the shown tree in which the trees differ most
NAMED = 2  # features that a node names
COMPARED_ROWS = 500  # rows on which trees are compared


class Sheet(NamedTuple):
    """A part of a tree: its open nodes, parents first, and the places of these and of the tips."""

    nodes: tuple[int, ...]
    places: list[NodePlace]

    @property
    def root(self) -> int:
        """The uppermost node, or ``~leaf`` of a tree without a split."""
        return self.places[0].child

    @property
    def tips(self) -> tuple[int, ...]:
        """The ends from left to right: ``~leaf``, or the node of a closed branch."""
        return tuple(place.child for place in self.places if place.child not in self.nodes)

    def kind(self, child: int) -> str:
        """Tell a leaf, a node and a closed branch, which has a sheet of its own, apart."""
        if child < 0:
            return "leaf"
        return "node" if child in self.nodes else "branch"


def shown_nodes(rows: FloatArray, most: int = MAX_NODES) -> BoolArray:
    """Choose the nodes to draw, (V,): the nodes of most rows, and with them all nodes above."""
    shown = np.zeros(len(rows), dtype=bool)
    # with equal rows the upper node comes first, because its number is smaller
    shown[np.argsort(-rows, kind="stable")[:most]] = True
    return shown


def sheets(topology: Topology, rows: FloatArray, shown: BoolArray) -> list[Sheet]:
    """Divide a tree into sheets, the root's first.

    Among the nodes ``shown``, (V,), the branches of most ``rows``, (V,), are opened first.
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
    """Choose the nodes that are open on the sheet of a branch."""
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
    """The description of a tree of a study, with its labels and anchors on the page.

    ``prefix`` distinguishes the anchors of several trees; ``has_posterior`` is false for a mode of
    a mixture. ``conditions`` belong to the point estimate; ``posterior`` has the posterior
    number of facets of each node, if there is one; ``uncertain`` (V,) is the share of the evaluated
    rows about which each split is uncertain.
    """

    def __init__(
        self, study: Study, tree: RoutedTree, prefix: str = "", *, has_posterior: bool = True
    ) -> None:
        super().__init__(tree, TERMS, DIGITS, features=study.features, classes=study.classes)
        self.prefix = prefix
        self.posterior_polytopes = has_posterior and study.n_experts > 1 and not self.is_sparse
        self.conditions = tuple(map(self._short_condition, range(tree.n_nodes)))
        self.posterior: tuple[str, ...] = ()
        if self.posterior_polytopes and study.sizes is not None:
            self.posterior = tuple(
                f"posterior {study.size_text(node)}" for node in range(tree.n_nodes)
            )
        self.uncertain = None
        if has_posterior and study.uncertainty is not None:
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
        if self.is_sparse:
            return ("yes", "no")
        is_complete = (np.count_nonzero(self.linear.hyperplane, axis=1) <= TERMS).all()
        return ("yes", "no") if is_complete else ("left", "right")

    def children(self, node: int) -> list[int]:
        return self.tree.topology.children[node].tolist()

    def side(self, child: int) -> str:
        return self.side_names["LR".index(self.path(child)[-1])]

    def anchor(self, child: int) -> str:
        return f"{self.prefix}{self.path(child)}"

    def label(self, child: int) -> str:
        """Write the prediction of a leaf, or the condition of a node and its posterior."""
        if child >= 0:
            return DOT.join([self.conditions[child], *self.posterior[child : child + 1]])
        value = self.value(child)
        if not self.classifies:
            return number(float(value[0]))
        best = int(value.argmax())
        return f"{self.classes[best]} ({value[best]:.2f})"

    def value_text(self, child: int) -> str:
        """Write the most frequent class of a node or leaf with its share, or the mean."""
        value = self.value(child)
        if not self.classifies:
            return f"{self.tree.quantity} {number(float(value[0]))}"
        best = int(value.argmax())
        return f"{self.classes[best]} ({percent(float(value[best]))})"

    def stack(self, child: int) -> list[tuple[str, float]]:
        """Return the parts of the bar of a node or leaf: colours, and lengths in per cent.

        They are the shares of the classes, or a mean on the scale of the leaves.
        """
        value = self.value(child)
        if not self.classifies:
            return [("var(--accent-fill)", 100 * self.position(float(value[0])))]
        shares = enumerate((100 * value).tolist())
        return [(f"var(--c{label})", share) for label, share in shares if share > 0]

    def summary(self, child: int) -> str:
        """Describe a node or leaf in a line, for tooltips and screen readers."""
        rows = counted(self.rows(child), "row")
        kind, uncertain = "Leaf" if child < 0 else "Node", ""
        if child >= 0 and self.uncertain is not None:
            uncertain = f", {percent(self.uncertain[child])} uncertain"
        return f"{kind} {self.path(child)}: {self.label(child)}, {rows}{uncertain}"

    def _short_condition(self, node: int) -> str:
        """Write the condition of a hyperplane or its main features, or the number of facets."""
        if self.linear is None:
            return self.tree.split_name
        if self.is_sparse and self.n_facets(node) <= MOST_FACETS:
            return " and ".join(" ".join(printed(one)) for one in self.half_spaces(node))
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
    """Write the left side and the limit of a facet with typographic signs."""
    if not facet.left:
        return ("every row" if facet.bound >= 0 else "no row"), ""
    return typographic(facet.left), with_minus(facet.limit)


def typographic(left: str) -> str:
    """Write the left side of an inequality, and its relation, with typographic signs."""
    left = SUBTRACTION.sub(f" {MINUS} ", left)
    return left[:-2] + SIGNS.get(left[-2:], left[-2:])


def drawing(
    study: Study,
    tree: LabelledTree,
    sheet: Sheet,
    more: Sequence[str] = (),
    *,
    rows: NodeRows | None = None,
    linked: bool = True,
) -> Markup:
    """Draw a sheet; its nodes and leaves link to their descriptions unless it stands alone.

    ``more`` has another line of text for each node of the tree; ``rows`` are drawn in its nodes.
    """
    groups = {}
    for child in (place.child for place in sheet.places):
        kind, anchor = sheet.kind(child), tree.anchor(child) if linked else ""
        opens = anchor if kind == "branch" else ""
        groups[tree.path(child)] = figures.Group(kind, tree.summary(child), anchor, opens)
    alt = f"Tree from {tree.path(sheet.root)}: {counted(len(sheet.nodes), 'split')} drawn"
    with figures.page_style(salt=tree.anchor(sheet.root)):
        measured = study.sizes if tree.posterior else None
        boxes = boxes_of(tree.in_lines, sheet.places, measured, 0.9, rows=rows, more=more)
        return figures.branch(tree.in_lines, boxes, sheet.places, groups, tree.side_names, alt)


def rows_of_nodes(study: Study, tree: RoutedTree) -> NodeRows | None:
    """Return some training rows at the nodes of a tree, if they and their y are known.

    The trees of a forest, of which there are many, show none.
    """
    train = study.train
    if train is None or train.y is None or train.extra is not None:
        return None
    if study.is_forest or not isinstance(tree, Tree):
        return None
    rows = train.sample(ROWS)
    y: Any = rows.y
    if study.classifies and not np.isin(y, study.labels).all():
        return None
    return NodeRows.of(study.estimator, tree, rows.X, y)


def views_of(tree: LabelledTree, sheet: Sheet, rows: NodeRows | None) -> set[str]:
    """Return what the nodes of a sheet show besides texts: "bars" or "rows"."""
    if len(sheet.tips) > VIEWED_TIPS:
        return set()
    has_rows = rows is not None
    return {view_kind(tree.linear, node, has_rows=has_rows) for node in sheet.nodes} - {""}


def compared_modes(study: Study) -> dict[str, Any] | None:
    """Describe the trees of a mixture, the most probable first, and how far they differ."""
    found = modes_of(study.estimator)
    if not found:
        return None
    rows = None if study.evaluated is None else study.evaluated.sample(COMPARED_ROWS)
    own, whole = shown_mode(study.estimator), study.soft
    shown: list[dict[str, Any]] = []
    if rows is not None:
        predict = "predict_proba" if study.classifies else "predict"
        mean, leaf = getattr(whole, predict)(rows.X), whole.apply(rows.X)
        each = np.array([getattr(mode.estimator, predict)(rows.X) for mode in found])
    for mode in found:
        line = {
            "number": mode.number,
            "weight": mode.weight,
            "leaves": mode.estimator.get_n_leaves(),
            "depth": mode.estimator.get_depth(),
            "is_shown": own is not None and mode.number == own.number,
        }
        if rows is not None:
            apart = float(np.abs(each[len(shown)] - mean).mean())
            alike = rand_score(mode.estimator.apply(rows.X), leaf)  # of pairs of rows
            line |= {"apart": number(apart), "alike": alike}
        shown.append(line)
    first = found[:MODES_SHOWN]
    used = [
        None if rows is None else permutation_importance([m.estimator.tree_], rows, study.encoding)
        for m in first
    ]
    drawn = [
        {
            "number": mode.number,
            "weight": mode.weight,
            "drawing": _drawing(study, mode, own_use),
            "text": export_text(mode.estimator.tree_, max_facets=2),
        }
        for mode, own_use in zip(first, used, strict=True)
    ]
    return {
        "modes": shown,
        "trees": drawn,
        "features": _features(study, [one.total for one in used if one is not None]),
        "groups": [] if rows is None else _groups(study, found, each, mean, leaf),
        "rows": "" if rows is None else rows.counted,
    }


def _drawing(study: Study, mode: Mode, used: PermutationImportance | None) -> Markup:
    """Draw the upper splits of a mode, with the features that matter most to each."""
    tree = mode.estimator.tree_
    labelled = LabelledTree(study, tree, f"m{mode.number}-", has_posterior=False)
    used_by: list[str] = []
    if used is not None:
        orders = [most_important(share)[:NAMED] for share in used.nodes[0]]
        used_by = [", ".join(study.columns[j] for j in order) for order in orders]
    shown = tree.topology.node_depth < LEVELS
    sheet = sheets(tree.topology, labelled.node_rows, shown)[0]
    return drawing(study, labelled, sheet, used_by, linked=False)


def _features(study: Study, totals: Sequence[FloatArray]) -> list[tuple[str, list[float]]]:
    """List the most important features, with their importance for each tree."""
    table = np.array(totals).reshape(len(totals), len(study.columns))
    order = np.argsort(-table.sum(axis=0), kind="stable")[:FEATURES]
    return [(study.columns[j], table[:, j].tolist()) for j in order if table[:, j].any()]


def _groups(
    study: Study, found: Sequence[Mode], each: FloatArray, mean: FloatArray, leaf: IntArray
) -> list[dict[str, Any]]:
    """List the leaves of the shown tree in which the modes disagree most about the rows.

    A mode disagrees about a row if it predicts another class than the mixture; in regression the
    disagreement is the standard deviation of the predictions.
    """
    weights, tree = np.array([mode.weight for mode in found]), study.tree
    if study.classifies:
        size = weights @ (each.argmax(axis=-1) != mean.argmax(axis=-1))
    else:
        size = np.sqrt(weights @ (each - mean) ** 2)
    total = np.bincount(leaf, size, tree.n_leaves)
    count = np.bincount(leaf, minlength=tree.n_leaves)
    paths = LabelledTree(study, tree)
    return [
        {
            "path": paths.anchor(~one),
            "rows": int(count[one]),
            "apart": percent(share) if study.classifies else number(share),
        }
        for one in np.argsort(-total, kind="stable")[:GROUPS]
        if (share := float(total[one] / max(count[one], 1))) > 0
    ]
