"""What the trees of all chains say about rows is what the model says about each."""

import numpy as np
import pytest
import torch

from bayestree.inference import Data
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.mcmc.trees import ChainTrees, branches, left_slope
from bayestree.models import Oblique
from bayestree.models.soft_tree import sample_prior
from tests.models.cases import TOPOLOGIES, make, rows

CASES = {
    **{name: {"topology": name, "steepness": 6.0} for name in TOPOLOGIES},
    "steepness 1": {},
    "gradual": {"steepness": 0.4},
    "oblique": {"split": Oblique(), "steepness": 2.0},
    "gaussian": {"fit": "gaussian-mixture"},
    "linear": {"fit": "linear-mixture", "steepness": 3.0},
}


def trees_of(model, n_chains=3, n=20, seed=0):
    """Chains at draws of the prior, with the sites of each, and the rows."""
    drawn = sample_prior(model, 2, n_chains, random_state=seed)
    each = [{name: value[i].numpy() for name, value in drawn.items()} for i in range(n_chains)]
    data = Data.of(*rows(model, n=n, weighted=True))
    layout = Layout(model, 2)
    return ChainTrees(model, data, np.array([layout.vector(one) for one in each])), each, data


def log_likelihood(trees, data):
    """The log-likelihood of each chain by the model."""
    sites = trees.layout.sites(trees.vectors)
    return [
        float(
            trees.model.log_likelihood(
                {name: torch.as_tensor(value[i]) for name, value in sites.items()}, *data
            )
        )
        for i in range(trees.n_chains)
    ]


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES)
class TestLikelihood:
    def test_equals_that_of_the_model(self, parts):
        trees, _, data = trees_of(make(**parts))
        np.testing.assert_allclose(trees.log_likelihood(), log_likelihood(trees, data), 1e-9)

    def test_as_a_function_of_each_node(self, parts):
        """a + b P(left) + c P(right), at the current score and at that of another expert."""
        trees, _, data = trees_of(make(**parts))
        _, other, _ = trees_of(make(**parts), seed=1)
        for node in range(trees.n_nodes):
            rows_of = trees.of_node(node)
            now = trees.total(rows_of.mixture(trees.sides[node]))
            np.testing.assert_allclose(now, log_likelihood(trees, data), 1e-9)
            for name in ("hyperplane", "intercept"):
                value = np.array([one[name][node] for one in other])
                trees.free[name][:, node] = value
            votes = trees.expert_votes({name: v[:, node] for name, v in trees.free.items()
                                        if name in ("hyperplane", "intercept")})  # fmt: skip
            weight = 1.0 if trees.weight is None else trees.weight[:, node, :, None]
            score = (weight * votes).sum(axis=1)
            new = trees.total(rows_of.mixture(branches(score, trees.steepness)))
            np.testing.assert_allclose(new, log_likelihood(trees, data), 1e-9)
            trees.set_score(node, score)
            np.testing.assert_allclose(trees.log_likelihood(), new, 1e-9)


@pytest.mark.parametrize("steepness", [0.4, 1.0, 6.0])
class TestBranches:
    score = np.geomspace(1e-12, 600, 200)

    def test_sum_to_1_and_keep_small_ones(self, steepness):
        left, right = branches(self.score, steepness)
        np.testing.assert_allclose(left + right, 1.0)
        odds = steepness * (self.score + np.log(-np.expm1(-self.score)))
        small = np.abs(odds) < 600
        np.testing.assert_allclose(np.log(right / left)[small], odds[small], 1e-9, 1e-9)

    def test_slope(self, steepness):
        step = 1e-6 * self.score
        up, down = (branches(self.score + sign * step, steepness) for sign in (1, -1))
        # the smaller of both probabilities keeps its digits
        change = np.where(self.score < np.log(2), down.right - up.right, up.left - down.left)
        slope = left_slope(self.score, branches(self.score, steepness), steepness)
        np.testing.assert_allclose(slope, change / (2 * step), 1e-4, 1e-12)

    def test_huge_scores_are_finite(self, steepness):
        sides = branches(np.array([0.0, 1e-300, 1e5, 1e300]), steepness)
        assert np.isfinite(sides).all()
        assert (sides.left > 0).all()
