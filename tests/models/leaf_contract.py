"""Properties of every family of leaves. New families inherit the tests (``test_leaf_contract``)."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pyro import poutine
from scipy.optimize import approx_fprime

from bayestree.models import Oblique, SoftTree
from bayestree.models.criteria import Criterion
from bayestree.topology import Topology

N_LEAVES = 2


def seeded(seed, call):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return call()


def assert_mean(values, expected):
    """Monte Carlo: five standard errors, once in two million tests for normal means."""
    values = np.asarray(values)
    error = values.std(0) / math.sqrt(len(values))
    assert (np.abs(values.mean(0) - expected) <= 5 * error + 1e-12).all()


class LeafContract:
    """Tests of the family ``leaf``, on rows that it generates itself."""

    leaf: Any = None
    conjugate = True  # whether posteriors are exact
    split_may_lose = False  # whether the criterion of growth counts the parameters of a leaf
    has_cdf = True
    predicts_means = True
    extra: Any = None  # values of a second column of y, repeated over the rows

    @pytest.fixture
    def X(self):
        return seeded(2, lambda: torch.randn(24, 2, dtype=torch.float64))

    @pytest.fixture
    def y(self, X):
        """Twelve rows of each leaf of a draw from the prior, those of leaf 0 first."""
        prior = self.leaf.prior(X[:0])
        draws = [seeded(seed, prior.sample) for seed in range(N_LEAVES)]
        sites = {name: torch.stack([draw[name] for draw in draws]) for name in self.leaf.sites}
        leaf, extra = torch.arange(N_LEAVES).repeat_interleave(12), self.extra_of(len(X))
        drawn = seeded(0, lambda: self.leaf.draw(sites, leaf, X, extra))
        return self.respond(X, drawn)

    def extra_of(self, n_rows):
        if self.extra is None:
            return None
        return torch.tensor(self.extra, dtype=torch.float64).repeat(n_rows)[:n_rows]

    def respond(self, X, values):
        """The response of values of y, with the second column of the family."""
        extra = self.extra_of(len(X))
        return self.leaf.response(X, values if extra is None else torch.stack((values, extra), 1))

    @pytest.fixture
    def posterior(self, y):
        return self.leaf.posterior(self.sums(y))

    def sums(self, y, copies=1):
        statistics = self.leaf.statistics(y, torch.full((len(y),), copies, dtype=torch.float64))
        return torch.stack([part.sum(0) for part in statistics.split(len(y) // N_LEAVES)])

    def draws(self, distribution, n):
        return seeded(1, lambda: [distribution.sample() for _ in range(n)])

    def test_own_draws_are_valid_y(self, X, y):
        self.leaf.check(y)
        with pytest.raises(ValueError, match="y must"):
            self.leaf.check(self.leaf.response(X, torch.full((len(X),), math.nan)))

    def test_the_response_holds_y_once(self, X, y):
        target = self.leaf.target(y)
        assert target.shape == (len(X),)
        assert torch.equal(self.respond(X, target), y)
        assert torch.equal(self.leaf.response(X, y), y)

    def test_the_model_has_the_density_of_its_pyro_trace(self, X, y):
        model = SoftTree(Topology.stump(), Oblique(), leaf=self.leaf)
        weights = seeded(3, lambda: torch.rand(len(y), dtype=torch.float64))
        trace = seeded(4, lambda: poutine.trace(model).get_trace(X, y, weights))
        shapes = model.shapes(2)
        sites = {name: node["value"] for name, node in trace.nodes.items() if name in shapes}
        assert all(value.shape == shapes[name] for name, value in sites.items())
        joint = float(model.log_joint(sites, X, y, weights))
        assert joint == pytest.approx(float(trace.log_prob_sum()), rel=1e-10)

    def test_the_posterior_is_proportional_to_prior_and_likelihood(self, y, posterior):
        if not self.conjugate:
            pytest.skip("the posterior is approximate")
        owner = torch.arange(N_LEAVES).repeat_interleave(len(y) // N_LEAVES)
        evidence = []
        for sites in self.draws(posterior, 5):
            rows = self.leaf.log_density(sites, y)[torch.arange(len(y)), owner].sum()
            evidence.append(float(self.leaf.log_prob(sites) + rows - posterior.log_prob(sites)))
        assert evidence == pytest.approx([evidence[0]] * 5, rel=1e-9)

    def test_the_posterior_without_rows_is_the_prior(self, y, posterior):
        empty = self.leaf.posterior(torch.zeros_like(self.sums(y)))
        assert float(empty.kl()) == pytest.approx(0, abs=1e-12)
        (sites,) = self.draws(posterior, 1)
        expected = float(self.leaf.log_prob(sites))
        assert float(empty.log_prob(sites)) == pytest.approx(expected, rel=1e-10)

    def test_divergence_and_expected_density_are_means_over_the_posterior(self, y, posterior):
        draws = self.draws(posterior, 3000)
        ratios = [float(posterior.log_prob(s) - self.leaf.log_prob(s)) for s in draws]
        assert_mean(ratios, float(posterior.kl()))
        densities = torch.stack([self.leaf.log_density(s, y) for s in draws]).numpy()
        assert_mean(densities, posterior.expected_log_density(y).numpy())

    def test_a_posterior_of_many_rows_is_at_the_estimate(self, y):
        sums = self.sums(y, copies=10_000)
        (sites,) = self.draws(self.leaf.posterior(sums), 1)
        # Standard deviations are about 1 / sqrt(10,000) = 0.01 of each site or less.
        for name, value in self.leaf.estimate(sums).items():
            drawn = self.identified(sites[name])
            assert np.allclose(drawn, self.identified(value), rtol=0.1, atol=0.05)

    def identified(self, values):
        """The part of the values (L, ...) of a site that y depends on."""
        return values

    def test_draws_have_the_density(self, X, y):
        """If y ~ m = (p_0 + p_1) / 2, then p_l(y) / m(y) has mean 1; it is at most 2."""
        sites = self.leaf.estimate(self.sums(y) + self.sums(y).flip(0) / 2)
        owner = torch.arange(N_LEAVES).repeat_interleave(10_000)
        where = X[torch.arange(len(owner)) % len(X)]
        known = self.leaf.known(self.respond(where, where[:, 0]))
        drawn = seeded(5, lambda: self.leaf.draw(sites, owner, where, known))
        response = drawn if known is None else torch.stack((drawn, known), 1)
        density = self.leaf.log_density(sites, self.leaf.response(where, response))
        ratio = density - torch.logsumexp(density, 1, keepdim=True) + math.log(N_LEAVES)
        assert_mean(ratio.exp().numpy(), 1.0)

    def test_predictions_are_means_of_draws(self, X, posterior):
        if not self.predicts_means:
            pytest.skip("predicts a rate")
        sites, here = posterior.mean(), X[:1]
        zeros, copies = torch.zeros(20_000, dtype=torch.long), here.expand(20_000, -1)
        drawn = seeded(7, lambda: self.leaf.draw(sites, zeros, copies))
        if self.leaf.n_classes:
            drawn = torch.nn.functional.one_hot(drawn, self.leaf.n_classes)
        probs = np.array([[[1.0, 0.0]]])  # of one row and one draw
        expected = self.leaf.expectation(sites, probs, here.numpy())[0, 0]
        assert_mean(drawn.numpy(), expected)
        if not self.leaf.n_classes:
            variance = self.leaf.sd_y(sites)[0] ** 2
            assert_mean((drawn.numpy() - expected) ** 2, variance)

    def test_mixtures_and_nodes_have_the_density_of_the_leaves(self, X, y, posterior):
        sites = posterior.mean()
        log_prob = seeded(8, lambda: torch.randn(len(y), N_LEAVES).double()).log_softmax(-1)
        found = self.leaf.observe(sites, log_prob, X, y).log_prob(self.leaf.target(y))
        expected = torch.logsumexp(log_prob + self.leaf.log_density(sites, y), -1)
        assert torch.allclose(found, expected)
        nodes = {name: value.unsqueeze(0) for name, value in sites.items()}
        found = self.leaf.node_log_density(nodes, y.unsqueeze(0))[0]
        assert torch.allclose(found, self.leaf.log_density(sites, y).T)

    def test_intervals_follow_the_draws(self, X, y, posterior):
        if self.leaf.n_classes or not self.has_cdf:
            pytest.skip("no distribution function")
        sites, n = self.leaf.estimate(self.sums(y)), 20_000
        known = self.leaf.known(y[:1])
        here, zeros = X[:1].expand(n, -1), torch.zeros(n, dtype=torch.long)
        many = None if known is None else known.expand(n)
        drawn = seeded(9, lambda: self.leaf.draw(sites, zeros, here, many)).numpy()
        for value in np.quantile(drawn, [0.1, 0.5, 0.9]):
            at = torch.tensor([value], dtype=torch.float64)
            row = at if known is None else torch.stack((at, known), 1)
            below = self.leaf.cdf(sites, self.leaf.response(X[:1], row).numpy())[0, 0]
            assert_mean(drawn <= value, below)
        low, high = self.leaf.reach(sites, X.numpy(), None if known is None else known.numpy())
        assert low <= drawn.min()
        assert drawn.max() <= high

    def test_the_draws_describe_means_and_scales(self, posterior):
        sites = posterior.mean()
        found = {**sites, **self.leaf.moments({n: v.numpy() for n, v in sites.items()})}
        if self.leaf.regresses or "leaf_mean" not in found:
            pytest.skip("no means of whole leaves")
        assert np.allclose(found["leaf_mean"], self.leaf.expected_y(sites))
        if "leaf_scale" in found:
            assert np.allclose(found["leaf_scale"], self.leaf.sd_y(sites))

    def test_splits_never_lose(self, y):
        if self.split_may_lose:
            pytest.skip("the criterion counts the parameters of a leaf")
        sums = self.sums(y)
        criterion, whole = self.leaf.criterion, sums.sum(0)
        assert float(criterion.gain(criterion.split_value(sums[0], whole), whole)) > -1e-9

    def test_the_ascent_is_the_gradient_of_the_criterion(self, y):
        sums = self.sums(y)
        side, whole = sums[0] * 0.7 + sums[1] * 0.2, sums.sum(0)
        criterion = self.leaf.criterion
        value, slope = criterion.ascent(side, whole)
        expected, derived = Criterion.ascent(criterion, side, whole)
        assert torch.allclose(value, expected)
        assert torch.allclose(slope, derived)

    def test_the_gradient_is_that_of_the_density(self, y, posterior):
        if self.leaf.gradient is None:
            pytest.skip("differentiated automatically")
        sites = {name: value.numpy() for name, value in posterior.mean().items()}
        free = {}
        for name, site in self.leaf.sites.items():
            logs = np.log(sites[name]) if site.support != "real" else sites[name]
            free[name] = logs[..., :-1] - logs[..., -1:] if site.support == "simplex" else logs
        written = self.leaf.gradient(self.leaf, y.numpy())
        member = np.random.default_rng(0).random((N_LEAVES, len(y)))
        lengths = np.cumsum([value.size for value in free.values()])[:-1]

        def unpacked(vector):
            parts = zip(free.items(), np.split(vector, lengths), strict=True)
            return {name: part.reshape(value.shape) for (name, value), part in parts}

        def value(vector):
            leaves = written.read(unpacked(vector))
            return written.prior(leaves) + float((member * written.log_density(leaves)).sum())

        at = np.concatenate([np.ravel(part) for part in free.values()])
        leaves = written.read(free)
        density = self.leaf.log_density(posterior.mean(), y).T
        np.testing.assert_allclose(written.log_density(leaves), density, rtol=1e-10)
        into = unpacked(np.empty_like(at))
        written.gradient(leaves, member, into)
        found = np.concatenate([np.ravel(part) for part in into.values()])
        np.testing.assert_allclose(found, approx_fprime(at, value), rtol=1e-4, atol=1e-4)
