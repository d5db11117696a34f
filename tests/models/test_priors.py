"""Densities and draws of priors, and hyperparameters learned from posteriors."""

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, stats
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp, polygamma
from torch.distributions import kl_divergence

from bayestree.distributions import LogGamma, LogWeibull
from bayestree.models import (
    Flat,
    GammaProcess,
    IndependentPrior,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Priors,
)
from bayestree.models.priors import Moments, PartiallyCentred, ShrinkageFactors
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


GRID = np.linspace(-60.0, 12.0, 600)  # of the logarithm of a shrinkage


def penalty(log_h, start):
    """Minus the weak log hyper-priors."""
    return float((np.exp(log_h) / start - log_h).sum())


def known(weight):
    """A posterior concentrated at these weights."""
    sharp = torch.full_like(weight, 1e9)
    return LogGamma(sharp, sharp / weight)


def planted(prior, n, width, seed):
    """Coefficients from the prior, shape (n, 1, width)."""
    rng = np.random.default_rng(seed)
    b = rng.gamma(prior.shrinkage_shape, 1 / prior.shrinkage_rate, (n, 1, 1))
    scale = np.sqrt(b / rng.gamma(prior.shape, 1, (n, 1, width)))
    scale[..., :-1] *= prior.coefficient_scale
    return torch.from_numpy(scale * rng.normal(size=scale.shape))


def learned(start, coefficient, rounds):
    """The hyperparameters after so many updates from known coefficients."""
    moments = Moments(coefficient, 1e-12 * coefficient.square())
    hyper = Priors(hyperplane=start).hyper_priors(weak=True)
    prior, rate = start, torch.ones_like(coefficient[..., 0])
    for _ in range(rounds):
        for _ in range(5):
            rate = prior.updated_rate(rate, moments.square)
        shrinkage = prior.shrinkage_factor(rate, coefficient.shape[-1]).mean
        prior = prior.learned(moments, shrinkage, hyper)
    return prior


def marginal(log_h, coefficient):
    """Minus the log-density of coefficients (n, 1, width), by a sum over a grid."""
    a, e, f = np.exp(log_h)
    half_square = coefficient[:, 0].numpy() ** 2 / 2
    width = half_square.shape[1]
    own = e * (GRID + np.log(f)) - f * np.exp(GRID) - gammaln(e)
    each = own + width * (a * GRID + gammaln(a + 0.5) - gammaln(a) - 0.5 * np.log(2 * np.pi))
    tails = sum(np.logaddexp(GRID, np.log(c[:, None])) for c in half_square.T)
    density = logsumexp(each - (a + 0.5) * tails, axis=1)
    return -float(density.sum()) - len(half_square) * np.log(GRID[1] - GRID[0])


@pytest.mark.parametrize("free", [("concentration", "rate"), ("concentration",), ("rate",)])
def test_the_gamma_process_is_learned_as_by_numerical_maximisation(free):
    rng = np.random.default_rng(0)
    law = LogGamma(*torch.from_numpy(rng.gamma(2.0, size=(2, 5, 4))))
    start = GammaProcess(2.0, 0.5)
    hyper = {name: (1.0, 1 / value) for name, value in start.learned_values.items() if name in free}
    log_mean, mean = float(law.mean.sum()), float((law.concentration / law.rate).sum())

    def loss(log_h):
        values = start.learned_values | dict(zip(free, np.exp(log_h), strict=True))
        a, c = values["concentration"] / 4, values["rate"]
        total = 20 * (a * np.log(c) - gammaln(a)) + a * log_mean - c * mean
        return penalty(log_h, [start.learned_values[name] for name in free]) - total

    best = np.exp(minimize(loss, np.zeros(len(free))).x)
    found = start.learned(law, hyper).learned_values
    assert [found[name] for name in free] == pytest.approx(best, rel=1e-4)
    assert all(found[n] == v for n, v in start.learned_values.items() if n not in free)


def test_the_gamma_of_a_weibull_has_the_smallest_divergence():
    law = LogWeibull(torch.tensor([0.1, 0.6, 1.0, 7.0]), torch.tensor([-9.0, 0.0, 1.0, 2.0]))
    free = [value.double().requires_grad_() for value in (law.concentration, law.loc)]
    of = LogWeibull(*free)
    projected = of.projected
    fixed = LogGamma(projected.concentration.detach(), projected.rate.detach())
    slopes = torch.autograd.grad(kl_divergence(of, fixed).sum(), free)
    torch.testing.assert_close(torch.stack(slopes), torch.zeros(2, 4).double())


