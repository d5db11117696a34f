"""The log-densities of draws that SVI records: of the model, and of the guide."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pyro import poutine

from bayestree.distributions import inverse_gamma_scale
from bayestree.inference import convergence, pointwise
from bayestree.inference.convergence import evaluate_elbo, objective_estimates
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Laplace,
    LinearGaussian,
    Oblique,
    Polytope,
    Priors,
    Spatial,
)
from tests.inference.variational.test_svi import fit, problem
from tests.sampling import quickly

LEAVES = {"classes": Categorical(2), "reals": Gaussian(), "linear": LinearGaussian()}
PRIORS = Flat(), Laplace(2.0, 3.0), Spatial(0.7, (2, 1))
PARTS = [*itertools.product(LEAVES, ("diagonal", "expert"), PRIORS)]


def random_guide(leaf, covariance, hyperplane, split=None):
    """A guide whose factors are all apart from where they start."""
    init, data = problem(LEAVES[leaf], n=60)
    model = init.model.with_(
        priors=Priors(GammaProcess(2.0, 0.5), hyperplane), split=split or Polytope(4)
    )
    sites = init.point_sites()
    if split is not None:
        sites = {name: sites[name][:, :1] for name in ("hyperplane", "intercept")} | {
            name: value for name, value in sites.items() if name.startswith("leaf")
        }
    guide = PolytopeGuide(model, sites, leaf_sums(model, sites, data), covariance=covariance)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for value in guide.parameters():
            value.add_(0.3 * torch.randn_like(value))
    guide.refresh(steps=20)
    return guide.eval(), data


def scale_log_ratio(guide, sites):
    """log p(scales | coefficients, shrinkage) - log q(scales), a scalar.

    Given the coefficient beta, sigma^2 is InverseGamma(shape + 1/2, b + beta^2 / 2).
    """
    shape = guide.model.priors.hyperplane.shape + 0.5
    rate = guide.scales.scale_rate(guide.moments)
    total = 0.0
    for name, factor in (("hyperplane", rate[..., :-1]), ("intercept", rate[..., -1])):
        b = sites["shrinkage"]
        b = b.unsqueeze(-1) if name == "hyperplane" else b
        scale, exact = sites[f"{name}_scale"], b + sites[name] ** 2 / 2
        total += inverse_gamma_scale(shape, exact).log_prob(scale).sum()
        total -= inverse_gamma_scale(shape, factor).log_prob(scale).sum()
    return total


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("covariance", ["diagonal", "expert"])
@pytest.mark.parametrize("split", [None, Oblique()], ids=["polytope", "oblique"])
def test_densities_are_those_of_the_explicit_model_with_the_scales_integrated_out(
    leaf, covariance, split
):
    guide, data = random_guide(leaf, covariance, InverseGammaScale(0.7, 2.0, 0.5), split)
    explicit = guide.model.with_(
        priors=Priors(
            guide.model.priors.weight, replace(guide.model.priors.hyperplane, form="explicit")
        )
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        trace = poutine.trace(guide).get_trace(data.X)
    sites = {n: site["value"] for n, site in trace.nodes.items() if site["type"] == "sample"}
    with torch.no_grad():
        expected = explicit.log_joint(sites, *data) - trace.log_prob_sum()
        collapsed = pointwise.log_joint(guide.model, [sites], data)[0] - guide.log_prob(sites)
        assert float(expected) == pytest.approx(
            float(collapsed + scale_log_ratio(guide, sites)), rel=1e-10
        )


def test_sums_of_leaves_are_those_of_repeated_rows():
    init, data = problem(n=60)
    times = torch.arange(60) % 3
    often = data._replace(weights=times.double())
    again = Data.of(*(one.repeat_interleave(times, dim=0) for one in (data.X, data.y)))
    found, expected = (leaf_sums(init.model, init.point_sites(), one) for one in (often, again))
    torch.testing.assert_close(found, expected)


@pytest.mark.portable
@pytest.mark.parametrize("parts", quickly(PARTS, quick=range(0, len(PARTS), 4)), ids=str)
def test_without_scales_the_mean_log_ratio_is_the_bound(parts):
    """With scales it would exceed the bound, because integrating them out tightens it."""
    guide, data = random_guide(*parts)
    data = data.for_leaf(guide.model.leaf)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(2)
        draws = [guide.sample() for _ in range(300)]
        ratios = [
            pointwise.log_joint(guide.model, [draw], data)[0] - float(guide.log_prob(draw))
            for draw in draws
        ]
        bounds = [float(evaluate_elbo(guide, data, 1)) for _ in range(300)]
    error = math.sqrt((np.var(ratios) + np.var(bounds)) / 300)
    assert abs(np.mean(ratios) - np.mean(bounds)) < 4 * error


def test_the_bound_of_many_rows_has_the_same_mean_from_parts_of_them(monkeypatch):
    """From a draw for each quarter, and from samples of half of the rows."""
    guide, data = random_guide(*PARTS[0])
    data = data.for_leaf(guide.model.leaf)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        whole = [float(evaluate_elbo(guide, data, 4)) for _ in range(200)]
        monkeypatch.setattr(convergence, "ELBO_ROWS", len(data.X))
        quarters = [float(evaluate_elbo(guide, data)) for _ in range(200)]
        monkeypatch.setattr(convergence, "ELBO_ROWS", 16 * len(data.X) // 2)
        rounds = [objective_estimates(guide, data, guide.model.steepness, 0.5) for _ in range(15)]
        halves = np.array([float(one) for each in rounds for one in each])
        halves -= 0.5 * float(guide.kl())
    for parts in (quarters, halves):
        error = math.sqrt(np.var(whole) / 200 + np.var(parts) / len(parts))
        assert abs(np.mean(whole) - np.mean(parts)) < 4 * error


@pytest.mark.parametrize("leaf", LEAVES)
def test_svi_records_both_densities_of_each_draw(leaf):
    init, data = problem(LEAVES[leaf], n=80)
    model = init.model.with_(priors=Priors(GammaProcess(), InverseGammaScale(form="explicit")))
    data = data._replace(weights=torch.linspace(0.5, 2.0, 80, dtype=torch.float64))
    found = fit(replace(init, model=model), data, epochs=3, n_draws=5)
    assert found.stats["log_p"].shape == found.stats["log_q"].shape == (1, 5)
    for draw, log_p in zip(found.each(), found.stats["log_p"][0], strict=True):
        assert float(model.collapsed().log_joint(draw, *data)) == pytest.approx(log_p, rel=1e-12)


@pytest.mark.parametrize(
    ("guide", "form"), [("AutoNormal", "explicit"), ("AutoMultivariateNormal", "collapsed")]
)
def test_autoguides_know_the_density_of_their_draws(guide, form):
    init, data = problem(n=60)
    model = init.model.with_(priors=Priors(GammaProcess(), InverseGammaScale(form=form)))
    found = fit(
        replace(init, model=model), data, guide=guide, epochs=10, n_draws=200, batch_size=60
    )
    ratios = (found.stats["log_p"] - found.stats["log_q"])[0]
    error = ratios.std() * math.sqrt(1 / 200 + 1 / 16)  # the bound itself is a mean of 16
    assert abs(ratios.mean() - found.stats["final_elbo"]) < 4 * error


def test_a_point_has_no_density():
    init, data = problem(n=60)
    found = fit(init, data, guide="AutoDelta", epochs=2, n_draws=2)
    assert "log_q" not in found.stats
    assert found.stats["log_p"].shape == (1, 2)
