"""Moves of the experts of a chain, compiled; the paths of the rows are integrated out.

Each move is a Metropolis-Hastings step, and returns the log-likelihood after it. The change of the
log joint density, plus what the proposal asks for, decides whether the chain accepts it.
"""

import math

import numpy as np
from numba import njit

from bayestree._utils.arrays import MIN_SCORE
from bayestree.inference.core.elementary import (
    LOG2,
    LOOP,
    ONCE,
    PART,
    exp_and_rest,
    factorise,
    log,
    moments,
    softplus,
    solve_lower,
    solve_upper,
)
from bayestree.inference.core.paths import (
    ACTIVATION,
    BLOCK,
    ELSEWHERE,
    IF_LEFT,
    IF_RIGHT,
    LEFT,
    N_ROWS,
    NEW,
    NEW_LEFT,
    NEW_RIGHT,
    NEW_STEP,
    NEW_UNIT,
    NEW_VALUE,
    NOISE,
    OLD,
    ONE,
    OTHERS,
    PAD,
    PRECISION,
    PULL,
    RIGHT,
    SPARE,
    STEP,
    TINY,
    TWO,
    UNIT,
    VALUE,
    VOTES,
    WEIGHTS,
    Work,
    activation,
    add_votes,
    branch,
    copy,
    fill,
    load,
    mixture,
    set_branches,
    set_factors,
    set_value,
    votes,
)
from bayestree.inference.samplers.expert_moves import MIN_LOG_WEIGHT

# Of NumPy: a function is compiled again for every constant of Python that it is called with.
NEWTON, SLIDE, WEIGHT, FRESH, MIRROR, LEAF = np.arange(6)  # places in a tally
NOBODY = np.int64(-1)  # instead of the number of an expert
STILL, MOVED = np.array([False, True])  # whether an expert that is proposed has other coefficients
SHARPEN, SHIFT = range(2)  # kinds of slides
LOG_SHORTEST = math.log(0.03)  # smallest standard deviation of a slide, on the log scale; up to 1
TRADE = 3.0  # exchanges of weight are longer than slides by this factor
JITTER = 1e-10  # relative to the diagonal of a curvature, which rounding may leave indefinite
NEGLIGIBLE = 1e-12  # share of the likelihood of a row, that the branches of a node may change
INFORMATIVE = 512  # about as many rows show the curvature of a proposal as well as all do
MAX_LOG_WEIGHT = 50.0  # of a slide: its border would vanish in floating point


# The prior of an expert.


@njit(**PART)
def set_squares(priors, b, out):
    """Compute half the squared length of the coefficients b (p,) of each scale, in its units."""
    fill(out, 0.0)
    for j in range(b.shape[0]):
        out[priors.scale[j]] += b[j] * b[j]
    for g in range(out.shape[0]):
        out[g] /= 2.0 * priors.square[g]


@njit(**PART)
def log_prior(priors, b, shrinkage, halves):
    """Compute the log density of coefficients b (p,) and log b, without constants."""
    set_squares(priors, b, halves)
    rate = math.exp(shrinkage)
    scales = halves.shape[0]
    total = (priors.shrinkage_shape + scales * priors.shape) * shrinkage
    total -= priors.shrinkage_rate * rate
    for g in range(scales):
        total -= (priors.shape + 0.5 * priors.sizes[g]) * math.log(rate + halves[g])
    return total


@njit(**PART)
def draw_scales(priors, rng, b, shrinkage, scales, precision):
    """Draw 1 / sigma^2 of each scale, into scales[1], and of each coefficient."""
    halves, own = scales[0], scales[1]
    set_squares(priors, b, halves)
    rate = math.exp(shrinkage)
    for g in range(own.shape[0]):
        own[g] = rng.standard_gamma(priors.shape + 0.5 * priors.sizes[g]) / (rate + halves[g])
    for j in range(b.shape[0]):
        precision[j] = own[priors.scale[j]] / priors.square[priors.scale[j]]


