"""Densities and draws of priors."""

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, stats

from bayestree.models import (
    Flat,
    GammaProcess,
    IndependentPrior,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Priors,
)
from tests.models.cases import HYPERPLANES, WEIGHTS, make, rows, traced


def double(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("coefficient", [-3.0, -0.1, 0.4, 20.0])
@pytest.mark.parametrize("shape", [0.5, 1.0, 3.0])
def test_collapsed_form_is_the_explicit_one_with_the_scale_integrated_out(coefficient, shape):
    b = 0.6
    parts = {"shrinkage": double([[b]]), "hyperplane": torch.zeros(1, 1, 0, dtype=torch.float64)}
    parts["intercept"] = double([[coefficient]])
    parts["hyperplane_scale"] = parts["hyperplane"]

    def density(scale):
        sites = parts | {"intercept_scale": double([[scale]])}
        prior = InverseGammaScale(shape, 2.0, 0.5, form="explicit")
        return math.exp(prior.log_prob(sites))

    # On the log scale, over which the integrand has one smooth peak.
    total = integrate.quad(
        lambda u: density(math.exp(u)) * math.exp(u), -15, 25, epsabs=0, limit=200
    )[0]
    collapsed = math.exp(InverseGammaScale(shape, 2.0, 0.5).log_prob(parts))
    assert total == pytest.approx(collapsed, rel=1e-6)


def test_collapsed_penalty_is_that_of_equation_15():
    """-(a + 1/2) log(1 + beta^2 / 2b), up to a constant in beta."""
    a, b = 1.3, 0.7
    prior = InverseGammaScale(a)

    def value(beta):
        return float(
            prior.log_prob(
                {
                    "shrinkage": double([[b]]),
                    "hyperplane": double([[[beta]]]),
                    "intercept": double([[0.0]]),
                }
            )
        )

    for beta in (0.1, 1.0, -7.0):
        expected = -(a + 0.5) * math.log1p(beta**2 / (2 * b))
        assert value(beta) - value(0.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("form", ["collapsed", "explicit"])
def test_both_forms_draw_student_t_coefficients(form):
    prior = make("stump", hyperplane=form).priors.hyperplane
    values = []
    for seed in range(200):
        _, sites = traced(make("complete", hyperplane=form), rows(make())[0], seed=seed)
        unit = (sites["shrinkage"] / prior.shape).sqrt()
        values.append((sites["hyperplane"] / unit.unsqueeze(-1)).flatten())
    # Given b, coefficients over sqrt(b / a) are Student-t, independent of each other.
    law = stats.t(2 * prior.shape)
    p_value = stats.kstest(torch.cat(values).numpy(), law.cdf).pvalue
    assert p_value > 2 * stats.norm.sf(4)


def test_draws_of_log_weights_are_those_of_the_truncated_process():
    prior = WEIGHTS["gamma"]
    values = []
    for seed in range(200):
        _, sites = traced(make("complete"), rows(make())[0], seed=seed)
        values.append(sites["log_weight"].flatten())
    law = stats.loggamma(prior.concentration / 3, loc=-math.log(prior.rate))
    assert stats.kstest(torch.cat(values).numpy(), law.cdf).pvalue > 2 * stats.norm.sf(4)


@pytest.mark.parametrize("n_experts", [1, 4, 50])
def test_the_summed_weight_has_the_mean_of_the_process(n_experts):
    law = GammaProcess(2.0, 0.5).law(n_experts, double(0.0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        total = law.sample((20_000, n_experts)).exp().sum(1)
    assert abs(float(total.mean()) - 4) < 4 * float(total.std()) / math.sqrt(len(total))


def test_literal_penalty_is_that_of_equation_15_and_stops_at_its_floor():
    prior = LiteralGammaProcess(2.0, 0.5, floor=1e-3)

    def value(r):
        return float(prior.log_prob({"log_weight": torch.log(double([[r, 1.0, 1.0, 1.0]]))}))

    for r in (0.01, 0.5, 9.0):
        expected = (2.0 / 4 - 1) * math.log(r) - 0.5 * (r - 1)
        assert value(r) - value(1.0) == pytest.approx(expected, rel=1e-9)
    assert value(1e-4) - value(1e-5) == pytest.approx(-0.5 * (1e-4 - 1e-5), abs=1e-12)


def test_flat_prior_says_nothing():
    sites = {"hyperplane": double([[[5.0]]]), "intercept": double([[1e3]])}
    assert float(Flat().log_prob(sites)) == 0


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("hyperplane", HYPERPLANES)
def test_log_prior_has_finite_gradients(weight, hyperplane):
    model = make(weight=weight, hyperplane=hyperplane)
    _, sites = traced(model, *rows(model))
    free = {name: value.clone().requires_grad_() for name, value in sites.items()}
    model.log_prior(free).backward()
    for name, value in free.items():
        flat = hyperplane == "flat" and name in ("hyperplane", "intercept")
        assert flat or torch.isfinite(value.grad).all(), name


@pytest.mark.parametrize(
    "bad",
    [
        lambda: GammaProcess(0.0),
        lambda: GammaProcess(rate=math.inf),
        lambda: GammaProcess(concentration_prior=(1.0, -1.0)),
        lambda: GammaProcess(rate_prior=(0.0, 1.0)),
        lambda: LiteralGammaProcess(floor=0.0),
        lambda: InverseGammaScale(np.nan),
        lambda: InverseGammaScale(shrinkage_rate=-1.0),
    ],
)
def test_parameters_that_are_not_positive_are_rejected(bad):
    with pytest.raises(ValueError, match="must be positive and finite"):
        bad()


def test_an_unknown_form_is_rejected():
    with pytest.raises(ValueError, match="form must be 'collapsed' or 'explicit'"):
        InverseGammaScale(form="marginal")


class Unrelated:
    """A prior that subclasses nothing."""

    def state(self, size, like, plates):
        raise NotImplementedError

    def log_prob(self, sites):
        raise NotImplementedError


@pytest.mark.parametrize("other", ["flat", Unrelated(), GammaProcess()])
def test_other_objects_are_no_priors(other):
    with pytest.raises(TypeError, match=r"hyperplane must be a HyperplanePrior, got .*: let its"):
        Priors(hyperplane=other)


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
