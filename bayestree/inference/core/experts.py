"""Moves of the experts of a chain, compiled; the paths of the rows are integrated out.

Each move is a Metropolis-Hastings step, and returns the log-likelihood after it. The change of the
log joint density, plus what the proposal asks for, decides whether the chain accepts it.
"""

import math

import numpy as np
from numba import njit

from bayestree._utils.arrays import MIN_SCORE
from bayestree.inference.core.arrays import (
    ACTIVATION,
    IF_LEFT,
    IF_RIGHT,
    LEFT,
    NEW,
    NEW_LEFT,
    NEW_RIGHT,
    NEW_STEP,
    NEW_UNIT,
    NEW_VALUE,
    NOISE,
    OLD,
    OTHERS,
    PRECISION,
    PULL,
    RIGHT,
    SPARE,
    STEP,
    UNIT,
    VALUE,
    VOTES,
)
from bayestree.inference.core.elementary import LOG2, LOOP, PART, exp_and_rest
from bayestree.inference.core.linear import factorise, moments, solve_lower, solve_upper
from bayestree.inference.core.paths import (
    activation,
    add_votes,
    branch,
    copy,
    fill,
    mixture,
    refresh,
    set_factors,
    set_value,
    votes,
)
from bayestree.inference.samplers.expert_moves import MIN_LOG_WEIGHT

NEWTON, SLIDE, WEIGHT, FRESH, MIRROR, LEAF = range(6)  # places in a tally
SHARPEN, SHIFT = range(2)  # kinds of slides
LOG_SHORTEST = math.log(0.03)  # smallest standard deviation of a slide, on the log scale; up to 1
TRADE = 3.0  # exchanges of weight are longer than slides by this factor
JITTER = 1e-10  # relative to the diagonal of a curvature, which rounding may leave indefinite
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
def draw_scales(priors, rng, b, shrinkage, work):
    """Draw 1 / sigma^2 of each scale, into work.scales[1], and of each coefficient."""
    halves, own, precision = work.scales[0], work.scales[1], work.small[PRECISION]
    set_squares(priors, b, halves)
    rate = math.exp(shrinkage)
    for g in range(own.shape[0]):
        own[g] = rng.standard_gamma(priors.shape + 0.5 * priors.sizes[g]) / (rate + halves[g])
    for j in range(b.shape[0]):
        precision[j] = own[priors.scale[j]] / priors.square[priors.scale[j]]


@njit(**PART)
def draw_shrinkage(priors, rng, b, shrinkage, work):
    """Draw log b of an expert given its coefficients, by way of their scales."""
    draw_scales(priors, rng, b, shrinkage, work)
    rate, own = priors.shrinkage_rate, work.scales[1]
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
def load(chain, node, k, b):
    """Copy the coefficients of an expert, with its intercept last."""
    copy(chain.hyperplane[node, k], b)
    b[b.shape[0] - 1] = chain.intercept[node, k]


@njit(**PART)
def propose(rows, work, r, own):
    """Compute the log-likelihood if the expert that moves has weight r and votes (n,)."""
    w = work.rows
    branch(w[OTHERS], r, own, rows.steepness, w[NEW_LEFT], w[NEW_RIGHT])
    return mixture(rows, work, w[NEW_LEFT], w[NEW_RIGHT], w[NEW_VALUE])


@njit(**PART)
def accepts(work, move, gain, rng, tally):
    """Decide about a proposal of log acceptance ratio ``gain``, and count it; NaN is refused."""
    work.gain[0] = gain
    tally[1, move] += 1
    if not -rng.standard_exponential() < gain:
        return False
    tally[0, move] += 1
    w = work.rows
    copy(w[NEW_LEFT], w[LEFT])
    copy(w[NEW_RIGHT], w[RIGHT])
    copy(w[NEW_VALUE], w[VALUE])
    return True