def test_unused_experts_leave_all_hyperparameters_as_they_are():
    """Whatever their number: they have the factors of smallest divergence from the prior."""
    law = LogWeibull(torch.full((3, 4), 0.3).double(), torch.tensor(-2.0).double())
    gamma = law.projected
    process = GammaProcess(4 * float(gamma.concentration[0, 0]), float(gamma.rate[0, 0]))
    scales = InverseGammaScale(0.7, 0.2, 0.4, coefficient_scale=0.3)
    priors = Priors(process, scales)
    hyper = priors.hyper_priors(weak=True)
    found = process.learned(gamma, hyper).learned_values
    assert found == pytest.approx(process.learned_values, rel=1e-9)
    b = torch.full((3, 4), 0.2 / 0.4).double()
    zero = torch.zeros(3, 4, 5).double()
    variance = b.unsqueeze(-1) / 0.7 * scales.squares(zero)
    found = scales.learned(Moments(zero, variance), b, hyper).learned_values
    assert found == pytest.approx(scales.learned_values, rel=1e-6)


def test_unused_scales_that_coefficients_follow_leave_them_as_they_are():
    shrinkage = LogWeibull(torch.full((3, 4), 0.4).double(), torch.tensor(-2.0).double())
    precision = LogWeibull(torch.full((3, 4, 5), 0.8).double())
    shape = float(precision.projected.concentration[0, 0, 0])
    loc = np.log(shape / float(precision.mean_exp()[0, 0, 0]))  # Gamma(a, 1) has the mean a
    law = shrinkage.projected
    e, f = float(law.concentration[0, 0]), float(law.rate[0, 0])
    prior = InverseGammaScale(shape, e, f)
    zero = torch.zeros(3, 4, 5).double()
    moments = Moments(zero, zero + 1)
    factors = PartiallyCentred(ShrinkageFactors(prior, zero[..., 0], 5), moments)
    with torch.no_grad():
        factors.loc.copy_(shrinkage.loc)
        factors.log_concentration.fill_(np.log(0.4))
        factors.precision_loc.fill_(loc)
        factors.log_precision_concentration.fill_(np.log(0.8))
        found = factors.learned(moments, Priors(hyperplane=prior).hyper_priors(weak=True))
    assert found.learned_values == pytest.approx(prior.learned_values, rel=1e-6)


def test_scales_are_learned_as_by_maximising_the_marginal_density():
    """Updates from known coefficients end where their density is highest, scales summed out."""
    start = InverseGammaScale(1.0, 0.5, 0.7)
    coefficient = planted(InverseGammaScale(0.6, 1.5, 3.0), 80, 6, seed=0)
    found = learned(start, coefficient, rounds=600)
    values = np.array(list(start.learned_values.values()))

    def loss(log_h):
        return marginal(log_h, coefficient) + penalty(log_h, values)

    at = np.log(list(found.learned_values.values()))
    # one standard error from the maximum is worth half a nat
    assert loss(at) - minimize(loss, at).fun < 1e-3
    assert loss(np.log(values)) - loss(at) > 1


@pytest.mark.portable
def test_planted_weights_give_their_hyperparameters_back():
    """Within four standard errors: the information on log a and log c is n times the matrix."""
    n_experts, truth = 5, GammaProcess(2.0, 3.0)
    a, n = truth.concentration / n_experts, 400 * n_experts
    weight = torch.from_numpy(np.random.default_rng(0).gamma(a, 1 / truth.rate, (400, n_experts)))
    hyper = Priors(GammaProcess()).hyper_priors(weak=True)
    found = GammaProcess().learned(known(weight.clamp_min(1e-300)), hyper)
    information = n * np.array([[a**2 * polygamma(1, a), -a], [-a, a]])
    error = np.sqrt(np.diag(np.linalg.inv(information)))
    ratio = [found.concentration / truth.concentration, found.rate / truth.rate]
    assert (np.abs(np.log(ratio)) < 4 * error).all()


@pytest.mark.portable
def test_planted_coefficients_give_their_hyperparameters_back():
    """The log-density at the truth and at what was learned differ as a chi-square of 3 does.

    Twice the difference exceeds 21.1 in one of 10,000 data sets; the weak hyper-priors, at the
    truth here, move the maximum by less than one of 300 experts does.
    """
    truth = InverseGammaScale(1.0, 0.8, 2.0)
    coefficient = planted(truth, 300, 6, seed=1)
    found = learned(truth, coefficient, rounds=200)
    at, true = (np.log(list(p.learned_values.values())) for p in (found, truth))
    gain = marginal(true, coefficient) - marginal(at, coefficient)
    assert 0 < 2 * gain < 21.1
    assert (np.abs(at - true) < np.log(2)).all()
