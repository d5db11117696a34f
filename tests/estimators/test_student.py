"""Regressors with Student-t leaves: rows with outliers, and everything that reads a fitted tree."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.base import clone

from bayestree import ConvexPolytopeTreeRegressor, export_text, load
from bayestree.inference import Nuts, Svi
from bayestree.inference.pointwise import log_likelihood


def planted(n, seed, share=0.05):
    """A step of 2 on one side of a line with noise of 0.3, and outliers of up to 100."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + X[:, 1] > 0.2, 2.0, 0.0) + 0.3 * rng.normal(size=n)
    wrong = rng.random(n) < share
    y[wrong] = rng.uniform(-100, 100, wrong.sum())
    return X, y


def tree(**settings):
    return ConvexPolytopeTreeRegressor(
        **{
            "leaf": "student",
            "max_depth": 1,
            "n_experts": 1,
            "inference": Svi(epochs=60, n_draws=20),
            "random_state": 0,
        }
        | {"n_modes": 1}
        | settings
    )


@pytest.fixture(scope="module")
def rows():
    return planted(400, 0)


@pytest.fixture(scope="module")
def fitted(rows):
    return tree().fit(*rows)


def log_score(fit, X, y):
    posterior = fit.posterior_
    terms = log_likelihood(posterior.model, posterior.each(), fit.training_data(X, y))
    return logsumexp(terms, axis=0) - np.log(len(terms)) - np.log(fit.fitted_.scaling.units.y_scale)


@pytest.mark.portable
def test_outliers_cost_little(rows, fitted):
    """On rows without outliers, against leaves of normal distributions."""
    X, y = planted(2000, 1, share=0.0)
    normal = clone(fitted).set_params(leaf="constant", max_depth=4, min_gain=1.0).fit(*rows)
    own, other = (np.sqrt(np.mean((one.predict(X) - y) ** 2)) for one in (fitted, normal))
    # the noise of 0.3, and a soft border at which up to 10 % of the rows miss their side by 2;
    # a mean of 20 rows, one of which is an outlier of 60, is wrong by 3
    assert own < 0.7 < other
    gain = log_score(fitted, X, y) - log_score(normal, X, y)
    assert gain.mean() > 1 + 4 * gain.std() / np.sqrt(len(gain))
    assert np.sort(fitted.tree_.value) == pytest.approx([0, 2], abs=0.2)


def test_intervals_cover_the_rows_and_their_outliers(rows, fitted):
    X, y = planted(500, 2)
    low, high = fitted.predict_interval(X, 0.8)
    # four binomial errors of 0.018, and tails of y that are not those of a t
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.8, abs=0.1)


def test_files_draws_and_diagnostics(rows, fitted, tmp_path, any_k):
    X, y = rows
    fitted.save(tmp_path / "robust.safetensors")
    restored = load(tmp_path / "robust.safetensors")
    np.testing.assert_array_equal(restored.predict(X), fitted.predict(X))
    assert restored.posterior_.model.leaf == fitted.posterior_.model.leaf
    drawn = fitted.sample_posterior_predictive(X[:4], 150, random_state=0)
    low, high = fitted.predict_interval(X[:4], 0.8)
    shares = ((drawn >= low) & (drawn <= high)).mean(0)
    np.testing.assert_allclose(shares, 0.8, atol=4 * 0.4 / np.sqrt(150))
    assert np.isfinite(fitted.loo(X, y, method="psis").elpd)
    uncertain = fitted.split_uncertainty(X[:10])
    leaf, draws = fitted.posterior_.model.leaf, fitted.posterior_.draws
    assert uncertain.mean.shape == (10, 1)
    sd = draws["leaf_scale"] * np.sqrt(leaf.df / (leaf.df - 2))
    np.testing.assert_allclose(fitted.posterior_.described_draws["leaf_scale"], sd)
    assert fitted.to_arviz(X, y)["posterior_predictive"]["obs"].shape[-1] == len(y)
    assert "mean" in export_text(fitted)
    assert len(str(fitted.check_convergence())) > 0


def test_the_posterior_of_nuts_agrees_with_svi(rows, fitted):
    """On one split: location and scale of each leaf, whose sd is 0.3 / sqrt(200) = 0.02."""
    nuts = Nuts(n_chains=1, n_warmup=25, thinning=4, drop_idle=True, n_draws=30)
    sampled = tree(inference=[Svi(epochs=20, n_draws=20), nuts]).fit(*rows)
    models = [fit.posterior_.model.leaf for fit in (fitted, sampled)]
    assert models[0].df == models[1].df
    for name in ("leaf_mean", "leaf_scale"):
        mine, theirs = (fit.posterior_.draws[name].mean((0, 1)) for fit in (fitted, sampled))
        scale = fitted.fitted_.scaling.units.y_scale
        assert np.sort(scale * mine) == pytest.approx(np.sort(scale * theirs), abs=0.06)


def test_one_misprint_of_any_size_counts_for_next_to_nothing():
    """The split between 3 and -2 is found, and the fit does not depend on the size."""
    X, y = planted(200, 3, share=0.0)
    y = np.where(y > 1, 3.0, -2.0) + 0.3 * np.random.default_rng(3).normal(size=200)
    far = np.abs(X[:, 0] + X[:, 1] - 0.2) > 1
    found = []
    for value in (y[3], 1e4, 1e12):
        y[3] = value
        fit = tree(inference=Svi(epochs=8, n_draws=5)).fit(X, y)
        # the noise of 0.3 and the soft border leave a mean of 100 rows an error of about 0.05
        np.testing.assert_allclose(np.sort(fit.tree_.value), [-2, 3], atol=0.2)
        found.append(np.stack((fit.predict(X[far]), *fit.predict_interval(X[far]))))
    clean, first, other = found
    np.testing.assert_allclose(other, first, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(first[0], clean[0], atol=0.3)
    # in leaves that are narrower than a bin, a t with 2.5 degrees of freedom, which the misprint
    # causes, has the scale of a normal: its 95 % quantile is 1.55 times as far away
    assert 0.9 < np.median(first[2] - first[1]) / np.median(clean[2] - clean[1]) < 1.6


def test_values_that_cannot_be_computed_with_are_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match=r"y holds 1e[+]20.*correct or drop"):
        tree().fit(X, np.where(np.arange(len(y)) == 5, 1e20, y))
