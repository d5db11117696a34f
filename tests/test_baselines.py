"""CART as a Tree, and random trees."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from bayestree import export_text
from bayestree.baselines import cart, from_sklearn, random_oblique


@pytest.mark.parametrize("max_depth", [1, 3, None])
@pytest.mark.parametrize("kind", [DecisionTreeClassifier, DecisionTreeRegressor])
def test_predictions_are_exactly_those_of_scikit_learn(kind, max_depth):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = (X[:, 0] + rng.normal(size=400)).round(1)
    if kind is DecisionTreeClassifier:
        y = np.digitize(y, [-1, 0, 1])
    fitted = kind(max_depth=max_depth, random_state=0).fit(X, y, sample_weight=rng.random(400))
    tree = from_sklearn(fitted)
    new = rng.normal(size=(3000, 5))
    expected = fitted.predict_proba(new) if kind is DecisionTreeClassifier else fitted.predict(new)
    np.testing.assert_array_equal(tree.predict(new), expected)
    assert tree.n_leaves == fitted.get_n_leaves()
    assert tree.depth == fitted.get_depth()


def test_rows_on_the_cuts_and_within_the_rounding_of_single_precision_take_the_same_side():
    X = np.array([0.1, 0.3, 0.7, 1.1, 1e-3, 5e7, 5e7 + 8])[:, None]
    y = np.arange(7)
    fitted = DecisionTreeClassifier(random_state=0).fit(X, y)
    tree = from_sklearn(fitted)
    cut = fitted.tree_.threshold[fitted.tree_.children_left >= 0]
    near = [cut, X[:, 0]]
    for _ in range(2):
        near += [np.nextafter(part, np.inf) for part in near[-2:]]
    singles = np.concatenate([cut, X[:, 0]]).astype(np.float32)
    for step in (np.float32(-np.inf), np.float32(np.inf)):
        other = np.nextafter(singles, step)
        near += [other.astype(float), (other.astype(float) + singles.astype(float)) / 2]
    half = near[-1]
    near += [np.nextafter(half, -np.inf), np.nextafter(half, np.inf)]
    new = np.concatenate(near)[:, None]
    np.testing.assert_array_equal(tree.predict(new), fitted.predict_proba(new))


def test_names_and_text():
    data = load_iris(as_frame=True)
    named = data.target_names[data.target]
    tree = from_sklearn(DecisionTreeClassifier(max_depth=2, random_state=0).fit(data.data, named))
    assert tree.feature_names == tuple(data.data.columns)
    assert tree.class_names == ("setosa", "versicolor", "virginica")
    assert "setosa: 100.0 %" in export_text(tree)
    assert tree.leaf_rows.sum() == 150


def test_cart_grows_by_weights_and_kind_of_y():
    X, y = load_diabetes(return_X_y=True)
    tree = cart(X, y, max_depth=3, random_state=0)
    assert tree.value.ndim == 1
    assert tree.depth == 3
    X, y = load_iris(return_X_y=True)
    weights = np.where(y == 0, 0.0, 1.0)
    assert cart(X, y, weights, max_depth=1, random_state=0).value[:, 0].max() == 0
    assert cart(X, y, max_depth=0).n_leaves == 1


def test_refuses_what_is_no_single_tree():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="got RandomForestClassifier"):
        from_sklearn(RandomForestClassifier(2).fit(X, y))
    with pytest.raises(TypeError, match="one output, got 2"):
        from_sklearn(DecisionTreeClassifier().fit(X, np.column_stack([y, y])))
    with pytest.raises(NotFittedError):
        from_sklearn(DecisionTreeClassifier())
    assert from_sklearn(ExtraTreeClassifier(random_state=0).fit(X, y)).n_leaves > 3
    X[::7, 0] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        from_sklearn(DecisionTreeClassifier().fit(X, np.isnan(X[:, 0])))


@pytest.mark.parametrize("max_features", [None, 1, 2])
def test_random_hyperplanes_halve_the_rows(max_features):
    X = np.random.default_rng(0).normal(size=(256, 5))
    tree = random_oblique(X, 4, max_features=max_features, random_state=0)
    np.testing.assert_array_equal(np.bincount(tree.apply(X), minlength=16), np.full(16, 16))
    assert (np.count_nonzero(tree.hyperplane, axis=1) == (max_features or 5)).all()
    again = random_oblique(X, 4, max_features=max_features, random_state=0)
    np.testing.assert_array_equal(tree.hyperplane, again.hyperplane)


def test_random_hyperplanes_see_weights_as_repeats():
    X = np.random.default_rng(0).normal(size=(60, 3))
    count = np.random.default_rng(1).integers(1, 5, 60)
    once = random_oblique(X, 3, count.astype(float), random_state=0)
    often = random_oblique(np.repeat(X, count, axis=0), 3, random_state=0)
    np.testing.assert_allclose(once.intercept, often.intercept, atol=1e-12)


@pytest.mark.parametrize("weights", [None, np.array([1.0, 1, 1, 9, 1])])
@pytest.mark.parametrize("values", [[0.0, 1, 2, 3, 4], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]])
def test_random_cuts_lie_between_rows(values, weights):
    X = np.array(values)[:, None]
    tree = random_oblique(X, 1, weights, max_features=1, random_state=0)
    cut = float(-tree.intercept[0] / tree.hyperplane[0, 0])
    assert np.abs(X - cut).min() == 0.5
    mass = np.ones(5) if weights is None else weights
    left = mass[X[:, 0] < cut].sum() / mass.sum()
    whole = [mass[X[:, 0] <= value].sum() / mass.sum() for value in np.unique(X)[:-1]]
    assert left in whole
    # no cut a value away is nearer to the middle by more than the weight of that value
    assert abs(left - 0.5) <= min(abs(share - 0.5) for share in whole) + mass.max() / mass.sum()


def test_rows_on_a_grid_take_the_side_that_they_took_in_the_fit():
    rng = np.random.default_rng(0)
    for seed in range(20):
        X = rng.integers(0, 6, (41, 3)) / 10 + 1000.1
        center, scale = X.mean(axis=0), X.std(axis=0)
        inside = random_oblique((X - center) / scale, 3, max_features=1, random_state=seed)
        outside = inside.on_scaled(np.zeros(3), np.ones(3)).on_scaled(-center / scale, 1 / scale)
        np.testing.assert_array_equal(outside.apply(X), inside.apply((X - center) / scale))
