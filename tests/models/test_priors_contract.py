"""Requirements of every prior. A new prior is one more line in ``HYPERPLANES`` or ``WEIGHTS``."""

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import stats

from bayestree.models import (
    FeatureCount,
    Flat,
    FlatWeights,
    GammaProcess,
    IndependentPrior,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Spatial,
)
from bayestree.models.priors import Moments, Plates
from bayestree.models.sites import Size

HYPERPLANES = {
    "collapsed": InverseGammaScale(0.7, 2.0, 0.5),
    "explicit": InverseGammaScale(2.5, 2.0, 0.5, form="explicit"),
    "scaled": InverseGammaScale(0.7, 2.0, 0.5, coefficient_scale=0.3),
    "scaled-explicit": InverseGammaScale(2.5, 2.0, 0.5, "explicit", 3.0),
    "flat": Flat(),
    "laplace": Laplace(2.0),
    "laplace-proper": Laplace(2.0, intercept_scale=3.0),
    "spatial": Spatial(0.7, (2, 3)),
    "spatial-channels": Spatial(0.7, (1, 3, 2)),
    "count": FeatureCount(0.5, pair=1.3),
}
WEIGHTS = {
    "gamma": GammaProcess(2.0, 0.5),
    "gamma-hyper": GammaProcess(concentration_prior=(2.0, 1.0), rate_prior=(3.0, 2.0)),
    "gamma-rate-hyper": GammaProcess(rate_prior=(3.0, 2.0)),
    "literal": LiteralGammaProcess(),
    "flat": FlatWeights(),
}
PRIORS = [*HYPERPLANES.values(), *WEIGHTS.values()]
N_EXPERTS, D = 2, 6
REAL = ("hyperplane", "intercept", "log_weight")


def having(method, priors=PRIORS):
    """Parameters of a test: the priors that implement a method, scales integrated out."""
    reduced = dict.fromkeys(p.collapsed() if p in HYPERPLANES.values() else p for p in priors)
    return pytest.mark.parametrize("prior", [p for p in reduced if p.implements(method)], ids=str)


def drawn(prior, n_nodes=3, seed=0):
    """A trace of the prior in Pyro, and its sites."""
    size = Size(n_nodes, N_EXPERTS, D, n_nodes + 1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        trace = poutine.trace(prior.state).get_trace(
            size, torch.empty(0, dtype=torch.float64), Plates.of(size)
        )
    sampled = {name: node for name, node in trace.nodes.items() if node["type"] == "sample"}
    return trace, {n: v["value"] for n, v in sampled.items() if not v["is_observed"]}


def free_sites(prior, **others):
    """Draws as NumPy arrays, positive sites by their logarithms."""
    sites = {name: value.numpy().copy() for name, value in drawn(prior, **others)[1].items()}
    return {n: v if n in REAL else np.asarray(np.log(v)) for n, v in sites.items()}


def log_prob(prior, free):
    """Log-density of free sites by ``log_prob`` and the Jacobian."""
    sites = {n: torch.as_tensor(v if n in REAL else np.exp(v)) for n, v in free.items()}
    jacobian = sum(v.sum() for name, v in free.items() if name not in REAL)
    return float(prior.log_prob(sites)) + jacobian


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_log_prob_is_what_pyro_sums_to(prior):
    trace, sites = drawn(prior)
    assert float(trace.log_prob_sum()) == pytest.approx(float(prior.log_prob(sites)), rel=1e-10)
    main = {"log_weight"} if prior in WEIGHTS.values() else {"hyperplane", "intercept"}
    assert set(sites) == main | set(prior.sites)


@having("log_density")
def test_log_density_is_log_prob_up_to_a_constant(prior):
    frees = [free_sites(prior, seed=seed) for seed in range(4)]
    gaps = [log_prob(prior, free) - prior.log_density(free, N_EXPERTS) for free in frees]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9, atol=1e-9)


@having("log_density")
def test_log_density_is_a_sum_over_experts(prior):
    if prior in WEIGHTS.values() and prior.sites:
        pytest.skip("hyper-priors count once")
    free = free_sites(prior)
    parts = [
        prior.log_density({name: value[at] for name, value in free.items()}, N_EXPERTS)
        for at in np.ndindex(3, N_EXPERTS)
    ]
    assert sum(parts) == pytest.approx(prior.log_density(free, N_EXPERTS), rel=1e-10)


@having("set_gradient")
def test_gradient_is_that_of_finite_differences(prior):
    free = free_sites(prior)
    into = {name: np.empty_like(value) for name, value in free.items()}
    prior.set_gradient(free, into)
    step = 1e-6
    for name, value in free.items():
        for at in np.ndindex(value.shape):
            kept, values = value[at].copy(), []
            for shift in (step, -step):
                value[at] = kept + shift
                values.append(prior.log_density(free, N_EXPERTS))
            value[at] = kept
            slope = (values[0] - values[1]) / (2 * step)
            assert into[name][at] == pytest.approx(slope, rel=1e-5, abs=1e-5), name


