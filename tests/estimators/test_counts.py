"""Regressors with Poisson leaves: rates, exposures, and everything that reads a fitted tree."""

import copy
import inspect
from functools import partial

import numpy as np
import pytest
from scipy.stats import poisson
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import cross_val_score

from bayestree import (
    ConvexPolytopeTreeRegressor,
    EndToEndTreeRegressor,
    export_json,
    export_text,
    load,
)
from bayestree._utils.state import draw_seed
from bayestree.inference import Map, Nuts, Svi
from bayestree.report.rows import rows_of

RATES = (0.7, 4.0)
MAP, SVI = Map(epochs=60, steepness=None), Svi(epochs=60, n_draws=20)


def planted(n, seed):
    """Counts whose rate depends on the side of a line, and their exposures."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(n, 3)), rng.gamma(2.0, 1.0, n)
    rate = np.where(X[:, 0] + X[:, 1] > 0.3, RATES[1], RATES[0])
    return X, rng.poisson(rate * exposure), exposure, rate


@pytest.fixture(scope="module")
def rows():
    return planted(500, 0)


def tree(**settings):
    return ConvexPolytopeTreeRegressor(
        **{"leaf": "poisson", "max_depth": 1, "n_experts": 1, "inference": SVI, "random_state": 0}
        | {"n_modes": 1}
        | settings
    )


@pytest.fixture(scope="module")
def fitted(rows):
    X, y, exposure, _ = rows
    return tree().fit(X, y, exposure=exposure)


@pytest.mark.portable
def test_planted_rates_are_found(fitted):
    X, y, exposure, rate = planted(4000, 1)
    # 500 rows: half of them have a mean count of 1.4 or 8, so that a rate has a relative error of
    # 1 / sqrt(250 * 1.4) = 5 % at most; the rest are rows near the border
    found = np.sort(fitted.tree_.value)
    assert found == pytest.approx(RATES, rel=0.25)
    best = mean_poisson_deviance(y, rate * exposure)
    own = mean_poisson_deviance(y, fitted.predict(X, exposure=exposure))
    flat = mean_poisson_deviance(y, exposure * y.sum() / exposure.sum())
    assert own - best < 0.25 * (flat - best)
    # that is the share of the deviance which ``score`` reports
    assert fitted.score(X, np.column_stack([y, exposure])) == pytest.approx(
        1 - own / flat, abs=0.02
    )


def test_exposure_multiplies_predictions(rows, fitted):
    X, y, exposure, _ = rows
    mean, sd = fitted.predict(X, return_std=True)
    scaled, scaled_sd = fitted.predict(X, return_std=True, exposure=exposure)
    assert np.allclose(scaled, mean * exposure)
    assert np.allclose(scaled_sd, sd * exposure)
    low, high = fitted.predict_interval(X, 0.8, exposure=exposure)
    assert (low == np.rint(low)).all()
    assert (high == np.rint(high)).all()
    # at least 0.8 of the rows, and more because counts are whole; four standard errors
    assert ((low <= y) & (y <= high)).mean() > 0.8 - 4 * np.sqrt(0.16 / len(y))
    drawn = fitted.sample_posterior_predictive(X, random_state=0, exposure=exposure)
    error = drawn.sum(axis=1).std() / np.sqrt(len(drawn))
    assert abs(drawn.sum(axis=1).mean() - scaled.sum()) < 5 * error
    assert ((low <= drawn) & (drawn <= high)).mean() > 0.8


def test_both_ends_belong_to_an_interval(rows, fitted):
    X, _, exposure, _ = rows
    low, high = fitted.predict_interval(X, 0.8, exposure=exposure)
    for count, inside in ((low, 1.0), (high, 1.0), (high + 1, 0.0)):
        assert (fitted.in_interval(X, count, 0.8, exposure=exposure) == inside).all()
    positive = low > 0
    below = X[positive], low[positive] - 1
    assert not fitted.in_interval(*below, 0.8, exposure=exposure[positive]).any()


def test_equal_exposures_only_change_the_unit(rows):
    X, y, *_ = rows
    once = tree(inference=MAP).fit(X, y)
    four = tree(inference=MAP).fit(X, y, exposure=np.full(len(y), 4.0))
    assert np.allclose(once.predict(X), 4 * four.predict(X), rtol=1e-3)


def test_y_may_hold_the_exposure(rows, fitted):
    X, y, exposure, _ = rows
    both = np.column_stack([y, exposure])
    again = clone(fitted).fit(X, both)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert fitted.check_convergence(X, both).predictions
    data = fitted.training_data(X, both)
    assert data.y.shape == (len(y), 2)
    found = fitted.to_arviz(X, both, groups=["observed_data", "posterior_predictive"])
    assert (found["observed_data"]["obs"].to_numpy() == y).all()
    drawn = found["posterior_predictive"]["obs"].to_numpy()
    assert np.corrcoef(drawn.mean(axis=(0, 1)), exposure * fitted.predict(X))[0, 1] > 0.9


def test_every_method_that_takes_y_takes_the_exposure(rows, fitted):
    X, y, exposure = (part[:60] for part in rows[:3])
    both = np.column_stack([y, exposure])
    for kind in (ConvexPolytopeTreeRegressor, EndToEndTreeRegressor):
        for name in [name for name in dir(kind) if not name.startswith("_")]:
            if inspect.isfunction(method := getattr(kind, name)):
                known = inspect.signature(method).parameters
                assert "y" not in known or "exposure" in known, name
    for method in (fitted.score, fitted.log_score, fitted.in_interval):
        assert np.array_equal(method(X, list(y), exposure=list(exposure)), method(X, both))
    assert (fitted.training_data(X, y, exposure=exposure).y.numpy() == both).all()
    loss = fitted.importance(X, y, n_repeats=1, exposure=exposure).loss
    assert np.array_equal(loss, fitted.importance(X, both, n_repeats=1).loss)
    assert fitted.loo.__doc__.count("``exposure`` (n,)") == 1
    with pytest.raises(ValueError, match="exposure is given twice"):
        fitted.log_score(X, both, exposure=exposure)
    with pytest.raises(ValueError, match="exposure belongs to y"):
        fitted.check_convergence(X, exposure=exposure)
    with pytest.raises(ValueError, match=r"exposure must have shape \(60,\)"):
        fitted.score(X, y, exposure=exposure[1:])
    with pytest.raises(ValueError, match="leaf='constant' takes y alone"):
        tree(leaf="constant", inference=MAP).fit(X, y).score(X, y, exposure=exposure)


def test_counts_without_the_exposures_that_the_fit_had(rows, fitted, tmp_path):
    X, y = (part[:60] for part in rows[:2])
    fitted.save(tmp_path / "counts.safetensors")
    for one in (fitted, load(tmp_path / "counts.safetensors")):
        for method in (one.score, one.log_score, one.in_interval, one.to_arviz, one.importance):
            with pytest.warns(UserWarning, match="without the exposure of each row, which the fit"):
                method(X, y)
        for method in (one.loo, one.near_optimal_trees, partial(rows_of, one, held_out=True)):
            with pytest.raises(ValueError, match="lacks the exposure of each row, which the fit"):
                method(X, y)
        one.score(X, y, exposure=np.ones(60))  # is meant
    again = copy.copy(fitted).set_params(inference=MAP).fit(X, y)
    again.score(X, y)


def test_scikit_learn_routes_exposures(rows):
    X, y, exposure, _ = rows
    both = np.column_stack([y, exposure])
    estimator = tree(inference=MAP)
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(estimator, X, y, params={"exposure": exposure}, cv=3)
        asked = clone(estimator).set_fit_request(exposure=True).set_score_request(exposure=True)
        assert (cross_val_score(asked, X, y, params={"exposure": exposure}, cv=3) == routed).all()
    assert np.array_equal(routed, cross_val_score(estimator, X, both, cv=3))


def test_a_file_holds_all(rows, fitted, tmp_path):
    X, y, exposure, _ = rows
    fitted.save(tmp_path / "counts.safetensors")
    found = load(tmp_path / "counts.safetensors")
    assert np.array_equal(found.predict(X), fitted.predict(X))
    assert found.tree_.quantity == "rate"
    both = np.column_stack([y, exposure])
    assert found.score(X, both) == fitted.score(X, both)


def test_texts_speak_of_rates(fitted):
    text = export_text(fitted)
    assert "rate" in text
    assert " mean " not in text
    assert '"rate"' in export_json(fitted)


def test_the_uncertainty_of_y_is_that_of_counts(rows, fitted):
    found = fitted.split_uncertainty(rows[0])
    assert np.allclose(found.expected_y, fitted.predict(rows[0]))
    # of Poisson counts, and larger only near the border, where a row may be in either leaf
    assert (found.expected_variance > found.expected_y - 1e-3).all()
    assert np.median(found.expected_variance / found.expected_y) == pytest.approx(1, abs=0.01)


def test_nuts_and_leave_one_out(rows, any_k):
    X, y, exposure = (part[:150] for part in rows[:3])
    nuts = Nuts(n_warmup=40, n_chains=1, thinning=4, drop_idle=True, n_draws=40)
    found = tree(inference=[SVI, nuts]).fit(X, y, exposure=exposure)
    loo = found.loo(X, np.column_stack([y, exposure]))
    lost = found.loo(X, np.column_stack([y, exposure[::-1]]))
    assert loo.elpd > lost.elpd + 10  # with the exposures of other rows


def test_several_modes_are_mixed(rows):
    X, y, exposure, _ = rows
    found = tree(n_modes=2, inference=Svi(epochs=5, n_draws=5)).fit(X, y, exposure=exposure)
    assert found.sample_posterior_predictive(X, 7, exposure=exposure).shape == (7, len(y))
    low, high = found.predict_interval(X, exposure=exposure)
    assert (low <= high).all()


@pytest.mark.parametrize(
    ("y", "exposure", "message"),
    [
        (-1.0, 1.0, "counts, whole numbers of 0 or more.*got -1"),
        (0.5, 1.0, "counts, whole numbers of 0 or more.*got 0.5"),
        (1.0, 0.0, "exposure must be positive, got 0"),
        (1.0, -2.0, "exposure must be positive, got -2"),
        (1.0, np.nan, "exposure contains NaN"),
        (1.0, np.inf, "exposure contains infinity"),
    ],
)
def test_invalid_rows_are_refused(y, exposure, message):
    X = np.arange(6.0)[:, None]
    counts, times = np.ones(6), np.ones(6)
    counts[3], times[3] = y, exposure
    with pytest.raises(ValueError, match=message):
        tree().fit(X, counts, exposure=times)


def test_exposures_of_another_shape_or_family_are_refused(fitted):
    X = np.arange(12.0).reshape(4, 3)
    with pytest.raises(ValueError, match=r"exposure must have shape \(4,\)"):
        tree().fit(X, np.ones(4), exposure=np.ones(3))
    with pytest.raises(ValueError, match=r"exposure must have shape \(4,\)"):
        fitted.predict(X, exposure=np.ones((4, 1)))
    with pytest.raises(ValueError, match="leaf='constant' takes y alone"):
        tree(leaf="constant").fit(X, np.ones(4), exposure=np.ones(4))


def test_an_exposure_is_one_number_for_each_row_given_once(rows):
    X, y, exposure, _ = rows
    with pytest.raises(ValueError, match=r"exposure must have shape \(500,\).* got \(\)"):
        tree().fit(X, y, exposure=2.0)
    both = np.column_stack([y, exposure])
    with pytest.raises(ValueError, match="exposure is given twice"):
        tree().fit(X, both, exposure=exposure)
    with pytest.raises(ValueError, match="leaf must be 'auto' or 'constant'"):
        tree(leaf="counts").fit(X, both)


def test_counts_of_other_methods_are_checked_as_by_fit(rows, fitted):
    X, y, exposure, _ = (part[:20] for part in rows)
    both = np.column_stack([y, exposure])
    for wrong, message in (
        (-both, "got -"),
        (both + np.array([0.5, 0]), "counts, whole"),
        (both * [1, 0], "positive"),
    ):
        for method in (fitted.loo, fitted.importance, fitted.to_arviz, fitted.training_data):
            with pytest.raises(ValueError, match=message):
                method(X, wrong)


def test_text_is_refused_by_its_name(rows, fitted):
    X, y = rows[0][:20], rows[1][:20]
    text = np.array(["a"] * 20, dtype=object)
    with pytest.raises(ValueError, match="exposure must hold numbers, got text such as 'a'"):
        fitted.predict(X, exposure=text)
    with pytest.raises(ValueError, match="exposure, the second column of y, must hold numbers"):
        fitted.loo(X, np.column_stack([y.astype(object), text]))


def test_a_constant_rate_has_the_score_that_a_constant_y_has(rows, fitted):
    X = rows[0][:20]
    assert fitted.score(X, np.full(20, 3), exposure=np.ones(20)) == 0
    assert np.isnan(fitted.score(X[:1], [3], exposure=[1]))


def test_rows_without_events_are_fitted():
    X = np.random.default_rng(0).normal(size=(40, 2))
    found = tree(inference=MAP).fit(X, np.zeros(40))
    assert (found.predict(X) > 0).all()
    assert (found.predict(X) < 0.1).all()


@pytest.mark.parametrize("prediction", ["posterior", "tree"])
def test_importance_counts_events_for_their_exposures(rows, fitted, prediction):
    """The loss is that of the log score, and the third column has no part in the rates."""
    X, y, exposure, _ = rows
    one = copy.copy(fitted).set_params(prediction=prediction)
    found = one.importance(X, np.column_stack([y, exposure]), n_repeats=1)
    loss = found.loss
    assert loss[:2].min() > 0.2 > abs(loss[2])
    alone = one.importance(X, y, n_repeats=1, exposure=np.ones(len(y))).loss
    assert abs(alone - loss).max() > 0.05
    if prediction == "tree":
        order = np.random.RandomState(draw_seed(0)).permutation(len(X))
        moved = X.copy()
        moved[:, 0] = X[order, 0]
        scores = [poisson(one.predict(Z, exposure=exposure)).logpmf(y).mean() for Z in (X, moved)]
        assert loss[0] == pytest.approx(scores[0] - scores[1])
