"""What the compiled functions work on, and the probabilities of the paths of all rows in one tree.

Nodes are numbered with parents before children; leaf l counts as V + l. Experts have p = d + 1
coefficients, the intercept last. With p_v(n) = p(y_n | row n is at v), relative to its best leaf,

    p_v = P(left) p_left + P(right) p_right,

up to the root, whose value is the likelihood of the row. As a function of the score of one node it
is a + b P(left) + c P(right), where a, b and c depend on the other nodes and the leaves: a change
of an expert costs one pass over the rows, and no sum over paths. Rows with b = c, up to rounding,
are left out.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayestree._utils.arrays import MIN_SCORE, FloatArray, IntArray
from bayestree.inference.core.elementary import LOOP, PART, exp_and_rest, log, softplus
from bayestree.topology import Topology, matching

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


FEW = 8  # copies of a row that are drawn one by one
TINY = 1e-300  # smallest likelihood of a row, relative to that in its best leaf


@njit(**PART)
def copy(source, target):
    """Copy an array to another, which may be longer."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@njit(**PART)
def fill(target, value):
    """Set all of an array to a value."""
    for i in range(target.shape[0]):
        target[i] = value


@njit(**PART)
def activation(X, b, out):
    """Compute the activations (n,) of coefficients b (p,), four columns at a time."""
    p, n = X.shape
    fill(out, b[p - 1])
    j = 0
    while j + 4 <= p - 1:
        b0, b1, b2, b3 = b[j], b[j + 1], b[j + 2], b[j + 3]
        x0, x1, x2, x3 = X[j], X[j + 1], X[j + 2], X[j + 3]
        for i in range(n):
            out[i] += b0 * x0[i] + b1 * x1[i] + b2 * x2[i] + b3 * x3[i]
        j += 4
    while j < p - 1:
        bj, xj = b[j], X[j]
        for i in range(n):
            out[i] += bj * xj[i]
        j += 1


@njit(**PART)
def votes(activations, out):
    """Compute softplus of activations (n,)."""
    for i in range(activations.shape[0]):
        out[i] = softplus(activations[i])


@njit(**PART)
def add_votes(log_weight, each, skip, also, out):
    """Compute the score (n,) of the experts of a node, without two of them (or -1).

    The sum is taken again: to subtract an expert that votes heavily would leave rounding errors.
    """
    fill(out, 0.0)
    for k in range(each.shape[0]):
        if k != skip and k != also:  # noqa: PLR1714 - a tuple takes longer to compile
            r, own = math.exp(log_weight[k]), each[k]
            for i in range(own.shape[0]):
                out[i] += r * own[i]


@njit(**PART)
def raise_to(power, base, out):
    """Compute the power (n,) of an array, by multiplications; the array is overwritten."""
    fill(out, 1.0)
    while True:
        if power % 2:
            for i in range(base.shape[0]):
                out[i] *= base[i]
        power //= 2
        if power == 0:
            return
        for i in range(base.shape[0]):
            base[i] *= base[i]


@njit(**PART)
def branch(others, r, own, steepness, left, right, spare):
    """Compute P(left) and P(right) (n,) of the scores others + r own, neither by subtraction.

    The odds are those at steepness 1, exp(s) - 1, to a power.
    """
    n = own.shape[0]
    for i in range(n):
        left[i], right[i] = exp_and_rest(-(others[i] + r * own[i]))
    if steepness == 1.0:
        return
    if steepness == int(steepness):
        for i in range(n):
            spare[i] = min(left[i], right[i]) / max(left[i], right[i])
            right[i] -= left[i]
        raise_to(int(steepness), spare, left)
    else:
        for i in range(n):
            score = others[i] + r * own[i] + MIN_SCORE
            right[i] = score + log(exp_and_rest(-score)[1])
            left[i] = exp_and_rest(-steepness * abs(right[i]))[0]
    for i in range(n):
        turn, small = right[i], left[i]
        large = 1.0 / (1.0 + small)
        small *= large
        left[i] = small if turn > 0.0 else large
        right[i] = large if turn > 0.0 else small


@njit(**PART)
def mixture(weights, elsewhere, if_left, if_right, left, right, out):
    """Compute the likelihoods (n,) of rows for branches of the node that moves.

    Returns the sum of their logarithms.
    """
    total = 0.0
    for i in range(weights.shape[0]):
        value = max(elsewhere[i] + if_left[i] * left[i] + if_right[i] * right[i], TINY)
        out[i] = value
        total += weights[i] * log(value)
    return total


