"""Gamma priors on rates: evidence by quadrature, and hyperparameters by empirical Bayes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import gamma, poisson, weibull_min

from bayestree.models import Poisson, Survival


def evidence(leaf, y):
    """log p(y of one leaf) from the ratio of prior times likelihood to posterior."""
    posterior = leaf.posterior(leaf.statistics(y, torch.ones(len(y)).double()).sum(0, keepdim=True))
    sites = {name: value.double() for name, value in posterior.mean().items()}
    rows = leaf.log_density(sites, y)[:, 0].sum()
    return float(leaf.log_prob(sites) + rows - posterior.log_prob(sites))


def integrated(leaf, density):
    """log of the integral of prior times likelihood over the rate, by quadrature."""
    law = gamma(leaf.shape, scale=1 / leaf.rate)
    found, _ = quad(lambda rate: law.pdf(rate) * density(rate), 0, law.isf(1e-14), limit=500)
    return np.log(found)


def test_the_evidence_of_counts_is_an_integral():
    y, exposure = np.array([3.0, 0.0, 2.0, 7.0]), np.array([1.0, 0.3, 2.5, 1.7])
    leaf = Poisson(1.5, 0.8)
    found = evidence(leaf, torch.as_tensor(np.column_stack([y, exposure])))
    expected = integrated(leaf, lambda rate: poisson.pmf(y, rate * exposure).prod())
    assert found == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("power", [0.7, 1.0, 2.2])
def test_the_evidence_of_censored_times_is_an_integral(power):
    time, event = np.array([0.4, 1.3, 2.0, 5.0]), np.array([1, 0, 1, 0])
    leaf = Survival(2.5, 3.0, power=power, unit=1.4)

    def density(rate):
        law = weibull_min(power, scale=1.4 * (rate * 1.4) ** (-1 / power))
        return np.where(event, law.pdf(time), law.sf(time)).prod()

    found = evidence(leaf, torch.as_tensor(np.column_stack([time, event])).double())
    assert found == pytest.approx(integrated(leaf, density), rel=1e-7)


def test_the_survival_of_a_leaf_is_that_of_its_hazard():
    leaf = Survival(power=1.6, unit=3.0)
    sites = {"leaf_rate": torch.tensor([0.2, 0.9]).double()}
    at = torch.tensor([0.5, 3.0, 8.0]).double()
    found = 1 - leaf.cdf(sites, leaf.response(at[:, None], at).numpy())
    hazard = 3.0 * (at.numpy()[:, None] / 3.0) ** 1.6 * sites["leaf_rate"].numpy()
    assert found == pytest.approx(np.exp(-hazard))
    assert hazard[1] == pytest.approx(3.0 * sites["leaf_rate"].numpy())  # at the unit of time


@pytest.fixture(scope="module")
def times():
    """Thirty leaves of fifty times of power 1.7, a third of which are censored."""
    rng = np.random.default_rng(0)
    scale = rng.gamma(4.0, 0.5, 30)[:, None]
    time, end = scale * rng.weibull(1.7, (30, 50)), scale * rng.weibull(1.7, (30, 50)) * 1.5
    both = np.stack([np.minimum(time, end), time <= end], axis=-1)
    return torch.as_tensor(both)


def calibrated(leaf, leaves):
    sums = [leaf.statistics(y, torch.ones(len(y)).double()).sum(0) for y in leaves]
    return leaf.calibrate(torch.stack(sums))


@pytest.mark.portable
def test_the_power_of_time_is_found(times):
    found = calibrated(Survival(unit=2.0), times)
    events = float(times[..., 1].sum())
    # the information about the power is events (1.645 + 1) / power^2 or so: an error of
    # 0.78 power / sqrt(events), of which five
    assert found.power == pytest.approx(1.7, abs=5 * 0.78 * 1.7 / np.sqrt(events))
    assert calibrated(Survival(unit=2.0, learned=False), times).power == 1.0


@pytest.mark.portable
def test_no_other_hyperparameters_have_more_evidence(times):
    """Also with the sums of powers that are interpolated."""
    found = calibrated(Survival(unit=2.0), times)
    best = sum(evidence(found, y) for y in times)
    for name in ("shape", "rate", "power"):
        for factor in (0.9, 0.97, 1.03, 1.1):
            other = replace(found, **{name: getattr(found, name) * factor})
            assert sum(evidence(other, y) for y in times) < best + 0.01


def test_a_weight_counts_as_so_many_rows(times):
    counts, leaf = 1 + torch.arange(50) % 3, Survival(unit=2.0)
    found = leaf.calibrate(torch.stack([leaf.statistics(y, counts.double()).sum(0) for y in times]))
    expected = calibrated(leaf, [y.repeat_interleave(counts, 0) for y in times])
    assert found.power == pytest.approx(expected.power, rel=1e-3)


@pytest.mark.portable
def test_the_spread_of_rates_is_found():
    rng = np.random.default_rng(1)
    rates = rng.gamma(2.0, 1 / 0.5, 400)
    leaves = torch.as_tensor(rng.poisson(rates[:, None], (400, 20))).double()
    ones = torch.ones_like(leaves)
    found = calibrated(Poisson(), torch.stack((leaves, ones), dim=-1))
    # a shape a from L gamma variables has an error of about a sqrt(2 / L), of which five
    assert found.shape == pytest.approx(2.0, abs=5 * 2.0 * np.sqrt(2 / 400))
    assert found.shape / found.rate == pytest.approx(4.0, abs=5 * 4.0 / np.sqrt(2.0 * 400))


def test_the_unit_of_time_does_not_matter(times):
    ones = torch.ones(times[..., 0].numel()).double()
    flat = times.reshape(-1, 2)
    days = flat * torch.tensor([365.25, 1.0]).double()
    years = Survival().informed(flat, ones)
    other = Survival().informed(days, ones)
    assert other.power == pytest.approx(years.power, rel=1e-3)
    assert other.unit == pytest.approx(365.25 * years.unit)
    assert other.rate == pytest.approx(365.25 * years.rate, rel=1e-2)
