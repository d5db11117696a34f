"""A posterior over trees: several modes and their mixture."""

import copy
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp
from sklearn.base import clone

import bayestree
from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree._utils import arviz_compat
from bayestree._utils.arrays import split_rows
from bayestree._utils.seed import draw_seed
from bayestree.diagnostics import Check, Convergence, loo, mixed_convergence, mixed_loo
from bayestree.estimators import _modes
from bayestree.estimators._contents import arrays_of, build, describe
from bayestree.fitted import draws, mixed_draws
from bayestree.inference import Map, Nuts, Svi, pointwise

QUICK = {"max_depth": 2, "n_experts": 3, "epochs": 4, "n_draws": 40, "random_state": 0}


@pytest.fixture(scope="module")
def several(iris):
    return ConvexPolytopeTreeClassifier(n_modes=3, **QUICK).fit(*iris)


@pytest.fixture(scope="module")
def regressor(values):
    return ConvexPolytopeTreeRegressor(n_modes=2, **QUICK).fit(*values)


def same_tree(a, b):
    return all(np.array_equal(v, b.tree_.arrays()[k]) for k, v in a.tree_.arrays().items())


@pytest.mark.parametrize("more", [{}, {"validation_fraction": 0.2}])
def test_the_first_mode_is_the_fit_of_one(iris, more):
    one = ConvexPolytopeTreeClassifier(n_modes=1, **QUICK, **more).fit(*iris)
    several = ConvexPolytopeTreeClassifier(n_modes=2, **QUICK, **more).fit(*iris)
    np.testing.assert_array_equal(
        several.modes_[0].predict_proba(iris[0]), one.predict_proba(iris[0])
    )
    assert same_tree(several.modes_[0], one)
    assert not same_tree(several.modes_[1], one)
    assert one.modes_ == [one]
    assert one.mode_weights_.tolist() == [1.0]


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({}, 3),
        ({"inference": Svi(epochs=4, n_draws=40)}, 3),
        ({"inference": "map"}, 1),
        ({"inference": Map(epochs=4)}, 1),
        ({"search_facets": True}, 1),
    ],
    ids=str,
)
def test_the_default_number_of_modes_is_that_of_the_method(iris, settings, number):
    X, y = iris
    given = {} if "inference" in settings else {"epochs": 4}
    found = ConvexPolytopeTreeClassifier(
        max_depth=1, n_experts=2, random_state=0, **given, **settings
    )
    assert len(found.fit(X[:, 2:], y > 0).modes_) == number


def test_fewer_modes_are_the_first_of_more(iris, several):
    fewer = ConvexPolytopeTreeClassifier(n_modes=2, **QUICK).fit(*iris)
    assert all(same_tree(a, b) for a, b in zip(fewer.modes_, several.modes_, strict=False))


def test_results_do_not_depend_on_n_jobs(iris, several):
    parallel = clone(several).set_params(n_jobs=2).fit(*iris)
    np.testing.assert_array_equal(parallel.mode_weights_, several.mode_weights_)
    np.testing.assert_array_equal(parallel.predict_proba(iris[0]), several.predict_proba(iris[0]))


def test_predictions_are_those_of_the_mixture(iris, several):
    X, _ = iris
    weights = several.mode_weights_
    each = [mode.predict_proba(X, return_std=True) for mode in several.modes_]
    mean = sum(w * p for w, (p, _) in zip(weights, each, strict=True))
    square = sum(w * (p**2 + sd**2) for w, (p, sd) in zip(weights, each, strict=True))
    found, sd = several.predict_proba(X, return_std=True)
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(sd, np.sqrt(square - mean**2), atol=1e-6)
    np.testing.assert_array_equal(several.predict(X), several.classes_[mean.argmax(axis=1)])


def test_the_tree_is_that_of_the_medoid(iris, several):
    X, _ = iris
    means = [
        mode.posterior_.predictive(mode._scaling.units.standardise(X))[0] for mode in several.modes_
    ]
    apart = [[np.abs(a - b).sum() for b in means] for a in means] @ several.mode_weights_
    medoid = several.modes_[int(np.argmin(apart))]
    assert several.tree_ is medoid.tree_
    assert several.posterior_ is medoid.posterior_
    tree = clone(several).set_params(prediction="tree").fit(X, iris[1])
    np.testing.assert_array_equal(tree.predict_proba(X), medoid.tree_.predict(X))
    np.testing.assert_array_equal(several.apply(X), medoid.apply(X))


