import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError

import bayestree
from bayestree import EndToEndTreeClassifier
from bayestree.models import Network, SmallConvNet
from tests.sampling import at_least

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


def test_the_same_seed_gives_the_same_tree(fitted, iris):
    again = EndToEndTreeClassifier(**fitted.get_params()).fit(*iris)
    np.testing.assert_array_equal(again.tree_.hyperplane, fitted.tree_.hyperplane)


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
            EndToEndTreeClassifier(max_depth=1, l1=rate, epochs=100, **RATES)
            .fit(X, y)
            .posterior_.point["hyperplane"]
        ).sum()
        for rate in (0.0, 20.0)
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
    for strength in (0.0, 500.0):
        clf = EndToEndTreeClassifier(
            max_depth=1, spatial=strength, image_shape=(6, 6), scaling="common", epochs=50, **RATES
        ).fit(X, y)
        kernel = clf.posterior_.point["hyperplane"].reshape(6, 6)
        step = np.diff(kernel, axis=0).ravel(), np.diff(kernel, axis=1).ravel()
        rough.append(np.square(np.concatenate(step)).sum() / np.square(kernel).sum())
    assert rough[1] < 0.5 * rough[0]


@pytest.mark.portable
def test_svi_gives_a_bayesian_oblique_tree(iris):
    X, y = iris
    clf = EndToEndTreeClassifier(max_depth=2, inference="svi", n_draws=10, l1=1.0, **RATES).fit(
        X, y
    )
    assert clf.posterior_.inference == "svi"
    mean, sd = clf.predict_proba(X, return_std=True)
    assert (sd > 0).any()
    np.testing.assert_allclose(mean.sum(1), 1.0)
    assert clf.score(X, y) > LINEAR
    assert clf.split_uncertainty(X).to_frame().notna().all(axis=None)


@pytest.mark.parametrize("inference", ["em", "svi"])
def test_saved_and_loaded(iris, tmp_path, inference):
    X, y = iris
    clf = EndToEndTreeClassifier(
        max_depth=2, inference=inference, n_draws=3, image_shape=(2, 2), spatial=0.1, **RATES
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
        ({"spatial": 1.0}, "image_shape"),
        ({"spatial": 1.0, "image_shape": (3, 3)}, "image_shape"),
        ({"spatial": 1.0, "image_shape": (2, 2), "l1": 1.0}, "l1 and spatial"),
        ({"split": Network(SmallConvNet((16, 16))), "l1": 1.0}, "l1"),
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
