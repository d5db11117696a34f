"""Scales that groups of coefficients share; the contract of priors checks their closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import Gamma, Normal

from bayestree.models import GroupedScale, InverseGammaScale
from bayestree.models.priors import Moments
from tests.inference.problems import normal

LAW = {"shape": 0.7, "shrinkage_shape": 2.0, "shrinkage_rate": 0.5, "coefficient_scale": 0.3}
SIZE = (2, 3)


def moments(width, seed=0):
    return Moments(normal(*SIZE, width, seed=seed), normal(*SIZE, width, seed=seed + 1).square())


def test_without_groups_it_is_the_prior_of_single_scales():
    plain, grouped = InverseGammaScale(**LAW), GroupedScale(**LAW)
    given = moments(5)
    factors = [prior.factors(given.mean[..., -1], 5) for prior in (plain, grouped)]
    support = normal(*SIZE, 5, seed=4) > -0.5
    support[..., -1] = True
    factors += [prior.factors(given.mean[..., -1], 5, support) for prior in (plain, grouped)]
    for one, other in zip(factors[::2], factors[1::2], strict=True):
        for _ in range(3):
            one.refresh(given)
            other.refresh(given)
        torch.testing.assert_close(one.rate, other.rate)
        found = (each.expected_log_prior(given) for each in (one, other))
        torch.testing.assert_close(*found)
    sites = {"hyperplane": given.mean[..., :-1], "intercept": given.mean[..., -1]}
    sites["shrinkage"] = given.variance[..., 0]
    torch.testing.assert_close(plain.log_prob(sites), grouped.log_prob(sites))
    torch.testing.assert_close(plain.slope(given.mean), grouped.slope(given.mean))
    free = {n: (v.log() if n == "shrinkage" else v).numpy() for n, v in sites.items()}
    np.testing.assert_allclose(plain.precision(free), grouped.precision(free))


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("prior", [InverseGammaScale(**LAW), GroupedScale(**LAW, groups=((0, 2),))])
def test_expected_precisions_are_slopes_of_the_bound(prior, absent):
    given = moments(5)
    support = normal(*SIZE, 5, seed=4) > (-0.5 if absent else -math.inf)
    support[..., -1] = True
    if absent:
        given = Moments(*(torch.where(support, value, 0.0) for value in given[:2]))
    factors = prior.factors(given.mean[..., -1], 5, support if absent else None)
    precision = factors.expected_precision(given)
    mean, variance = (value.clone().requires_grad_() for value in given[:2])
    bound = factors.expected_log_prior(Moments(mean, variance)).sum()
    of_mean, of_variance = torch.autograd.grad(bound, (mean, variance))
    torch.testing.assert_close(-0.5 * precision[support], of_variance[support])
    torch.testing.assert_close(-precision[support] * given.mean[support], of_mean[support])


def test_the_density_of_a_group_is_a_mixture_of_normals_of_one_scale():
    """Integrated over the precision of the scale, by quadrature."""
    prior = GroupedScale(**LAW, groups=((0, 2),))
    beta, b = np.array([0.3, -0.8, 1.1]), 0.9

    def mixed(values):
        def density(log_precision):
            precision = np.exp(log_precision)
            law = stats.gamma(LAW["shape"], scale=1 / (LAW["coefficient_scale"] ** 2 * b))
            normals = stats.norm(scale=precision**-0.5).pdf(values).prod()
            return normals * law.pdf(precision) * precision

        return np.log(integrate.quad(density, -30, 30, points=[-5, 0, 5], limit=200)[0])

    hyperplane = torch.as_tensor(beta).view(1, 1, -1)
    found = prior._planes(
        hyperplane,
        torch.full((1, 1, 1), LAW["coefficient_scale"] ** 2 * b, dtype=torch.float64),
        torch.ones_like(hyperplane),
    )
    expected = [mixed(beta[[0, 2]]), mixed(beta[[1]])]
    np.testing.assert_allclose(found.flatten().numpy(), expected, rtol=1e-6)


def test_the_bound_is_that_of_a_factor_for_each_scale():
    """By draws of coefficients, shrinkages and precisions; and it is highest at the update."""
    prior, places = GroupedScale(**LAW, groups=((0, 2), (1, 3))), [0, 1, 0, 1, 2, 3]
    given = moments(6)
    factors = prior.factors(given.mean[..., -1], 6).eval()
    for _ in range(50):
        factors.refresh(given)
    bound, law = factors.expected_log_prior(given), factors.law
    for factor in (0.9, 1.1):
        factors.rate.mul_(factor)
        assert (factors.expected_log_prior(given) < bound).all()
        factors.rate.div_(factor)
    torch.manual_seed(0)
    scale = torch.tensor([LAW["coefficient_scale"]] * 5 + [1.0], dtype=torch.float64)
    members = torch.eye(4, dtype=torch.float64)[places]
    rates = law.mean.unsqueeze(-1) + (given.square / scale**2) @ members / 2
    of_scales = Gamma(LAW["shape"] + members.sum(0) / 2, rates)
    values = []
    for _ in range(2_000):
        beta = given.mean + given.variance.sqrt() * torch.randn_like(given.mean)
        b, precision = law.sample(), of_scales.sample()
        terms = [
            Normal(0.0, scale * precision[..., places] ** -0.5).log_prob(beta).sum(),
            Gamma(LAW["shape"], b.unsqueeze(-1)).log_prob(precision).sum(),
            Gamma(LAW["shrinkage_shape"], LAW["shrinkage_rate"]).log_prob(b).sum(),
            -of_scales.log_prob(precision).sum() - law.log_prob(b).sum(),
        ]
        values.append(float(sum(terms)))
    error = np.std(values) / len(values) ** 0.5
    assert abs(np.mean(values) - float(bound.sum())) < 4 * error


def test_a_group_is_shrunk_as_a_whole():
    """A small coefficient beside a large one is shrunk as little as that, alone far more."""
    prior = GroupedScale(**LAW, groups=((0, 1, 2),))
    value = torch.tensor([3.0, 0.01, 0.0, 0.01], dtype=torch.float64).view(1, 1, 4)
    shrunk = (prior.slope(value) / -value)[0, 0]
    torch.testing.assert_close(shrunk[0], shrunk[1])
    b = 0.3**2 * 2.0 / 0.5
    ratio = (0.7 + 1 / 2) / (0.7 + 3 / 2) * (b + 9.0001 / 2) / (b + 0.0001 / 2)
    assert float(shrunk[3] / shrunk[1]) == pytest.approx(ratio)


def test_among_some_features():
    prior = GroupedScale(groups=((0, 3), (1, 2)))
    found = prior.among(np.array([True, False, True, True]))
    assert found.groups == ((0, 2), (1,))


@pytest.mark.parametrize("groups", [((0, 1), (1, 2)), ((0,), ())])
def test_wrong_groups_are_refused(groups):
    with pytest.raises(ValueError, match="each in one group at most"):
        GroupedScale(groups=groups)
    with pytest.raises(ValueError, match="form='collapsed'"):
        GroupedScale(form="explicit")