@njit(**PART)
def keep(chain, work, node, k, b):
    """Take the proposed coefficients of an expert, with its activations and votes."""
    plane = chain.hyperplane[node, k]
    for j in range(plane.shape[0]):
        plane[j] = b[j]
    chain.intercept[node, k] = b[plane.shape[0]]
    copy(work.rows[ACTIVATION], work.activation[node, k])
    copy(work.rows[VOTES], work.votes[node, k])


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


@njit(**PART)
def slide(rows, priors, chain, work, node, k, kind, now, rng, tally):
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
    w, psi = work.rows, work.activation[node, k]
    for i in range(psi.shape[0]):
        w[ACTIVATION, i] = moved + factor * (psi[i] - level)
    votes(w[ACTIVATION], w[VOTES])
    value = propose(rows, work, math.exp(log_weight), w[VOTES])
    shrinkage = chain.shrinkage[node, k] + 2.0 * shrunk  # b is in units of squared coefficients
    gain = value - now + p * shrunk
    gain += log_prior(priors, new, shrinkage, work.scales[0])
    gain -= log_prior(priors, b, chain.shrinkage[node, k], work.scales[0])
    if kind == SHIFT:
        gain += log_weight_prior(priors, log_weight) - log_weight_prior(priors, old)
    if not accepts(work, SLIDE, gain, rng, tally):
        return now
    chain.log_weight[node, k], chain.shrinkage[node, k] = log_weight, shrinkage
    keep(chain, work, node, k, new)
    return value


@njit(**PART)
def log_weight_prior(priors, log_weight):
    """Compute the log density of log r, without its constant."""
    return priors.concentration * log_weight - priors.rate * math.exp(log_weight)


@njit(**PART)
def trade(rows, priors, chain, work, node, k, now, rng, tally):
    """Propose to exchange weight with another expert of the node; their sum stays.

    In the coordinates log(r + r') and log(r / r'), which keep volume, only the latter changes.
    """
    n_experts = work.votes.shape[1]
    other = (k + 1 + int(rng.random() * (n_experts - 1))) % n_experts
    one, two = chain.log_weight[node, k], chain.log_weight[node, other]
    length = TRADE * math.exp(LOG_SHORTEST * rng.random()) * rng.standard_normal()
    total, odds = np.logaddexp(one, two), one - two + length
    new, rest = total - np.logaddexp(0.0, -odds), total - np.logaddexp(0.0, odds)
    w = work.rows
    copy(w[OTHERS], w[SPARE])
    add_votes(chain.log_weight[node], work.votes[node], k, other, w[OTHERS])
    r, own = math.exp(rest), work.votes[node, other]
    for i in range(own.shape[0]):
        w[OTHERS, i] += r * own[i]
    value = propose(rows, work, math.exp(new), work.votes[node, k])
    gain = value - now + priors.concentration * (new + rest - one - two)
    if not accepts(work, SLIDE, gain, rng, tally):
        copy(w[SPARE], w[OTHERS])
        return now
    chain.log_weight[node, k], chain.log_weight[node, other] = new, rest
    return value


@njit(**PART)
def change_weight(rows, priors, chain, work, node, k, now, rng, tally):
    """Propose a step of the log-weight of an expert, of one of three lengths."""
    old, u = chain.log_weight[node, k], rng.random()
    new = old + (0.2 if u < 1 / 3 else 0.7 if u < 2 / 3 else 2.5) * rng.standard_normal()
    value = propose(rows, work, math.exp(new), work.votes[node, k])
    gain = value - now + log_weight_prior(priors, new) - log_weight_prior(priors, old)
    if not accepts(work, WEIGHT, gain, rng, tally):
        return now
    chain.log_weight[node, k] = new
    return value


@njit(**PART)
def fresh(rows, priors, chain, work, node, k, now, rng, tally):
    """Propose a draw from the prior: the ratio of the likelihoods decides.

    Draws whose scales vanish in floating point, of which nothing could be computed, are refused.
    """
    new, w = work.small[NEW], work.rows
    log_weight, shrinkage = draw_expert(priors, rng, new, work.scales[0])
    activation(rows.X, new, w[ACTIVATION])
    votes(w[ACTIVATION], w[VOTES])
    value = propose(rows, work, math.exp(log_weight), w[VOTES])
    possible = np.isfinite(log_prior(priors, new, shrinkage, work.scales[0]))
    gain = value - now if possible else -np.inf
    if not accepts(work, FRESH, gain, rng, tally):
        return now
    chain.log_weight[node, k], chain.shrinkage[node, k] = log_weight, shrinkage
    keep(chain, work, node, k, new)
    return value


