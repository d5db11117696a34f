"""The deterministic tree as text."""

from collections.abc import Iterator

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


def export_text(
    tree: object,
    *,
    max_features: int | None = 4,
    max_facets: int | None = 6,
    decimals: int | None = 3,
) -> str:
    """A tree as text for readers: each facet by its largest weights, in the units of the data.

    Of a tree with other splits, such as networks, it shows which node and leaf lies where.

    A facet is divided by the coefficient of its first term, so that the others are relative to
    it. The inequality of a node with one facet is the split itself: rounded and shortened to its
    largest terms, or exact with ``max_features=None, decimals=None``. The facets of a polytope
    only bound it: a row that violates one of them goes right, and a row that satisfies all of
    them may go right too, because the votes of several experts add up (see
    :class:`bayestree.tree.Tree`). :func:`bayestree.export_rules` and
    :func:`bayestree.export_json` write that sum.

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        Of a forest, its trees one after the other. All numbers are those of the deterministic
        tree; a line of the head says so where the estimator has posterior draws too.
    max_features : int, optional
        Terms shown of each facet, those of the largest weight per standard deviation; and
        classes shown of each leaf, the most frequent. None shows all.
    max_facets : int, optional
        Facets shown of each node: those nearest to the mean of the data, which cut off most.
        None shows all.
    decimals : int, optional
        Significant digits; of a threshold, relative to the standard deviation of the first term.
        None shows all.

    Returns
    -------
    str
        One line or more for each node and leaf, left branches first.

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
    >>> from bayestree import ConvexPolytopeTreeClassifier, export_text
    >>> iris = load_iris(as_frame=True)
    >>> clf = ConvexPolytopeTreeClassifier(max_depth=1, inference="map", random_state=0)
    >>> text = export_text(clf.fit(iris.data, iris.target))
    """
    limits = {"max_features": max_features, "max_facets": max_facets, "decimals": decimals}
    check_positive(**limits)
    found = trees_of(tree)
    members = getattr(tree, "estimators_", [tree])
    texts = [
        "\n".join(_Writer(one, point_estimate(member), **limits).lines()) + "\n"
        for one, member in zip(found, members, strict=True)
    ]
    if not hasattr(tree, "estimators_"):
        return texts[0]
    return "\n".join(f"tree {t} of {len(texts)}: {text}" for t, text in enumerate(texts, start=1))


class _Writer:
    """Writes one tree."""

    def __init__(
        self,
        tree: RoutedTree,
        notes: list[str],
        *,
        max_features: int | None,
        max_facets: int | None,
        decimals: int | None,
    ) -> None:
        self.tree = tree
        self.notes = notes
        self.max_facets = max_facets
        self.words = words_of(tree, max_features, decimals)
        self.node_rows = tree.topology.sum_below(tree.leaf_rows)

    def lines(self) -> Iterator[str]:
        tree = self.tree
        yield (
            f"{counted(tree.n_nodes, 'node')}, {counted(tree.n_leaves, 'leaf')}, "
            f"depth {tree.depth}, {rows_in_words(tree.leaf_rows.sum())}"
        )
        yield from self.notes
        if tree.n_nodes:
            yield from self.key()
        yield ""
        yield from self.branch(0 if tree.n_nodes else ~0, "", "")

    def key(self) -> Iterator[str]:
        """What the letters of the paths mean, and the facets of a polytope."""
        if not (isinstance(self.words, FacetWords) and self.words.has_polytopes):
            yield "L is left, R is right."
            return
        yield "L (left) lies inside the polytope of a node, R (right) outside."
        yield (
            "Facets only bound a polytope: a row inside all of them can still lie outside it. "
            "export_rules writes the exact condition."
        )

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
        yield f"left if {'; '.join(words.bounds(node))}"
        yield from (f"  {words.facet(int(expert))}" for expert in nearest[: self.max_facets])
        hidden = len(nearest) - len(nearest[: self.max_facets])
        if hidden:
            yield f"  … {hidden} more, farther out"

    def leaf(self, leaf: int) -> str:
        """A leaf: its rows, and shares of the classes or mean."""
        label = self.tree.topology.leaf_labels[leaf]
        rows = rows_in_words(self.tree.leaf_rows[leaf])
        return f"{label}: leaf, {rows}, {self.words.leaf(leaf)}"
