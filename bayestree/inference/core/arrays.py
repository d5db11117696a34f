"""What the compiled functions work on: rows, priors, the parameters and caches of one chain.

Nodes are numbered with parents before children; leaf l counts as V + l. Experts have p = d + 1
coefficients, the intercept last. With p_v(n) = p(y_n | row n is at v), relative to its best leaf,

    p_v = P(left) p_left + P(right) p_right,

up to the root, whose value is the likelihood of the row. As a function of the score of one node it
is a + b P(left) + c P(right), where a, b and c depend on the other nodes and the leaves: a change
of an expert costs one pass over the rows, and no sum over paths. Rows with b = c, up to rounding,
are left out.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.samplers.expert_moves import matching
from bayestree.topology import Topology

#: Rows of ``Work.rows``: the factors a, b, c of the node that moves; its score without the expert
#: that moves; its branches and the likelihood of the rows, now and as proposed; what is proposed.
ELSEWHERE, IF_LEFT, IF_RIGHT, OTHERS, LEFT, RIGHT, VALUE, NEW_LEFT, NEW_RIGHT, NEW_VALUE = range(10)
ACTIVATION, VOTES, PULL, SPARE, WEIGHTS, ONE, TWO, N_ROWS = range(10, 18)
#: Rows are filled up to a multiple of PAD, with weights of 0, so that no loop ends with fewer rows
#: than vector instructions take, and are evaluated BLOCK by BLOCK.
PAD, BLOCK = 32, 256
#: Rows of ``Work.small``.
PRECISION, OLD, NEW, STEP, UNIT, NEW_STEP, NEW_UNIT, NOISE = range(8)


class Rows(NamedTuple):
    """n rows, and a topology."""

    X: FloatArray  # (p, n or more), the last row of ones
    weights: FloatArray  # (n,)
    children: IntArray  # (V, 2)
    parent: IntArray  # (V,), -1 for the root
    side: IntArray  # (V,), 1 if the node is a right child
    swaps: IntArray  # (., 2), entries of the branches that a mirror exchanges, node after node
    first_swap: IntArray  # (V + 1,), none where the branches have different shapes
    steepness: float


class Priors(NamedTuple):
    """r ~ Gamma(concentration, rate); b ~ Gamma(shrinkage_shape, shrinkage_rate) of an expert.

    1 / sigma^2 ~ Gamma(shape, b) of each scale; coefficients ~ Normal(0, square sigma^2).
    """

    weighted: bool  # otherwise r = 1
    concentration: float
    rate: float
    shape: float
    shrinkage_shape: float
    shrinkage_rate: float
    scale: IntArray  # (p,), the number of the scale of each coefficient
    sizes: FloatArray  # (scales,), numbers of coefficients
    square: FloatArray  # (scales,)


class Chain(NamedTuple):
    """Parameters of one chain, and what follows from them for each row."""

    log_weight: FloatArray  # (V, K)
    hyperplane: FloatArray  # (V, K, d)
    intercept: FloatArray  # (V, K)
    shrinkage: FloatArray  # (V, K), log b
    leaf: IntArray  # (L,), the leaf that has come to each place by exchanges of branches
    branches: FloatArray  # (2, V, n), P(left) and P(right)
    value: FloatArray  # (V + L, n), of leaves given, of nodes computed


class Work(NamedTuple):
    """Space for the moves of one node, on the m rows whose likelihood depends on its branches."""

    X: FloatArray  # (p, m)
    activation: FloatArray  # (K, m)
    votes: FloatArray  # (K, m), softplus of the activations
    rows: FloatArray  # (N_ROWS, m)
    most: FloatArray  # (blocks + 1,), the largest log-likelihood of the rows from each block on
    small: FloatArray  # (8, p)
    square: FloatArray  # (2, p, p)
    scales: FloatArray  # (2, scales)
    buffer: FloatArray  # space for X, activation, votes and rows of other nodes
    gain: FloatArray  # (1,), the log acceptance ratio of the last proposal


def rows_of(X: FloatArray, weights: FloatArray, topology: Topology, steepness: float) -> Rows:
    """Arrange rows (n, d) and their weights for chains on a topology."""
    children, n_nodes = topology.children, topology.n_nodes
    parent, side = np.full(n_nodes, -1), np.zeros(n_nodes, dtype=np.int64)
    for node, pair in enumerate(children.tolist()):
        for turn, child in enumerate(pair):
            if child >= 0:
                parent[child], side[child] = node, turn
    pairs = [matching(topology, *map(int, pair)) or [] for pair in children]
    swaps = [
        (first, second) if kind == "node" else (n_nodes + first, n_nodes + second)
        for own in pairs
        for kind, first, second in own
    ]
    filled = np.zeros((X.shape[1] + 1, -(-len(X) // PAD) * PAD))
    filled[:-1, : len(X)], filled[-1] = X.T, 1.0
    return Rows(
        filled,
        np.ascontiguousarray(weights, dtype=np.float64),
        np.where(children < 0, n_nodes + ~children, children).astype(np.int64),
        parent.astype(np.int64),
        side,
        np.array(swaps, dtype=np.int64).reshape(-1, 2),
        np.cumsum([0, *map(len, pairs)], dtype=np.int64),
        float(steepness),
    )


def priors_of(weight: Any, hyperplane: Any, n_experts: int, n_features: int) -> Priors:
    """Return the numbers of a ``GammaProcess``, or None for r = 1, and an ``InverseGammaScale``."""
    scale: NDArray[Any] = np.append(hyperplane.scale_of(n_features), -1)
    scale[-1] = scale.max() + 1  # of the intercept
    sizes = np.bincount(scale).astype(np.float64)
    square = np.full(len(sizes), hyperplane.coefficient_scale**2)
    square[-1] = 1.0
    return Priors(
        weight is not None,
        1.0 if weight is None else weight.concentration / n_experts,
        1.0 if weight is None else float(weight.rate),
        float(hyperplane.shape),
        float(hyperplane.shrinkage_shape),
        float(hyperplane.shrinkage_rate),
        scale.astype(np.int64),
        sizes,
        square,
    )


def workspace(rows: Rows, priors: Priors, n_experts: int) -> Work:
    """Allocate the space for chains of so many experts."""
    p, n = rows.X.shape
    table = (p, n_experts, n_experts, N_ROWS)
    shapes = (*((size, n) for size in table), (n // BLOCK + 2,), (8, p), (2, p, p))
    rest = ((2, len(priors.sizes)), (sum(table) * n,), (1,))
    return Work(*(np.zeros(shape) for shape in (*shapes, *rest)))
