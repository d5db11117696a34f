"""``leaf="linear"``: from the fit to everything that reads it."""

import re

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm

import bayestree
from bayestree import ConvexPolytopeTreeRegressor, load
from bayestree._utils import arviz_compat
from bayestree._utils.parameters import ParameterError
from bayestree.inference import Svi
from bayestree.tables import UnusedColumnsWarning

N = 240


def planted(seed=0, n=N):
    """Two regimes with other slopes, a feature without effect, and normal noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] > 0, 2 * X[:, 1], -1.5 * X[:, 1] - 1) + 0.1 * rng.normal(size=n)
    return X, 5 * y + 20


def regressor(**others):
    settings = {
        "max_depth": 1,
        "n_experts": 1,
        "inference": Svi(epochs=40, n_draws=8),
        "n_modes": 1,
    }
    return ConvexPolytopeTreeRegressor(leaf="linear", random_state=0, **settings | others)


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return regressor().fit(X, y), X, y


def by_hand(reg, X):
    """P(leaf | x) and means (draw, n, L) of a stump of one expert, and scales (draw, 1, L)."""
    draws = {name: value[0] for name, value in reg.posterior_.draws.items()}
    rows = (X - reg.fitted_.scaling.units.center) / reg.fitted_.scaling.units.scale
    plane, intercept = draws["hyperplane"][:, 0, 0, :, None], draws["intercept"][:, 0, 0]
    odds = rows @ plane + intercept[:, None, None]  # a single expert has no weight
    odds = reg.posterior_.model.steepness * odds
    mean = draws["leaf_mean"][:, None] + rows @ draws["leaf_slope"].swapaxes(1, 2)
    return expit(np.concatenate((-odds, odds), -1)), mean, draws["leaf_scale"][:, None]


@pytest.mark.portable
def test_both_regimes_are_found(fitted):
    reg, _, _ = fitted
    X, y = planted(1, 2000)
    # Four standard errors of the error of the truth on 2,000 rows are 6 %; rows that the split
    # takes to the other regime cost 3.5 |x_1| sd each, and 2 % of them half of the variance of y.
    assert np.mean((reg.predict(X) - y) ** 2) < 0.05 * y.var()
    assert np.mean((reg.tree_.predict(X) - y) ** 2) < 0.1 * y.var()
    assert reg.tree_.n_leaves == 2
    slope = reg.tree_.slope[np.argsort(reg.tree_.slope[:, 1])]
    # of 120 rows each, with noise 0.5: standard errors of 0.5 / sqrt(120) = 0.05, and strays
    np.testing.assert_allclose(slope[:, 1], [-7.5, 10], atol=1.0)


def test_predictions_average_over_draws_and_leaves(fitted):
    reg, X, _ = fitted
    probs, mean, _ = by_hand(reg, X)
    each = (probs * mean).sum(
        -1
    ) * reg.fitted_.scaling.units.y_scale + reg.fitted_.scaling.units.y_center
    found, sd = reg.predict(X, return_std=True)
    np.testing.assert_allclose(found, each.mean(0), rtol=1e-6)
    np.testing.assert_allclose(sd, each.std(0), rtol=1e-4, atol=1e-5)


def test_intervals_hold_their_level(fitted):
    reg, X, _ = fitted
    probs, mean, scale = by_hand(reg, X)
    for end, level in zip(reg.predict_interval(X, 0.8), (0.1, 0.9), strict=True):
        standard = (reg.fitted_.scaling.units.encode(end)[None, :, None] - mean) / scale
        below = (probs * norm.cdf(standard)).sum(-1).mean(0)
        np.testing.assert_allclose(below, level, atol=1e-5)


def test_groups_of_rows_have_the_density_of_the_mixture(fitted):
    reg, X, y = fitted
    probs, mean, scale = by_hand(reg, X)
    density = norm.logpdf(reg.fitted_.scaling.units.encode(y)[:, None], mean, scale)
    expected = logsumexp(density, axis=-1, b=probs) - np.log(reg.fitted_.scaling.units.y_scale)
    found = reg.to_arviz(X, y)
    np.testing.assert_allclose(found["log_likelihood"]["obs"][0], expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found["observed_data"]["obs"], y)
    assert found["posterior"]["leaf_slope"].dims == ("chain", "draw", "leaf", "feature")
    assert {"prior_predictive", "log_prior"} <= set(arviz_compat.names(found))


def test_draws_of_y_have_the_moments_of_the_mixture(fitted):
    reg, X, _ = fitted
    drawn = reg.sample_posterior_predictive(X[:5], 4000, random_state=0)
    low, high = reg.predict_interval(X[:5], 0.5)
    # a share of one half among 4,000, to within five standard errors
    assert (np.abs(((low <= drawn) & (drawn <= high)).mean(0) - 0.5) < 5 * 0.5 / 4000**0.5).all()


def test_uncertainty_is_that_of_the_predictions(fitted):
    reg, X, _ = fitted
    probs, mean, scale = by_hand(reg, X)
    each = (probs * mean).sum(-1)
    within = (probs * (scale**2 + (mean - each[..., None]) ** 2)).sum(-1).mean(0)
    found = reg.split_uncertainty(X)
    unit = reg.fitted_.scaling.units.y_scale**2
    np.testing.assert_allclose(found.expected_variance, within * unit, rtol=1e-5)
    np.testing.assert_allclose(found.explained, each.var(0) * unit, rtol=1e-4, atol=1e-6)
    shown = reg.label_free(X[:7])["prediction"]
    scaled = reg.fitted_.scaling.units.encode(
        reg.posterior_.predictive(reg.fitted_.scaling.standardise(X[:7]))[0]
    )
    assert shown.shape == (1, 8, 7)
    assert np.isfinite(scaled).all()


def test_a_linear_response_needs_no_split_and_gets_the_ridge_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, -2.0, 0.0] + 0.3 * rng.normal(size=80)
    reg = regressor(inference=Svi(epochs=40, n_draws=1000), min_gain=10).fit(
        X, y
    )  # without a warning of a single leaf
    assert reg.get_n_leaves() == 1
    leaf = reg.posterior_.model.leaf
    rows = np.column_stack((np.ones(80), reg.fitted_.scaling.standardise(X)))
    strengths = np.diag([leaf.strength, *leaf.strengths(3)])
    known = np.linalg.solve(rows.T @ rows + strengths, rows.T @ reg.fitted_.scaling.units.encode(y))
    expected = reg.fitted_.scaling.units.decode(rows @ known)
    kept = [0, *(1 + np.flatnonzero(reg.tree_.slope[0]))]  # a sparse tree leaves others out
    few, own = rows[:, kept], strengths[np.ix_(kept, kept)]
    of_tree = np.linalg.solve(few.T @ few + own, few.T @ reg.fitted_.scaling.units.encode(y))
    decoded = reg.fitted_.scaling.units.decode(few @ of_tree)
    # The tree follows 50 draws of a posterior of three coefficients: four standard errors.
    error = 4 * 0.3 * np.sqrt(3 / 80) / np.sqrt(50)
    np.testing.assert_allclose(reg.tree_.predict(X), decoded, atol=error)
    found, sd = reg.predict(X, return_std=True)
    assert (np.abs(found - expected) < 5 * sd / 1000**0.5).all()


def test_units_of_features_and_of_y_do_not_matter(fitted):
    """Powers of two change no digit."""
    reg, X, y = fitted
    factors = np.array([2.0, 0.25, 1024.0])
    other = regressor().fit(X * factors, 8 * y)
    assert (other.predict(X * factors) == 8 * reg.predict(X)).all()
    np.testing.assert_allclose(other.tree_.slope, 8 * reg.tree_.slope / factors, rtol=1e-12)


def test_predictions_far_away_are_linear_and_finite(fitted):
    """Doubling the distance at most doubles what a leaf adds to its mean."""
    reg, X, _ = fitted
    center, step = (
        reg.fitted_.scaling.units.center,
        X[:20] - reg.fitted_.scaling.units.center,
    )
    far, farther = (reg.tree_.predict(center + k * step) for k in (1000, 2000))
    steep = np.abs(reg.tree_.slope * reg.fitted_.scaling.units.scale).max(0)
    limit = 2000 * (np.abs(step / reg.fitted_.scaling.units.scale) * steep).sum(1)
    assert (
        np.abs(farther - reg.fitted_.scaling.units.y_center)
        <= limit + 10 * reg.fitted_.scaling.units.y_scale
    ).all()
    assert np.isfinite(far).all()
    assert np.isfinite(reg.predict(center + 1000 * step)).all()


def test_ignored_columns_have_no_slope(fitted):
    reg, X, y = fitted
    wide = np.column_stack((X, np.full(N, 3.0), X[:, 0]))
    with pytest.warns(UnusedColumnsWarning):
        other = regressor().fit(wide, y)
    np.testing.assert_allclose(other.predict(wide), reg.predict(X), rtol=1e-9)
    assert (other.posterior_.draws["leaf_slope"][..., 3:] == 0).all()
    np.testing.assert_allclose(other.tree_.slope[:, 3:], 0, atol=1e-200)
    lp = [one.to_arviz(rows, y)["sample_stats"]["lp"] for one, rows in ((reg, X), (other, wide))]
    np.testing.assert_allclose(*lp, rtol=1e-10)


def test_files_keep_linear_leaves(fitted, tmp_path):
    reg, X, _ = fitted
    reg.save(tmp_path / "linear.safetensors")
    other = load(tmp_path / "linear.safetensors")
    assert other.posterior_.model == reg.posterior_.model
    assert (other.predict(X) == reg.predict(X)).all()
    assert (other.tree_.predict(X) == reg.tree_.predict(X)).all()


def test_texts_show_the_strongest_slopes(fitted):
    reg, _, _ = fitted
    text = bayestree.export_text(reg, max_features=1)
    assert len(re.findall(r"mean = [-\d.]+ [+-] [\d.]+ x1\b", text)) == 2
    assert '"slope"' in bayestree.export_json(reg)


def test_modes_and_warm_starts(fitted):
    _, X, y = fitted
    reg = regressor(n_modes=2, inference=Svi(epochs=10, n_draws=8)).fit(X, y)
    each = [mode.predict(X) for mode in reg.modes_]
    np.testing.assert_allclose(reg.predict(X), np.average(each, axis=0, weights=reg.mode_weights_))
    again = regressor(warm_start=True, inference=Svi(epochs=10, n_draws=8)).fit(X, y).fit(X, y)
    assert again.tree_.slope.shape == (2, 3)


def test_single_precision_is_refused():
    X, y = planted(n=60)
    with pytest.raises(ParameterError, match="double precision"):
        regressor(dtype="float32").fit(X, y)


def test_of_many_features_those_that_matter_have_slopes():
    X = np.random.default_rng(0).normal(size=(90, 60))
    reg = regressor().fit(X, X[:, 0] + 0.01 * X[:, 1])
    assert np.flatnonzero(np.abs(reg.tree_.slope).max(0) > 0.1).tolist() == [0]
