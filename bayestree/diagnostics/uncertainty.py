"""Posterior uncertainty about rows: sides at splits, leaves, predictions, and regions of a tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import entr

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.monte_carlo import central_interval, numbered_chains
from bayestree.diagnostics.draws import (
    Draws,
    Matches,
    branch_log_probs,
    classifies,
    leaf_log_probs,
    leaf_means,
    leaf_shares,
    node_index,
    scores,
    tails,
)
from bayestree.diagnostics.size import no_split
from bayestree.topology import Topology
from bayestree.tree import LOG2

ELEMENTS = 2**22  # size of the largest array per chunk of rows
UNSURE = 0.1  # rows with a larger disagreement count as uncertain
OF_CLASSES = ("total_entropy", "expected_entropy", "mutual_information")
OF_NUMBERS = ("total_variance", "expected_variance", "explained")
PARTS = (*OF_CLASSES, *OF_NUMBERS)


@dataclass(frozen=True, eq=False)
class SplitUncertainty:
    """Posterior of the side of each of n rows at each of V nodes of the deterministic tree.

    Attributes
    ----------
    mean, sd : arrays, shape (n, V)
        Mean and standard deviation of P(right) over the draws.
    interval : array, shape (n, V, 2)
        Central interval of P(right) of probability ``level``. It is wider than the quantiles of
        the draws, as these are few and those of one chain resemble each other.
    outside : array, shape (n, V)
        Share of the draws in which the row is outside the polytope: P(right) > 1/2.
    disagreement : array, shape (n, V)
        Share of the draws that disagree with the deterministic tree about the row's side.
    reached : array, shape (n, V)
        Mean probability that the row reaches the node.
    right : array of bool, shape (n, V)
        Side of the row in the deterministic tree, whether or not it reaches the node.
    leaf_probability : array, shape (n, L)
        Mean probability of each leaf.
    best_leaf : array of int, shape (n,)
        The most probable leaf, numbered as in ``leaf_labels``.
    best_leaf_probability : array, shape (n,)
    total_entropy, expected_entropy, mutual_information : arrays, shape (n,), or None
        Classification, in nats: entropy of the averaged prediction; mean entropy of the draws'
        predictions (aleatoric); and their difference (epistemic), which more rows would reduce.
    total_variance, expected_variance, explained : arrays, shape (n,), or None
        Regression, in squared units of y: variance of y; mean of the draws' variances
        (aleatoric); variance of the draws' means (epistemic).
    expected_y : array, shape (n, C) or (n,), or None
        Mean of the draws' predictions: class probabilities, or values in units of y.
    level : float
    labels, leaf_labels : tuples of str
        Paths of the nodes and leaves from the root.
    n_leaves : array of int, shape (chain, draw), optional
        Number of leaves in use by a draw (see :class:`PolytopeSize`).
    weights : array, shape (n,), optional
        Weights of the rows in means over rows.
    """

    mean: FloatArray
    sd: FloatArray
    interval: FloatArray
    outside: FloatArray
    disagreement: FloatArray
    reached: FloatArray
    right: BoolArray
    leaf_probability: FloatArray
    best_leaf: IntArray
    best_leaf_probability: FloatArray
    total_entropy: FloatArray | None
    expected_entropy: FloatArray | None
    mutual_information: FloatArray | None
    total_variance: FloatArray | None
    expected_variance: FloatArray | None
    explained: FloatArray | None
    expected_y: FloatArray | None
    level: float
    labels: tuple[str, ...]
    leaf_labels: tuple[str, ...]
    n_leaves: IntArray | None = None
    weights: FloatArray | None = None

    @property
    def unsure(self) -> BoolArray:
        """Rows whose side is uncertain at each node, (n, V): a disagreement above 10 %."""
        return self.disagreement > UNSURE

    def to_frame(self, by: Literal["node", "row"] = "node") -> pd.DataFrame:
        """Tabulate the splits or the rows.

        Parameters
        ----------
        by : {"node", "row"}
            For each node, over rows weighted by their probability of reaching it: their number,
            the mean ``disagreement``, the share of rows whose disagreement is above 10 %
            (``unsure``), and the mean ``sd`` of P(right). For each row: the most probable leaf,
            its probability, and the decomposition of the uncertainty of y.

        Raises
        ------
        ValueError
            If ``by`` is neither.
        """
        if by == "node":
            return self._by_node()
        if by != "row":
            raise ValueError(f"by must be 'node' or 'row', got {by!r}.")
        columns: dict[str, Any] = {
            "leaf": [self.leaf_labels[leaf] for leaf in self.best_leaf],
            "leaf_probability": self.best_leaf_probability,
        } | self._parts()
        return pd.DataFrame(columns, index=pd.RangeIndex(len(self.best_leaf), name="row"))

    def __str__(self) -> str:
        n_rows, n_nodes = self.mean.shape
        lines = [
            f"Split uncertainty of {n_rows} rows: mean disagreement about the side, share of rows\n"
            f"where it is above {100 * UNSURE:.0f} %, mean sd of P(right)",
            self._by_node().to_string(float_format="{:.3f}".format),
        ]
        if n_nodes == 0:
            lines = [f"Split uncertainty: {no_split(self.n_leaves)}"]
        each = self._parts().items()
        means = [f"{name} {np.average(part, weights=self.weights):.3g}" for name, part in each]
        if means:
            lines.append(f"Mean over the rows: {', '.join(means)}")
        return "\n".join(lines)

    def _by_node(self) -> pd.DataFrame:
        reached = self.reached if self.weights is None else self.reached * self.weights[:, None]
        rows = reached.sum(axis=0)
        share = reached / np.where(rows > 0, rows, np.nan)  # NaN: no row can reach the node
        columns = {
            "rows": rows,
            "disagreement": (share * self.disagreement).sum(axis=0),
            "unsure": (share * self.unsure).sum(axis=0),
            "sd": (share * self.sd).sum(axis=0),
        }
        return pd.DataFrame(columns, index=node_index(self.labels))

    def _parts(self) -> dict[str, FloatArray]:
        """Return the known parts of the uncertainty of y."""
        return {name: part for name in PARTS if (part := getattr(self, name)) is not None}


class Splits(NamedTuple):
    """The nodes of a deterministic tree among the nodes of the draws.

    ``topology`` describes the deterministic tree, with V nodes.
    """

    topology: Topology
    matches: Matches

    def sides(
        self, one: tuple[int, ...], score: FloatArray, steepness: float
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return log P(left), log P(right) and whether it is above 1/2, (n, V), of a draw.

        ``score`` (n, nodes) has all nodes of the draw.
        """
        own, exchanged = score[:, self.matches.node[one]], self.matches.exchanged[one]
        left, right = branch_log_probs(own, steepness)
        return (
            np.where(exchanged, right, left),
            np.where(exchanged, left, right),
            (own > LOG2) != exchanged,
        )


