"""The deterministic tree as text."""

from collections.abc import Iterator

from bayestree.report.words import (
    FacetWords,
    check_positive,
    counted,
    rows_in_words,
    trees_of,
    words_of,
)
from bayestree.routed_tree import RoutedTree


def export_text(
    tree: object, *, max_features: int = 4, max_facets: int = 6, decimals: int = 3
) -> str:
    """A tree as text: each facet by its largest weights, in the units of the data.

    Of a tree with other splits, such as networks, it shows which node and leaf lies where.

    A facet is divided by the coefficient of its first term, so that the others are relative to
    it. The inequality of a node with one facet is the split itself; where there are more, every
    one holds on the left side, and their votes, added up, decide (see
    :class:`bayestree.tree.Tree`).

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        Of a forest, its trees one after the other.
    max_features : int
        Terms shown of each facet, those of the largest weight per standard deviation; and
        classes shown of each leaf, the most frequent.
    max_facets : int
        Facets shown of each node: those nearest to the mean of the data, which cut off most.
    decimals : int
        Significant digits; of a threshold, relative to the standard deviation of the first term.

    Returns
    -------
    str
        One line or more for each node and leaf, left branches first.

    Raises
    ------
    TypeError
        If ``tree`` is neither a Tree nor a fitted estimator.
    ValueError
        If ``max_features``, ``max_facets`` or ``decimals`` is less than 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier, export_text
    >>> iris = load_iris(as_frame=True)
    >>> clf = ConvexPolytopeTreeClassifier(max_depth=1, inference="map", random_state=0)
    >>> text = export_text(clf.fit(iris.data, iris.target))
    """
    given = {"max_features": max_features, "max_facets": max_facets, "decimals": decimals}
    check_positive(**given)
    found = trees_of(tree)
    texts = ["\n".join(_Writer(one, **given).lines()) + "\n" for one in found]
    if not hasattr(tree, "estimators_"):
        return texts[0]
    return "\n".join(f"tree {t} of {len(texts)}: {text}" for t, text in enumerate(texts, start=1))


class _Writer:
    """Writes one tree."""

    def __init__(
        self, tree: RoutedTree, *, max_features: int, max_facets: int, decimals: int
    ) -> None:
        self.tree = tree
        self.max_facets = max_facets
        self.words = words_of(tree, max_features, decimals)
        self.node_rows = tree.topology.sum_below(tree.leaf_rows)

    def lines(self) -> Iterator[str]:
        tree = self.tree
        yield (
            f"{counted(tree.n_nodes, 'node')}, {counted(tree.n_leaves, 'leaf')}, "
            f"depth {tree.depth}, {rows_in_words(tree.leaf_rows.sum())}"
        )
        if tree.n_nodes:
            yield self.key
        yield ""
        yield from self.branch(0 if tree.n_nodes else ~0, "", "")

    @property
    def key(self) -> str:
        """What the letters of the paths mean."""
        if isinstance(self.words, FacetWords) and self.words.has_polytopes:
            return "L (left) lies inside the polytope of a node, R (right) outside."
        return "L is left, R is right."

    def branch(self, child: int, first: str, rest: str) -> Iterator[str]:
        """A node or leaf and all below; ``first`` and ``rest`` begin its lines."""
        if child < 0:
            yield first + self.leaf(~child)
            return
        head, *facets = self.node(child)
        yield first + head
        yield from (f"{rest}│    {line}" for line in facets)
        left, right = (int(c) for c in self.tree.topology.children[child])
        yield from self.branch(left, rest + "├─ ", rest + "│  ")
        yield from self.branch(right, rest + "└─ ", rest + "   ")

    def node(self, node: int) -> Iterator[str]:
        """Lines of a node: its rows and its split."""
        head = f"{self.tree.topology.node_labels[node]}: {rows_in_words(self.node_rows[node])}"
        words = self.words
        if not isinstance(words, FacetWords):
            yield f"{head}, {self.tree.split_name}"
            return
        nearest = words.nearest(node)
        yield head + (f", {counted(len(nearest), 'facet')}" if words.has_polytopes else "")
        if len(nearest) == 1:
            yield f"left if  {words.facet(int(nearest[0]))}"
            return
        yield "left if the votes of these add up to at most log 2 (each facet is necessary)"
        yield from (f"  {words.facet(int(expert))}" for expert in nearest[: self.max_facets])
        if len(nearest) > self.max_facets:
            yield f"  … {len(nearest) - self.max_facets} more, farther out"

    def leaf(self, leaf: int) -> str:
        """A leaf: its rows, and shares of the classes or mean."""
        label = self.tree.topology.leaf_labels[leaf]
        rows = rows_in_words(self.tree.leaf_rows[leaf])
        return f"{label}: leaf, {rows}, {self.words.leaf(leaf)}"
