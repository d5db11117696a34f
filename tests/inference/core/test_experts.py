"""A move is accepted by the change of the model's log joint, and its proposal's terms."""

import numpy as np
import pytest
import torch
from numba import njit
from scipy import stats

from bayestree.inference.core import experts
from bayestree.inference.core.paths import OLD, OTHERS, PRECISION, add_votes
from bayestree.models import Oblique
from tests.inference.core.chains import (
    CASES,
    FRESH,
    MIRROR,
    MOVES,
    NEWTON,
    SHIFT,
    TRADE,
    WEIGHT,
    chains_of,
    log_joint,
    move,
    sites_of,
)

SEED = 3  # of draws of the prior some of whose mirrors are accepted
PERSISTENCE = (0.3, 0.7, 0.95)
MANY = 1024  # rows, from which the curvature of a proposal is that of some


def cases():
    for name, parts in CASES.items():
        for kind in range(len(MOVES)):
            if not (parts.get("split") == Oblique() and kind in (SHIFT, TRADE, WEIGHT)):
                yield pytest.param(parts, kind, id=f"{MOVES[kind]}, {name}")
    yield pytest.param({"n": MANY}, NEWTON, id="newton, many rows")


def log_prior(chains, sites, node, expert):
    """The log prior density of one expert by the model's priors, with its Jacobian."""
    own = {
        name: value[node : node + 1, expert : expert + 1]
        for name, value in sites.items()
        if not name.startswith("leaf")
    }
    n_experts = chains.model.split.n_experts
    return sum(
        float(prior.expert_log_density(own, n_experts).sum()) for prior in chains.model.split_priors
    )


def newton_step(chains, data, vector, place, precision):
    """The coefficients of a vector, the Newton step, and the inverse of the information."""
    node, expert = place
    sites = {n: torch.as_tensor(v) for n, v in chains.layout.sites(vector).items()}
    own = torch.cat([sites["hyperplane"][node, expert], sites["intercept"][node, expert, None]])

    def rows_of(coefficient):
        changed = {name: value.clone() for name, value in sites.items()}
        changed["hyperplane"][node, expert] = coefficient[:-1]
        changed["intercept"][node, expert] = coefficient[-1]
        return chains.model.log_likelihood_rows(changed, data.X, chains.y)

    slopes = torch.autograd.functional.jacobian(rows_of, own).numpy()
    weights, at = data.weights.numpy(), own.numpy()
    some = slice(None, None, 2 if len(slopes) >= MANY else 1)  # of many rows, every second one
    factor = len(slopes) / len(slopes[some])
    information = factor * slopes[some].T @ (weights[some, None] * slopes[some]) + np.diag(
        precision
    )
    step = np.linalg.solve(information, weights @ slopes - precision * at)
    return at, step, np.linalg.inv(information)


def coefficients(chains, vector, node, expert):
    free = chains.layout.free(vector)
    return np.append(free["hyperplane"][node, expert], free["intercept"][node, expert])


def newton_gain(chains, data, old, place, gap, precision):
    """The log acceptance ratios of a Newton move at each persistence, densities by SciPy."""
    new = chains.vectors[0]
    one, two = (coefficients(chains, vector, *place) for vector in (old, new))
    free = [chains.layout.free(vector) for vector in (old, new)]
    prior = [log_prior(chains, f, *place) for f in free]  # which integrates over the scales
    gain = gap - (prior[1] - prior[0]) + (precision * (one**2 - two**2)).sum() / 2
    there, back = (newton_step(chains, data, vector, place, precision) for vector in (old, new))

    def density(law, at, persistence):
        origin, step, covariance = law
        mean = origin + (1 - persistence) * step
        return stats.multivariate_normal(mean, (1 - persistence**2) * covariance).logpdf(at)

    return np.array([gain + density(back, one, p) - density(there, two, p) for p in PERSISTENCE])


@pytest.mark.parametrize(("parts", "kind"), [*cases()])
def test_ratio(parts, kind):
    chains, data = chains_of(parts, n_chains=1, seed=SEED)
    chain, rng = chains.each[0], np.random.default_rng(kind)
    accepted, mirrored = 0, np.flatnonzero(np.diff(chains.rows.first_swap))
    for node in mirrored if kind == MIRROR else range(chains.n_nodes):
        # a small weight has a border far away, whose reflection the prior refuses
        expert, here = int(chain.log_weight[node].argmax()), 0
        for _ in range(500):
            chains.refresh()
            before, old = log_joint(chains, data), chains.vectors[0].copy()
            tally = np.zeros((2, experts.LEAF + 1))
            move(kind, chains.rows, chains.priors, chain, chains.works[0], node, expert, rng, tally)
            value = chains.each[0].value[0].copy()
            precision = chains.works[0].small[PRECISION].copy()
            chains._arrange_leaves()
            if not tally[0].any():
                np.testing.assert_array_equal(chains.vectors[0], old)
                continue
            here, accepted = here + 1, accepted + 1
            chains.refresh()
            np.testing.assert_allclose(value, chains.each[0].value[0], 1e-9)
            gap, gain = log_joint(chains, data) - before, float(chains.works[0].gain[0])
            free, was = chains.layout.free(chains.vectors[0]), chains.layout.free(old)
            if kind <= SHIFT:
                ratio = free["shrinkage"][node, expert] - was["shrinkage"][node, expert]
                # coefficients are multiplied by the root of the factor of b: the change of volume
                gap += ratio / 2 * chains.rows.X.shape[0]
            if kind == FRESH:
                priors = [log_prior(chains, sites, node, expert) for sites in (free, was)]
                gap -= priors[0] - priors[1]
            if kind == NEWTON:
                gaps = newton_gain(chains, data, old, (node, expert), gap, precision)
                gap = gaps[np.abs(gaps - gain).argmin()]
            np.testing.assert_allclose(gain, gap, 1e-6, 1e-6)
            if here == 3:
                break
    assert accepted