def test_regression_in_the_units_of_y(values, regressor):
    X, y = values
    weights = regressor.mode_weights_
    each = [mode.predict(X, return_std=True) for mode in regressor.modes_]
    mean = sum(w * p for w, (p, _) in zip(weights, each, strict=True))
    variance = sum(w * ((p - mean) ** 2 + sd**2) for w, (p, sd) in zip(weights, each, strict=True))
    found, sd = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(sd, np.sqrt(variance))
    leaves = regressor.tree_.value
    assert y.min() <= leaves.min()
    assert leaves.max() <= y.max()


def test_intervals_have_the_mass_of_the_mixture(values, regressor):
    X, _ = values
    low, high = regressor.predict_interval(X, 0.8)
    rows = regressor._scaling.units.standardise(X)
    mass = [
        sum(
            w * mode.posterior_.cdf(rows)(regressor._scaling.units.encode(end))
            for w, mode in zip(regressor.mode_weights_, regressor.modes_, strict=True)
        )
        for end in (low, high)
    ]
    np.testing.assert_allclose(mass[0], 0.1, atol=1e-9)
    np.testing.assert_allclose(mass[1], 0.9, atol=1e-9)


def test_the_uncertainty_of_y_includes_that_between_modes(iris, several, values, regressor):
    found = several.split_uncertainty(iris[0])
    np.testing.assert_allclose(found.expected_y, several.predict_proba(iris[0]), atol=1e-5)
    each = [mode.split_uncertainty(iris[0]) for mode in several.modes_]
    within = np.tensordot(several.mode_weights_, [one.expected_entropy for one in each], axes=1)
    np.testing.assert_allclose(found.expected_entropy, within)
    np.testing.assert_allclose(found.total_entropy, within + found.mutual_information)
    np.testing.assert_array_equal(found.mean, each[several.fitted_.medoid].mean)
    real = regressor.split_uncertainty(values[0])
    mean, sd = regressor.predict(values[0], return_std=True)
    np.testing.assert_allclose(real.expected_y, mean, rtol=1e-6)
    np.testing.assert_allclose(real.explained, sd**2, rtol=1e-3)
    np.testing.assert_allclose(real.total_variance, real.explained + real.expected_variance)


def test_sizes_over_all_modes(iris, several):
    found = several.polytope_size(20)
    weights = several.mode_weights_
    own = [mode.polytope_size(20) for mode in several.modes_]
    np.testing.assert_array_equal(found.sizes(), own[several.fitted_.medoid].sizes())
    assert "Over all modes: facets of the root" in str(found)
    assert "leaves in use by a draw" in str(found)
    assert "depth of the deterministic trees" in str(found)
    expected = sum(w * (one.sizes()[:, 0] == 2).mean() for w, one in zip(weights, own, strict=True))
    assert found.over_modes.facets[2] == pytest.approx(expected)
    every = sum(w * (one.sizes().sum(1) == 3).mean() for w, one in zip(weights, own, strict=True))
    assert found.over_modes.splits[3] == pytest.approx(every)
    assert every > 0
    leaves = sum(w * (one.n_leaves == 3).mean() for w, one in zip(weights, own, strict=True))
    assert found.over_modes.leaves[3] == pytest.approx(leaves)
    deep = sum(w * (mode.get_depth() == 2) for w, mode in zip(weights, several.modes_, strict=True))
    assert found.over_modes.depth[2] == pytest.approx(deep)
    assert own[0].over_modes is None


def test_co_membership(iris, several):
    X, _ = iris
    found = several.co_membership(X)
    assert found.shape == (150, 150)
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_allclose(several.co_membership(X[:3], X[5:9]), found[:3, 5:9], atol=1e-6)
    expected = np.zeros(2)
    for weight, mode in zip(several.mode_weights_, several.modes_, strict=True):
        sites = list(mode.posterior_.each())
        for one in sites:
            leaf = mode.posterior_.leaf_probs(mode._scaling.units.standardise(X[[0, 70, 149]]), one)
            expected += weight * leaf[0] @ leaf[1:].T / len(sites)
    np.testing.assert_allclose(found[0, [70, 149]], expected, atol=1e-6)


def weighted(estimator, weights):
    """The estimator with other weights of its modes."""
    found = copy.copy(estimator)
    found.fitted_ = replace(estimator.fitted_, weights=np.array(weights))
    return found


