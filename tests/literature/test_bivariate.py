"""Bivariate trees: the search of splits by one and two features, growth, pruning, TAO's solver."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from bayestree import BivariateTreeClassifier
from bayestree.inference import Data, GrowthLimits, grow
from bayestree.inference.growth.grow import GrowingTree
from bayestree.inference.splitters import planes
from bayestree.literature import bivariate
from bayestree.literature.bivariate import BivariateSplitter, LineNode, LineSearch
from bayestree.literature.oblique import cost_complexity
from bayestree.literature.tao_solvers import LineSolver, NodeSplit, reduced_loss
from bayestree.models import Categorical, Gaussian, named
from bayestree.models.criteria import Entropy, Gini
from tests.sampling import at_least, z_score


def gini(left, whole):
    """Sum over the sides of (sum of squared counts) / count."""
    whole = whole.reshape(-1, *[1] * (left.ndim - 1))
    sides = [(side**2).sum(0) / np.maximum(side.sum(0), 1e-300) for side in (left, whole - left)]
    return sides[0] + sides[1]


def agreement(left, whole):
    return np.abs(whole.reshape(-1, *[1] * (left.ndim - 1)) - 2 * left)[0] / 2


def every_cut(X, statistics, weights, quality, *, directions, groups, min_leaf):
    """The best quality over all groups of features, directions and midpoints, one by one."""
    mean = np.average(X, axis=0, weights=weights)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    z = (X - mean) / spread
    best = -math.inf
    for group in groups:
        for direction in directions:
            value = z[:, list(group)] @ direction
            distinct = np.unique(value.round(10))
            for threshold in (distinct[1:] + distinct[:-1]) / 2:
                left = value <= threshold
                if min(left.sum(), (~left).sum()) >= min_leaf:
                    best = max(best, float(quality(statistics[left].sum(0), statistics.sum(0))))
    return best


def quality_of(line, X, statistics, quality):
    right = X[:, line.features] @ line.coefficient + line.intercept > 0
    return float(quality(statistics[~right].sum(0), statistics.sum(0))), right


def problem(kind, *, n=40, d=4, levels=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) if levels is None else rng.integers(levels, size=(n, d)) * 0.1
    weights = rng.uniform(0.5, 2.0, size=n)
    if kind == "gini":
        return X, weights[:, None] * np.eye(3)[rng.integers(3, size=n)], weights, gini
    return X, (weights * rng.choice([-1.0, 1.0], size=n))[:, None], weights, agreement


@pytest.mark.parametrize("kind", ["gini", "0/1"])
@pytest.mark.parametrize("levels", [None, 4])
@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("min_leaf", [1, 8])
def test_the_best_of_all_cuts(kind, levels, cells, min_leaf, monkeypatch):
    if cells:  # also where they save no time
        monkeypatch.setattr(bivariate, "OVERHEAD", -1)
    seed = 3
    X, statistics, weights, quality = problem(kind, levels=levels, seed=seed)
    search = LineSearch(n_orientations=6, min_leaf=min_leaf)
    node = LineNode(search, X, statistics, weights, quality)
    cases = [
        (node.single(), [np.ones(1)], [(j,) for j in range(4)]),
        (node.pair(), search.orientations(), list(combinations(range(4), 2))),
    ]
    for line, directions, groups in cases:
        best = every_cut(
            X,
            statistics,
            weights,
            quality,
            directions=directions,
            groups=groups,
            min_leaf=min_leaf,
        )
        assert line.quality == pytest.approx(best, rel=1e-12)
        found, right = quality_of(line, X, statistics, quality)
        assert found == pytest.approx(best, rel=1e-12)
        assert min(right.sum(), (~right).sum()) >= min_leaf


def test_a_diagonal_by_hand():
    """Two columns, standardised already: x0 + x1 separates, and the gap is that of the middle."""
    X = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    signed = np.array([[-1.0], [-1.0], [-1.0], [1.0]])
    node = LineNode(LineSearch(n_orientations=4), X, signed, np.ones(4), agreement)
    # one feature: three of four, quality 2 - 1 = 1 above the mean of two wrong
    assert node.single().quality == pytest.approx(1.0)
    # 67.5 degrees: projections -1.307, 0.541, -0.541, 1.307; 22.5 degrees is its mirror image
    line = node.pair()
    assert line.quality == pytest.approx(2.0)
    degrees = np.degrees(np.arctan2(line.coefficient[1], line.coefficient[0]))
    assert degrees in (pytest.approx(22.5), pytest.approx(67.5))
    near, far = math.cos(math.radians(22.5)), math.sin(math.radians(22.5))
    assert line.margin == pytest.approx((near + far) - (near - far))
    assert line.intercept == pytest.approx(-near)


def test_of_equal_cuts_the_widest_gap():
    X = np.array([[0.0, 0.0], [1.0, 4.9], [9.0, 5.1], [10.0, 10.0]])
    signed = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    line = LineNode(LineSearch(), X, signed, np.ones(4), agreement).single()
    assert line.features.tolist() == [0]
    assert -line.intercept / line.coefficient[0] == pytest.approx(5.0)
    # the cuts at 1.5 and at 7 leave one row wrong each
    X = np.array([0.0, 1.0, 2.0, 5.0, 9.0, 10.0])[:, None]
    signed = np.array([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])[:, None]
    line = LineNode(LineSearch(), X, signed, np.ones(6), agreement).single()
    assert line.quality == pytest.approx(2.0)
    assert -line.intercept / line.coefficient[0] == pytest.approx(7.0)


@pytest.mark.parametrize("n", [2, 3, 30, 31])
def test_orientations_leave_out_the_axes(n):
    directions = LineSearch(n_orientations=n).orientations()
    assert len(directions) == n - n % 2
    assert np.abs(directions).min() > 1e-3
    np.testing.assert_allclose((directions**2).sum(1), 1.0)


def test_a_screen_searches_what_it_passes_on_exactly():
    X, statistics, weights, quality = problem("gini", n=300, d=8)
    X[:, 5] += 3 * X[:, 2] + 2.0 * statistics.argmax(1)
    every = LineNode(LineSearch(budget=math.inf), X, statistics, weights, quality).pair()
    screened = LineNode(LineSearch(budget=0, n_refined=3), X, statistics, weights, quality).pair()
    assert screened.features.tolist() == every.features.tolist() == [2, 5]
    assert screened.quality == every.quality


def test_more_pairs_than_allowed_are_those_of_the_best_features():
    X, statistics, weights, quality = problem("gini", n=200, d=6)
    X[:, 1] += statistics.argmax(1)
    X[:, 4] -= statistics.argmax(1)
    line = LineNode(LineSearch(max_pairs=1), X, statistics, weights, quality).pair()
    assert line.features.tolist() == [1, 4]


def test_columns_without_a_cut():
    statistics, weights = np.array([[1.0], [-1.0], [1.0]]), np.ones(3)
    constant = np.full((3, 2), 0.1)
    node = LineNode(LineSearch(), constant, statistics, weights, agreement)
    assert node.single() is None
    assert node.pair() is None
    one = np.array([[0.1, 1e9 + 1e-8], [0.1, 1e9], [0.1, 1e9 - 1e-8]])  # rounding is no spread
    assert LineNode(LineSearch(), one, statistics, weights, agreement).single() is None
    line = LineNode(LineSearch(min_leaf=2), np.eye(3), statistics, weights, agreement)
    assert line.single() is None


def test_rows_that_are_alike_stay_together():
    """Two rows whose projections differ by rounding are not parted."""
    X = np.array([[0.1, 0.3], [0.1 + 1e-17, 0.3], [0.3, 0.1], [0.5, 0.9]])
    X = np.concatenate([X, X[:1] + 1e-16])
    signed = np.array([[1.0], [-1.0], [1.0], [1.0], [-1.0]])
    node = LineNode(LineSearch(), X, signed, np.ones(5), agreement)
    for line in (node.single(), node.pair()):
        right = X[:, line.features] @ line.coefficient + line.intercept > 0
        assert right[0] == right[1] == right[4]


def test_weights_are_repeats():
    X, statistics, _, quality = problem("gini", n=30)
    times = np.random.default_rng(0).integers(1, 4, size=30)
    classes = (statistics > 0) * 1.0
    rows = np.repeat(np.arange(30), times)
    weighted = LineNode(LineSearch(), X, classes * times[:, None], times, quality).pair()
    repeated = LineNode(LineSearch(), X[rows], classes[rows], np.ones(len(rows)), quality).pair()
    assert weighted.features.tolist() == repeated.features.tolist()
    np.testing.assert_allclose(weighted.coefficient, repeated.coefficient)
    np.testing.assert_allclose(weighted.quality, repeated.quality)


@pytest.mark.parametrize(
    "wrong", [{"n_orientations": 1}, {"min_leaf": 0}, {"budget": -1}, {"max_pairs": 0}]
)
def test_numbers_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LineSearch(**wrong)


@pytest.mark.parametrize("criterion", [Entropy(), Gini()])
@pytest.mark.parametrize("min_leaf", [1, 5])
def test_sums_by_the_class_of_each_row_find_the_same_lines(criterion, min_leaf):
    rng = np.random.default_rng(0)
    label = rng.integers(40, size=400)
    X = rng.normal(size=(400, 4)) + rng.normal(size=(40, 4))[label]
    weights = rng.uniform(0.5, 2, size=400)
    statistics = np.eye(40)[label] * weights[:, None]
    search = LineSearch(n_orientations=6, min_leaf=min_leaf, budget=100.0)  # screens the pairs
    each = [
        LineNode(search, X, statistics, weights, planes.quality_of(criterion), classes=classes)
        for classes in (None, planes.RowClasses.of(statistics.T, criterion, 20))
    ]
    for find in ("single", "pair"):
        summed, by_row = (getattr(node, find)() for node in each)
        np.testing.assert_array_equal(by_row.features, summed.features)
        np.testing.assert_allclose(by_row.coefficient, summed.coefficient)
        assert by_row.intercept == pytest.approx(summed.intercept)
        assert by_row.quality == pytest.approx(summed.quality)


CORNERS = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])


def one_node(X, y, leaf=None, weights=None, **settings):
    data = Data.of(X, y, weights)
    splitter = BivariateSplitter(leaf or Categorical(int(y.max()) + 1), **settings)
    (split,) = splitter(data, [torch.arange(len(X))])
    return split


def test_rows_that_are_close_and_far_from_zero_are_told_apart():
    X = 1e4 + 1e-4 * np.arange(8)[:, None]  # single precision has steps of 1e-3 here
    right = one_node(X, np.repeat([0, 1], 4)).right
    assert right.tolist() in ([True] * 4 + [False] * 4, [False] * 4 + [True] * 4)


def entropy(*counts):
    rows = np.array([count for count in counts if count])
    return float(-(rows * np.log(rows / rows.sum())).sum())


def test_a_corner_by_hand():
    """One row of four: a feature leaves 1 of 2 wrong, the diagonal none."""
    y = np.array([0, 0, 0, 1])
    alone = one_node(CORNERS, y, max_features=1)
    assert alone.gain == pytest.approx(entropy(3, 1) - entropy(1, 1))
    both = one_node(CORNERS, y)
    assert both.gain == pytest.approx(entropy(3, 1))
    assert int((both.sites["hyperplane"] != 0).sum()) == 2
    assert both.right.tolist() in ([False, False, False, True], [True, True, True, False])


def test_a_pair_must_gain_its_penalty():
    """Corners of 1, 1, 1 and 4 rows, one of these of the other class: no split is pure."""
    X, y = CORNERS[[0, 1, 2, 3, 3, 3, 3]], np.array([0, 0, 0, 1, 1, 1, 0])
    # the feature parts 2 | 1 + 4, the diagonal 3 | 4
    more = entropy(2, 3) - entropy(1, 3)
    for penalty, n_features in ((more - 1e-6, 2), (more + 1e-6, 1), (math.inf, 1)):
        split = one_node(X, y, pair_penalty=penalty)
        assert int((split.sites["hyperplane"] != 0).sum()) == n_features


def test_values_are_split_by_squared_error():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    split = one_node(X, np.array([0.0, 0.1, 5.0, 5.1]), Gaussian())
    assert split.right.tolist() == [False, False, True, True]


def test_rows_that_do_not_differ_are_not_split():
    assert one_node(np.ones((4, 2)), np.array([0, 1, 0, 1])) is None


def test_gini_and_entropy_may_differ():
    counts = torch.tensor([[3.0, 1.0], [2.0, 2.0]])
    assert Gini().value(counts).tolist() == pytest.approx([-4 * (1 - 10 / 16), -4 * 0.5])
    assert -Entropy().value(counts)[0] == pytest.approx(entropy(3, 1))


@pytest.mark.parametrize("wrong", [{"max_features": 3}, {"pair_penalty": -1.0}])
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BivariateSplitter(Categorical(2), **wrong)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_axis_growth_and_pruning_are_those_of_scikit_learn(criterion):
    """The same leaves at the same price of a leaf: CART is the search by one feature."""
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:200, :6] + np.random.default_rng(0).normal(scale=1e-3, size=(200, 6))  # no ties
    y = y[:200]
    own = {"gini": Gini(), "entropy": Entropy()}[criterion]
    splitter = BivariateSplitter(Categorical(2), own, max_features=1)
    limits = GrowthLimits(max_depth=30, min_rows=2, min_leaf=1, min_gain=0)
    bits = math.log(2) if criterion == "entropy" else 1.0
    for alpha in (0.004, 0.012):

        def prune(tree, kept, alpha=alpha):
            return cost_complexity(tree, kept, alpha * bits, own)

        found = grow(
            named.bivariate(Categorical(2)),
            Data.of(X, y),
            splitter=splitter,
            limits=limits,
            prune=prune,
        )
        theirs = DecisionTreeClassifier(criterion=criterion, ccp_alpha=alpha, random_state=0)
        assert found.model.topology.n_leaves == theirs.fit(X, y).get_n_leaves() > 2


def test_pruning_by_hand():
    """Sixteen rows, seven of class 1, which lie in two groups of four: 0, 1, 1, 1 and all 1.

    The sums of Gini impurity are 7.875 at the root, 0 on its left and 1.75 on its right, whose
    sides have 1.5 and 0: a lower split saves 0.25 of 16 rows, the one above it 6.125.
    """
    X = np.array([[0.0]] * 8 + [[1.0]] * 4 + [[2.0]] * 4)
    y = np.array([0] * 9 + [1] * 7)
    tree = GrowingTree(named.bivariate(Categorical(2)), Data.of(X, y))
    splitter = BivariateSplitter(Categorical(2), Gini(), max_features=1)
    for i in (0, 2):
        (split,) = splitter(tree.data, [tree.nodes[i].rows])
        tree.branch(i, split)
    lower, upper = 0.25 / 16, 6.125 / 16
    for alpha, kept in ((lower - 1e-6, {0, 2}), (lower + 1e-6, {0}), (upper - 1e-6, {0})):
        assert cost_complexity(tree, {0, 2}, alpha, Gini()) == kept
    assert cost_complexity(tree, {0, 2}, upper + 1e-6, Gini()) == set()
    assert cost_complexity(tree, {0}, 0.0, Gini()) == {0}


# TAO's reduced problem.


def care_set(seed=0, n=24, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    right = X[:, 0] + X[:, 1] + rng.normal(scale=0.8, size=n) > 0
    return X, right, rng.uniform(0.5, 2.0, size=n)


def least(X, right, weight, groups, directions):
    """The least weighted 0/1 loss by brute force, both sides of each line."""
    mean = np.average(X, axis=0, weights=weight)
    z = (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    best = math.inf
    for group in groups:
        for direction in directions:
            value = z[:, list(group)] @ direction
            for cut in (np.sort(value)[1:] + np.sort(value)[:-1]) / 2:
                wrong = weight[(value > cut) != right].sum()
                best = min(best, wrong, weight.sum() - wrong)
    return best


def nothing(d=3):
    return NodeSplit(np.ones(d), 1e6)  # three features: never what the solver returns


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [0.0, 0.7, 2.0, 50.0])
def test_the_least_penalised_loss(seed, rate):
    X, right, weight = care_set(seed)
    search = LineSearch(n_orientations=6)
    solver = LineSolver(rate, 1.3, search)
    one = least(X, right, weight, [(j,) for j in range(3)], [np.ones(1)])
    two = least(X, right, weight, list(combinations(range(3), 2)), search.orientations())
    none = min(weight[right].sum(), weight[~right].sum())
    split = solver(X, right, weight, nothing())
    objective = reduced_loss(split, X, right, weight) + solver.penalty(split)
    assert objective == pytest.approx(min(none, one + rate, two + 1.3 * rate))


def test_the_price_decides_between_none_one_and_two_features():
    """Corners with weights: none costs 1, one feature 0.4 + rate, two 1.1 rate."""
    right, weight = np.array([False, False, False, True]), np.array([1.0, 1.0, 0.4, 1.0])
    for rate, n_features in ((0.3, 2), (0.799, 2), (0.55, 2), (0.95, 0)):
        split = LineSolver(rate, 1.1)(CORNERS, right, weight, nothing(2))
        assert np.count_nonzero(split.hyperplane) == n_features
    # at C = 2 two features cost 2 rate: one is cheaper where 0.4 + rate < 2 rate
    split = LineSolver(0.5, 2.0)(CORNERS, right, weight, nothing(2))
    assert np.count_nonzero(split.hyperplane) == 1
    assert not split.goes_right(CORNERS)[:2].any()


def test_a_pair_may_be_cheaper_than_a_feature():
    right, weight = np.array([False, False, False, True]), np.array([1.0, 1.0, 0.4, 1.0])
    # one feature costs more than to give up (1), two cost 0.6
    split = LineSolver(1.2, 0.5)(CORNERS, right, weight, nothing(2))
    assert np.count_nonzero(split.hyperplane) == 2
    np.testing.assert_array_equal(split.goes_right(CORNERS), right)


def test_of_equal_objectives_the_fewer_features():
    X = np.array([[0.0, 0.0], [1.0, 1.0]])
    split = LineSolver()(X, np.array([False, True]), np.ones(2), nothing(2))
    assert np.count_nonzero(split.hyperplane) == 1
    even = LineSolver(1.0)(X, np.array([False, True]), np.ones(2), nothing(2))
    assert np.count_nonzero(even.hyperplane) == 0  # 1 for a feature, 1 for a wrong row


def test_either_side_may_be_the_right_one():
    X = np.arange(6.0)[:, None]
    for right in (X[:, 0] > 2, X[:, 0] < 3):
        split = LineSolver()(X, right, np.ones(6), NodeSplit(np.zeros(1), 1.0))
        assert (split.goes_right(X) == right).all()


def test_the_present_split_stays_where_nothing_is_better():
    X, _, weight = care_set(n=200)
    right = X[:, 0] > 0.01
    now = NodeSplit(np.array([1.0, 0.0, 0.0]), -0.01)
    assert LineSolver(0.1)(X, right, weight, now) is now
    # off the grid of orientations, and better than all that are on it
    fine = NodeSplit(np.array([1.0, 0.5, 0.0]), 0.0)
    right = fine.goes_right(X)
    assert LineSolver(search=LineSearch(n_orientations=2))(X, right, weight, fine) is fine


def test_prices_below_zero():
    with pytest.raises(ValueError, match="rate"):
        LineSolver(rate=-1.0)
    with pytest.raises(ValueError, match="pair"):
        LineSolver(pair=-1.0)


def features_used(clf):
    return (clf.tree_.hyperplane != 0).sum(axis=1)


@pytest.mark.portable
def test_two_features_a_node_make_a_smaller_tree():
    X, y = load_breast_cancer(return_X_y=True)
    both, alone = (
        BivariateTreeClassifier(pair_penalty=penalty, min_gain=0).fit(X[::2], y[::2])
        for penalty in (2.0, math.inf)
    )
    assert (features_used(both) <= 2).all()
    assert (features_used(alone) == 1).all()
    assert both.get_n_leaves() < alone.get_n_leaves()
    assert both.score(X[::2], y[::2]) == 1.0
    errors, of_one = (one.predict(X[1::2]) != y[1::2] for one in (both, alone))
    assert z_score(errors.astype(int) - of_one) < 4


def test_units_do_not_matter():
    X, y = load_wine(return_X_y=True)
    factor = 10.0 ** np.arange(-6, 7)
    found = [BivariateTreeClassifier().fit(rows, y) for rows in (X, X * factor + factor)]
    np.testing.assert_array_equal(found[0].apply(X), found[1].apply(X * factor + factor))
    np.testing.assert_allclose(
        found[0].tree_.hyperplane, found[1].tree_.hyperplane * factor, rtol=1e-6
    )


def test_limits_hold():
    X, y = load_wine(return_X_y=True)
    clf = BivariateTreeClassifier(max_depth=2, min_leaf=20).fit(X, y)
    assert clf.get_depth() <= 2
    assert clf.tree_.leaf_rows.min() >= 20
    assert BivariateTreeClassifier(max_leaves=3).fit(X, y).get_n_leaves() == 3


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_a_price_of_leaves_prunes():
    X, y = load_breast_cancer(return_X_y=True)
    leaves = [
        BivariateTreeClassifier(ccp_alpha=alpha, criterion="gini").fit(X, y).get_n_leaves()
        for alpha in (0.0, 0.01, 1.0)
    ]
    assert leaves[0] > leaves[1] > leaves[2] == 1


def test_the_soft_tree_of_the_posterior_is_the_tree():
    X, y = load_iris(return_X_y=True)
    clf = BivariateTreeClassifier(max_depth=3).fit(X, y)
    soft = clf.posterior_.leaf_probs(
        clf.fitted_.scaling.standardise(X), clf.posterior_.point_sites()
    )
    assert set(np.unique(soft)) == {0.0, 1.0}
    np.testing.assert_array_equal(soft.argmax(axis=1), clf.apply(X))


@pytest.mark.portable
def test_grid_search():
    X, y = load_iris(return_X_y=True)
    grid = {"ccp_alpha": [0.0, 0.05], "pair_penalty": [2.0, 10.0]}
    search = GridSearchCV(BivariateTreeClassifier(max_depth=3), grid, cv=3).fit(X, y)
    assert search.best_score_ > at_least(0.95, len(X))  # as good as CART


@pytest.mark.parametrize(
    "wrong", [{"n_orientations": 1}, {"criterion": "log"}, {"pair_penalty": -1}, {"ccp_alpha": -1}]
)
def test_parameters_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BivariateTreeClassifier(**wrong).fit([[0.0], [1.0]], [0, 1])
