"""Probabilities of the paths of all rows in one tree, compiled."""

import math

import numpy as np
from numba import njit

from bayestree._utils.arrays import MIN_SCORE
from bayestree.inference.core.arrays import ELSEWHERE, IF_LEFT, IF_RIGHT, OTHERS, SPARE
from bayestree.inference.core.elementary import LOOP, PART, exp_and_rest, log, softplus

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
def branch(others, r, own, steepness, left, right):
    """Compute P(left) and P(right) (n,) of the scores others + r own, neither by subtraction.

    The log-odds are steepness (s + log(1 - exp(-s))).
    """
    n = own.shape[0]
    if steepness == 1.0:
        for i in range(n):
            left[i], right[i] = exp_and_rest(-(others[i] + r * own[i]))
        return
    for i in range(n):
        score = others[i] + r * own[i] + MIN_SCORE
        odds = steepness * (score + log(exp_and_rest(-score)[1]))
        small = exp_and_rest(-abs(odds))[0]
        large = 1.0 / (1.0 + small)
        small *= large
        left[i] = small if odds > 0.0 else large
        right[i] = large if odds > 0.0 else small


@njit(**PART)
def mixture(rows, work, left, right, out):
    """Compute the likelihoods (n,) of the rows for branches of the node that moves.

    Returns the sum of their logarithms.
    """
    elsewhere, if_left, if_right = work.rows[ELSEWHERE], work.rows[IF_LEFT], work.rows[IF_RIGHT]
    total = 0.0
    for i in range(left.shape[0]):
        value = max(elsewhere[i] + if_left[i] * left[i] + if_right[i] * right[i], TINY)
        out[i] = value
        total += rows.weights[i] * log(value)
    return total


@njit(**PART)
def set_value(rows, chain, node):
    """Compute p(y | a row is at a node) from its children."""
    left, right = chain.branches[0, node], chain.branches[1, node]
    one, two = chain.value[rows.children[node, 0]], chain.value[rows.children[node, 1]]
    out = chain.value[node]
    for i in range(out.shape[0]):
        out[i] = left[i] * one[i] + right[i] * two[i]


@njit(**LOOP)
def refresh(rows, chain, work):
    """Compute all caches of a chain, without the rounding errors of earlier moves."""
    n_nodes, n_experts = chain.log_weight.shape
    score, zero, b = work.rows[OTHERS], work.rows[SPARE], work.small[0]
    d = b.shape[0] - 1
    fill(zero, 0.0)
    for node in range(n_nodes - 1, -1, -1):
        for k in range(n_experts):
            copy(chain.hyperplane[node, k], b)
            b[d] = chain.intercept[node, k]
            activation(rows.X, b, work.activation[node, k])
            votes(work.activation[node, k], work.votes[node, k])
        add_votes(chain.log_weight[node], work.votes[node], -1, -1, score)
        left, right = chain.branches[0, node], chain.branches[1, node]
        branch(score, 0.0, zero, rows.steepness, left, right)
        set_value(rows, chain, node)


@njit(**PART)
def set_factors(rows, chain, work, node):
    """Compute the likelihood of the rows as a function of the branches of a node."""
    n = chain.value.shape[1]
    elsewhere, reach = work.rows[ELSEWHERE], work.rows[SPARE]
    fill(elsewhere, 0.0)
    fill(reach, 1.0)
    path = np.empty(rows.parent.shape[0], np.int64)
    depth, v = 0, node
    while v > 0:
        path[depth] = v
        depth += 1
        v = rows.parent[v]
    for step in range(depth - 1, -1, -1):  # from the root down
        parent, turn = rows.parent[path[step]], rows.side[path[step]]
        own, rest = chain.branches[turn, parent], chain.branches[1 - turn, parent]
        other = chain.value[rows.children[parent, 1 - turn]]
        for i in range(n):
            elsewhere[i] += reach[i] * rest[i] * other[i]
            reach[i] *= own[i]
    one, two = chain.value[rows.children[node, 0]], chain.value[rows.children[node, 1]]
    if_left, if_right = work.rows[IF_LEFT], work.rows[IF_RIGHT]
    for i in range(n):
        if_left[i] = reach[i] * one[i]
        if_right[i] = reach[i] * two[i]


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
            if here[v] > FEW:
                share = min(right / (left + right), 1.0) if right > 0.0 else 0.0  # but for rounding
                here[two] = rng.binomial(here[v], share)
            else:
                for _ in range(here[v]):
                    here[two] += rng.random() * (left + right) < right
            here[one] = here[v] - here[two]
        for leaf in range(out.shape[0]):
            out[leaf, i] = here[n_nodes + leaf]
