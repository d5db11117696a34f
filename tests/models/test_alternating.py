"""TAO's tree as a model."""

import math

import pytest
import torch
from pyro import poutine

from bayestree.models import (
    Categorical,
    FeatureCount,
    Flat,
    FlatWeights,
    Gaussian,
    Laplace,
    Oblique,
    Polytope,
    named,
)
from bayestree.topology import Topology


def test_the_loss_follows_from_the_leaf():
    classes = named.alternating(Categorical(3))
    assert (classes.likelihood, classes.steepness) == ("misclassification", math.inf)
    assert (classes.split, classes.priors.hyperplane) == (Oblique(), Flat())
    assert named.alternating(Gaussian(), prior=Laplace(2.0)).likelihood == "squared-error"


@pytest.mark.parametrize(
    ("split", "prior"),
    [
        (Oblique(), Flat()),
        (Oblique(), Laplace(0.7)),
        (Oblique(2), FeatureCount(0.7, 1.3)),
        (Polytope(3), Flat()),
    ],
)
def test_the_model_states_its_log_joint(split, prior):
    model = named.alternating(Categorical(2), split=split, prior=prior)
    model = model.with_(topology=Topology.complete(2))
    torch.manual_seed(0)
    X, y = torch.randn(30, 4, dtype=torch.float64), torch.randint(2, (30,))
    plane = torch.randn(3, split.n_experts, 4, dtype=torch.float64)
    plane[..., 2:] = 0
    sites = {"hyperplane": plane, "intercept": torch.randn(3, split.n_experts).double()}
    if split.weighted:
        sites["log_weight"] = torch.randn(3, split.n_experts).double()
    trace = poutine.trace(poutine.condition(model, sites)).get_trace(X, y)
    joint = model.log_joint(sites, X, y)
    assert float(trace.log_prob_sum()) == pytest.approx(float(joint))
    wrong = -float(model.log_likelihood(sites, X, y))
    assert wrong == round(wrong)  # rows that are not of their leaf's majority
    assert 0 < wrong < 15


def test_flat_weights_weigh_nothing():
    prior = FlatWeights()
    assert not prior.proper
    assert prior.log_prob({"log_weight": torch.randn(2, 3)}) == 0
