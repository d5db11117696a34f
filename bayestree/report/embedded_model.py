"""The model that a page holds so that a browser can predict: draws or trees, as arrays.

A prediction is a weighted mean over *parts*. The trees of a part, its draws, share a topology, and
hyperplanes give the scores of their nodes. The estimators differ in the numbers alone: a draw of a
posterior sends a row to both sides with probabilities, a deterministic tree has one draw and the
steepness infinity, and the trees of a forest are parts of equal weight.
"""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.optimize import nnls

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.wording import counted
from bayestree.diagnostics.draws import Matches, flat, scores, spread
from bayestree.diagnostics.uncertainty import Splits
from bayestree.estimators._estimator import Estimator
from bayestree.fitted.tree import FittedTree
from bayestree.models.leaves import Survival
from bayestree.topology import Topology
from bayestree.tree import Tree

BUDGET = 900_000  # bytes of numbers, which are a third more as base64
FEWEST = 20  # draws, if not all are carried
LEAST = 1e-3  # smallest weight of a draw, relative to an equal one
UNEQUAL = 0.03  # penalty on the weights of draws: less fits the rows better, edited ones worse
DOUBLE, SINGLE = np.dtype("<f8"), np.dtype("<f4")

Arrays = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Part:
    """S draws of a tree of V nodes with E experts, and L leaves that predict Q numbers."""

    share: float  # weight of all draws together; each has the same
    steepness: float  # factor of the log-odds of a split; infinity for deterministic trees
    topology: Topology
    expert_start: IntArray  # first expert of each node, (V + 1,)
    weight: FloatArray  # (S, E)
    hyperplane: FloatArray  # of the features (x - ``center``) / ``scale``, (S, E, d)
    intercept: FloatArray  # (S, E)
    #: Predictions of the leaves, in units of ``y_scale`` from ``y_center``; logits if ``softmax``,
    #: (S, L, Q).
    value: FloatArray
    slope: FloatArray | None  # slopes of ``value``, if leaves regress on the features, (S, L, Q, d)
    center: FloatArray
    scale: FloatArray
    softmax: bool = False
    y_center: float = 0.0
    y_scale: float = 1.0
    #: Cumulative hazards at a rate of 1, at some times, if leaves predict rates, (T,).
    hazard: FloatArray | None = None

    @classmethod
    def of_tree(cls, tree: Tree, share: float = 1.0) -> Self:
        """Take a deterministic tree, in the units of the data, so that borders stay in place."""
        value = tree.value.reshape(1, tree.n_leaves, -1)
        softmax, slope = tree.slope is not None and tree.classifies, None
        if softmax:
            with np.errstate(divide="ignore"):  # a probability of 0 remains
                value = np.log(value)
        if tree.slope is not None:
            slope = tree.slope.reshape(*value.shape, -1)
            value = value - slope @ tree.center
        return cls(
            share=share,
            steepness=math.inf,
            topology=tree.topology,
            expert_start=tree.expert_start,
            weight=tree.weight[None],
            hyperplane=tree.hyperplane[None],
            intercept=tree.intercept[None],
            value=value,
            slope=slope,
            center=np.zeros(tree.n_features),
            scale=np.ones(tree.n_features),
            softmax=softmax,
        )

    @classmethod
    def of_draws(cls, fitted: FittedTree, share: float, kept: IntArray) -> Self:
        """Take some of the draws of a fitted tree, by their numbers over all chains."""
        posterior, units = fitted.posterior, fitted.scaling.units
        model, leaf = posterior.model, posterior.model.leaf
        draws = {
            name: values.reshape(fitted.n_draws, *values.shape[2:])[kept]
            for name, values in posterior.draws.items()
        }
        intercept = draws["intercept"]
        n_draws, n_nodes, n_experts = intercept.shape
        weight = np.exp(draws["log_weight"]) if model.split.weighted else np.ones_like(intercept)
        softmax, slope = leaf.regresses and leaf.n_classes > 0, None
        if leaf.regresses:
            value = draws["leaf_logit" if softmax else "leaf_mean"]
            slope = draws["leaf_slope"]
        else:
            every = leaf.expected_y(posterior.joined(slice(None)))
            value = every.reshape(fitted.n_draws, model.topology.n_leaves, *every.shape[1:])[kept]
        value = value.reshape(n_draws, model.topology.n_leaves, -1)
        return cls(
            share=share,
            steepness=model.steepness,
            topology=model.topology,
            expert_start=np.arange(n_nodes + 1) * n_experts,
            weight=weight.reshape(n_draws, n_nodes * n_experts),
            hyperplane=draws["hyperplane"].reshape(n_draws, n_nodes * n_experts, len(units.scale)),
            intercept=intercept.reshape(n_draws, n_nodes * n_experts),
            value=value,
            slope=None if slope is None else slope.reshape(*value.shape, -1),
            center=units.center,
            scale=units.scale,
            softmax=softmax,
            y_center=float(units.y_center),
            y_scale=float(units.y_scale),
        )

    @property
    def used(self) -> FloatArray:
        """Sum of the absolute coefficients of each feature, per unit of the data, (d,)."""
        found: FloatArray = np.abs(self.hyperplane).sum(axis=(0, 1))
        if self.slope is not None:
            found = found + np.abs(self.slope).sum(axis=(0, 1, 2))
        return found / len(self.weight) / self.scale

    def described(self, dtype: np.dtype[Any]) -> Arrays:
        """Describe the part for the script of the page.

        Coefficients that are 0 in all draws are left out: ``column`` has the features of the
        others, and ``first`` the place of those of each expert.
        """
        pattern = (self.hyperplane != 0).any(axis=0)
        expert, column = np.nonzero(pattern)
        numbers = {
            "weight": self.weight,
            "intercept": self.intercept,
            "coefficient": self.hyperplane[:, expert, column],
            "value": self.value,
        }
        sloping = np.zeros(0, dtype=np.int64)
        if self.slope is not None:
            sloping = np.flatnonzero((self.slope != 0).any(axis=(0, 1, 2)))
            numbers["slope"] = self.slope[..., sloping]
        hazard = None if self.hazard is None else self.hazard.tolist()
        return {
            "share": self.share,
            "steepness": None if math.isinf(self.steepness) else self.steepness,
            "draws": len(self.weight),
            "outputs": self.value.shape[2],
            "children": self.topology.children.ravel().tolist(),
            "experts": self.expert_start.tolist(),
            "first": np.concatenate([[0], np.cumsum(pattern.sum(axis=1))]).tolist(),
            "column": packed(column, np.dtype("<i4")),
            "sloping": sloping.tolist(),
            "center": packed(self.center, DOUBLE),
            "scale": packed(self.scale, DOUBLE),
            "softmax": self.softmax,
            "y": [self.y_center, self.y_scale],
            "hazard": hazard,
            **{name: packed(values, dtype) for name, values in numbers.items()},
        }