def test_a_mirror_is_its_own_inverse():
    chains, _ = chains_of(CASES["complete"], n_chains=1)
    chain, start = chains.each[0], chains.vectors[0].copy()
    accepted = seed = 0
    while accepted < 2:
        chains.refresh()
        tally = np.zeros((2, experts.LEAF + 1))
        rng, seed = np.random.default_rng(seed), seed + 1
        move(MIRROR, chains.rows, chains.priors, chain, chains.works[0], 0, 1, rng, tally)
        chains._arrange_leaves()
        accepted += int(tally[0].sum())
        assert (chains.vectors[0] == start).all() == (accepted == 0) or accepted == 2
    np.testing.assert_allclose(chains.vectors[0], start, 1e-9, 1e-9)


def test_redraws_follow_the_conditional_law():
    """log b given coefficients, by way of scales, is an invariant step: against quadrature."""
    chains, _ = chains_of(CASES["grouped"], n_chains=1)
    priors, work, rng = chains.priors, chains.works[0], np.random.default_rng(0)
    b = work.small[OLD]
    b[:] = (0.4, -1.3, 0.7)
    at, drawn = 0.0, []
    for _ in range(20_000):
        at = redraw(priors, rng, b, at, work)
        drawn.append(at)
    grid = np.linspace(-15, 10, 20_001)
    log_density = np.array([density(priors, b, g, work) for g in grid])
    mass = np.exp(log_density - log_density.max())
    mean = (grid * mass).sum() / mass.sum()
    error = np.std(drawn) / np.sqrt(len(drawn) / 10)  # of draws with an autocorrelation time of 10
    assert abs(np.mean(drawn) - mean) < 4 * error


@njit
def redraw(priors, rng, b, at, work):
    return experts.draw_shrinkage(priors, rng, b, at, work.scales, work.small[PRECISION])


@njit
def density(priors, b, at, work):
    return experts.log_prior(priors, b, at, work.scales[0])


def test_chains_keep_their_leaves_with_their_branches():
    chains, data = chains_of(CASES["complete"], n_chains=3)
    for _ in range(20):
        chains.sweep(mirrors=True)
        expected = [
            float(chains.model.log_likelihood(sites_of(chains, c), *data)) for c in range(3)
        ]
        np.testing.assert_allclose(chains.log_density, chains.leaf_density(chains.free), 1e-9)
        chains.set_leaves()
        np.testing.assert_allclose(chains.log_likelihood(), expected, 1e-9)
    assert chains.tally[:, 0, experts.MIRROR].sum() > 0


@njit
def proposed(rows, chain, space, node, r, gap):
    """The log-likelihood of a weight, all rows, and where it must exceed that plus a gap."""
    work, _ = experts.enter(rows, chain, space, node)
    add_votes(chain.log_weight[node], work.votes, 0, -1, work.rows[OTHERS])
    own, steepness = work.votes[0], rows.steepness
    whole = experts.propose(work, steepness, r, False, own, -np.inf)
    return whole, experts.propose(work, steepness, r, False, own, whole + gap)


@pytest.mark.parametrize("steepness", [0.4, 1.0, 6.0])
def test_a_proposal_is_refused_early_only_if_all_rows_refuse_it(steepness):
    chains, _ = chains_of({"topology": "complete", "steepness": steepness}, n_chains=1, n=700)
    given, refused = (chains.rows, chains.each[0], chains.works[0]), 0
    for r in np.geomspace(1e-3, 1e3, 30):
        whole, again = proposed(*given, 0, r, -1e-6)
        assert again == whole
        for gap in (1e-6, 10.0, 100.0):
            again = proposed(*given, 0, r, gap)[1]
            assert again in (whole, -np.inf)
            refused += again == -np.inf
    assert refused


def test_rows_that_a_node_leaves_as_they_are_are_left_out():
    """The likelihood changes as that of the model does, and some nodes move without all rows."""
    parts = {"topology": "complete", "steepness": 6.0, "fit": "gaussian-mixture"}
    chains, data = chains_of(parts, n_chains=1, n=700)
    chain = chains.each[0]
    for node in range(3):
        chains.refresh()
        found, expected = [], []
        for r in (0.01, 1.0, 100.0):
            found.append(proposed(chains.rows, chain, chains.works[0], node, r, -np.inf)[0])
            chain.log_weight[node, 0] = np.log(r)
            expected.append(float(chains.model.log_likelihood(sites_of(chains, 0), *data)))
        np.testing.assert_allclose(np.diff(found), np.diff(expected), 1e-9, 1e-7)
    counts = [chosen(chains.rows, chain, chains.works[0], node) for node in range(3)]
    assert min(counts) < max(counts)


@njit
def chosen(rows, chain, space, node):
    return experts.enter(rows, chain, space, node)[0].X.shape[1]
