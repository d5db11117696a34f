"""Soft neural trees: a worked update of the leaves, and gradients of the log-likelihood."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_iris

import bayestree
from bayestree import NeuralDecisionForestClassifier, NeuralDecisionForestRegressor
from bayestree.inference import Data, Posterior
from bayestree.literature.forests import NeuralTree, _LeafwiseClimb
from bayestree.models import Categorical, named
from bayestree.topology import Topology

RARE = 1e-9  # rows of the leaves' prior, so that it does not enter the fourth digit


def stump(rows, labels, leaves, intercept=0.0):
    """A fit of one split by the only feature that is at the given place."""
    model = named.end_to_end(Categorical(2, RARE)).with_(topology=Topology.stump())
    data = Data.of(np.array(rows)[:, None], np.array(labels))
    sites = {
        "hyperplane": torch.ones(1, 1, 1, dtype=torch.float64),
        "intercept": torch.full((1, 1), intercept, dtype=torch.float64),
        "leaf_probs": torch.tensor(leaves, dtype=torch.float64),
    }
    return (
        model,
        data,
        _LeafwiseClimb(model, Posterior.from_point(model, sites, "start"), data, 0.1),
    )


def test_an_update_of_the_leaves_by_hand():
    # P(right) = 1/4 and 3/4 for the two rows, of the classes 0 and 1
    odds = np.log(3.0)
    _, _, fit = stump([-odds, odds], [0, 1], [[0.6, 0.4], [0.2, 0.8]])
    # P(y | x): .75 * .6 + .25 * .2 = .5 and .25 * .4 + .75 * .8 = .7
    assert np.isclose(fit.update_leaves(1), np.log(0.5) + np.log(0.7))
    # eq. 11: left .45 / .5 of class 0, .1 / .7 of class 1; right .05 / .5 and .6 / .7
    left, right = np.array([0.9, 1 / 7]), np.array([0.1, 6 / 7])
    expected = np.stack([left / left.sum(), right / right.sum()])
    np.testing.assert_allclose(fit.leaves["leaf_probs"], expected, rtol=1e-6)


def test_updates_of_the_leaves_never_lower_the_likelihood():
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    _, _, fit = stump(x, (x + rng.normal(size=80) > 0).astype(int), [[0.5, 0.5], [0.4, 0.6]])
    values = [fit.update_leaves(20) for _ in range(30)]
    assert (np.diff(values) >= -1e-9).all()
    assert values[-1] > values[0] + 1


def test_a_step_follows_the_gradient_of_the_log_likelihood(monkeypatch):
    model, data, fit = stump([-1.0, 0.5, 2.0], [0, 1, 1], [[0.7, 0.3], [0.1, 0.9]], 0.3)
    monkeypatch.setattr(fit.optimiser, "step", lambda: None)
    fit.step(data, fit.sites(), 1.0)
    sites = {name: value.requires_grad_() for name, value in fit.sites().items()}
    (-model.log_likelihood(sites, data.X, data.y) / 3).backward()
    for name, value in fit.splits.items():
        torch.testing.assert_close(value.grad, sites[name].grad)


def test_the_tree_stays_soft_and_complete():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = named.end_to_end(Categorical(2))
    method = NeuralTree(max_depth=3, epochs=30, leaf_steps=2, batch_size=50, learning_rate=0.1)
    found = method.fit(model, Data.of(X, y), random_state=0)
    assert found.model.steepness == 1
    assert found.model.topology.n_leaves == 8
    trace = found.stats["log_likelihood"]
    assert len(trace) == 30
    assert trace[-1] > trace[0] + 20
    probs, _ = found.predictive(X)
    assert len(np.unique(probs[:, 0].round(6))) > 100  # not one value for each leaf


QUICK = {"max_depth": 3, "epochs": 15, "learning_rate": 0.1, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def forest(rows):
    return NeuralDecisionForestClassifier(3, **QUICK).fit(*rows)


def test_it_predicts_the_mean_of_its_soft_trees(rows, forest):
    X, _ = rows
    soft = [
        tree.posterior_.predictive(tree.fitted_.scaling.standardise(X))[0]
        for tree in forest.estimators_
    ]
    np.testing.assert_allclose(forest.predict_proba(X), np.mean(soft, axis=0))
    hard = [tree.tree_.predict(X) for tree in forest.estimators_]
    assert np.abs(forest.predict_proba(X) - np.mean(hard, axis=0)).max() > 0.05


def test_every_tree_is_complete_and_starts_elsewhere(rows, forest):
    assert all(tree.posterior_.model.topology.n_leaves == 8 for tree in forest.estimators_)
    first, second, *_ = (tree.posterior_.point["hyperplane"] for tree in forest.estimators_)
    assert not np.allclose(first, second)
    assert forest.get_depth() <= 3


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
