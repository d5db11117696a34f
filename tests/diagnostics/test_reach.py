"""Summaries of the rows, against direct sums and explicit routing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.diagnostics.reach import leaves_in_use, node_reach
from bayestree.topology import Topology
from tests.strategies import path_of, seeds, topologies

LOG2 = np.log(2.0)


def draws_of(rng, chains=1, draws=2, nodes=2, experts=3, features=2):
    return {
        "log_weight": rng.normal(size=(chains, draws, nodes, experts)),
        "intercept": rng.normal(size=(chains, draws, nodes, experts)),
        "hyperplane": rng.normal(size=(chains, draws, nodes, experts, features)),
    }


def votes(draws, one, X):
    activation = X @ draws["hyperplane"][one].T + draws["intercept"][one]
    return np.exp(draws["log_weight"][one]) * np.log1p(np.exp(activation))


def test_votes_beyond_single_precision():
    """Student-t coefficients of few degrees of freedom go anywhere."""
    rng = np.random.default_rng(0)
    draws = draws_of(rng)
    draws["hyperplane"][0, 0] *= 1e60
    reach = node_reach(draws, rng.normal(size=(30, 2)), [np.arange(30)] * 2, np.arange(2))
    assert np.isfinite(reach.largest).all()
    assert (reach.largest[0, 0] > 1e20).all()


def test_largest_votes_and_cuts_of_posterior_and_prior():
    rng = np.random.default_rng(0)
    draws, X = draws_of(rng), rng.normal(size=(30, 2))
    prior = {site: values[0, :, 0] for site, values in draws_of(rng, draws=5).items()}
    rows, level = [np.arange(30), np.arange(7)], np.array([LOG2, 0.1])
    reach = node_reach(draws, X, rows, np.array([1, 0]), level=level, prior=prior)
    for place, node in enumerate([1, 0]):
        factor = LOG2 / level[place]
        own = X[rows[place]]
        for draw in range(2):
            expected = votes(draws, (0, draw, node), own).max(axis=0) * factor
            np.testing.assert_allclose(reach.largest[0, draw, place], expected, rtol=1e-5)
            cut = (votes(draws, (0, draw, node), own) > level[place]).mean(axis=0)
            np.testing.assert_allclose(reach.cut[0, draw, place], cut, atol=5e-4)
        for draw in range(5):
            expected = votes(prior, draw, own).max(axis=0) * factor
            np.testing.assert_allclose(reach.prior_largest[draw, place], expected, rtol=1e-5)
            cut = (votes(prior, draw, own) > level[place]).mean(axis=0)
            np.testing.assert_allclose(reach.prior_cut[draw, place], cut, atol=5e-4)
        np.testing.assert_array_equal(reach.low[place], own.min(axis=0))
        np.testing.assert_array_equal(reach.high[place], own.max(axis=0))
    np.testing.assert_allclose(reach.factor, LOG2 / level)


def test_without_levels_every_factor_is_one():
    rng = np.random.default_rng(0)
    reach = node_reach(draws_of(rng), rng.normal(size=(9, 2)), [np.arange(9)] * 2, np.arange(2))
    np.testing.assert_array_equal(reach.factor, [1, 1])
    assert reach.prior_largest is None


def test_leaves_by_hand():
    # x > 0 goes right at the root, x > 1 at the node there; in the second draw x > 9 instead.
    draws = {
        "hyperplane": np.ones((1, 2, 2, 1, 1)),
        "intercept": np.array([[[[0.0], [-1]], [[0], [-9]]]]),
    }
    topology = Topology(np.array([[~0, 1], [~1, ~2]]))
    X = np.array([[-1.0], [0.5], [2]])
    np.testing.assert_array_equal(leaves_in_use(draws, topology, X), [[3, 2]])
    np.testing.assert_array_equal(leaves_in_use(draws, topology, X, max_rows=2), [[2, 2]])


def test_one_leaf_is_always_in_use():
    draws = draws_of(np.random.default_rng(0), nodes=0)
    assert (leaves_in_use(draws, Topology.leaf(), np.zeros((4, 2))) == 1).all()


@settings(max_examples=20, deadline=None)
@given(seeds(), topologies(max_nodes=6), st.integers(1, 20))
def test_leaves_are_those_of_a_naive_walk(seed, topology, n):
    rng = np.random.default_rng(seed)
    draws, X = draws_of(rng, nodes=topology.n_nodes), rng.normal(size=(n, 2))
    for draw in range(2):
        reached = set()
        for row in X:
            sides = [
                votes(draws, (0, draw, node), row[None]).sum() > LOG2
                for node in range(topology.n_nodes)
            ]
            reached.add(path_of(topology, sides)[1])
        assert leaves_in_use(draws, topology, X)[0, draw] == len(reached)


def test_bad_input():
    rng = np.random.default_rng(0)
    draws = draws_of(rng)
    with pytest.raises(ValueError, match=r"must not be empty for node 1"):
        node_reach(draws, np.zeros((3, 2)), [np.arange(3), np.arange(0)], np.arange(2))
