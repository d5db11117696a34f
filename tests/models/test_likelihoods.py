"""TAO's tree as a model."""

import math

import numpy as np
import pytest
import torch
from pyro import poutine
from sklearn.metrics import mutual_info_score

from bayestree.models import (
    Categorical,
    FeatureCount,
    Flat,
    FlatWeights,
    Gaussian,
    Laplace,
    LinearGaussian,
    Logistic,
    Oblique,
    Polytope,
    SoftTree,
    named,
)
from bayestree.models.likelihoods import LIKELIHOODS, Variance
from bayestree.topology import Topology
from bayestree.tree import Tree
from tests.models.cases import make, rows, traced


def value(likelihood, log_prob, y, weights, leaf=None):
    return LIKELIHOODS[likelihood].value(log_prob, leaf or Gaussian(), y, weights)


def entropy(labels):
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    return -(share * np.log(share)).sum()


def hard(leaf, n_leaves):
    """Log-probabilities of rows that each lie in one leaf, -inf elsewhere replaced by -1000."""
    log_prob = torch.full((len(leaf), n_leaves), -1000.0, dtype=torch.float64)
    log_prob[torch.arange(len(leaf)), torch.as_tensor(leaf)] = 0.0
    return log_prob


def test_hard_leaves_have_the_mutual_information_of_scikit_learn():
    generator = np.random.default_rng(0)
    leaf, y = generator.integers(4, size=200), generator.integers(3, size=200)
    y[leaf == 1] = 2  # a pure leaf
    ones = torch.ones(200, dtype=torch.float64)
    found = value("mutual-information", hard(leaf, 5), torch.as_tensor(y), ones, Categorical(3))
    expected = 200 * (mutual_info_score(y, leaf) - entropy(y))
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_soft_leaves_have_the_entropy_of_the_expected_table():
    model = make(fit="mutual-information")
    X, y, weights = rows(model, weighted=True)
    _, sites = traced(model, X, y)
    member = model.leaf_log_probs(sites, X).exp().numpy()
    table = np.array([(member * weights.numpy()[:, None])[y.numpy() == c].sum(0) for c in range(3)])
    joint = table / table.sum()
    conditional = -(joint * np.log(joint / joint.sum(0))).sum()
    found = float(model.log_likelihood(sites, X, y, weights))
    assert found == pytest.approx(-float(weights.sum()) * conditional, rel=1e-10)


def test_an_empty_leaf_and_an_empty_cell_have_finite_gradients():
    log_prob = hard(np.array([0, 0, 1, 1]), 3).requires_grad_()
    y = torch.tensor([0, 1, 1, 1])
    value("mutual-information", log_prob, y, torch.ones(4).double(), Categorical(3)).backward()
    assert torch.isfinite(log_prob.grad).all()
    log_prob = hard(np.array([0, 0, 1, 1]), 3).requires_grad_()
    y = torch.tensor([0.0, 1, 2, 5]).double()
    value("variance", log_prob, y, torch.ones(4).double()).backward()
    assert torch.isfinite(log_prob.grad).all()


def test_hard_leaves_have_the_log_of_their_pooled_variance():
    generator = np.random.default_rng(0)
    leaf, y = generator.integers(4, size=100), generator.normal(size=100)
    weights = generator.integers(1, 4, size=100)
    found = value("variance", hard(leaf, 4), torch.as_tensor(y), torch.as_tensor(weights).double())
    leaf, y = np.repeat(leaf, weights), np.repeat(y, weights)
    squares = sum(((y[leaf == i] - y[leaf == i].mean()) ** 2).sum() for i in range(4))
    assert float(found) == pytest.approx(-len(y) / 2 * np.log(squares / len(y)), rel=1e-10)


def test_losses_of_the_deterministic_tree_by_hand():
    leaf, weights = np.array([0, 0, 0, 1, 1]), torch.tensor([1.0, 2, 4, 1, 3]).double()
    # leaf 0: class 1 has weight 6 of 7; leaf 1: class 2 has 3 of 4
    y = torch.tensor([0, 1, 1, 1, 2])
    lost = value("misclassification", hard(leaf, 3), y, weights, Categorical(3))
    assert float(lost) == pytest.approx(-2.0)
    # leaf 0: mean (1 + 2 * 2 + 4 * 4) / 7 = 3; leaf 1: mean (5 + 3 * 1) / 4 = 2
    values = torch.tensor([1.0, 2, 4, 5, 1]).double()
    squares = 4 + 2 * 1 + 4 * 1 + 9 + 3 * 1
    lost = value("squared-error", hard(leaf, 3), values, weights)
    assert float(lost) == pytest.approx(-squares)


