"""The deterministic tree as text."""

from collections.abc import Iterator

import numpy as np

from bayestree._inequality import inequality, limit
from bayestree.routed_tree import RoutedTree
from bayestree.tree import FloatArray, Tree, facet_threshold

TINY = float(np.finfo(np.float64).tiny)


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
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")
    members = getattr(tree, "estimators_", None)
    if members is not None:
        return "\n".join(
            f"tree {t} of {len(members)}: {export_text(member, **given)}"
            for t, member in enumerate(members, start=1)
        )
    found = getattr(tree, "tree_", tree)
    if isinstance(found, Tree):
        writer: _Writer = _PolytopeWriter(found, max_features, max_facets, decimals)
    elif isinstance(found, RoutedTree):
        writer = _Writer(found, max_features, decimals)
    else:
        raise TypeError(
            f"tree must be a Tree or a fitted estimator, got {type(tree).__name__}; call fit first."
        )
    return "\n".join(writer.lines()) + "\n"


class _Writer:
    """Writes one tree, whatever its splits are."""

    key = "L is left, R is right."

    def __init__(self, tree: RoutedTree, max_features: int, decimals: int) -> None:
        self.tree = tree
        self.max_features = max_features
        self.decimals = decimals
        self.node_rows = tree.topology.sum_below(tree.leaf_rows)

    def lines(self) -> Iterator[str]:
        tree = self.tree
        yield (
            f"{_count(tree.n_nodes, 'node')}, {_count(tree.n_leaves, 'leaf')}, depth {tree.depth}, "
            f"{_rows(tree.leaf_rows.sum())}"
        )
        if tree.n_nodes:
            yield self.key
        yield ""
        yield from self.branch(0 if tree.n_nodes else ~0, "", "")

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
        yield f"{self.head(node)}, {self.tree.split_name}"

    def head(self, node: int) -> str:
        """Where a node is, and its rows."""
        return f"{self.tree.topology.node_labels[node]}: {_rows(self.node_rows[node])}"

    def leaf(self, leaf: int) -> str:
        """A leaf: its rows, and shares of the classes or mean."""
        tree = self.tree
        label = tree.topology.leaf_labels[leaf]
        value = tree.value[leaf]
        says = self.shares(value) if tree.value.ndim == 2 else self.prediction(leaf)
        return f"{label}: leaf, {_rows(tree.leaf_rows[leaf])}, {says}"

    def prediction(self, leaf: int) -> str:
        """The mean of a leaf."""
        return f"mean {self.tree.value[leaf]:.{self.decimals}g}"

    def shares(self, value: FloatArray) -> str:
        """The most frequent classes of a leaf."""
        names = self.tree.class_names or tuple(f"class {c}" for c in range(len(value)))
        order = np.argsort(-value, kind="stable")[: np.count_nonzero(value)]
        shown = order[: self.max_features]
        text = ", ".join(f"{names[c]} {100 * value[c]:.1f} %" for c in shown)
        return text + (f", … {len(order) - len(shown)} more" if len(order) > len(shown) else "")


class _PolytopeWriter(_Writer):
    """Writes a tree of polytopes with their facets."""

    tree: Tree

    def __init__(self, tree: Tree, max_features: int, max_facets: int, decimals: int) -> None:
        super().__init__(tree, max_features, decimals)
        self.max_facets = max_facets
        self.has_polytopes = bool((tree.n_facets > 1).any())
        if self.has_polytopes:
            self.key = "L (left) lies inside the polytope of a node, R (right) outside."
        self.names = tree.feature_names or tuple(f"x{j}" for j in range(tree.n_features))
        self.threshold = facet_threshold(tree.weight) - tree.intercept
        self.strength = np.abs(tree.standardised_hyperplane)
        # how far each facet lies from the mean of the data: the nearest cuts off the most
        norm = np.maximum(np.linalg.norm(tree.standardised_hyperplane, axis=1), TINY)
        self.distance = (self.threshold - tree.hyperplane @ tree.center) / norm

    def node(self, node: int) -> Iterator[str]:
        own = self.tree.experts(node)
        n_facets = own.stop - own.start
        facets = f", {_count(n_facets, 'facet')}" if self.has_polytopes else ""
        yield self.head(node) + facets
        if n_facets == 1:
            yield f"left if  {self.facet(own.start)}"
            return
        yield "left if the votes of these add up to at most log 2 (each facet is necessary)"
        nearest = own.start + np.argsort(self.distance[own], kind="stable")
        yield from (f"  {self.facet(int(expert))}" for expert in nearest[: self.max_facets])
        if n_facets > self.max_facets:
            yield f"  … {n_facets - self.max_facets} more, farther out"

    def facet(self, expert: int) -> str:
        """A half-space, scaled so that its first coefficient is 1."""
        strength = self.strength[expert]
        threshold = float(self.threshold[expert])
        if not strength.any():
            return "always" if threshold >= 0 else "never"
        plane = self.tree.hyperplane[expert]
        left, first = inequality(
            plane,
            strength,
            self.names,
            max_features=self.max_features,
            decimals=self.decimals,
        )
        spread = float(self.tree.scale[first])
        return f"{left} {limit(threshold / float(plane[first]), spread, self.decimals)}"

    def prediction(self, leaf: int) -> str:
        """The mean of a leaf, or its linear function of the features."""
        value, slope = self.tree.value[leaf], self.tree.slope
        if slope is None:
            return super().prediction(leaf)
        strength = np.abs(slope[leaf] * self.tree.scale)
        order = np.argsort(-strength, kind="stable")[: np.count_nonzero(strength)]
        digits, center = f".{self.decimals}g", self.tree.center
        terms = [
            f" {'-' if slope[leaf, j] < 0 else '+'} {abs(slope[leaf, j]):{digits}} "
            f"({self.names[j]} {'+' if center[j] < 0 else '-'} {abs(center[j]):{digits}})"
            for j in order[: self.max_features]
        ]
        more = len(order) - len(terms)
        return f"{value:{digits}}{''.join(terms)}" + (f" + … {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _rows(weight: float) -> str:
    """Weighted rows: whole numbers as such."""
    return f"{round(weight, 1):,.10g} {'row' if weight == 1 else 'rows'}"