def test_draws_of_y_come_from_each_mode_by_its_weight(iris, several):
    X, _ = iris
    unequal, n = weighted(several, [0.8, 0.2, 0.0]), 4000
    first, second, _ = (mode.predict_proba(X) for mode in several.modes_)
    row = np.abs(first - second).max(axis=1).argmax()
    drawn = unequal.sample_posterior_predictive(X[[row]], n, random_state=0)
    assert drawn.shape == (n, 1)
    for part, p in ((drawn[:3200], first[row]), (drawn[3200:], second[row])):
        # the draws of the parameters are spread evenly: a share varies no more than binomially
        share = (part == several.classes_).mean(axis=0)
        assert (np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / len(part)) + 1 / n).all()
    assert several.sample_posterior_predictive(X).shape == (120, 150)
    with pytest.raises(ValueError, match="draws must be 1 or more"):
        several.sample_posterior_predictive(X, 0)


def test_stacking_prefers_the_modes_that_predict_rows_left_out(iris, several):
    X, y = iris
    columns = []
    for mode in several.modes_:
        posterior, data = mode.posterior_, mode.training_data(X, y)
        terms = pointwise.log_likelihood(posterior.model, posterior.each(), data)
        columns.append(bayestree.diagnostics.loo(terms[None]).elpd_row)
    expected = bayestree.diagnostics.stacking_weights(np.stack(columns, axis=1), prior_rows=5.0)
    np.testing.assert_allclose(several.mode_weights_, expected)


def test_rows_held_out_decide_where_there_are_some(iris):
    settings = QUICK | {"inference": "map", "validation_fraction": 0.3, "n_modes": 2}
    del settings["n_draws"]
    found = ConvexPolytopeTreeClassifier(**settings).fit(*iris)
    data = found.modes_[0].training_data(*iris)
    # the first mode draws its rows as a single fit does, and the others take the same
    seeds = np.random.RandomState(draw_seed(0)), np.random.RandomState(7)
    members = _modes._new_members(found)
    held = [mode._hold_out(data, one)[1] for mode, one in zip(members, seeds, strict=True)]
    assert held[0].X.equal(held[1].X)
    assert len(held[0].X) == 45
    scores = [
        logsumexp(
            pointwise.log_likelihood(m.posterior_.model, m.posterior_.each(), held[0]), axis=0
        )
        for m in found.modes_
    ]
    expected = bayestree.diagnostics.stacking_weights(np.stack(scores, axis=1), prior_rows=5.0)
    np.testing.assert_allclose(found.mode_weights_, expected)


def test_only_some_rows_are_scored(iris, several, monkeypatch):
    monkeypatch.setattr(_modes, "SCORED_ROWS", 40)
    again = clone(several).fit(*iris)
    assert all(same_tree(a, b) for a, b in zip(again.modes_, several.modes_, strict=True))
    assert not np.array_equal(again.mode_weights_, several.mode_weights_)


def test_other_weights(iris, several):
    equal = clone(several).set_params(mode_weights="equal").fit(*iris)
    assert equal.mode_weights_.tolist() == [1 / 3] * 3
    bound = clone(several).set_params(mode_weights="elbo").fit(*iris)
    elbo = [float(mode.posterior_.stats["final_elbo"]) for mode in bound.modes_]
    ratios = np.log(bound.mode_weights_ / bound.mode_weights_[0])
    np.testing.assert_allclose(ratios, np.array(elbo) - elbo[0], rtol=1e-6)


def test_point_estimates_have_equal_weights_and_average(iris):
    found = ConvexPolytopeTreeClassifier(
        inference="grow", n_modes=3, max_depth=2, n_experts=3, random_state=0
    ).fit(*iris)
    assert found.mode_weights_.tolist() == [1 / 3] * 3
    mean = np.mean([mode.tree_.predict(iris[0]) for mode in found.modes_], axis=0)
    np.testing.assert_allclose(found.predict_proba(iris[0]), mean)
    assert found.check_convergence().settled == "nothing to judge"


