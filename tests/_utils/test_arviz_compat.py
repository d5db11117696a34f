"""The adapter between ArviZ 0.x and 1.x: groups and statistics of chains."""

from importlib.metadata import version

import numpy as np
import pytest
import xarray as xr

from bayestree._utils import arviz_compat
from bayestree._utils.arviz_compat import bfmi, ess, r_hat

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
