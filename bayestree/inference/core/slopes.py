"""What rows say about the scores of the nodes of several trees, compiled.

Nodes are numbered tree by tree, with parents before children; leaf l counts as V + l. Unlike in a
chain, densities are logarithms: a row may be far from every leaf that it is likely to reach.
"""

from numba import njit

from bayestree._utils.arrays import MIN_SCORE
from bayestree.inference.core.elementary import LOOP, PART, exp, exp_and_rest, log, softplus
from bayestree.inference.core.paths import fill

SCORE, ODDS, GIVEN = range(3)  # of a node; log-odds of going right, given x and given x and y


@njit(**PART)
def join(steepness, score, one, two, odds, given, out):
    """Compute log-odds of going right, and log p(y | a row is at a node) from its children."""
    for i in range(score.shape[0]):
        odds[i] = steepness * (score[i] + log(exp_and_rest(-score[i])[1]))
    for i in range(score.shape[0]):
        given[i] = odds[i] + two[i] - one[i]
        went = -softplus(-odds[i])
        # P(y) = P(y, side) / P(side | y); the likelier side minimises rounding errors
        joint = two[i] + went if given[i] > 0.0 else one[i] + (went - odds[i])
        out[i] = joint + softplus(-abs(given[i]))


@njit(**LOOP)
def evidence(psi, weight, children, steepness, nodes, value):
    """Compute log p(y | a row is at a node) (V + L, n), of leaves given, of nodes computed.

    Activations (V, K, n) are replaced by their softplus; ``nodes`` (3, V, n) is written.
    """
    for v in range(psi.shape[0] - 1, -1, -1):
        score = nodes[SCORE, v]
        fill(score, MIN_SCORE)
        for k in range(psi.shape[1]):
            r, own = weight[v, k], psi[v, k]
            for i in range(own.shape[0]):
                own[i] = softplus(own[i])
                score[i] += r * own[i]
        one, two = value[children[v, 0]], value[children[v, 1]]
        join(steepness, score, one, two, nodes[ODDS, v], nodes[GIVEN, v], value[v])


@njit(**PART)
def sigmoid(x):
    """Return 1 / (1 + e^-x)."""
    small = exp(-abs(x))
    large = 1.0 / (1.0 + small)
    return large if x > 0.0 else small * large


@njit(**PART)
def bend(steepness, power, exact, weights, here, score, odds, given, one, two):
    """Replace score and log-odds of a node by slope, information and curvature in the score.

    ``here`` is the share of a row at the node, given y, which is divided among the children.
    """
    for i in range(here.shape[0]):
        given[i] = sigmoid(given[i])
        two[i] = here[i] * given[i]
        one[i] = here[i] - two[i]
    for i in range(here.shape[0]):
        odds[i] = sigmoid(odds[i])
        given[i] = here[i] * (given[i] - odds[i])
    for i in range(here.shape[0]):
        left, chance = exp_and_rest(-score[i])
        scale = steepness / chance
        of_one = given[i] * scale  # slope of a row of weight 1
        score[i] = power * weights[i] * of_one
        square = score[i] * of_one
        given[i] = square - score[i] * ((1.0 - 2.0 * odds[i]) * scale - left / chance)
        odds[i] = given[i] if exact else square


@njit(**PART)
def pull(r, exact, slope, square, curvature, own, out):
    """Replace votes by slopes, write minus curvatures, and return both for the log-weight."""
    first = second = 0.0
    for i in range(own.shape[0]):
        each = r * own[i]  # d score / d log r
        first += each * slope[i]
        second += each * each * curvature[i]
        silent, turn = exp_and_rest(-own[i])
        up = r * turn  # d score / d psi
        own[i] = slope[i] * up
        out[i] = square[i] * up * up - (own[i] * silent if exact else 0.0)
    return first, second - first


@njit(**LOOP)
def slopes(votes, weight, weights, children, roots, steepness, power, exact, nodes, mass, into):
    """Compute the slopes and curvatures of the log-likelihood from what ``evidence`` has found.

    ``votes`` (V, K, n) becomes the slope in each activation, and ``mass`` (V + L, n) the share of
    a row at each node and leaf, given y. ``into`` are minus the curvatures in the activations
    (V, K, n), the slopes in the log-weights and minus the curvatures in them (V, K).
    """
    for t in range(roots.shape[0]):
        fill(mass[roots[t]], 1.0)
    for v in range(votes.shape[0]):
        slope, square, curvature = nodes[SCORE, v], nodes[ODDS, v], nodes[GIVEN, v]
        one, two = mass[children[v, 0]], mass[children[v, 1]]
        bend(steepness, power, exact, weights, mass[v], slope, square, curvature, one, two)
        for k in range(votes.shape[1]):
            into[1][v, k], into[2][v, k] = pull(
                weight[v, k], exact, slope, square, curvature, votes[v, k], into[0][v, k]
            )