@njit(**PART)
def draw_shrinkage(priors, rng, b, shrinkage, scales, precision):
    """Draw log b of an expert given its coefficients, by way of their scales."""
    draw_scales(priors, rng, b, shrinkage, scales, precision)
    rate, own = priors.shrinkage_rate, scales[1]
    for g in range(own.shape[0]):
        rate += own[g]
    shape = priors.shrinkage_shape + own.shape[0] * priors.shape
    return math.log(rng.standard_gamma(shape)) - math.log(rate)


@njit(**PART)
def draw_log_gamma(rng, shape):
    """Draw the logarithm of a gamma variable, which would underflow for a small shape."""
    return math.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape


@njit(**PART)
def draw_expert(priors, rng, b, halves):
    """Draw an expert from the prior: coefficients into b; returns its log r and log b."""
    log_weight = 0.0
    if priors.weighted:
        log_weight = draw_log_gamma(rng, priors.concentration) - math.log(priors.rate)
    shrinkage = draw_log_gamma(rng, priors.shrinkage_shape) - math.log(priors.shrinkage_rate)
    for g in range(halves.shape[0]):
        precision = draw_log_gamma(rng, priors.shape) - shrinkage
        halves[g] = math.exp(-0.5 * precision) * math.sqrt(priors.square[g])
    for j in range(b.shape[0]):
        b[j] = rng.standard_normal() * halves[priors.scale[j]]
    return log_weight, shrinkage


# Proposals, and what is kept of them.


@njit(**PART)
def propose(work, steepness, r, moved, own, least):
    """Compute the log-likelihood if the expert that moves has weight r and votes (m,).

    If it has ``moved``, its votes follow from the proposed activations. The result is -inf as soon
    as even the best branches of all further rows would not lead above ``least``.
    """
    w, total = work.rows, 0.0
    for block in range(work.most.shape[0] - 1):
        a, b = block * BLOCK, min((block + 1) * BLOCK, own.shape[0])
        some, left, right = own[a:b], w[NEW_LEFT, a:b], w[NEW_RIGHT, a:b]
        if moved:
            votes(w[ACTIVATION, a:b], some)
        branch(w[OTHERS, a:b], r, some, steepness, left, right, w[PULL, a:b])
        total += mixture(
            w[WEIGHTS, a:b], w[ELSEWHERE, a:b], w[IF_LEFT, a:b], w[IF_RIGHT, a:b], left, right,
            w[NEW_VALUE, a:b],
        )  # fmt: skip
        if total + work.most[block + 1] < least:
            return -np.inf
    return total


@njit(**PART)
def accepts(work, move, gain, luck, tally):
    """Decide about a proposal of log acceptance ratio ``gain``, and count it; NaN is refused.

    ``luck`` is minus an exponential variable.
    """
    work.gain[0] = gain
    tally[1, move] += 1
    if not luck < gain:
        return False
    tally[0, move] += 1
    take(work.rows)
    return True


@njit(**PART)
def take(w):
    """Make the proposed branches the present ones."""
    copy(w[NEW_LEFT], w[LEFT])
    copy(w[NEW_RIGHT], w[RIGHT])
    copy(w[NEW_VALUE], w[VALUE])


@njit(**PART)
def decide(work, steepness, move, r, moved, own, now, gain, rng, tally):
    """Decide about a weight and votes as in ``propose``, which gain so much besides likelihood.

    Returns whether they are accepted, and the log-likelihood.
    """
    luck = -rng.standard_exponential()
    value = propose(work, steepness, r, moved, own, now + luck - gain)
    accepted = accepts(work, move, value - now + gain, luck, tally)
    return accepted, value if accepted else now


