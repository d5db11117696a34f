"""How much a fitted tree depends on each feature: by its splits, its votes, and its predictions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import logsumexp, ndtri

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, softplus, weighted_quantiles
from bayestree.description import TreeDescription
from bayestree.diagnostics.draws import (
    Draws,
    branch_log_probs,
    kept_draws,
    leaf_log_probs,
    scores,
    split_of,
    tails,
)
from bayestree.explain.counterfactual import Expect
from bayestree.inference import Data, Posterior, pointwise
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
        """Choose evenly spaced draws, as pairs of chain and number."""
        kept = kept_draws(self.posterior.draws, max_draws).tolist()
        return [(chain, draw) for chain in range(self.posterior.n_chains) for draw in kept]


@dataclass(frozen=True, eq=False)
class Importance:
    """Importance of d columns; ``print`` it, or see ``to_frame`` and ``plot``.

    Attributes
    ----------
    features : tuple of str
    votes : array, shape (S, d)
        Share of each feature in the votes of each of S draws: at every node that a row reaches,
        experts share by their votes, and the features of an expert by their absolute coefficients.
        Sums to 1.
    prior_votes : array, shape (d,)
        The same before any row was seen: the features share equally.
    loss, loss_error : arrays, shape (d,)
        Decrease of the mean log score of y, in nats, when the feature is shuffled among the rows,
        and its standard error from the spread of the rows. The prediction that is scored is that
        of the mixture of all draws and modes.
    weights : array, shape (S,)
        Weights of the draws, with sum 1. A point estimate is one draw.
    level : float
        Probability of the intervals.
    """

    features: tuple[str, ...]
    votes: FloatArray
    loss: FloatArray
    loss_error: FloatArray
    weights: FloatArray
    prior_votes: FloatArray
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Tabulate losses and shares of votes with their intervals, the largest loss first.

        Intervals of losses are normal and over the rows; intervals of votes are over the draws.
        """
        half = self.loss_error * ndtri(0.5 + self.level / 2)
        low, high = weighted_quantiles(self.votes, self.weights, tails(self.level))
        columns = {
            "loss": self.loss,
            "loss_low": self.loss - half,
            "loss_high": self.loss + half,
            "votes": self.weights @ self.votes,
            "votes_low": low,
            "votes_high": high,
            "votes_prior": self.prior_votes,
        }
        index = pd.Index(self.features, name="feature", dtype=object)
        return pd.DataFrame(columns, index=index).sort_values(
            ["loss", "votes"], ascending=False, kind="stable"
        )

    def plot(self, ax: Any = None) -> AnyArray:
        """Draw losses and shares of votes with their intervals, shape (2,).

        ``ax`` holds two Axes; by default of a new figure that is not registered with pyplot.
        """
        from bayestree.plots._predictions import draw_importance  # noqa: PLC0415 - slow

        return draw_importance(self.to_frame(), self.level, ax)

    def __str__(self) -> str:
        table = self.to_frame()
        if len(self.weights) == 1:
            table = table.drop(columns=["votes_low", "votes_high"])
        return (
            "Importance: loss of the log score in nats when a feature is shuffled, and share of\n"
            f"the votes, with {self.level:.0%} intervals; votes_prior is the share of a feature of "
            "which nothing is known\n" + table.to_string(float_format="{:.3g}".format)
        )


def split_importance(trees: Sequence[tuple[float, RoutedTree]]) -> FloatArray:
    """Compute the importance of features for the splits of weighted trees, with sum 1.

    A node counts by the distance between the values of its children, weighted by their rows. For
    shares p of the classes, n G(p) - sum_c n_c G(p_c) = sum_c n_c |p_c - p|^2 is the decrease of
    Gini's impurity, and for means of the sum of squares. Experts share it by their votes for a row
    one unit of ``scale`` from the mean of the data towards the facet (those of sparse facets with a
    slope of 1, so that the nearer facet counts more). The features of an expert
    share by their absolute coefficients. For splits along the axes these are
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
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Compute votes (1, c), losses (c,), their errors and one draw's weight of point estimates.

    ``expect`` predicts y, class numbers or values (n,), from X (n, d); each of the ``orders`` (n,)
    shuffles the features of a column, of c in all. ``misfit`` is minus the log-density of y given
    its prediction, of a normal distribution by default.
    """
    votes = np.sum([weight * _tree_votes(tree, X, weights) for weight, tree in trees], axis=0)
    decrease = _score_decrease(expect, X, y, weights, misfit)
    loss = [
        np.mean([decrease(_shuffled(X, own, one)) for one in orders], axis=0)
        for own in encoding.places
    ]
    return encoding.by_column(votes[None]), *_with_error(np.array(loss), weights), np.ones(1)


