"""Pareto smoothed importance sampling."""

import numpy as np
import pytest

from bayestree._utils import arviz_compat
from bayestree._utils.monte_carlo import good_k, pareto_k, psis


@pytest.mark.skipif(arviz_compat.major_version() > 0, reason="of ArviZ 0.x")
@pytest.mark.parametrize("n_draws", [30, 50, 400, 3000])
@pytest.mark.parametrize("reff", [1.0, 0.3])
def test_equals_arviz(n_draws, reff):
    rng = np.random.default_rng(n_draws)
    ratios = rng.normal(size=(4, n_draws, 3)) * [0.1, 1.0, 30.0]
    ratios[0] = np.rint(ratios[0])  # with ties
    ratios = np.moveaxis(ratios, 1, 2)
    log_weights, k = psis(ratios, reff)
    with np.errstate(all="ignore"):
        theirs, their_k = arviz_compat.arviz().psislw(ratios, reff)
    finite = np.isfinite(k)
    assert finite.sum() > 6
    np.testing.assert_allclose(k[finite], their_k[finite], rtol=1e-9)
    ours, theirs = (np.sort(np.exp(one), axis=-1) for one in (log_weights, theirs))
    np.testing.assert_allclose(ours[finite], theirs[finite], atol=1e-12)


def test_rows_do_not_matter_to_each_other(monkeypatch):
    ratios = np.random.default_rng(0).normal(size=(5, 100)) * np.arange(5)[:, None]
    log_weights, k = psis(ratios)
    monkeypatch.setattr("bayestree._utils.monte_carlo.BLOCK", 1)
    for one, weights, shape in zip(ratios, log_weights, k, strict=True):
        again, k_again = psis(one)
        np.testing.assert_allclose(again, weights, atol=1e-12)
        assert k_again == pytest.approx(shape)


def pareto(k, n=100_000, seed=0):
    """log of ratios with P(ratio > t) = t^(-1/k)."""
    return k * np.random.default_rng(seed).exponential(size=n)


class TestSign:
    @pytest.mark.parametrize("k", [0.2, 0.5, 0.9])
    def test_a_tail_of_known_shape(self, k):
        # 3 sqrt(S) values in the tail; the fit adds a prior of 10 values at 1/2
        tail = 3 * np.sqrt(100_000)
        expected = (tail * k + 5) / (tail + 10)
        assert pareto_k(pareto(k)) == pytest.approx(expected, abs=4 * (1 + k) / np.sqrt(tail))

    def test_a_tail_of_small_ratios_does_no_harm(self):
        assert pareto_k(-pareto(0.9)) < 0

    def test_large_ratios_are_large_weights(self):
        ratios = pareto(0.5, 1000)
        log_weights, _ = psis(ratios)
        # smoothing replaces the tail by sorted values: the order stays
        np.testing.assert_array_equal(np.argsort(log_weights), np.argsort(ratios))


class TestWeights:
    def test_a_constant_does_not_matter(self):
        ratios = pareto(0.7, 1000)
        weights, k = psis(ratios)
        shifted, same = psis(ratios - 1234.5)
        np.testing.assert_allclose(shifted, weights, atol=1e-8)
        assert same == pytest.approx(k, abs=1e-8)

    @pytest.mark.parametrize("sd", [1e-6, 1.0, 30.0, 1e3])
    def test_they_sum_to_one(self, sd):
        log_weights, _ = psis(sd * np.random.default_rng(0).normal(size=(2, 200)))
        assert log_weights.shape == (2, 200)
        np.testing.assert_allclose(np.exp(log_weights).sum(axis=1), 1.0)

    def test_light_tails_are_hardly_changed(self):
        ratios = np.random.default_rng(0).uniform(size=4000)
        log_weights, k = psis(ratios)
        assert k < 0
        plain = ratios - np.logaddexp.reduce(ratios)
        np.testing.assert_allclose(log_weights, plain, atol=0.02)

    def test_the_largest_is_not_exceeded(self):
        # truncation: no smoothed weight is above the largest raw one
        ratios = pareto(1.5, 1000)
        log_weights, _ = psis(ratios)
        raw = np.sort(ratios)
        body = raw[0] - np.sort(log_weights)[0]  # the normaliser, from a draw outside the tail
        assert log_weights.max() + body <= raw[-1] + 1e-9

    def test_a_mean_under_the_target(self):
        # draws of N(0, 1) for N(0.5, 1): the ratios are lognormal
        x = np.random.default_rng(0).normal(size=20_000)
        log_weights, k = psis(0.5 * x)
        assert k < good_k(len(x))
        sd = np.sqrt((np.exp(2 * log_weights) * (x - 0.5) ** 2).sum())
        assert np.exp(log_weights) @ x == pytest.approx(0.5, abs=4 * sd)


class TestLimits:
    def test_equal_ratios_are_the_target_itself(self):
        log_weights, k = psis(np.full(100, -3.0))
        assert k == -np.inf
        np.testing.assert_allclose(log_weights, -np.log(100))

    def test_a_handful_of_draws_says_nothing(self):
        assert pareto_k(pareto(0.1, 29)) == np.inf
        assert np.isfinite(pareto_k(pareto(0.1, 30)))
        assert pareto_k([0.0, -1.0, -2.0]) == np.inf
        assert pareto_k([1.0, 1.0]) == -np.inf

    def test_one_draw_has_all_weight(self):
        log_weights, k = psis(np.r_[0.0, np.full(99, -np.inf)])
        assert k == np.inf
        assert np.exp(log_weights).max() == pytest.approx(1.0)

    def test_good_k(self):
        assert good_k(100) == pytest.approx(0.5)
        assert good_k(100_000) == 0.7
        assert good_k(1) == -np.inf

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_bad_ratios_are_counted(self, bad):
        with pytest.raises(ValueError, match="1 of 50 are NaN or inf"):
            psis(np.r_[np.zeros(49), bad])

    def test_other_bad_input(self):
        with pytest.raises(ValueError, match="at least one finite"):
            psis(np.full(50, -np.inf))
        with pytest.raises(ValueError, match="at least one finite"):
            psis([])
        with pytest.raises(ValueError, match="reff must be positive, got 0"):
            psis(np.zeros(50), reff=0)
