"""What is asked of a mixture of modes: containers, convergence, and left-out rows."""

import json
import warnings

import numpy as np
import pytest
import xarray as xr
from scipy.special import betaln
from sklearn.base import clone

import bayestree
from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
)
from bayestree._utils import arviz_compat
from bayestree._utils.arrays import split_rows
from bayestree.diagnostics import loo, mixed_convergence, mixed_loo
from bayestree.diagnostics.draws import match
from bayestree.diagnostics.label_free import spread_rows
from bayestree.fitted.arviz import MIXED_GROUPS, MixedContainer, MixedDraws
from bayestree.fitted.predictions import mode_counts
from bayestree.fitted.tree import sides_of
from bayestree.inference import Map, Svi, Vi
from tests.estimators.modes import QUICK, weighted


def test_the_modes_are_the_chains_of_what_is_compared(iris, several):
    found = several.label_free(iris[0], n_rows=7)
    assert found["prediction"].shape == (3, 40, 7, 3)
    assert found["leaves"].shape == (3, 40)
    assert found["mode"].to_numpy().tolist() == [0, 1, 2]
    first = several.modes_[0].label_free(iris[0], n_rows=7)["prediction"]
    np.testing.assert_array_equal(found["prediction"][0], first[0])
    with pytest.raises(ValueError, match="n_rows"):
        several.label_free(n_rows=0)


def test_the_container_of_point_estimates_needs_no_rows(iris):
    X, y = iris
    quick = Map(epochs=2, steepness=1.0)
    clf = ConvexPolytopeTreeClassifier(inference=quick, n_modes=2, random_state=0).fit(X, y)
    assert group(clf.to_arviz(), "posterior")["prediction"].sizes["draw"] == 100


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
                    several.fitted_.scaling.units.standardise(X[rows])
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
    assert set(arviz_compat.names(found)) == set(MIXED_GROUPS)
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
    standard = found.fitted_.scaling.units.standardise(iris[0][shown["row"]])
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
    means = [mode.predict_proba(iris[0]) for mode in several.modes_]
    assert found["modes"].value == pytest.approx(np.ptp(means, axis=0).mean())
    assert f"over 150 rows; the largest of these is {np.ptp(means, axis=0).max():.3g}" in (
        found["modes"].says
    )
    assert found["modes"].figure.endswith(" in probability")
    assert several.check_convergence()["modes"] == found["modes"], "at the rows that are kept"
    assert "largest mean prediction of 3 modes" in found["modes"].says
    worst = float(found.quantities["r_hat"]["prediction"])
    assert f"(largest R-hat of predictions: {worst:.3g})" in found["modes"].says
    assert found.quantities.loc["prediction", "r_hat"] > 1.05
    worst = max(mode.check_convergence()["elbo"].verdict == "failed" for mode in several.modes_)
    assert (found["elbo"].verdict == "failed") == worst
    assert found.held_out is not None


def test_each_mode_has_its_share_of_the_draws_on_average():
    """Of three draws, a mode of weight w has 3 w rounded down or up."""
    weights = np.array([0.5, 0.3, 0.2])
    counts = np.array([mode_counts(weights, 3, np.random.RandomState(n)) for n in range(400)])
    assert (counts.sum(axis=1) == 3).all()
    assert (np.abs(counts - 3 * weights) < 1).all()
    error = counts.std(axis=0) / np.sqrt(len(counts))
    assert (np.abs(counts.mean(axis=0) - 3 * weights) < 4 * error).all()


@pytest.mark.parametrize("kind", ["number", "count", "time"])
def test_modes_differ_in_the_units_of_their_predictions(kind):
    X = np.random.default_rng(0).normal(size=(150, 3))
    raised = 1.0 + (X[:, 0] > 0)
    settings = {"max_depth": 1, "n_modes": 2, "inference": Svi(epochs=20), "random_state": 0}
    for scale in (1.0, 1000.0):  # of y, of exposures, and of times
        if kind == "number":
            y = scale * (raised + 0.3 * np.random.default_rng(1).normal(size=150))
            fitted = ConvexPolytopeTreeRegressor(**settings).fit(X, y)
            unit, means = "units of y", [mode.predict(X) for mode in fitted.modes_]
        elif kind == "count":
            exposure = np.full(150, scale)
            y = np.column_stack((np.random.default_rng(1).poisson(3 * raised), exposure))
            fitted = ConvexPolytopeTreeRegressor(**settings, leaf="poisson").fit(X, y)
            unit = "events per unit of exposure"
            means = [mode.predict(X) for mode in fitted.modes_]
        else:
            y = scale * np.random.default_rng(1).exponential(raised)
            fitted = ConvexPolytopeTreeSurvival(**settings).fit(X, y)
            unit = f"in the probability of survival to {y.mean():.4g}"
            means = [m.predict_survival_function(X, [y.mean()]) for m in fitted.modes_]
        found = fitted.check_convergence(X)
        assert found["modes"].unit == unit
        np.testing.assert_allclose(found["modes"].value, np.ptp(means, axis=0).mean(), rtol=1e-6)
        assert "prediction" in found.quantities.index, "rates vary in any unit of time"


