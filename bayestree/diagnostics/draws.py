"""Draws by site name, as in ``Posterior.draws``: experts, leaves and soft routing of rows.

Shapes: n rows, V nodes, K experts, L leaves.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_expit, softmax

from bayestree._utils.arrays import MIN_SCORE, AnyArray, BoolArray, FloatArray, IntArray, softplus
from bayestree.topology import Topology
from bayestree.tree import LOG2

Draws = Mapping[str, NDArray[Any]]
SHARE = 0.01  # experts whose largest vote stays below this share of log 2 are ignored
VARIATIONAL = (
    "Counts from a variational fit are overconfident and can be wrong;\n"
    "use inference='mcmc' to sample them."
)
MAX_NAMES = 4  # feature names listed in a table cell


def weight_of(draws: Draws, index: Any) -> FloatArray:
    """Return the experts' weights at an index of the draws; 1 where splits have no weights."""
    return np.exp(log_weight_of(draws, index))


def log_weight_of(draws: Draws, index: Any) -> FloatArray:
    """Return the logarithms of the weights at an index of the draws."""
    if "log_weight" not in draws:
        return np.zeros(draws["intercept"][index].shape)
    return draws["log_weight"][index].astype(np.float64)


def split_of(draws: Draws, index: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights, hyperplanes and intercepts of the experts at an index of the draws."""
    return (
        weight_of(draws, index),
        draws["hyperplane"][index].astype(np.float64),
        draws["intercept"][index].astype(np.float64),
    )


def leaf_means(draws: Draws, index: Any, X: FloatArray) -> FloatArray:
    """Compute E(y | x, leaf) of rows X (n, d) at an index of the draws, (..., n, L).

    (..., 1, L) if the leaves are constant.
    """
    mean = draws["leaf_mean"][index].astype(np.float64)[..., None, :]
    if "leaf_slope" not in draws:
        return mean
    slope = draws["leaf_slope"][index].astype(np.float64)
    return mean + X @ np.swapaxes(slope, -1, -2)


def classifies(draws: Draws) -> bool:
    """Tell whether the draws have leaves of classes."""
    return "leaf_probs" in draws or "leaf_logit" in draws


def leaf_shares(draws: Draws, index: Any, X: FloatArray) -> FloatArray:
    """Compute class probabilities of rows X (n, d) in the leaves of a draw, (..., n, L, C).

    (..., 1, L, C) if the leaves are constant.
    """
    if "leaf_probs" in draws:
        return np.expand_dims(draws["leaf_probs"][index].astype(np.float64), -3)
    slope = draws["leaf_slope"][index].astype(np.float64)
    logit = np.expand_dims(draws["leaf_logit"][index].astype(np.float64), -3)
    return softmax(logit + np.einsum("nd,...lcd->...nlc", X, slope), axis=-1)


def flat(values: AnyArray) -> AnyArray:
    """Merge chains and draws: (chain, draw, ...) -> (chain * draw, ...)."""
    return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])


def effective_number(parts: FloatArray) -> FloatArray:
    """Compute (sum c)^2 / sum c^2 over the last axis; 0 where all c are 0."""
    square = np.maximum((parts**2).sum(axis=-1), np.finfo(np.float64).tiny)
    return parts.sum(axis=-1) ** 2 / square


def spread(length: int, most: int) -> IntArray:
    """Choose up to ``most`` evenly spaced indices of 0..length - 1."""
    return np.unique(np.linspace(0, length - 1, min(most, length)).round().astype(np.int64))


def kept_draws(draws: Draws, max_draws: int) -> IntArray:
    """Choose evenly spaced draws of each chain, ``max_draws`` over all chains."""
    if max_draws < 1:
        raise ValueError(f"max_draws must be 1 or more, got {max_draws}.")
    n_chains, n_draws = draws["intercept"].shape[:2]
    return spread(n_draws, max(1, max_draws // n_chains))


def tails(level: float) -> list[float]:
    """Return the probabilities of the two ends of a central interval."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    return [(1 - level) / 2, (1 + level) / 2]


def named_features(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Check the names of the features, ``x0``, ``x1``, ... by default."""
    found = tuple(names) or tuple(f"x{j}" for j in range(n_features))
    if len(found) != n_features:
        raise ValueError(f"feature_names must name {n_features} features, got {len(found)}.")
    return found


def listed(names: Sequence[str]) -> str:
    """Join the first few names by commas, and count the others."""
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" + {more} more" if more > 0 else "")


def node_index(labels: Sequence[str]) -> pd.Index:
    """Index of a table with one row per node."""
    return pd.Index(labels, name="node", dtype=object)


def size_table(sizes: AnyArray) -> FloatArray:
    """Share of each size in each column, shape (columns, largest size + 1)."""
    rounded = np.rint(sizes).astype(np.int64)
    table = np.zeros((rounded.shape[1], rounded.max(initial=0) + 1))
    for node, column in enumerate(rounded.T):
        table[node] = np.bincount(column, minlength=table.shape[1]) / len(column)
    return table


def scores(draws: Draws, one: Any, X: FloatArray) -> FloatArray:
    """Score of each row at each node, s = sum_k r_k softplus(beta_k . x + b_k), shape (n, ...).

    ``one`` is the index of a draw, a node or both, which selects hyperplanes (..., K, d).
    """
    plane = draws["hyperplane"][one].astype(np.float64)
    activation = X @ plane.reshape(-1, plane.shape[-1]).T + draws["intercept"][one].reshape(-1)
    alone = softplus(activation).reshape(len(X), *plane.shape[:-1])
    return np.einsum("n...k,...k->n...", alone, weight_of(draws, one)) + MIN_SCORE


def log_odds(score: FloatArray, steepness: float) -> FloatArray:
    """Compute log-odds of going right: P(left) = exp(-s), so steepness * log(exp(s) - 1)."""
    return steepness * (score + np.log(-np.expm1(-score)))


def branch_log_probs(score: FloatArray, steepness: float) -> tuple[FloatArray, FloatArray]:
    """Compute log-probabilities of left and right; ``steepness`` multiplies the log-odds."""
    if steepness == 1:
        return -score, np.log(-np.expm1(-score))
    odds = log_odds(score, steepness)
    return log_expit(-odds), log_expit(odds)


def leaf_log_probs(log_left: FloatArray, log_right: FloatArray, topology: Topology) -> FloatArray:
    """log P(leaf | x), shape (..., L): the sum of log-probabilities over the path (CPT, eq. 8)."""
    paths = topology.turns.reshape(2 * topology.n_nodes, topology.n_leaves)
    return np.concatenate([log_left, log_right], axis=-1) @ paths.astype(np.float64)


ALIKE = 0.5  # agreement from which a draw is said to have a node: three rows of four


class Matches(NamedTuple):
    """The node of each draw that divides the rows of a node of the tree most alike.

    A facet and its complement with the branches exchanged describe the same split, and so do two
    trees whose nodes have changed places. Nodes of draws are therefore matched by where they send
    the rows, before anything is said about a node.
    """

    node: IntArray  # its number in the draw, (chain, draw, V)
    exchanged: BoolArray  # whether its sides have changed places, (chain, draw, V)
    agreement: NDArray[np.float32]  # share of rows on the same side less the rest, (chain, draw, V)

    @classmethod
    def fixed(cls, nodes: IntArray, draws: Draws) -> "Matches":
        """Match nodes that have these numbers (V,) in every draw."""
        shape = (*draws["intercept"].shape[:2], len(nodes))
        every = np.broadcast_to(nodes, shape)
        return cls(every, np.zeros(shape, dtype=bool), np.ones(shape, dtype=np.float32))

    def of_nodes(self, draws: Draws) -> dict[str, NDArray[Any]]:
        """Select the experts of the nodes in every draw, (chain, draw, V, K, ...)."""
        found = {}
        for name in {"hyperplane", "intercept", "log_weight", "shrinkage"} & draws.keys():
            lead = (..., *(None,) * (draws[name].ndim - 3))
            found[name] = np.take_along_axis(draws[name], self.node[lead], axis=2)
        return found

    @property
    def alike(self) -> BoolArray:
        """Whether a draw has the node, (chain, draw, V)."""
        found: BoolArray = self.agreement >= ALIKE
        return found


def match(draws: Draws, X: FloatArray, right: BoolArray, reached: BoolArray) -> Matches:
    """Match the nodes of draws to those of a deterministic tree.

    ``X`` (n, d) are rows on the scale of the draws; ``right`` and ``reached`` (n, V), the side of
    each row in the tree, and whether it reaches the node.
    """
    side = np.where(right, 1.0, -1.0) * reached / np.maximum(reached.sum(axis=0), 1)
    shape = (*draws["intercept"].shape[:2], right.shape[1])
    node, agreement = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for one in np.ndindex(shape[:2]):
        agree = side.T @ np.where(scores(draws, one, X) > LOG2, 1.0, -1.0)
        node[one] = np.abs(agree).argmax(axis=1)
        agreement[one] = np.take_along_axis(agree, node[one][:, None], axis=1)[:, 0]
    return Matches(node, agreement < 0, np.abs(agreement))