@njit(**PART)
def keep(chain, work, node, k, b):
    """Take the proposed coefficients of an expert, with its activations and votes."""
    plane = chain.hyperplane[node, k]
    for j in range(plane.shape[0]):
        plane[j] = b[j]
    chain.intercept[node, k] = b[plane.shape[0]]
    copy(work.rows[ACTIVATION], work.activation[k])
    copy(work.rows[VOTES], work.votes[k])


@njit(**PART)
def border(log_weight):
    """Compute the activation t at which an expert alone splits at 1/2, softplus(t) = log(2) / r."""
    rate = LOG2 * math.exp(-log_weight)
    return rate + math.log(-math.expm1(-rate))


@njit(**PART)
def log_slope(log_weight, level):
    """Compute log of r sigmoid(t), the slope of an expert's score along its activation t."""
    if level > 0.0:
        return log_weight - math.log1p(math.exp(-level))
    return log_weight + level - math.log1p(math.exp(level))


# Moves.


@njit(**ONCE)
def slide(steepness, priors, chain, work, node, k, kind, now, rng, tally):
    """Propose to move an expert along a curve on which its border stays.

    ``SHARPEN`` multiplies its distances from the border, and its scales. ``SHIFT`` multiplies its
    weight, and keeps the slope of its score at the border: where r is small, the score is nearly
    linear in the activation, and r / c with c times the activation is the same function.
    """
    length = math.exp(LOG_SHORTEST * rng.random()) * rng.standard_normal()
    old, b, new = chain.log_weight[node, k], work.small[OLD], work.small[NEW]
    log_weight = old + length if kind == SHIFT else old
    if min(old, log_weight) < MIN_LOG_WEIGHT or log_weight > MAX_LOG_WEIGHT:
        tally[1, SLIDE] += 1
        return now
    load(chain, node, k, b)
    level, moved, shrunk = border(old), border(log_weight), length
    if kind == SHIFT:
        shrunk = log_slope(old, level) - log_slope(log_weight, moved)
    factor = math.exp(shrunk)
    p = b.shape[0]
    for j in range(p):
        new[j] = factor * b[j]
    new[p - 1] += moved - factor * level
    w, psi = work.rows, work.activation[k]
    for i in range(psi.shape[0]):
        w[ACTIVATION, i] = moved + factor * (psi[i] - level)
    shrinkage = chain.shrinkage[node, k] + 2.0 * shrunk  # b is in units of squared coefficients
    gain = p * shrunk + log_prior(priors, new, shrinkage, work.scales[0])
    gain -= log_prior(priors, b, chain.shrinkage[node, k], work.scales[0])
    if kind == SHIFT:
        gain += log_weight_prior(priors, log_weight) - log_weight_prior(priors, old)
    r = math.exp(log_weight)
    accepted, now = decide(work, steepness, SLIDE, r, MOVED, w[VOTES], now, gain, rng, tally)
    if accepted:
        chain.log_weight[node, k], chain.shrinkage[node, k] = log_weight, shrinkage
        keep(chain, work, node, k, new)
    return now


@njit(**PART)
def log_weight_prior(priors, log_weight):
    """Compute the log density of log r, without its constant."""
    return priors.concentration * log_weight - priors.rate * math.exp(log_weight)


@njit(**ONCE)
def trade(steepness, priors, chain, work, node, k, now, rng, tally):
    """Propose to exchange weight with another expert of the node; their sum stays.

    In the coordinates log(r + r') and log(r / r'), which keep volume, only the latter changes.
    """
    n_experts = work.votes.shape[0]
    other = (k + 1 + int(rng.random() * (n_experts - 1))) % n_experts
    one, two = chain.log_weight[node, k], chain.log_weight[node, other]
    length = TRADE * math.exp(LOG_SHORTEST * rng.random()) * rng.standard_normal()
    total, odds = two + softplus(one - two), one - two + length
    new, rest = total - softplus(-odds), total - softplus(odds)
    w = work.rows
    copy(w[OTHERS], w[SPARE])
    add_votes(chain.log_weight[node], work.votes, k, other, w[OTHERS])
    r, own = math.exp(rest), work.votes[other]
    for i in range(own.shape[0]):
        w[OTHERS, i] += r * own[i]
    r, gain = math.exp(new), priors.concentration * (new + rest - one - two)
    accepted, now = decide(work, steepness, SLIDE, r, STILL, work.votes[k], now, gain, rng, tally)
    if accepted:
        chain.log_weight[node, k], chain.log_weight[node, other] = new, rest
    else:
        copy(w[SPARE], w[OTHERS])
    return now


