"""Exact Shapley values of the predictions of deterministic trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding
from bayestree.tree import Tree

MOST = 12  # columns with a coefficient: 4,096 coalitions
ROWS = 2**17  # rows predicted at a time


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """Shapley values of n predictions of the deterministic tree, or of the mean of a forest's.

    Attributes
    ----------
    features : tuple of str
    classes : tuple of str
        Empty for regression.
    base : array, shape (C,) or (1,)
        Mean prediction over the background rows.
    contributions : array, shape (n, c, C) or (n, c, 1)
        Contribution of each column; ``base`` plus their sum over the columns is the prediction.
    """

    features: tuple[str, ...]
    classes: tuple[str, ...]
    base: FloatArray
    contributions: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """A row for each row and class (for regression each row), and the columns of the table."""
        n_rows, _, n_outputs = self.contributions.shape
        flat = self.contributions.swapaxes(1, 2).reshape(n_rows * n_outputs, -1)
        index: Any = pd.RangeIndex(n_rows, name="row")
        if self.classes:
            index = pd.MultiIndex.from_product([index, self.classes], names=["row", "class"])
        return pd.DataFrame(flat, index=index, columns=list(self.features))

    def plot(self, ax: Any = None, *, row: int = 0) -> Any:
        """Draw the contributions to the prediction of one row, by column and class.

        ``ax`` are Axes; by default those of a new figure that is not registered with pyplot.
        """
        from bayestree.plots._explanations import draw_shapley  # noqa: PLC0415 - slow

        return draw_shapley(self.contributions[row], self.features, self.classes, ax)


def shapley_values(
    trees: Sequence[tuple[float, RoutedTree]],
    X: FloatArray,
    background: FloatArray,
    classes: tuple[str, ...],
    encoding: Encoding,
) -> ShapleyValues:
    """Shapley values of rows X (n, d) of the game v(S) = E f(x_S, b_rest) over background rows b.

    This is the interventional expectation: columns outside S are taken from the background rows
    together. f is the weighted sum of the trees, whose games add up. Columns without a coefficient
    in a tree contribute 0 to it.
    """
    base: Any = 0.0
    values: Any = 0.0
    for weight, tree in trees:
        own, contributions = _of_tree(tree, X, background, encoding.places)
        base, values = base + weight * own, values + weight * contributions
    return ShapleyValues(encoding.names, classes, base, values)


def _of_tree(
    tree: RoutedTree, X: FloatArray, background: FloatArray, places: Sequence[IntArray]
) -> tuple[FloatArray, FloatArray]:
    """The mean prediction (C,) of one tree, and the contributions of the columns (n, c, C)."""
    used = _used(tree, places)
    if len(used) > MOST:
        raise ValueError(
            f"exact Shapley values need trees of at most {MOST} columns, got {len(used)}; use "
            "importance(X, y), or smaller or sparser trees."
        )
    groups = [places[j] for j in used]
    v = np.stack([_coalitions(tree, x, background, groups) for x in X])
    values = np.zeros((len(X), len(places), v.shape[2]))
    m, members = len(used), np.arange(v.shape[1])
    size = np.array([bin(s).count("1") for s in members])
    weight = np.array([factorial(k) * factorial(m - k - 1) / factorial(m) for k in range(m)])
    for place, j in enumerate(used):
        without = members[(members >> place) % 2 == 0]
        gain = v[:, without | (1 << place)] - v[:, without]
        values[:, j] = np.einsum("s,nsc->nc", weight[size[without]], gain)
    return v[0, 0], values


def _used(tree: RoutedTree, places: Sequence[IntArray]) -> list[int]:
    """Columns on which the tree depends."""
    if not isinstance(tree, Tree):
        return [*range(len(places))]
    used: BoolArray = np.any(tree.hyperplane != 0, axis=0)
    if tree.slope is not None:
        used = used | np.any(tree.slope.reshape(-1, tree.n_features) != 0, axis=0)
    return [j for j, own in enumerate(places) if used[own].any()]


def _coalitions(
    tree: RoutedTree, x: FloatArray, background: FloatArray, groups: Sequence[IntArray]
) -> FloatArray:
    """Value of each coalition of the m groups of features, whose bits are its number, (2^m, C)."""
    n_sets, n_rows = 2 ** len(groups), len(background)
    size = max(1, ROWS // n_rows)
    found = []
    for start in range(0, n_sets, size):
        members = np.arange(start, min(start + size, n_sets))
        known = np.zeros((len(members), len(x)), dtype=bool)
        for place, own in enumerate(groups):
            known[:, own] = ((members >> place) % 2 == 1)[:, None]
        rows = np.where(known[:, None], x, background).reshape(-1, len(x))
        found.append(tree.predict(rows).reshape(len(members), n_rows, -1).mean(axis=1))
    return np.concatenate(found)
