from dataclasses import replace

import numpy as np
import pytest
import torch

from bayestree import inference
from bayestree.diagnostics import check_convergence
from bayestree.inference import Data, GrowthLimits, Svi, convergence, grow, nuts, svi
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    LiteralGammaProcess,
    Oblique,
    Priors,
)
from bayestree.testing import same_posterior
from tests.inference.problems import ring, soft_tree, step
from tests.sampling import quickly

FITS = {"classes": Categorical(2), "reals": Gaussian()}


def problem(leaf=None, n=200, **others):
    leaf = leaf or Categorical(2)
    data = ring(n, noise=0.1) if isinstance(leaf, Categorical) else step(n)
    model = soft_tree(leaf, steepness=3.0, **others)
    limits = GrowthLimits(2, min_gain=1.0)
    return grow(model, data, limits=limits, steps=40, random_state=0), data


def fit(init, data, **options):
    settings = {"epochs": 30, "batch_size": 100, "n_draws": 10, "random_state": 0} | options
    return svi(init.model, data, init=init, **settings)


@pytest.mark.filterwarnings("ignore:The posterior under Flat.. is improper")
@pytest.mark.parametrize(
    ("hyperplane", "split", "leaf"),
    [(InverseGammaScale(), "polytope", "classes"), (Flat(), "oblique", "reals")],
    ids=str,
)
def test_the_bound_rises_from_the_start(leaf, split, hyperplane):
    init, data = problem(FITS[leaf])
    if split == "oblique":
        model = soft_tree(FITS[leaf], steepness=3.0).with_(split=Oblique())
        init = grow(model, data, limits=GrowthLimits(2, min_gain=0.5), steps=40, random_state=0)
    assert init.model.topology.n_nodes > 0
    model = init.model.with_(priors=Priors(GammaProcess(), hyperplane))
    shared = {"init": init, "n_draws": 2, "batch_size": 100, "random_state": 0}
    start = svi(model, data, epochs=1, learning_rate=1e-12, **shared)
    found = svi(model, data, epochs=40, **shared)
    assert found.stats["final_elbo"] > start.stats["final_elbo"]
    assert len(found.stats["elbo"]) == 40


def test_draws_have_the_names_and_shapes_of_the_sites():
    init, data = problem()
    found = fit(init, data, epochs=2)
    assert (found.n_chains, found.n_draws) == (1, 10)
    shapes = found.model.shapes(2)
    names = {"hyperplane", "intercept", "log_weight", "shrinkage", "leaf_probs"}
    assert set(found.draws) == set(found.point) == names
    for name in names:
        assert found.draws[name].shape == (1, 10, *shapes[name])
        assert found.point[name].shape == shapes[name]
        assert len(np.unique(found.draws[name][0, :, 0])) >= 10  # draws differ


def test_settings_are_recorded():
    init, data = problem(n=80)
    found = fit(init, data, epochs=2, kl_weight=0.25, steepness=1.5)
    assert found.inference == "svi"
    expected = {"kl_weight": 0.25, "steepness": 1.5, "guide": "polytope"}
    assert expected.items() <= dict(found.settings).items()


@pytest.mark.portable
def test_a_cold_posterior_fits_the_rows_better_and_is_bounded_worse():
    init, data = problem()
    exact, cold = (
        fit(init, data, epochs=60, kl_weight=weight, n_draws=40) for weight in (1.0, 0.05)
    )

    def likelihood(posterior):
        return np.mean([float(posterior.model.log_likelihood(s, *data)) for s in posterior.each()])

    assert likelihood(cold) > likelihood(exact)
    assert cold.stats["final_elbo"] < exact.stats["final_elbo"]


