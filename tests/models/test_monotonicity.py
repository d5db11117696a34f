"""Signs of coefficients and orders of leaves that make predictions monotone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from bayestree.models import Categorical, Gaussian, Polytope, SoftTree
from bayestree.models.soft_tree import MonotonicityConstraints, isotonic
from bayestree.topology import Topology
from tests.strategies import seeds, topologies


def constrained(topology, *, monotone=(1, -1, 0), leaf=None, steepness=1.0):
    leaf = leaf or Gaussian()
    return SoftTree(topology, Polytope(3), leaf=leaf, steepness=steepness, monotone=monotone)


@settings(max_examples=40, deadline=None)
@given(topologies(max_nodes=6), seeds(), st.sampled_from([0.5, 1.0, 6.0]))
def test_folded_coefficients_and_ordered_leaves_give_monotone_predictions(topology, seed, steep):
    rng = np.random.default_rng(seed)
    model = constrained(topology, steepness=steep)
    size = topology.n_nodes, 3
    free = torch.as_tensor(rng.normal(size=(*size, 4)))
    monotone = MonotonicityConstraints.of(model, free[..., :-1])
    coefficient = monotone.fold(free)
    again = MonotonicityConstraints.of(model, coefficient[..., :-1])
    assert torch.equal(again.fold(coefficient), coefficient)
    assert (again.order == monotone.order).all()

    value = isotonic(rng.normal(size=topology.n_leaves), np.ones(topology.n_leaves), again.order)
    sites = {
        "hyperplane": coefficient[..., :-1],
        "intercept": coefficient[..., -1],
        "log_weight": torch.as_tensor(rng.normal(size=size)),
    }
    for feature, direction in ((0, 1), (1, -1)):
        X = np.tile(rng.normal(size=3), (50, 1))
        X[:, feature] = np.linspace(-4, 4, 50)
        f = model.leaf_log_probs(sites, torch.as_tensor(X)).exp().numpy() @ value
        assert (direction * np.diff(f) >= -1e-12).all()


def test_the_side_of_larger_predictions_is_that_of_most_coefficients():
    model = constrained(Topology.complete(2), monotone=(1, 0))
    plane = torch.tensor([[[1.0, 0.0]], [[-2.0, 5.0]], [[0.0, 1.0]]]).repeat(1, 3, 1)
    found = MonotonicityConstraints.of(model, plane)
    assert found.signs[:, 0].tolist() == [[1, 0, 0], [-1, 0, 0], [1, 0, 0]]
    first, second, third, fourth = model.topology.left_to_right[0].argsort()
    assert found.order.tolist() == [second, first, third, fourth]
    assert MonotonicityConstraints.of(model.with_(monotone=(0, 0)), plane) is None


def test_leaves_out_of_order_share_their_rows():
    model = constrained(Topology.complete(2), leaf=Categorical(2))
    order = MonotonicityConstraints.of(model, torch.ones(3, 3, 3)).order
    sums = torch.tensor([[8.0, 2.0], [1.0, 9.0], [15.0, 5.0], [0.0, 10.0]])
    given = torch.empty_like(sums)
    given[torch.as_tensor(order)] = sums
    found = MonotonicityConstraints.of(model, torch.ones(3, 3, 3)).pooled(model.leaf, given)[order]
    # 0.9 above 0.25: 14 of 30
    pooled = torch.tensor([16.0, 14.0]) / 30
    torch.testing.assert_close(found, torch.stack((sums[0], 10 * pooled, 20 * pooled, sums[3])))


def test_an_empty_leaf_follows_its_neighbours():
    model = constrained(Topology.complete(2), leaf=Categorical(2))
    monotone = MonotonicityConstraints.of(model, torch.ones(3, 3, 3))
    sums = torch.zeros(4, 2)
    sums[torch.as_tensor(monotone.order)[[0, 2]]] = torch.tensor([[3.0, 1.0], [1.0, 3.0]])
    assert torch.equal(monotone.pooled(model.leaf, sums), sums)
    mass = np.array([1.0, 0.0, 1.0, 0.0])
    order = np.arange(4)
    np.testing.assert_allclose(isotonic(np.array([1.0, 5, 2, 0]), mass, order), [1, 2, 2, 2])


@pytest.mark.parametrize("mean", [-1.5, 0.0, 0.3])
def test_the_mean_of_a_folded_normal(mean):
    model = constrained(Topology.stump(), monotone=(-1,))
    monotone = MonotonicityConstraints.of(model, -torch.ones(1, 3, 1))
    full = torch.full((1, 3, 2), mean, dtype=torch.float64)
    found = monotone.folded_mean(full, torch.full_like(full, 0.7))
    x = np.linspace(-12, 12, 20_001)
    expected = np.trapezoid(np.abs(x) * norm.pdf(x, mean, 0.7), x)
    np.testing.assert_allclose(found[0, 0], [-expected, mean], rtol=1e-5)
