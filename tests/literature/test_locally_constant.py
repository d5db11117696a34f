"""Trees read off from networks, and sums of them: worked examples, and what a fit finds."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import bayestree
from bayestree import (
    LocallyConstantEnsembleClassifier,
    LocallyConstantEnsembleRegressor,
    LocallyConstantTreeClassifier,
    LocallyConstantTreeRegressor,
)
from bayestree.inference import Data
from bayestree.literature.locally_constant import (
    LocallyConstantEnsemble,
    NetworkSum,
    ReluNetwork,
    read_off,
)
from bayestree.models import Categorical, named

QUICK = {"epochs": 40, "learning_rate": 0.03, "random_state": 0}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return ReluNetwork(4, 3, 2, 8).double()


def signs(network, X):
    """Signs of the neurons (n, M), layer after layer."""
    active = torch.zeros(len(X), 0, dtype=X.dtype)
    for i in range(len(network.bias)):
        z = X @ network.weight[i] + network.bias[i] + active @ network.skip[i, :i]
        active = torch.cat((active, z.relu().unsqueeze(1)), dim=1)
    return (active > 0).numpy()


def test_a_split_by_hand():
    network = ReluNetwork(2, 2, 2, 4).double()
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        network.bias.copy_(torch.tensor([0.5, -1.0]))
        network.skip.copy_(torch.tensor([[9.0, 9.0], [2.0, 9.0]]))
    assert network.split([]).tolist() == [1, 0, 0.5]
    assert network.split([False]).tolist() == [0, 1, -1]
    # x1 - 1 + 2 (x0 + 0.5)
    assert network.split([True]).tolist() == [2, 1, 0]


def test_derivatives_are_those_of_the_activations(network):
    X = torch.randn(20, 3, dtype=torch.float64)
    for hardness in (0.0, 0.6, 1.0):
        found = network.derivatives(X, hardness)

        def activations(x, hardness=hardness):
            active = []
            for i in range(4):
                z = network.weight[i] @ x + network.bias[i]
                z = z + sum(network.skip[i, j] * a for j, a in enumerate(active))
                soft = torch.nn.functional.softplus(z)
                active.append(hardness * z.relu() + (1 - hardness) * soft)
            return torch.stack(active)

        expected = torch.stack([torch.autograd.functional.jacobian(activations, x) for x in X])
        torch.testing.assert_close(found, expected)


def test_the_tree_is_the_network(network):
    X = torch.randn(400, 3, dtype=torch.float64)
    data = Data.of(X, np.arange(400) % 2)
    tree = read_off(network, named.oblique(Categorical(2)), data)
    pattern = signs(network, X)
    leaves = [node for i, node in enumerate(tree.nodes) if i not in tree.split_nodes()]
    assert len(leaves) == len(np.unique(pattern, axis=0)) > 5
    derivative = network.derivatives(X).detach()
    for leaf in leaves:
        assert (pattern[leaf.rows] == pattern[leaf.rows[0]]).all()
        # constant in the leaf, the name of the network
        torch.testing.assert_close(
            derivative[leaf.rows], derivative[leaf.rows[:1]].expand(len(leaf.rows), -1, -1)
        )


@pytest.mark.portable
def test_it_finds_lines_that_no_single_split_shows():
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(400, 2)), rng.normal(size=(2000, 2))

    def label(X):
        return (X @ [1, 1] > 0).astype(int) ^ (X @ [1, -1] > 0)

    clf = LocallyConstantTreeClassifier(max_depth=4, **QUICK).fit(X, label(X))
    # a half is guessed, and one of the two lines alone is no better
    assert clf.score(X_new, label(X_new)) > 0.85
    reg = LocallyConstantTreeRegressor(max_depth=4, **QUICK).fit(X, 50.0 * label(X) + 7)
    # at most 15 % of rows in wrong leaves, as above, cost four times their share of the variance
    assert reg.score(X_new, 50.0 * label(X_new) + 7) > 1 - 4 * 0.15


def test_limits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    few = {"epochs": 2, "random_state": 0}
    every = LocallyConstantTreeClassifier(max_depth=3, min_gain=0, **few).fit(X, y)
    assert every.get_depth() <= 3
    assert 4 < every.get_n_leaves() <= 8
    assert (
        LocallyConstantTreeClassifier(max_depth=3, min_gain=2, **few).fit(X, y).get_n_leaves()
        < every.get_n_leaves()
    )
    assert LocallyConstantTreeClassifier(max_depth=0, **few).fit(X, y).get_n_leaves() == 1
    with pytest.raises(ValueError, match="max_depth"):
        LocallyConstantTreeClassifier(max_depth=65, **few).fit(X, y)


FEW_EPOCHS = {"epochs": 15, "learning_rate": 0.03, "random_state": 0}


@pytest.fixture(scope="module")
def forest():
    return LocallyConstantEnsembleClassifier(3, max_depth=3, **FEW_EPOCHS).fit(
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
        patch.setattr("bayestree.literature.locally_constant.ReluNetwork", Kept)
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


def test_smoothing_lessens_contributions(forest):
    X, y = load_iris(return_X_y=True)
    settings = forest.get_params() | {"smoothing": 1e9}
    even = LocallyConstantEnsembleClassifier(**settings).fit(X, y)
    np.testing.assert_allclose(even.predict_proba(X), 1 / 3, atol=1e-4)


def test_numbers_are_a_sum_of_stages():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = 40 * np.abs(X[:, 0]) + 10 * X[:, 1] + 300
    reg = LocallyConstantEnsembleRegressor(4, max_depth=3, **FEW_EPOCHS).fit(X, y)
    center = reg.estimators_[0]._scaling.units.y_center
    stages = [(tree.predict(X) - center) / 4 for tree in reg.estimators_]
    np.testing.assert_allclose(reg.predict(X), center + np.sum(stages, axis=0))
    # each stage is fitted to what is left: training errors fall
    errors = [np.mean((y - center - part) ** 2) for part in np.cumsum(stages, axis=0)]
    assert errors[-1] < 0.6 * errors[0]


def test_a_class_without_weight():
    X, y = load_iris(return_X_y=True)
    found = LocallyConstantEnsembleClassifier(2, max_depth=2, **FEW_EPOCHS).fit(X, y, y < 2)
    assert (found.predict_proba(X)[:, 2] < 0.1).all()
    assert found.score(X[:100], y[:100]) > 0.9


def test_equal_numbers():
    X = load_iris().data
    found = LocallyConstantEnsembleRegressor(2, max_depth=2, **FEW_EPOCHS).fit(X, np.full(150, 3.0))
    np.testing.assert_allclose(found.predict(X), 3.0)
    assert found.get_n_leaves() == 2
