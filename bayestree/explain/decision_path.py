"""The decision path of a row through a deterministic tree: what decides each turn, and the leaf."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from bayestree._utils.arrays import FloatArray, IntArray, softplus
from bayestree._utils.wording import counted, in_words, plain, signed
from bayestree.description import TreeDescription
from bayestree.diagnostics import SplitUncertainty
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding
from bayestree.tree import Tree

TERMS = 3  # features shown for each facet
FACETS = 3  # facets shown for each turn
ALONE = 0.995  # share of the votes of a node, from which a facet decides alone
DIGITS = 3


class Belief(NamedTuple):
    """What the posterior says about a turn.

    ``probability`` is the mean over the draws of the probability of this side, with its central
    ``interval``; ``agreement`` is the share of the draws whose split sends the row this way.
    """

    probability: float
    interval: tuple[float, float]
    agreement: float


@dataclass(frozen=True, eq=False)
class PathNode:
    """A node on the path of a row: its turn, and the facets that decide it, the largest vote first.

    Attributes
    ----------
    node, side : str
        Path of the node from the root, and name of the side.
    right : bool
    score : float
        Sum of the votes; above log 2 the row goes right.
    belief : Belief or None
        None without a posterior of the splits.
    experts : array of int, shape (K,)
        Numbers of the experts in ``tree_``. All arrays are empty if splits are not by facets.
    conditions : tuple of str
        The facets as inequalities in the units of the data.
    votes, share : arrays, shape (K,)
        Terms ``weight * softplus(hyperplane . x + intercept)`` of the score, and their shares.
    distance : array, shape (K,)
        Distance of the row from the facet in units of ``tree_.scale``: positive inside, where the
        expert alone does not send the row right. Infinite if it never does.
    points : array, shape (K,)
        Sum of the points of the row; NaN unless the facet is a score.
    effects : array, shape (K, c)
        How far each column moves the row from the mean of the data across the facet: the distance
        of the mean minus the sum of the effects is ``distance``.
    """

    node: str
    side: str
    right: bool
    score: float
    belief: Belief | None
    experts: IntArray
    conditions: tuple[str, ...]
    votes: FloatArray
    share: FloatArray
    distance: FloatArray
    points: FloatArray
    effects: FloatArray

    @property
    def log_odds(self) -> float:
        """Log-odds log(exp(score) - 1) of going right, 0 at the border."""
        return self.score + float(np.log(-np.expm1(-self.score))) if self.score > 0 else -np.inf

    def lines(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Iterator[str]:
        """Describe the turn in words, for a row with these names and values of the columns."""
        yield f"{self.node}: {self.side}{self._posterior()}"
        for k in range(min(len(self.experts), FACETS)):
            alone = "" if self.share[0] > ALONE else f"{self.share[k]:.0%} of the votes, "
            yield f"  {self.conditions[k]}"
            yield f"    {alone}{self._position(k)}{self._terms(k, names, values)}"
        if len(self.experts) > FACETS:
            others = counted(len(self.experts) - FACETS, "other facet")
            rest = f" with {float(self.share[FACETS:].sum()):.0%} of the votes"
            yield f"  {others}{'' if self.share[0] > ALONE else rest}"

    def effects_shown(self) -> tuple[str, str, FloatArray | None, str, float]:
        """Return node, side, effects on the facet of the largest vote, label, and border."""
        belief = self.belief
        side = self.side if belief is None else f"{self.side}, P = {belief.probability:.2f}"
        if not len(self.experts) or not self.effects[0].any():
            return self.node, side, None, "", np.inf
        adds = self.share[0] <= ALONE
        votes = f"\nfacet with {self.share[0]:.0%} of the votes" if adds else ""
        # The effects that reach the facet from the mean of the data: their sum there.
        border = float(self.distance[0] + self.effects[0].sum())
        return self.node, side, self.effects[0], f"effect, inside to outside{votes}", border

    def _posterior(self) -> str:
        if self.belief is None:
            return ""
        probability, (low, high), agreement = self.belief
        return f", probability {probability:.2f} [{low:.2f}, {high:.2f}], {agreement:.0%} of draws"

    def _position(self, k: int) -> str:
        away = float(self.distance[k])
        if not np.isfinite(away):
            return "no border"
        points, side = float(self.points[k]), "inside" if away >= 0 else "outside"
        if np.isfinite(points):
            return f"{plain(points, DIGITS + 1)} points, {side}"
        return f"{abs(away):.2g} {side}"

    def _terms(self, k: int, names: tuple[str, ...], values: tuple[Any, ...]) -> str:
        order = np.argsort(-np.abs(self.effects[k]), kind="stable")[:TERMS]
        shown = [
            f"{names[j]} = {in_words(values[j], DIGITS)} ({self.effects[k, j]:+.2g})"
            for j in order
            if self.effects[k, j]
        ]
        return f": {', '.join(shown)}" if shown else ""


def decision_path(
    described: TreeDescription,
    encoding: Encoding,
    row: FloatArray,
    posterior: SplitUncertainty | None,
) -> tuple[PathNode, ...]:
    """Follow a row (d,) in the described tree, from the root to its leaf."""
    tree, rows = described.tree, row[None]
    topology = tree.topology
    leaf = int(tree.apply(rows)[0])
    nodes = np.flatnonzero(topology.turns[:, :, leaf].any(axis=0))
    return tuple(
        _path_node(
            described, encoding, int(node), bool(topology.turns[1, node, leaf]), row, posterior
        )
        for node in nodes
    )


def _path_node(
    described: TreeDescription,
    encoding: Encoding,
    node: int,
    right: bool,
    row: FloatArray,
    posterior: SplitUncertainty | None,
) -> PathNode:
    experts, conditions, numbers = _facets(described, node, row)
    numbers["effects"] = encoding.by_column(numbers["effects"])
    return PathNode(
        node=described.path(node),
        side=described.sides(node)[right],
        right=right,
        score=float(described.tree.score(node, row[None])[0]),
        belief=None if posterior is None else _belief(posterior, node, right=right),
        experts=experts,
        conditions=conditions,
        **numbers,
    )


def _belief(posterior: SplitUncertainty, node: int, *, right: bool) -> Belief:
    mean, (low, high) = float(posterior.mean[0, node]), posterior.interval[0, node].tolist()
    agreement = 1 - float(posterior.disagreement[0, node])
    if right:
        return Belief(mean, (low, high), agreement)
    return Belief(1 - mean, (1 - high, 1 - low), agreement)


def _facets(
    described: TreeDescription, node: int, row: FloatArray
) -> tuple[IntArray, tuple[str, ...], dict[str, FloatArray]]:
    """Describe a node: experts by decreasing vote, their facets in words, and their arrays."""
    tree = described.linear
    if tree is None:
        names = ("votes", "share", "distance", "points")
        numbers: dict[str, FloatArray] = dict.fromkeys(names, np.empty(0))
        numbers["effects"] = np.empty((0, described.tree.n_features))
        return np.empty(0, dtype=np.int64), (), numbers
    experts = np.arange(tree.expert_start[node], tree.expert_start[node + 1])
    activation = tree.hyperplane[experts] @ row + tree.intercept[experts]
    votes = softplus(activation)
    # The votes of sparse facets underflow far inside, where log softplus(a) is a.
    size = np.log(np.where(votes > 0, votes, 1.0)) + np.where(votes > 0, 0.0, activation)
    size += np.log(tree.weight[experts])
    order = np.argsort(-size, kind="stable")
    experts, votes = experts[order], (tree.weight[experts] * votes)[order]
    plane = tree.hyperplane[experts]
    norm = np.linalg.norm(plane * tree.scale, axis=1)
    norm[norm == 0] = np.nan  # without a coefficient there is no border
    away = (tree.facet_limit[experts] - plane @ row) / norm
    spaces = [described.half_space(k) for k in experts.tolist()]
    is_score = (tree.unit is not None) & (np.count_nonzero(plane, axis=1) > 1)
    numbers = {
        "votes": votes,
        "share": softmax(size[order]),
        "distance": np.where(np.isnan(norm), np.inf, away),
        "points": np.where(is_score, plane @ row / [one.divisor for one in spaces], np.nan),
        "effects": np.nan_to_num(plane * (row - tree.center) / norm[:, None]),
    }
    return experts, tuple(map(str, spaces)), numbers


@dataclass(frozen=True, eq=False)
class Regression:
    """What the regression of a leaf of the deterministic tree predicts for one row.

    Attributes
    ----------
    quantity : str
        ``"mean"``, or the log odds of the class that is predicted to the most probable other one.
    total : float
        The quantity in the row: ``constant`` plus the sum of the effects.
    constant : float
        The quantity at ``tree_.center``, the mean of the data.
    effects : array, shape (c,)
        The term slope . (x - center) of each column, in units of y or of log odds.
    """

    quantity: str
    total: float
    constant: float
    effects: FloatArray

    @property
    def order(self) -> IntArray:
        """Columns with an effect, the largest first."""
        by_size = np.argsort(-np.abs(self.effects), kind="stable")
        return by_size[: np.count_nonzero(self.effects)]

    def lines(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Iterator[str]:
        """Describe the sum in words, for a row with these names and values of the columns."""
        total, constant = (plain(one, DIGITS + 1) for one in (self.total, self.constant))
        yield f"  {self.quantity} {total} = {constant} at the mean of the data"
        for j in self.order[:TERMS]:
            effect, value = signed(self.effects[j], DIGITS), in_words(values[j], DIGITS)
            yield f"    {effect}: {names[j]} = {value}"
        if hidden := self.order[TERMS:].tolist():
            rest = signed(float(self.effects[hidden].sum()), DIGITS)
            yield f"    {rest}: {len(hidden)} more"


def regression_of(
    tree: RoutedTree, row: FloatArray, encoding: Encoding, classes: tuple[str, ...]
) -> Regression | None:
    """Return the regression of the leaf of a row (d,); None if leaves are constant."""
    if not isinstance(tree, Tree) or tree.slope is None:
        return None
    leaf = int(tree.apply(row[None])[0])
    value, slope, quantity = tree.value[leaf], tree.slope[leaf], tree.quantity
    if classes:
        other, own = np.argsort(tree.predict(row[None])[0], kind="stable")[-2:]
        logs = np.log(np.maximum(value, np.finfo(np.float64).tiny))
        value, slope = logs[own] - logs[other], slope[own] - slope[other]
        quantity = f"log odds of {classes[own]} to {classes[other]}"
    terms = slope * (row - tree.center)
    constant = float(value)
    return Regression(quantity, constant + float(terms.sum()), constant, encoding.by_column(terms))
