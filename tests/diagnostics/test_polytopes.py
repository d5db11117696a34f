"""Irredundant half-spaces, against independent geometry.

Summaries of the rows, against direct sums and explicit routing.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import ConvexHull

from bayestree.diagnostics.polytopes import leaves_in_use, needed, node_reach
from bayestree.topology import Topology
from tests.strategies import path_of, seeds, topologies

LOG2 = np.log(2.0)
ONE = np.ones  # weights of 1 put the threshold of every facet at beta . x + b = 0


def facets(plane, intercept, low, high, weight=None):
    plane = np.asarray(plane, dtype=float)
    weight = ONE(len(plane)) if weight is None else np.asarray(weight, dtype=float)
    intercept = np.asarray(intercept, dtype=float)
    return len(needed(weight, plane, intercept, np.asarray(low, float), np.asarray(high, float)))


TRIANGLE = [[-1, 0], [0, -1], [1, 1]]
TRIANGLE_AT = [0.1, 0.1, -1]
SQUARE = ([0, 0], [1, 1])


class TestFacets:
    def test_triangle(self):
        assert facets(TRIANGLE, TRIANGLE_AT, *SQUARE) == 3

    def test_a_facet_outside_the_box_does_not_count(self):
        assert facets(TRIANGLE, TRIANGLE_AT, [0.2, 0.2], [1, 1]) == 1

    def test_copies_count_once(self):
        assert facets(TRIANGLE * 3, TRIANGLE_AT * 3, *SQUARE) == 3

    def test_a_scaled_copy_counts_once(self):
        plane = np.vstack([TRIANGLE, 7.0 * np.asarray(TRIANGLE)])
        assert facets(plane, [*TRIANGLE_AT, *(7 * np.asarray(TRIANGLE_AT))], *SQUARE) == 3

    def test_a_looser_parallel_does_not_count(self):
        assert facets([*TRIANGLE, [1, 1]], [*TRIANGLE_AT, -1.2], *SQUARE) == 3

    def test_a_dead_expert_has_no_facet(self):
        weight = [1, 1, 1, 0.0]
        assert facets([*TRIANGLE, [1, 0]], [*TRIANGLE_AT, -0.5], *SQUARE, weight) == 3

    def test_a_nearly_dead_expert_has_none_either(self):
        weight = np.array([1e-310, 1.0])  # log 2 / r is beyond all numbers
        assert needed(weight, 0.1 * np.eye(2), np.zeros(2), -np.ones(2), np.ones(2)).tolist() == [1]

    def test_the_threshold_depends_on_the_weight(self):
        # softplus(x - 0.5) = log 2 / r at r = log 2 / log(1 + e) means x = 1.5: outside
        weight = LOG2 / np.log1p(math.e)
        assert facets([[1.0]], [-0.5], [0], [1], [weight]) == 0
        assert facets([[1.0]], [-0.5], [0], [1.6], [weight]) == 1

    def test_nothing_left_of_the_box(self):
        assert facets([[1, 0], [0, 1]], [5, -0.5], *SQUARE) == 1

    def test_constant_features(self):
        assert facets(TRIANGLE, TRIANGLE_AT, [0, 0.5], [1, 0.5]) == 2
        assert facets([[0, 1.0]], [-0.4], [0, 0.5], [1, 0.5]) == 1
        assert facets([[0, 1.0]], [-0.6], [0, 0.5], [1, 0.5]) == 0

    def test_no_expert_reaches(self):
        assert facets([[1, 0]], [-3], *SQUARE) == 0

    @settings(max_examples=25, deadline=None)
    @given(seeds(), st.integers(2, 5), st.integers(1, 12))
    def test_agrees_with_the_dual_hull(self, seed, d, n):
        """Half-spaces a . x <= 1 around the origin are needed iff a is a vertex of their hull."""
        rng = np.random.default_rng(seed)
        plane = rng.normal(size=(n, d))
        distance = rng.uniform(0.1, 2.0, n)
        dual = np.vstack([plane / distance[:, None], np.eye(d), -np.eye(d)])  # box: |x| <= 1
        needed = (ConvexHull(dual).vertices < n).sum()
        weight = rng.gamma(1.0, size=n) + 0.05
        intercept = np.log(np.expm1(LOG2 / weight)) - distance
        assert facets(plane, intercept, -ONE(d), ONE(d), weight) == needed

    @settings(max_examples=50, deadline=None)
    @given(arrays(float, (6, 2), elements=st.floats(-3, 3, width=16)))
    def test_on_a_line_at_most_two(self, pairs):
        assert facets(pairs[:, :1], pairs[:, 1], [-1], [1]) <= 2


class TestNeeded:
    def test_names_the_experts_in_order(self):
        plane = np.array([[1, 1], [0, 1], [-1, 0], [0, -1], [1, 1.0]])
        intercept = np.array([-1.2, -3, 0.1, 0.1, -1])
        one = needed(ONE(5), plane, intercept, np.zeros(2), ONE(2))
        assert one.tolist() == [2, 3, 4]

    def test_where_nothing_is_left_the_farthest(self):
        plane, intercept = np.array([[1, 0], [0, 1.0], [1, 1]]), np.array([0.1, 0.4, -1])
        assert needed(ONE(3), plane, intercept, np.zeros(2), ONE(2)).tolist() == [1]

    def test_none(self):
        assert needed(ONE(1), ONE((1, 2)), np.array([-3.0]), np.zeros(2), ONE(2)).tolist() == []

    @settings(max_examples=25, deadline=None)
    @given(seeds(), st.integers(1, 4), st.integers(1, 10))
    def test_cuts_out_what_all_cut_out_and_none_can_be_spared(self, seed, d, n):
        rng = np.random.default_rng(seed)
        plane, intercept = rng.normal(size=(n, d)), rng.normal(size=n) - 1
        kept = needed(ONE(n), plane, intercept, -ONE(d), ONE(d))
        points = rng.uniform(-1, 1, size=(2000, d))
        inside = points @ plane.T + intercept <= 0
        # where all leave nothing, one that does, or as many as do so together
        np.testing.assert_array_equal(inside[:, kept].all(axis=1), inside.all(axis=1))
        spared = [
            len(needed(ONE(n - 1), *parts, -ONE(d), ONE(d)))
            for parts in [
                (np.delete(plane, k, axis=0), np.delete(intercept, k))
                for k in set(range(n)) - set(kept)
            ]
        ]
        if inside.all(axis=1).any():
            assert set(spared) <= {len(kept)}


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


def alone(each):
    """Rows (n, K) that an expert sends right and no other does."""
    beyond = each > LOG2
    return beyond & (beyond.sum(axis=1) == 1)[:, None]


def test_largest_votes_and_cuts_of_posterior_and_prior():
    rng = np.random.default_rng(0)
    draws, X = draws_of(rng), rng.normal(size=(30, 2))
    prior = {site: values[0, :, 0] for site, values in draws_of(rng, draws=5).items()}
    rows = [np.arange(30), np.arange(7)]
    reach = node_reach(draws, X, rows, np.array([1, 0]), prior=prior)
    for place, node in enumerate([1, 0]):
        own = X[rows[place]]
        for draw in range(2):
            expected = votes(draws, (0, draw, node), own).max(axis=0)
            np.testing.assert_allclose(reach.largest[0, draw, place], expected, rtol=1e-5)
            cut = alone(votes(draws, (0, draw, node), own)).mean(axis=0)
            np.testing.assert_allclose(reach.cut[0, draw, place], cut, atol=5e-4)
        for draw in range(5):
            expected = votes(prior, draw, own).max(axis=0)
            np.testing.assert_allclose(reach.prior_largest[draw, place], expected, rtol=1e-5)
            cut = alone(votes(prior, draw, own)).mean(axis=0)
            np.testing.assert_allclose(reach.prior_cut[draw, place], cut, atol=5e-4)
        np.testing.assert_array_equal(reach.low[place], own.min(axis=0))
        np.testing.assert_array_equal(reach.high[place], own.max(axis=0))


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