@njit(**PART)
def set_newton_step(rows, work, r, own, left, right, value, b, step, unit, H):
    """Compute the Newton step from b, and the Cholesky factor of the information; False if none.

    The information is the empirical one, of squared slopes, plus the precision of the prior. The
    factor is in ``units`` of the inverse roots of its diagonal.
    """
    if_left, if_right = work.rows[IF_LEFT], work.rows[IF_RIGHT]
    pull, precision = work.rows[PULL], work.small[PRECISION]
    p, n = rows.X.shape
    for i in range(n):
        # d P(left) / d score is -P(left) at steepness 1; the slope of softplus is 1 - e^-softplus
        slope = left[i]
        if rows.steepness != 1.0:
            score = work.rows[OTHERS, i] + r * own[i] + MIN_SCORE
            slope *= rows.steepness * right[i] / exp_and_rest(-score)[1]
        slope *= (if_right[i] - if_left[i]) / value[i]
        pull[i] = slope * r * exp_and_rest(-own[i])[1]
    for j in range(p):
        s, xj = 0.0, rows.X[j]
        for i in range(n):
            s += rows.weights[i] * pull[i] * xj[i]
        step[j] = s - precision[j] * b[j]
    for i in range(n):
        pull[i] *= math.sqrt(rows.weights[i])
    moments(rows.X, pull, H)
    for j in range(p):
        unit[j] = 1.0 / math.sqrt(H[j, j] + precision[j])
        step[j] *= unit[j]
        for m in range(j):
            H[j, m] *= unit[j] * unit[m]
        H[j, j] = 1.0 + JITTER
    if not factorise(H):
        return False
    solve_lower(H, step)
    solve_upper(H, step)
    for j in range(p):
        step[j] *= unit[j]
    return True


@njit(**PART)
def newton(rows, priors, chain, work, node, k, now, rng, tally):
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
    draw_scales(priors, rng, b, chain.shrinkage[node, k], work)
    usable = set_newton_step(
        rows, work, r, work.votes[node, k], w[LEFT], w[RIGHT], w[VALUE], b, step, unit,
        work.square[0],
    )  # fmt: skip
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
    activation(rows.X, new, w[ACTIVATION])
    votes(w[ACTIVATION], own)
    value = propose(rows, work, r, own)
    step, unit = small[NEW_STEP], small[NEW_UNIT]
    usable = set_newton_step(
        rows, work, r, own, w[NEW_LEFT], w[NEW_RIGHT], w[NEW_VALUE], new, step, unit,
        work.square[1],
    )  # fmt: skip
    for j in range(p):
        noise[j] = (b[j] - new[j] - (1.0 - rho) * step[j]) / (unit[j] * spread)
    for j in range(p):
        s = 0.0
        for m in range(j, p):
            s += work.square[1, m, j] * noise[m]
        gain -= 0.5 * s * s + math.log(unit[j] / work.square[1, j, j])
    if not accepts(work, NEWTON, value - now + gain if usable else -np.inf, rng, tally):
        return now
    keep(chain, work, node, k, new)
    return value


@njit(**PART)
def exchange(one, two):
    """Exchange the contents of two arrays."""
    for i in range(one.shape[0]):
        one[i], two[i] = two[i], one[i]


@njit(**PART)
def exchange_branches(rows, chain, work, node):
    """Exchange the branches of a node: their parameters, caches and leaves."""
    n_nodes, n_experts = chain.log_weight.shape
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
        for k in range(n_experts):
            exchange(chain.hyperplane[one, k], chain.hyperplane[two, k])
            exchange(work.activation[one, k], work.activation[two, k])
            exchange(work.votes[one, k], work.votes[two, k])