@njit(**PART)
def set_value(rows, chain, node):
    """Compute p(y | a row is at a node) from its children."""
    left, right = chain.branches[0, node], chain.branches[1, node]
    one, two = chain.value[rows.children[node, 0]], chain.value[rows.children[node, 1]]
    out = chain.value[node]
    for i in range(out.shape[0]):
        out[i] = left[i] * one[i] + right[i] * two[i]


@njit(**PART)
def load(chain, node, k, b):
    """Copy the coefficients of an expert, with its intercept last."""
    copy(chain.hyperplane[node, k], b)
    b[b.shape[0] - 1] = chain.intercept[node, k]


@njit(**PART)
def set_branches(rows, chain, work, node):
    """Compute the branches of all rows at a node."""
    w, b = work.rows, work.small[OLD]
    score, psi, own = w[OTHERS], w[ACTIVATION], w[VOTES]
    fill(score, 0.0)
    for k in range(chain.log_weight.shape[1]):
        load(chain, node, k, b)
        activation(rows.X, b, psi)
        votes(psi, own)
        r = math.exp(chain.log_weight[node, k])
        for i in range(own.shape[0]):
            score[i] += r * own[i]
    branch(score, 0.0, own, rows.steepness, w[LEFT], w[RIGHT], w[SPARE])
    for side in range(2):
        one, found = chain.branches[side, node], w[LEFT + side]
        for i in range(one.shape[0]):
            one[i] = found[i]


@njit(**LOOP)
def refresh(rows, chain, work):
    """Compute all caches of a chain."""
    for node in range(chain.log_weight.shape[0] - 1, -1, -1):
        set_branches(rows, chain, work, node)
        set_value(rows, chain, node)


@njit(**PART)
def set_factors(rows, chain, work, node):
    """Compute the likelihood of the rows as a function of the branches of a node."""
    n = chain.value.shape[1]
    elsewhere, reach = work.rows[ELSEWHERE], work.rows[SPARE]
    fill(elsewhere, 0.0)
    fill(reach, 1.0)
    parent = 0
    while parent != node:  # from the root down
        v = node
        while rows.parent[v] != parent:
            v = rows.parent[v]
        turn = rows.side[v]
        own, rest = chain.branches[turn, parent], chain.branches[1 - turn, parent]
        other = chain.value[rows.children[parent, 1 - turn]]
        for i in range(n):
            elsewhere[i] += reach[i] * rest[i] * other[i]
            reach[i] *= own[i]
        parent = v
    one, two = chain.value[rows.children[node, 0]], chain.value[rows.children[node, 1]]
    if_left, if_right = work.rows[IF_LEFT], work.rows[IF_RIGHT]
    for i in range(n):
        if_left[i] = reach[i] * one[i]
        if_right[i] = reach[i] * two[i]


@njit(**PART)
def binomial(count, share, rng):
    """Draw the number of uniform variables below a share; of many, by their median first.

    It is a beta variable; given it, the others are uniform below and above (Devroye 1986).
    """
    found = 0
    while count > FEW:
        half = count // 2 + 1
        below = rng.standard_gamma(float(half))
        median = below / (below + rng.standard_gamma(float(count + 1 - half)))
        if median <= share:
            found, count = found + half, count - half
            share = (share - median) / (1.0 - median)
        else:
            count, share = half - 1, share / median
    for _ in range(count):
        found += rng.random() < share
    return found


@njit(**LOOP)
def draw_paths(rows, chain, copies, rng, out):
    """Draw the numbers of the copies (n,) of each row that fall into each leaf, (L, n), given y."""
    n_nodes, n = chain.branches.shape[1:]
    here = np.empty(n_nodes + out.shape[0], np.int64)  # copies of a row at each node and leaf
    for i in range(n):
        here[0] = int(copies[i])
        for v in range(n_nodes):
            one, two = rows.children[v, 0], rows.children[v, 1]
            left = chain.branches[0, v, i] * chain.value[one, i]
            right = chain.branches[1, v, i] * chain.value[two, i]
            here[two] = 0
            here[two] = binomial(here[v], right / (left + right) if right > 0.0 else 0.0, rng)
            here[one] = here[v] - here[two]
        for leaf in range(out.shape[0]):
            out[leaf, i] = here[n_nodes + leaf]