def test_n_jobs_is_that_of_the_modes(iris):
    settings = {"n_jobs": 1, "inference": Nuts(n_draws=10)}
    assert ConvexPolytopeTreeClassifier(n_modes=2, **settings)._stages()[-1].draws == (4, 10)
    with pytest.raises(ValueError, match="n_jobs=1 would be ignored"):
        ConvexPolytopeTreeClassifier(**settings)._stages()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode_weights": "stacking", "inference": "map"}, "mode_weights='equal'"),
        ({"mode_weights": "stacking", "n_draws": 1}, "validation_fraction"),
        ({"mode_weights": "elbo", "inference": "nuts"}, "needs inference='svi'"),
        ({"n_modes": 0}, "n_modes must be an integer of 1 or more"),
    ],
)
def test_impossible_combinations_are_refused(iris, settings, message):
    with pytest.raises(ValueError, match=message):
        ConvexPolytopeTreeClassifier(**{"n_modes": 2, "max_depth": 1} | settings).fit(*iris)


def test_one_file_holds_all_modes(iris, several, tmp_path):
    X, _ = iris
    several.save(tmp_path / "modes.safetensors")
    loaded = bayestree.load(tmp_path / "modes.safetensors")
    assert loaded.get_params() == several.get_params()
    np.testing.assert_array_equal(loaded.mode_weights_, several.mode_weights_)
    np.testing.assert_array_equal(loaded.predict_proba(X), several.predict_proba(X))
    np.testing.assert_array_equal(loaded.apply(X), several.apply(X))
    assert str(loaded.polytope_size(10)) == str(several.polytope_size(10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(medoid=3), "medoid is 3"),
        (lambda d, a: d.update(modes=d["modes"][:1]), "mode_weights are not those of 1"),
        (lambda d, a: a.update(mode_weights=np.full(3, 0.5)), "have the sum 1.5"),
    ],
)
def test_files_whose_parts_disagree_are_refused(several, change, message):
    described, arrays = describe(several), arrays_of(several)
    change(described, arrays)
    with pytest.raises(ValueError, match=message):
        build(ConvexPolytopeTreeClassifier, described, arrays, None)


def test_a_warm_start_continues_every_mode(iris):
    X, y = iris
    found = ConvexPolytopeTreeClassifier(n_modes=2, warm_start=True, **QUICK).fit(X, y)
    topologies = [mode.posterior_.model.topology for mode in found.modes_]
    trees = [mode.tree_ for mode in found.modes_]
    found.set_params(epochs=6).fit(X, y)
    assert [mode.posterior_.model.topology for mode in found.modes_] == topologies
    assert all(mode.tree_ is not tree for mode, tree in zip(found.modes_, trees, strict=True))
    for n_modes in (1, 3):
        with pytest.raises(ValueError, match="continues from 2 fitted modes: set n_modes=2"):
            found.set_params(n_modes=n_modes).fit(X, y)
    assert len(found.set_params(n_modes=None).fit(X, y).modes_) == 2
    found.set_params(n_modes=1, warm_start=False).fit(X, y)
    assert found.modes_ == [found]


def test_the_modes_are_the_chains_of_what_is_compared(iris, several):
    found = several.label_free(iris[0], n_rows=7)
    assert found["prediction"].shape == (3, 40, 7, 3)
    assert found["leaves"].shape == (3, 40)
    assert found["mode"].to_numpy().tolist() == [0, 1, 2]
    first = several.modes_[0].label_free(iris[0], n_rows=7)["prediction"]
    np.testing.assert_array_equal(found["prediction"][0], first[0])
    with pytest.raises(ValueError, match="n_rows"):
        several.label_free(n_rows=0)


def group(container, name):
    return arviz_compat.group(container, name)


def test_the_container_holds_draws_of_the_mixture(iris, several):
    X, y = iris
    unequal = weighted(several, [0.6, 0.4, 0.0])
    found = unequal.to_arviz(X, y)
    shown = group(found, "posterior")["prediction"]
    counts = np.bincount(shown["mode"], minlength=3)
    assert (np.abs(counts - 120 * unequal.mode_weights_) < 1).all()
    # every draw is one of its mode, at the rows that it names
    rows = shown["row"].to_numpy()
    assert len(rows) == 20
    for mode in (0, 1):
        own = np.concatenate(
            [
                *several.modes_[mode].posterior_.expectations(
                    several._scaling.units.standardise(X[rows])
                )
            ]
        )
        drawn = shown[0, shown["mode"].to_numpy() == mode].to_numpy()
        apart = np.abs(drawn[:, None] - own[None]).max(axis=(2, 3)).min(axis=1)
        assert apart.max() < 1e-6
    mean, error = shown.mean(("chain", "draw")), shown.std(("chain", "draw")) / np.sqrt(120)
    gap = np.abs(mean - unequal.predict_proba(X[rows]))
    assert (gap <= 4 * error + 1 / 120).all()
    np.testing.assert_allclose(group(found, "constant_data")["X"].sel(row=rows), X[rows])