class Other(NamedTuple):
    """The posterior of another tree, with the same nodes among those of its draws."""

    draws: Draws
    steepness: float
    matches: Matches
    weight: float
    chains: IntArray  # of each draw, (S,)


def split_uncertainty(
    draws: Draws,
    X: FloatArray,
    right: BoolArray,
    *,
    topology: Topology,
    steepness: float = 1.0,
    splits: Splits | None = None,
    others: Sequence[Other] = (),
    weight: float = 1.0,
    chains: IntArray | None = None,
    y_scale: float = 1.0,
    y_center: float = 0.0,
    level: float = 0.9,
) -> SplitUncertainty:
    """Compute the posterior of the side of each row at each node.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, nodes, K, d), ``intercept`` and, unless every weight is
        1, ``log_weight``; for predictions also ``leaf_probs`` (chain, draw, leaves, C), or
        ``leaf_logit`` of this shape and ``leaf_slope`` (chain, draw, leaves, C, d), or
        ``leaf_mean``, ``leaf_scale`` (chain, draw, leaves) and, of linear leaves, ``leaf_slope``
        (chain, draw, leaves, d).
    X : array, shape (n, d)
        Rows on the scale of the draws.
    right : array of bool, shape (n, V)
        The side of each row in the deterministic tree.
    topology : Topology
        Topology of the draws.
    steepness : float
        Factor of the log-odds of every split.
    splits : Splits, optional
        The nodes of the deterministic tree; by default all nodes of the draws. Leaves belong to
        the deterministic tree, while y is predicted by the leaves of the draws.
    others : sequence of Other
        Posteriors of other trees. Where their draws have a node, they count for its side.
    weight : float
        Weight of these draws beside those of ``others``.
    chains : array, shape (S,), optional
        The chain of each draw; draws of one chain resemble each other. By default that of its
        place in the draws.
    y_scale, y_center : float
        Scale and origin of y in the draws, in the units of the data.
    level : float
        Probability of the intervals.

    Raises
    ------
    ValueError
        If ``level`` is not between 0 and 1, or ``X`` or ``right`` has another shape.
    """
    every = np.arange(topology.n_nodes)
    splits = splits or Splits(topology, Matches.fixed(every, draws))
    n_nodes, n_features = splits.topology.n_nodes, draws["hyperplane"].shape[-1]
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X must have shape (n, {n_features}) like the draws, got {X.shape}.")
    if right.shape != (len(X), n_nodes):
        raise ValueError(f"right must have shape ({len(X)}, {n_nodes}), got {right.shape}.")
    tails(level)
    if chains is None:
        n_chains, n_draws = draws["intercept"].shape[:2]
        chains = np.repeat(np.arange(n_chains), n_draws)
    own = Other(draws, steepness, splits.matches, weight, chains)
    parts = [
        _of_rows(own, others, some, topology, splits, level) for some in _chunks(draws, X, n_nodes)
    ]
    whole: dict[str, Any] = {
        name: None if first is None else np.concatenate([part[name] for part in parts])
        for name, first in parts[0].items()
    }
    for name in OF_NUMBERS:
        whole[name] = None if whole[name] is None else whole[name] * y_scale**2
    if whole["explained"] is not None:
        whole["expected_y"] = whole["expected_y"] * y_scale + y_center
    leaf_probability = whole["leaf_probability"]
    best = leaf_probability.argmax(axis=1)
    return SplitUncertainty(
        **whole,
        disagreement=np.where(right, 1 - whole["outside"], whole["outside"]),
        reached=leaf_probability @ splits.topology.turns.any(axis=0).T,
        right=right,
        best_leaf=best,
        best_leaf_probability=leaf_probability[np.arange(len(best)), best],
        level=level,
        labels=splits.topology.node_labels,
        leaf_labels=splits.topology.leaf_labels,
    )


