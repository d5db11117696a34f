"""Trees read off from networks: worked examples, and what a fit finds."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from bayestree import LocallyConstantTreeClassifier, LocallyConstantTreeRegressor
from bayestree.inference import Data
from bayestree.literature.locally_constant import LocallyConstant, ReluNetwork, read_off
from bayestree.models import Categorical, named

QUICK = {"epochs": 40, "learning_rate": 0.03, "random_state": 0}


@pytest.fixture
def network():
    torch.manual_seed(0)
    settings = LocallyConstant(max_depth=4, width=8)
    return ReluNetwork(settings, torch.randn(20, 3), 2).double().eval()


def signs(network, X):
    """Signs of the neurons (n, M), layer after layer."""
    active = torch.zeros(len(X), 0, dtype=X.dtype)
    for i in range(len(network.bias)):
        z = X @ network.weight[i] + network.bias[i] + active @ network.skip[i, :i]
        active = torch.cat((active, z.relu().unsqueeze(1)), dim=1)
    return (active > 0).numpy()


def test_splits_by_hand():
    X = torch.tensor([[-1.0, 2.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -2.0]], dtype=torch.float64)
    network = ReluNetwork(LocallyConstant(max_depth=2), X, 2).double()
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        network.bias.copy_(torch.tensor([0.5, -1.0]))
        network.skip.copy_(torch.tensor([[9.0, 9.0], [2.0, 9.0]]))
        tree = read_off(network, named.oblique(Categorical(2)), Data.of(X, np.arange(4) % 2))
    planes = {
        tuple(node.rows.tolist()): [*node.split.sites["hyperplane"][0].tolist(),
                                    *node.split.sites["intercept"].tolist()]
        for node in tree.nodes if node.split is not None
    }  # fmt: skip
    # x1 - 1 where x0 < -0.5, and x1 - 1 + 2 (x0 + 0.5) elsewhere
    assert planes == {(0, 1, 2, 3): [1, 0, 0.5], (0, 1): [0, 1, -1], (2, 3): [2, 1, 0]}


def test_derivatives_are_those_of_the_activations(network):
    X = torch.randn(20, 3, dtype=torch.float64)
    for hardness in (0.0, 0.6, 1.0):
        steepness = 1 + hardness * 39

        def activations(x, hardness=hardness, steepness=steepness):
            active = []
            for i in range(4):
                z = network.weight[i] @ x + network.bias[i]
                z = z + sum(network.skip[i, j] * a for j, a in enumerate(active))
                soft = torch.nn.functional.softplus(z, steepness)
                active.append(hardness * z.relu() + (1 - hardness) * soft)
            return torch.stack(active)

        slope = torch.stack([torch.autograd.functional.jacobian(activations, x) for x in X])
        level = torch.stack([activations(x) for x in X]) - (slope @ X.unsqueeze(2)).squeeze(2)
        expected = torch.cat((slope, level.unsqueeze(2)), dim=2)
        torch.testing.assert_close(network.derivatives(X, hardness), expected)


def test_a_step_has_the_gradient_of_the_sigmoid_unless_as_in_the_paper(network):
    X = torch.randn(20, 3, dtype=torch.float64)
    for steepness, moves in ((20.0, True), (None, False)):
        network.steepness, network.bias.grad = steepness, None
        # slopes alone, which are constant in a leaf
        network.derivatives(X)[:, 0, :3].sum().backward()
        assert bool(network.bias.grad.any()) == moves


def test_dropconnect_only_while_training(network):
    X = torch.randn(20, 3, dtype=torch.float64)
    network.share = 0.5
    held = network(X)
    assert (network(X) == held).all()
    assert (network.train()(X) != held).any()


def test_the_tree_is_the_network(network):
    X = torch.randn(400, 3, dtype=torch.float64)
    data = Data.of(X, np.arange(400) % 2)
    with torch.no_grad():
        tree = read_off(network, named.oblique(Categorical(2)), data)
        found = LocallyConstant(min_gain=0)._read(network, named.oblique(Categorical(2)), data)
        probability = network(X).softmax(1)
    pattern = signs(network, X)
    leaves = [node for i, node in enumerate(tree.nodes) if i not in tree.split_nodes()]
    assert len(leaves) == len(np.unique(pattern, axis=0)) > 5
    for leaf in leaves:
        assert (pattern[leaf.rows] == pattern[leaf.rows[0]]).all()
    own = found.point["leaf_probs"]
    gap = np.abs(own[:, None] - probability.numpy()).max(axis=2)
    assert (gap.min(axis=0) < 1e-9).all()


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
    X, y = load_iris(return_X_y=True)
    few = {"epochs": 2, "random_state": 0}
    every = LocallyConstantTreeClassifier(max_depth=4, min_gain=0, **few).fit(X, y)
    assert every.get_depth() <= 4
    assert LocallyConstantTreeClassifier(max_depth=0, **few).fit(X, y).get_n_leaves() == 1
    gains = LocallyConstantTreeClassifier(max_depth=4, min_gain=3, **few).fit(X, y)
    assert 1 < gains.get_n_leaves() < every.get_n_leaves()
    with pytest.raises(ValueError, match="max_depth"):
        LocallyConstantTreeClassifier(max_depth=65, **few).fit(X, y)


def test_smoothing_shrinks_the_network_towards_all_rows():
    X, y = load_iris(return_X_y=True)
    settings = {"max_depth": 3, "epochs": 20, "random_state": 0}
    own = LocallyConstantTreeClassifier(smoothing=0, **settings).fit(X, y).tree_
    found = LocallyConstantTreeClassifier(smoothing=5, **settings).fit(X, y).tree_
    rows = own.leaf_rows[:, None]
    overall = (rows * own.value).sum(axis=0) / len(X)
    np.testing.assert_allclose(found.value, (rows * own.value + 5 * overall) / (rows + 5))


def test_a_fit_that_diverges_is_refused():
    X = np.random.default_rng(0).normal(size=(60, 2))
    reg = LocallyConstantTreeRegressor(max_depth=2, epochs=3, learning_rate=1e6, random_state=0)
    with pytest.raises(ValueError, match="the fit diverged: reduce learning_rate=1e"):
        reg.fit(X, X[:, 0])


def test_the_derivatives_are_those_of_the_network_that_drops_weights():
    """With intercepts, they give the activations again; another draw of weights would not."""
    settings = LocallyConstant(max_depth=5, dropconnect=0.5, steepness=None)
    torch.manual_seed(0)
    network = ReluNetwork(settings, torch.randn(20, 3), 2).double()
    X = torch.randn(40, 3, dtype=torch.float64)
    torch.manual_seed(1)
    found = network.train().derivatives(X)
    torch.manual_seed(1)
    weight = torch.nn.functional.dropout(network.weight.expand(40, -1, -1), 0.5)
    skip = torch.nn.functional.dropout(network.skip.tril(-1).expand(40, -1, -1), 0.5)
    slope = torch.zeros(40, 0, 3, dtype=torch.float64)
    active = torch.zeros(40, 0, dtype=torch.float64)
    for i in range(5):
        own = (weight[:, i] * X).sum(1) + network.bias[i] + (skip[:, i, :i] * active).sum(1)
        step = (own > 0).double().unsqueeze(1)
        each = step * (weight[:, i] + (skip[:, i, :i, None] * slope).sum(1))
        slope = torch.cat((slope, each.unsqueeze(1)), dim=1)
        active = torch.cat((active, own.relu().unsqueeze(1)), dim=1)
    torch.testing.assert_close(found[..., :-1], slope)
    torch.testing.assert_close(
        (found[..., :-1] @ X.unsqueeze(-1)).squeeze(-1) + found[..., -1], active
    )