def test_the_groups_of_a_mixture(iris, several):
    X, y = iris
    found = several.to_arviz(X, y, n_prior=30)
    assert set(arviz_compat.names(found)) == set(mixed_draws.MIXED_GROUPS)
    for name in ("log_likelihood", "posterior_predictive"):
        assert group(found, name)["obs"].shape == (1, 120, 150)
    assert group(found, "prior_predictive")["obs"].shape == (1, 30, 150)
    assert group(found, "prior")["prediction"].shape == (1, 30, 20, 3)
    assert len(arviz_compat.netcdf(found))
    # sensitivity to the prior compares the draws of each mode with each other
    prior = group(found, "log_prior")["leaf"][0]
    own = group(several.modes_[1].to_arviz(), "log_prior")["leaf"][0]
    drawn = prior[prior["mode"].to_numpy() == 1].to_numpy() + float(own.mean())
    assert np.isclose(drawn[:, None], own.to_numpy()).any(axis=1).all()
    with pytest.raises(ValueError, match="n_prior must be 1 or more, got 0"):
        several.to_arviz(n_prior=0)
    without = several.to_arviz()
    assert group(without, "posterior")["prediction"].dims[2] == "point"
    assert group(without, "constant_data")["X"].dims == ("point", "feature")
    assert arviz_compat.names(several.to_arviz(groups="posterior")) == ["posterior"]


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        (True, "warmup_posterior", r"modes_\[m\].to_arviz"),
        (False, "log_likelihood", "it needs the rows"),
    ],
)
def test_groups_that_a_mixture_does_not_have(iris, several, rows, name, message):
    with pytest.raises(ValueError, match=message):
        several.to_arviz(*(iris if rows else ()), groups=[name])


def test_modes_without_draws_have_no_leave_one_out(iris):
    found = ConvexPolytopeTreeClassifier(
        inference="grow", n_modes=2, max_depth=1, n_experts=2, random_state=0
    ).fit(*iris)
    container = found.to_arviz(*iris)
    assert "log_likelihood" not in arviz_compat.names(container)
    shown = group(container, "posterior")["prediction"]
    standard = found._scaling.units.standardise(iris[0][shown["row"]])
    mean = np.mean([mode.posterior_.predictive(standard)[0] for mode in found.modes_], axis=0)
    np.testing.assert_allclose(shown.mean(("chain", "draw")), mean, atol=0.01)
    with pytest.raises(ValueError, match="method='kfold'"):
        found.to_arviz(*iris, groups="log_likelihood")


def test_predictions_of_a_container_are_in_the_units_of_y(values, regressor):
    X, y = values
    found = regressor.to_arviz(X, y)
    shown = group(found, "posterior")["prediction"]
    mean, error = shown.mean(("chain", "draw")), shown.std(("chain", "draw")) / np.sqrt(100)
    gap = np.abs(mean - regressor.predict(X[shown["row"]]))
    assert (gap <= 4 * error + 0.01 * np.abs(shown).max()).all()
    constant = group(found, "constant_data")
    assert float(constant["y_center"]) == pytest.approx(y.mean())
    assert float(constant["y_scale"]) == pytest.approx(y.std())


def test_the_container_of_a_mixture_has_no_parameters_to_judge(iris, several):
    for judge in (bayestree.diagnostics.convergence_of, bayestree.diagnostics.label_free_of):
        with pytest.raises(ValueError, match=r"mixture of several modes.*modes_\[m\].to_arviz"):
            judge(several.to_arviz(*iris))
        assert judge(several.modes_[0].to_arviz(*iris)) is not None


def test_the_verdict_tells_how_far_modes_differ(iris, several):
    found = several.check_convergence(*iris)
    assert {"elbo", "modes"} <= set(found.to_frame().index)
    assert found["modes"].verdict == "info"
    quantities = several.label_free(iris[0])
    means = quantities["prediction"].mean("draw").to_numpy()
    assert found["modes"].value == pytest.approx(np.ptp(means, axis=0).mean())
    assert "largest mean prediction of 3 modes" in found["modes"].says
    worst = float(found.quantities["r_hat"]["prediction"])
    assert f"(largest R-hat of predictions: {worst:.3g})" in found["modes"].says
    assert found.quantities.loc["prediction", "r_hat"] > 1.05
    worst = max(mode.check_convergence()["elbo"].verdict == "failed" for mode in several.modes_)
    assert (found["elbo"].verdict == "failed") == worst
    assert found.held_out is not None


