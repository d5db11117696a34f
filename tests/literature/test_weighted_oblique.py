"""Weighted entropy: worked values, the gradient, and the gain of a split."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import bayestree
from bayestree import WeightedObliqueTreeClassifier
from bayestree.inference import Data, GrowthLimits, grow
from bayestree.literature.weighted_oblique import WeightedCriterion, WeightedSplitter
from bayestree.models import Categorical, Flat, Gaussian, LinearGaussian, Oblique, Priors, SoftTree
from bayestree.models.named import weighted_oblique
from bayestree.topology import Topology
from tests.inference.problems import normal, quadrants

FULL = GrowthLimits(max_depth=50, min_rows=0, min_leaf=1, min_gain=0.0)


def problem(n=60, d=4, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1, 1, (n, d)), rng.integers(n_classes, size=n)
    return X, y, rng.uniform(0.5, 2, n), rng.normal(size=d + 1)


def entropy_of(X, y, weights=None):
    leaf, rows = Categorical(int(y.max()) + 1), Data.of(X, y, weights)
    return WeightedCriterion(X, leaf.statistics(rows.y, rows.weights).double(), leaf.criterion)


def differences(criterion, theta, step=1e-6):
    steps = step * np.eye(len(theta))
    return np.array([(criterion(theta + h)[0] - criterion(theta - h)[0]) / 2 / step for h in steps])


def printed_gradient(X, y, theta):
    """Eq. 2 as the paper prints it, in nats."""
    p = 1 / (1 + np.exp(-(X @ theta[:-1] + theta[-1])))
    right = np.bincount(y, p)
    left = np.bincount(y, 1 - p)
    beta = (p * (1 - p))[:, None] * np.column_stack((X, np.ones(len(X))))
    return np.log(right.sum() / left.sum()) * (beta * np.log(left / right)[y][:, None]).sum(0)


class TestCriterion:
    def test_value_by_hand(self):
        # p = 3/4 and 1/4: W_R of class 0 and 1 is 3/4 and 1/4, W_L the reverse, and each child
        # of weight 1 has the entropy of a coin of 1/4
        criterion = entropy_of(np.array([[1.0], [-1.0]]), np.array([0, 1]))
        value, _ = criterion(np.array([math.log(3), 0.0]))
        assert value == pytest.approx(2 * (math.log(4) - 0.75 * math.log(3)))

    def test_gradient_by_hand(self):
        # beta = 3/16 (1, 1) and 3/16 (-1, 1), W_R = W_L = 1, logs of ratios -log 3 and log 3
        criterion = entropy_of(np.array([[1.0], [-1.0]]), np.array([0, 1]))
        _, gradient = criterion(np.array([math.log(3), 0.0]))
        np.testing.assert_allclose(gradient, [-6 / 16 * math.log(3), 0.0], atol=1e-12)

    def test_gradient_is_that_of_the_value(self):
        X, y, weights, theta = problem()
        for criterion in (entropy_of(X, y), entropy_of(X, y, weights)):
            gradient = criterion(theta)[1]
            np.testing.assert_allclose(gradient, differences(criterion, theta), atol=1e-6)

    def test_eq_2_as_printed_is_not_the_gradient(self):
        X, y, _, theta = problem()
        criterion = entropy_of(X, y)
        assert np.abs(printed_gradient(X, y, theta) - differences(criterion, theta)).max() > 0.1

    def test_gradient_vanishes_at_zero(self):
        X, y, weights, theta = problem()
        np.testing.assert_allclose(entropy_of(X, y, weights)(0 * theta)[1], 0, atol=1e-12)

    def test_weights_are_copies_of_rows(self):
        X, y, _, theta = problem()
        times = np.arange(len(y)) % 3
        value, gradient = entropy_of(X, y, times.astype(float))(theta)
        value2, gradient2 = entropy_of(np.repeat(X, times, 0), np.repeat(y, times))(theta)
        assert value == pytest.approx(value2)
        np.testing.assert_allclose(gradient, gradient2)

    def test_it_is_minus_the_mutual_information_of_a_stump(self):
        X, y, weights, theta = problem()
        model = SoftTree(
            Topology.stump(), Oblique(), Priors(hyperplane=Flat()), Categorical(3),
            "mutual-information",
        )  # fmt: skip
        sites = {
            "hyperplane": torch.tensor(theta[None, None, :-1]),
            "intercept": torch.tensor(theta[None, -1:]),
        }
        rows = Data.of(X, y, weights)
        nats = model.log_joint(sites, rows.X, rows.y, rows.weights)
        value, _ = entropy_of(X, y, weights)(theta)
        assert value == pytest.approx(-float(nats))

    def test_far_away_nothing_is_infinite(self):
        X, y, weights, theta = problem()
        for size in (1e2, 1e5, 1e9):
            value, gradient = entropy_of(X, y, weights)(size * theta)
            assert np.isfinite(value)
            assert np.isfinite(gradient).all()

    def test_gain_of_a_hard_split(self):
        # 4 rows halved into pure sides gain 4 log 2; a split that tells nothing gains 0
        criterion = entropy_of(np.zeros((4, 1)), np.array([0, 0, 1, 1]))
        assert criterion.gain(np.array([False, False, True, True])) == pytest.approx(
            4 * math.log(2)
        )
        assert criterion.gain(np.array([False, True, False, True])) == 0.0


class TestOtherLeaves:
    """The weighted criterion of leaves other than class probabilities."""

    def of(self, leaf, weights=None):
        X, _, drawn, theta = problem(d=2)
        data = Data.of(X, X[:, 0] ** 2 + theta[0] * X[:, 1], drawn if weights is None else weights)
        statistics = leaf.statistics(data.for_leaf(leaf).y, data.weights)
        return WeightedCriterion(X, statistics, leaf.criterion), data, theta

    @pytest.mark.parametrize("leaf", [Gaussian(), LinearGaussian()], ids=["mean", "line"])
    def test_gradient_is_that_of_the_value(self, leaf):
        criterion, _, theta = self.of(leaf)
        for size in (0.1, 1.0, 10.0):
            value, gradient = criterion(size * theta)
            assert np.isfinite(value)
            expected = differences(criterion, size * theta)
            np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)

    def test_it_is_the_weighted_variance_of_the_children(self):
        criterion, data, theta = self.of(Gaussian())
        y, weights = data.y.numpy(), data.weights.numpy()
        right = weights / (1 + np.exp(-(data.X.numpy() @ theta[:-1] + theta[-1])))
        squares = 0.0
        for side in (right, weights - right):
            squares += side @ (y - np.average(y, weights=side)) ** 2
        expected = 0.5 * weights.sum() * np.log(squares / weights.sum())
        assert criterion(theta)[0] == pytest.approx(expected)

    def test_its_gain_is_that_of_the_leaves(self):
        criterion, data, _ = self.of(Gaussian())
        y, weights = data.y.numpy(), data.weights.numpy()
        right = data.X[:, 1].numpy() > 0
        squares = [
            weights[s] @ (y[s] - np.average(y[s], weights=weights[s])) ** 2
            for s in (right, ~right, right | ~right)
        ]
        expected = 0.5 * weights.sum() * np.log(squares[2] / (squares[0] + squares[1]))
        assert criterion.gain(right) == pytest.approx(expected)

    @pytest.mark.parametrize("leaf", [Gaussian(), LinearGaussian()], ids=["mean", "line"])
    def test_far_away_nothing_is_infinite(self, leaf):
        criterion, _, theta = self.of(leaf)
        for size in (1e2, -1e2, 1e5, -1e5, 1e9, -1e9):
            value, gradient = criterion(size * theta)
            assert np.isfinite(value)
            assert np.isfinite(gradient).all()


class TestSplitter:
    def fitted(self, data, **settings):
        torch.manual_seed(0)
        everyone = torch.arange(len(data.X))
        return WeightedSplitter(Categorical(2), **settings)(
            data, [everyone, everyone[: len(data.X) // 2]]
        )

    def test_separable_rows_are_separated(self):
        X = normal(200, 3)
        y = (X @ torch.tensor([1.0, -2.0, 0.5], dtype=X.dtype) > 0.3).long()
        whole, half = self.fitted(Data.of(X, y), max_iter=100)
        for split, n in ((whole, 200), (half, 100)):
            assert len(split.right) == n
            agree = (split.right.long() == y[:n]).double().mean()
            assert max(agree, 1 - agree) == 1.0

    def test_sides_and_gain_are_those_of_the_numbers_kept(self):
        data = quadrants()
        for dtype in (torch.float32, torch.float64):
            split = self.fitted(data._replace(X=data.X.to(dtype)))[0]
            assert split.sites["hyperplane"].dtype == dtype
            scores = data.X.to(dtype) @ split.sites["hyperplane"][0] + split.sites["intercept"]
            assert ((scores > 0) == split.right).double().mean() > 0.995  # rounding near 0
            sides = [
                torch.bincount(data.y[split.right == side], minlength=2).double() for side in (0, 1)
            ]
            whole = torch.bincount(data.y).double()
            left = sum(float(torch.special.xlogy(s, s / s.sum()).sum()) for s in sides)
            gain = left - float(torch.special.xlogy(whole, whole / whole.sum()).sum())
            assert split.gain == pytest.approx(gain, abs=1e-9)

    def test_rows_that_are_alike_give_no_split(self):
        data = Data.of(np.ones((10, 2)), np.arange(10) % 2)
        assert self.fitted(data) == [None, None]

    def test_min_leaf(self):
        X = np.concatenate([np.zeros(30), np.ones(3)])[:, None]
        data = Data.of(X, (X[:, 0] > 0).astype(int))
        assert self.fitted(data, max_iter=100)[0] is not None
        assert self.fitted(data, max_iter=100, min_leaf=4)[0] is None


def test_a_tree_grows_until_its_leaves_are_pure():
    X, y, _, _ = problem(n=200)
    data = Data.of(X, y)
    splitter = WeightedSplitter(Categorical(3))
    found = grow(
        weighted_oblique(Categorical(3)), data, splitter=splitter, limits=FULL, random_state=0
    )
    steep = found.model.with_(steepness=math.inf, likelihood="misclassification")
    assert float(steep.log_likelihood(found.point_sites(), data.X, data.y)) == 0.0
    again = grow(
        weighted_oblique(Categorical(3)), data, splitter=splitter, limits=FULL, random_state=0
    )
    np.testing.assert_array_equal(found.point["hyperplane"], again.point["hyperplane"])


def noise(n=1500, d=4, seed=0):
    """Labels that tell nothing: a tree to pure leaves has about a leaf for every third row."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(2, size=n)


