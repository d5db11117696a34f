"""Compiled paths of rows in several trees, against those of plain torch, also far from any leaf."""

import numpy as np
import pytest
import torch

from bayestree import routing
from bayestree.inference.core.slopes import ODDS, evidence, slopes
from bayestree.topology import JoinedTopology
from tests.inference.variational.cases import TREES


@pytest.mark.parametrize("steepness", [0.4, 1.0, 6.0])
@pytest.mark.parametrize("distance", [1.0, 100.0, 1e5])  # between leaves, in nats
def test_paths_are_those_of_torch(steepness, distance):
    trees, rng, n = JoinedTopology(TREES), np.random.default_rng(0), 50
    psi = rng.normal(size=(trees.n_nodes, 3, n)) * np.logspace(-3, 3, n)
    weight = rng.gamma(1.0, size=psi.shape[:2])
    density = torch.from_numpy(distance * rng.normal(size=(trees.n_leaves, n)))
    score = routing.vote(torch.from_numpy(psi), torch.from_numpy(weight).log()).T
    odds = steepness * routing.log_odds(score)

    nodes, value = np.empty((3, *score.shape)), np.empty((trees.n_nodes + trees.n_leaves, n))
    value[trees.n_nodes :] = density.numpy()
    votes = psi.copy()
    evidence(votes, weight, trees.children, steepness, nodes, value)
    np.testing.assert_allclose(votes, np.logaddexp(0.0, psi), 1e-14, 1e-300)
    np.testing.assert_allclose(nodes[ODDS], odds, 1e-13, 1e-13)
    likelihood, into = value[trees.roots], (np.empty_like(psi), *np.empty((2, *weight.shape)))
    given = np.ones(n), trees.children, trees.roots, steepness, 1.0, True
    slopes(votes, weight, *given, nodes, value, into)
    for number, (tree, own, leaves) in enumerate(
        zip(TREES, trees.nodes, trees.leaves, strict=True)
    ):
        expected = routing.expectation(odds[own], density[leaves], tree)
        np.testing.assert_allclose(likelihood[number], expected.log_likelihood, 1e-13, 1e-13)
        mass = np.concatenate([value[own], value[trees.n_nodes :][leaves]])
        np.testing.assert_allclose(mass, expected.mass, 1e-9, 1e-12)
    assert all(np.isfinite(one).all() for one in (votes, *into))