def coin(heads, tails, seed, draws=4000):
    """Log-likelihood of 9 heads and 3 tails under draws of a posterior; exact scores without one.

    Modes differ in their prior, Beta(heads, tails).
    """
    y = np.repeat([1, 0], [9, 3])
    theta = np.random.default_rng(seed).beta(heads + 9, tails + 3, (1, draws, 1))
    exact = np.where(y, heads + 8, tails + 2) / (heads + tails + 11)
    terms = xr.DataArray(np.log(np.where(y, theta, 1 - theta)), dims=("chain", "draw", "row"))
    return terms.assign_coords(chain=[0], draw=np.arange(draws)), exact


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_leave_one_out_of_the_draws_is_that_of_the_mixture(weight):
    weights = np.array([0.5, 0.3, 0.2])
    coins = [coin(*prior, seed=n) for n, prior in enumerate([(1, 1), (30, 3), (3, 30)])]
    each, exact = zip(*coins, strict=True)
    made = mixed_draws.MixedContainer([], weights, [], None, np.full(12, weight), [], 1, None)
    shifted = made._mixed_likelihood([weight * one for one in each])
    drawn = mixed_draws.MixedDraws.of(weights, [4000] * 3, 12_000, np.random.RandomState(0))
    posterior = xr.Dataset({"p": (("chain", "draw"), np.zeros((1, 12_000)))})
    groups = {"posterior": posterior, "log_likelihood": drawn.dataset(shifted)}
    found = arviz_compat.arviz().loo(arviz_compat.container(groups, {}), pointwise=True)
    terms = found.elpd_i if arviz_compat.major_version() else found.loo_i
    if weight == 1:
        np.testing.assert_allclose(terms, np.log(weights @ exact), atol=0.02)
    assert terms.shape == (12,)
    expected = mixed_loo(
        [loo(weight * one) for one in each], weights, row_weights=np.full(12, weight)
    )
    np.testing.assert_allclose(terms, expected.elpd_row, atol=0.03)


def test_the_score_of_the_mixture(iris, several):
    container = several.to_arviz(*iris)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few draws
        found = arviz_compat.arviz().loo(container, pointwise=True)
    terms = found.elpd_i if arviz_compat.major_version() else found.loo_i
    each = [
        loo(group(mode.to_arviz(*iris, groups=["log_likelihood"]), "log_likelihood")["obs"])
        for mode in several.modes_
    ]
    expected = mixed_loo(each, several.mode_weights_).elpd_row
    assert np.abs(terms.sum() - expected.sum()) < 0.05 * np.abs(expected.sum())


def test_a_score_that_cannot_be_trusted_is_refused(iris, several):
    with pytest.raises(ValueError, match=r"importance sampling fails.*method='kfold'"):
        several.loo(*iris)


def test_the_score_of_refits(iris):
    X, y = iris
    few = np.sort(np.random.default_rng(0).permutation(150)[:60])
    X, y = X[few], y[few]
    clf = ConvexPolytopeTreeClassifier(n_modes=2, inference="grow", max_depth=1, random_state=0)
    weights = np.resize([1.0, 2.0], 60)
    found = clf.fit(X, y, weights).loo(X, y, weights, method="kfold", n_folds=3)
    for train, held in split_rows(60, y, 3, 0):
        again = clone(clf).fit(X[train], y[train], weights[train])
        p = again.predict_proba(X[held])[np.arange(len(held)), y[held]]
        np.testing.assert_allclose(found.elpd_row[held], weights[held] * np.log(p), rtol=1e-6)
    own = clf.predict_proba(X)[np.arange(60), y]
    assert found.p_loo == pytest.approx(weights @ np.log(own) - found.elpd)
    assert found.warning == ""
    assert str(found).startswith("3 refits, 60 rows")


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_refits_of_numbers_and_impossible_folds(iris, values):
    X, y = values
    settings = {"n_modes": 2, "inference": "grow", "max_depth": 1, "min_gain": 0.0}
    settings |= {"n_experts": 2, "random_state": 0}
    reg = ConvexPolytopeTreeRegressor(**settings, validation_fraction=0.2).fit(X, y)
    found = reg.loo(X, y, method="kfold", n_folds=2)
    assert np.isfinite(found.elpd)
    scaled = clone(reg).fit(X, 1000 * y).loo(X, 1000 * y, method="kfold", n_folds=2)
    assert scaled.elpd - found.elpd == pytest.approx(-len(y) * np.log(1000), rel=1e-3)
    with pytest.raises(ValueError, match="n_folds must be between 2"):
        reg.loo(X, y, method="kfold", n_folds=1)
    with pytest.raises(ValueError, match="method must be"):
        reg.loo(X, y, method="exact")
    few = iris[0][:103], iris[1][:103]
    clf = ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, random_state=0).fit(*few)
    with pytest.raises(ValueError, match=r"class 2 has 3: set n_folds=3"):
        clf.loo(*few, method="kfold")