@pytest.mark.portable
@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_it_reads_digits():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    clf = WeightedObliqueTreeClassifier(min_gain=0, random_state=0).fit(X, y)
    assert clf.score(X, y) == 1.0  # grown to pure leaves
    cart = DecisionTreeClassifier(random_state=0).fit(X, y)
    assert clf.score(X_test, y_test) > cart.score(X_test, y_test)  # by a tenth, five errors
    assert clf.get_n_leaves() < cart.get_n_leaves()


def test_units_of_the_features_do_not_matter():
    X, y = load_iris(return_X_y=True)
    moved = X * 1000 - 7
    first = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    other = WeightedObliqueTreeClassifier(random_state=0).fit(moved, y)
    np.testing.assert_array_equal(first.predict(X), other.predict(moved))
    scaled = first.fitted_.scaling.standardise(X)
    np.testing.assert_allclose([scaled.min(0), scaled.max(0)], np.outer([-1, 1], np.ones(4)))


def test_limits():
    X, y = noise(300)

    def grown(**limits):
        return WeightedObliqueTreeClassifier(**{"min_gain": 0} | limits, random_state=0).fit(X, y)

    assert grown(max_depth=3).get_depth() == 3
    assert grown(max_leaves=9).get_n_leaves() == 9
    assert grown(min_gain=1).get_n_leaves() < grown().get_n_leaves()
    clf = grown(min_leaf=20)
    assert clf.tree_.leaf_rows.min() >= 20


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_rows_that_cannot_be_parted_share_a_leaf():
    X, y = np.zeros((10, 2)), np.arange(10) % 2
    clf = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    assert clf.get_n_leaves() == 1
    np.testing.assert_allclose(clf.predict_proba(X), 0.5)


