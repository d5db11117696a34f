"""A posterior as ArviZ's groups: the content of each, and omissions."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from bayestree._utils import arviz_compat
from bayestree.inference import Data, Posterior, Units, pointwise
from bayestree.inference.data import PART
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    LinearGaussian,
    Oblique,
    Priors,
)
from tests.inference.test_posterior import posterior_of
from tests.inference.variational.test_svi import fit, problem

LEAVES = {"classes": Categorical(2), "reals": Gaussian(), "linear": LinearGaussian()}
ALL = {
    "posterior",
    "sample_stats",
    "log_likelihood",
    "log_prior",
    "posterior_predictive",
    "prior",
    "prior_predictive",
    "observed_data",
    "constant_data",
}
NEED_ROWS = {"log_likelihood", "posterior_predictive", "prior_predictive", "observed_data"}
N, S = 80, 10


@pytest.fixture(scope="module", params=LEAVES)
def fitted(request):
    init, data = problem(LEAVES[request.param], n=N)
    data = data._replace(weights=torch.linspace(0.5, 2.0, N, dtype=torch.float64))
    return fit(init, data, epochs=5, n_draws=S), data


def groups(container):
    names = container.children if isinstance(container, xr.DataTree) else container.groups()
    return set(names)


def test_with_rows_every_group_is_there_and_without_those_that_need_none(fitted):
    posterior, data = fitted
    assert groups(posterior.to_arviz(data, n_prior=2)) == ALL
    assert groups(posterior.to_arviz(n_prior=2)) == ALL - NEED_ROWS


def test_sites_have_named_dimensions_and_coordinates(fitted):
    posterior, data = fitted
    made = posterior.to_arviz(data, feature_names=("width", "height"), n_prior=7)
    topology = posterior.model.topology
    expected = {
        "node": topology.node_labels,
        "leaf": topology.leaf_labels,
        "feature": ("width", "height"),
        "class": ("0", "1"),
        "expert": tuple(range(4)),
    }
    for name, draws in (("posterior", S), ("prior", 7)):
        found = arviz_compat.group(made, name)
        assert set(found) == {*posterior.draws, "weight"}
        for site, variable in found.items():
            assert variable.dims == ("chain", "draw", *posterior.model.dimensions[site])
        assert found.sizes["draw"] == draws
        for dim in set(found.dims) - {"chain", "draw"}:
            assert tuple(found[dim].values.tolist()) == expected[dim]
    found = arviz_compat.group(made, "posterior")
    for site, values in posterior.draws.items():
        np.testing.assert_array_equal(found[site], values)
    np.testing.assert_allclose(found.weight, np.exp(posterior.draws["log_weight"]))


def test_log_likelihood_of_the_rows_sums_to_that_of_the_model(fitted):
    posterior, data = fitted
    found = arviz_compat.group(
        posterior.to_arviz(data, groups=["log_likelihood"]), "log_likelihood"
    )
    assert found.obs.dims == ("chain", "draw", "row")
    total = found.obs.sum("row").values[0]
    expected = [float(posterior.model.log_likelihood(s, *data)) for s in posterior.each()]
    np.testing.assert_allclose(total, expected, rtol=1e-12)


def test_more_rows_than_are_scored_at_a_time(fitted):
    posterior, data = fitted
    many = Data(*(torch.cat([column] * 30) for column in data))
    assert len(many.X) > PART
    one, all_of_them = (
        pointwise.log_likelihood(posterior.model, posterior.each(), rows) for rows in (data, many)
    )
    np.testing.assert_allclose(all_of_them, np.tile(one, 30), rtol=1e-10, atol=1e-12)
    drawn = pointwise.sample_y(posterior.model, posterior.each(), many.X.numpy(), 0)
    assert drawn.shape == (S, 30 * N)


def test_log_prior_is_that_of_each_family(fitted):
    posterior, _ = fitted
    found = arviz_compat.group(posterior.to_arviz(), "log_prior")
    assert set(found) == {"hyperplane", "weight", "leaf"}
    total = sum(found[name] for name in found).values[0]
    expected = [float(posterior.model.log_prior(sites)) for sites in posterior.each()]
    np.testing.assert_allclose(total, expected, rtol=1e-12)


def test_stats_are_the_recorded_ones_with_the_log_joint(fitted):
    posterior, data = fitted
    found = arviz_compat.group(posterior.to_arviz(), "sample_stats")
    assert found.elbo.dims == ("step",)
    for name in ("lp", "log_p", "log_q"):
        assert found[name].dims == ("chain", "draw")
    made = replace(posterior, stats={}).to_arviz(data, groups="sample_stats")
    np.testing.assert_allclose(arviz_compat.group(made, "sample_stats").lp, found.lp, rtol=1e-12)


def test_the_log_likelihood_of_a_draw_is_not_taken_for_terms_of_rows(fitted):
    posterior, _ = fitted
    stats = {**posterior.stats, "log_likelihood": np.zeros((1, S))}
    made = replace(posterior, stats=stats).to_arviz()  # of which az.loo would take the score
    assert "log_likelihood" not in arviz_compat.group(made, "sample_stats")


def test_the_number_of_steps_is_one_number(fitted):
    posterior, _ = fitted
    by_steps = replace(posterior, stats={**posterior.stats, "n_steps": np.array(7)})
    assert by_steps.to_arviz(n_prior=2)["sample_stats"]["n_steps"].item() == 7


def test_a_sampler_s_own_log_joint_is_kept(fitted):
    posterior, data = fitted
    lp = np.arange(S, dtype=np.float64)[None]
    n_nodes = posterior.model.topology.n_nodes
    stats = {"lp": lp, "diverging": lp > 3, "n_facets": np.ones(n_nodes)}
    found = arviz_compat.group(
        replace(posterior, stats=stats).to_arviz(data, n_prior=1), "sample_stats"
    )
    np.testing.assert_array_equal(found.lp, lp)
    assert found.diverging.dtype == bool
    assert found.n_facets.dims == ("node",)


def test_y_and_x_are_in_their_units(fitted):
    posterior, data = fitted
    reals = data.y.is_floating_point()
    units = Units(np.array([10.0, -5.0]), np.array([2.0, 3.0]), *((7.0, 4.0) if reals else ()))
    made = posterior.to_arviz(data, units=units, n_prior=3, row_labels=np.arange(N) + 100)
    plain = posterior.to_arviz(data, n_prior=3)
    constant = arviz_compat.group(made, "constant_data")
    np.testing.assert_allclose(constant.X, data.X.numpy() * units.scale + units.center)
    np.testing.assert_array_equal(constant.sample_weight, data.weights)
    np.testing.assert_array_equal(constant.children, posterior.model.topology.children)
    assert constant.row[0] == 100
    for name in ("observed_data", "posterior_predictive", "prior_predictive"):
        np.testing.assert_allclose(
            arviz_compat.group(made, name).obs,
            arviz_compat.group(plain, name).obs * units.y_scale + units.y_center,
            rtol=1e-10,
        )
    one, other = (arviz_compat.group(found, "log_likelihood").obs.values for found in (plain, made))
    shift = data.weights.numpy() * np.log(units.y_scale)
    np.testing.assert_allclose(one - other, np.broadcast_to(shift, one.shape), atol=1e-12)


def test_predictive_draws_have_the_moments_of_the_posterior():
    init, data = problem(n=N)
    posterior = fit(init, data, epochs=5, n_draws=400)
    drawn = pointwise.sample_y(posterior.model, posterior.each(), data.X.numpy(), 0)
    mean = posterior.predictive(data.X.numpy())[0][:, 1]
    error = np.sqrt(mean * (1 - mean) / 400)
    assert (np.abs(drawn.mean(0) - mean) < 5 * error + 1e-9).all()


def test_predictive_draws_of_reals_have_the_quantiles_of_the_posterior():
    posterior, X = posterior_of(Gaussian(), draws=4)
    each = [sites for sites in posterior.each() for _ in range(500)]
    drawn = pointwise.sample_y(posterior.model, each, X, 0)
    for level, bound in zip((0.2, 0.8), posterior.quantiles(X, np.array([0.2, 0.8])), strict=True):
        share = (drawn < bound).mean(0)
        assert (np.abs(share - level) < 4 * 0.4 / np.sqrt(len(each))).all()


def test_probabilities_that_float32_rounded_are_drawn_from():
    posterior, X = posterior_of(Categorical(200), draws=20, dtype=torch.float32)
    total = posterior.draws["leaf_probs"].astype(np.float64).sum(-1)
    assert np.abs(total - 1).max() > 1e-8
    assert pointwise.sample_y(posterior.model, posterior.each(), X, 0).max() < 200


def test_a_warm_up_has_groups_of_its_own(fitted):
    posterior, _ = fitted
    warm = {name: values[:, :4] for name, values in posterior.draws.items()}
    stats = {"step_size": np.full((1, 4), 0.1)}
    made = replace(posterior, warmup_draws=warm, warmup_stats=stats).to_arviz(n_prior=1)
    assert groups(made) == (ALL - NEED_ROWS) | {"warmup_posterior", "warmup_sample_stats"}
    found = arviz_compat.group(made, "warmup_posterior")
    assert found.sizes["draw"] == 4
    assert found.weight.dims == ("chain", "draw", "node", "expert")
    assert arviz_compat.group(made, "warmup_sample_stats").step_size.dims == ("chain", "draw")


def test_attributes_say_what_made_the_draws(fitted):
    posterior, _ = fitted
    made = posterior.to_arviz(groups=["posterior"], attributes={"random_state": "3"})
    attrs = dict(made.attrs)
    assert attrs == dict(arviz_compat.group(made, "posterior").attrs)
    assert {
        "inference": "svi",
        "split": "Polytope",
        "steepness": 3.0,
        "random_state": "3",
    }.items() <= (attrs.items())
    card = json.loads(attrs["model"])
    assert card["split"] == {"name": "Polytope", "n_experts": 4}
    assert card["priors"]["hyperplane"]["shrinkage_rate"] == 1.0
    assert card["leaf"]["name"] == type(posterior.model.leaf).__name__
    assert json.loads(attrs["settings"])["kl_weight"] == 1.0
    assert {"python", "bayestree", "torch", "arviz"} <= set(json.loads(attrs["versions"]))
    assert all(isinstance(value, str | float) for value in attrs.values())


def test_netcdf_loses_nothing(fitted, tmp_path):
    posterior, data = fitted
    stats = {**posterior.stats, "diverging": np.zeros((1, S), dtype=bool)}
    made = replace(posterior, stats=stats).to_arviz(data, n_prior=3)
    path = tmp_path / "posterior.nc"
    made.to_netcdf(path)
    read = arviz_compat.arviz().from_netcdf(path)
    assert groups(read) == groups(made)
    assert dict(read.attrs) == dict(made.attrs)
    for name in groups(made):
        xr.testing.assert_identical(
            arviz_compat.group(read, name).load(), arviz_compat.group(made, name)
        )


def test_under_arviz_1_it_is_a_tree_of_the_same_groups(fitted, monkeypatch):
    posterior, data = fitted
    old = posterior.to_arviz(data, n_prior=3)
    monkeypatch.setattr(arviz_compat, "major_version", lambda: 1)
    new = posterior.to_arviz(data, n_prior=3)
    assert isinstance(new, xr.DataTree)
    assert groups(new) == groups(old)
    assert dict(new.attrs) == dict(old.attrs)
    for name in groups(old):
        xr.testing.assert_identical(arviz_compat.group(new, name), arviz_compat.group(old, name))


@pytest.mark.parametrize("form", ["collapsed", "explicit"])
def test_hyper_priors_and_scales_of_an_autoguide_are_sites(form):
    init, data = problem(n=60)
    hyper = GammaProcess(concentration_prior=(2.0, 1.0))
    model = init.model.with_(priors=Priors(hyper, InverseGammaScale(form=form)))
    posterior = fit(replace(init, model=model), data, guide="AutoNormal", epochs=1, n_draws=3)
    found = arviz_compat.group(posterior.to_arviz(data, n_prior=4), "posterior")
    assert found["concentration"].dims == ("chain", "draw")
    assert ("hyperplane_scale" in found) == (form == "explicit")
    assert set(arviz_compat.group(posterior.to_arviz(n_prior=4), "prior")) == set(found)


def test_scales_that_were_not_drawn_are_not_in_the_prior_either():
    init, data = problem(n=60)
    model = init.model.with_(priors=Priors(hyperplane=InverseGammaScale(form="explicit")))
    made = fit(replace(init, model=model), data, epochs=1, n_draws=3).to_arviz(n_prior=4)
    for name in ("posterior", "prior"):
        assert "hyperplane_scale" not in arviz_compat.group(made, name)
    assert "log_prior" in groups(made)


def test_an_oblique_split_has_no_weights():
    posterior, _ = posterior_of(Categorical(3), split=Oblique())
    made = posterior.to_arviz(n_prior=2)
    assert "weight" not in arviz_compat.group(made, "posterior")
    assert "weight" not in arviz_compat.group(made, "log_prior")


def test_chains_stay_apart():
    posterior, _ = posterior_of(Categorical(3), chains=2, draws=3)
    found = arviz_compat.group(posterior.to_arviz(n_prior=2), "log_prior")
    for chain, draw in np.ndindex(2, 3):
        expected = posterior.model.log_priors(posterior.sites(chain, draw))["hyperplane"]
        assert float(found.hyperplane[chain, draw]) == pytest.approx(float(expected), rel=1e-12)


def plug_in():
    init, data = problem(n=60)
    model = init.model.with_(likelihood="mutual-information")
    sites = {k: v for k, v in init.point_sites().items() if not k.startswith("leaf")}
    sites["shrinkage"] = torch.ones_like(sites["intercept"])
    return Posterior.from_point(model, sites, "map"), data


def flat():
    init, data = problem(n=60)
    model = init.model.with_(priors=Priors(hyperplane=Flat()))
    return replace(init, model=model), data


def bare():
    return problem(n=60)


@pytest.mark.parametrize(
    ("make", "missing", "reason"),
    [
        (
            plug_in,
            {"log_likelihood", "posterior_predictive", "prior_predictive"},
            "without a distribution of y",
        ),
        (flat, {"prior", "prior_predictive"}, r"improper priors cannot be sampled \(Flat\)"),
        (bare, {"log_prior"}, "the draws lack shrinkage"),
    ],
)
def test_what_cannot_be_made_is_left_out_or_refused_by_name(make, missing, reason):
    posterior, data = make()
    found = groups(posterior.to_arviz(data, n_prior=2))
    assert not missing & found
    assert {"posterior", "observed_data", "constant_data"} <= found
    for name in missing:
        with pytest.raises(ValueError, match=f"group '{name}' cannot be created: .*{reason}"):
            posterior.to_arviz(data, groups=[name])


def test_a_plug_in_likelihood_still_has_a_log_joint():
    posterior, data = plug_in()
    found = arviz_compat.group(posterior.to_arviz(data, n_prior=2), "sample_stats")
    (sites,) = posterior.each()
    assert float(found.lp[0, 0]) == pytest.approx(float(posterior.model.log_joint(sites, *data)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": ["posterior", "priors"]}, "groups must be among .*, got 'priors'"),
        ({"groups": ["log_likelihood"]}, "'log_likelihood' cannot be created: it needs the rows"),
        ({"groups": "warmup_posterior"}, "nothing was recorded"),
        ({"feature_names": ["a"]}, "must have 2 entries, as many as the draws, got 1"),
        ({"class_names": ["a"]}, "class_names must have 3 entries"),
        ({"n_prior": 0}, "n_prior must be 1 or more, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    posterior, _ = posterior_of(Categorical(3))
    with pytest.raises(ValueError, match=message):
        posterior.to_arviz(**arguments)


def test_rows_of_other_features_are_refused():
    posterior, _ = posterior_of(Categorical(3))
    _, data = problem(n=60)
    with pytest.raises(ValueError, match="data must have 2 features, as many as the draws, got 3"):
        posterior.to_arviz(data._replace(X=torch.cat([data.X, data.X[:, :1]], 1)))


@pytest.mark.parametrize("value", [None, True, [1]])
def test_attributes_that_netcdf_cannot_hold_are_refused(value):
    posterior, _ = posterior_of(Categorical(3))
    with pytest.raises(TypeError, match=r"strings or numbers, .*; seed is"):
        posterior.to_arviz(attributes={"seed": value})