@pytest.mark.parametrize("covariance", ["diagonal", "expert"])
@pytest.mark.parametrize("prior", HYPERPLANES.values(), ids=str)
def test_expectation_is_the_mean_over_draws(prior, covariance):
    """E log p(coefficients, further sites) - log q(further sites), under normals and factors."""
    generator, n = torch.Generator().manual_seed(1), 400
    shape = (2, N_EXPERTS, D + 1)
    mean, root = (
        torch.randn(*s, generator=generator, dtype=torch.float64) for s in (shape, (*shape, 8))
    )
    mean, root = 0.5 * mean, 0.4 * root
    moments = Moments(mean, root.square().sum(-1), None if covariance == "diagonal" else root)
    factors = prior.factors(mean[..., -1], D + 1)
    if factors is None:
        pytest.skip("the mean is not known")
    factors.refresh(moments)
    values = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(n):
            plates = Plates.of(Size(2, N_EXPERTS, D, 3))
            with plates.node, plates.expert:
                trace = poutine.trace(factors.state).get_trace(moments)
            further = {k: v["value"] for k, v in trace.nodes.items() if v["type"] == "sample"}
            if further.keys() != set(prior.sites):
                pytest.skip("the factors are those of the explicit form")
            noise = torch.randn(*shape[:2], 8, 1, dtype=torch.float64)
            if covariance == "diagonal":
                beta = mean + moments.variance.sqrt() * noise[..., : D + 1, 0]
            else:
                beta = mean + (root @ noise)[..., 0]
            sites = {"hyperplane": beta[..., :-1], "intercept": beta[..., -1], **further}
            values.append(float(prior.log_prob(sites) - trace.log_prob_sum()))
    expected = float(factors.eval().expected_log_prior(moments).sum())
    assert abs(np.mean(values) - expected) <= 4 * np.std(values) / math.sqrt(n) + 1e-9


@having("redraw")
def test_redrawn_sites_keep_the_joint_law(prior):
    """Independent joint draws: the distribution of each site, alone and with the coefficients."""
    free = free_sites(prior, n_nodes=2_000)
    fresh = free_sites(prior, n_nodes=2_000, seed=1)
    before = {name: free[name].copy() for name in prior.sites}
    prior.redraw(free, np.random.default_rng(0))
    size = [np.log(np.abs(one["hyperplane"])).mean(-1) for one in (free, fresh)]
    for name in prior.sites:
        assert (free[name] != before[name]).all()
        assert stats.ks_2samp(free[name].ravel(), fresh[name].ravel()).pvalue > 1e-4
        ratio = [(one[name] - s).ravel() for one, s in zip((free, fresh), size, strict=True)]
        assert stats.ks_2samp(*ratio).pvalue > 1e-4


@having("draw_expert")
def test_fresh_experts_are_draws_from_the_prior(prior):
    free, rng = free_sites(prior), np.random.default_rng(0)
    for name in {"concentration", "rate"} & free.keys():
        free[name][...] = np.log(getattr(prior, name))
    before = {name: value.copy() for name, value in free.items()}
    values = {name: [] for name in free if name not in ("concentration", "rate")}
    for _ in range(800):
        prior.draw_expert(free, (1, 0), rng)
        for name, found in values.items():
            found.append(np.ravel(free[name][1, 0])[0])
    for name in values:
        assert np.array_equal(free[name][0], before[name][0]), "other experts are left alone"
    if prior in WEIGHTS.values():
        law = prior.law(N_EXPERTS, torch.zeros((), dtype=torch.float64))
        expected = {"log_weight": law.sample((800,)).numpy()}
    else:
        expected = free_sites(prior, n_nodes=800)
    for name, found in values.items():
        reference = expected[name].reshape(800, -1)[:, 0]
        assert stats.ks_2samp(found, reference).pvalue > 1e-4, name


@having("precision", HYPERPLANES.values())
def test_precision_is_the_curvature_at_zero(prior):
    free = free_sites(prior)
    free["hyperplane"][...] = free["intercept"][...] = 0.0
    precision, step = prior.precision(free), 1e-4
    assert precision.shape == (3, N_EXPERTS, D + 1)
    for at in np.ndindex(3, N_EXPERTS):
        for site, place in (("hyperplane", (*at, 0)), ("intercept", at)):
            values = []
            for shift in (step, 0.0, -step):
                free[site][place] = shift
                values.append(prior.log_density(free, N_EXPERTS))
            free[site][place] = 0.0
            curvature = -(values[0] - 2 * values[1] + values[2]) / step**2
            expected = precision[at][0 if site == "hyperplane" else -1]
            assert expected == pytest.approx(curvature, rel=1e-3)


@pytest.mark.parametrize("prior", HYPERPLANES.values(), ids=str)
def test_prior_means_are_those_of_draws(prior):
    prior = prior.collapsed()
    _, sites = drawn(prior, n_nodes=4_000)
    means = prior.prior_means(sites["intercept"])
    assert means.keys() == set(prior.sites)
    for name, mean in means.items():
        error = 4 * float(sites[name].std()) / math.sqrt(sites[name].numel())
        assert abs(float(sites[name].mean() - mean.mean())) < error


def test_an_overridden_density_discards_inherited_closed_forms():
    class Own(Laplace):
        def log_prob(self, sites):
            return super().log_prob(sites) - sites["hyperplane"].square().sum()

    assert Laplace().implements("set_gradient")
    assert not Own().implements("set_gradient")
    assert Own().factors(torch.zeros(1, 1), 2) is None


def test_overridden_laws_discard_inherited_closed_forms():
    class Ridge(IndependentPrior):
        def laws(self, like):
            return (dist.Normal(like.new_zeros(()), like.new_ones(())),) * 2

        def log_density(self, free, n_experts):
            return -0.5 * sum((free[name] ** 2).sum() for name in ("hyperplane", "intercept"))

        def set_gradient(self, free, into):
            for name in ("hyperplane", "intercept"):
                into[name][...] = -free[name]

        def expected_log_prob(self, moments):
            return -0.5 * moments.square.sum()

    class Heavy(Ridge):
        def laws(self, like):
            return (dist.Cauchy(like.new_zeros(()), like.new_ones(())),) * 2

    for method in ("log_density", "set_gradient", "expected_log_prob"):
        assert Ridge().implements(method)
        assert not Heavy().implements(method)
