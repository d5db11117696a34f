"""Statistics of chains, most of which are those of ArviZ."""

import numpy as np
import pytest
from scipy import stats

from bayestree._utils import arviz_compat
from bayestree._utils.monte_carlo import bfmi, central_interval, effective_draws, ess, r_hat


def by_arviz(name, values, **settings):
    """The statistic of each quantity (chain, draw, J)."""
    statistic = getattr(arviz_compat.arviz(), name)
    with np.errstate(all="ignore"):  # chains that never change
        each = np.moveaxis(values, 2, 0)
        return [float(statistic(one, **settings)) for one in each]


@pytest.mark.skipif(arviz_compat.major_version() > 0, reason="of ArviZ 0.x")
@pytest.mark.parametrize("n_chains", [2, 8])
@pytest.mark.parametrize("n_draws", [5, 50, 201])
def test_equals_arviz(n_chains, n_draws):
    values = np.stack([walk(rho, n_chains, n_draws) for rho in (-0.9, 0.0, 0.5, 0.99)], axis=2)
    values = np.concatenate([values, np.rint(values)], axis=2)  # with ties
    np.testing.assert_allclose(r_hat(values), by_arviz("rhat", values, method="rank"))
    np.testing.assert_allclose(ess(values), by_arviz("ess", values, method="bulk"))
    np.testing.assert_allclose(ess(values, "mean"), by_arviz("ess", values, method="mean"))
    tail = by_arviz("ess", values, method="tail", prob=(0.05, 0.95))
    np.testing.assert_allclose(ess(values, "tail"), tail)


def walk(rho, chains=4, draws=2000, seed=0):
    """Stationary AR(1) chains of unit variance."""
    noise = np.random.default_rng(seed).normal(size=(chains, draws))
    x = noise.copy()
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return x


def test_r_hat_of_chains_that_agree_and_of_one_that_does_not():
    x = walk(0.0)
    assert r_hat(x) == pytest.approx(1.0, abs=0.005)
    x[0] += 2.0
    assert r_hat(x) > 1.2


def test_r_hat_sees_a_scale_that_differs():
    x = walk(0.0)
    x[0] *= 5
    assert r_hat(x) > 1.1


def test_one_chain_is_compared_with_itself():
    x = walk(0.0, chains=1)
    assert r_hat(x) == pytest.approx(1.0, abs=0.01)
    drift = x + np.linspace(0, 3, 2000)
    assert r_hat(drift) > 1.2


def test_ess_of_an_autoregression():
    # S (1 - rho) / (1 + rho) for the mean; its estimate is good to some 10 %
    assert ess(walk(0.5), "mean") == pytest.approx(8000 / 3, rel=0.2)
    assert ess(walk(0.0)) == pytest.approx(8000, rel=0.2)
    assert ess(walk(0.9)) < ess(walk(0.5)) / 3
    assert ess(walk(0.9), "tail") < ess(walk(0.5), "tail")


def test_tails_are_those_of_five_in_a_hundred():
    x = walk(0.7)
    ends = [ess((x <= np.quantile(x, share)).astype(float), "mean") for share in (0.05, 0.95)]
    assert ess(x, "tail") == pytest.approx(min(ends))


def test_shapes_are_those_of_the_quantities():
    x = np.random.default_rng(0).normal(size=(2, 50, 3, 2))
    assert r_hat(x).shape == ess(x).shape == ess(x, "tail").shape == (3, 2)
    assert r_hat(x)[1, 0] == pytest.approx(r_hat(x[:, :, 1, 0]), rel=1e-12)
    assert ess(x)[1, 0] == pytest.approx(ess(x[:, :, 1, 0]), rel=1e-12)


def test_quantities_that_never_change():
    still = np.ones((4, 20))
    assert np.isnan(r_hat(still))
    assert r_hat(still * np.arange(4)[:, None]) == np.inf


def test_bfmi():
    # energy that changes freely between draws: E (e' - e)^2 / Var e = 2; of a slow one, less
    assert bfmi(walk(0.0)) == pytest.approx(np.full(4, 2.0), rel=0.15)
    assert (bfmi(walk(0.95)) < 0.2).all()


def test_bad_values():
    with pytest.raises(ValueError, match="4 draws or more"):
        r_hat(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="must be finite"):
        ess(np.full((4, 10), np.nan))


def test_effective_draws_count_a_chain_that_is_stuck_once():
    values, chains = np.repeat([0.0, 1.0, 5.0, 7.0], 5), np.repeat(np.arange(4), 5)
    assert effective_draws(values, np.ones(20), chains) == pytest.approx(4)
    # chains with 3/4 and 1/4 of the weight, of which only the former moves, about the other
    uneven = np.r_[-1.0, 1.0, 0.0], np.r_[3.0, 3.0, 2.0], np.r_[0, 0, 1]
    assert effective_draws(*uneven) == pytest.approx(1 / (2 * 0.375**2 + 0.25**2))
    assert effective_draws(np.ones(6), np.ones(6), np.arange(6)) == pytest.approx(6)


def test_intervals_of_independent_draws_hold_another_draw():
    """Between the values of rank (n + 1) p, and (n + 1) (1 - p)."""
    values = np.random.default_rng(0).normal(size=(30, 2))
    found = central_interval(values, np.ones(30), np.arange(30), 0.8)
    np.testing.assert_allclose(found, np.quantile(values, [0.1, 0.9], axis=0, method="weibull"))
    few = central_interval(values[:5], np.ones(5), np.arange(5), 0.8)
    np.testing.assert_allclose(few, [values[:5].min(axis=0), values[:5].max(axis=0)])


def test_intervals_of_chains_hold_another_draw():
    """Twenty-four chains of four draws, whose correlation is .8, of weights 1 to 3."""
    rng, n = np.random.default_rng(1), 20_000
    chains, weights = np.repeat(np.arange(24), 4), np.repeat([1.0, 2.0, 3.0] * 8, 4)
    values = 2 * rng.normal(size=(24, n))[chains] + rng.normal(size=(96, n))
    law = stats.norm(scale=5**0.5)

    def held(chains):
        low, high = central_interval(values, weights, chains, 0.9)
        return law.cdf(high) - law.cdf(low)

    # The rule is exact for independent draws alone; it halves what is missed without it. Standard
    # errors are below .001.
    missed = 0.9 - held(np.arange(96)).mean()
    assert missed > 0.01
    assert abs(held(chains).mean() - 0.9) < missed / 2