def coin(heads, tails, weight, seed, draws=4000):
    """Weighted log-likelihood of 9 heads and 3 tails under draws of a posterior; exact scores.

    Modes differ in their prior, Beta(heads, tails). All copies of a row are left out with it.
    """
    y = np.repeat([1, 0], [9, 3])
    after = heads + 9 * weight, tails + 3 * weight
    theta = np.random.default_rng(seed).beta(*after, (1, draws, 1))
    others = np.column_stack((after[0] - weight * y, after[1] - weight * (1 - y)))
    exact = betaln(*after) - betaln(*others.T)
    terms = weight * np.log(np.where(y, theta, 1 - theta))
    terms = xr.DataArray(terms, dims=("chain", "draw", "row"))
    return terms.assign_coords(chain=[0], draw=np.arange(draws)), exact


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_leave_one_out_of_the_draws_is_that_of_the_mixture(weight):
    weights = np.array([0.5, 0.3, 0.2])
    coins = [coin(*prior, weight, seed=n) for n, prior in enumerate([(1, 1), (30, 3), (3, 30)])]
    each, exact = zip(*coins, strict=True)
    made = MixedContainer(None, [], weights, [], None, np.full(12, weight), [], 1, None)
    drawn = MixedDraws.of(weights, [4000] * 3, 12_000, np.random.RandomState(0))
    posterior = xr.Dataset({"p": (("chain", "draw"), np.zeros((1, 12_000)))})
    likelihood = drawn.dataset(made._mixed_likelihood(each))
    groups = {"posterior": posterior, "log_likelihood": likelihood}
    found = arviz_compat.arviz().loo(arviz_compat.container(groups, {}), pointwise=True)
    terms = found.elpd_i if arviz_compat.major_version() else found.loo_i
    # the predictions of a copy, whose logarithms are multiplied by the number of copies
    expected = weight * np.log(weights @ np.exp(np.array(exact) / weight))
    np.testing.assert_allclose(terms, expected, atol=0.02 * weight)


def test_nodes_of_the_container_are_those_of_the_printed_tree(iris):
    """Each draw of equal modes is there once, so that means are those of ``split_uncertainty``."""
    clf = ConvexPolytopeTreeClassifier(
        inference=Vi(n_steps=20, n_draws=10, n_sweeps=5), n_modes=3, mode_weights="equal",
        max_depth=1, random_state=0,
    ).fit(*iris)  # fmt: skip
    found = group(clf.to_arviz(), "posterior")
    assert found.sizes["draw"] == 100
    n_rows = found.sizes["point"]
    at = np.sort(
        spread_rows(clf.fitted_.shown.scaling.standardise(clf.fitted_.shown.sample), n_rows)
    )
    sides = clf.split_uncertainty(clf.fitted_.shown.sample[at])
    assert found["alike"].all()
    right = found["p_right"].to_numpy()[0, :, 0]
    # 100 draws of 30 hold each of them three or four times
    np.testing.assert_allclose(right.mean(axis=0), sides.mean[:, 0], atol=0.03)
    weight = found["weight"].to_numpy()
    assert (np.diff(weight, axis=-1) <= 0).all()
    assert (weight > 0).all()
    np.testing.assert_allclose(
        found["effective"], weight.sum(axis=-1) ** 2 / (weight**2).sum(axis=-1)
    )
    prior = group(clf.to_arviz(), "prior")
    assert {"p_right", "facets", "weight", "effective"} < set(prior)


def test_facets_of_the_container_are_counted_over_the_rows_of_a_node(iris):
    clf = ConvexPolytopeTreeClassifier(
        inference=Vi(n_steps=20, n_draws=10), n_modes=2, mode_weights="equal", max_depth=2,
        random_state=0,
    ).fit(*iris)  # fmt: skip
    sample = clf.fitted_.shown.sample
    right, reached = sides_of(clf.tree_, sample)
    assert 0 < reached[:, 1].sum() < len(sample)
    expected = []
    for tree in clf.fitted_.trees:
        X, draws = tree.scaling.standardise(sample), tree.posterior.draws
        own = match(draws, X, right, reached).of_nodes(draws)
        activation = np.moveaxis(own["hyperplane"] @ X.T, -1, 0) + own["intercept"]
        beyond = np.exp(own["log_weight"]) * np.logaddexp(0.0, activation) > np.log(2)
        alone = beyond & (beyond.sum(axis=-1, keepdims=True) == 1)
        share = np.einsum("ncdvk,nv->cdvk", alone, reached / reached.sum(axis=0))
        expected.append((share > 0.0099).sum(axis=-1).mean(axis=(0, 1)))
    found = group(clf.to_arviz(), "posterior")["facets"]  # which has each draw five times
    np.testing.assert_allclose(found.mean(("chain", "draw")), np.mean(expected, axis=0))


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
        several.loo(*iris, method="psis")


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
    assert str(found).startswith("3-fold cross-validation, 60 rows")


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
    assert found["modes"].says.startswith("mode 2 has nearly all of the weight")
    assert found["modes"].value == 0
    assert found["elbo"].says.startswith("mode 2: ")


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


def test_the_posterior_of_a_mixture_is_not_replaced(several):
    with pytest.raises(AttributeError, match="mixture of 3 trees: set it on one of modes_"):
        several.posterior_ = several.modes_[1].posterior_
    one = several.modes_[0]
    one.posterior_ = several.modes_[1].posterior_
    assert one.posterior_ is several.modes_[1].posterior_
    assert one.tree_ is several.modes_[0].tree_
