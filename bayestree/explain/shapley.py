"""Exact Shapley values of the predictions of a deterministic tree."""

from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

MOST = 12  # features with a coefficient: 4,096 coalitions
ROWS = 2**17  # rows predicted at a time


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """Shapley values of n predictions of the deterministic tree.

    Attributes
    ----------
    features : tuple of str
    classes : tuple of str
        Empty for regression.
    base : array, shape (C,) or (1,)
        Mean prediction over the background rows.
    contributions : array, shape (n, d, C) or (n, d, 1)
        Contribution of each feature; ``base`` plus their sum over the features is the prediction.
    """

    features: tuple[str, ...]
    classes: tuple[str, ...]
    base: FloatArray
    contributions: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """A row for each row and class (for regression each row), a column for each feature."""
        n_rows, _, n_outputs = self.contributions.shape
        flat = self.contributions.swapaxes(1, 2).reshape(n_rows * n_outputs, -1)
        index: Any = pd.RangeIndex(n_rows, name="row")
        if self.classes:
            index = pd.MultiIndex.from_product([index, self.classes], names=["row", "class"])
        return pd.DataFrame(flat, index=index, columns=list(self.features))

    def plot(self, ax: Any = None, *, row: int = 0) -> Any:
        """Draw the contributions to the prediction of one row, by feature and class.

        ``ax`` are Axes; by default those of a new figure that is not registered with pyplot.
        """
        from bayestree.explain.drawing import draw_shapley  # noqa: PLC0415 - Matplotlib is slow

        return draw_shapley(self, ax, row)


def shapley_values(
    tree: RoutedTree, X: FloatArray, background: FloatArray, classes: tuple[str, ...]
) -> ShapleyValues:
    """Shapley values of rows X (n, d) of the game v(S) = E f(x_S, b_rest) over background rows b.

    This is the interventional expectation: features outside S are taken from the background rows
    together. Features without a coefficient in the tree contribute 0.
    """
    used = _used(tree)
    if len(used) > MOST:
        raise ValueError(
            f"exact Shapley values need a tree of at most {MOST} features, got {len(used)}; use "
            "importance(X, y), or a smaller or sparser tree."
        )
    v = np.stack([_coalitions(tree, x, background, used) for x in X])
    values = np.zeros((len(X), tree.n_features, v.shape[2]))
    m, members = len(used), np.arange(v.shape[1])
    size = np.array([bin(s).count("1") for s in members])
    weight = np.array([factorial(k) * factorial(m - k - 1) / factorial(m) for k in range(m)])
    for place, j in enumerate(used):
        without = members[(members >> place) % 2 == 0]
        gain = v[:, without | (1 << place)] - v[:, without]
        values[:, j] = np.einsum("s,nsc->nc", weight[size[without]], gain)
    return ShapleyValues(tuple(tree.feature_labels), classes, v[0, 0], values)


def _used(tree: RoutedTree) -> IntArray:
    """Features on which the tree depends."""
    if not isinstance(tree, Tree):
        return np.arange(tree.n_features)
    used = tree.hyperplane.any(axis=0)
    if tree.slope is not None:
        used = used | tree.slope.any(axis=0)
    return np.flatnonzero(used)


def _coalitions(
    tree: RoutedTree, x: FloatArray, background: FloatArray, used: IntArray
) -> FloatArray:
    """Value of each coalition of the used features, whose bits are its number, (2^m, C)."""
    n_sets, n_rows = 2 ** len(used), len(background)
    size = max(1, ROWS // n_rows)
    found = []
    for start in range(0, n_sets, size):
        members = np.arange(start, min(start + size, n_sets))
        known = np.zeros((len(members), len(x)), dtype=bool)
        known[:, used] = (members[:, None] >> np.arange(len(used))) % 2 == 1
        rows = np.where(known[:, None], x, background).reshape(-1, len(x))
        mean: AnyArray = tree.predict(rows).reshape(len(members), n_rows, -1).mean(axis=1)
        found.append(mean)
    return np.concatenate(found)