@njit(**ONCE)
def change_weight(steepness, priors, chain, work, node, k, now, rng, tally):
    """Propose a step of the log-weight of an expert, of one of three lengths."""
    old, u = chain.log_weight[node, k], rng.random()
    new = old + (0.2 if u < 1 / 3 else 0.7 if u < 2 / 3 else 2.5) * rng.standard_normal()
    r, gain = math.exp(new), log_weight_prior(priors, new) - log_weight_prior(priors, old)
    accepted, now = decide(work, steepness, WEIGHT, r, STILL, work.votes[k], now, gain, rng, tally)
    if accepted:
        chain.log_weight[node, k] = new
    return now


@njit(**ONCE)
def fresh(steepness, priors, chain, work, node, k, now, rng, tally):
    """Propose a draw from the prior: the ratio of the likelihoods decides.

    Draws whose scales vanish in floating point, of which nothing could be computed, are refused.
    """
    new, w = work.small[NEW], work.rows
    log_weight, shrinkage = draw_expert(priors, rng, new, work.scales[0])
    if not np.isfinite(log_prior(priors, new, shrinkage, work.scales[0])):
        tally[1, FRESH] += 1
        return now
    activation(work.X, new, w[ACTIVATION])
    r = math.exp(log_weight)
    accepted, now = decide(work, steepness, FRESH, r, MOVED, w[VOTES], now, 0.0, rng, tally)
    if accepted:
        chain.log_weight[node, k], chain.shrinkage[node, k] = log_weight, shrinkage
        keep(chain, work, node, k, new)
    return now


@njit(**ONCE)
def set_slopes(work, steepness, r, own, now):
    """Compute the slopes of the rows in the activation, into PULL, and information, into SPARE.

    Both are weighted.
    """
    w = work.rows
    if_left, if_right, weights, others = w[IF_LEFT], w[IF_RIGHT], w[WEIGHTS], w[OTHERS]
    left, right, value, pull, square = now[0], now[1], now[2], w[PULL], w[SPARE]
    n = own.shape[0]
    for i in range(n):
        # d P(left) / d score is -P(left) at steepness 1; the slope of softplus is 1 - e^-softplus
        pull[i] = left[i] * (if_right[i] - if_left[i]) / value[i] * exp_and_rest(-own[i])[1] * r
    if steepness != 1.0:
        for i in range(n):
            score = others[i] + r * own[i] + MIN_SCORE
            pull[i] *= steepness * right[i] / exp_and_rest(-score)[1]
    for i in range(n):
        square[i] = weights[i] * pull[i] * pull[i]
        pull[i] *= weights[i]


