"""Scores of left-out rows: which method is chosen, and what the refits are."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import bayestree as bt
from bayestree._utils.arrays import split_rows
from bayestree.fitted import left_out
from bayestree.inference import Map, Nuts, Svi

QUICK = {"max_depth": 1, "n_experts": 2, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice(["u", "v"], 60)})
    return X, np.where(X["a"] + 0.3 * rng.normal(size=60) > 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted(rows):
    return bt.ConvexPolytopeTreeClassifier(n_modes=2, **QUICK).fit(*rows)


def test_a_variational_fit_is_refitted_without_each_fold(rows, fitted):
    X, y = rows
    found = fitted.loo(X, y, n_folds=2)
    assert (found.n_folds, found.n_draws) == (2, 100)
    assert "Chosen because the draws of a variational fit" in str(found)
    # whole fits, with the sparse projection that the refits leave out
    for train, held in split_rows(60, y, 2, 0):
        again = clone(fitted).fit(X.iloc[train], y[train])
        np.testing.assert_allclose(found.elpd_row[held], again.log_score(X.iloc[held], y[held]))
    given = fitted.loo(X, y, method="kfold", n_folds=2)
    assert given.reason == ""
    np.testing.assert_array_equal(given.elpd_row, found.elpd_row)


def test_refits_and_scores_keep_the_weights(rows):
    X, y = rows
    weights = np.where(y == "yes", 3.0, 1.0)
    clf = bt.ConvexPolytopeTreeClassifier(inference="grow", **QUICK).fit(X, y, weights)
    found = clf.loo(X, y, weights, n_folds=2)
    for train, held in split_rows(60, y, 2, 0):
        again = clone(clf).fit(X.iloc[train], y[train], weights[train])
        each = weights[held] * again.log_score(X.iloc[held], y[held])
        np.testing.assert_allclose(found.elpd_row[held], each)


def test_refits_leave_out_what_is_only_shown(rows, fitted):
    changed = left_out._for_predictions(fitted)
    assert changed["inference"] == fitted.plan_.last  # that "auto" selected for all rows
    assert changed["sparsity"] is None
    tree = clone(fitted).set_params(prediction="tree", inference="grow").fit(*rows)
    assert left_out._for_predictions(tree) == {}  # whose tree is scored


def test_folds_of_other_models_are_the_same(rows):
    X, y = rows
    # a fit without a split predicts the share of each class in the training part of the fold
    single = bt.ConvexPolytopeTreeClassifier(inference="grow", min_gain=1e6, **QUICK)
    with pytest.warns(bt.SingleLeafWarning):
        one = single.fit(X, y).loo(X, y, n_folds=3)
    with pytest.warns(bt.SingleLeafWarning):
        other = clone(single).set_params(max_depth=3, random_state=5).fit(X, y).loo(X, y, n_folds=3)
    np.testing.assert_array_equal(one.elpd_row, other.elpd_row)
    assert len(np.unique(one.elpd_row)) > 2
    with pytest.raises(ValueError, match=r"it has 2 refits, this has 3; compute both by"):
        one.compare(single.loo(X, y, n_folds=2))


def test_a_sampler_is_reweighted_where_k_is_good(rows, monkeypatch):
    X, y = rows
    nuts = Nuts(n_chains=1, n_warmup=10, thinning=4, drop_idle=True, n_draws=40)
    settings = {"inference": [Svi(epochs=3, n_draws=40), nuts]}
    sampled = bt.ConvexPolytopeTreeClassifier(**QUICK | settings | {"n_experts": 1}).fit(X, y)
    module = sys.modules["bayestree.diagnostics.loo"]
    monkeypatch.setattr(module, "MAX_BAD_SHARE", 1.0)
    found = sampled.loo(X, y)
    n_bad = len(found.bad_rows)
    assert found.n_folds == 0
    assert "Chosen because k is good" in str(found)
    assert sampled.loo(X, y, method="psis").reason == ""
    monkeypatch.setattr(module, "MAX_BAD_SHARE", -1.0)
    found = sampled.loo(X, y, n_folds=2)
    assert found.n_folds == 2
    limit = 0.38  # 1 - 1 / log10(40)
    assert found.reason == f"k is above {limit} for {n_bad} of {len(X)} rows"


def test_as_many_folds_as_the_smallest_class_has_rows(rows):
    X, y = rows
    some = np.concatenate([np.flatnonzero(y == "no"), np.flatnonzero(y == "yes")[:3]])
    X, y = X.iloc[some], y[some]
    clf = bt.ConvexPolytopeTreeClassifier(inference="grow", **QUICK).fit(X, y)
    found = clf.loo(X, y)
    assert found.n_folds == 3
    assert "a point estimate has no draws" in found.reason
    with pytest.raises(ValueError, match="class 'yes' has 3: set n_folds=3"):
        clf.loo(X, y, method="kfold")


def test_rows_of_the_fit_only(rows, fitted):
    X, y = rows
    for method in ("auto", "kfold", "psis"):
        with pytest.raises(ValueError, match="sum to 40, those of the fit to 60"):
            fitted.loo(X[:40], y[:40], method=method)


def test_held_out_rows_are_refitted(rows):
    X, y = rows
    clf = bt.ConvexPolytopeTreeClassifier(inference="grow", validation_fraction=0.3, **QUICK)
    assert "validation_fraction held out" in clf.fit(X, y).loo(X, y, n_folds=2).reason


@pytest.mark.parametrize("kind", ["counts", "outputs", "survival"])
def test_other_responses(rows, kind):
    X, rng = rows[0], np.random.default_rng(1)
    level = 1.0 + (X["a"].to_numpy() > 0)
    make, own = bt.ConvexPolytopeTreeRegressor, {}
    if kind == "counts":
        y, own = np.column_stack([rng.poisson(3 * level), np.full(60, 3.0)]), {"leaf": "poisson"}
    elif kind == "outputs":
        y = np.column_stack([level, -level]) + rng.normal(size=(60, 2))
    else:
        make = bt.ConvexPolytopeTreeSurvival
        y = np.column_stack([rng.exponential(level), rng.random(60) < 0.8])
    fitted = make(inference=Map(epochs=3, steepness=None), n_modes=1, **QUICK, **own).fit(X, y)
    found = fitted.loo(X, y, n_folds=2)
    assert np.isfinite(found.elpd_row).all()
    assert found.p_loo == pytest.approx((found.fitted_row - found.elpd_row).sum())


def test_processes_give_the_same_scores(rows):
    X, y = rows
    clf = bt.ConvexPolytopeTreeClassifier(inference="grow", **QUICK).fit(X, y)
    one, other = (clf.loo(X, y, n_folds=2, n_jobs=n_jobs) for n_jobs in (None, 2))
    np.testing.assert_array_equal(one.elpd_row, other.elpd_row)
