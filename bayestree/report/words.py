"""What every export says of a tree: its rows, leaves and half-spaces in words."""

import numpy as np

from bayestree._trees import has_draws, trees_of
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.inequality import inequality, limit, plain, signed
from bayestree._utils.wording import counted, one_line
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree


class Words:
    """Words about one tree, whatever its splits are.

    Parameters
    ----------
    tree : RoutedTree
    max_features : int, optional
        Most classes of a leaf, or terms of a sum; None shows all.
    decimals : int, optional
        Significant digits; None shows all.
    """

    def __init__(self, tree: RoutedTree, max_features: int | None, decimals: int | None) -> None:
        self.tree = tree
        self.max_features = max_features
        self.decimals = decimals
        self.names = tuple(map(one_line, tree.feature_labels))
        self.classes = tuple(map(one_line, tree.class_labels)) if tree.value.ndim == 2 else ()

    def leaf(self, leaf: int) -> str:
        """Shares of the classes of a leaf, or its prediction."""
        value = self.tree.value[leaf]
        return self.shares(value) if self.tree.value.ndim == 2 else self.prediction(leaf)

    def shares(self, value: FloatArray) -> str:
        """The most frequent of classes with these probabilities (C,)."""
        order = np.argsort(-value, kind="stable")[: np.count_nonzero(value)]
        shown = order[: self.max_features]
        text = ", ".join(f"{self.classes[c]}: {100 * value[c]:.1f} %" for c in shown)
        return text + (f", … {len(order) - len(shown)} more" if len(order) > len(shown) else "")

    def prediction(self, leaf: int) -> str:
        """The mean of a leaf."""
        return f"mean {plain(float(self.tree.value[leaf]), self.decimals)}"


class FacetWords(Words):
    """Words about a tree of hyperplanes or polytopes."""

    tree: Tree

    def __init__(self, tree: Tree, max_features: int | None, decimals: int | None) -> None:
        super().__init__(tree, max_features, decimals)
        self.has_polytopes = bool((tree.n_facets > 1).any())
        self.threshold = tree.facet_limit
        self.strength = np.abs(tree.standardised_hyperplane)

    def nearest(self, node: int) -> IntArray:
        """Experts of a node, the nearest to the mean of the data first."""
        return self.tree.nearest_experts(node)

    def bounds(self, node: int) -> list[str]:
        """What decides at a polytope, and what its facets, listed after this, are to it."""
        votes = counted(int(self.tree.n_facets[node]), "facet")
        return [
            f"the votes of {votes} add up to at most log 2",
            "each line below is necessary, but not sufficient:",
        ]

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
        center, digits = self.tree.center, self.decimals
        terms = [
            signed(slope[leaf, j], digits, f"({self.names[j]} {signed(-center[j], digits)})")
            for j in order[: self.max_features].tolist()
        ]
        more = [f"+ … {len(order) - len(terms)} more"] if len(order) > len(terms) else []
        return " ".join([plain(float(value), digits), *terms, *more])


def words_of(tree: RoutedTree, max_features: int | None, decimals: int | None) -> Words:
    """Words for the kind of tree."""
    if isinstance(tree, Tree):
        return FacetWords(tree, max_features, decimals)
    return Words(tree, max_features, decimals)


def fitted_to(n_rows: int | None) -> str:
    """How many of the training rows a model was fitted to; None for all."""
    return f"fitted to {'the same' if n_rows is None else f'{n_rows:,} of the'} training rows"


def rows_in_words(weight: float) -> str:
    """Weighted rows: whole numbers as such."""
    return f"{round(weight, 1):,.10g} {'row' if weight == 1 else 'rows'}"


def point_estimate(tree: object) -> list[str]:
    """A line that says which numbers these are, of an estimator that also has a posterior."""
    if not has_draws(tree):
        return []
    posterior = (
        "; polytope_size() and facets(node) give the posterior"
        if isinstance(trees_of(tree)[0], Tree)
        else ""
    )
    return [f"All numbers are the point estimate (the deterministic tree){posterior}."]


def check_positive(**given: int | None) -> None:
    """Refuse a limit below 1 by its name; None is no limit.

    Raises
    ------
    ValueError
    """
    for name, value in given.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}; None shows all.")
