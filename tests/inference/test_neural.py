"""Soft neural trees: a worked update of the leaves, and gradients of the log-likelihood."""

import numpy as np
import torch

from bayestree.inference import Data, Posterior
from bayestree.inference.neural import Descent, neural_tree
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
    return model, data, Descent(model, Posterior.from_point(model, sites, "start"), data, 0.1)


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
    found = neural_tree(
        model, Data.of(X, y), max_depth=3, epochs=30, leaf_steps=2, batch_size=50,
        learning_rate=0.1, random_state=0,
    )  # fmt: skip
    assert found.model.steepness == 1
    assert found.model.topology.n_leaves == 8
    trace = found.stats["log_likelihood"]
    assert len(trace) == 30
    assert trace[-1] > trace[0] + 20
    probs, _ = found.predictive(X)
    assert len(np.unique(probs[:, 0].round(6))) > 100  # not one value for each leaf