def test_the_text_names_its_mode(several):
    text = bayestree.export_text(several)
    assert f"This is mode {several.fitted_.medoid} of 3 (weight " in text
    assert "This is mode" not in bayestree.export_text(several.modes_[1])


@pytest.mark.filterwarnings("error::bayestree.SingleLeafWarning")
def test_trees_without_splits(iris):
    X, y = iris
    leaf = ConvexPolytopeTreeClassifier(n_modes=2, max_depth=0, n_draws=30, random_state=0).fit(
        X, y
    )
    assert leaf.get_n_leaves() == 1
    assert leaf.predict_proba(X[:2]).shape == (2, 3)
    assert leaf.check_convergence().settled == "yes"
    np.testing.assert_allclose(leaf.co_membership(X[:2]), 1)
    with pytest.warns(bayestree.SingleLeafWarning, match="no mode has kept a split"):
        ConvexPolytopeTreeClassifier(n_modes=2, min_gain=1e6, inference="grow").fit(X, y)


def scores_of_weighted_rows(monkeypatch, rows, **settings):
    """What stacking is given for rows of weight 4, and the fit."""
    given = []

    def stacked(scores, *, row_weights, prior_rows):
        given.append((scores, row_weights))
        return np.full(scores.shape[1], 1 / scores.shape[1])

    monkeypatch.setattr(_modes, "stacking_weights", stacked)
    X, y = rows
    found = ConvexPolytopeTreeClassifier(n_modes=2, **settings).fit(
        X, y, sample_weight=np.full(len(X), 4.0)
    )
    ((scores, weights),) = given
    assert np.unique(weights).tolist() == [4.0]
    return scores, found


def test_stacking_is_given_the_scores_of_single_rows(iris, monkeypatch):
    left_out, _ = scores_of_weighted_rows(monkeypatch, iris, **QUICK)
    assert left_out.min() > np.log(1e-3), "four times the score of a row is below"
    X, y = iris
    settings = {"inference": "grow", "max_depth": 2, "n_experts": 3, "random_state": 0}
    scores, found = scores_of_weighted_rows(monkeypatch, iris, validation_fraction=0.3, **settings)
    for mode, column in zip(found.modes_, scores.T, strict=True):
        probability = mode.posterior_.predictive(mode._scaling.standardise(X))[0]
        each = np.log(probability[np.arange(len(X)), y])
        assert np.abs(column[:, None] - each).min(axis=1).max() < 1e-9


def test_prediction_may_be_changed_after_the_fit(iris):
    X, y = iris
    settings = QUICK | {"n_modes": 2}
    hard = ConvexPolytopeTreeClassifier(prediction="tree", **settings).fit(X, y)
    soft = ConvexPolytopeTreeClassifier(prediction="posterior", **settings).fit(X, y)
    assert not np.allclose(hard.predict_proba(X), soft.predict_proba(X))
    np.testing.assert_array_equal(
        hard.set_params(prediction="posterior").predict_proba(X), soft.predict_proba(X)
    )


def test_few_draws_may_come_from_every_mode(several, monkeypatch):
    def numbered(fitted, rows, count, *_):
        (number,) = (m for m, one in enumerate(several.fitted_.trees) if one is fitted)
        return np.full((count, len(rows)), number)

    monkeypatch.setattr(draws, "_sampled", numbered)
    found, row = weighted(several, [0.1, 0.3, 0.6]), np.zeros((1, several.n_features_in_))
    drawn = [found.sample_posterior_predictive(row, 1, random_state=s)[0, 0] for s in range(400)]
    shares = np.bincount(np.ravel(drawn), minlength=3) / 400
    # four standard errors of a share; the seeds are fixed
    weights = found.mode_weights_
    assert (abs(shares - weights) < 4 * np.sqrt(weights * 0.9 / 400)).all()
    ten = found.sample_posterior_predictive(row, 10, random_state=0)
    np.testing.assert_array_equal(np.bincount(np.ravel(ten)), [1, 3, 6])


