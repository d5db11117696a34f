"""Alternating decision forests."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import bayestree
from bayestree import AlternatingDecisionForestClassifier

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


def test_one_file_holds_it_all(forest, tmp_path):
    X, _ = load_iris(return_X_y=True)
    forest.save(tmp_path / "forest.safetensors")
    loaded = bayestree.load(tmp_path / "forest.safetensors")
    assert loaded.get_params() == forest.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X), forest.predict_proba(X))
    assert bayestree.export_text(loaded) == bayestree.export_text(forest)


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
