"""The theorems behind TAO, and the effect of a sweep."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from bayestree.baselines import cart, random_oblique
from bayestree.inference import Data, tao
from bayestree.literature import tao as sweeping
from bayestree.literature.tao import Alternation, reduced_problem, solve, sweep
from bayestree.literature.tao_solvers import (
    LineSolver,
    LogisticSolver,
    NodeSplit,
    reduced_loss,
    solver_for,
    splits_of,
)
from bayestree.models import (
    Categorical,
    FeatureCount,
    Flat,
    Gaussian,
    InverseGammaScale,
    Laplace,
    Logistic,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
    named,
)
from bayestree.models.likelihoods import MajorityRule
from bayestree.topology import Topology
from bayestree.tree import Tree
from tests.literature.tao_cases import (
    alternation,
    axis_tree,
    classes,
    model_of,
    random_split,
    total_loss,
)
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


def cut(split):
    """Return the number above which a split by one feature goes right."""
    return -split.intercept / split.hyperplane.item()


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
    assert sweep(tree, reach, LineSolver(max_features=1))
    assert cut(tree.splits[1]) == 3.5
    # the root: rows 0, 1 are better left, 2, 3 right, 4, 5 alike: the cut is half-way from 1 to 2
    assert tree.splits[0].hyperplane > 0
    assert cut(tree.splits[0]) == pytest.approx(1.5)
    assert total_loss(tree) == 0


def test_the_root_sees_its_subtrees_as_they_are_after_their_update():
    tree = hand_worked()
    tree.splits[1] = NodeSplit(np.ones(1), -4.5)  # row 4 is wrong too
    tree.values = np.array([0, 1, 0])
    tree.weights = np.array([1.0, 1, 1, 1, 3, 1])
    reach = tree.reach()
    sweep(tree, reach, LineSolver(max_features=1))
    assert cut(tree.splits[1]) == pytest.approx(3.5)
    # by the subtree as it was, row 4 would have been better left of the root, and outweighed 0, 1
    assert cut(tree.splits[0]) == pytest.approx(1.5)
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


KINDS = [
    {"split": Oblique()},
    {"split": Oblique(), "prior": Laplace(0.5)},
    {"split": Oblique(1)},
    {"split": Oblique(1), "prior": FeatureCount(1.5)},
    {"split": Oblique(2), "prior": FeatureCount(1.5, 1.2)},
]


def values(n=200, seed=0):
    X, _, weights = classes(n, seed=seed)
    noise = np.random.default_rng(seed + 1).normal(size=n)
    return X, np.abs(X[:, 0] - X[:, 1]) + 0.1 * noise, weights


def start(X, y, parts, depth=4, seed=0):
    return random_oblique(X, depth, max_features=parts["split"].max_features, random_state=seed)


@pytest.mark.portable
@pytest.mark.parametrize("parts", KINDS, ids=str)
@pytest.mark.parametrize("rows", [classes, values])
def test_the_strict_form_never_rises(parts, rows):
    X, y, weights = rows()
    found = tao(
        model_of(y, **parts),
        Data.of(X, y, weights),
        init=start(X, y, parts),
        strict=True,
        sweeps=12,
    )
    objective = found.stats["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert objective[-1] < 0.7 * objective[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows", [classes, values])
def test_the_tree_returned_is_the_best_seen_and_no_worse_than_the_start(rows, seed):
    X, y, weights = rows(seed=seed)
    data = Data.of(X, y, weights)
    first = cart(X, y, weights, max_depth=3, random_state=seed)
    model = model_of(y)
    found = tao(model, data, init=first)
    loss = found.stats["loss"]
    assert loss.min() <= loss[0]
    after = -float(found.model.log_likelihood(found.point_sites(), *data))
    assert after == pytest.approx(loss.min())
    miss = first.predict(X).argmax(1) != y if y.dtype == np.int64 else (first.predict(X) - y) ** 2
    assert after <= weights @ miss + 1e-9


@pytest.mark.parametrize("parts", KINDS, ids=str)
def test_the_objective_is_minus_the_log_joint_up_to_its_constant(parts):
    X, y, weights = classes()
    data = Data.of(X, y, weights)
    found = tao(model_of(y, **parts), data, init=start(X, y, parts))
    again = tao(found.model, data, init=found, strict=True, sweeps=1)
    objective = again.stats["objective"][0]  # of the tree as it was returned
    prior = found.model.priors.hyperplane
    constant = 0.0
    if isinstance(prior, Laplace):
        constant = found.model.topology.n_nodes * X.shape[1] * math.log(prior.rate / 2)
    joint = float(found.model.log_joint(found.point_sites(), *data))
    assert -joint == pytest.approx(objective - constant)


@pytest.mark.parametrize(("strict", "paid"), [(False, [1, 1]), (True, [2, 1])])
def test_splits_that_part_no_rows_are_paid_for_under_strict_descent_only(strict, paid):
    X, y = np.arange(6.0)[:, None], np.array([0, 0, 0, 1, 1, 1])
    # the lower node sends right all that it gets
    topology, splits = axis_tree([2.5, -9.0], [[~0, 1], [~1, ~2]])
    plane, offset = (np.stack([s[i] for s in splits]) for i in (0, 1))
    one = np.ones(1)
    first = Tree.from_standardised(
        topology, np.ones((2, 1)), plane[:, None], offset[:, None], center=0 * one, scale=one
    )
    model = model_of(y, split=Oblique(1), prior=FeatureCount(1.0))
    found = tao(model, Data.of(X, y), init=first, strict=strict, sweeps=1)
    np.testing.assert_array_equal(found.stats["objective"], paid)
    assert found.model.topology.n_nodes == 1


@pytest.mark.parametrize("rows", [classes, values])
def test_it_predicts_by_the_rows_of_its_leaves(rows):
    X, y, weights = rows()
    found = tao(model_of(y), Data.of(X, y, weights), init=random_oblique(X, 3, random_state=0))
    predicted = found.predictive(X)[0]
    leaf = found.leaf_probs(X, found.point_sites()).argmax(axis=1)
    assert len(np.unique(leaf)) == found.model.topology.n_leaves > 3
    prior = found.model.leaf
    for number in range(found.model.topology.n_leaves):
        own = leaf == number
        if y.dtype == np.int64:
            counts = np.bincount(y[own], weights[own], 3) + prior.pseudo_count  # type: ignore[attr-defined]
            expected = counts / counts.sum()
        else:
            mass = weights[own].sum() + prior.strength  # type: ignore[attr-defined]
            expected = (weights[own] @ y[own] + prior.strength * prior.mean) / mass  # type: ignore[attr-defined]
        np.testing.assert_allclose(predicted[own] - expected, 0, atol=1e-9)


@pytest.mark.portable
def test_a_squared_loss_falls_and_linear_leaves_lower_it_further():
    X, y, weights = values()
    data, first = Data.of(X, y, weights), random_oblique(X, 2, random_state=0)
    model = named.alternating(Gaussian())
    constant = tao(model, data, init=first)
    linear = tao(model, data, init=first, leaf_ridge=0.1)
    assert constant.stats["loss"].min() < 0.7 * constant.stats["loss"][0]
    assert linear.stats["objective"].min() < 0.7 * constant.stats["loss"].min()


@pytest.mark.parametrize("parts", KINDS[:2], ids=str)
def test_threads_change_nothing(parts):
    X, y, weights = classes(400)
    data, first = Data.of(X, y, weights), start(X, y, parts, depth=5)
    one, two = (tao(model_of(y, **parts), data, init=first, n_jobs=n) for n in (None, 3))
    np.testing.assert_array_equal(one.stats["loss"], two.stats["loss"])
    for name in one.point:
        np.testing.assert_array_equal(one.point[name], two.point[name])


@pytest.mark.parametrize("split", [Oblique(), Oblique(1)], ids=str)
def test_a_start_without_an_error_stays(split):
    X = np.random.default_rng(0).normal(size=(100, 3))
    y = (X[:, 1] > 0.2).astype(int) + (X[:, 2] > 1).astype(int)
    first = cart(X, y, random_state=0)
    found = tao(model_of(y, split=split), Data.of(X, y), init=first)
    assert found.stats["loss"][0] == 0
    assert found.model.topology == first.topology
    np.testing.assert_array_equal(found.point["hyperplane"][:, 0], first.hyperplane)
    np.testing.assert_array_equal(found.point["intercept"][:, 0], first.intercept)


@pytest.mark.portable
def test_a_line_across_the_axes_is_found():
    X, _, _ = classes(500, d=2)
    y = (X[:, 0] + X[:, 1] > 0.1).astype(int)
    found = tao(model_of(y), Data.of(X, y), init=cart(X, y, max_depth=1, random_state=0))
    assert found.stats["loss"][0] > 50
    assert found.stats["loss"].min() <= 5


def test_a_penalty_removes_coefficients_and_nodes():
    X, y, weights = classes(d=10)
    data, first = Data.of(X, y, weights), random_oblique(X, 4, random_state=0)
    sizes = []
    for rate in (0.1, 2.0, 10.0, 1000.0):
        found = tao(model_of(y, prior=Laplace(rate)), data, init=first)
        sizes.append(int(np.count_nonzero(found.point["hyperplane"])))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0
    assert found.model.topology.n_nodes == 0


@pytest.mark.portable
def test_the_start_is_no_candidate_where_its_scale_would_count():
    """The loss does not see the scale of hyperplanes, the penalty does: a small one is no merit."""
    X, y, weights = classes()
    first = random_oblique(X, 3, random_state=0)
    tiny = first._with(hyperplane=first.hyperplane * 1e-9, intercept=first.intercept * 1e-9)
    found = tao(model_of(y, prior=Laplace(16.0)), Data.of(X, y, weights), init=tiny)
    loss, objective = found.stats["loss"], found.stats["objective"]
    assert objective[1:].min() > objective[0]
    after = -float(found.model.log_likelihood(found.point_sites(), *Data.of(X, y, weights)))
    assert after < loss[0]


def test_experts_of_any_weight_make_the_same_oblique_split():
    X, y, _ = classes()
    first = random_oblique(X, 2, random_state=0)
    heavy = first._with(weight=np.array([0.3, 2.5, 1.0]))
    topology, splits = splits_of(heavy, model_of(y))
    assert topology == first.topology
    for node, split in enumerate(splits):
        np.testing.assert_array_equal(split.goes_right(X), heavy.goes_right(node, X))


def test_nodes_say_where_they_come_from():
    X, y, weights = classes()
    first = random_oblique(X, 4, random_state=0)
    found = tao(model_of(y), Data.of(X, y, weights), init=first, sweeps=1)
    source = found.stats["source"]
    assert len(source) == found.model.topology.n_nodes < first.n_nodes
    assert len(set(source.tolist())) == len(source)


def test_single_precision_leaves_every_row_on_its_side():
    X, y, weights = classes()
    first = random_oblique(X, 3, random_state=0)
    single = Data.of(X, y, weights, dtype=torch.float32)
    low = tao(model_of(y), single, init=first).stats["loss"].min()
    high = tao(model_of(y), Data.of(X, y, weights), init=first).stats["loss"].min()
    assert low == pytest.approx(high, rel=1e-6)  # the weights are rounded, too


def test_a_tree_without_a_split_stays_one():
    X, y, weights = classes()
    found = tao(model_of(y), Data.of(X, y, weights), init=cart(X, y, max_depth=0))
    assert found.model.topology.n_nodes == 0
    assert found.point["hyperplane"].shape == (0, 1, 4)


def test_refuses_what_it_cannot_do():
    X, y, weights = classes()
    data, first = Data.of(X, y, weights), random_oblique(X, 2, random_state=0)
    model = model_of(y)
    with pytest.raises(ValueError, match=r"likelihood must be one of .*got 'mixture'"):
        tao(SoftTree(Topology.leaf()), data, init=first)
    with pytest.raises(ValueError, match="ridge must be a number above 0, got 0"):
        tao(model, data, init=first, ridge=0.0)
    with pytest.raises(ValueError, match="leaf_ridge is for linear leaves"):
        tao(model, data, init=first, leaf_ridge=1.0)
    with pytest.raises(ValueError, match="sweeps must be an integer of 1 or more"):
        tao(model, data, init=first, sweeps=0)
    with pytest.raises(TypeError, match="init must be a Tree or a Posterior, got str"):
        tao(model, data, init="cart")
    with pytest.raises(ValueError, match="a split with 4 features, but the model allows at most 1"):
        tao(model_of(y, split=Oblique(1)), data, init=first)
    with pytest.raises(ValueError, match="splits on 4 features, but the rows have 3"):
        tao(model, Data.of(X[:, :3], y), init=first)


def test_the_solver_follows_from_split_and_prior():
    leaf = Categorical(2)
    assert solver_for(named.alternating(leaf, prior=Laplace(3.0)), 0.1) == LogisticSolver(l1=3.0)
    assert solver_for(named.alternating(leaf), 0.7) == LogisticSolver(ridge=0.7)
    unknown = named.alternating(leaf, split=Oblique(1), prior=Laplace(1.0))
    with pytest.raises(ValueError, match=r"no solver for split .*max_features=1.*Laplace"):
        solver_for(unknown, 0.1)
    weighted = unknown.with_(split=Polytope(3), priors=Priors(hyperplane=Flat()))
    with pytest.raises(ValueError, match=r"no solver for split Polytope"):
        solver_for(weighted, 0.1)
    with pytest.raises(ValueError, match="no solver for split"):
        solver_for(named.alternating(leaf, prior=InverseGammaScale()), 0.1)


def test_rows_as_they_come_are_enough_for_leaves_that_regress():
    X, y, weights = classes(120)
    leaf = Logistic(int(y.max()) + 1)
    plain = Data.of(X, y, weights)
    init = start(X, y, {"split": Oblique()}, depth=2)
    found = [
        tao(named.alternating(leaf), data, init=init, sweeps=2)
        for data in (plain, plain.for_leaf(leaf))
    ]
    for name, value in found[0].point.items():
        np.testing.assert_array_equal(value, found[1].point[name])
