"""Weighted oblique trees as estimators."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import bayestree
from bayestree import WeightedObliqueTreeClassifier


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


def test_a_seed_gives_one_tree():
    X, y = load_iris(return_X_y=True)
    first, again, other = (
        WeightedObliqueTreeClassifier(random_state=seed).fit(X, y).tree_.hyperplane
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_units_of_the_features_do_not_matter():
    X, y = load_iris(return_X_y=True)
    moved = X * 1000 - 7
    first = WeightedObliqueTreeClassifier(random_state=0).fit(X, y)
    other = WeightedObliqueTreeClassifier(random_state=0).fit(moved, y)
    np.testing.assert_array_equal(first.predict(X), other.predict(moved))
    scaled = first._standardise(X)
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
    mean, _ = clf.posterior_.predictive(clf._standardise(X))
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
