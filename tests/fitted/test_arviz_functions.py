"""ArviZ's functions on the result of ``to_arviz``; docs/posterior/arviz.md lists which work."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import bayestree as bt
from bayestree._utils import arviz_compat
from bayestree.inference import Map, Mcmc, Nuts, Smc, Svi
from tests.sampling import quickly
from tests.short_checks import short_stages

pytestmark = [
    pytest.mark.skipif(arviz_compat.major_version() > 0, reason="functions of ArviZ 0.x"),
    # 30 draws are too few for ArviZ to trust its scores, which is not what is tested here.
    pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning"),
    pytest.mark.filterwarnings("ignore:For one or more samples the posterior variance:UserWarning"),
    # So short a chain may stay where it is, and a point estimate does.
    pytest.mark.filterwarnings("ignore:Your data appears to have a single value:UserWarning"),
    # How ArviZ itself calls NumPy, pandas and Matplotlib.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:arviz"),
    pytest.mark.filterwarnings("ignore::FutureWarning:arviz"),
]

OF_DRAWS = [
    *["plot_trace", "plot_posterior", "plot_forest", "plot_rank", "plot_ess", "plot_mcse"],
    *["plot_autocorr", "plot_density", "plot_violin", "plot_pair", "plot_parallel"],
    *["plot_dist_comparison", "summary", "ess", "rhat", "mcse", "hdi"],
]
OF_ROWS = ["plot_bpv", "plot_ppc", "loo", "waic"]
OF_OBS = ["plot_loo_pit", "plot_separation", "loo_pit"]
OTHERS = {
    "plot_ridge": lambda az, d, v: az.plot_forest(d, var_names=v, kind="ridgeplot"),
    "divergences": lambda az, d, v: az.plot_pair(d, var_names=v, divergences=True),
    "evolution": lambda az, d, v: az.plot_ess(d, var_names=v, kind="evolution"),
    "plot_ppc of the prior": lambda az, d, _: az.plot_ppc(d, group="prior"),
    "plot_ts": lambda az, d, _: az.plot_ts(d, y="obs", num_samples=5),
    "plot_lm": lambda az, d, _: az.plot_lm(idata=d, y="obs", num_samples=5),
    "plot_khat": lambda az, d, _: az.plot_khat(az.loo(d, pointwise=True)),
    "plot_elpd": lambda az, d, _: az.plot_elpd({"one": d, "other": d}),
    "plot_compare": lambda az, d, _: az.plot_compare(az.compare({"one": d, "other": d})),
    "psens": lambda az, d, v: [az.psens(d, component=c, var_names=v) for c in PARTS],
    "r2_score": lambda az, d, _: az.r2_score(
        d.observed_data.obs.to_numpy(), az.extract(d, group="posterior_predictive").obs.T.to_numpy()
    ),
}
PARTS = ("prior", "likelihood")
OF_MODES = [
    *["plot_forest", "summary", "ess", "hdi", *OF_ROWS, *OF_OBS],
    *["plot_ppc of the prior", "plot_khat", "plot_elpd", "plot_compare", "psens"],
]
OF_ENERGY = ["plot_energy", "bfmi"]


def called(name, data):
    """The result of the function."""
    az = arviz_compat.arviz()
    variables = ["intercept" if "intercept" in data.posterior else "prediction"]
    if name in OTHERS:
        return OTHERS[name](az, data, variables)
    given = {"var_names": variables} if name in OF_DRAWS else {}
    return getattr(az, name)(data, **given, **({"y": "obs"} if name in OF_OBS else {}))


@pytest.fixture(scope="module")
def made():
    with short_stages():
        return containers()


def containers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=40)
    labels = np.where(y > 0, "yes", "no")
    short = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "random_state": 0}
    svi, chains = Svi(epochs=5, n_draws=30), {"n_chains": 2, "n_warmup": 30, "drop_idle": True}

    def fitted(inference, **settings):
        settings = short | {"inference": inference} | settings
        return bt.ConvexPolytopeTreeClassifier(**settings).fit(X, labels)

    fits = {
        "svi": fitted(svi),
        "numbers": bt.ConvexPolytopeTreeRegressor(inference=svi, **short).fit(X, y),
        "nuts": fitted([svi, Nuts(thinning=4, n_draws=20, **chains)]),
        "mcmc": fitted(Mcmc(thinning=6, n_draws=20, **chains)),
        "smc": fitted(Smc(n_draws=40, max_experts=4)),
        "map": fitted(Map(epochs=5, steepness=None)),
        "modes": fitted(Svi(epochs=5), n_modes=2),
    }
    return {
        name: (fit.to_arviz(X, y if name == "numbers" else labels, n_prior=10), fit.to_arviz())
        for name, fit in fits.items()
    }


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.mark.parametrize("kind", quickly(["numbers", "nuts", "svi"], quick=(0, 1)))
@pytest.mark.parametrize("name", [*OF_DRAWS, *OF_ROWS, *OF_OBS, *OTHERS])
def test_functions_work_with_the_rows(made, kind, name):
    assert called(name, made[kind][0]) is not None


@pytest.mark.parametrize("name", OF_MODES)
def test_functions_work_with_a_mixture(made, name):
    assert called(name, made["modes"][0]) is not None


@pytest.mark.parametrize("name", OF_DRAWS)
def test_functions_of_the_draws_need_no_rows(made, name):
    assert called(name, made["svi"][1]) is not None


@pytest.mark.parametrize("name", [*OF_ROWS, "plot_ppc of the prior"])
def test_functions_of_rows_name_the_group_that_they_miss(made, name):
    with pytest.raises(TypeError, match=r"posterior_predictive|prior_predictive|log likelihood"):
        called(name, made["svi"][1])


@pytest.mark.parametrize("name", OF_ENERGY)
def test_draws_have_an_energy_and_a_point_has_none(made, name):
    for kind in ("nuts", "svi"):
        assert called(name, made[kind][1]) is not None
    with pytest.raises((AttributeError, TypeError), match=r"[Ee]nergy"):
        called(name, made["map"][0])


def test_the_energy_of_a_guide_is_that_of_draws_without_momentum(made):
    stats = made["svi"][1].sample_stats
    np.testing.assert_array_equal(stats.energy, -stats.lp)


@pytest.mark.parametrize("kind", ["mcmc", "smc"])
def test_samplers_without_momentum_have_no_energy_and_no_divergences(made, kind):
    for name in ("plot_trace", "plot_rank", "plot_ppc", "loo", "rhat", "psens"):
        assert called(name, made[kind][0]) is not None
    with pytest.warns(UserWarning, match="Divergences data not found"):
        called("divergences", made[kind][0])
    with pytest.raises(IndexError):
        called("plot_parallel", made[kind][0])
    for name in OF_ENERGY:
        with pytest.raises((AttributeError, TypeError), match=r"[Ee]nergy"):
            called(name, made[kind][0])


@pytest.mark.parametrize("name", ["plot_forest", "plot_pair", "plot_ppc", "plot_bpv", "ess"])
def test_a_point_estimate_is_one_draw(made, name):
    assert called(name, made["map"][0]) is not None


def test_no_draw_of_a_guide_has_diverged(made):
    assert not made["svi"][0].sample_stats.diverging.any()
    assert made["svi"][0].sample_stats.diverging.dims == ("chain", "draw")
    assert "diverging" not in made["map"][0].sample_stats
