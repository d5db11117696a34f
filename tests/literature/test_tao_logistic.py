"""Weighted logistic regression under l1 and l2."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from bayestree.literature.tao_solvers import fit_logistic


def rows(m=80, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    right = X @ rng.normal(size=d) + rng.normal(size=m) > 0.3
    return X, right, rng.uniform(0.2, 3, m)


def gradient(X, right, weight, fit):
    residual = weight * (expit(X @ fit.hyperplane + fit.intercept) - right)
    return X.T @ residual, residual.sum()


def value(X, right, weight, split, *, l1=0.0, l2=0.0):
    w, b = split
    margin = np.where(right, 1, -1) * (X @ w + b)
    return weight @ np.logaddexp(0, -margin) + l1 * np.abs(w).sum() + l2 / 2 * (w @ w)


@pytest.mark.parametrize("shape", [(80, 6), (10, 30)])
def test_ridge_agrees_with_scipy(shape):
    X, right, weight = rows(*shape)
    fit = fit_logistic(X, right, weight, l2=0.5, tolerance=1e-12)

    def objective(p):
        return value(X, right, weight, (p[:-1], p[-1]), l2=0.5)

    best = minimize(objective, np.zeros(shape[1] + 1), tol=1e-12)
    assert value(X, right, weight, fit, l2=0.5) == pytest.approx(best.fun, rel=1e-7)
    np.testing.assert_allclose(fit.hyperplane, best.x[:-1], atol=1e-3)


@pytest.mark.parametrize("l1", [0.5, 3.0, 12.0])
@pytest.mark.parametrize("shape", [(80, 6), (40, 100)])
def test_l1_meets_the_conditions_of_optimality(l1, shape):
    X, right, weight = rows(*shape)
    fit = fit_logistic(X, right, weight, l1=l1, tolerance=1e-10)
    slope, total = gradient(X, right, weight, fit)
    used = fit.hyperplane != 0
    assert used.any()
    np.testing.assert_allclose(slope[used], -l1 * np.sign(fit.hyperplane[used]), atol=0.02 * l1)
    assert np.abs(slope[~used]).max(initial=0) <= 1.02 * l1
    assert total == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_the_unit_of_the_weights_is_irrelevant(penalty):
    X, right, weight = rows()
    once = fit_logistic(X, right, weight, **{penalty: 0.5})
    small = fit_logistic(X, right, 2.0**-30 * weight, **{penalty: 2.0**-30 * 0.5})
    np.testing.assert_allclose(small.hyperplane, once.hyperplane, rtol=1e-6)


def test_a_large_penalty_leaves_the_log_odds_of_the_weights():
    X, right, weight = rows()
    fit = fit_logistic(X, right, weight, l1=1e4)
    assert not fit.hyperplane.any()
    odds = weight[right].sum() / weight[~right].sum()
    assert fit.intercept == pytest.approx(np.log(odds))


def test_weights_are_repeats():
    X, right, _ = rows()
    count = np.random.default_rng(1).integers(1, 4, len(X))
    once = fit_logistic(X, right, count.astype(float), l1=2.0, tolerance=1e-10)
    place = np.repeat(np.arange(len(X)), count)
    often = fit_logistic(X[place], right[place], np.ones(len(place)), l1=2.0, tolerance=1e-10)
    np.testing.assert_allclose(once.hyperplane, often.hyperplane, atol=1e-4)


@pytest.mark.parametrize("penalty", [{"l1": 2.0}, {"l2": 0.5}])
def test_a_warm_start_ends_at_the_same_place(penalty):
    X, right, weight = rows()
    cold = fit_logistic(X, right, weight, tolerance=1e-10, **penalty)
    far = (10 * np.ones(6), -50.0)
    near = (cold.hyperplane, cold.intercept)
    for start in (far, near):
        warm = fit_logistic(X, right, weight, start=start, tolerance=1e-10, **penalty)
        assert value(X, right, weight, warm, **penalty) == pytest.approx(
            value(X, right, weight, cold, **penalty), rel=1e-8
        )


def test_separable_rows_and_constant_columns_are_no_trouble():
    X = np.column_stack([np.linspace(-1, 1, 30), np.ones(30), np.zeros(30)])
    right = X[:, 0] > 0.3
    for penalty in ({"l1": 0.01}, {"l2": 0.01}):
        fit = fit_logistic(X, right, np.ones(30), **penalty)
        assert np.isfinite(fit.hyperplane).all()
        np.testing.assert_array_equal(X @ fit.hyperplane + fit.intercept > 0, right)


@pytest.mark.parametrize("penalty", [{"l1": 2.0}, {"l2": 0.01}])
def test_indicators_that_add_up_to_one_are_no_trouble(penalty):
    level = np.random.default_rng(0).integers(0, 3, (400, 12))
    X = (level[:, :, None] == np.arange(3)).reshape(400, 36).astype(float)
    right = (level[:, :4].sum(axis=1) > 4) ^ (np.random.default_rng(1).random(400) < 0.1)
    double, single = (
        fit_logistic(rows, right, np.ones(400), tolerance=1e-9, **penalty)
        for rows in (X, X.astype(np.float32))
    )
    assert value(X, right, np.ones(400), single, **penalty) == pytest.approx(
        value(X, right, np.ones(400), double, **penalty), rel=1e-4
    )
    slope, _ = gradient(X, right, np.ones(400), double)
    slope += penalty.get("l2", 0.0) * double.hyperplane
    assert np.abs(slope).max() <= 1.02 * penalty.get("l1", 0.01)


@pytest.mark.parametrize("l1", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("n_rows", [12, 40])
def test_fewer_rows_than_features(n_rows, l1):
    X, weight = np.random.default_rng(n_rows).normal(size=(n_rows, 150)), np.ones(n_rows)
    X[:, ::2] = np.maximum(X[:, ::2], 1.0) - 1.0
    right = np.arange(n_rows) % 3 == 0
    fit = fit_logistic(X, right, weight, l1=l1, tolerance=1e-9)
    slope, of_intercept = gradient(X, right, weight, fit)
    used = fit.hyperplane != 0
    assert 0 < used.sum() <= n_rows
    np.testing.assert_allclose(slope[used], -l1 * np.sign(fit.hyperplane[used]), rtol=0.02)
    assert np.abs(slope[~used]).max() <= 1.02 * l1
    assert of_intercept == pytest.approx(0, abs=0.02 * l1)


def test_sparse_rows_under_a_small_penalty():
    X = np.random.default_rng(7).normal(size=(60, 200))
    X[X <= 1] = 0.0
    right, weight = np.arange(60) % 2 == 0, np.ones(60)
    fit = fit_logistic(X, right, weight, l1=0.005, tolerance=1e-9)
    slope, _ = gradient(X, right, weight, fit)
    assert np.abs(slope).max() <= 1.02 * 0.005


@pytest.mark.parametrize("penalty", [{"l1": 1.0}, {"l2": 1.0}])
@pytest.mark.parametrize("heavy", [True, False])
def test_a_side_that_weighs_next_to_nothing(heavy, penalty):
    X = np.linspace(-1, 1, 20)[:, None]
    right = X[:, 0] > 0
    weight = np.where(right == heavy, 1.0, 1e-30)
    fit = fit_logistic(X, right, weight, **penalty)
    assert np.isfinite([*fit.hyperplane, fit.intercept]).all()
    assert (fit.intercept > 0) == heavy


def test_single_precision_rows():
    X, right, weight = rows(200, 20)
    double = fit_logistic(X, right, weight, l1=1.0)
    single = fit_logistic(X.astype(np.float32), right, weight, l1=1.0)
    assert value(X, right, weight, single, l1=1.0) == pytest.approx(
        value(X, right, weight, double, l1=1.0), rel=1e-3
    )
