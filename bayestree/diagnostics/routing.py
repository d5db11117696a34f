"""Soft routing of rows by one draw, in log space: ``bayestree.routing`` in NumPy.

Shapes: n rows, V nodes, K experts, L leaves.
"""

from typing import Any

import numpy as np
from scipy.special import log_expit

from bayestree._utils.arrays import FloatArray
from bayestree._utils.softplus import MIN_SCORE, softplus
from bayestree.diagnostics.draws import Draws, weight_of
from bayestree.topology import Topology


def scores(draws: Draws, one: Any, X: FloatArray) -> FloatArray:
    """Score of each row at each node, s = sum_k r_k softplus(beta_k . x + b_k), shape (n, ...).

    ``one`` is the index of a draw, a node or both, which selects hyperplanes (..., K, d).
    """
    plane = draws["hyperplane"][one].astype(np.float64)
    activation = X @ plane.reshape(-1, plane.shape[-1]).T + draws["intercept"][one].reshape(-1)
    alone = softplus(activation).reshape(len(X), *plane.shape[:-1])
    return np.einsum("n...k,...k->n...", alone, weight_of(draws, one)) + MIN_SCORE


def log_odds(score: FloatArray, steepness: float) -> FloatArray:
    """Log-odds of going right: P(left) = exp(-s), so steepness * log(exp(s) - 1)."""
    return steepness * (score + np.log(-np.expm1(-score)))


def branch_log_probs(score: FloatArray, steepness: float) -> tuple[FloatArray, FloatArray]:
    """Log-probabilities of going left and right; ``steepness`` multiplies the log-odds."""
    if steepness == 1:
        return -score, np.log(-np.expm1(-score))
    odds = log_odds(score, steepness)
    return log_expit(-odds), log_expit(odds)


def leaf_log_probs(log_left: FloatArray, log_right: FloatArray, topology: Topology) -> FloatArray:
    """log P(leaf | x), shape (..., L): the sum of log-probabilities over the path (CPT, eq. 8)."""
    paths = topology.turns.reshape(2 * topology.n_nodes, topology.n_leaves)
    return np.concatenate([log_left, log_right], axis=-1) @ paths.astype(np.float64)
