"""What the splits of a tree look at, and how sure the posterior is of them.

The report and the summary of a run both read these definitions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.diagnostics import SplitUncertainty
from bayestree.report.rows import Rows
from bayestree.routed_tree import RoutedTree
from bayestree.tree import LOG2, Tree

SHUFFLES = 5  # of each feature at each node, all trees together
MATTERS = 0.9  # share of the importance that the features named together hold

UNSURE_MEANS = (
    "A row is unsure at a node if the posterior gives the side that the point estimate does not "
    "take a chance above 10 %."
)
IMPORTANCE_MEANS = (
    "The importance of a feature at a node is the share of the node's rows that change sides in "
    "the point estimate when the feature is shuffled among them."
)


class Importance(NamedTuple):
    """How much the splits depend on each feature.

    Attributes
    ----------
    nodes : tuple of arrays, shape (V, d)
        For each tree: the share of a node's rows that change sides when the feature is shuffled
        among them.
    total : array, shape (d,)
        Over all nodes, each weighted by its rows and by how far apart the predictions of its two
        sides are; sums to 1, or is 0 where nothing changes.
    """

    nodes: tuple[FloatArray, ...]
    total: FloatArray


def asked_of(train: Rows | None, held: Rows | None) -> Rows | None:
    """The rows that splits are judged on: at most 2,000 held-out ones, or else of the fit."""
    rows = held if held is not None and len(held) else train
    return None if rows is None else rows.sample()


def importance(trees: Sequence[RoutedTree], rows: Rows) -> Importance:
    """Importance of each feature for the splits of deterministic trees.

    Splits by networks are left out.

    Parameters
    ----------
    trees : sequence of RoutedTree
        A tree, or those of a forest.
    rows : Rows
        Such as :func:`asked_of` returns.
    """
    X = rows.matrix
    total = np.zeros(X.shape[1])
    nodes = []
    shuffles = -(-SHUFFLES // len(trees))
    for tree in trees:
        share = np.zeros((tree.n_nodes, X.shape[1]))
        if isinstance(tree, Tree):
            random = np.random.default_rng(0)
            gap = _gaps(tree)
            for node, reached, _ in tree.walk(X):
                share[node] = _changed(tree, node, X[reached], shuffles, random)
                total += len(reached) * gap[node] * share[node]
        nodes.append(share)
    return Importance(tuple(nodes), total / total.sum() if total.any() else total)


def strongest(share: FloatArray, level: float = MATTERS) -> IntArray:
    """The fewest features that together hold so much of the importance, the strongest first."""
    order = np.argsort(-share, kind="stable")[: np.count_nonzero(share)]
    held = np.cumsum(share[order])
    return order[: np.searchsorted(held, level * held[-1]) + 1] if len(order) else order


def doubt(estimator: Any, rows: Rows) -> SplitUncertainty | None:
    """How sure the splits are of the rows; None without a posterior of splits.

    Nothing can be told where the sides of a split are swapped between draws (``mirror=True``).
    """
    posterior = getattr(estimator, "posterior_", None)
    if posterior is None or not hasattr(estimator, "split_uncertainty"):
        return None
    one_draw = posterior.n_chains * posterior.n_draws == 1
    if one_draw or estimator.tree_.n_nodes == 0 or posterior.settings.get("mirror"):
        return None
    found: SplitUncertainty = estimator.split_uncertainty(rows.X)
    return found


def _changed(
    tree: Tree, node: int, X: FloatArray, shuffles: int, random: np.random.Generator
) -> FloatArray:
    """Share of rows (n, d) that change sides when a feature is shuffled, shape (d,)."""
    share = np.zeros(X.shape[1])
    if len(X) == 0:
        return share
    own = tree.experts(node)
    plane, weight = tree.hyperplane[own], tree.weight[own]
    activation = X @ plane.T + tree.intercept[own]
    right = np.logaddexp(0.0, activation) @ weight > LOG2
    for _ in range(shuffles):
        order = random.permutation(len(X))
        for j in np.flatnonzero(plane.any(axis=0)):
            moved = activation + np.outer(X[order, j] - X[:, j], plane[:, j])
            share[j] += ((np.logaddexp(0.0, moved) @ weight > LOG2) != right).mean()
    return share / shuffles


def _gaps(tree: Tree) -> FloatArray:
    """Distance between the mean predictions of the two sides of each node, shape (V,).

    Of class probabilities it is the total variation.
    """
    value = tree.value.reshape(tree.n_leaves, -1)
    weighted = tree.leaf_rows[:, None] * value
    rows = np.append(tree.topology.sum_below(tree.leaf_rows), tree.leaf_rows[::-1])
    sums = np.concatenate([tree.topology.sum_below(weighted), weighted[::-1]])
    # leaf ~l is the l-th entry from the end
    mean = sums / np.maximum(rows, np.finfo(np.float64).tiny)[:, None]
    left, right = tree.topology.children.T
    apart = np.abs(mean[left] - mean[right]).sum(axis=1)
    gaps: FloatArray = apart / 2 if tree.value.ndim == 2 else apart
    return gaps
