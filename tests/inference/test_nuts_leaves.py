"""Chains of the No-U-Turn sampler against leaves whose posterior is in closed form."""

import math

import numpy as np
import torch
from scipy import stats

from bayestree.inference import Data, Posterior, nuts
from bayestree.models import Categorical, Gaussian, Oblique
from bayestree.models.soft_tree import sample_prior
from tests.models.cases import make
from tests.sampling import assert_law


class TestConjugate:
    """Rows whose way is certain: the posterior of the leaves is in closed form."""

    def test_categorical(self):
        y = np.array([0, 2, 0, 2, 1, 2, 0, 2, 0, 0] * 4)
        leaf = Categorical(3, 0.8)
        data = sides(y, np.linspace(0.5, 2, len(y)))
        draws = leaves_of_a_sure_split(leaf, data)["leaf_probs"]
        for side in range(2):
            counts = np.bincount(y[side::2], data.weights.numpy()[side::2], minlength=3) + 0.8 / 3
            assert_law(draws[:, side], stats.beta(counts, counts.sum() - counts))

    def test_gaussian(self):
        y = np.random.default_rng(0).normal(size=30) + np.tile([-2.0, 1.0], 15)
        leaf, data = Gaussian(0.1, 0.5, 3.0, 0.7), sides(y, None)
        draws = leaves_of_a_sure_split(leaf, data)
        for side in range(2):
            known = leaf.posterior(leaf.statistics(data.y, data.weights)[side::2].sum(0)[None])
            a, rate, strength, loc = (
                float(v[0]) for v in (known.shape, known.rate, known.strength, known.loc)
            )
            scale = math.sqrt(rate / (a * strength))
            assert_law(draws["leaf_mean"][:, side, None], stats.t(2 * a, loc=loc, scale=scale))
            variance = draws["leaf_scale"][:, side, None] ** 2
            assert_law(variance, stats.invgamma(a, scale=rate))


def sides(y, weights):
    """Rows far to the left and far to the right in turn."""
    X = torch.tensor([[-1e4], [1e4]], dtype=torch.float64).repeat(len(y) // 2, 1)
    return Data.of(X, y, weights)


def leaves_of_a_sure_split(leaf, data):
    """Draws of the leaves of a stump that is so steep that no row wavers."""
    model = make("stump", split=Oblique(), steepness=50.0).with_(leaf=leaf)
    half = torch.stack([leaf.statistics(data.y, data.weights)[side::2].sum(0) for side in (0, 1)])
    sites = {name: value[0] for name, value in sample_prior(model, 1, 1, random_state=0).items()}
    sites |= leaf.posterior(half).mean()
    sites["hyperplane"][...], sites["intercept"][...] = 5.0, 0.0
    found = nuts(
        model,
        data,
        init=Posterior.from_point(model, sites, "known"),
        n_chains=1,
        n_warmup=150,
        n_draws=600,
        n_refreshes=0,
        # slides change the hyperplane by orders of magnitude, and one mass matrix cannot suit all
        n_slides=0,
        max_tree_depth=4,
        target_acceptance=0.8,
        random_state=0,
    )
    steep = found.draws["hyperplane"][0, :, 0, 0, 0]
    assert (1e4 * steep > np.abs(found.draws["intercept"][0, :, 0, 0])).all()
    return {name: value[0] for name, value in found.draws.items()}
