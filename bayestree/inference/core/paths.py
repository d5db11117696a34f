"""Probabilities of the paths of all rows in one tree, compiled."""

import math

import numpy as np
from numba import njit

from bayestree._utils.arrays import MIN_SCORE
from bayestree.inference.core.arrays import (
    ACTIVATION,
    ELSEWHERE,
    IF_LEFT,
    IF_RIGHT,
    LEFT,
    OLD,
    OTHERS,
    RIGHT,
    SPARE,
    VOTES,
)
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
