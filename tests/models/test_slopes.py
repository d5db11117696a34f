"""Linear leaves whose slopes shrink by a strength of each feature."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import approx_fprime

from bayestree._utils.arrays import FloatArray
from bayestree.models import Gaussian, LinearGaussian
from bayestree.models.leaves import slopes
from bayestree.models.leaves.linear import moments
from bayestree.models.leaves.slopes import NO_SLOPE, SLOPE_STRENGTHS


def rows_of(X, y):
    return torch.tensor(np.column_stack((y, X)))


def sums_of(leaf, rows, side):
    statistics = leaf.statistics(rows, torch.ones(len(rows), dtype=torch.float64))
    return torch.stack([statistics[side].sum(0), statistics[~side].sum(0)])


@pytest.fixture(scope="module")
def planted():
    """Two leaves with slopes in features 1 and 2 of 6, in the units of a fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    side = X[:, 0] > 0
    y = np.where(side, 0.7, -0.7) * X[:, 1] + 0.4 * X[:, 2] + 0.3 * rng.normal(size=400)
    return rows_of(X, y), torch.tensor(side), np.array([0.0, 0.7, 0.4, 0.0, 0.0, 0.0])


def test_irrelevant_features_lose_their_slopes_and_others_keep_theirs(planted):
    rows, side, slope = planted
    leaf = LinearGaussian()
    found = leaf.calibrate(sums_of(leaf, rows, side)).reduced()
    sloping = found.strengths(6) < NO_SLOPE
    assert sloping[slope != 0].all()
    # a noise feature stays where its marginal likelihood has a finite maximum: that of z^2 > 1
    # in the mean of both leaves, with probability exp(-1) = .37; all four do with .02
    assert sloping.sum() < 6
    law = found.posterior(sums_of(found, rows, side))
    mean = law.mean()["leaf_slope"].numpy()
    assert (mean[:, ~sloping] == 0).all()
    # four standard errors of a slope from 180 rows or more: noise .3, features of unit variance
    np.testing.assert_allclose(mean[0], slope, atol=4 * 0.3 / np.sqrt(180))
    np.testing.assert_allclose(mean[1], slope * [1, -1, 1, 1, 1, 1], atol=4 * 0.3 / np.sqrt(180))


def test_the_gradient_of_the_marginal_likelihood_is_its_slope(planted, monkeypatch):
    rows, side, _ = planted
    leaf, checked = LinearGaussian(price=0.01), []

    def compared(loss, start, limits, *, gradient):
        at = np.log(np.multiply(start, np.linspace(0.5, 2, len(start))))

        def value(free: FloatArray) -> float:
            return float(loss(free)[0])

        checked.append((loss(at)[1], approx_fprime(at, value, 1e-6)))
        return start

    monkeypatch.setattr("bayestree.models.leaves.linear.most_likely", compared)
    leaf.calibrate(sums_of(leaf, rows, side))
    found, expected = checked[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_leaves_without_some_slopes_are_those_of_a_very_strong_prior(planted):
    """Leaving features out of the sums changes nothing but rounding errors of 1e-8 of the rows."""
    rows, side, _ = planted
    whole = LinearGaussian(slope_strength=(2.0, 2.0, 2.0, *[0.99 * NO_SLOPE] * 3))
    less = replace(whole, slope_strength=(2.0, 2.0, 2.0, *[NO_SLOPE] * 3))
    one, other = (leaf.posterior(sums_of(leaf, rows, side)) for leaf in (whole, less))
    assert other.loc.shape == (2, 4)
    np.testing.assert_allclose(one.mean()["leaf_slope"], other.mean()["leaf_slope"], atol=1e-5)
    assert float(one.kl()) == pytest.approx(float(other.kl()), rel=1e-4)
    densities = (law.expected_log_density(rows) for law in (one, other))
    np.testing.assert_allclose(*densities, rtol=1e-5, atol=1e-5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sites = other.sample()
    assert float(one.log_prob(sites)) == pytest.approx(float(other.log_prob(sites)), rel=1e-3)


def test_draws_of_absent_slopes_have_their_prior(planted):
    rows, side, _ = planted
    leaf = LinearGaussian(slope_strength=(2.0, *[NO_SLOPE] * 5))
    law = leaf.posterior(sums_of(leaf, rows, side))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = [law.sample() for _ in range(500)]
    units = torch.stack([one["leaf_slope"] / one["leaf_scale"][:, None] for one in draws])
    noise = (units[..., 1:] * NO_SLOPE**0.5).flatten().numpy()
    assert stats.kstest(noise, "norm").pvalue > 1e-5


def test_of_many_features_those_that_matter_are_chosen():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 120))
    y = X[:, 7] - X[:, 80] + 0.1 * rng.normal(size=300)
    rows, weights = rows_of(X, y), torch.ones(300, dtype=torch.float64)
    leaf = LinearGaussian().informed(rows, weights)
    chosen = np.flatnonzero(leaf.strengths(120) < NO_SLOPE)
    assert len(chosen) == slopes.MOST_SLOPES
    assert {7, 80} <= set(chosen.tolist())
    assert moments(leaf.statistics(rows, weights)).cross.shape[-1] == 1 + slopes.MOST_SLOPES
    closed = LinearGaussian(slope_strength=(1.0,) * 80 + (NO_SLOPE,) + (1.0,) * 39)
    chosen = closed.informed(rows, weights).strengths(120) < NO_SLOPE
    assert chosen[7]
    assert not chosen[80]
    few = LinearGaussian()
    assert few.informed(rows[:, :4], weights) is few