@pytest.mark.parametrize(
    "guide", ["polytope", "AutoNormal", "AutoDelta", "AutoLaplaceApproximation"]
)
def test_the_check_of_the_bound_changes_no_result(guide, monkeypatch):
    init, data = problem(n=60)
    options = {"guide": guide, "epochs": 3, "n_draws": 4}
    checked, again = (fit(init, data, **options) for _ in range(2))
    assert {"elbo_gain", "elbo_gain_error"} < set(checked.stats)
    assert same_posterior(checked, again)
    for name in ("polytope_gain", "elbo_gain"):
        monkeypatch.setattr(convergence, name, lambda *_, **__: {})
    plain = fit(init, data, **options)
    kept = {n: v for n, v in checked.stats.items() if not n.startswith("elbo_gain")}
    assert same_posterior(replace(checked, stats=kept), plain)


@pytest.mark.portable
@pytest.mark.parametrize("leaf", quickly(FITS, quick=(0,)))
def test_the_check_of_the_bound_tells_a_finished_fit_from_others(leaf):
    """Finished: twice the default number of steps. The others are ten nats or more below it."""
    init, data = problem(FITS[leaf])
    finished = fit(init, data, epochs=2000, batch_size=200)
    assert check_convergence(None, finished.stats)["elbo"].verdict == "ok"
    for spoiled in ({"epochs": 20}, {"epochs": 500, "learning_rate": 1e-4}):
        found = fit(init, data, batch_size=200, **spoiled)
        assert found.stats["final_elbo"] < finished.stats["final_elbo"] - 10
        assert check_convergence(None, found.stats)["elbo"].verdict == "failed"


def test_large_data_are_compared_on_samples_of_rows(monkeypatch):
    init, data = problem(n=400)
    whole = fit(init, data, epochs=10, batch_size=400).stats
    monkeypatch.setattr(convergence, "ELBO_ROWS", 3200)  # 16 draws of 200 rows
    parts = fit(init, data, epochs=10, batch_size=400).stats
    error = np.hypot(whole["elbo_gain_error"], parts["elbo_gain_error"])
    assert parts["elbo_gain_error"] > whole["elbo_gain_error"]
    assert abs(parts["elbo_gain"] - whole["elbo_gain"]) < 4 * error


@pytest.mark.parametrize(
    ("guide", "leaf"), [("AutoNormal", "classes"), ("AutoDiagonalNormal", "reals")]
)
def test_pyro_autoguides_are_named(guide, leaf):
    init, data = problem(FITS[leaf], n=60)
    found = fit(init, data, guide=guide, epochs=3, batch_size=40, n_draws=4)
    assert {"log_weight", "hyperplane", "intercept", "shrinkage"} < set(found.draws)
    for value in found.draws.values():
        assert value.shape[:2] == (1, 4)
        assert np.isfinite(value).all()
    assert np.isfinite(found.stats["final_elbo"])
    assert len(found.stats["elbo"]) == 3
    mean, sd = found.predictive(data.X.numpy())
    assert np.isfinite(mean).all()
    assert (sd > 0).any()


def test_the_final_bound_of_an_autoguide_is_not_tempered():
    """That of a point is its log joint density, of which the guide's part is 0."""
    init, data = problem(n=60)
    found = fit(init, data, guide="AutoDelta", epochs=2, kl_weight=0.25, n_draws=1)
    np.testing.assert_allclose(found.stats["final_elbo"], found.stats["log_p"][0, 0], rtol=1e-4)


def test_rows_count_more_often_in_a_cold_posterior_of_an_autoguide():
    init, data = problem(n=60)
    options = {"guide": "AutoDelta", "epochs": 2, "n_draws": 1}
    cold = fit(init, data, kl_weight=0.25, **options)
    often = fit(init, data._replace(weights=4 * data.weights), **options)
    for name, value in cold.point.items():
        np.testing.assert_array_equal(value, often.point[name])


def test_hyper_priors_run_under_an_autoguide():
    priors = Priors(GammaProcess(concentration_prior=(2.0, 1.0), rate_prior=(2.0, 1.0)))
    init, data = problem(n=60)
    init_model = init.model.with_(priors=priors)
    found = svi(
        init_model, data, init=init, guide="AutoNormal", epochs=2, n_draws=4, random_state=0
    )
    assert found.draws["concentration"].shape == (1, 4)
    assert (found.draws["rate"] > 0).all()


