"""The adapter between ArviZ 0.x and 1.x: groups, statistics of chains, and PSIS."""

from importlib.metadata import version

import numpy as np
import pytest
import xarray as xr

from bayestree._utils import arviz_compat
from bayestree._utils.arviz_compat import bfmi, ess, good_k, pareto_k, psis, r_hat

MAJOR = arviz_compat.major_version()
GROUPS = {
    "posterior": xr.Dataset({"a": (("chain", "draw"), np.arange(6.0).reshape(2, 3))}),
    "observed_data": xr.Dataset({"obs": ("row", np.arange(4))}),
}
ATTRS = {"inference": "svi", "steepness": 6.0, "n": 3}


@pytest.fixture(params=[0, 1])
def major(request, monkeypatch):
    """Both containers; InferenceData only where it can be had. DataTree is xarray's own."""
    if request.param == 0 and MAJOR > 0:
        pytest.skip("ArviZ 1.x has no InferenceData")
    monkeypatch.setattr(arviz_compat, "major_version", lambda: request.param)
    return request.param


def test_the_version_is_that_of_the_module():
    assert version("arviz") == arviz_compat.arviz().__version__
    assert int(version("arviz")[0]) == MAJOR


def test_groups_come_back_as_they_were(major):
    made = arviz_compat.container(GROUPS, ATTRS)
    assert isinstance(made, xr.DataTree if major else arviz_compat.arviz().InferenceData)
    assert dict(made.attrs) == ATTRS
    for name, expected in GROUPS.items():
        xr.testing.assert_identical(arviz_compat.group(made, name), expected)


def test_netcdf_keeps_groups_and_attributes(major, tmp_path):
    path = tmp_path / "posterior.nc"
    arviz_compat.container(GROUPS, ATTRS).to_netcdf(path)
    with xr.open_datatree(path, engine="h5netcdf") as read:
        assert dict(read.attrs) == ATTRS
        for name, expected in GROUPS.items():
            xr.testing.assert_identical(arviz_compat.group(read, name).load(), expected)


def test_a_missing_group_is_named_with_those_that_are_there(major):
    made = arviz_compat.container(GROUPS, ATTRS)
    with pytest.raises(ValueError, match=r"no group 'prior' among \['posterior', 'observed_data'"):
        arviz_compat.group(made, "prior")


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
    assert r_hat(x)[1, 0] == r_hat(x[:, :, 1, 0])
    assert ess(x)[1, 0] == ess(x[:, :, 1, 0])


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
        assert np.exp(log_weights).sum() == pytest.approx(1.0)

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
