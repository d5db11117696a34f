"""Alternating decision forests: weights by hand, and a depth that they change."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import bayestree
from bayestree import AlternatingDecisionForestClassifier
from bayestree.inference import Data, GrowthLimits, grow
from bayestree.inference.splitters.planes import PlaneSplitter
from bayestree.literature.forests import AlternatingForest, RandomAxes, margin_weights
from bayestree.models import Categorical, named

LIMITS = GrowthLimits(max_depth=2, min_rows=2, min_leaf=1, min_gain=0)


def test_weights_by_hand():
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
    # margins .7 - .2, .2 - .7 and .5 - .25
    found = margin_weights(probabilities, torch.tensor([0, 1, 2]))
    expected = 1 / (1 + np.exp(3 * np.array([0.5, -0.5, 0.25])))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_weights_change_the_second_depth():
    # The first feature has 16 rows of class 0 on the left, 12 of class 1 and 4 of class 0 on the
    # right. There, the second feature parts 7 rows of class 1, and the third 2 of class 0.
    first, second, third = np.repeat([[0.0], [1.0]], 16, axis=0), np.zeros(32), np.zeros(32)
    y = np.repeat([0, 1, 0], [16, 12, 4])
    second[16:23], third[30:] = 1.0, 1.0
    X = np.column_stack([first, second, third])
    model, data = named.oblique(Categorical(2)), Data.of(X, y)

    def used(posterior):
        return np.abs(posterior.point["hyperplane"][:, 0]).argmax(axis=1).tolist()

    # gains on the right: 12 ln 12 + 4 ln 4 - 16 ln 16 = -9.0 rises to -6.2 by the second feature
    # and to -5.7 by the third
    plain = grow(
        model,
        data,
        limits=LIMITS,
        splitter=PlaneSplitter(RandomAxes(n_features=3), model.leaf),
        random_state=0,
    )
    assert used(plain) == [0, 2]
    # margins of 1/2 and -1/2: 12 rows weigh .18, and 4 of them .82; -3.7 rises to -2.2 and to -2.6
    whole = AlternatingForest(max_features=3)
    (tree,) = whole.fit(model, data, n_trees=1, limits=LIMITS, random_state=0)
    assert used(tree) == [0, 1]
    # the shares of the rows, whatever weights chose the splits
    counts = np.array([[16, 0], [4, 5], [0, 7]]) + 0.5
    np.testing.assert_allclose(tree.point["leaf_probs"], counts / counts.sum(1, keepdims=True))


def test_weights_follow_from_the_present_margins_alone():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] * X[:, 1] + rng.normal(size=300) > 0).astype(int)
    parts = {"max_features": 1, "random_state": 0}
    before, after = (
        AlternatingDecisionForestClassifier(8, max_depth=depth, **parts).fit(X, y)
        for depth in (2, 3)
    )
    # the share of class 1 in the leaf of each row, and its mean over the trees
    each = [np.array([y[own == one].mean() for one in own]) for own in before.apply(X).T]
    share = torch.tensor(np.mean(each, axis=0))
    weights = margin_weights(torch.stack((1 - share, share), 1), torch.tensor(y))
    splitter = PlaneSplitter(RandomAxes(), Categorical(2))
    for tree in (one.tree_ for one in after.estimators_):
        for node, rows, right in tree.walk(X):
            if tree.topology.node_depth[node] == 2:
                column = np.flatnonzero(tree.hyperplane[node])
                (split,) = splitter(Data.of(X[:, column], y, weights), [torch.tensor(rows)])
                np.testing.assert_array_equal(split.right, right)


def test_rows_of_larger_weight_count_as_copies_at_every_depth():
    rng = np.random.default_rng(0)
    X, copies = rng.normal(size=(80, 3)), rng.integers(1, 9, size=80)
    y = (X[:, 0] * X[:, 1] + rng.normal(size=80) > 0).astype(int)
    model, whole = named.oblique(Categorical(2)), AlternatingForest(max_features=2)
    limits = GrowthLimits(max_depth=3, min_rows=2, min_leaf=1, min_gain=0)
    forests = [
        whole.fit(model, data, n_trees=2, limits=limits, random_state=0)
        for data in (Data.of(X, y, copies * 1.0), Data.of(X.repeat(copies, 0), y.repeat(copies)))
    ]
    for one, other in zip(*forests, strict=True):
        for name, value in one.point.items():
            np.testing.assert_allclose(value, other.point[name], rtol=1e-5)


def test_the_roots_are_split_without_weights():
    # Of 24 rows of class 0 and 8 of class 1, the first feature parts 6 of class 1, which gains 10.9
    # nats, the second 18 of class 0, which gains 8.4. With rows of class 1 weighted by the margins
    # of the shares, 4.5 times as much, it would be the second: 21.0 and 23.1.
    first, second = np.zeros(32), np.zeros(32)
    y = np.repeat([0, 1], [24, 8])
    first[-6:], second[:18] = 1.0, 1.0
    model, data = named.oblique(Categorical(2)), Data.of(np.column_stack([first, second]), y)
    limits = GrowthLimits(max_depth=1, min_rows=2, min_leaf=1, min_gain=0)
    whole = AlternatingForest(max_features=2)
    (tree,) = whole.fit(model, data, n_trees=1, limits=limits, random_state=0)
    np.testing.assert_array_equal(tree.point["hyperplane"][:, 0], [[1.0, 0.0]])


def test_trees_grow_until_they_are_pure():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = rng.integers(3, size=150)
    limits = GrowthLimits(max_depth=30, min_rows=2, min_leaf=1, min_gain=0)
    model = named.oblique(Categorical(3))
    method = AlternatingForest(max_features=2)
    forest = method.fit(model, Data.of(X, y), n_trees=3, limits=limits, random_state=0)
    assert len({tree.model.topology.children.tobytes() for tree in forest}) == 3
    for tree in forest:
        found = tree.predictive(X)[0].argmax(axis=1)
        assert (found == y).all()
        assert (np.count_nonzero(tree.point["hyperplane"][:, 0], axis=1) == 1).all()


QUICK = {"n_estimators": 5, "max_depth": 4, "random_state": 0}


@pytest.fixture(scope="module")
def forest():
    return AlternatingDecisionForestClassifier(**QUICK).fit(*load_iris(return_X_y=True))


def test_it_predicts_the_mean_of_its_trees(forest):
    X, y = load_iris(return_X_y=True)
    by_tree = [tree.predict_proba(X) for tree in forest.estimators_]
    np.testing.assert_allclose(forest.predict_proba(X), np.mean(by_tree, axis=0))
    assert forest.score(X, y) > max(tree.score(X, y) for tree in forest.estimators_) - 0.02
    assert forest.get_depth() == 4
    assert forest.apply(X).shape == (150, 5)


@pytest.mark.portable
def test_random_features_make_it_better_than_its_trees():
    rng = np.random.default_rng(0)

    def drawn(n):
        X = rng.normal(size=(n, 10))
        return X, (X.sum(axis=1) + rng.normal(size=n) > 0).astype(int)

    X_new, y_new = drawn(4000)
    found = AlternatingDecisionForestClassifier(10, max_depth=8, random_state=0).fit(*drawn(500))
    # four standard errors of a share on 4,000 rows, of trees that err independently
    best = max(tree.score(X_new, y_new) for tree in found.estimators_)
    assert found.score(X_new, y_new) > best + 4 * np.sqrt(0.25 / 4000)


def test_a_number_of_features():
    X, y = load_iris(return_X_y=True)
    every = AlternatingDecisionForestClassifier(2, max_features=None, max_depth=3).fit(X, y)
    first, second = (tree.tree_ for tree in every.estimators_)
    np.testing.assert_array_equal(first.hyperplane, second.hyperplane)
    with pytest.raises(ValueError, match="max_features"):
        AlternatingDecisionForestClassifier(max_features=0).fit(X, y)


def test_when_no_tree_splits():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(bayestree.SingleLeafWarning, match="every tree: .*lower min_leaf"):
        AlternatingDecisionForestClassifier(2, min_leaf=80).fit(X, y)


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_nodes_of_equal_rows_with_several_classes():
    X, y = np.repeat(np.eye(3), 10, axis=0), np.arange(30) % 2
    found = AlternatingDecisionForestClassifier(2, random_state=0).fit(X, y)
    np.testing.assert_allclose(found.predict_proba(X), 0.5)
