import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import kl_divergence

from bayestree.distributions import Constant, LogGamma, LogWeibull, inverse_gamma_scale

N = 40_000
LOG_GAMMAS = [(0.05, 2.0), (0.7, 0.3), (1.0, 1.0), (8.0, 5.0)]
LOG_WEIBULLS = [(0.2, -3.0), (1.0, 0.0), (5.0, 2.0)]
LAWS = [(LogGamma, *pair) for pair in LOG_GAMMAS] + [(LogWeibull, *pair) for pair in LOG_WEIBULLS]


def make(kind, one, other, dtype=torch.float64):
    return kind(torch.tensor(one, dtype=dtype), torch.tensor(other, dtype=dtype))


def scipy_twin(kind, one, other):
    """The same law by SciPy: log of a gamma, and of a Weibull (a left-skewed Gumbel)."""
    if kind is LogGamma:
        return stats.loggamma(one, loc=-math.log(other))
    return stats.gumbel_l(loc=other, scale=1 / one)


def draws(law, n=N, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return law.rsample((n,))


def assert_mean(values, expected):
    """The mean of independent draws lies within four standard errors."""
    values = np.asarray(values)
    error = 4 * values.std() / math.sqrt(len(values))
    assert abs(values.mean() - expected) < error + 1e-12  # rounding, where nothing varies


@pytest.mark.parametrize("law", LAWS)
def test_density_integrates_to_one(law):
    ours, twin = make(*law), scipy_twin(*law)
    edges = [twin.ppf(p) for p in (1e-12, 1e-3, 0.5, 1 - 1e-3)] + [twin.ppf(1 - 1e-12) + 1]
    total = sum(
        integrate.quad(lambda x: float(ours.log_prob(torch.tensor(x)).exp()), low, high)[0]
        for low, high in itertools.pairwise(edges)
    )
    assert total == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_density_is_that_of_scipy(law):
    ours, twin = make(*law), scipy_twin(*law)
    points = twin.ppf(np.linspace(1e-6, 1 - 1e-6, 101))
    np.testing.assert_allclose(
        ours.log_prob(torch.as_tensor(points)), twin.logpdf(points), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("law", LAWS)
def test_draws_are_those_of_the_law(law):
    # The level at which four standard errors reject.
    p_value = stats.kstest(draws(make(*law)).numpy(), scipy_twin(*law).cdf).pvalue
    assert p_value > 2 * stats.norm.sf(4)


@pytest.mark.parametrize("law", LAWS)
def test_moments_are_those_of_the_draws(law):
    ours = make(*law)
    values = draws(ours).numpy()
    assert_mean(values, float(ours.mean))
    assert_mean((values - float(ours.mean)) ** 2, float(ours.variance))


@pytest.mark.parametrize("law", LAWS)
def test_entropy_is_the_mean_surprise(law):
    ours = make(*law)
    assert_mean(-ours.log_prob(draws(ours)), float(ours.entropy()))


@pytest.mark.parametrize("pair", LOG_WEIBULLS)
def test_mean_of_the_weight_is_that_of_its_draws(pair):
    ours = make(LogWeibull, *pair)
    twin = stats.weibull_min(pair[0], scale=math.exp(pair[1]))
    assert float(ours.mean_exp()) == pytest.approx(twin.mean(), rel=1e-12)


@pytest.mark.parametrize("target", LOG_GAMMAS)
@pytest.mark.parametrize("source", [law for law in LAWS if law[1] > 0.2])
def test_closed_divergence_is_the_mean_log_ratio(source, target):
    p, q = make(*source), make(LogGamma, *target)
    values = draws(p)
    assert_mean(p.log_prob(values) - q.log_prob(values), float(kl_divergence(p, q)))


@pytest.mark.parametrize("law", LAWS)
def test_divergence_from_itself_is_zero_and_from_others_positive(law):
    p = make(*law)
    for other in LOG_GAMMAS:
        divergence = float(kl_divergence(p, make(LogGamma, *other)))
        same = law == (LogGamma, *other)
        # The exponential is both a gamma and a Weibull variable of shape 1.
        same |= law == (LogWeibull, 1.0, 0.0) and other == (1.0, 1.0)
        assert divergence == pytest.approx(0, abs=1e-12) if same else divergence > 1e-3


def mean_gradient(kind, one, other, n=N):
    """Pathwise gradients of the mean of draws, a row per draw."""
    first = torch.full((n,), one, dtype=torch.float64, requires_grad=True)
    second = torch.full((n,), other, dtype=torch.float64, requires_grad=True)
    values = draws(kind(first, second), n=1)
    return torch.autograd.grad(values.sum(), (first, second))


@pytest.mark.parametrize("law", LAWS)
def test_pathwise_gradients_are_slopes_of_the_mean(law):
    kind, one, other = law
    step = 1e-5
    slopes = []
    for shift in ((step * one, 0.0), (0.0, step)):
        up = scipy_twin(kind, one + shift[0], other + shift[1]).mean()
        down = scipy_twin(kind, one - shift[0], other - shift[1]).mean()
        slopes.append((up - down) / (2 * sum(shift)))
    for found, slope in zip(mean_gradient(*law), slopes, strict=True):
        # The location shifts every draw alike; then only the finite difference errs.
        error = 4 * float(found.std()) / math.sqrt(len(found))
        assert abs(float(found.mean()) - slope) < error + 1e-6 * (1 + abs(slope))


@pytest.mark.parametrize("shape", [0.005, 0.01, 0.05])
def test_tiny_shapes_are_finite_in_float32(shape):
    concentration = torch.full((10_000,), shape, requires_grad=True)
    law = LogGamma(concentration, torch.tensor(1.0))
    values = draws(law, n=1)
    density = law.log_prob(values)
    assert torch.isfinite(values).all()
    assert torch.isfinite(density).all()
    for total in (values.sum(), density.sum()):
        gradient = torch.autograd.grad(total, concentration, retain_graph=True)[0]
        assert torch.isfinite(gradient).all()
    cdf = stats.loggamma(shape).cdf
    assert stats.kstest(values[0].detach().numpy(), cdf).pvalue > 2 * stats.norm.sf(4)


def test_weibull_draws_are_finite_in_float32():
    law = LogWeibull(torch.tensor(0.5), torch.tensor(0.0))
    values = draws(law, n=2_000_000)
    assert torch.isfinite(values).all()


@pytest.mark.parametrize("kind", [LogGamma, LogWeibull])
def test_expand_keeps_the_law(kind):
    law = make(kind, 0.7, 0.3)
    wide = law.expand((3, 2))
    assert wide.batch_shape == (3, 2)
    assert wide.rsample((5,)).shape == (5, 3, 2)
    points = torch.linspace(-3, 1, 6, dtype=torch.float64).view(3, 2)
    assert torch.equal(wide.log_prob(points), law.log_prob(points))
    assert torch.equal(wide.mean, law.mean.expand(3, 2))
    assert torch.equal(wide.entropy(), law.entropy().expand(3, 2))


@pytest.mark.parametrize("kind", [LogGamma, LogWeibull])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_bad_concentrations_are_rejected(kind, bad):
    with pytest.raises(ValueError, match="concentration"):
        kind(torch.tensor(bad), torch.tensor(1.0), validate_args=True)


@pytest.mark.parametrize("kind", [LogGamma, LogWeibull])
def test_values_outside_the_support_are_rejected(kind):
    with pytest.raises(ValueError, match="support"):
        kind(1.0, 1.0, validate_args=True).log_prob(torch.tensor(math.nan))


@pytest.mark.parametrize(("shape", "rate"), [(3.0, 0.5), (6.0, 2.0)])
def test_squares_of_scales_are_inverse_gamma(shape, rate):
    law = inverse_gamma_scale(
        torch.tensor(shape, dtype=torch.float64), torch.tensor(rate, dtype=torch.float64)
    )
    twin = stats.invgamma(shape, scale=rate)
    scale = draws(law)
    assert stats.kstest(scale.square().numpy(), twin.cdf).pvalue > 2 * stats.norm.sf(4)
    assert_mean(scale.square(), twin.mean())
    points = torch.linspace(0.1, 3, 30, dtype=torch.float64)
    expected = twin.logpdf(points.square()) + np.log(2 * points.numpy())
    np.testing.assert_allclose(law.log_prob(points), expected, rtol=1e-10)


def test_constant_adds_nothing_and_starts_anywhere():
    law = Constant(torch.zeros((), dtype=torch.float64)).expand((4, 3))
    value = law.sample()
    assert value.shape == (4, 3)
    assert value.dtype == torch.float64
    assert len(value.unique()) == 12
    assert torch.equal(law.log_prob(value), torch.zeros(4, 3, dtype=torch.float64))
