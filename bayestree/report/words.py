"""What every export says of a tree: its rows, leaves and half-spaces in words."""

import numpy as np

from bayestree._inequality import inequality, limit
from bayestree.routed_tree import RoutedTree
from bayestree.topology import IntArray
from bayestree.tree import FloatArray, Tree, facet_threshold

TINY = float(np.finfo(np.float64).tiny)


class Words:
    """Words about one tree, whatever its splits are.

    Parameters
    ----------
    tree : RoutedTree
    max_features : int
        Most classes of a leaf, or terms of a sum.
    decimals : int
        Significant digits.
    """

    def __init__(self, tree: RoutedTree, max_features: int, decimals: int) -> None:
        self.tree = tree
        self.max_features = max_features
        self.decimals = decimals
        self.names = tree.feature_names or tuple(f"x{j}" for j in range(tree.n_features))

    def leaf(self, leaf: int) -> str:
        """Shares of the classes of a leaf, or its prediction."""
        value = self.tree.value[leaf]
        return self.shares(value) if self.tree.value.ndim == 2 else self.prediction(leaf)

    def shares(self, value: FloatArray) -> str:
        """The most frequent of classes with these probabilities (C,)."""
        names = self.tree.class_names or tuple(f"class {c}" for c in range(len(value)))
        order = np.argsort(-value, kind="stable")[: np.count_nonzero(value)]
        shown = order[: self.max_features]
        text = ", ".join(f"{names[c]} {100 * value[c]:.1f} %" for c in shown)
        return text + (f", … {len(order) - len(shown)} more" if len(order) > len(shown) else "")

    def prediction(self, leaf: int) -> str:
        """The mean of a leaf."""
        return f"mean {self.tree.value[leaf]:.{self.decimals}g}"


class FacetWords(Words):
    """Words about a tree of hyperplanes or polytopes."""

    tree: Tree

    def __init__(self, tree: Tree, max_features: int, decimals: int) -> None:
        super().__init__(tree, max_features, decimals)
        self.has_polytopes = bool((tree.n_facets > 1).any())
        self.threshold = facet_threshold(tree.weight) - tree.intercept
        self.strength = np.abs(tree.standardised_hyperplane)
        # how far each facet lies from the mean of the data: the nearest cuts off the most
        norm = np.maximum(np.linalg.norm(tree.standardised_hyperplane, axis=1), TINY)
        self.distance = (self.threshold - tree.hyperplane @ tree.center) / norm

    def nearest(self, node: int) -> IntArray:
        """Experts of a node, the nearest to the mean of the data first."""
        own = self.tree.experts(node)
        found: IntArray = own.start + np.argsort(self.distance[own], kind="stable")
        return found

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


def words_of(tree: RoutedTree, max_features: int, decimals: int) -> Words:
    """Words for the kind of tree."""
    if isinstance(tree, Tree):
        return FacetWords(tree, max_features, decimals)
    return Words(tree, max_features, decimals)


def counted(number: int, noun: str) -> str:
    """A number with its noun, as in ``"2 leaves"``."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def rows_in_words(weight: float) -> str:
    """Weighted rows: whole numbers as such."""
    return f"{round(weight, 1):,.10g} {'row' if weight == 1 else 'rows'}"


def trees_of(tree: object) -> list[RoutedTree]:
    """The deterministic trees of a tree, of a fitted estimator, or of a fitted forest.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    members = getattr(tree, "estimators_", [tree])
    found = [getattr(member, "tree_", member) for member in members]
    if not found or not all(isinstance(one, RoutedTree) for one in found):
        raise TypeError(
            f"tree must be a Tree or a fitted estimator, got {type(tree).__name__}; call fit first."
        )
    return found


def check_positive(**given: int) -> None:
    """Refuse a number below 1 by its name.

    Raises
    ------
    ValueError
    """
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")