def test_many_equal_modes_are_judged(several):
    one = several.modes_[0].check_convergence(n_rows=4)
    quantities = several.label_free(n_rows=4)
    many = quantities.isel(chain=np.arange(150) % quantities.sizes["chain"]).assign_coords(
        chain=np.arange(150), mode=("chain", np.arange(150))
    )
    found = mixed_convergence([one] * 150, np.full(150, 1 / 150), many)
    assert "of 150 modes" in found["modes"].says


def test_r_hat_is_that_of_predictions_where_the_leaves_of_each_mode_are_constant(several):
    one = several.modes_[0].check_convergence(n_rows=4)
    quantities = several.label_free(n_rows=4)
    leaves = quantities["mode"] + 0 * quantities["leaves"]
    found = mixed_convergence([one] * 3, several.mode_weights_, quantities.assign(leaves=leaves))
    assert found.quantities.loc["leaves", "r_hat"] > 1e6
    worst = float(found.quantities["r_hat"]["prediction"])
    assert f"(largest R-hat of predictions: {worst:.3g})" in found["modes"].says


def test_a_mode_with_all_the_weight_is_not_compared(several):
    each = [mode.check_convergence(n_rows=4) for mode in several.modes_]
    found = mixed_convergence(each, np.array([0.0, 1.0, 0.0]), several.label_free(n_rows=4))
    assert found["modes"].says.startswith("mode 1 has nearly all of the weight")
    assert found["modes"].value == 0
    assert found["elbo"].says.startswith("mode 1: ")


def test_chains_of_modes_stay_exact_beside_a_distilled_tree(several):
    quantities = several.label_free(n_rows=4)
    agreed, settled = (Check(n, "convergence", 1.0, 1.01, "ok", "", "") for n in ("r_hat", "elbo"))
    table = several.modes_[0].check_convergence(n_rows=4).quantities
    chains = Convergence((agreed,), (), table, "chains")
    fitted = Convergence((settled,), (), table, "variational")
    found = mixed_convergence([chains] * 3, several.mode_weights_, quantities, distilled=fitted)
    assert found.kind == "chains"
    assert "distilled tree, whose draws are variational" in found.intervals
    alone = mixed_convergence([chains] * 3, several.mode_weights_, quantities)
    assert "distilled" not in alone.intervals


def test_the_container_says_what_was_fitted(iris, several):
    X, y = iris
    found = arviz_compat.group(several.to_arviz(X, y), "posterior").attrs
    assert json.loads(found["mode_weights"]) == several.mode_weights_.tolist()
    assert json.loads(found["parameters"])["n_modes"] == 3
    assert found["steepness"] == 6.0
    with pytest.raises(ValueError, match="sample_weight needs the rows"):
        several.to_arviz(sample_weight=np.ones(len(X)))


def test_the_size_of_a_leaf_beside_other_modes(iris):
    X, y = iris
    found = ConvexPolytopeTreeClassifier(**QUICK | {"n_modes": 2, "max_depth": 0}).fit(X, y)
    assert str(found.polytope_size(5)).splitlines()[0] == "Polytope size: a tree without a split"
    assert "Over all modes: " in str(found.polytope_size(5))


@pytest.mark.parametrize(("n_classes", "depth"), [(2, 4), (16, 4), (17, 7), (26, 7), (33, 8)])
def test_the_default_depth_suits_the_number_of_classes(n_classes, depth):
    for method in ("svi", "map", "grow"):
        clf = ConvexPolytopeTreeClassifier(inference=method)
        clf.classes_ = np.arange(n_classes)
        assert clf._limits().max_depth == depth
        assert clf.set_params(max_depth=3)._limits().max_depth == 3
    clf = ConvexPolytopeTreeClassifier(inference="nuts")
    clf.classes_ = np.arange(n_classes)
    assert clf._limits().max_depth == 4


def test_a_tree_may_have_a_leaf_for_each_of_many_classes():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 30)
    X = np.column_stack([y % 5, y // 5]) + rng.uniform(-0.3, 0.3, (600, 2))
    clf = ConvexPolytopeTreeClassifier(inference="grow", n_experts=1, random_state=0).fit(X, y)
    assert clf.get_n_leaves() > 16