def test_strengths_are_spread_over_all_features():
    used = np.array([True, False, True])
    assert LinearGaussian(slope_strength=(3.0, 4.0)).widened(used).slope_strength == (
        3.0,
        NO_SLOPE,
        4.0,
    )
    assert LinearGaussian().widened(used) == LinearGaussian() == LinearGaussian().among(used)
    few = LinearGaussian(slope_strength=(3.0, 4.0))
    assert few.widened(used).among(used) == few == few.among(used)
    with pytest.raises(ValueError, match=r"slope_strength\[1\]"):
        LinearGaussian(slope_strength=(1.0, -1.0))


def almost_flat(n_features):
    """A prior that says nothing of the slopes."""
    return LinearGaussian(1e-6, (1e-6,) * n_features, shape=1e-6, rate=1e-6)


def log_likelihood(own, columns):
    """That of a regression of y (rows (y, x)) on some columns, and the residuals."""
    design = np.column_stack((np.ones(len(own)), own[:, [1 + j for j in columns]]))
    gap = own[:, 0] - design @ np.linalg.lstsq(design, own[:, 0])[0]
    return -len(own) / 2 * np.log((gap**2).sum()), gap


@pytest.mark.parametrize("seed", [1, 15, 24])
def test_slopes_pay_after_others_have_been_dropped(seed):
    """Those of 12 columns of noise leave so much of the noise of 40 rows that it matters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 12))
    rows = rows_of(X, X[:, 0] + rng.normal(size=40))
    leaf = almost_flat(12)
    statistics = leaf.statistics(rows, torch.ones(40, dtype=torch.float64))
    kept = np.flatnonzero(leaf.sparse_values(statistics.sum(0, keepdim=True))["slope"][0]).tolist()
    whole = log_likelihood(rows.numpy(), kept)[0]
    for j in kept:
        others = log_likelihood(rows.numpy(), [i for i in kept if i != j])[0]
        assert whole - others > np.log(40) / 2


def test_a_leaf_that_is_read_has_the_slopes_that_pay(planted):
    """The least slope that remains costs more than half the log of the rows, those dropped less."""
    rows, side, slope = planted
    leaf = almost_flat(6)
    sums = sums_of(leaf, rows, side)
    found = leaf.sparse_values(sums)

    for one, own in enumerate((rows[side].numpy(), rows[~side].numpy())):
        kept = np.flatnonzero(found["slope"][one]).tolist()
        assert set(np.flatnonzero(slope)) <= set(kept)
        best, price = log_likelihood(own, kept)[0], np.log(len(own)) / 2
        for j in kept:
            assert best - log_likelihood(own, [i for i in kept if i != j])[0] > price
        for j in set(range(6)) - set(kept):
            assert log_likelihood(own, [*kept, j])[0] - best < price
        predicted = found["value"][one] + own[:, 1:] @ found["slope"][one]
        np.testing.assert_allclose(own[:, 0] - predicted, log_likelihood(own, kept)[1], atol=1e-6)


def test_slopes_beyond_the_most_are_those_that_cost_least(planted):
    rows, side, _ = planted
    leaf = LinearGaussian(slope_strength=(1e-6,) * 6, strength=1e-6, shape=1e-6, rate=1e-6)
    sums = sums_of(leaf, rows, side)
    own = leaf.sparse_values(sums)["slope"]
    few = leaf.sparse_values(sums, np.count_nonzero(own) - 1)["slope"]
    assert 0 < np.count_nonzero(few) < np.count_nonzero(own)
    assert (own[few != 0] != 0).all()
    alone = leaf.sparse_values(sums, 0)
    assert not alone["slope"].any()
    means = [float(rows[one, 0].mean()) for one in (side, ~side)]
    np.testing.assert_allclose(alone["value"], means, rtol=1e-4)


@pytest.mark.parametrize("weight", [1.0, 1 / 200])
def test_of_many_equal_slopes_as_many_remain_as_may(weight):
    """Without one, all others cost less; and weights of sum 1 have no price of slopes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 30))
    y = X.sum(axis=1) + rng.normal(size=200)
    leaf = LinearGaussian(slope_strength=(1e-2,) * 30)
    rows = rows_of(X, y)
    sums = leaf.statistics(rows, torch.full((200,), weight, dtype=torch.float64)).sum(0)
    assert np.count_nonzero(leaf.sparse_values(sums[None], 24)["slope"]) == 24


