"""Importance of the columns for the splits of a tree, and the posterior uncertainty of the splits.

The report and the summary of a run share these definitions.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.description import TreeDescription
from bayestree.diagnostics import SplitUncertainty
from bayestree.protocols import BayesianTree, FittedModel, has_draws
from bayestree.report.rows import Rows
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding
from bayestree.tree import LOG2, Tree

SHUFFLES = 5  # of each column at each node, over all trees together
COVERED = 0.9  # share of the importance that the columns named together have

UNCERTAIN_DEFINITION = (
    "A row is uncertain at a node if the posterior probability of the side opposite to the point "
    "estimate exceeds 10 %."
)
IMPORTANCE_DEFINITION = (
    "The importance of a column at a node is the share of the node's rows that change sides in "
    "the point estimate when the column is shuffled among them."
)


class Importance(NamedTuple):
    """Importance of each column for the splits.

    ``nodes`` has, for each tree, the share of a node's rows that change sides when the column is
    shuffled among them, shape (V, c). ``total`` (c,) weights the nodes by their rows and by the
    distance between the predictions of their sides. It sums to 1, or is 0 if no row changes sides.
    """

    nodes: tuple[FloatArray, ...]
    total: FloatArray


def evaluation_rows(train: Rows | None, held: Rows | None) -> Rows | None:
    """The rows on which splits are judged: at most 2,000, held out if there are any."""
    rows = held if held is not None and len(held) else train
    return None if rows is None else rows.sample()


def importance(trees: Sequence[RoutedTree], rows: Rows, encoding: Encoding) -> Importance:
    """Importance of each column for the splits of one or more deterministic trees.

    Splits by networks are left out.
    """
    X, places = rows.matrix, encoding.places
    total = np.zeros(len(places))
    nodes = []
    shuffles = -(-SHUFFLES // len(trees))
    for tree in trees:
        share = np.zeros((tree.n_nodes, len(places)))
        if isinstance(tree, Tree):
            random = np.random.default_rng(0)
            distance = _side_distance(tree)
            for node, reached, _ in tree.walk(X):
                share[node] = _changed(tree, node, X[reached], places, shuffles, random)
                total += len(reached) * distance[node] * share[node]
        nodes.append(share)
    return Importance(tuple(nodes), total / total.sum() if total.any() else total)


def most_important(share: FloatArray, level: float = COVERED) -> IntArray:
    """The smallest set of columns that has a share ``level`` of the importance, largest first."""
    order = np.argsort(-share, kind="stable")[: np.count_nonzero(share)]
    covered = np.cumsum(share[order])
    return order[: np.searchsorted(covered, level * covered[-1]) + 1] if len(order) else order


def split_uncertainty(estimator: FittedModel, rows: Rows) -> SplitUncertainty | None:
    """Uncertainty of the splits about the rows; None without a posterior of the splits.

    It is not defined if the sides of a split are swapped between draws (``mirror=True``).
    """
    if not has_draws(estimator) or not hasattr(estimator, "split_uncertainty"):
        return None
    fitted = cast(BayesianTree, estimator)
    if fitted.tree_.n_nodes == 0 or fitted.posterior_.settings.get("mirror"):
        return None
    return fitted.split_uncertainty(rows.X)


def _changed(
    tree: Tree,
    node: int,
    X: FloatArray,
    places: Sequence[IntArray],
    shuffles: int,
    random: np.random.Generator,
) -> FloatArray:
    """Share of rows (n, d) that change sides when a column is shuffled, shape (c,)."""
    share = np.zeros(len(places))
    if len(X) == 0:
        return share
    experts = tree.experts(node)
    plane, weight = tree.hyperplane[experts], tree.weight[experts]
    activation = X @ plane.T + tree.intercept[experts]
    right = np.logaddexp(0.0, activation) @ weight > LOG2
    for _ in range(shuffles):
        order = random.permutation(len(X))
        for j, own in enumerate(places):
            if plane[:, own].any():
                moved = activation + (X[order][:, own] - X[:, own]) @ plane[:, own].T
                share[j] += ((np.logaddexp(0.0, moved) @ weight > LOG2) != right).mean()
    return share / shuffles


def _side_distance(tree: Tree) -> FloatArray:
    """Distance between the mean predictions of the two sides of each node, shape (V,).

    For class probabilities it is the total variation distance.
    """
    described = TreeDescription(tree)
    values = [
        [described.value(int(child)) for child in children] for children in tree.topology.children
    ]
    distance = np.array([np.abs(left - right).sum() for left, right in values])
    return distance / 2 if described.classifies else distance
