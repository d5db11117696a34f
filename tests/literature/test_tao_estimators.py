"""Alternating trees: starts, options, files, and the series of penalties."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import bayestree
from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    baselines,
    export_text,
)
from tests.sampling import z_score


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return train_test_split(X, y, test_size=0.25, random_state=0)


def wrong(fitted, X, y):
    return int((fitted.predict(X) != y).sum())


def more_errors(one, two, X, y):
    """How many more rows the first gets wrong, in standard errors."""
    return z_score((one.predict(X) != y).astype(int) - (two.predict(X) != y))


@pytest.mark.portable
@pytest.mark.parametrize("split", ["oblique", "bivariate", "axis"])
@pytest.mark.parametrize("l1", [0.0, 1.0])
@pytest.mark.parametrize("init", ["cart", "random"])
def test_every_split_from_every_start(split, l1, init, cancer):
    X, X_test, y, y_test = cancer
    X, X_test = X[:, :8], X_test[:, :8]
    clf = AlternatingTreeClassifier(split=split, l1=l1, init=init, max_depth=3, random_state=0)
    clf.fit(X, y)
    first = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    assert more_errors(clf, first, X_test, y_test) < 4
    most = {"oblique": 8, "bivariate": 2, "axis": 1}[split]
    assert np.count_nonzero(clf.tree_.hyperplane, axis=1).max() <= most  # type: ignore[attr-defined]
    assert clf.get_depth() <= 3


def test_the_loss_of_the_fit_is_that_of_the_tree(cancer):
    X, _, y, _ = cancer
    clf = AlternatingTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    first = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    assert wrong(clf, X, y) == clf.posterior_.stats["loss"].min() <= wrong(first, X, y)


@pytest.mark.portable
def test_a_sparse_oblique_tree_is_small_and_accurate(cancer):
    X, X_test, y, y_test = cancer
    clf = AlternatingTreeClassifier(l1=1.0, max_depth=6, random_state=0).fit(X, y)
    first = DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, y)
    assert more_errors(clf, first, X_test, y_test) < 4
    assert clf.get_n_leaves() < first.get_n_leaves()
    assert 0 < np.count_nonzero(clf.tree_.hyperplane) < 0.5 * clf.tree_.hyperplane.size


def test_starts_from_a_tree_or_a_fitted_estimator(cancer):
    X, _, y, _ = cancer
    first = AlternatingTreeClassifier(max_depth=2, sweeps=1, random_state=0).fit(X, y)
    one = AlternatingTreeClassifier(init=first, random_state=0).fit(X, y)
    two = clone(AlternatingTreeClassifier(init=first.tree_, random_state=0)).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert one.posterior_.stats["loss"][0] == wrong(first, X, y)
    raw = AlternatingTreeClassifier(init=baselines.cart(X, y, max_depth=2), scaling="none")
    assert raw.fit(X, y).posterior_.stats["loss"][0] == wrong(
        DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y), X, y
    )


def test_refuses_starts_that_it_cannot_take(cancer):
    X, _, y, _ = cancer
    with pytest.raises(TypeError, match=r"init must be .* got DecisionTreeClassifier"):
        AlternatingTreeClassifier(init=DecisionTreeClassifier().fit(X, y)).fit(X, y)
    with pytest.raises(TypeError, match=r"got AlternatingTreeClassifier. Fit it first"):
        AlternatingTreeClassifier(init=AlternatingTreeClassifier()).fit(X, y)
    narrow = AlternatingTreeClassifier(max_depth=2).fit(X[:, :5], y)
    with pytest.raises(ValueError, match="a tree on 5 features, but X has 30"):
        AlternatingTreeClassifier(init=narrow).fit(X, y)
    with pytest.raises(ValueError, match="max_depth must be 16 or less, got 17"):
        AlternatingTreeClassifier(init="random", max_depth=17).fit(X, y)
    with pytest.raises(ValueError, match="a split with 5 features"):
        AlternatingTreeClassifier(init=narrow, split="axis").fit(X[:, :5], y)


def test_a_fit_that_began_with_an_estimator_says_how_it_can_be_saved(cancer, tmp_path):
    X, _, y, _ = cancer
    first = AlternatingTreeClassifier(max_depth=1).fit(X, y)
    path = tmp_path / "tree.safetensors"
    with pytest.raises(TypeError, match=r"the tree_ of a fitted estimator"):
        AlternatingTreeClassifier(init=first).fit(X, y).save(path)
    AlternatingTreeClassifier(init=first.tree_).fit(X, y).save(path)


def test_class_weights_move_the_errors(cancer):
    X, _, y, _ = cancer
    X = X[:, :3]
    missed = [
        ((clf.predict(X) == 1) & (y == 0)).sum()
        for weight in (None, {0: 20.0, 1: 1.0})
        for clf in [AlternatingTreeClassifier(max_depth=2, l1=1.0, class_weight=weight).fit(X, y)]
    ]
    assert missed[1] < missed[0]


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_a_search_over_penalties(cancer):
    X, _, y, _ = cancer
    search = GridSearchCV(
        AlternatingTreeClassifier(max_depth=2, random_state=0), {"l1": [1.0, 1e4]}, cv=2
    )
    assert search.fit(X[:, :5], y).best_params_ == {"l1": 1.0}


@pytest.mark.portable
@pytest.mark.parametrize("leaf", ["constant", "linear"])
def test_regression_lowers_the_squared_loss_of_cart(leaf, diabetes):
    X, X_test, y, y_test = diabetes
    reg = AlternatingTreeRegressor(
        max_depth=2, leaf=leaf, leaf_ridge=10.0, l1=3.0, random_state=0
    ).fit(X, y)
    first = DecisionTreeRegressor(max_depth=2, min_samples_leaf=5, random_state=0).fit(X, y)
    assert reg.score(X, y) > first.score(X, y)
    ours, theirs = (np.square(one.predict(X_test) - y_test) for one in (reg, first))
    assert z_score(ours - theirs) < 4
    assert (reg.tree_.slope is None) == (leaf == "constant")


def test_a_linear_leaf_says_its_ridge_regression(diabetes):
    X, _, y, _ = diabetes
    reg = AlternatingTreeRegressor(max_depth=0, leaf="linear", leaf_ridge=1e-6).fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    best = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(reg.predict(X), best, rtol=1e-4)
    text = export_text(reg, max_features=3)
    assert "root: leaf, 331 rows, mean = 152.3 + 703 x8 + 593 x2 - 560 x4 + … 7 more" in text
    moved = reg.tree_.on_scaled(np.full(10, 0.3), np.full(10, 2.0))
    np.testing.assert_allclose(moved.predict((X - 0.3) / 2), reg.predict(X))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (AlternatingTreeClassifier, {"l1": 1.0}),
        (AlternatingTreeClassifier, {"split": "bivariate", "l1": 2.0}),
        (AlternatingTreeRegressor, {"leaf": "linear"}),
    ],
)
def test_files_bring_back_the_tree(kind, settings, tmp_path):
    X, y = load_iris(return_X_y=True)
    fitted = kind(max_depth=2, random_state=0, **settings).fit(X, y)
    again = kind(init=fitted.tree_, **settings).fit(X, y)
    for one in (fitted, again):
        path = tmp_path / "tree.safetensors"
        one.save(path)
        back = bayestree.load(path)
        np.testing.assert_array_equal(back.predict(X), one.predict(X))
        np.testing.assert_array_equal(back.posterior_.stats["loss"], one.posterior_.stats["loss"])
        assert back.posterior_.model == one.posterior_.model
    np.testing.assert_array_equal(back.init.hyperplane, fitted.tree_.hyperplane)


def test_a_series_of_penalties(cancer):
    X, X_test, y, y_test = cancer
    start = AlternatingTreeClassifier(max_depth=3, random_state=0)
    path = bayestree.regularization_path(start, X, y, [30.0, 0.0, 1.0, 1e5], X_test, y_test)
    np.testing.assert_array_equal(path.lambdas, [0, 1, 30, 1e5])
    assert (np.diff(path.nonzeros) < 0).all()
    assert (np.diff(path.leaves) <= 0).all()
    assert path.leaves[-1] == 1
    assert path.score[path.best] == path.score.max()
    assert path.best_estimator.l1 == path.lambdas[path.best]
    # the second starts from the first
    assert path.estimators[1].init is path.estimators[0].tree_
    frame = path.to_frame()
    assert list(frame.columns) == [
        "train_score",
        "score",
        "nonzeros",
        "leaves",
        "depth",
        "seconds",
    ]
    assert frame.loc[1.0, "nonzeros"] == path.nonzeros[1]
    weights = np.where(y == y[0], 5.0, 1.0)
    path = bayestree.regularization_path(start, X, y, [1e5], X_test, y_test, sample_weight=weights)
    assert path.train_score[0] == weights[y == y[0]].sum() / weights.sum()  # of a single leaf
    assert start.init == "cart"


def test_a_series_refuses_what_has_no_penalty(cancer):
    X, X_test, y, y_test = cancer
    with pytest.raises(TypeError, match="got DecisionTreeClassifier"):
        bayestree.regularization_path(DecisionTreeClassifier(), X, y, [1.0], X_test, y_test)
    for lambdas in ([], [-1.0], [np.nan]):
        with pytest.raises(ValueError, match="lambdas must be one or more finite"):
            bayestree.regularization_path(
                AlternatingTreeClassifier(), X, y, lambdas, X_test, y_test
            )


def test_labels_are_refused_by_a_regressor():
    X = np.arange(8.0)[:, None]
    with pytest.raises(ValueError, match=r"y must hold numbers, got text such as 'b'"):
        AlternatingTreeRegressor(max_depth=1).fit(X, list("bababaab"))
