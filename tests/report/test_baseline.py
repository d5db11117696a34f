"""The linear model that trees are compared with."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from bayestree.report import study as module
from bayestree.report.study import fit_baseline


def rows(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 100.0, 0.01] + [0.0, 5000.0, 1.0]
    score = X[:, 0] + (X[:, 1] - 5000) / 100 + rng.normal(size=n)
    return X, score


def test_features_are_standardised_by_the_weighted_rows():
    X, score = rows()
    y, weights = (score > 0).astype(int), np.where(np.arange(300) < 200, 1.0, 0.0)
    found = fit_baseline(X, y, weights, classifies=True)
    Z = (X - X[:200].mean(axis=0)) / X[:200].std(axis=0)
    by_hand = LogisticRegression().fit(Z[:200], y[:200])
    assert (found.name, found.n_rows) == ("logistic regression", 200)
    np.testing.assert_allclose(
        found.model.predict_proba(X), by_hand.predict_proba(Z), atol=1e-4
    )  # both stop at a gradient of 1e-4


def test_numbers():
    X, score = rows()
    found = fit_baseline(pd.DataFrame(X, columns=["a", "b", "c"]), score, np.ones(300),
                         classifies=False)  # fmt: skip
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert found.name == "ridge regression"
    np.testing.assert_allclose(found.model.predict(X), Ridge().fit(Z, score).predict(Z), rtol=1e-6)


@pytest.mark.parametrize("scale", [1 / 300, 1000.0])
@pytest.mark.parametrize("classifies", [False, True])
def test_the_scale_of_the_weights_does_not_matter(classifies, scale):
    X, score = rows()
    y, weights = score > 0 if classifies else score, np.resize([1.0, 2.0, 0.0], 300)
    one, other = (
        fit_baseline(X, y, by * weights, classifies=classifies).model[-1].coef_
        for by in (1.0, scale)
    )
    np.testing.assert_allclose(other, one, atol=0.01)  # L-BFGS stops at a gradient of 1e-4


def test_many_rows_are_thinned(monkeypatch):
    monkeypatch.setattr(module, "LINEAR_WORK", 3 * 2 * 100)
    monkeypatch.setattr(module, "LINEAR_ROWS", 50)
    X, score = rows()
    assert fit_baseline(X, score > 0, np.ones(300), classifies=True).n_rows == 100


@pytest.mark.parametrize("weights", [np.zeros(300), np.r_[1.0, np.zeros(299)]])
def test_rows_of_one_class_have_none(weights):
    X, score = rows()
    assert fit_baseline(X, score > 0, weights, classifies=True) is None


def test_constant_features_and_single_precision_do_no_harm():
    X, score = rows()
    X[:, 2] = 7.0
    single = fit_baseline(X.astype(np.float32), score, np.ones(300), classifies=False)
    double = fit_baseline(X.astype(np.float32).astype(float), score, np.ones(300), classifies=False)
    assert (single.model.predict(X) == double.model.predict(X)).all()