def test_the_posterior_is_the_deterministic_tree():
    X, y = load_iris(return_X_y=True)
    clf = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    assert clf.posterior_.model.steepness == np.inf
    assert clf.posterior_.settings["max_iter"] == 20
    mean, _ = clf.posterior_.predictive(clf.fitted_.scaling.standardise(X))
    np.testing.assert_array_equal(mean.argmax(axis=1), clf.predict(X))


@pytest.fixture(scope="module")
def wide():
    X, y = noise()
    return X, WeightedObliqueTreeClassifier(min_gain=0, random_state=0).fit(X, y)


def test_nothing_on_the_way_holds_nodes_times_leaves(wide, tmp_path):
    X, clf = wide
    assert clf.get_n_leaves() > 200
    path = clf.decision_path(X[:50])
    assert path.shape == (50, 2 * clf.get_n_leaves() - 1)
    assert bayestree.export_text(clf).count("leaf,") == clf.get_n_leaves()
    clf.save(tmp_path / "tree.safetensors")
    loaded = bayestree.load(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    for topology in (clf.tree_.topology, clf.posterior_.model.topology, loaded.tree_.topology):
        assert "turns" not in vars(topology)


def test_a_decision_path_names_every_node_above_the_leaf(wide):
    X, clf = wide
    topology, leaf = clf.tree_.topology, clf.apply(X[:20])
    passed = clf.decision_path(X[:20]).toarray()[:, : topology.n_nodes]
    np.testing.assert_array_equal(passed.sum(axis=1), topology.leaf_depth[leaf])
    for row, at in zip(passed, topology.leaf_parent[leaf], strict=True):
        node = at
        while node >= 0:
            assert row[node]
            node = topology.node_parent[node]
