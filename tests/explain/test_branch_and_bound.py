"""The nearest change of a row, against what a grid finds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.explain.branch_and_bound import Moves, Outcome, nearest_row
from bayestree.topology import Topology
from tests.plots.cases import make_tree
from tests.strategies import seeds, topologies

STEP = 0.02  # of the grid


def other_class(tree, x):
    predicted = tree.value.argmax(axis=1)
    return Outcome(predicted != predicted[tree.apply(x[None])[0]])


def unbounded(d):
    return Moves.of_numbers(np.full(d, -np.inf), np.full(d, np.inf))


def grid_around(x):
    side = np.arange(-4.0, 4.0 + STEP / 2, STEP)
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2) + x


@settings(max_examples=25, deadline=None)
@given(topologies(min_nodes=1, max_nodes=7), st.integers(1, 4), seeds())
def test_no_row_of_a_grid_is_nearer(topology, n_experts, seed):
    tree = make_tree(topology=topology, n_experts=n_experts, n_classes=3, seed=seed)
    x = np.random.default_rng(seed).normal(size=2)
    outcome = other_class(tree, x)
    found = nearest_row(tree, x, outcome, unbounded(2), max_programs=20_000)
    assert found.complete
    rows = grid_around(x)
    reached = outcome.leaves[tree.apply(rows)]
    least = np.abs(rows - x).sum(axis=1)[reached].min(initial=np.inf)
    assert found.bound <= least + 1e-5
    if found.row is None:
        assert not reached.any()
        return
    assert outcome.leaves[tree.apply(found.row[None])[0]]
    np.testing.assert_allclose(np.abs(found.row - x).sum(), found.distance, rtol=1e-9)
    assert found.bound <= found.distance
    if n_experts == 1:
        # Each end of the move is at most one step of the grid away in each of two features, and
        # where a leaf is thinner than a step the grid finds nothing.
        np.testing.assert_allclose(found.bound, found.distance, rtol=1e-9)
        assert found.distance <= least + 1e-5


@pytest.mark.parametrize("seed", range(6))
def test_several_facets_meet_the_grid(seed):
    """Where votes add up, the search stops at a local minimum: here it is the global one."""
    tree = make_tree(topology=Topology.complete(2), n_experts=3, seed=seed)
    x = np.random.default_rng(seed).normal(size=2)
    outcome = other_class(tree, x)
    rows = grid_around(x)
    least = np.abs(rows - x).sum(axis=1)[outcome.leaves[tree.apply(rows)]].min(initial=np.inf)
    found = nearest_row(tree, x, outcome, unbounded(2))
    if np.isfinite(least):
        # A grid row within a step of the found one, in each of two features, may be in the leaf.
        assert least - 3 * STEP <= found.distance <= least + 1e-5


def test_a_half_space_has_the_closed_form():
    """In L1, the feature with the largest coefficient alone moves, by margin / coefficient."""
    tree = make_tree(topology=Topology.stump(), n_features=3, seed=2)
    tree = replace(tree, value=np.eye(2), scale=np.array([1.0, 2.0, 0.5]))
    x = np.array([0.3, -0.2, 0.1])
    found = nearest_row(tree, x, other_class(tree, x), unbounded(3))
    strength = np.abs(tree.hyperplane[0] * tree.scale)
    margin = abs(tree.hyperplane[0] @ x - tree.facet_limit[0])
    np.testing.assert_allclose(found.distance, margin / strength.max(), rtol=1e-4)
    np.testing.assert_array_equal(np.flatnonzero(found.row != x), [strength.argmax()])


def committee(plane):
    """A stump of several experts of weight 1 through the origin."""
    tree = make_tree(topology=Topology.stump(), n_experts=len(plane))
    tree = replace(tree, weight=np.ones(len(plane)), intercept=np.zeros(len(plane)))
    return replace(tree, hyperplane=np.array(plane), value=np.eye(2))


def activation(vote):
    """The activation at which an expert of weight 1 has this vote."""
    return np.log(np.expm1(vote))


def test_votes_of_equal_experts_add_up():
    """Two equal votes send a row right together, before either does alone."""
    tree, x = committee([[1.0, 0.0], [1.0, 0.0]]), np.array([-3.0, 0.0])
    found = nearest_row(tree, x, other_class(tree, x), unbounded(2))
    expected = activation(np.log(2) / 2) + 3
    np.testing.assert_allclose(found.distance, expected, atol=1e-4)
    np.testing.assert_allclose(found.bound, expected, atol=1e-4)


def test_the_bound_is_that_of_the_largest_vote():
    """From (-3, -3) one feature moves until its vote and that of the other are log 2 together."""
    tree, x = committee([[1.0, 0.0], [0.0, 1.0]]), np.array([-3.0, -3.0])
    found = nearest_row(tree, x, other_class(tree, x), unbounded(2))
    rest = np.log1p(np.exp(-3.0))
    np.testing.assert_allclose(found.distance, activation(np.log(2) - rest) + 3, atol=1e-4)
    np.testing.assert_allclose(found.bound, activation(np.log(2) / 2) + 3, atol=1e-4)


def test_only_some_features_change_within_limits():
    tree = make_tree(topology=Topology.stump(), n_features=3, seed=2)
    tree = replace(tree, value=np.eye(2))
    x = np.zeros(3)
    outcome = other_class(tree, x)
    low, high = np.zeros(3), np.zeros(3)
    assert nearest_row(tree, x, outcome, Moves.of_numbers(low, high)).row is None
    low[1], high[1] = -np.inf, np.inf
    one = nearest_row(tree, x, outcome, Moves.of_numbers(low, high))
    assert one.row[1] != 0
    assert not one.row[[0, 2]].any()
    half = one.row[1] / 2
    low[1], high[1] = min(half, 0.0), max(half, 0.0)
    assert nearest_row(tree, x, outcome, Moves.of_numbers(low, high)).row is None
    low[0], high[0] = -np.inf, np.inf
    both = nearest_row(tree, x, outcome, Moves.of_numbers(low, high))
    assert low[1] <= both.row[1] <= high[1]
    assert both.row[2] == 0


def test_a_search_that_is_cut_off_says_so():
    tree = make_tree(topology=Topology.complete(4), n_experts=4, n_features=6, seed=3)
    x = np.zeros(6)
    whole = nearest_row(tree, x, other_class(tree, x), unbounded(6))
    short = nearest_row(tree, x, other_class(tree, x), unbounded(6), max_programs=3)
    assert not short.complete
    assert short.programs == 3
    assert short.bound <= whole.distance <= short.distance


@pytest.mark.parametrize("seed", [0, 4])
def test_no_change_is_below_the_bound_wherever_a_search_ends(seed):
    """Leaves that wait for their turn may hold the nearest row, too."""
    tree = make_tree(topology=Topology.complete(3), n_experts=3, n_features=3, seed=seed)
    search = tree, np.zeros(3), other_class(tree, np.zeros(3)), unbounded(3)
    whole = nearest_row(*search)
    assert whole.complete
    for programs in range(1, whole.programs):
        short = nearest_row(*search, max_programs=programs)
        assert not short.complete
        assert short.bound <= whole.distance <= short.distance


def test_a_tree_of_one_class_has_no_change():
    tree = make_tree(topology=Topology.stump())
    tree = replace(tree, value=np.array([[1.0, 0.0], [0.9, 0.1]]))
    found = nearest_row(tree, np.zeros(2), other_class(tree, np.zeros(2)), unbounded(2))
    assert (found.row, found.complete, found.programs) == (None, True, 0)


@pytest.mark.parametrize("below", [False, True])
def test_a_mean_in_constant_leaves(below):
    tree = make_tree(n_classes=0, seed=4)
    x = np.random.default_rng(0).normal(size=2)
    level = float(np.median(tree.value))
    outcome = Outcome.beyond(tree, level, below=below)
    found = nearest_row(tree, x, outcome, unbounded(2))
    mean = tree.predict(found.row[None])[0]
    assert mean <= level if below else mean >= level


def test_a_mean_in_linear_leaves_may_be_reached_within_the_leaf():
    tree = make_tree(topology=Topology.stump(), n_classes=0, seed=1)
    slope = np.array([[2.0, 0.0], [2.0, 0.0]])
    tree = replace(tree, value=np.zeros(2), slope=slope)
    x = np.array([0.1, 0.0])
    outcome = Outcome.beyond(tree, 1.0, below=False)
    found = nearest_row(tree, x, outcome, unbounded(2))
    np.testing.assert_allclose(found.row, [0.5, 0.0], atol=1e-5)
    assert tree.predict(found.row[None])[0] >= 1.0


def test_a_row_that_has_the_outcome_stays():
    tree = make_tree()
    x = np.zeros(2)
    outcome = Outcome(np.ones(4, dtype=bool))
    found = nearest_row(tree, x, outcome, unbounded(2))
    np.testing.assert_array_equal(found.row, x)
    assert found.distance == found.bound == 0
