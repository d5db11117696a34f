"""How much a fitted tree depends on each feature: by its splits, its votes, and its predictions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, weighted_quantiles
from bayestree._utils.softplus import softplus
from bayestree.description import TreeDescription
from bayestree.diagnostics.draws import Draws, kept_draws, split_of, tails
from bayestree.diagnostics.routing import branch_log_probs, leaf_log_probs, scores
from bayestree.explain.change import Expect
from bayestree.inference import Data, Posterior, by_row
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding
from bayestree.tree import Tree

TINY = float(np.finfo(np.float64).tiny)
Misfit = Callable[[AnyArray, FloatArray], FloatArray]


class Part(NamedTuple):
    """A posterior in a mixture, with its weight."""

    weight: float
    posterior: Posterior

    def picks(self, max_draws: int) -> list[tuple[int, int]]:
        """Chains and numbers of evenly spaced draws."""
        kept = kept_draws(self.posterior.draws, max_draws).tolist()
        return [(chain, draw) for chain in range(self.posterior.n_chains) for draw in kept]


@dataclass(frozen=True, eq=False)
class Importance:
    """Importance of d columns in S draws; ``print`` it, or see ``to_frame`` and ``plot``.

    Attributes
    ----------
    features : tuple of str
    votes : array, shape (S, d)
        Share of each feature in the votes: at every node that a row reaches, experts share by
        their votes, and the features of an expert by their absolute coefficients. Sums to 1.
    loss : array, shape (S, d)
        Decrease of the mean log score of y, in nats, when the feature is shuffled among the rows.
    weights : array, shape (S,)
        Weights of the draws, with sum 1. A point estimate is one draw.
    level : float
        Probability of the intervals.
    """

    features: tuple[str, ...]
    votes: FloatArray
    loss: FloatArray
    weights: FloatArray
    level: float

    def interval(self, values: FloatArray) -> FloatArray:
        """Central interval over the draws of values (S, d), shape (2, d)."""
        return weighted_quantiles(values, self.weights, tails(self.level))

    def to_frame(self) -> pd.DataFrame:
        """Means over the draws with their intervals, the largest loss first."""
        columns: dict[str, FloatArray] = {}
        for name in ("loss", "votes"):
            values = getattr(self, name)
            low, high = self.interval(values)
            columns |= {name: self.weights @ values, f"{name}_low": low, f"{name}_high": high}
        index = pd.Index(self.features, name="feature", dtype=object)
        return pd.DataFrame(columns, index=index).sort_values(
            ["loss", "votes"], ascending=False, kind="stable"
        )

    def plot(self, ax: Any = None) -> AnyArray:
        """Draw losses and shares of votes with their intervals, shape (2,).

        ``ax`` holds two Axes; by default those of a new figure that is not registered with pyplot.
        """
        from bayestree.explain.drawing import draw_importance  # noqa: PLC0415 - Matplotlib is slow

        return draw_importance(self, ax)

    def __str__(self) -> str:
        table, intervals = self.to_frame(), f", with {self.level:.0%} intervals"
        if len(self.weights) == 1:
            table, intervals = table[["loss", "votes"]], ""
        return (
            "Importance: loss of the log score in nats when a feature is shuffled, and share of "
            f"the votes{intervals}\n" + table.to_string(float_format="{:.3g}".format)
        )


def split_importance(trees: Sequence[tuple[float, RoutedTree]]) -> FloatArray:
    """Importance of each feature for the splits of weighted deterministic trees, with sum 1.

    A node counts by the distance between the values of its children, weighted by their rows: for
    shares p of the classes n G(p) - sum_c n_c G(p_c) = sum_c n_c |p_c - p|^2 is the decrease of
    Gini's impurity, and for means that of the sum of squares. Its experts share this by their
    votes for a row that is one unit of ``scale`` from the mean of the data towards the facet, and
    the features of an expert by their absolute coefficients. For splits along the axes these are
    the importances of CART. Each feature of a linear or logistic leaf adds the same measure of its
    term: the rows times the square of what one unit of ``scale`` changes the mean, or to first
    order the probabilities, at ``center``. All are 0 if no tree has a split or a slope.
    """
    total = np.zeros(trees[0][1].n_features)
    for weight, tree in trees:
        if not isinstance(tree, Tree):
            raise AttributeError(  # noqa: TRY004 - hasattr is then False
                "feature_importances_ needs splits by linear experts, got the kind "
                f"{tree.split_name!r}."
            )
        own = np.zeros(tree.n_features)
        for node, gain in enumerate(_gains(tree)):
            own += gain * _node_shares(tree, node)
        own += _slope_gains(tree)
        total += weight * own / max(own.sum(), TINY)
    return total / max(total.sum(), TINY)


def point_importance(
    trees: Sequence[tuple[float, RoutedTree]],
    expect: Expect,
    X: FloatArray,
    y: AnyArray,
    orders: Sequence[AnyArray],
    weights: FloatArray,
    *,
    encoding: Encoding,
    misfit: Misfit | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Votes and losses (1, c) of weighted deterministic trees, and the weight 1 of this one draw.

    ``expect`` predicts y, class numbers or values (n,), from X (n, d); each of the ``orders`` (n,)
    shuffles the features of one of the c columns. ``misfit`` is minus the log-density of y given
    its prediction, of a normal distribution by default.
    """
    votes = np.sum([weight * _tree_votes(tree, X) for weight, tree in trees], axis=0)
    score = _PointScore(expect, X, y, weights, misfit)
    loss = [[np.mean([score(_shuffled(X, own, one)) for one in orders]) for own in encoding.places]]
    return encoding.by_column(votes[None]), np.array(loss), np.ones(1)


