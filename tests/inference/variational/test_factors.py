"""The variational factors: their densities and divergences against other formulas and draws."""

import copy

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import hadamard
from torch.distributions import Gamma, MultivariateNormal, Normal, kl_divergence

from bayestree._utils.state import seeded
from bayestree.distributions import LogGamma, inverse_gamma_scale
from bayestree.inference.variational.factors import JITTER, SHAPE, SPREAD, Factors
from bayestree.inference.variational.low_rank import LowRankFactors
from bayestree.models import Gaussian, Oblique
from bayestree.models.splits import joined
from bayestree.topology import JoinedTopology
from tests.inference.problems import normal
from tests.inference.variational.cases import (
    PRIORS,
    TREES,
    factors_of,
    grown,
    model_of,
    precision_of,
    rows,
)

SPLITS = {"polytope": {}, "oblique": {"split": Oblique()}}
LEAVES = {"classes": {}, "numbers": {"leaf": Gaussian()}}


def within(draws, expected, errors=4.5):
    """Whether means of draws (n, ...) are as expected; a fixed seed draws them."""
    error = draws.std(0, correction=1) / len(draws) ** 0.5
    return bool((abs(draws.mean(0) - expected) <= errors * error + 1e-12).all())


def normal_of(factors):
    """The factors of the coefficients as distributions."""
    return MultivariateNormal(factors.mean, precision_matrix=precision_of(factors))


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize("split", SPLITS)
def test_the_divergence_of_splits_is_its_mean_over_draws(split, low_rank):
    """With the scales drawn, too: beta ~ Normal(0, sigma^2), sigma^2 ~ InverseGamma(a, s^2 b)."""
    factors = factors_of(rows(), low_rank=low_rank, **SPLITS[split]).eval()
    own = normal_of(factors)
    weights = LogGamma(factors.shape, factors.rate), LogGamma(1.5 / 3, 0.7)
    law, n = factors.scales.law, 300
    scales = inverse_gamma_scale(1.2 + 0.5, factors.scales.scale_rate(factors.moments))
    square = torch.tensor([0.8, 0.8, 1.0], dtype=torch.float64).square()
    with seeded(0), torch.no_grad():
        beta, b, sigma = (one.sample((n,)) for one in (own, law, scales))
        prior = Gamma(2.0, 0.6).log_prob(b) + Normal(0.0, sigma).log_prob(beta).sum(-1)
        prior += inverse_gamma_scale(1.2, square * b.unsqueeze(-1)).log_prob(sigma).sum(-1)
        each = own.log_prob(beta) + law.log_prob(b) + scales.log_prob(sigma).sum(-1) - prior
        if split == "polytope":
            value = weights[0].sample((n,))
            each += weights[0].log_prob(value) - weights[1].log_prob(value)
        found = [each[:, nodes].sum((1, 2)) for nodes in factors.topology.nodes]
        assert within(torch.stack(found, 1), factors.split_divergence())


@pytest.mark.parametrize("leaf", LEAVES)
def test_the_divergence_of_leaves_is_its_mean_over_draws(leaf):
    factors = factors_of(rows(leaf=LEAVES[leaf].get("leaf")), **LEAVES[leaf])
    family = factors.model.leaf
    for own, expected in zip(factors.topology.leaves, factors.leaf_divergence(), strict=True):
        law = family.posterior(factors.sums[own])
        with seeded(0):
            drawn = [law.sample() for _ in range(200)]
        gaps = [law.log_prob(one) - family.log_prob(one) for one in drawn]
        assert within(torch.stack(gaps), expected)


def test_weights_have_the_divergence_of_gamma_variables():
    factors = factors_of(rows())
    law = PRIORS.weight.law(3, factors.rate)
    expected = kl_divergence(LogGamma(factors.shape, factors.rate), law).sum(1)
    none = factors_of(rows(), **SPLITS["oblique"])
    with_weights, without = (
        one.split_divergence(torch.zeros_like(one.rate)) for one in (factors, none)
    )
    own, other = (
        MultivariateNormal(one.mean, precision_matrix=one.precision).entropy().sum(1)
        for one in (factors, none)
    )
    for tree, nodes in enumerate(factors.topology.nodes):
        torch.testing.assert_close(with_weights[tree], (expected - own)[nodes].sum())
        torch.testing.assert_close(without[tree], -other[nodes].sum())


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_draws_come_with_their_density(split, leaf, low_rank):
    data = rows(leaf=LEAVES[leaf].get("leaf"))
    given = {"trees": TREES[:1], "low_rank": low_rank, **SPLITS[split], **LEAVES[leaf]}
    factors = factors_of(data, **given).eval()
    own = normal_of(factors)
    law = factors.model.leaf.posterior(factors.sums)
    with seeded(0), torch.no_grad():
        for _ in range(5):
            sites, density = factors.sample()
            weights = {"log_weight"} if split == "polytope" else set()
            leaves = set(factors.model.leaf.sites)
            assert set(sites) == {"hyperplane", "intercept", "shrinkage"} | weights | leaves
            expected = float(own.log_prob(joined(sites)).sum() + law.log_prob(sites))
            b = factors.scales.law
            expected += (
                stats.gamma(b.concentration, scale=1 / b.rate).logpdf(sites["shrinkage"]).sum()
            )
            if weights:
                # of log r: the density of r times r
                value = sites["log_weight"].numpy()
                gamma = stats.gamma(factors.shape, scale=1 / factors.rate)
                expected += (gamma.logpdf(np.exp(value)) + value).sum()
            assert density == pytest.approx(expected)


