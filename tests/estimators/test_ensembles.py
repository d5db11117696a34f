"""The trees as members of scikit-learn's ensembles."""

import numpy as np
import pytest
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
)

from bayestree import (
    AlternatingDecisionForestClassifier,
    AlternatingTreeClassifier,
    BivariateTreeClassifier,
    ConvexPolytopeTreeClassifier,
    LocallyConstantTreeClassifier,
    NeuralDecisionForestClassifier,
    NonGreedyTreeClassifier,
    ObliqueTreeClassifier,
    ObliqueTreeRegressor,
    WeightedObliqueTreeClassifier,
)
from bayestree.inference.splitters.searches import CO2, OC1

TREES = {
    "reflections": ObliqueTreeClassifier(max_depth=3, min_gain=0),
    "weighted": WeightedObliqueTreeClassifier(max_depth=3, min_gain=0),
    "bivariate": BivariateTreeClassifier(max_depth=2, n_orientations=4, min_gain=0),
    "alternating": AlternatingTreeClassifier(max_depth=2),
    "guide": ObliqueTreeClassifier(splitter="guide", max_depth=3, min_gain=0),
    "jumps": ObliqueTreeClassifier(splitter=OC1(n_restarts=1), max_depth=2, min_gain=0),
    "coordinates": ObliqueTreeClassifier(splitter="cart-lc", max_depth=2, min_gain=0),
    "bound": ObliqueTreeClassifier(splitter=CO2(nu=1.0, steps=50), max_depth=2, min_gain=0),
    "network": LocallyConstantTreeClassifier(max_depth=3, epochs=20, width=8),
    "bound of the tree": NonGreedyTreeClassifier(max_depth=3, epochs=10),
    "soft trees": NeuralDecisionForestClassifier(2, max_depth=2, epochs=20),
    "forest": AlternatingDecisionForestClassifier(3, max_depth=3),
}


def rows(n=200, seed=0):
    """A curved border, and a fifth of the labels wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    score = X[:, 0] + X[:, 1] ** 2 - X[:, 2] - 1
    wrong = rng.random(n) < 0.2
    return X, np.where((score > 0) ^ wrong, "over", "under"), score


def ensembles(tree):
    yield BaggingClassifier(tree, 8, random_state=0)
    yield AdaBoostClassifier(tree, n_estimators=4, random_state=0)
    yield StackingClassifier([("one", tree), ("other", TREES["reflections"])], cv=2)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_classifiers(tree):
    X, y, _ = rows()
    for ensemble in ensembles(tree):
        fitted = ensemble.fit(X, y)
        assert {type(one) for one in fitted.estimators_} <= {type(tree), ObliqueTreeClassifier}
        share = fitted.predict_proba(X)
        np.testing.assert_allclose(share.sum(axis=1), 1.0)
        np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[share.argmax(axis=1)])
        # guessing is right on half of 200 rows to four standard errors of 0.035
        assert fitted.score(X, y) > 0.64


@pytest.mark.portable
def test_bagging_reduces_the_noise_of_deep_trees():
    X, y, _ = rows(300)
    X_new, y_new, _ = rows(2000, seed=1)
    tree = ObliqueTreeClassifier(splitter="guide", min_gain=0)
    bagged = BaggingClassifier(tree, 10, random_state=0).fit(X, y)
    assert np.mean([one.get_n_leaves() for one in bagged.estimators_]) > 20
    single = np.mean(
        [
            one.predict(X_new) == np.searchsorted(bagged.classes_, y_new)
            for one in bagged.estimators_
        ]
    )
    # a vote of independent errors of .3 is nearly always right; four standard errors are .04
    assert bagged.score(X_new, y_new) > single + 0.02


def test_boosting_weights_the_rows_that_a_stump_gets_wrong():
    X, y, _ = rows()
    stump = ObliqueTreeClassifier(splitter="guide", max_depth=1, min_gain=0)
    boosted = AdaBoostClassifier(stump, n_estimators=10).fit(X, y)
    assert boosted.score(X, y) > stump.fit(X, y).score(X, y)
    assert len({tuple(one.tree_.hyperplane[0]) for one in boosted.estimators_}) > 2


def test_regressors():
    X, _, score = rows()
    tree = ObliqueTreeRegressor(max_depth=4, min_leaf=3, random_state=0)
    alone = tree.fit(X[:100], score[:100]).score(X[100:], score[100:])
    for ensemble in (
        BaggingRegressor(tree, 8, random_state=0),
        AdaBoostRegressor(tree, n_estimators=8, random_state=0),
    ):
        assert ensemble.fit(X[:100], score[:100]).score(X[100:], score[100:]) > alone


def test_a_posterior_in_a_stack():
    X, y, _ = rows(120)
    polytopes = ConvexPolytopeTreeClassifier(
        inference="grow", max_depth=1, n_experts=2, random_state=0
    )
    stack = StackingClassifier([("polytopes", polytopes), ("guide", TREES["reflections"])], cv=2)
    assert stack.fit(X, y).score(X, y) > 0.5 + 4 * np.sqrt(0.25 / 120)