@pytest.mark.parametrize(
    ("likelihood", "leaf"),
    [("misclassification", Categorical(3)), ("squared-error", Gaussian())],
)
def test_losses_are_those_of_the_deterministic_tree(likelihood, leaf):
    model = SoftTree(Topology.complete(2), Polytope(3), leaf=leaf, steepness=math.inf)
    X, y, weights = rows(model, weighted=True)
    _, sites = traced(model, X, y)
    model = model.with_(likelihood=likelihood)
    tree = Tree.from_standardised(
        model.topology,
        sites["log_weight"].exp().numpy(),
        sites["hyperplane"].numpy(),
        sites["intercept"].numpy(),
        center=np.zeros(X.shape[1]),
        scale=np.ones(X.shape[1]),
    )
    n_classes = 3 if likelihood == "misclassification" else 0
    says = tree.fill(X.numpy(), y.numpy(), weights.numpy(), n_classes).predict(X.numpy())
    wrong = says.argmax(1) != y.numpy() if n_classes else (says - y.numpy()) ** 2
    expected = -float(wrong @ weights.numpy())
    assert float(model.log_likelihood(sites, X, y, weights)) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match=r"needs steepness math\.inf, got 2\.0"):
        model.with_(steepness=2.0)


def test_the_loss_of_logistic_leaves_is_that_of_their_regressions():
    """The class is the sign of x in one leaf and the opposite in the other, but for one row."""
    x = torch.linspace(-1, 1, 20).double().repeat(2)
    side = np.repeat([0, 1], 20)
    y = ((x > 0) ^ torch.as_tensor(side == 1)).long()
    y[0], weights = 1 - y[0], torch.ones(40).double()
    weights[0] = 0.01  # too little to move the border
    leaf = Logistic(2)
    response = leaf.response(x.unsqueeze(1), y)
    lost = value("misclassification", hard(side, 3), response, weights, leaf)
    assert float(lost) == pytest.approx(-0.01)
    # counts of the classes would leave half of the rows outside
    assert float(value("misclassification", hard(side, 3), y, weights, Categorical(2))) <= -19
    model = SoftTree(Topology.stump(), Polytope(1), leaf=leaf, steepness=math.inf)
    X = torch.stack((x, torch.as_tensor(side) - 0.5), dim=1)
    _, sites = traced(model, X, y)
    sites |= {"hyperplane": torch.tensor([[[0.0, 1.0]]]).double()}
    sites |= {"intercept": torch.zeros(1, 1).double(), "log_weight": torch.zeros(1, 1).double()}
    model = model.with_(likelihood="misclassification")
    assert float(model.log_likelihood(sites, X, y, weights)) == pytest.approx(-0.01)
    trace, _ = traced(model, X, y, weights)
    assert torch.isfinite(trace.log_prob_sum())


@pytest.mark.parametrize(
    ("likelihood", "leaf"),
    [
        ("mutual-information", Logistic(2)),
        ("variance", LinearGaussian()),
        ("squared-error", LinearGaussian()),
    ],
)
def test_objectives_of_constant_leaves_refuse_regressions(likelihood, leaf):
    with pytest.raises(ValueError, match="use likelihood='mixture' for leaves that regress"):
        SoftTree(Topology.stump(), leaf=leaf, likelihood=likelihood, steepness=math.inf)
    for tree in (named.weighted_oblique, named.bivariate, named.oblique):
        assert tree(leaf).likelihood == "mixture"


def test_likelihoods_are_equal_if_name_and_type_are():
    mixture = LIKELIHOODS["mixture"]
    assert mixture == "mixture"
    assert "mixture" == mixture  # noqa: SIM300 - the other order
    assert not mixture != "mixture"  # noqa: SIM202 - str has its own !=
    assert mixture == type(mixture)("mixture")
    assert Variance("mixture") != mixture
    assert not Variance("mixture") == mixture  # noqa: SIM201
    assert hash(mixture) == hash("mixture")


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