@pytest.mark.parametrize("name", ["AutoNothing", "Trace_ELBO", "torch", "AutoGuideList_"])
def test_an_unknown_guide_is_named_in_the_error(name):
    init, data = problem(n=60)
    with pytest.raises(ValueError, match=f"got '{name}'"):
        fit(init, data, guide=name)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_kl_weight_that_is_not_positive_is_rejected(weight):
    init, data = problem(n=60)
    with pytest.raises(ValueError, match=r"kl_weight must be a (finite )?number above 0"):
        fit(init, data, kl_weight=weight)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "n_draws"])
def test_counts_below_one_are_rejected(name):
    init, data = problem(n=60)
    with pytest.raises(ValueError, match=rf"{name} must be an integer of 1 or more.* got 0"):
        fit(init, data, **{name: 0})


def test_another_topology_is_rejected():
    init, data = problem(n=60)
    with pytest.raises(ValueError, match="another topology"):
        svi(soft_tree(), data, init=init)


def test_rows_of_weight_zero_do_no_harm():
    """Even where a minibatch holds nothing else."""
    init, data = problem(n=60)
    data = data._replace(weights=(torch.arange(60) < 12).double())
    found = fit(init, data, epochs=3, batch_size=4)
    assert all(np.isfinite(value).all() for value in found.draws.values())
    assert np.isfinite(found.stats["elbo"]).all()
    assert float(found.stats["n_rows"]) == 12


@pytest.mark.portable
def test_float32_runs_as_float64_does():
    init, data = problem(n=100)
    double = fit(init, data, epochs=20)
    single = fit(init, Data.of(*data, dtype=torch.float32), epochs=20)
    assert all(value.dtype == np.float32 for value in single.draws.values())
    rows = data.X.numpy()
    # Random numbers in single precision are other numbers: the fits are as those of two seeds.
    (one, _), (other, sd) = single.predictive(rows), double.predictive(rows)
    assert np.abs(one - other).mean() < 2 * sd.mean()


def test_a_hyper_prior_is_held_at_its_value():
    init, data = problem(n=80)
    prior = GammaProcess(concentration_prior=(2.0, 1.0))
    start = init.model.with_(priors=Priors(prior, init.model.priors.hyperplane))
    found = svi(start, data, init=init, epochs=2, n_draws=2, random_state=0)
    assert found.model.priors == init.model.priors
    assert set(found.draws) == {*init.draws, "shrinkage"}


def test_hyper_priors_work_from_growth_to_nuts():
    """MAP and SVI hold hyperparameters at their values, and NUTS draws them."""
    init, data = problem(n=60)
    priors = Priors(GammaProcess(concentration_prior=(2.0, 1.0), rate_prior=(2.0, 1.0)))
    model = init.model.with_(priors=priors)
    best = inference.map(model, data, init=init, epochs=2, random_state=0)
    assert best.model.priors == priors
    found = svi(best.model, data, init=best, epochs=2, n_draws=4, random_state=0)
    drawn = nuts(model, data, init=found, n_chains=1, n_warmup=5, n_draws=3, random_state=0)
    assert (drawn.draws["concentration"] > 0).all()
    assert drawn.draws["rate"].shape == (1, 3)


@pytest.mark.parametrize("guide", ["polytope", "AutoNormal"])
def test_a_penalty_on_weights_has_no_posterior(guide):
    model = soft_tree(priors=Priors(weight=LiteralGammaProcess()))
    with pytest.raises(ValueError, match=r"proper prior on weights, got Literal.*inference='map'"):
        Svi(guide=guide).check(model)
    Svi(guide=guide).check(model.with_(split=Oblique()))  # whose weights are 1