def mixed_uncertainty(
    own: SplitUncertainty, each: Sequence[SplitUncertainty], weights: FloatArray
) -> SplitUncertainty:
    """Replace the uncertainty of y by the uncertainty under a mixture of posteriors.

    ``weights`` (M,) belong to the posteriors; how far their predictions differ is part of
    ``mutual_information`` or ``explained``. Unchanged if predictions are unknown.
    """
    if own.expected_y is None:
        return own
    values: dict[str, Any] = {
        name: np.tensordot(weights, [getattr(one, name) for one in each], axes=1)
        for name in ("expected_y", *PARTS)
        if getattr(own, name) is not None
    }
    expected = values["expected_y"]
    if own.total_entropy is not None:
        total, within = entr(expected).sum(axis=1), values["expected_entropy"]
        between = np.maximum(total - within, 0.0)  # rounding may go below 0
        values |= dict(zip(OF_CLASSES, (total, within, between), strict=True))
    else:
        apart = [(one.expected_y - expected) ** 2 for one in each]
        values["explained"] = values["explained"] + np.tensordot(weights, apart, axes=1)
        values["total_variance"] = values["expected_variance"] + values["explained"]
    return replace(own, **values)


def _chunks(draws: Draws, X: FloatArray, n_nodes: int) -> Iterator[FloatArray]:
    """Split rows to bound the size of all arrays; one empty chunk if there are no rows."""
    n_chains, n_draws, all_nodes, n_experts = draws["intercept"].shape
    per_row = max(n_chains * n_draws * n_nodes, all_nodes * n_experts, 1)
    size = max(1, ELEMENTS // per_row)
    for start in range(0, max(len(X), 1), size):
        yield X[start : start + size]


def _of_rows(
    own: Other,
    others: Sequence[Other],
    X: FloatArray,
    topology: Topology,
    splits: Splits,
    level: float,
) -> dict[str, FloatArray | None]:
    """Average over the draws for some rows."""
    every = [*np.ndindex(*own.draws["intercept"].shape[:2])]
    p_right = np.empty((len(every), len(X), splits.topology.n_nodes))
    outside = np.empty(p_right.shape, dtype=bool)
    leaf_probability = np.zeros((len(X), splits.topology.n_leaves))
    predicted = _Predictions(own.draws, len(every), len(X))
    for place, one in enumerate(every):
        score = scores(own.draws, one, X)
        left, right, outside[place] = splits.sides(one, score, own.steepness)
        p_right[place] = np.exp(right)
        leaf_probability += np.exp(leaf_log_probs(left, right, splits.topology))
        soft = leaf_log_probs(*branch_log_probs(score, own.steepness), topology)
        predicted.add(place, one, np.exp(soft), X)
    weights = np.full((len(every), splits.topology.n_nodes), own.weight / len(every))
    weights *= own.matches.alike.reshape(weights.shape)
    each = [(p_right, outside, weights), *(_sides_of(other, splits, X) for other in others)]
    p_right, outside, weights = map(np.concatenate, zip(*each, strict=True))
    chains = numbered_chains([one.chains for one in (own, *others)])
    return {
        **_of_sides(p_right, outside, weights, chains, level),
        "leaf_probability": leaf_probability / len(every),
        **predicted.parts(),
    }


def _sides_of(
    other: Other, splits: Splits, X: FloatArray
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return P(right) and whether it is above 1/2, (S, n, V), and weights (S, V), of its draws."""
    every = [*np.ndindex(*other.draws["intercept"].shape[:2])]
    matched = splits._replace(matches=other.matches)
    each = [matched.sides(one, scores(other.draws, one, X), other.steepness)[1:] for one in every]
    right, outside = zip(*each, strict=True)
    alike = other.matches.alike.reshape(len(every), -1)
    weights = np.asarray(alike * (other.weight / len(every)), dtype=np.float64)
    return np.exp(np.array(right)), np.array(outside), weights


def _of_sides(
    p_right: FloatArray,
    outside: BoolArray,
    weights: FloatArray,
    chains: IntArray,
    level: float,
) -> dict[str, FloatArray]:
    """Average sides of draws (S, n, V) of ``chains`` by weights (S, V), node by node."""
    shape = p_right.shape[1:]
    (mean, sd, share), interval = np.empty((3, *shape)), np.empty((*shape, 2))
    for node, weight in enumerate(weights.T):
        own = weight if weight.any() else np.ones_like(weight)  # no draw is alike: all count
        values, drawn = p_right[..., node], own > 0
        mean[:, node] = np.average(values, axis=0, weights=own)
        sd[:, node] = np.sqrt(np.average((values - mean[:, node]) ** 2, axis=0, weights=own))
        share[:, node] = np.average(outside[..., node], axis=0, weights=own)
        interval[:, node] = central_interval(values[drawn], own[drawn], chains[drawn], level).T
    return {"mean": mean, "sd": sd, "interval": interval, "outside": share}


class _Predictions:
    """Accumulates the draws' predictions of y and the decomposition of their uncertainty."""

    def __init__(self, draws: Draws, n_draws: int, n_rows: int) -> None:
        self.draws = draws
        self.n_draws = n_draws
        self.classes = classifies(draws)
        self.values = "leaf_scale" in draws
        self.total: Any = 0.0  # sum of the predictions
        self.within: Any = 0.0  # sum of the entropies or variances given a draw
        self.means = np.empty((n_draws if self.values else 0, n_rows))

    def add(self, place: int, one: tuple[int, ...], leaf: FloatArray, X: FloatArray) -> None:
        """Add a draw, given its P(leaf | x), shape (n, L), and the rows."""
        if self.classes:
            probs = (leaf[..., None] * leaf_shares(self.draws, one, X)).sum(axis=-2)
            self.total = self.total + probs
            self.within = self.within + entr(probs).sum(axis=1)
        elif self.values:
            mean = leaf_means(self.draws, one, X)
            square = self.draws["leaf_scale"][one].astype(np.float64) ** 2
            self.means[place] = (leaf * mean).sum(axis=1)
            # Centred on the mean of each row to avoid cancellation.
            between = (leaf * (mean - self.means[place][:, None]) ** 2).sum(axis=1)
            self.within = self.within + leaf @ square + between

    def parts(self) -> dict[str, FloatArray | None]:
        """Return the attributes ``PARTS`` and ``expected_y`` of :class:`SplitUncertainty`."""
        within, expected = self.within / self.n_draws, None
        entropy = variance = (None, None, None)
        if self.classes:
            expected = self.total / self.n_draws
            total = entr(expected).sum(axis=1)
            entropy = (total, within, np.maximum(total - within, 0.0))  # rounding may go below 0
        elif self.values:
            expected, explained = self.means.mean(axis=0), self.means.var(axis=0)
            variance = (within + explained, within, explained)
        return dict(zip((*PARTS, "expected_y"), (*entropy, *variance, expected), strict=True))


@dataclass(frozen=True, eq=False)
class RuleProbability:
    """How many draws agree with the deterministic tree about each of n rows; can be printed.

    A draw sends a row to the more probable side of each split. What refers to the V nodes and L
    leaves compares the draws of the mode of the deterministic tree, at their most similar nodes.

    Attributes
    ----------
    node : array, shape (n, V)
        Share of the draws that send the row to the same side, whether or not it reaches the node.
    region : array, shape (n, V + L)
        Share of the draws that send the row to each node and leaf.
    reached : array of bool, shape (n, V + L)
        Whether the deterministic tree sends the row there.
    prediction : array, shape (n,), or None
        Share of the draws of all modes, by their weights, whose class of largest P(y | x) is the
        class that the deterministic tree predicts. None for numbers.
    rows : array, shape (n, d)
        Features of the rows, named by ``feature_names``.
    labels : tuple of str, length V + L
        Paths of the nodes, then of the leaves, from the root.
    level : float
        A row is in the inner region of a node or leaf if at least (1 + level) / 2 of the draws send
        it there, and in the outer one if at least (1 - level) / 2 do.
    """

    node: FloatArray
    region: FloatArray
    reached: BoolArray
    prediction: FloatArray | None
    rows: FloatArray
    feature_names: tuple[str, ...]
    labels: tuple[str, ...]
    level: float

    @property
    def path(self) -> FloatArray:
        """Share of the draws that send each row to its leaf of the deterministic tree, (n,)."""
        n_nodes = self.node.shape[1]
        found: FloatArray = (self.region * self.reached)[:, n_nodes:].sum(axis=1)
        return found

    @property
    def inner(self) -> BoolArray:
        """Rows in the inner region of each node and leaf, (n, V + L)."""
        return self.region >= tails(self.level)[1]

    @property
    def outer(self) -> BoolArray:
        """Rows in the outer region of each node and leaf, (n, V + L)."""
        return self.region >= tails(self.level)[0]

    def to_frame(self, by: Literal["region", "column", "row"] = "region") -> pd.DataFrame:
        """Tabulate the nodes and leaves, the extent of their regions, or the rows.

        Parameters
        ----------
        by : {"region", "column", "row"}
            For each node and leaf: the share of the rows in its inner region, that the
            deterministic tree sends there, and in its outer region; for the rows of the latter at a
            node, the mean share of the draws that agree about their side (``agreement``). For each
            of them and each feature: the least and the largest value in its inner region, in the
            region of the deterministic tree, and in the outer region. For each row: its leaf, and
            the share of the draws that agree about this path and about the prediction.

        Raises
        ------
        ValueError
            For any other value of ``by``.
        """
        regions = {"inner": self.inner, "tree": self.reached, "outer": self.outer}
        if by == "region":
            shares: dict[str, Any] = {name: one.mean(axis=0) for name, one in regions.items()}
            shares["agreement"] = np.full(len(self.labels), np.nan)
            reached = self.reached[:, : self.node.shape[1]]
            count = np.where(reached.any(axis=0), reached.sum(axis=0), np.nan)
            shares["agreement"][: self.node.shape[1]] = (self.node * reached).sum(axis=0) / count
            return pd.DataFrame(shares, index=node_index(self.labels))
        if by == "column":
            columns = pd.MultiIndex.from_product([regions, ("low", "high")])
            index = pd.MultiIndex.from_product(
                [self.labels, self.feature_names], names=["node", "feature"]
            )
            values = np.full((len(self.labels), self.rows.shape[1], 3, 2), np.nan)
            for k, inside in enumerate(regions.values()):
                for v in np.flatnonzero(inside.any(axis=0)):
                    some = self.rows[inside[:, v]]
                    values[v, :, k] = np.stack([some.min(axis=0), some.max(axis=0)], axis=1)
            return pd.DataFrame(values.reshape(len(index), 6), index, columns)
        if by != "row":
            raise ValueError(f"by must be 'region', 'column' or 'row', got {by!r}.")
        n_nodes = self.node.shape[1]
        leaf = self.reached[:, n_nodes:].argmax(axis=1)
        found: dict[str, Any] = {"leaf": [self.labels[n_nodes + one] for one in leaf]}
        found["path"] = self.path
        if self.prediction is not None:
            found["prediction"] = self.prediction
        return pd.DataFrame(found, index=pd.RangeIndex(len(leaf), name="row"))

    def __str__(self) -> str:
        text = f"Of the draws, {100 * self.path.mean():.1f} % send a row to its leaf"
        if len(self.labels) == 1:
            text += ", which has no other"
        if self.prediction is not None:
            text += f", and {100 * self.prediction.mean():.1f} % predict its class"
        low, high = tails(self.level)
        return (
            f"{text} (mean over {len(self.rows)} rows).\nShares of the rows that at least "
            f"{100 * high:.3g} % (inner) and {100 * low:.3g} % (outer) of the draws send to a node "
            f"or leaf:\n{self.to_frame().to_string(float_format='{:.3f}'.format, na_rep='')}"
        )

    __repr__ = __str__


def region_shares(
    draws: Draws, X: FloatArray, right: BoolArray, splits: Splits
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Compute ``node``, ``region`` and ``reached`` of :class:`RuleProbability` for rows (n, d).

    ``right`` (n, V) are the sides in the deterministic tree; for the others see
    ``split_uncertainty``.
    """
    agreed = np.zeros(right.shape)
    leaves = np.zeros((len(X), splits.topology.n_leaves))
    every = [*np.ndindex(*draws["intercept"].shape[:2])]
    for one in every:
        side = splits.sides(one, scores(draws, one, X), 1.0)[2]
        agreed += side == right
        leaves += _leaf_of(side, splits.topology)
    own = _leaf_of(right, splits.topology)
    below = np.hstack([splits.topology.turns.any(axis=0).T, np.eye(own.shape[1], dtype=bool)])
    return agreed / len(every), leaves @ below / len(every), own @ below


def _leaf_of(right: BoolArray, topology: Topology) -> BoolArray:
    """Mark the leaf of rows with these sides (n, V), (n, L): all turns on its path are taken."""
    to_left, to_right = topology.turns.astype(np.int64)
    taken = ~right @ to_left + right @ to_right
    found: BoolArray = taken == (to_left + to_right).sum(axis=0)
    return found


@dataclass(frozen=True, eq=False)
class Dependence:
    """Predictions at G values of a column: mean and band (G,), and the curves (n, G) of rows."""

    feature: str
    grid: AnyArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    curves: FloatArray
    label: str

    def at(self, places: IntArray) -> "Dependence":
        """Return the predictions at some of the values."""
        of_values = ("grid", "mean", "low", "high", "curves")
        return replace(self, **{name: getattr(self, name)[..., places] for name in of_values})
