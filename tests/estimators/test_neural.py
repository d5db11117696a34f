"""Forests of soft neural trees."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import bayestree
from bayestree import NeuralDecisionForestClassifier, NeuralDecisionForestRegressor

QUICK = {"max_depth": 3, "epochs": 15, "learning_rate": 0.1, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def forest(rows):
    return NeuralDecisionForestClassifier(3, **QUICK).fit(*rows)


def test_it_predicts_the_mean_of_its_soft_trees(rows, forest):
    X, _ = rows
    soft = [tree.posterior_.predictive(tree._standardise(X))[0] for tree in forest.estimators_]
    np.testing.assert_allclose(forest.predict_proba(X), np.mean(soft, axis=0))
    hard = [tree.tree_.predict(X) for tree in forest.estimators_]
    assert np.abs(forest.predict_proba(X) - np.mean(hard, axis=0)).max() > 0.05


def test_every_tree_is_complete_and_starts_elsewhere(rows, forest):
    assert all(tree.posterior_.model.topology.n_leaves == 8 for tree in forest.estimators_)
    first, second, *_ = (tree.posterior_.point["hyperplane"] for tree in forest.estimators_)
    assert not np.allclose(first, second)
    assert forest.get_depth() <= 3


def test_one_file_holds_it_all(rows, forest, tmp_path):
    X, _ = rows
    forest.save(tmp_path / "forest.safetensors")
    loaded = bayestree.load(tmp_path / "forest.safetensors")
    assert loaded.get_params() == forest.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X), forest.predict_proba(X))


def test_text_shows_the_deterministic_trees(forest):
    text = bayestree.export_text(forest)
    assert text.startswith("tree 1 of 3: ")
    assert bayestree.export_text(forest.estimators_[2]) in text


@pytest.mark.portable
def test_it_finds_a_circle():
    rng = np.random.default_rng(0)

    def drawn(n):
        X = rng.uniform(-1, 1, size=(n, 2))
        return X, (np.hypot(*X.T) < 0.75).astype(int)

    settings = QUICK | {"epochs": 25, "batch_size": 100, "leaf_steps": 1}
    found = NeuralDecisionForestClassifier(2, **settings).fit(*drawn(600))
    # the square inscribed in the circle leaves (pi - 2) .75^2 / 4 = 16 % wrong
    assert found.score(*drawn(4000)) > 0.84


def test_numbers():
    X, y = load_diabetes(return_X_y=True)
    reg = NeuralDecisionForestRegressor(2, **QUICK).fit(X, y)
    soft = [tree.predict(X) for tree in reg.estimators_]
    np.testing.assert_allclose(reg.predict(X), np.mean(soft, axis=0))
    assert reg.score(X, y) > 0.3
    low, high = reg.predict_interval(X, 0.9)
    inside = np.mean((low <= y) & (y <= high))
    assert 0.85 < inside < 0.97
    shifted = NeuralDecisionForestRegressor(2, **QUICK).fit(X, 100 * y + 7)
    # rounding differs, and gradient steps carry it on
    np.testing.assert_allclose(shifted.predict(X), 100 * reg.predict(X) + 7, rtol=1e-3)


def test_limits(rows):
    with pytest.raises(ValueError, match="max_depth"):
        NeuralDecisionForestClassifier(max_depth=13).fit(*rows)
    single = NeuralDecisionForestClassifier(2, **QUICK | {"max_depth": 0}).fit(*rows)
    np.testing.assert_allclose(single.predict_proba(rows[0]), 1 / 3, atol=1e-6)
