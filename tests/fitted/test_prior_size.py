"""The prior predictive distribution of the number of facets."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndTreeClassifier,
)
from bayestree.diagnostics import polytope_size
from bayestree.inference import Svi
from bayestree.models import InverseGammaScale
from bayestree.models.priors import width_scale

N_DRAWS = 400


def rows_of(d, *, correlation=0.0, n=400):
    """Normal rows; neighbouring columns have the correlation (AR(1))."""
    noise = np.random.default_rng(1).normal(size=(n, d))
    X = noise.copy()
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * noise[:, j]
    return X


def simulated(X, estimator, n_draws=N_DRAWS):
    """The number by direct simulation of the prior with NumPy, in the units of the fit."""
    rng, d, K = np.random.default_rng(2), X.shape[1], estimator._before_rows().n_experts
    rows = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), np.ptp(X, axis=0) / 6)
    prior, weight = estimator._before_rows().prior, estimator._before_rows().weight_prior
    a, s = prior.shape, 1.0
    if prior.width is not None:
        s = (prior.width / d) ** max(0.5, 1 / (2 * a))

    def log_gamma(shape, rate):
        # Gamma(shape) = Gamma(shape + 1) U^(1 / shape), whose logarithm does not underflow
        draws = rng.standard_gamma(shape + 1, (n_draws, K)), rng.random((n_draws, K))
        return np.log(draws[0]) + np.log(draws[1]) / shape - np.log(rate)

    b = np.exp(log_gamma(prior.shrinkage_shape, prior.shrinkage_rate))
    precision = rng.gamma(a, 1.0, (n_draws, K, d + 1)) / b[..., None]
    coefficient = rng.normal(size=precision.shape) / np.sqrt(precision)
    draws = {
        "log_weight": log_gamma(weight.concentration / K, weight.rate),
        "hyperplane": s * coefficient[..., :-1],
        "intercept": coefficient[..., -1],
    }
    draws = {site: values[None, :, None] for site, values in draws.items()}
    found = polytope_size(draws, rows, [np.arange(len(rows))], max_draws=n_draws)
    return found.cutting.ravel()


def standard_error(*samples):
    return np.sqrt(sum(sample.var() / len(sample) for sample in samples))


@pytest.mark.portable
@pytest.mark.parametrize("kind", [ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor])
@pytest.mark.parametrize("prior", ["inverse-gamma", InverseGammaScale(0.5, width=10.0)])
def test_direct_simulation(kind, prior):
    X, estimator = rows_of(5), kind(prior=prior)
    found = estimator.prior_size(X, n_draws=N_DRAWS).cutting.ravel()
    expected = simulated(X, estimator)
    assert abs(found.mean() - expected.mean()) < 4 * standard_error(found, expected)
    tables = [np.bincount(np.minimum(counts, 3), minlength=4) for counts in (found, expected)]
    assert stats.chi2_contingency(tables).pvalue > 1e-4


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("kind", [ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor])
def test_the_prior_hardly_depends_on_the_number_of_features(kind, correlation):
    """Equal for 10 and 30 features; for 2, closer to these than without the scale.

    In the plane, facets are more often redundant: a few of them exclude the whole box.
    """

    def counts(d, **options):
        X = rows_of(d, correlation=correlation)
        return kind(**options).prior_size(X, n_draws=N_DRAWS).cutting.ravel()

    usual = kind()._before_rows().prior
    two, ten, thirty = (counts(d, prior=replace(usual, width=10)) for d in (2, 10, 30))
    assert abs(thirty.mean() - ten.mean()) < 4 * standard_error(thirty, ten)
    without = counts(2)
    assert abs(two.mean() - ten.mean()) < abs(without.mean() - ten.mean())


def test_the_scale_is_1_at_the_reference():
    assert width_scale(10, 10.0, 0.5) == 1.0
    assert width_scale(100, 10.0, 0.5) == pytest.approx(0.1)
    assert width_scale(1000, 10.0, 2.0) == pytest.approx(0.1)
    assert width_scale(20, 10.0, 0.25) == pytest.approx(0.25)


@pytest.mark.portable
@pytest.mark.parametrize("shape", [0.5, 2.0])
def test_the_spread_of_an_activation_does_not_depend_on_the_width(shape):
    """The median of |beta . x| over prior draws, for 20 and for 200 columns.

    Its logarithm has the standard error pi / 2 / sqrt(n) for Cauchy variables, 0.025 here.
    """
    rng, n = np.random.default_rng(0), 4000
    medians = []
    for d in (20, 200):
        beta = width_scale(d, 10.0, shape) * rng.standard_t(2 * shape, (n, d))
        medians.append(np.median(np.abs((beta * rng.normal(size=(n, d))).sum(axis=1))))
    assert abs(np.log(medians[1] / medians[0])) < 4 * np.sqrt(2) * 0.025


def test_before_and_after_a_fit():
    X = pd.DataFrame(rows_of(3, n=120), columns=["a", "b", "c"])
    X["same"] = 1.0
    y = (X["a"] > 0).astype(int)
    options = {"inference": Svi(epochs=5), "max_depth": 1, "random_state": 0}
    estimator = ConvexPolytopeTreeClassifier(prior=InverseGammaScale(0.5, width=10), **options)
    with pytest.warns(UserWarning, match="constant"):
        before = estimator.prior_size(X, n_draws=20)
    assert not hasattr(estimator, "n_features_in_")
    with pytest.warns(UserWarning, match="constant"):
        estimator.fit(X, y)
    prior = estimator.posterior_.model.priors.hyperplane
    assert isinstance(prior, InverseGammaScale)
    assert prior.coefficient_scale == width_scale(3, 10, 0.5)
    after = estimator.prior_size(X, n_draws=20)
    np.testing.assert_array_equal(before.cutting, after.cutting)
    assert after.labels == ("root",)
    other = estimator.prior_size(X, n_draws=20, random_state=1)
    assert (other.effective != after.effective).any()
    some = estimator.prior_size(X[:40], n_draws=20)
    assert some.rows.item() == 40


def test_improper_priors_are_refused():
    with pytest.raises(ValueError, match="no draws from improper priors"):
        ConvexPolytopeTreeClassifier(prior="flat").prior_size(rows_of(2))
    with pytest.raises(ValueError, match="no draws from improper priors"):
        EndToEndTreeClassifier().prior_size(rows_of(2))