def packed(values: AnyArray, dtype: np.dtype[Any]) -> dict[str, str]:
    """Return an array as base64, with the name of its type."""
    data = np.ascontiguousarray(values, dtype=dtype).tobytes()
    return {"type": dtype.str[1:], "bytes": base64.b64encode(data).decode()}


@dataclass(frozen=True, eq=False)
class EmbeddedModel:
    """The parts of an estimator that a page carries."""

    parts: tuple[Part, ...]
    members: tuple[FittedTree, ...]  # the fitted tree of each part
    #: The draws of each part, by their numbers over all chains; empty for deterministic trees.
    kept: tuple[IntArray, ...]
    dtype: np.dtype[Any]  # precision of the numbers

    @property
    def n_draws(self) -> tuple[int, int]:
        """Number of draws that are carried, and of all; 0 for deterministic trees."""
        total = sum(m.n_draws for m, kept in zip(self.members, self.kept, strict=True) if len(kept))
        return sum(map(len, self.kept)), total

    @property
    def has_draws(self) -> bool:
        """Whether any part has several draws, over which there are intervals."""
        return any(len(kept) > 1 for kept in self.kept)

    def is_tree(self, tree: Tree) -> bool:
        """Whether the deterministic tree predicts, on its own and in double precision."""
        (first, *others), (kept, *_) = self.members, self.kept
        return not others and not len(kept) and first.tree is tree and self.dtype == DOUBLE

    def drawn(self, rows: FloatArray, *, every: bool = False) -> tuple[FloatArray, FloatArray]:
        """Predict rows by the carried draws, or by all, (S, n, C) or (S, n), with weights (S,)."""
        found, weights = [], []
        for part, member, kept in zip(self.parts, self.members, self.kept, strict=True):
            posterior, scaling = member.posterior, member.scaling
            each = np.concatenate([*posterior.expectations(scaling.standardise(rows))])
            each = each if every else each[kept]
            found.append(scaling.units.decode(each.astype(np.float64)))
            weights.append(np.full(len(each), part.share / len(each)))
        return np.concatenate(found), np.concatenate(weights)

    def balanced(
        self, rows: FloatArray, nodes: Sequence[Matches] | None
    ) -> tuple[FloatArray, float, float]:
        """Weight the carried draws at each row so that their means are those of all draws.

        These are the means of the predictions, and of P(right) at the ``nodes`` of the tree that
        is shown, as each part has them. Of the weights of 0 or more that have them, or nearly,
        those nearest to equal ones are taken. Returned are the weights (n, S), and the largest
        difference of a prediction, and of P(right), from that of all draws.
        """
        (values, equal), (every, share) = self.drawn(rows), self.drawn(rows, every=True)
        values = values.reshape(len(equal), len(rows), -1)
        apart = values - np.tensordot(share, every, axes=1).reshape(1, len(rows), -1)
        size = np.maximum(apart.std(axis=0).max(), np.finfo(np.float64).tiny)
        sides, shown = self._sides(rows, nodes, equal, share)
        ridge, ones = UNEQUAL * np.eye(len(equal)) / len(equal) ** 0.5, np.ones((len(equal), 1))
        weights = np.empty((len(rows), len(equal)))
        for row in range(len(rows)):
            terms = np.hstack([apart[:, row] / size, sides[:, row], ones]) * equal[:, None]
            goal = np.zeros(terms.shape[1] + len(equal))
            goal[terms.shape[1] - 1], goal[terms.shape[1] :] = 1.0, ridge.sum(axis=0)
            weights[row] = equal * nnls(np.vstack([terms.T, ridge]), goal)[0]
        weights += LEAST * equal  # so that the tree that is shown keeps some
        weights /= weights.sum(axis=1, keepdims=True)
        error = np.abs(np.einsum("ns,snc->nc", weights, apart)).max()
        among = weights @ shown
        return (
            weights,
            float(error),
            float(np.abs(np.einsum("ns,snv->nv", weights, sides) / among).max(initial=0.0)),
        )

    def _sides(
        self,
        rows: FloatArray,
        nodes: Sequence[Matches] | None,
        equal: FloatArray,
        share: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return P(right) of the carried draws less its mean over all, and which have a node.

        The former is (S, n, V), and 0 where a draw has no such node; the latter is (S, V).
        """
        if nodes is None:
            return np.zeros((len(equal), len(rows), 0)), np.zeros((len(equal), 0))
        pairs = [*zip(self.members, nodes, strict=True)]
        right = np.concatenate([_right(*pair, rows) for pair in pairs])
        alike = np.concatenate([flat(one.alike) for one in nodes])
        alike = (alike | ~alike.any(axis=0)).astype(np.float64)
        weight = share[:, None] * alike
        mean = np.einsum("sv,snv->nv", weight / weight.sum(axis=0), right)
        starts = np.cumsum([0, *(flat(one.alike).shape[0] for one in nodes[:-1])])
        own = np.concatenate([start + kept for start, kept in zip(starts, self.kept, strict=True)])
        return alike[own, None] * (right[own] - mean), alike[own]

    def with_hazards(self, times: FloatArray | None) -> Self:
        """Let the leaves predict the survival beyond some times as well, if there are any."""
        if times is None:
            return self
        leaves = [member.posterior.model.leaf for member in self.members]
        hazards = [leaf.exposure(times) for leaf in leaves if isinstance(leaf, Survival)]
        parts = zip(self.parts, hazards, strict=True)
        return replace(self, parts=tuple(replace(part, hazard=own) for part, own in parts))


def _right(fitted: FittedTree, matches: Matches, rows: FloatArray) -> FloatArray:
    """Compute P(right | x) of each draw at the nodes of the tree that is shown, (S, n, V)."""
    posterior, splits = fitted.posterior, Splits(fitted.tree.topology, matches)
    standard, steepness = fitted.scaling.standardise(rows), posterior.model.steepness
    draws = (divmod(place, posterior.n_draws) for place in range(fitted.n_draws))
    each = ((one, scores(posterior.draws, one, standard)) for one in draws)
    return np.exp([splits.sides(one, score, steepness)[1] for one, score in each])


def why_not(estimator: Estimator) -> str:
    """Say in a sentence why a page cannot predict as the estimator does; empty if it can."""
    used = _members(estimator)
    if any(not isinstance(one.tree, Tree) for one, *_ in used):
        return "The splits of this tree are networks, which the page does not carry."
    sizes, counts = _sizes(used)
    if sizes.sum() * SINGLE.itemsize > BUDGET:
        return (
            f"{counted(len(used), 'tree')} with {sizes.sum():,} numbers in total would make this "
            "page too large."
        )
    fits, total = _fitting(sizes, counts, SINGLE).sum(), counts.sum()
    if fits < min(total, FEWEST):
        return (
            f"Of the {total:,} draws, with {sizes.max():,} numbers each, this page could carry "
            f"only {fits:,}, too few to predict as all of them do."
        )
    return ""


def embedded_model(estimator: Estimator) -> EmbeddedModel:
    """Choose what a page carries to predict as the estimator does.

    All draws in double precision if they fit into ``BUDGET``, else in single precision, else as
    many evenly spaced ones of each part as fit.
    """
    used = _members(estimator)
    sizes, counts = _sizes(used)
    dtype = DOUBLE if sizes @ counts * DOUBLE.itemsize <= BUDGET else SINGLE
    fits = _fitting(sizes, counts, dtype)
    parts, kept = [], []
    for (one, share, draws), count, most in zip(used, counts, fits.tolist(), strict=True):
        own = spread(count, most) if draws else np.empty(0, dtype=np.int64)
        kept.append(own)
        parts.append(Part.of_draws(one, share, own) if draws else Part.of_tree(one.tree, share))
    return EmbeddedModel(tuple(parts), tuple(one for one, *_ in used), tuple(kept), dtype)


#: A fitted tree, its weight, and whether it predicts by its draws.
Member = tuple[FittedTree, float, bool]


def _sizes(used: Sequence[Member]) -> tuple[IntArray, IntArray]:
    """Count the numbers of a draw of each member, and its draws."""
    sizes = [_numbers(one, draws=draws) for one, _, draws in used]
    counts = [one.n_draws if draws else 1 for one, _, draws in used]
    return np.array(sizes), np.array(counts)


def _fitting(sizes: IntArray, counts: IntArray, dtype: np.dtype[Any]) -> IntArray:
    """Return how many draws of each member fit into ``BUDGET``: the same share of each."""
    share = min(1.0, BUDGET / (int(sizes @ counts) * dtype.itemsize))
    return np.maximum(1, (share * counts).astype(np.int64))


def _members(estimator: Estimator) -> list[Member]:
    """Return the fitted trees that predict."""
    found = estimator.fitted_.predicting(estimator.prediction)
    return [one for one in found if one[1] > 0]


def _numbers(fitted: FittedTree, *, draws: bool) -> int:
    """Count the numbers of one draw, or of the deterministic tree."""
    if draws:
        posterior = fitted.posterior
        sites = {"hyperplane", "intercept", *posterior.model.leaf.sites} & posterior.draws.keys()
        of_experts = posterior.draws["intercept"][0, 0].size  # their weights
        return of_experts + sum(int(posterior.draws[name][0, 0].size) for name in sites)
    tree = fitted.tree
    slopes = 0 if tree.slope is None else np.count_nonzero(tree.slope)
    return 2 * len(tree.weight) + np.count_nonzero(tree.hyperplane) + tree.value.size + slopes
