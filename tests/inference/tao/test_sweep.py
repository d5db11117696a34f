"""The theorems behind TAO, and the effect of a sweep."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bayestree.inference.tao import sweep as sweeping
from bayestree.inference.tao.axis import AxisSolver
from bayestree.inference.tao.logistic import LogisticSolver
from bayestree.inference.tao.solvers import NodeSplit, reduced_loss
from bayestree.inference.tao.state import Alternation
from bayestree.inference.tao.sweep import reduced_problem, solve, sweep
from bayestree.models.likelihoods import MajorityRule
from tests.inference.tao.cases import alternation, axis_tree, classes, random_split, total_loss
from tests.sampling import z_score


def costs(tree, reach):
    return tree.losses(reach.leaf, np.arange(len(tree.X)))


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("node", range(7))
def test_the_loss_of_the_reduced_problem_changes_as_that_of_the_tree(node, real):
    X, y, weights = classes()
    y = y + X[:, 2] if real else y
    tree = alternation(X, y, weights)
    if not real:
        tree.values = np.arange(8) % 3  # no siblings that say the same
    reach = tree.reach()
    problem = reduced_problem(tree, reach, costs(tree, reach), node)
    care = problem.cares
    assert 0 < care.sum() < len(problem.rows) or real
    rows = problem.rows[care]
    right = (problem.right < problem.left)[care]
    weight = weights[rows] * np.abs(problem.left - problem.right)[care]
    old, new = tree.splits[node], random_split(X.shape[1], node)
    before = total_loss(tree)
    tree.splits[node] = new
    change = reduced_loss(new, X[rows], right, weight) - reduced_loss(old, X[rows], right, weight)
    assert total_loss(tree) - before == pytest.approx(change, abs=1e-9)
    assert change != 0


def test_nodes_that_do_not_descend_from_each_other_change_the_loss_independently():
    tree = alternation(*classes())
    first, second = tree.topology.children[0]
    base = total_loss(tree)
    old = list(tree.splits)

    def changed(*nodes):
        tree.splits = list(old)
        for node in nodes:
            tree.splits[node] = random_split(4, int(node))
        return total_loss(tree) - base

    both = changed(first, second)
    assert both == pytest.approx(changed(first) + changed(second))
    assert both != 0


def hand_worked():
    """x = 0..5, y = 0 0 1 1 0 0; root x > 0.5, and right of it x > 3.5."""
    X = np.arange(6.0)[:, None]
    y = np.array([0, 0, 1, 1, 0, 0])
    topology, splits = axis_tree([0.5, 3.5], [[~0, 1], [~1, ~2]])
    rule = MajorityRule(y, np.ones(6), 2)
    tree = Alternation(X, np.ones(6), topology, splits, rule, rule.start(3))
    tree.values = rule.fit(tree.values, tree.reach().leaf)
    return tree


def test_one_sweep_worked_by_hand():
    tree = hand_worked()
    # leaves {0}, {1, 2, 3}, {4, 5} say 0, 1, 0: row 1 is wrong
    np.testing.assert_array_equal(tree.values, [0, 1, 0])
    assert total_loss(tree) == 1
    reach = tree.reach()
    # the lower node: rows 1..5, of which 1, 4, 5 are better right (class 0) and 2, 3 left
    lower = reduced_problem(tree, reach, costs(tree, reach), 1)
    np.testing.assert_array_equal(lower.rows, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(lower.left, [1, 0, 0, 1, 1])
    np.testing.assert_array_equal(lower.right, [0, 1, 1, 0, 0])
    # no cut does better than the present one, whose only fault is row 1
    assert sweep(tree, reach, AxisSolver())
    assert tree.splits[1].intercept == -3.5
    # the root: rows 0, 1 are better left, 2, 3 right, 4, 5 alike: the cut is half-way from 1 to 2
    assert tree.splits[0].hyperplane == 1
    assert tree.splits[0].intercept == -1.5
    assert total_loss(tree) == 0


def test_the_root_sees_its_subtrees_as_they_are_after_their_update():
    tree = hand_worked()
    tree.splits[1] = NodeSplit.linear(np.ones(1), -4.5)  # row 4 is wrong too
    tree.values = np.array([0, 1, 0])
    tree.weights = np.array([1.0, 1, 1, 1, 3, 1])
    reach = tree.reach()
    sweep(tree, reach, AxisSolver())
    assert tree.splits[1].intercept == -3.5
    # by the subtree as it was, row 4 would have been better left of the root, and outweighed 0, 1
    assert tree.splits[0].intercept == -1.5
    assert total_loss(tree) == 0


def problem_of(left, right):
    n = len(left)
    return sweeping.ReducedProblem(
        np.arange(n), np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    )


def test_a_node_without_care_points_stays_and_loses_its_coefficients_under_a_penalty():
    tree = alternation(*classes())
    current = tree.splits[0]
    alike = problem_of(np.ones(200), np.ones(200))
    assert solve(tree, alike, LogisticSolver(), current) is current
    cut = solve(tree, alike, LogisticSolver(l1=1.0), current)
    assert not cut.hyperplane.any()
    goes_right = current.goes_right(tree.X)
    assert cut.goes_right(tree.X).all() == (goes_right.mean() > 0.5)


@pytest.mark.parametrize("better", [False, True])
def test_a_node_whose_rows_all_want_one_side_is_constant(better):
    tree = alternation(*classes())
    left = np.where(np.arange(200) < 50, 1.0, 0.0)  # 150 rows do not mind
    losses = (left, np.zeros(200)) if better else (np.zeros(200), left)
    split = solve(tree, problem_of(*losses), LogisticSolver(), tree.splits[0])
    assert not split.hyperplane.any()
    np.testing.assert_array_equal(split.goes_right(tree.X), np.full(200, better))


def test_losses_weigh_the_rows():
    seen = {}

    class Solver(LogisticSolver):
        def __call__(self, X, right, weight, current):
            seen.update(X=X, right=right, weight=weight)
            return current

    tree = alternation(*classes())
    rng = np.random.default_rng(1)
    left, right = rng.uniform(size=(2, 200))
    left[:20] = right[:20]
    solve(tree, problem_of(left, right), Solver(), tree.splits[0])
    np.testing.assert_allclose(seen["weight"], (tree.weights * np.abs(left - right))[20:])
    np.testing.assert_array_equal(seen["right"], (right < left)[20:])
    np.testing.assert_array_equal(seen["X"], tree.X[20:])


def errors_on_digits():
    """Error of each row under the tree of the half to which it does not belong."""
    X, y = load_digits(return_X_y=True)
    X = (X - X.mean(axis=0)) / 4
    wrong, even = np.zeros(len(y)), np.arange(len(y)) % 2 == 0
    for train in (even, ~even):
        wrong[~train] = errors_of_rest(X, y, train)
    return wrong


def errors_of_rest(X, y, train):
    tree = alternation(X[train], y[train], np.ones(train.sum()), depth=6)
    for _ in range(6):
        reach = tree.reach()
        tree.values = tree.rule.fit(tree.values, reach.leaf)
        sweep(tree, reach, LogisticSolver())
    tree.values = tree.rule.fit(tree.values, tree.reach().leaf)
    tree.X = X[~train]
    return tree.values[tree.reach().leaf] != y[~train]


@pytest.mark.portable
def test_rows_that_do_not_mind_are_left_out(monkeypatch):
    errors = errors_on_digits()

    def labelled(tree, problem, solver, current, *, strict=False):
        """Ties go left, with the weight of the others."""
        gap = np.where(problem.cares, problem.left - problem.right, -1.0)
        return solve(tree, problem_of_rows(problem, gap), solver, current, strict=strict)

    def problem_of_rows(problem, gap):
        return sweeping.ReducedProblem(problem.rows, np.maximum(gap, 0), np.maximum(-gap, 0))

    monkeypatch.setattr(sweeping, "solve", labelled)
    assert z_score(errors_on_digits() - errors) > 4