def draw_importance(
    parts: Sequence[Part],
    data: Data,
    orders: Sequence[AnyArray],
    max_draws: int,
    encoding: Encoding,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Compute votes (S, c) of draws of a mixture, losses (c,), their errors and weights (S,).

    ``data`` are rows in the units of the draws.
    """
    picks = [part.picks(max(1, max_draws // len(parts))) for part in parts]
    weights = np.concatenate(
        [np.full(len(some), p.weight / len(some)) for p, some in zip(parts, picks, strict=True)]
    )
    weights /= weights.sum()
    rows, ones = data.X.numpy(force=True), torch.ones_like(data.weights)
    votes = encoding.by_column(_draw_votes(parts, picks, data))
    each = [
        (part.posterior.model, [part.posterior.sites(*one) for one in some])
        for part, some in zip(parts, picks, strict=True)
    ]
    before = _log_scores(each, weights, Data(data.X, data.y, ones))
    loss = np.zeros((votes.shape[1], len(rows)))
    regress = any("leaf_slope" in part.posterior.draws for part in parts)
    for j in np.flatnonzero(votes.any(axis=0) | regress).tolist():
        for one in orders:
            moved = Data.of(_shuffled(rows, encoding.places[j], one), data.y, ones)
            loss[j] += (before - _log_scores(each, weights, moved)) / len(orders)
    return votes, *_with_error(loss, data.weights.numpy(force=True)), weights


def prior_votes(source: IntArray, encoding: Encoding) -> FloatArray:
    """Return the expected share of each column in the votes if the prior treats features alike.

    ``source`` (d,) has the own number of each feature that the fit uses, and others elsewhere.
    """
    used = source == np.arange(len(source))
    return encoding.by_column(used / max(used.sum(), 1))


def _with_error(loss: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Average the losses (c, n) of the rows, with standard errors, (c,)."""
    share = weights / weights.sum()
    mean = loss @ share
    return mean, np.sqrt(((loss - mean[:, None]) ** 2) @ share**2)


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
    weight, plane, intercept = _experts(tree, node)
    standardised = plane * tree.scale
    toward = plane @ tree.center + intercept + np.linalg.norm(standardised, axis=1)
    votes = weight * softplus(toward)
    return _shared(votes[None] / max(votes.sum(), TINY), standardised)


def _experts(tree: Tree, node: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights (K,), hyperplanes (K, d) and intercepts (K,) of the experts of a node.

    The votes of sparse facets are steps, of which no row casts a part. They get a slope of 1 in
    units of ``scale``, so that facets count by their distances.
    """
    at = tree.experts(node)
    weight, plane, intercept = tree.weight[at], tree.hyperplane[at], tree.intercept[at]
    if not tree.is_conjunction[node]:
        return weight, plane, intercept
    norm = np.maximum(np.linalg.norm(plane * tree.scale, axis=1), TINY)
    return weight, plane / norm[:, None], intercept / norm


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


def _tree_votes(tree: RoutedTree, X: FloatArray, weights: FloatArray) -> FloatArray:
    total = np.zeros(X.shape[1])
    if isinstance(tree, Tree):
        for node, rows, _ in tree.walk(X):
            weight, plane, intercept = _experts(tree, node)
            share = _votes(weight, plane, intercept, X[rows]) * weights[rows, None]
            total += _shared(share, plane * tree.scale)
    return total / max(total.sum(), TINY)


def _draw_votes(
    parts: Sequence[Part], picks: Sequence[list[tuple[int, int]]], data: Data
) -> FloatArray:
    """Share of each feature in the votes of each draw, (S, d)."""
    found, X, weights = [], data.X.numpy(force=True), data.weights.numpy(force=True)
    for part, some in zip(parts, picks, strict=True):
        model, draws = part.posterior.model, part.posterior.draws
        for one in some:
            reached = _reached(draws, one, X, model) * weights[:, None]
            total = np.zeros(X.shape[1])
            for node, split in enumerate(zip(*split_of(draws, one), strict=True)):
                share = _votes(split[0], split[1], split[2], X)
                total += _shared(share * reached[:, node, None], split[1])
            found.append(total / max(total.sum(), TINY))
    return np.array(found)


def _reached(draws: Draws, one: tuple[int, int], X: FloatArray, model: Any) -> FloatArray:
    """Compute the probability that a row reaches a node under a draw, (n, V)."""
    log_probs = branch_log_probs(scores(draws, one, X), model.steepness)
    leaf = np.exp(leaf_log_probs(*log_probs, model.topology))
    return leaf @ model.topology.turns.any(axis=0).T


def _log_scores(each: Sequence[tuple[Any, Any]], weights: FloatArray, data: Data) -> FloatArray:
    """Compute the log-density of y of each row under a mixture of models and draws, (n,)."""
    found = [pointwise.log_likelihood(model, draws, data) for model, draws in each]
    return np.asarray(logsumexp(np.concatenate(found), axis=0, b=weights[:, None]))


def _score_decrease(
    expect: Expect, X: FloatArray, y: AnyArray, weights: FloatArray, misfit: Misfit | None
) -> Callable[[FloatArray], FloatArray]:
    """Return how much lower the log score of each prediction is for other rows than for X.

    The probability of a class that a leaf lacks counts as half a row's share of all. A mean counts
    as the mean of a normal distribution with the variance of the residuals.
    """
    if misfit is None and y.dtype.kind == "f":
        square = (expect(X)[0] - y) ** 2
        variance = max(float(np.average(square, weights=weights)), TINY)
        misfit = lambda y, mean: (mean - y) ** 2 / (2 * variance)  # noqa: E731

    def score(rows: FloatArray) -> FloatArray:
        mean = expect(rows)[0]
        if misfit is not None:
            return -misfit(y, mean)
        right = mean[np.arange(len(rows)), y]
        return np.log(np.where(right > 0, right, 0.5 / max(len(rows), weights.sum())))

    before = score(X)
    return lambda rows: before - score(rows)


def _shuffled(X: FloatArray, features: IntArray, order: AnyArray) -> FloatArray:
    moved = X.copy()
    moved[:, features] = X[np.ix_(order, features)]
    return moved