def test_strengths_stay_within_limits(planted):
    rows, side, _ = planted
    leaf = LinearGaussian()
    found = np.array(leaf.calibrate(sums_of(leaf, rows, side)).slope_strength)
    assert (found >= SLOPE_STRENGTHS[0]).all()
    assert (found <= SLOPE_STRENGTHS[1]).all()


def test_leaves_may_lose_all_slopes(planted):
    """They are then those of a constant mean."""
    rows, side, _ = planted
    leaf = LinearGaussian(slope_strength=(NO_SLOPE,) * 6)
    sums = sums_of(leaf, rows, side)
    constant = Gaussian(0.0, leaf.strength, leaf.shape, leaf.rate)
    own, other = leaf.posterior(sums), constant.posterior(sums[:, :3])
    found, expected = own.expected_log_density(rows), other.expected_log_density(rows[:, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert float(own.kl()) == pytest.approx(float(other.kl()), rel=1e-10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sites = own.sample()
    assert sites["leaf_slope"].shape == (2, 6)
    slopes = stats.norm.logpdf(sites["leaf_slope"], 0, sites["leaf_scale"][:, None] / NO_SLOPE**0.5)
    assert float(own.log_prob(sites)) == pytest.approx(float(other.log_prob(sites)) + slopes.sum())
    assert float(leaf.log_prob(sites)) == pytest.approx(
        float(constant.log_prob({n: sites[n] for n in ("leaf_scale", "leaf_mean")})) + slopes.sum()
    )
    assert leaf.calibrate(sums).slope_strength == leaf.slope_strength
    assert (leaf.sparse_values(sums)["slope"] == 0).all()


def test_slopes_go_from_a_precision_that_rounding_left_indefinite():
    """A fit of weights of 1e6 did not end: a negative rate gave a leaf without slopes no cost."""
    precision = torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    precision[0, 1, 2] = precision[0, 2, 1] = 2.0
    loc = torch.ones(2, 1, 3, dtype=torch.float64)
    noise = np.ones(2), np.full(2, 0.2)
    found = slopes.paying(loc, precision, np.ones(2), 0.0, noise)
    assert (found[..., 1:] == 0).all()
    assert np.isfinite(found).all()
