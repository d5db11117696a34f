"""Defaults that must suit any data: smooth leaves, and weights on any scale."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.ensemble import AdaBoostClassifier
from sklearn.metrics import log_loss

from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    BivariateTreeClassifier,
    ConvexPolytopeTreeClassifier,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
    ObliqueTreeClassifier,
    WeightedObliqueTreeClassifier,
)

CLASSIFIERS = [
    AlternatingTreeClassifier(random_state=0),
    BivariateTreeClassifier(),
    EndToEndForestClassifier(3, max_depth=3, epochs=10, random_state=0),
    EndToEndTreeClassifier(max_depth=3, epochs=10, random_state=0),
    ObliqueTreeClassifier(random_state=0),
    WeightedObliqueTreeClassifier(random_state=0),
]
POLYTOPES = ConvexPolytopeTreeClassifier(inference="grow", max_depth=2, random_state=0)
NAMES = [type(one).__name__ for one in [*CLASSIFIERS, POLYTOPES]]


@pytest.mark.parametrize("classifier", [*CLASSIFIERS, POLYTOPES], ids=NAMES)
def test_no_leaf_is_certain_unless_smoothing_is_off(classifier):
    X, y = load_iris(return_X_y=True)
    smooth = classifier.fit(X, y).predict_proba(X)
    assert smooth.min() > 0
    assert log_loss(y, smooth) < log_loss(y, np.full((150, 3), 1 / 3))
    shares = classifier.set_params(smoothing=0).fit(X, y).predict_proba(X)
    classifier.set_params(smoothing=1.0)
    if not hasattr(classifier, "estimators_"):
        assert (shares == 0).any()
    # the prior has the class shares of the data, which are equal here
    np.testing.assert_array_equal(smooth.argmax(axis=1), shares.argmax(axis=1))


def test_a_leaf_is_the_mean_of_its_dirichlet_posterior():
    X, y = np.array([[0.0]] * 3 + [[1.0]] * 5), np.array([0] * 3 + [1] * 4 + [0])
    clf = AlternatingTreeClassifier(max_depth=1, smoothing=2.0, random_state=0).fit(X, y)
    # 3 rows of class 0 and 2 of the prior, of which half are of class 0, as in all 8 rows
    np.testing.assert_allclose(clf.predict_proba([[0.0]]), [[4 / 5, 1 / 5]])
    np.testing.assert_allclose(clf.predict_proba([[1.0]]), [[2 / 7, 5 / 7]])


@pytest.mark.parametrize("scale", [1 / 300, 0.25])
@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=NAMES[:-1])
def test_small_weights_fit_as_weights_of_one(classifier, scale):
    X, y = make_classification(300, 6, weights=[0.8], flip_y=0.05, random_state=0)
    plain = classifier.fit(X, y).predict_proba(X)
    scaled = classifier.fit(X, y, np.full(300, scale)).predict_proba(X)
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


def test_small_weights_fit_a_regression_as_weights_of_one():
    X, y = make_regression(200, 4, noise=10, random_state=0)
    regressor = AlternatingTreeRegressor(random_state=0)
    plain = regressor.fit(X, y).predict(X)
    np.testing.assert_allclose(regressor.fit(X, y, np.full(200, 0.25)).predict(X), plain)


def test_boosting_learns_the_rare_class():
    X, y = make_classification(300, 4, weights=[0.85], class_sep=2.0, flip_y=0, random_state=0)
    boosted = AdaBoostClassifier(
        AlternatingTreeClassifier(max_depth=1, random_state=0), n_estimators=5
    )
    assert boosted.fit(X, y).predict(X)[y == 1].mean() > 0.8  # none, were the leaves the prior's
