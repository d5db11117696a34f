"""Forests of end-to-end trees."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

import bayestree
from bayestree import EndToEndForestClassifier, EndToEndTreeClassifier

# Some pixels of the digits are always white.
pytestmark = pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")

QUICK = {"max_depth": 4, "epochs": 5, "learning_rate": 0.02, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, stratify=y, random_state=0)


@pytest.fixture(scope="module")
def forest(digits):
    X, _, y, _ = digits
    return EndToEndForestClassifier(3, **QUICK).fit(X, y)


def test_it_predicts_the_mean_of_its_trees(digits, forest):
    _, X, _, _ = digits
    by_tree = [tree.predict_proba(X) for tree in forest.estimators_]
    np.testing.assert_allclose(forest.predict_proba(X), np.mean(by_tree, axis=0))
    np.testing.assert_array_equal(
        forest.predict(X), forest.classes_[forest.predict_proba(X).argmax(axis=1)]
    )


@pytest.mark.portable
def test_it_is_better_than_its_trees(digits):
    X, X_test, y, y_test = digits
    settings = {"max_depth": 6, "epochs": 10, "learning_rate": 0.03, "dtype": "float32"}
    forest = EndToEndForestClassifier(4, random_state=0, **settings).fit(X, y)
    alone = [tree.score(X_test, y_test) for tree in forest.estimators_]
    assert forest.score(X_test, y_test) > max(alone)


def test_every_split_keeps_to_its_features(digits, forest):
    subsets = forest.feature_subsets_
    assert [len(subset) for subset in subsets] == [t.tree_.n_nodes for t in forest.estimators_]
    assert max(subset.sum(axis=1).max() for subset in subsets) == 7  # of the 60 that vary
    assert not np.array_equal(subsets[0][0], subsets[1][0])
    X, _, y, _ = digits
    patches = EndToEndForestClassifier(
        2, image_shape=(8, 8), patch_size=(3, 3), **QUICK | {"max_depth": 2}
    ).fit(X, y)
    for subset in patches.feature_subsets_:
        for image in subset.reshape(-1, 8, 8):
            rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
            assert np.ptp(rows) < 3
            assert np.ptp(columns) < 3


def test_all_features(digits):
    X, _, y, _ = digits
    forest = EndToEndForestClassifier(1, max_features=None, **QUICK | {"max_depth": 1}).fit(X, y)
    varies = np.ptp(X, axis=0) > 0
    assert forest.feature_subsets_[0][:, varies].all()


def test_the_numbers_are_the_same_for_any_n_jobs():
    X, y = load_iris(return_X_y=True)
    alone, together = (EndToEndForestClassifier(2, n_jobs=n, **QUICK).fit(X, y) for n in (1, 2))
    for first, second in zip(alone.estimators_, together.estimators_, strict=True):
        np.testing.assert_array_equal(first.tree_.hyperplane, second.tree_.hyperplane)
    np.testing.assert_array_equal(alone.predict_proba(X), together.predict_proba(X))


def test_the_trees_are_fine_tuned_three_times_as_long(forest):
    tree = forest.estimators_[0]
    assert isinstance(tree, EndToEndTreeClassifier)
    assert len(tree.posterior_.stats["log_likelihood"]) == 3 * QUICK["epochs"]
    assert tree.refine_epochs == 15


def test_leaves(digits, forest):
    _, X, _, _ = digits
    leaves = forest.apply(X)
    assert leaves.shape == (len(X), 3)
    for t, tree in enumerate(forest.estimators_):
        np.testing.assert_array_equal(leaves[:, t], tree.apply(X))
    assert forest.get_depth() == 4
    assert forest.get_n_leaves() == sum(tree.get_n_leaves() for tree in forest.estimators_)


def test_one_file_holds_it_all(digits, forest, tmp_path):
    _, X, _, _ = digits
    forest.save(tmp_path / "forest.safetensors")
    loaded = bayestree.load(tmp_path / "forest.safetensors")
    assert isinstance(loaded, EndToEndForestClassifier)
    assert loaded.get_params() == forest.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X), forest.predict_proba(X))
    np.testing.assert_array_equal(loaded.apply(X), forest.apply(X))
    for again, tree in zip(loaded.estimators_, forest.estimators_, strict=True):
        np.testing.assert_array_equal(
            again.posterior_.point["hyperplane"], tree.posterior_.point["hyperplane"]
        )


def test_as_text_its_trees_come_one_after_the_other(forest):
    text = bayestree.export_text(forest, max_features=2)
    parts = [bayestree.export_text(tree, max_features=2) for tree in forest.estimators_]
    assert text == "\n".join(f"tree {t} of 3: {part}" for t, part in enumerate(parts, start=1))


def test_what_shows_one_tree_asks_for_one(forest):
    for show in (bayestree.export_rules, bayestree.plots.tree):
        with pytest.raises(TypeError, match=r"of a forest.*estimators_\[0\]"):
            show(forest)
        show(forest.estimators_[0])


def test_names_of_features_and_labels_reach_the_trees():
    iris = load_iris(as_frame=True)
    labels = iris.target_names[iris.target]
    forest = EndToEndForestClassifier(2, **QUICK).fit(iris.data, labels)
    tree = forest.estimators_[1]
    assert tree.predict(iris.data).tolist()[0] == "setosa"
    assert isinstance(iris.data, pd.DataFrame)
    assert tree.tree_.feature_names == tuple(iris.feature_names)


def test_weights_of_classes_count_once():
    X, y = load_iris(return_X_y=True)
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    by_class = EndToEndForestClassifier(2, class_weight=weights, **QUICK).fit(X, y)
    by_row = EndToEndForestClassifier(2, **QUICK).fit(X, y, [weights[label] for label in y])
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch_size": (2, 2)}, "needs image_shape"),
        ({"patch_size": (3, 2), "image_shape": (2, 2)}, "patch_size must lie"),
        ({"image_shape": (2, 3)}, "6 pixels, and X has 4"),
        ({"n_estimators": 0}, "n_estimators"),
    ],
)
def test_what_cannot_be(settings, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        EndToEndForestClassifier(**QUICK, **settings).fit(X, y)


def test_before_the_fit():
    with pytest.raises(NotFittedError):
        EndToEndForestClassifier().predict([[0.0]])
