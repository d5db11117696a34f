"""Checks of stored posteriors agree with those of arrays."""

import json

import numpy as np
import pytest
import xarray as xr

from bayestree._utils import arviz_compat
from bayestree.diagnostics import check_convergence, convergence_of, label_free, label_free_of
from bayestree.topology import Topology

TREE = Topology.complete(2)
CENTER, SCALE = np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 0.5])


@pytest.fixture
def stored():
    rng = np.random.default_rng(0)
    draws = ("chain", "draw")
    sites = {
        "log_weight": ((*draws, "node", "expert"), rng.normal(size=(2, 50, 3, 4))),
        "intercept": ((*draws, "node", "expert"), rng.normal(size=(2, 50, 3, 4))),
        "hyperplane": ((*draws, "node", "expert", "feature"), rng.normal(size=(2, 50, 3, 4, 3))),
        "leaf_probs": ((*draws, "leaf", "class"), rng.dirichlet(np.ones(2), size=(2, 50, 4))),
    }
    constant = {
        "children": (("node", "side"), TREE.children),
        "center": ("feature", CENTER),
        "scale": ("feature", SCALE),
        "X": (("row", "feature"), rng.normal(size=(15, 3)) * SCALE + CENTER),
    }
    stats = {
        "lp": (draws, rng.normal(size=(2, 50))),
        "diverging": (draws, np.zeros((2, 50), dtype=bool)),
    }
    return {
        "posterior": xr.Dataset(sites, coords={"class": ["no", "yes"]}),
        "constant_data": xr.Dataset(constant),
        "sample_stats": xr.Dataset(stats),
    }


def held(stored, **attrs):
    return arviz_compat.container(stored, {"steepness": 3.0} | attrs)


def test_the_same_as_from_arrays(stored):
    posterior, stats = stored["posterior"], stored["sample_stats"]
    found = label_free_of(held(stored))
    X = (stored["constant_data"]["X"].to_numpy() - CENTER) / SCALE
    arrays = {name: values.to_numpy() for name, values in posterior.items()}
    expected = label_free(arrays, TREE, X, steepness=3.0, lp=stats["lp"], class_names=["no", "yes"])
    xr.testing.assert_equal(found, expected)
    np.testing.assert_array_equal(
        convergence_of(held(stored)).to_frame(), check_convergence(expected, stats).to_frame()
    )


def test_rows_may_be_given_or_made_up(stored):
    X = stored["constant_data"]["X"].to_numpy()
    given = label_free_of(held(stored), X[:3])
    assert given.sizes["row"] == 3
    stored["constant_data"] = stored["constant_data"].drop_vars("X")
    xr.testing.assert_equal(label_free_of(held(stored), X[:3]), given)
    assert label_free_of(held(stored), n_rows=6).sizes["row"] == 6
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\), got \(3, 2\)"):
        label_free_of(held(stored), X[:3, :2])


def test_turned_nodes_are_left_out(stored):
    found = label_free_of(held(stored, settings=json.dumps({"mirror": True})))
    assert set(found) == {"lp", "prediction"}


def test_a_missing_group_is_named(stored):
    del stored["sample_stats"]
    with pytest.raises(ValueError, match="no group 'sample_stats'"):
        convergence_of(held(stored))
    assert "lp" not in label_free_of(held(stored))


def test_a_point_of_which_nothing_was_recorded(stored):
    del stored["sample_stats"]
    stored["posterior"] = stored["posterior"].isel(chain=[0], draw=[0])
    assert "point estimate" in convergence_of(held(stored)).not_judged[0]