@njit(**PART)
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
    level, w, psi = border(log_weight), work.rows, work.activation[node, k]
    for j in range(b.shape[0]):
        new[j] = -b[j]
    new[b.shape[0] - 1] += 2.0 * level
    for i in range(psi.shape[0]):
        w[ACTIVATION, i] = 2.0 * level - psi[i]
    votes(w[ACTIVATION], w[VOTES])
    gain = log_prior(priors, new, chain.shrinkage[node, k], work.scales[0])
    gain -= log_prior(priors, b, chain.shrinkage[node, k], work.scales[0])
    exchange(w[IF_LEFT], w[IF_RIGHT])
    value = propose(rows, work, math.exp(log_weight), w[VOTES])
    if accepts(work, MIRROR, value - now + gain, rng, tally):
        keep(chain, work, node, k, new)
        exchange_branches(rows, chain, work, node)
        return value
    exchange(w[IF_LEFT], w[IF_RIGHT])
    return now


# Sweeps.


@njit(**PART)
def enter(rows, chain, work, node):
    """Prepare the moves of a node; returns the log-likelihood relative to the best leaves."""
    w = work.rows
    set_factors(rows, chain, work, node)
    copy(chain.branches[0, node], w[LEFT])
    copy(chain.branches[1, node], w[RIGHT])
    return mixture(rows, work, w[LEFT], w[RIGHT], w[VALUE])


@njit(**PART)
def leave(rows, chain, work, node):
    """Tell the tree what the moves of a node have changed."""
    copy(work.rows[LEFT], chain.branches[0, node])
    copy(work.rows[RIGHT], chain.branches[1, node])
    v = node
    while v >= 0:
        set_value(rows, chain, v)
        v = rows.parent[v]


@njit(**PART)
def move_expert(rows, priors, chain, work, node, k, now, rng, tally):
    """Move one expert by all kinds of moves."""
    b = work.small[OLD]
    add_votes(chain.log_weight[node], work.votes[node], k, -1, work.rows[OTHERS])
    for kind in range(SHIFT + 1 if priors.weighted else SHIFT):
        now = slide(rows, priors, chain, work, node, k, kind, now, rng, tally)
    if priors.weighted and work.votes.shape[1] > 1:
        now = trade(rows, priors, chain, work, node, k, now, rng, tally)
    load(chain, node, k, b)
    chain.shrinkage[node, k] = draw_shrinkage(priors, rng, b, chain.shrinkage[node, k], work)
    now = newton(rows, priors, chain, work, node, k, now, rng, tally)
    load(chain, node, k, b)
    chain.shrinkage[node, k] = draw_shrinkage(priors, rng, b, chain.shrinkage[node, k], work)
    if priors.weighted:
        now = change_weight(rows, priors, chain, work, node, k, now, rng, tally)
    return fresh(rows, priors, chain, work, node, k, now, rng, tally)


@njit(**LOOP)
def sweep(rows, priors, chain, work, mirrors, rng, tally):
    """Move all experts of a chain; its values of the leaves are given, and log p relative to them.

    Returns the log-likelihood, relative to that of all rows in their best leaves.
    """
    n_nodes, n_experts = chain.log_weight.shape
    refresh(rows, chain, work)
    now = 0.0
    for node in range(n_nodes):
        now = enter(rows, chain, work, node)
        first, forwards = int(rng.random() * n_experts), rng.random() < 0.5
        for step in range(n_experts):  # in a cycle: its reverse is as likely
            k = (first + (step if forwards else n_experts - step)) % n_experts
            now = move_expert(rows, priors, chain, work, node, k, now, rng, tally)
        if mirrors:
            k = int(rng.random() * n_experts)
            add_votes(chain.log_weight[node], work.votes[node], k, -1, work.rows[OTHERS])
            now = mirror(rows, priors, chain, work, node, k, now, rng, tally)
        leave(rows, chain, work, node)
    return now
