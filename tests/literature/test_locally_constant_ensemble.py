"""Ensembles of locally constant networks: sums by hand, and what a fit finds."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import bayestree
from bayestree import LocallyConstantEnsembleClassifier, LocallyConstantEnsembleRegressor
from bayestree.inference import Data
from bayestree.literature.locally_constant import ReluNetwork
from bayestree.literature.locally_constant_ensemble import LocallyConstantEnsemble, NetworkSum
from bayestree.models import Categorical, named

QUICK = {"epochs": 15, "learning_rate": 0.03, "random_state": 0}


@pytest.fixture(scope="module")
def forest():
    return LocallyConstantEnsembleClassifier(3, max_depth=3, **QUICK).fit(
        *load_iris(return_X_y=True)
    )


def test_contributions_by_hand():
    # one neuron x0 - 1, whose derivative in x0 is 1 where x0 > 1; the output is 4 times this - 1
    network = ReluNetwork(1, 1, 1, 1)
    with torch.no_grad():
        network.weight.fill_(1.0)
        network.bias.fill_(-1.0)
        for value, number in zip(network.head.parameters(), (1.0, 0.0, 4.0, -1.0), strict=True):
            value.fill_(number)
    stages = NetworkSum(lambda: network, shrinkage=0.5)
    stages.networks = [network, network]
    X = torch.tensor([[0.5], [3.0]])
    first, second = stages.contributions(X, real=True)
    assert first.flatten().tolist() == [-1, 3]  # has the mean, and is not shrunk
    assert second.flatten().tolist() == [-0.5, 1.5]
    assert [f.flatten().tolist() for f in stages.contributions(X, real=False)] == [[-0.5, 1.5]] * 2


def test_the_trees_are_the_networks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    data, made = Data.of(X, y), []
    settings = {"epochs": 5, "batch_size": 50, "learning_rate": 0.03, "width": 8}

    class Kept(ReluNetwork):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayestree.literature.locally_constant_ensemble.ReluNetwork", Kept)
        method = LocallyConstantEnsemble(max_depth=3, shrinkage=0.3, **settings)
        model = named.oblique(Categorical(2))
        trees = method.fit(model, data, n_networks=2, random_state=0)
    for tree, network in zip(trees, made, strict=True):
        expected = (0.3 * network(data.X)).softmax(1).detach()
        np.testing.assert_allclose(tree.predictive(X)[0], expected)


def test_it_multiplies_the_probabilities_of_its_trees(forest):
    X, y = load_iris(return_X_y=True)
    product = np.prod([tree.predict_proba(X) for tree in forest.estimators_], axis=0)
    np.testing.assert_allclose(
        forest.predict_proba(X), product / product.sum(axis=1, keepdims=True), atol=1e-12
    )
    assert forest.score(X, y) > 0.9
    with pytest.raises(TypeError, match="multiplies the probabilities"):
        forest.shapley_values(X)
    with pytest.raises(TypeError, match="multiplies the probabilities"):
        bayestree.export_onnx(forest)


def test_one_file_holds_it_all(forest, tmp_path):
    X, _ = load_iris(return_X_y=True)
    forest.save(tmp_path / "forest.safetensors")
    loaded = bayestree.load(tmp_path / "forest.safetensors")
    assert loaded.get_params() == forest.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X), forest.predict_proba(X))
    assert bayestree.export_text(loaded) == bayestree.export_text(forest)


def test_smoothing_lessens_contributions(forest):
    X, y = load_iris(return_X_y=True)
    settings = forest.get_params() | {"smoothing": 1e9}
    even = LocallyConstantEnsembleClassifier(**settings).fit(X, y)
    np.testing.assert_allclose(even.predict_proba(X), 1 / 3, atol=1e-4)


def test_numbers_are_a_sum_of_stages():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = 40 * np.abs(X[:, 0]) + 10 * X[:, 1] + 300
    reg = LocallyConstantEnsembleRegressor(4, max_depth=3, **QUICK).fit(X, y)
    center = reg.estimators_[0]._scaling.units.y_center
    stages = [(tree.predict(X) - center) / 4 for tree in reg.estimators_]
    np.testing.assert_allclose(reg.predict(X), center + np.sum(stages, axis=0))
    # each stage is fitted to what is left: training errors fall
    errors = [np.mean((y - center - part) ** 2) for part in np.cumsum(stages, axis=0)]
    assert errors[-1] < 0.6 * errors[0]


def test_a_class_without_weight():
    X, y = load_iris(return_X_y=True)
    found = LocallyConstantEnsembleClassifier(2, max_depth=2, **QUICK).fit(X, y, y < 2)
    assert (found.predict_proba(X)[:, 2] < 0.1).all()
    assert found.score(X[:100], y[:100]) > 0.9


def test_equal_numbers():
    X = load_iris().data
    found = LocallyConstantEnsembleRegressor(2, max_depth=2, **QUICK).fit(X, np.full(150, 3.0))
    np.testing.assert_allclose(found.predict(X), 3.0)
    assert found.get_n_leaves() == 2
