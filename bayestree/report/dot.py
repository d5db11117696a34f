"""The deterministic tree as a drawing in Graphviz's language DOT."""

from collections.abc import Iterator

import numpy as np

from bayestree._trees import trees_of
from bayestree._utils.wording import counted
from bayestree.report.words import (
    FacetWords,
    check_positive,
    point_estimate,
    rows_in_words,
    words_of,
)
from bayestree.routed_tree import RoutedTree

#: Hues of the classes, for readers of any colour vision (Okabe and Ito, "Color Universal Design").
HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
PALEST, DEEPEST = 0.08, 0.55  # share of the hue in a leaf: black letters are read on either
FONT = "Helvetica"
BACKSLASH, QUOTE = "\\", '"'


def export_dot(
    tree: object,
    *,
    max_features: int | None = 3,
    max_facets: int | None = 4,
    decimals: int | None = 3,
) -> str:
    """A tree in Graphviz's language DOT, to be drawn by ``dot -Tsvg tree.dot``.

    A node shows its half-spaces in the units of the data, as :func:`bayestree.export_text` does,
    and the rows that reach it; a leaf what it predicts. The half-spaces of a polytope only bound
    it: :func:`bayestree.export_rules` writes the exact condition. Branches are labelled *yes* and
    *no*, or *inside* and *outside* where a split is a polytope of several facets, and are the
    thicker the more rows they take. A leaf has the hue of its class, the deeper the purer it is,
    or is the deeper the higher its mean is; the class is written in it too.

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        Of a forest, its trees side by side in one graph. All numbers are those of the
        deterministic tree; a caption says so where the estimator has posterior draws too.
    max_features : int, optional
        Terms shown of each half-space, and classes of each leaf. None shows all.
    max_facets : int, optional
        Facets shown of each node, those nearest to the mean of the data. None shows all.
    decimals : int, optional
        Significant digits; of a threshold, relative to the standard deviation of the first term.
        None shows all.

    Returns
    -------
    str
        A ``digraph``.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If ``tree`` is an estimator that was not fitted.
    TypeError
        If ``tree`` is neither a Tree nor an estimator of one.
    ValueError
        If ``max_features``, ``max_facets`` or ``decimals`` is less than 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier, export_dot
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2, pair_penalty=20).fit(X, y)
    >>> export_dot(clf).splitlines()[0]
    'digraph tree {'
    """
    check_positive(max_features=max_features, max_facets=max_facets, decimals=decimals)
    found = trees_of(tree)
    caption = point_estimate(getattr(tree, "estimators_", [tree])[0])
    label = f", label={quoted(caption)}" if caption else ""
    lines = [
        "digraph tree {",
        f'  graph [fontname="{FONT}"{label}]',
        f'  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="{FONT}"]',
        f'  edge [fontname="{FONT}"]',
    ]
    if not hasattr(tree, "estimators_"):
        lines += _Drawing(found[0], "", max_features, max_facets, decimals).lines("  ")
    else:
        for number, one in enumerate(found, start=1):
            drawing = _Drawing(one, f"t{number}_", max_features, max_facets, decimals)
            lines += [f"  subgraph cluster_{number} {{", f'    label="tree {number}"']
            lines += [*drawing.lines("    "), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


class _Drawing:
    """Nodes and branches of one tree."""

    def __init__(
        self,
        tree: RoutedTree,
        prefix: str,
        max_features: int | None,
        max_facets: int | None,
        decimals: int | None,
    ) -> None:
        self.tree = tree
        self.prefix = prefix
        self.max_facets = max_facets
        self.words = words_of(tree, max_features, decimals)
        self.rows = tree.topology.sum_below(tree.leaf_rows)

    def lines(self, indent: str) -> Iterator[str]:
        for node in range(self.tree.n_nodes):
            yield f"{indent}{self.name(node)} [label={quoted(self.node(node))}]"
        for leaf in range(self.tree.n_leaves):
            says = [self.words.leaf(leaf), rows_in_words(self.tree.leaf_rows[leaf])]
            yield (
                f'{indent}{self.name(~leaf)} [label={quoted(says)}, fillcolor="{self.fill(leaf)}"]'
            )
        for node in range(self.tree.n_nodes):
            left, right = self.tree.topology.children[node].tolist()
            for side, child in zip(self.sides(node), (left, right), strict=True):
                yield (
                    f"{indent}{self.name(node)} -> {self.name(child)} "
                    f'[label="{side}", penwidth={self.width(child):.2f}]'
                )

    def name(self, child: int) -> str:
        """A node, or a leaf ``~leaf``, as the graph names it."""
        return f"{self.prefix}n{child}" if child >= 0 else f"{self.prefix}leaf{~child}"

    def node(self, node: int) -> list[str]:
        """Lines of a node's box: its split and its rows."""
        rows = rows_in_words(self.rows[node])
        if not isinstance(self.words, FacetWords):
            return [self.tree.split_name, rows]
        nearest = self.words.nearest(node)
        shown = [self.words.facet(int(expert)) for expert in nearest[: self.max_facets]]
        hidden = len(nearest) - len(shown)
        more = [f"… {counted(hidden, 'more facet')}"] if hidden else []
        head = self.words.bounds(node) if len(nearest) > 1 else []
        return [*head, *shown, *more, rows]

    def sides(self, node: int) -> tuple[str, str]:
        """What the left and the right branch of a node are called."""
        if not isinstance(self.words, FacetWords):
            return self.tree.side_names
        return self.tree.side_names if self.words.tree.n_facets[node] > 1 else ("yes", "no")

    def width(self, child: int) -> float:
        """Of a branch, by its share of all rows."""
        rows = self.rows[child] if child >= 0 else self.tree.leaf_rows[~child]
        return 1.0 + 4.0 * float(rows / max(self.tree.leaf_rows.sum(), 1.0))

    def fill(self, leaf: int) -> str:
        """Colour of a leaf."""
        value = self.tree.value
        if value.ndim == 1:
            spread = float(np.ptp(value))
            return _mixed(HUES[0], float(value[leaf] - value.min()) / spread if spread else 0.0)
        best, chance = int(value[leaf].argmax()), 1.0 / value.shape[1]
        purity = (float(value[leaf, best]) - chance) / (1.0 - chance) if chance < 1 else 1.0
        return _mixed(HUES[best % len(HUES)], purity)


def quoted(lines: list[str]) -> str:
    """A label of several lines, as DOT writes it."""
    escaped = (
        line.replace(BACKSLASH, 2 * BACKSLASH).replace(QUOTE, BACKSLASH + QUOTE).replace("\n", " ")
        for line in lines
    )
    return QUOTE + r"\n".join(escaped) + QUOTE


def _mixed(hue: str, depth: float) -> str:
    """A hue on white, pale at a depth of 0 and deep at 1."""
    share = PALEST + (DEEPEST - PALEST) * min(max(depth, 0.0), 1.0)
    parts = [int(hue[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)
