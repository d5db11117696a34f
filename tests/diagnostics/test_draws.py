"""Routing without torch, against the soft tree's own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.diagnostics.draws import branch_log_probs, leaf_log_probs, scores
from bayestree.models import Oblique, Polytope, SoftTree
from bayestree.topology import Topology
from tests.strategies import seeds, topologies


def sites_of(rng, n_nodes, experts, d, *, weighted=True):
    sites = {
        "log_weight": 4 * rng.normal(size=(n_nodes, experts)),
        "intercept": 5 * rng.normal(size=(n_nodes, experts)),
        "hyperplane": 5 * rng.normal(size=(n_nodes, experts, d)),
    }
    return sites if weighted else {k: v for k, v in sites.items() if k != "log_weight"}


def leaves(sites, X, topology, steepness):
    return leaf_log_probs(*branch_log_probs(scores(sites, ..., X), steepness), topology)


@settings(max_examples=40, deadline=None)
@given(
    seeds(),
    topologies(max_nodes=7),
    st.integers(1, 4),
    st.sampled_from([1.0, 6.0, 20.0]),
    st.booleans(),
)
def test_equal_to_the_soft_tree(seed, topology, experts, steepness, weighted):
    rng = np.random.default_rng(seed)
    split = Polytope(experts) if weighted else Oblique()
    model = SoftTree(topology, split=split, steepness=steepness)
    sites = sites_of(rng, topology.n_nodes, split.n_experts, 3, weighted=weighted)
    X = rng.normal(size=(9, 3))
    tensors = {name: torch.from_numpy(values) for name, values in sites.items()}
    expected = model.leaf_log_probs(tensors, torch.from_numpy(X)).numpy()
    # near log 1 = 0 what counts is the last digit of the probability
    found = leaves(sites, X, topology, steepness)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("steepness", [1.0, 6.0])
def test_votes_that_underflow_stay_finite(steepness):
    sites = sites_of(np.random.default_rng(0), 1, 2, 1)
    sites["log_weight"][:] = -800.0
    left, right = branch_log_probs(scores(sites, ..., np.zeros((1, 1))), steepness)
    assert np.isfinite(left).all()
    assert np.isfinite(right).all()
    model = SoftTree(Topology.stump(), split=Polytope(2), steepness=steepness)
    tensors = {name: torch.from_numpy(values) for name, values in sites.items()}
    expected = model.leaf_log_probs(tensors, torch.zeros(1, 1, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(np.hstack([left, right]), expected)
