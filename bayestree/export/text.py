"""The deterministic tree as text."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import ClassVar, Literal

from bayestree._utils.wording import counted
from bayestree.description import Visit, trees_of
from bayestree.diagnostics.printed import TreeIntervals
from bayestree.export import Visitor, notes_on_numbers

WIDTH = 100  # characters of a line of notes


def export_text(
    tree: object,
    *,
    max_features: int | Literal["auto"] | None = "auto",
    max_facets: int | None = 6,
    decimals: int | None = 3,
    intervals: TreeIntervals | None = None,
) -> str:
    """Write a tree as text, each facet by its largest weights and in the units of the data.

    For trees with other splits, such as networks, only the structure is shown.

    A facet is divided by the coefficient of its first term, so that the others are relative to
    it. The inequality of a node with one facet is the split itself: rounded and shortened to its
    largest terms, or exact with ``max_features=None, decimals=None``. In a sparse tree (see the
    parameter ``sparsity``) numbers are rounded already, and a row goes left if it satisfies every
    facet of the node. Full facets of a polytope only bound it: a row that violates any of them
    goes right. A row that satisfies all of them may go right too, because the votes of several
    experts add up (see :class:`bayestree.tree.Tree`). :func:`bayestree.export_rules` and
    :func:`bayestree.export_json` write that sum.

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        The trees of a forest are written one after the other. All numbers are those of the
        deterministic tree; if the estimator also has posterior draws, a line at the top notes it.
    max_features : int or "auto", optional
        Maximum number of terms of a facet, those of the largest weight per standard deviation, and
        of classes of a leaf, the most frequent. "auto" shows 6, or 12 of a sparse facet; None shows
        all.
    max_facets : int, optional
        Maximum number of facets of a node: those nearest to the mean of the data, which cut off
        most. None shows all.
    decimals : int, optional
        Significant digits; for a threshold, relative to the standard deviation of the first term.
        None shows all.
    intervals : TreeIntervals, optional
        What ``tree_intervals(X)`` of the estimator returned; intervals of limits and leaves are
        then written behind them, in parentheses.

    Returns
    -------
    str
        At least one line for each node and leaf, left branches first.

    Raises
    ------
    NotFittedError, TypeError
        If ``tree`` is not a tree or a fitted estimator of this package.
    ValueError
        If a limit is less than 1, or the intervals belong to another tree.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier, export_text
    >>> iris = load_iris(as_frame=True)
    >>> clf = ConvexPolytopeTreeClassifier(max_depth=1, inference="map", random_state=0)
    >>> text = export_text(clf.fit(iris.data, iris.target))
    """
    members = getattr(tree, "estimators_", [tree])
    texts = []
    for one, member in zip(trees_of(tree, several_outputs=True), members, strict=True):
        writer = _Text(one, max_features=max_features, max_facets=max_facets, decimals=decimals)
        if not isinstance(intervals, TreeIntervals | None):
            raise TypeError(f"intervals must be those of tree_intervals(X), got {intervals!r}.")
        if intervals is not None and intervals.tree is not one:
            raise ValueError("intervals belong to another tree: compute them by tree_intervals(X).")
        writer.intervals = intervals
        notes = [*notes_on_numbers(member, decimals), *writer.key()]
        lines = [writer.heading(), *(line for note in notes for line in wrap(note, WIDTH)), ""]
        texts.append("\n".join([*lines, *writer.written()]) + "\n")
    if not hasattr(tree, "estimators_"):
        return texts[0]
    return "\n".join(f"tree {t} of {len(texts)}: {text}" for t, text in enumerate(texts, start=1))


class _Text(Visitor[str]):
    terms: ClassVar[int | None] = 6
    intervals: TreeIntervals | None = None

    def heading(self) -> str:
        """Return the size of the tree."""
        tree = self.described.tree
        return (
            f"{counted(tree.n_nodes, 'node')}, {counted(tree.n_leaves, 'leaf')}, "
            f"depth {tree.depth}, {counted(tree.leaf_rows.sum(), 'row')}"
        )

    def key(self) -> list[str]:
        """Explain L and R, and the facets of a polytope, if there are any."""
        known = self.intervals
        around = (
            []
            if known is None
            else [f"In parentheses: {100 * known.level:g} % intervals of limits and leaves."]
        )
        if not self.described.tree.n_nodes:
            return around
        shown = f" {self.described.rule}" if self.described.has_polytopes else ""
        votes = " export_rules writes the votes." if self.described.adds_votes else ""
        return [*around, f"L is left, R is right.{shown}{votes}"]

    def node(self, at: Visit) -> Iterator[str]:
        """Write the first line of a node, and the lines that state its split."""
        described, node = self.described, at.child
        head = f"{self._head(at)}{counted(described.rows(node), 'row')}"
        if described.linear is None:
            yield f"{head}, {described.tree.split_name}"
            return
        known, (half_spaces, hidden) = self.intervals, self.facets(node)
        facets = [
            f"{one}{known.of_limit(one.expert, self.decimals) if known else ''}"
            for one in half_spaces
        ]
        n_facets = described.n_facets(node)
        yield f"{head}, {counted(n_facets, 'facet')}" if described.has_polytopes else head
        if n_facets == 1:
            lines = [f"left if  {facets[0]}"]
        else:
            more = [f"  … {hidden} more, farther out"] if hidden else []
            bounds = f"left if {'; '.join(described.bounds(node))}"
            lines = [bounds, *(f"  {facet}" for facet in facets), *more]
        yield from (f"{_indent(at.steps)}│    {line}" for line in lines)

    def leaf(self, at: Visit) -> Iterator[str]:
        """Write the line of a leaf."""
        rows = counted(self.described.rows(at.child), "row")
        known = self.intervals
        around = known.of_leaf(~at.child, self.decimals) if known else ""
        yield f"{self._head(at)}leaf, {rows}, {self.described.leaf(~at.child)}{around}"

    def _head(self, at: Visit) -> str:
        """Return the branch that leads to a node or leaf, and its path."""
        above = ""
        if at.steps:
            above = _indent(at.steps[:-1]) + ("├─ ", "└─ ")[at.steps[-1][1]]
        return f"{above}{self.described.path(at.child)}: "


def _indent(steps: Sequence[tuple[int, int]]) -> str:
    """Return the branches that go on below the node or leaf at the end of these steps."""
    return "".join(("│  ", "   ")[side] for _, side in steps)
