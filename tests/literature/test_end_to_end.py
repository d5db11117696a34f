"""End-to-end trees and forests: what a fit finds, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

import bayestree
from bayestree import EndToEndForestClassifier, EndToEndTreeClassifier
from bayestree.inference import Svi
from bayestree.models import Laplace, Network, SmallConvNet, Spatial
from tests.sampling import at_least

# Some pixels of the digits are always white.
pytestmark = pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")


LINEAR = at_least(0.98, 150)  # what linear discriminants reach on iris
RATES = {"learning_rate": 0.03, "random_state": 0}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def fitted(iris):
    return EndToEndTreeClassifier(max_depth=3, **RATES).fit(*iris)


@pytest.mark.portable
def test_it_learns_and_its_tree_is_what_predicts(fitted, iris):
    X, y = iris
    assert fitted.score(X, y) > LINEAR
    assert fitted.get_depth() <= 3
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.tree_.predict(X))
    reached = fitted.tree_.value[fitted.apply(X)]
    np.testing.assert_array_equal(fitted.predict_proba(X), reached)


@pytest.mark.portable
def test_the_soft_tree_predicts_on_request(fitted, iris):
    X, y = iris
    soft = EndToEndTreeClassifier(**fitted.get_params() | {"prediction": "posterior"})
    soft.fit(X, y)
    probability = soft.predict_proba(X)
    np.testing.assert_allclose(probability.sum(1), 1.0)
    # soft probabilities differ from row to row, those of leaves do not
    assert len(np.unique(probability[:, 0])) > 10 * len(np.unique(fitted.predict_proba(X)[:, 0]))
    assert soft.score(X, y) > LINEAR


def test_steepness_goes_on_through_the_whole_tree(fitted):
    assert fitted.posterior_.model.steepness == pytest.approx(1 + 0.03 * 119)
    assert len(fitted.posterior_.stats["log_likelihood"]) == 60
    assert fitted.posterior_.inference == "em"


def test_training_as_a_whole_raises_the_likelihood_of_the_stumps(fitted, iris):
    X, y = iris
    greedy = EndToEndTreeClassifier(max_depth=3, refine_epochs=0, **RATES).fit(X, y)
    assert greedy.posterior_.inference == "grow"
    trace = fitted.posterior_.stats["log_likelihood"]
    assert trace[-1] > trace[0]


@pytest.mark.parametrize("order", ["level", "best"])
def test_max_leaves_holds(order):
    X, y = load_breast_cancer(return_X_y=True)
    clf = EndToEndTreeClassifier(max_leaves=3, order=order, **RATES).fit(X, y)
    assert 2 <= clf.get_n_leaves() <= 3


@pytest.mark.portable
def test_a_laplace_prior_shrinks_the_coefficients(iris):
    X, y = iris
    size = [
        np.abs(
            EndToEndTreeClassifier(max_depth=1, prior=prior, epochs=100, **RATES)
            .fit(X, y)
            .posterior_.point["hyperplane"]
        ).sum()
        for prior in ("flat", Laplace(20.0, 10.0))
    ]
    assert size[1] < 0.5 * size[0]


@pytest.mark.portable
def test_spatial_smoothness_of_images():
    # Two halves of a 6 x 6 image differ by class; noise everywhere.
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    image = rng.normal(size=(200, 6, 6))
    image[:, :3] += (2 * y - 1)[:, None, None] * 0.4
    X = image.reshape(200, 36)
    rough = []
    for prior in ("flat", Spatial(500.0, (6, 6))):
        clf = EndToEndTreeClassifier(
            max_depth=1, prior=prior, image_shape=(6, 6), scaling="common", epochs=50, **RATES
        ).fit(X, y)
        kernel = clf.posterior_.point["hyperplane"].reshape(6, 6)
        step = np.diff(kernel, axis=0).ravel(), np.diff(kernel, axis=1).ravel()
        rough.append(np.square(np.concatenate(step)).sum() / np.square(kernel).sum())
    assert rough[1] < 0.5 * rough[0]


@pytest.mark.portable
def test_svi_gives_a_bayesian_oblique_tree(iris):
    X, y = iris
    given = {"inference": "svi", "n_draws": 10, "prior": "laplace"}
    clf = EndToEndTreeClassifier(max_depth=2, **given, **RATES).fit(X, y)
    assert clf.posterior_.inference == "svi"
    mean, sd = clf.predict_proba(X, return_std=True)
    assert (sd > 0).any()
    np.testing.assert_allclose(mean.sum(1), 1.0)
    assert clf.score(X, y) > LINEAR
    assert clf.split_uncertainty(X).to_frame().notna().all(axis=None)


@pytest.mark.filterwarnings("ignore:The posterior under Spatial")
@pytest.mark.parametrize("inference", ["em", Svi(epochs=5, n_draws=3)])
def test_saved_and_loaded(iris, tmp_path, inference):
    X, y = iris
    clf = EndToEndTreeClassifier(
        max_depth=2, inference=inference, prior=Spatial(0.1, (2, 2)), **RATES
    ).fit(X, y)
    clf.save(tmp_path / "tree.safetensors")
    again = bayestree.load(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.posterior_.settings == clf.posterior_.settings
    assert again.posterior_.model == clf.posterior_.model
    assert bayestree.export_text(again) == bayestree.export_text(clf)


def test_a_single_leaf_where_nothing_can_be_split(iris):
    X, y = iris
    for inference in ("em", "svi"):
        clf = EndToEndTreeClassifier(max_depth=0, inference=inference, **RATES).fit(X, y)
        assert clf.get_n_leaves() == 1
        np.testing.assert_allclose(clf.predict_proba(X), 1 / 3, atol=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior": "spatial"}, "image_shape"),
        ({"prior": "spatial", "image_shape": (3, 3)}, "9 pixels"),
        ({"prior": Spatial(1.0, (3, 3))}, "9 pixels"),
        ({"split": Network(SmallConvNet((16, 16))), "prior": "laplace"}, "prior"),
        ({"inference": "svi", "max_features": 1}, "max_features"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(iris, changes, message):
    with pytest.raises(ValueError, match=message):
        EndToEndTreeClassifier(**changes).fit(*iris)


def test_it_must_be_fitted(iris):
    with pytest.raises(NotFittedError):
        EndToEndTreeClassifier().predict(iris[0])


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
def test_parameters_of_the_forest_that_do_not_go_together_are_refused(settings, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        EndToEndForestClassifier(**QUICK, **settings).fit(X, y)


def test_the_forest_must_be_fitted():
    with pytest.raises(NotFittedError):
        EndToEndForestClassifier().predict([[0.0]])