@njit(**PART)
def stride(n):
    """Return the distance of the rows, of n, that the information of a proposal is based on."""
    return max(n // INFORMATIVE, 1)


@njit(**PART)
def set_newton_step(work, steepness, r, own, now, b, step, unit, H):
    """Compute the Newton step from b, and the Cholesky factor of the information; False if none.

    ``now`` holds the branches and likelihoods of the rows. The information is the empirical
    one, of squared slopes, plus the precision of the prior; of many rows, that of evenly spaced
    ones, since any curvature makes a valid proposal. The factor is in ``units`` of the inverse
    roots of its diagonal.
    """
    set_slopes(work, steepness, r, own, now)
    pull, precision, (p, n) = work.rows[PULL], work.small[PRECISION], work.X.shape
    some = -(-n // stride(n))
    share = n / some
    for j in range(p):
        s, xj = 0.0, work.X[j]
        for i in range(n):
            s += pull[i] * xj[i]
        step[j] = s - precision[j] * b[j]
    moments(work.X, work.rows[SPARE], some, H, work.rows[ONE], work.rows[TWO])
    for j in range(p):
        unit[j] = 1.0 / math.sqrt(share * H[j, j] + precision[j])
        step[j] *= unit[j]
        for m in range(j):
            H[j, m] *= share * unit[j] * unit[m]
        H[j, j] = 1.0 + JITTER
    if not factorise(H):
        return False
    solve_lower(H, step)
    solve_upper(H, step)
    for j in range(p):
        step[j] *= unit[j]
    return True


@njit(**ONCE)
def newton(steepness, priors, chain, work, node, k, now, rng, tally):
    """Propose coefficients near the end of a Newton step, given scales that are drawn for it.

    b' ~ Normal(b + (1 - rho) step, (1 - rho^2) information^-1), with rho .3, .7 or .95: 0 would
    jump to the mode, 1 stay. (Iteratively reweighted least squares: Gamerman 1997.)
    """
    w, small = work.rows, work.small
    b, new, step, unit, noise = small[OLD], small[NEW], small[STEP], small[UNIT], small[NOISE]
    p, u = b.shape[0], rng.random()
    rho = 0.3 if u < 1 / 3 else 0.7 if u < 2 / 3 else 0.95
    spread, r, own = math.sqrt(1.0 - rho * rho), math.exp(chain.log_weight[node, k]), w[VOTES]
    load(chain, node, k, b)
    draw_scales(priors, rng, b, chain.shrinkage[node, k], work.scales, small[PRECISION])
    usable = set_newton_step(
        work, steepness, r, work.votes[k], w[LEFT : VALUE + 1], b, step, unit, work.square[0]
    )
    if not usable:
        tally[1, NEWTON] += 1
        return now
    gain = 0.0
    for j in range(p):
        noise[j] = rng.standard_normal()
        gain += 0.5 * noise[j] * noise[j] + math.log(unit[j] / work.square[0, j, j])
    solve_upper(work.square[0], noise)
    for j in range(p):
        new[j] = b[j] + (1.0 - rho) * step[j] + spread * noise[j] * unit[j]
        gain += 0.5 * small[PRECISION, j] * (b[j] * b[j] - new[j] * new[j])
    activation(work.X, new, w[ACTIVATION])
    value = propose(work, steepness, r, MOVED, own, -np.inf)
    step, unit = small[NEW_STEP], small[NEW_UNIT]
    usable = set_newton_step(
        work, steepness, r, own, w[NEW_LEFT : NEW_VALUE + 1], new, step, unit, work.square[1]
    )
    for j in range(p):
        noise[j] = (b[j] - new[j] - (1.0 - rho) * step[j]) / (unit[j] * spread)
    for j in range(p):
        s = 0.0
        for m in range(j, p):
            s += work.square[1, m, j] * noise[m]
        gain -= 0.5 * s * s + math.log(unit[j] / work.square[1, j, j])
    gain = value - now + gain if usable else -np.inf
    if not accepts(work, NEWTON, gain, -rng.standard_exponential(), tally):
        return now
    keep(chain, work, node, k, new)
    return value


@njit(**PART)
def exchange(one, two):
    """Exchange the contents of two arrays."""
    for i in range(one.shape[0]):
        one[i], two[i] = two[i], one[i]


@njit(**ONCE)
def exchange_branches(rows, chain, node):
    """Exchange the branches of a node: their parameters, caches and leaves."""
    n_nodes = chain.log_weight.shape[0]
    for pair in range(rows.first_swap[node], rows.first_swap[node + 1]):
        one, two = rows.swaps[pair, 0], rows.swaps[pair, 1]
        exchange(chain.value[one], chain.value[two])
        if one >= n_nodes:
            one, two = one - n_nodes, two - n_nodes
            chain.leaf[one], chain.leaf[two] = chain.leaf[two], chain.leaf[one]
            continue
        for side in range(2):
            exchange(chain.branches[side, one], chain.branches[side, two])
        exchange(chain.log_weight[one], chain.log_weight[two])
        exchange(chain.intercept[one], chain.intercept[two])
        exchange(chain.shrinkage[one], chain.shrinkage[two])
        for k in range(chain.hyperplane.shape[1]):
            exchange(chain.hyperplane[one, k], chain.hyperplane[two, k])


@njit(**ONCE)
def mirror(rows, priors, chain, work, node, k, now, rng, tally):
    """Propose to flip one facet of a node in place and to exchange the node's branches.

    The border is kept: beta' = -beta and b' = 2 t - b. The move is its own inverse and preserves
    volume. Nodes with branches of different shapes are skipped.
    """
    log_weight, b, new = chain.log_weight[node, k], work.small[OLD], work.small[NEW]
    unequal = rows.first_swap[node] == rows.first_swap[node + 1]
    if unequal or log_weight < MIN_LOG_WEIGHT:
        return now
    load(chain, node, k, b)
    level, w, psi = border(log_weight), work.rows, work.activation[k]
    for j in range(b.shape[0]):
        new[j] = -b[j]
    new[b.shape[0] - 1] += 2.0 * level
    for i in range(psi.shape[0]):
        w[ACTIVATION, i] = 2.0 * level - psi[i]
    gain = log_prior(priors, new, chain.shrinkage[node, k], work.scales[0])
    gain -= log_prior(priors, b, chain.shrinkage[node, k], work.scales[0])
    exchange(w[IF_LEFT], w[IF_RIGHT])
    r = math.exp(log_weight)
    accepted, now = decide(work, rows.steepness, MIRROR, r, MOVED, w[VOTES], now, gain, rng, tally)
    if accepted:
        keep(chain, work, node, k, new)
        exchange_branches(rows, chain, node)
    else:
        exchange(w[IF_LEFT], w[IF_RIGHT])
    return now


# Sweeps.


@njit(**ONCE)
def enter(rows, chain, space, node):
    """Prepare the moves of a node: the rows that depend on its branches, and their log-likelihood.

    The latter is relative to the best leaves.
    """
    set_factors(rows, chain, space, node)
    index, count = space.rows[TWO], choose(rows.weights, space.rows)
    p, n_experts = rows.X.shape[0], chain.log_weight.shape[1]
    m, first = -(-count // PAD) * PAD, p + 2 * n_experts
    spread(index, count, stride(m), space.rows[SPARE])
    table = space.buffer[: (first + N_ROWS) * m].reshape(first + N_ROWS, m)
    table[:, count:] = 0.0
    work = Work(
        table[:p], table[p : p + n_experts], table[p + n_experts : first], table[first:],
        space.most[: -(-m // BLOCK) + 1], space.small, space.square, space.scales, space.buffer,
        space.gain,
    )  # fmt: skip
    w, b = work.rows, work.small[OLD]
    for j in range(p):
        gather(rows.X[j], index, count, work.X[j])
    for factor in range(IF_RIGHT + 1):
        gather(space.rows[factor], index, count, w[factor])
    gather(rows.weights, index, count, w[WEIGHTS])
    for k in range(n_experts):
        load(chain, node, k, b)
        activation(work.X, b, work.activation[k])
        votes(work.activation[k], work.votes[k])
    bound(w, work.most)
    add_votes(chain.log_weight[node], work.votes, np.int64(0), NOBODY, w[OTHERS])
    r, own = math.exp(chain.log_weight[node, 0]), work.votes[0]
    now = propose(work, rows.steepness, r, STILL, own, -np.inf)
    take(w)
    return work, now


@njit(**PART)
def bound(w, most):
    """Compute the log-likelihoods of the rows from each block on, in their better branches."""
    best = w[SPARE]
    for i in range(best.shape[0]):
        value = w[ELSEWHERE, i] + max(w[IF_LEFT, i], w[IF_RIGHT, i])
        best[i] = w[WEIGHTS, i] * log(max(value, TINY))
    most[-1] = 0.0
    for block in range(most.shape[0] - 2, -1, -1):
        total = 0.0
        for i in range(block * BLOCK, min((block + 1) * BLOCK, best.shape[0])):
            total += best[i]
        most[block] = most[block + 1] + total


@njit(**ONCE)
def choose(weights, w):
    """Write the numbers of the rows that depend on the branches into TWO; returns how many."""
    count = 0
    for i in range(weights.shape[0]):
        one, two = w[IF_LEFT, i], w[IF_RIGHT, i]
        w[TWO, count] = i
        depends = abs(one - two) > NEGLIGIBLE * (w[ELSEWHERE, i] + min(one, two))
        count += depends and weights[i] > 0.0
    return count


@njit(**PART)
def spread(index, count, step, spare):
    """Put every ``step``-th of the numbers of rows first, then those after each, and so on."""
    if step == 1:
        return
    copy(index, spare)
    place = 0
    for first in range(step):
        for i in range(first, count, step):
            index[place] = spare[i]
            place += 1


@njit(**PART)
def gather(source, index, count, target):
    """Copy some of the values of an array, in an order."""
    for i in range(count):
        target[i] = source[int(index[i])]


@njit(**ONCE)
def leave(rows, chain, space, node):
    """Tell the tree what the moves of a node have changed."""
    set_branches(rows, chain, space, node)
    v = node
    while v >= 0:
        set_value(rows, chain, v)
        v = rows.parent[v]


@njit(**ONCE)
def move_expert(steepness, priors, chain, work, node, k, now, rng, tally):
    """Move one expert by all kinds of moves."""
    add_votes(chain.log_weight[node], work.votes, k, NOBODY, work.rows[OTHERS])
    for kind in range(SHIFT + 1 if priors.weighted else SHIFT):
        now = slide(steepness, priors, chain, work, node, k, kind, now, rng, tally)
    if priors.weighted and work.votes.shape[0] > 1:
        now = trade(steepness, priors, chain, work, node, k, now, rng, tally)
    for turn in range(2):
        b, log_b = work.small[OLD], chain.shrinkage[node, k]
        load(chain, node, k, b)
        log_b = draw_shrinkage(priors, rng, b, log_b, work.scales, work.small[PRECISION])
        chain.shrinkage[node, k] = log_b
        if turn == 0:
            now = newton(steepness, priors, chain, work, node, k, now, rng, tally)
    if priors.weighted:
        now = change_weight(steepness, priors, chain, work, node, k, now, rng, tally)
    return fresh(steepness, priors, chain, work, node, k, now, rng, tally)


@njit(**LOOP)
def sweep(rows, priors, chain, space, mirrors, rng, tally):
    """Move all experts of a chain, whose branches are known; its values of the leaves are given."""
    n_nodes, n_experts = chain.log_weight.shape
    for node in range(n_nodes):
        work, now = enter(rows, chain, space, node)
        first, forwards = int(rng.random() * n_experts), rng.random() < 0.5
        for step in range(n_experts):  # in a cycle: its reverse is as likely
            k = (first + (step if forwards else n_experts - step)) % n_experts
            now = move_expert(rows.steepness, priors, chain, work, node, k, now, rng, tally)
        if mirrors:
            k = int(rng.random() * n_experts)
            add_votes(chain.log_weight[node], work.votes, k, NOBODY, work.rows[OTHERS])
            mirror(rows, priors, chain, work, node, k, now, rng, tally)
        leave(rows, chain, space, node)
