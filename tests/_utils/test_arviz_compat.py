"""The adapter between ArviZ 0.x and 1.x: groups of containers."""

from importlib.metadata import version

import numpy as np
import pytest
import xarray as xr

from bayestree._utils import arviz_compat

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
    arviz_compat.container(GROUPS, ATTRS).to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as read:
        assert dict(read.attrs) == ATTRS
        for name, expected in GROUPS.items():
            xr.testing.assert_identical(arviz_compat.group(read, name).load(), expected)


def test_a_missing_group_is_named_with_those_that_are_there(major):
    made = arviz_compat.container(GROUPS, ATTRS)
    with pytest.raises(ValueError, match=r"no group 'prior' among \['posterior', 'observed_data'"):
        arviz_compat.group(made, "prior")
