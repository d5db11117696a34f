"""The bivariate tree with scikit-learn's interface."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import GridSearchCV

import bayestree
from bayestree import BivariateTreeClassifier, export_rules
from tests.sampling import at_least, z_score


def features_used(clf):
    return (clf.tree_.hyperplane != 0).sum(axis=1)


@pytest.mark.portable
def test_two_features_a_node_make_a_smaller_tree():
    X, y = load_breast_cancer(return_X_y=True)
    both, alone = (
        BivariateTreeClassifier(pair_penalty=penalty, min_gain=0).fit(X[::2], y[::2])
        for penalty in (2.0, math.inf)
    )
    assert (features_used(both) <= 2).all()
    assert (features_used(alone) == 1).all()
    assert both.get_n_leaves() < alone.get_n_leaves()
    assert both.score(X[::2], y[::2]) == 1.0
    errors, of_one = (one.predict(X[1::2]) != y[1::2] for one in (both, alone))
    assert z_score(errors.astype(int) - of_one) < 4


def test_units_do_not_matter():
    X, y = load_wine(return_X_y=True)
    factor = 10.0 ** np.arange(-6, 7)
    found = [BivariateTreeClassifier().fit(rows, y) for rows in (X, X * factor + factor)]
    np.testing.assert_array_equal(found[0].apply(X), found[1].apply(X * factor + factor))
    np.testing.assert_allclose(
        found[0].tree_.hyperplane, found[1].tree_.hyperplane * factor, rtol=1e-6
    )


def test_limits_hold():
    X, y = load_wine(return_X_y=True)
    clf = BivariateTreeClassifier(max_depth=2, min_leaf=20).fit(X, y)
    assert clf.get_depth() <= 2
    assert clf.tree_.leaf_rows.min() >= 20
    assert BivariateTreeClassifier(max_leaves=3).fit(X, y).get_n_leaves() == 3


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_a_price_of_leaves_prunes():
    X, y = load_breast_cancer(return_X_y=True)
    leaves = [
        BivariateTreeClassifier(ccp_alpha=alpha, criterion="gini").fit(X, y).get_n_leaves()
        for alpha in (0.0, 0.01, 1.0)
    ]
    assert leaves[0] > leaves[1] > leaves[2] == 1


def test_saved_and_loaded(tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    clf = BivariateTreeClassifier(max_depth=3).fit(X, y)
    clf.save(tmp_path / "tree.safetensors")
    found = bayestree.load(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(found.predict_proba(X), clf.predict_proba(X))
    assert export_rules(found) == export_rules(clf)
    assert found.get_params() == clf.get_params()


def test_the_soft_tree_of_the_posterior_is_the_tree():
    X, y = load_iris(return_X_y=True)
    clf = BivariateTreeClassifier(max_depth=3).fit(X, y)
    soft = clf.posterior_.leaf_probs(clf._standardise(X), clf.posterior_.point_sites())
    assert set(np.unique(soft)) == {0.0, 1.0}
    np.testing.assert_array_equal(soft.argmax(axis=1), clf.apply(X))


@pytest.mark.portable
def test_grid_search():
    X, y = load_iris(return_X_y=True)
    grid = {"ccp_alpha": [0.0, 0.05], "pair_penalty": [2.0, 10.0]}
    search = GridSearchCV(BivariateTreeClassifier(max_depth=3), grid, cv=3).fit(X, y)
    assert search.best_score_ > at_least(0.95, len(X))  # as good as CART


@pytest.mark.parametrize(
    "wrong", [{"n_orientations": 1}, {"criterion": "log"}, {"pair_penalty": -1}, {"ccp_alpha": -1}]
)
def test_parameters_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BivariateTreeClassifier(**wrong).fit([[0.0], [1.0]], [0, 1])
