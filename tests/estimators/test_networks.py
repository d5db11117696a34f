"""Trees with a network at each node, through the estimator."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_moons
from torch import nn

import bayestree as bt
from bayestree.estimators.files import ModelFileError
from bayestree.models import Laplace, Network, SmallConvNet
from tests.sampling import z_score

SETTINGS = {
    "order": "best",
    "max_leaves": 3,
    "steepness": 5.0,
    "learning_rate": 0.02,
    "batch_size": 100,
    "epochs": 15,
    "random_state": 0,
}


def perceptron(n_features):
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, 1))


def linear(n_features):
    return nn.Linear(n_features, 1)


@pytest.fixture(scope="module")
def moons():
    return make_moons(400, noise=0.1, random_state=0)


@pytest.fixture(scope="module")
def fitted(moons):
    return bt.EndToEndTreeClassifier(split=Network(perceptron), **SETTINGS).fit(*moons)


@pytest.fixture(scope="module")
def images():
    """A bright bar that is upright or lies, anywhere on 16 x 16 pixels."""
    generator = np.random.default_rng(0)
    X = generator.normal(0, 0.1, (200, 16, 16))
    y = generator.integers(2, size=200)
    for image, lies in zip(X, y, strict=True):
        at, start = generator.integers(2, 14), generator.integers(8)
        bar = image.T if lies else image
        bar[start : start + 8, at] += 1.0
    return X.reshape(200, -1), y


@pytest.mark.portable
def test_few_networks_do_what_many_lines_do(moons, fitted):
    X, y = moons
    line = bt.EndToEndTreeClassifier(**SETTINGS).fit(X, y)
    errors, of_lines = (one.predict(X) != y for one in (fitted, line))
    assert z_score(of_lines.astype(int) - errors) > 4


def test_the_tree_is_the_point_estimate_at_one_half(moons, fitted):
    X, _ = moons
    posterior, tree = fitted.posterior_, fitted.tree_
    rows = torch.as_tensor((X - tree.center) / tree.scale)
    right = posterior.model.split.log_odds(posterior.point_sites(), rows) > 0
    root = next(node for node in tree.walk(X))
    assert np.array_equal(root[2], right[:, 0].numpy())
    assert fitted.get_n_leaves() == tree.n_leaves == 3


def test_the_same_seed_gives_the_same_networks(moons, fitted):
    state = torch.random.get_rng_state()
    again = clone(fitted).fit(*moons)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in fitted.posterior_.point.items():
        assert np.array_equal(value, again.posterior_.point[name])
    other = clone(fitted).set_params(random_state=1).fit(*moons)
    name = "network.0.weight"
    assert not np.array_equal(fitted.posterior_.point[name], other.posterior_.point[name])


def test_a_network_of_the_users_own_is_given_to_load(moons, fitted, tmp_path):
    path = tmp_path / "moons.safetensors"
    fitted.save(path)
    with pytest.raises(ValueError, match=r"'perceptron'.*load\(path, network=Network\(perceptron"):
        bt.load(path)
    again = bt.load(path, network=Network(perceptron))
    X, _ = moons
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.get_params()["split"] == Network(perceptron)
    again.set_params(prediction="posterior")
    soft = clone(fitted).set_params(prediction="posterior").fit(*moons)
    assert np.array_equal(again.predict_proba(X), soft.predict_proba(X))
    assert bt.export_text(again) == bt.export_text(fitted)


@pytest.mark.parametrize(
    ("network", "match"),
    [
        (
            Network(linear),
            "contains the parameters .*'network.0.weight'.*pass the network of the fit",
        ),
        (perceptron, "takes a Network as network"),
    ],
)
def test_another_network_is_refused(fitted, tmp_path, network, match):
    path = tmp_path / "moons.safetensors"
    fitted.save(path)
    with pytest.raises(ValueError, match=match) as refused:
        bt.load(path, network=network)
    assert not isinstance(refused.value, ModelFileError)


@pytest.mark.portable
def test_networks_of_the_package_are_found_by_name(images, tmp_path):
    X, y = images
    split = Network(SmallConvNet((16, 16)))
    clf = bt.EndToEndTreeClassifier(split=split, **SETTINGS | {"max_depth": 1})
    # At twice the rate one fit in six ends in a poor optimum.
    clf.set_params(scaling="common", dtype="float32", learning_rate=0.01).fit(X, y)
    assert clf.score(X, y) > 0.95
    path = tmp_path / "bars.safetensors"
    clf.save(path)
    again = bt.load(path)
    assert again.split == split
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.tree_.parameters["1.weight"].dtype == np.float32
    with pytest.raises(ValueError, match="has no user-defined network"):
        bt.load(path, network=split)


def test_a_single_leaf_has_no_networks(moons, tmp_path):
    clf = bt.EndToEndTreeClassifier(split=Network(perceptron), **SETTINGS | {"max_depth": 0})
    clf.fit(*moons)
    assert clf.tree_.n_leaves == 1
    np.testing.assert_allclose(clf.predict_proba(moons[0][:2]), 0.5)
    clf.save(tmp_path / "leaf.safetensors")
    again = bt.load(tmp_path / "leaf.safetensors", network=Network(perceptron))
    np.testing.assert_allclose(again.predict_proba(moons[0][:2]), 0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"inference": "svi"},
        {"prior": Laplace(1.0)},
        {"prior": "spatial", "image_shape": (1, 2)},
        {"max_features": 1},
        {"patch_size": (1, 1), "image_shape": (1, 2)},
    ],
)
def test_what_needs_coefficients_is_refused(moons, settings):
    clf = bt.EndToEndTreeClassifier(split=Network(perceptron), **settings)
    with pytest.raises(ValueError, match=f"{next(iter(settings))}.* need split='oblique'"):
        clf.fit(*moons)


def test_images_of_another_shape_are_refused(moons):
    clf = bt.EndToEndTreeClassifier(split=Network(SmallConvNet((28, 28))))
    with pytest.raises(ValueError, match="784 pixels, but rows have 2 columns"):
        clf.fit(*moons)


def test_draws_of_y_come_from_the_soft_tree(moons, fitted):
    X, y = moons
    drawn = fitted.sample_posterior_predictive(X, draws=200, random_state=0)
    soft = clone(fitted).set_params(prediction="posterior").fit(X, y).predict_proba(X)
    share = np.mean(drawn.reshape(-1, len(X)) == 1, axis=0)
    # five standard errors of a share of 200 draws
    assert np.abs(share - soft[:, 1]).max() < 5 * 0.5 / np.sqrt(200)


@pytest.mark.parametrize("method", ["polytope_size", "shrinkage", "check_convergence"])
def test_measures_of_polytopes_say_why_there_are_none(fitted, method):
    with pytest.raises(AttributeError, match="of the kind 'network'"):
        getattr(fitted, method)()


def test_arviz_has_no_names_for_the_dimensions_of_networks(fitted):
    with pytest.raises(TypeError, match=r"use posterior\.draws"):
        fitted.to_arviz()