def draw_importance(
    parts: Sequence[Part],
    data: Data,
    orders: Sequence[AnyArray],
    max_draws: int,
    encoding: Encoding,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Votes and losses (S, c) of some draws of a mixture, and their weights (S,).

    ``data`` are rows in the units of the draws.
    """
    picks = [part.picks(max(1, max_draws // len(parts))) for part in parts]
    weights = np.concatenate(
        [np.full(len(some), p.weight / len(some)) for p, some in zip(parts, picks, strict=True)]
    )
    rows = data.X.numpy(force=True)
    votes = encoding.by_column(_draw_votes(parts, picks, rows))
    before, loss = _log_scores(parts, picks, data), np.zeros_like(votes)
    regress = any("leaf_slope" in part.posterior.draws for part in parts)
    for j in np.flatnonzero(votes.any(axis=0) | regress).tolist():
        for one in orders:
            moved = Data.of(_shuffled(rows, encoding.places[j], one), data.y, data.weights)
            loss[:, j] += (before - _log_scores(parts, picks, moved)) / len(orders)
    return votes, loss, weights / weights.sum()


def _gains(tree: Tree) -> Iterator[float]:
    """Decrease of the impurity at each node."""
    described = TreeDescription(tree)
    for node, children in enumerate(tree.topology.children.tolist()):
        apart = [
            described.rows(child) * ((described.value(child) - described.value(node)) ** 2).sum()
            for child in children
        ]
        yield float(sum(apart))


def _slope_gains(tree: Tree) -> FloatArray:
    """Decrease of the impurity by the term of each feature in the leaves, (d,)."""
    if tree.slope is None:
        return np.zeros(tree.n_features)
    change = (tree.slope * tree.scale).reshape(tree.n_leaves, -1, tree.n_features)
    if tree.slope.ndim == 3:  # dp_c = p_c (ds_c - sum_k p_k ds_k)
        share = tree.value[..., None]
        change = share * (change - (share * change).sum(axis=1, keepdims=True))
    return np.einsum("l,lcd->d", tree.leaf_rows, change**2)


def _node_shares(tree: Tree, node: int) -> FloatArray:
    """Share of each feature in a node of the deterministic tree, (d,)."""
    experts = tree.experts(node)
    plane = tree.hyperplane[experts] * tree.scale
    at_mean = tree.hyperplane[experts] @ tree.center + tree.intercept[experts]
    votes = tree.weight[experts] * softplus(at_mean + np.linalg.norm(plane, axis=1))
    return _shared(votes[None] / max(votes.sum(), TINY), plane)


def _shared(share: FloatArray, plane: FloatArray) -> FloatArray:
    """Sum over rows of the shares (n, K) of experts, divided among their features, (d,)."""
    size = np.abs(plane)
    return share.sum(axis=0) @ (size / np.maximum(size.sum(axis=1, keepdims=True), TINY))


def _votes(
    weight: FloatArray, plane: FloatArray, intercept: FloatArray, X: FloatArray
) -> FloatArray:
    """Share of each expert in the votes of each row at one node, (n, K)."""
    votes = softplus(X @ plane.T + intercept) * weight
    return votes / np.maximum(votes.sum(axis=1, keepdims=True), TINY)


def _tree_votes(tree: RoutedTree, X: FloatArray) -> FloatArray:
    total = np.zeros(X.shape[1])
    if isinstance(tree, Tree):
        for node, rows, _ in tree.walk(X):
            at = tree.experts(node)
            share = _votes(tree.weight[at], tree.hyperplane[at], tree.intercept[at], X[rows])
            total += _shared(share, tree.hyperplane[at] * tree.scale)
    return total / max(total.sum(), TINY)


def _draw_votes(
    parts: Sequence[Part], picks: Sequence[list[tuple[int, int]]], X: FloatArray
) -> FloatArray:
    """Share of each feature in the votes of each draw, (S, d)."""
    found = []
    for part, some in zip(parts, picks, strict=True):
        model, draws = part.posterior.model, part.posterior.draws
        for one in some:
            reached = _reached(draws, one, X, model)
            total = np.zeros(X.shape[1])
            for node, split in enumerate(zip(*split_of(draws, one), strict=True)):
                share = _votes(split[0], split[1], split[2], X)
                total += _shared(share * reached[:, node, None], split[1])
            found.append(total / max(total.sum(), TINY))
    return np.array(found)


def _reached(draws: Draws, one: tuple[int, int], X: FloatArray, model: Any) -> FloatArray:
    """Probability that a row reaches a node under a draw, (n, V)."""
    log_probs = branch_log_probs(scores(draws, one, X), model.steepness)
    leaf = np.exp(leaf_log_probs(*log_probs, model.topology))
    return leaf @ model.topology.turns.any(axis=0).T


def _log_scores(
    parts: Sequence[Part], picks: Sequence[list[tuple[int, int]]], data: Data
) -> FloatArray:
    """Mean log-density of y under each draw, (S,)."""
    found = []
    for part, some in zip(parts, picks, strict=True):
        sites = (part.posterior.sites(*one) for one in some)
        found.append(by_row.log_likelihood(part.posterior.model, sites, data).sum(axis=1))
    return np.concatenate(found) / float(data.weights.sum())


class _PointScore:
    """Decrease of the log score of a point prediction from that for the given rows.

    The probability of a class is at least half a row's share of all, since a leaf may lack it. A
    mean counts as that of a normal distribution with the variance of the residuals.
    """

    def __init__(
        self,
        expect: Expect,
        X: FloatArray,
        y: AnyArray,
        weights: FloatArray,
        misfit: Misfit | None,
    ) -> None:
        self.expect, self.y, self.weights, self.misfit = expect, y, weights, misfit
        if misfit is None and y.dtype.kind == "f":
            variance = max(self._mean((expect(X)[0] - y) ** 2), TINY)
            self.misfit = lambda y, mean: (mean - y) ** 2 / (2 * variance)
        self.before = self._score(X)

    def __call__(self, X: FloatArray) -> float:
        return self.before - self._score(X)

    def _score(self, X: FloatArray) -> float:
        mean = self.expect(X)[0]
        if self.misfit is not None:
            return -self._mean(self.misfit(self.y, mean))
        right = mean[np.arange(len(X)), self.y]
        return self._mean(np.log(np.maximum(right, 0.5 / len(X))))

    def _mean(self, values: FloatArray) -> float:
        return float(np.average(values, weights=self.weights))


def _shuffled(X: FloatArray, features: IntArray, order: AnyArray) -> FloatArray:
    moved = X.copy()
    moved[:, features] = X[np.ix_(order, features)]
    return moved