@pytest.mark.parametrize("low_rank", [False, True])
def test_draws_have_the_moments_of_the_factors(low_rank):
    factors, n = factors_of(rows(), low_rank=low_rank), 3000
    with seeded(0), torch.no_grad():
        drawn = [factors.draw() for _ in range(n)]
    beta = torch.stack([one.coefficient for one in drawn])
    assert within(beta, factors.mean)
    outer = (beta - factors.mean).unsqueeze(-1) * (beta - factors.mean).unsqueeze(-2)
    covariance = torch.linalg.inv(precision_of(factors))
    assert within(outer, covariance)
    assert within(torch.stack([one.log_weight for one in drawn]), factors.weight_law.mean)
    torch.testing.assert_close(factors.moments.variance, covariance.diagonal(dim1=-2, dim2=-1))


def test_a_precision_of_low_rank_is_that_of_its_diagonal_and_axes():
    factors = factors_of(rows(), low_rank=True)
    whole = precision_of(factors)
    torch.testing.assert_close(whole.diagonal(dim1=-2, dim2=-1), factors.precision)
    values = normal(*factors.mean.shape, seed=9)
    product = torch.linalg.solve(whole, values.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(factors.covariance(values), product)


def test_axes_come_to_the_leading_eigenvectors():
    """A precision of unit diagonal that is a constant plus rank 4 is found exactly."""
    axes = torch.from_numpy(hadamard(8)[:, 1:5]).double() / 8**0.5
    expected = 0.375 * torch.eye(8).double() + axes * torch.tensor([0.5, 1.0, 1.5, 2.0]) @ axes.T
    model, trees = model_of(), JoinedTopology(TREES[:1])
    given = {name: torch.ones(2, 3, dtype=torch.float64) for name in ("shape", "rate")}
    sums = torch.ones(trees.n_leaves, 2, dtype=torch.float64)
    mean = torch.zeros(2, 3, 8, dtype=torch.float64)
    factors = LowRankFactors(model, trees, mean=mean, precision=mean + 1, sums=sums, **given)
    for _ in range(60):
        factors._turn(expected @ factors.directions)
        factors.factorise()
    torch.testing.assert_close(precision_of(factors), expected.expand(2, 3, 8, 8))


def test_covariances_of_columns_in_very_different_units():
    """A correlation matrix between scales of 1e-8 and 1e8."""
    factors = factors_of(rows())
    unit = torch.tensor([1e-8, 1.0, 1e8], dtype=torch.float64)
    raised = factors.precision.diagonal(dim1=-2, dim2=-1) * JITTER
    expected = torch.linalg.inv(factors.precision + torch.diag_embed(raised))
    expected = expected / unit.unsqueeze(1) / unit
    factors.precision.mul_(unit.unsqueeze(1) * unit)
    factors.factorise()
    torch.testing.assert_close(factors.root @ factors.root.mT, expected, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("low_rank", [False, True])
def test_one_of_several_trees(low_rank):
    factors = factors_of(rows(), low_rank=low_rank).eval()
    factors.scales.rate.mul_(1.1)  # not at its optimum
    everything = copy.deepcopy(factors.state_dict())
    for number, tree in enumerate(TREES):
        own = factors.tree(number).eval()
        nodes, leaves = factors.topology.nodes[number], factors.topology.leaves[number]
        assert own.topology.trees == (tree,)
        assert torch.equal(own.sums, factors.sums[leaves])
        for name in ("mean", "precision", "shape", "rate"):
            assert torch.equal(getattr(own, name), getattr(factors, name)[nodes])
        assert torch.equal(own.scales.rate, factors.scales.rate[nodes])
        torch.testing.assert_close(own.root, factors.root[nodes])
        torch.testing.assert_close(own.split_divergence()[0], factors.split_divergence()[number])
        torch.testing.assert_close(own.leaf_divergence()[0], factors.leaf_divergence()[number])
        for value in own.buffers():
            value.zero_()  # of its own
    for name, value in factors.state_dict().items():
        assert torch.equal(value, everything[name])


@pytest.mark.parametrize("kind", [Factors, LowRankFactors])
def test_the_start_is_around_the_trees(kind):
    starts, data = grown(n_trees=3)
    factors = kind.around(starts[0].model, starts, data)
    assert factors.topology.trees == tuple(one.model.topology for one in starts)
    for number, one in enumerate(starts):
        own, sites = factors.tree(number), one.point_sites(data.X)
        torch.testing.assert_close(own.mean, joined(sites))
        unit = own.mean.square().mean((1, 2)).sqrt().view(-1, 1, 1)
        sd = (SPREAD * unit).expand_as(own.mean)
        torch.testing.assert_close(own.moments.variance.sqrt(), sd)
        assert (own.shape == SHAPE).all()
        weight = sites["log_weight"].exp().clamp_min(1e-8)
        torch.testing.assert_close(own.shape / own.rate, weight)
        assert float(own.sums.sum()) == pytest.approx(len(data.X))


def test_means_are_the_point():
    factors = factors_of(rows(), trees=TREES[:2])
    point = factors.point()
    torch.testing.assert_close(joined(point), factors.mean)
    torch.testing.assert_close(point["log_weight"].exp(), factors.shape / factors.rate)
    torch.testing.assert_close(point["shrinkage"], factors.scales.law.mean)
    assert "log_weight" not in factors_of(rows(), **SPLITS["oblique"]).point()
