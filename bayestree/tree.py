"""The deterministic polytope tree, for interpretation and deployment. NumPy only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, softplus
from bayestree.routed_tree import RoutedTree, RowSource
from bayestree.topology import Topology

__all__ = ["LOG2", "FloatArray", "Tree", "facet_threshold"]

LOG2 = float(np.log(2.0))
MOST_ROWS = 32_768  # maximum number of rows that choose the experts of a node
SHARP = 2.0**16  # steepness of a vote, per unit of its feature, from which its facet is a border
INSIDE = 4.0  # by which activations of several borders are lowered: votes of rows on them vanish
MARGIN = 1e-9  # relative change of weights, far above the rounding errors of votes


@dataclass(frozen=True, eq=False, repr=False)
class Tree(RoutedTree):
    """A deterministic convex polytope tree.

    A row goes left at node v iff sum_k weight_k softplus(hyperplane_k . x + intercept_k)
    <= log 2, summed over the experts ``expert_start[v]:expert_start[v + 1]``.

    Parameters
    ----------
    topology : Topology
    expert_start : array of int, shape (V + 1,)
        First expert of each node in the following three arrays.
    weight, intercept : arrays, shape (E,)
    hyperplane : array, shape (E, d)
        In the units of the data, like ``intercept``.
    value : array, shape (L, C) or (L,)
        Class probabilities, or means, of the leaves; of logistic and linear leaves at ``center``.
        The means of several outputs are (L, q).
    leaf_rows : array, shape (L,)
        Weighted number of training rows in each leaf.
    center, scale : arrays, shape (d,)
        Training mean and scale of each feature (about its standard deviation; 1 if constant).
    feature_names : sequence of str, optional
    class_names : sequence of str, optional
    slope : array, shape (L, d) or (L, C, d), optional
        Slopes of linear leaves, in the units of the data: a leaf then predicts
        ``value`` + slope . (x - center), or class probabilities proportional to
        ``value`` exp(slope . (x - center)).
    quantity : str
        What numeric leaves predict: ``"mean"``, ``"means"`` of several outputs, or ``"rate"``.
    unit : array, shape (d,), optional
        Round units of the features if facets are scores: the coefficients of a facet per unit are
        whole numbers of points, up to a common factor (see :meth:`points`).
    """

    topology: Topology
    expert_start: IntArray
    weight: FloatArray
    hyperplane: FloatArray
    intercept: FloatArray
    value: FloatArray
    leaf_rows: FloatArray
    center: FloatArray
    scale: FloatArray
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    slope: FloatArray | None = None
    quantity: str = "mean"
    unit: FloatArray | None = None
    split_name: ClassVar[str] = "polytope"
    side_names: ClassVar[tuple[str, str]] = ("inside", "outside")

    @classmethod
    def from_standardised(
        cls,
        topology: Topology,
        weight: FloatArray,
        hyperplane: FloatArray,
        intercept: FloatArray,
        *,
        center: FloatArray,
        scale: FloatArray,
        feature_names: Sequence[str] = (),
        class_names: Sequence[str] = (),
        quantity: str = "mean",
    ) -> "Tree":
        """Return a tree without leaf values from splits of (x - center) / scale.

        Weights and intercepts have the shape (V, K), hyperplanes (V, K, d).
        """
        n_nodes, n_experts, n_features = hyperplane.shape
        raw = hyperplane.reshape(-1, n_features) / scale
        return cls(
            topology=topology,
            expert_start=np.arange(n_nodes + 1) * n_experts,
            weight=weight.reshape(-1).astype(np.float64),
            hyperplane=raw,
            intercept=intercept.reshape(-1) - raw @ center,
            value=np.zeros((topology.n_leaves,)),
            leaf_rows=np.zeros(topology.n_leaves),
            center=center,
            scale=scale,
            feature_names=tuple(feature_names),
            class_names=tuple(class_names),
            quantity=quantity,
        )

    @property
    def n_facets(self) -> IntArray:
        """Number of experts of each node, shape (V,)."""
        return np.diff(self.expert_start)

    @property
    def standardised_hyperplane(self) -> FloatArray:
        """Coefficients per ``scale`` of each feature, shape (E, d)."""
        return self.hyperplane * self.scale

    @property
    def facet_limit(self) -> FloatArray:
        """Limit of each facet hyperplane . x <= limit, beyond which it decides alone, (E,)."""
        return facet_threshold(self.weight) - self.intercept

    @cached_property
    def is_conjunction(self) -> BoolArray:
        """Whether a row is inside if and only if it satisfies every facet, shape (V,).

        The votes of such nodes are steps: negligible up to the facet, also for a row on several
        of them, and deciding alone from there on (but for the first 1e-6 units of ``scale``).
        """
        steep = np.abs(self.standardised_hyperplane).max(axis=1, initial=0.0) >= SHARP
        border = steep & (self.weight == 1.0)
        return np.array([bool(border[self.experts(v)].all()) for v in range(self.n_nodes)], bool)

    def points(self, expert: int) -> tuple[IntArray, float]:
        """Return the points of a facet per unit of each feature, (d,), and the weight of a point.

        The points have no common divisor, and ``hyperplane`` is points * weight / unit. Fractions
        find them without rounding errors.
        """
        assert self.unit is not None
        each = [
            Fraction(coefficient) * Fraction(repr(unit))
            for coefficient, unit in zip(
                self.hyperplane[expert].tolist(), self.unit.tolist(), strict=True
            )
        ]
        common = math.lcm(*(one.denominator for one in each))
        weight = Fraction(math.gcd(*(int(one * common) for one in each)), common)
        return np.array([int(one / weight) for one in each]), float(weight)

    def __repr__(self) -> str:
        facets = np.array2string(self.n_facets, separator=", ", threshold=20, edgeitems=5)
        return (
            f"Tree(n_leaves={self.n_leaves}, depth={self.depth}, n_features={self.n_features}, "
            f"n_facets={facets})"
        )

    def experts(self, node: int) -> slice:
        """Slice of the experts of a node."""
        return slice(int(self.expert_start[node]), int(self.expert_start[node + 1]))

    def nearest_experts(self, node: int) -> IntArray:
        """Sort the experts of a node by the distance of their facets from the mean of the data."""
        experts = self.experts(node)
        norm = np.linalg.norm(self.hyperplane[experts] * self.scale, axis=1)
        limits = facet_threshold(self.weight[experts]) - self.intercept[experts]
        away = limits - self.hyperplane[experts] @ self.center
        with np.errstate(divide="ignore", invalid="ignore"):  # constant votes have no facet
            distance = away / norm
        return experts.start + np.argsort(distance, kind="stable")

    def score(self, node: int, X: FloatArray) -> FloatArray:
        """Return the Noisy-OR rate of a node, shape (n,); the split is at log 2."""
        experts = self.experts(node)
        return self.weight[experts] @ softplus(self._activation(experts, X))

    def goes_right(self, node: int, X: FloatArray) -> BoolArray:
        experts = self.experts(node)
        activation = self._activation(experts, X)
        if len(activation) == 1:
            return activation[0] > self._limits[0, experts]
        _, lower, upper = self._limits[:, experts, None]
        right = (activation > upper).any(axis=0)
        (near,) = ((activation > lower).any(axis=0) & ~right).nonzero()
        if len(near):
            votes = softplus(activation.take(near, axis=1))
            right[near] = self.weight[experts] @ votes > LOG2
        return right

    def _activation(self, experts: slice, X: FloatArray) -> FloatArray:
        """Return the pre-activations of a node's experts, shape (K, n)."""
        activation: FloatArray = self.hyperplane[experts] @ X.T
        activation += self.intercept[experts, None]
        return activation

    @cached_property
    def _limits(self) -> FloatArray:
        """Activations of each expert: at its facet, and a lower and an upper bound, (3, E).

        A row goes right if the vote r softplus(a) of one expert exceeds log 2. It goes left if
        none of the K votes at the node exceeds (log 2) / K, since their sum is then at most log 2.
        The activations of such votes are ``facet_threshold`` of r and of K r. ``MARGIN`` widens
        the bounds by more than the rounding of votes, sums and thresholds. Every side then agrees
        with the score, which decides between the bounds.
        """
        weight, n_experts = self.weight, np.repeat(self.n_facets, self.n_facets)
        return np.stack(
            [
                facet_threshold(weight),
                facet_threshold(weight * n_experts * (1 + MARGIN)),
                facet_threshold(weight * (1 - MARGIN)),
            ]
        )

    def collapse(self, bypass: IntArray) -> "Tree":
        topology, nodes, leaves = self.topology.collapse(bypass)
        keep = np.concatenate(
            [np.arange(self.expert_start[v], self.expert_start[v + 1]) for v in nodes]
            or [np.empty(0, dtype=np.int64)]
        )
        start = np.concatenate([[0], np.cumsum(self.n_facets[nodes])]).astype(np.int64)
        return self._with(
            topology=topology,
            expert_start=start,
            weight=self.weight[keep],
            hyperplane=self.hyperplane[keep],
            intercept=self.intercept[keep],
            value=self.value[leaves],
            leaf_rows=self.leaf_rows[leaves],
            slope=None if self.slope is None else self.slope[leaves],
        )

    @property
    def used(self) -> BoolArray:
        """Whether a facet or the slope of a leaf has each feature, shape (d,)."""
        parts = [self.hyperplane] if self.slope is None else [self.hyperplane, self.slope]
        return np.any([one.reshape(-1, self.n_features).any(axis=0) for one in parts], axis=0)

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the prediction of the leaf that each row reaches, shape (n, C) or (n,)."""
        leaf = self.apply(X)
        if self.slope is None:
            return self.value[leaf]
        return self._shifted(self.value[leaf], X - self.center, self.slope[leaf])

    def _shifted(self, value: FloatArray, move: FloatArray, slope: FloatArray) -> FloatArray:
        """Return predictions (n,) or (n, C) of linear leaves, moved (n, d) from ``center``."""
        change = (slope @ move[..., None])[..., 0] if slope.ndim == 3 else (slope * move).sum(-1)
        if slope.ndim == 2:
            return np.asarray(value + change)
        with np.errstate(divide="ignore"):  # a probability of 0 remains
            return np.asarray(softmax(np.log(value) + change, axis=-1))

    def on_scaled(self, center: FloatArray, scale: FloatArray) -> "Tree":
        """Return the equivalent tree of the features (x - center) / scale."""
        value, slope = self.value, self.slope
        if slope is not None:
            value, slope = self._shifted(value, center - self.center, slope), slope * scale
        return self._with(
            value=value,
            slope=slope,
            hyperplane=self.hyperplane * scale,
            intercept=self.intercept + self.hyperplane @ center,
            center=np.zeros_like(center),
            scale=np.ones_like(scale),
            unit=None,
        )

    def with_columns(self, source: IntArray) -> "Tree":
        """Return the equivalent tree without redundant features.

        ``source`` (d,) has for each feature its own number to keep it, or -1 if it is always 0. The
        number of an equal feature adds its coefficients to that feature.
        """
        kept = source == np.arange(len(source))
        copies = np.flatnonzero(~kept & (source >= 0))

        def merged(coefficients: FloatArray) -> FloatArray:
            total = coefficients.copy()
            for j in copies:
                total[..., source[j]] += coefficients[..., j]
            return total[..., kept]

        names = tuple(name for name, one in zip(self.feature_names, kept, strict=False) if one)
        return self._with(
            hyperplane=merged(self.hyperplane),
            slope=None if self.slope is None else merged(self.slope),
            center=self.center[kept],
            scale=self.scale[kept],
            unit=None if self.unit is None else self.unit[kept],
            feature_names=names,
        )

    def rescaled(self, scale: Any, shift: Any) -> "Tree":
        slope = None if self.slope is None else self.slope * scale
        return self._with(value=self.value * scale + shift, slope=slope)

    @property
    def n_experts_total(self) -> int:
        """Total number of experts."""
        return len(self.weight)

    def drop_experts(self, X: RowSource, tolerance: float = 0.002) -> "Tree":
        """Remove experts that do not matter.

        From every node, as many experts with the smallest votes are removed as possible without
        more than a share ``tolerance`` of the node's training rows changing sides. The weights of
        the others compensate for the mean of the removed votes near the border. At least one
        expert is kept.
        """
        rows_of = {node: rows[:MOST_ROWS].copy() for node, rows, _ in self.walk(X)}
        keep = np.zeros(self.n_experts_total, dtype=bool)
        weight = self.weight.copy()
        for node in range(self.n_nodes):
            experts = self.experts(node)
            rows = X[rows_of.get(node, np.empty(0, dtype=np.int64))]
            votes = softplus(self._activation(experts, rows)).T * self.weight[experts]
            kept, factor = _deciding(votes, tolerance)
            keep[experts.start + kept] = True
            weight[experts] *= factor
        counts = [int(keep[self.experts(v)].sum()) for v in range(self.n_nodes)]
        return self._with(
            expert_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            weight=weight[keep],
            hyperplane=self.hyperplane[keep],
            intercept=self.intercept[keep],
        )


def facet_threshold(weight: FloatArray) -> FloatArray:
    """Return softplus^-1(log 2 / r), above which an expert alone sends a row right.

    softplus(a) = t gives a = log(e^t - 1) = t + log(1 - e^-t). It is infinite if r is so small that
    no finite activation is enough.
    """
    with np.errstate(divide="ignore", over="ignore"):
        rate = LOG2 / weight
        return rate + np.log(-np.expm1(-rate))


def _deciding(votes: FloatArray, tolerance: float) -> tuple[IntArray, float]:
    """Return the experts that determine the sides of rows with votes (n, K), and a factor.

    Removing votes with mean m near the border moves its threshold to log 2 - m; the factor
    log 2 / (log 2 - m) moves it back to log 2.
    """
    n_rows, n_experts = votes.shape
    if n_rows == 0:
        return np.arange(1), 1.0
    order = np.argsort(votes.max(axis=0), kind="stable")
    removed = np.cumsum(votes[:, order], axis=1)
    total = removed[:, -1]
    right = total > LOG2
    near = np.argsort(np.abs(total - LOG2), kind="stable")[: max(1, n_rows // 10)]
    for n_removed in range(n_experts - 1, 0, -1):
        mean = removed[near, n_removed - 1].mean()
        if mean < LOG2:
            changed = ((total - removed[:, n_removed - 1]) > LOG2 - mean) != right
            if changed.mean() <= tolerance:
                return order[n_removed:], float(LOG2 / (LOG2 - mean))
    return order, 1.0
