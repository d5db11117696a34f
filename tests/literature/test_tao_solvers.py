"""Axis-aligned solvers, splits, leaves and pruning."""

import numpy as np
import pytest

from bayestree.literature.tao import RowRouting, redundant_nodes
from bayestree.literature.tao_solvers import (
    LineSolver,
    NodeSplit,
    reduced_loss,
)
from bayestree.models.likelihoods import LinearRule, MajorityRule, MeanRule
from bayestree.topology import Topology


def problem(m=40, d=3, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, (m, d)).astype(float) if ties else rng.normal(size=(m, d))
    right = (X[:, 1] < 2) ^ (rng.random(m) < 0.2)
    return X, right, rng.uniform(0.1, 2, m)


def exhaustive(X, right, weight):
    best = min(weight[right].sum(), weight[~right].sum())
    for j in range(X.shape[1]):
        for cut in np.unique(X[:, j])[:-1] + 1e-9:
            side = X[:, j] > cut
            best = min(best, weight[side != right].sum(), weight[side == right].sum())
    return best


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_axis_search_is_exact_for_both_sides(seed, ties, dtype):
    X, right, weight = problem(seed=seed, ties=ties)
    X = X.astype(dtype)
    start = NodeSplit(np.ones(3, dtype), 0.0)
    split = LineSolver(max_features=1)(X, right, weight, start)
    assert reduced_loss(split, X, right, weight) == pytest.approx(exhaustive(X, right, weight))
    assert np.count_nonzero(split.hyperplane) <= 1


def test_an_axis_cut_worked_by_hand():
    X = np.array([[0.0, 5.0], [1.0, 1.0], [2.0, 9.0], [4.0, 2.0]])
    right = np.array([True, True, False, False])
    split = LineSolver(max_features=1)(X, right, np.ones(4), NodeSplit(np.zeros(2), 1.0))
    assert reduced_loss(split, X, right, np.ones(4)) == 0
    np.testing.assert_allclose(split.hyperplane / split.intercept, [-1 / 1.5, 0.0])


def test_a_feature_must_be_worth_its_price():
    X, right, weight = problem()
    start = NodeSplit(np.ones(3), 0.0)
    gain = min(weight[right].sum(), weight[~right].sum()) - exhaustive(X, right, weight)
    assert LineSolver(0.99 * gain, max_features=1)(X, right, weight, start).hyperplane.any()
    assert not LineSolver(1.01 * gain, max_features=1)(X, right, weight, start).hyperplane.any()


def test_the_present_cut_stays_where_none_is_better():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    right = np.array([False, False, True, True])
    start = NodeSplit(np.array([3.0]), -3.3)
    assert LineSolver(max_features=1)(X, right, np.ones(4), start) is start


def test_features_that_do_not_vary_leave_the_heavier_side():
    right = np.array([False, True, True])
    split = LineSolver(max_features=1)(
        np.ones((3, 2)), right, np.ones(3), NodeSplit(np.ones(2), -9.0)
    )
    assert split.goes_right(np.ones((3, 2))).all()


@pytest.mark.parametrize("right", [False, True])
def test_constant_splits_send_all_rows_one_way(right):
    split = NodeSplit.constant(NodeSplit(np.ones(2), 3.0), right=right)
    assert (split.goes_right(np.random.default_rng(0).normal(size=(20, 2))) == right).all()


def test_majorities_by_weight_and_ties_stay():
    y = np.array([0, 1, 1, 2, 0])
    rule = MajorityRule(y, np.array([3.0, 1, 1, 2, 2]), 3)
    leaf = np.array([0, 0, 0, 1, 1])
    np.testing.assert_array_equal(rule.fit(np.array([1, 2, 1]), leaf), [0, 2, 1])
    np.testing.assert_array_equal(rule.fit(np.array([1, 0, 1]), leaf), [0, 0, 1])
    assert rule.start(2).tolist() == [0, 0]


def test_means_by_weight_and_empty_leaves_stay():
    rule = MeanRule(np.array([1.0, 4.0, 10.0]), np.array([1.0, 2.0, 5.0]))
    found = rule.fit(np.array([0.0, 0.0, 7.0]), np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [3, 10, 7])
    np.testing.assert_allclose(rule.loss(found, np.array([0]), np.array([1])), [1.0])


@pytest.mark.parametrize("shape", [(30, 4), (5, 12)])
def test_linear_leaves_are_ridge_regressions(shape):
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=shape), rng.normal(size=shape[0]), rng.uniform(1, 3, shape[0])
    rule = LinearRule(X, y, weights, 0.7)
    leaf = np.zeros(len(y), dtype=np.int64)
    values = rule.fit(rule.start(2), leaf)
    # at the minimum of the sum of squares and 0.7 |slope|^2, its gradient is 0
    slope, constant = values[0, :-1], values[0, -1]
    residual = weights * (y - X @ slope - constant)
    np.testing.assert_allclose(residual @ X, 0.7 * slope, atol=1e-8)
    assert residual.sum() == pytest.approx(0, abs=1e-8)
    np.testing.assert_array_equal(values[1], rule.start(2)[1])  # without rows
    assert rule.penalty(values) == pytest.approx(0.7 * slope @ slope)
    loss = rule.loss(values, leaf, np.arange(len(y)))
    np.testing.assert_allclose(loss, (residual / weights) ** 2)


def reach_of(right):
    rows = [np.arange(len(side)) for side in right]
    return RowRouting(rows, [np.array(side, dtype=bool) for side in right], np.zeros(4, dtype=int))


def test_pruning_worked_by_hand():
    topology = Topology.complete(2)  # nodes 0, 1, 2; leaves 0, 1 below node 1, 2, 3 below node 2
    both = [[0, 1], [0, 1], [0, 1]]
    needed = redundant_nodes(topology, reach_of(both), np.array([0, 1, 2, 0]))
    assert needed.tolist() == [-1, -1, -1]
    siblings = redundant_nodes(topology, reach_of(both), np.array([1, 1, 2, 0]))
    assert siblings.tolist() == [-1, 0, -1]
    upwards = redundant_nodes(topology, reach_of(both), np.array([1, 1, 1, 1]))
    assert upwards.tolist() == [0, 0, 0]
    # all rows of node 1 go right: leaf 1 takes its place, and then the pair of leaves 1 and 2, 3
    one_way = redundant_nodes(topology, reach_of([[0, 1], [1, 1], [0, 1]]), np.array([0, 1, 1, 1]))
    assert one_way.tolist() == [0, 1, 0]
    # no row goes right at the root: what lies there is gone whatever it says
    dead = redundant_nodes(topology, reach_of([[0, 0], [0, 1], []]), np.array([0, 1, 2, 0]))
    assert dead[0] == 0
    assert dead[1] == -1
