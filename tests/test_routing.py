import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.routing import (
    branch_log_probs,
    jitter,
    leaf_log_probs,
    log_odds,
    path_matrix,
    score,
    vote,
)
from bayestree.topology import Topology
from tests.strategies import seeds, topologies

EPS = np.finfo(np.float64).eps
# From far below the square root of the least number to the largest exponent of float64.
SCORES = np.concatenate([np.logspace(-300, 0, 601), np.linspace(0.5, 1, 101), np.arange(1, 701)])


def splits(seed, n_nodes, *, n_experts=3, n_features=2, n=7, spread=1.0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return spread * torch.randn(*shape, generator=generator, dtype=torch.float64)

    return (
        normal(n, n_features) / spread,
        normal(n_nodes, n_experts),
        normal(n_nodes, n_experts, n_features),
        normal(n_nodes, n_experts),
    )


def route(topology, parameters, steepness=1.0):
    s = score(*parameters)
    left, right = branch_log_probs(s, steepness)
    return leaf_log_probs(left, right, path_matrix(topology, dtype=s.dtype, device="cpu"))


@given(
    topologies(),
    seeds(),
    st.sampled_from([0.1, 1.0, 30.0]),
    st.sampled_from([0.5, 1, 2.0, 50, math.inf]),
)
def test_leaf_probabilities_sum_to_one(topology, seed, spread, steepness):
    log_prob = route(topology, splits(seed, topology.n_nodes, spread=spread), steepness)
    probability = log_prob.exp()
    total = probability.sum(-1)
    # A sum of logarithms carries their rounding into p as p |log p|.
    rounding = 1 + float((probability * log_prob).abs().max())
    slack = 16 * EPS * (topology.n_nodes + 1) * rounding
    assert (total - 1).abs().max() <= slack


@pytest.mark.parametrize("steepness", [1, 1.0, 0.3, 6.0, 1000.0])
def test_leaf_probabilities_sum_to_one_at_extreme_scores(steepness):
    s = torch.tensor([[1e-300, 1e-8], [0.7, 1e-300], [700.0, 1e4], [1e-300, 700.0]])
    s = s.to(torch.float64).clamp_min(1e-300)
    topology = Topology([[~0, 1], [~1, ~2]])
    left, right = branch_log_probs(s, steepness)
    paths = path_matrix(topology, dtype=s.dtype, device="cpu")
    log_prob = leaf_log_probs(left, right, paths)
    assert torch.isfinite(log_prob).all()
    assert (log_prob.exp().sum(-1) - 1).abs().max() < 1e-12


@given(topologies(min_nodes=1), seeds(), st.sampled_from([1.0, 2.5]))
def test_leaf_probabilities_are_products_of_noisy_or_branches(topology, seed, steepness):
    X, log_weight, hyperplane, intercept = splits(seed, topology.n_nodes)
    found = route(topology, (X, log_weight, hyperplane, intercept), steepness).exp().numpy()
    X, weight, plane, offset = (
        value.numpy() for value in (X, log_weight.exp(), hyperplane, intercept)
    )
    for row, probabilities in zip(X, found, strict=True):
        for leaf, label in enumerate(topology.leaf_labels):
            expected, at = 1.0, 0
            for letter in label:
                # P(no expert votes right), the product of eq. 1
                left = np.prod((1 + np.exp(plane[at] @ row + offset[at])) ** -weight[at])
                sides = {"L": left**steepness, "R": (1 - left) ** steepness}
                expected *= sides[letter] / sum(sides.values())
                at = topology.children[at, "LR".index(letter)]
            # 1 - left loses what left has near 1; the test's own rounding, not the code's.
            assert probabilities[leaf] == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_log_odds_are_accurate_from_1e_300_to_700():
    scores = np.append(SCORES, [1e3, 1e4])  # beyond the exponents of float64
    reference = np.log(np.expm1(scores.astype(np.longdouble)))
    found = log_odds(torch.as_tensor(scores)).numpy()
    # The odds of s cross 1 at log 2, where only an absolute error can be small.
    scale = np.maximum(1.0, np.abs(reference))
    assert np.max(np.abs(found - reference) / scale) < 4 * EPS


@pytest.mark.parametrize("steepness", [1.0, 0.5, 6.0])
def test_branch_log_probabilities_are_accurate_from_1e_300_to_700(steepness):
    s = SCORES.astype(np.longdouble)
    odds = steepness * np.log(np.expm1(s))
    reference = -np.logaddexp(0, odds), -np.logaddexp(0, -odds)
    found = branch_log_probs(torch.as_tensor(SCORES), steepness)
    for have, want in zip(found, reference, strict=True):
        scale = np.maximum(1.0, np.abs(want))
        assert np.max(np.abs(have.numpy() - want) / scale) < 16 * EPS * max(1.0, steepness)


@given(st.floats(1e-300, 700), st.floats(0.01, 100))
def test_branches_are_those_of_scaled_log_odds(s, steepness):
    rate = torch.tensor(s, dtype=torch.float64)
    left, right = (float(value) for value in branch_log_probs(rate, steepness))
    odds = float(log_odds(rate))
    assert right - left == pytest.approx(steepness * odds, rel=1e-12, abs=1e-12)


def test_a_tensor_of_steepness_one_is_the_model_itself():
    s = torch.as_tensor(SCORES)
    plain = branch_log_probs(s)
    scaled = branch_log_probs(s, torch.tensor(1.0, dtype=torch.float64))
    for one, other in zip(plain, scaled, strict=True):
        assert torch.allclose(one, other, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_score(seed):
    X, *parameters = splits(seed, n_nodes=2)
    assert torch.autograd.gradcheck(
        lambda *own: score(X, *own), [p.requires_grad_() for p in parameters]
    )


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_vote(seed):
    generator = torch.Generator().manual_seed(seed)
    activation = 3 * torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    log_weight = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    inputs = activation.requires_grad_(), log_weight.requires_grad_()
    assert torch.autograd.gradcheck(vote, inputs)


def test_gradients_of_jitter():
    generator = torch.Generator().manual_seed(0)
    center, noise = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    variance = torch.rand(5, 3, generator=generator, dtype=torch.float64) + 0.1
    inputs = center.requires_grad_(), variance.requires_grad_(), noise
    assert torch.autograd.gradcheck(jitter, inputs)


def test_jitter_has_the_mean_and_variance_it_is_given():
    n = 100_000
    noise = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = jitter(torch.full_like(noise, 3.0), torch.full_like(noise, 4.0), noise)
    assert abs(float(drawn.mean()) - 3) < 4 * 2 / math.sqrt(n)
    assert abs(float(drawn.var()) - 4) < 4 * 4 * math.sqrt(2 / n)


@pytest.mark.parametrize("steepness", [1.0, 6.0, 50.0])
@pytest.mark.parametrize("activation", [-1e4, -200.0, -95.0, -88.0, 0.0, 88.0, 1e4])
@pytest.mark.parametrize("log_weight", [-1e4, -100.0, -80.0, 0.0, 30.0])
def test_float32_gradients_are_finite_at_extremes(activation, log_weight, steepness):
    pre = torch.full((1, 2, 3), activation, requires_grad=True)
    weight = torch.full((1, 2), log_weight, requires_grad=True)
    left, right = branch_log_probs(vote(pre, weight), steepness)
    assert torch.isfinite(left).all()
    assert torch.isfinite(right).all()
    for side in (left, right):
        for gradient in torch.autograd.grad(side.sum(), (pre, weight), retain_graph=True):
            assert torch.isfinite(gradient).all()


@settings(max_examples=30)
@given(seeds())
def test_score_is_the_sum_of_weighted_softplus(seed):
    X, log_weight, hyperplane, intercept = splits(seed, n_nodes=3)
    s = score(X, log_weight, hyperplane, intercept)
    activation = np.einsum("nd,vkd->nvk", X, hyperplane) + intercept.numpy()
    expected = (np.logaddexp(0, activation) * log_weight.exp().numpy()).sum(-1)
    np.testing.assert_allclose(s, expected, rtol=1e-12)


def test_an_underflowed_score_keeps_finite_log_odds():
    for dtype in (torch.float32, torch.float64):
        s = vote(torch.full((1, 2, 1), -1e5, dtype=dtype), torch.zeros(1, 2, dtype=dtype))
        assert (s > 0).all()
        assert torch.isfinite(log_odds(s)).all()


def test_the_single_leaf_takes_every_row():
    log_prob = route(Topology.leaf(), splits(0, n_nodes=0))
    assert log_prob.tolist() == [[0.0]] * 7


@given(topologies(), seeds())
def test_infinitely_steep_splits_are_sure_of_every_row(topology, seed):
    """A row's leaf is the one that steep splits favour, and no other has any probability."""
    parameters = splits(seed, topology.n_nodes)
    sure = route(topology, parameters, math.inf).exp()
    assert set(sure.unique().tolist()) <= {0.0, 1.0}
    steep = route(topology, parameters, 1e9).exp()
    np.testing.assert_allclose(sure, steep, atol=1e-6)
