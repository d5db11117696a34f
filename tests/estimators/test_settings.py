"""Settings of the objects that are parameters, by scikit-learn's names, and messages about them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from bayestree import (
    AlternatingTreeRegressor,
    BivariateTreeRegressor,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    plots,
)
from bayestree.inference import Map, Svi

SMALL = {"max_depth": 1, "n_modes": 1, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(80, 2))
    return X, (X[:, 0] > 0).astype(int)


def test_settings_of_a_method_are_searched(rows):
    tree = ConvexPolytopeTreeClassifier(inference=Map(epochs=3), **SMALL)
    search = GridSearchCV(tree, {"inference__epochs": [2, 4]}, cv=2).fit(*rows)
    assert search.best_estimator_.inference in (Map(epochs=2), Map(epochs=4))
    assert tree.inference == Map(epochs=3)  # which nothing may change in place
    found = tree.get_params()
    assert found["inference__epochs"] == 3
    assert "inference__epochs" not in tree.get_params(deep=False)
    both = clone(tree).set_params(inference=Svi(), inference__epochs=5, max_depth=2)
    assert (both.inference, both.max_depth) == (Svi(epochs=5), 2)
    tree._repr_html_()


def test_a_fitted_estimator_among_the_parameters_stays_fitted(rows):
    first = BivariateTreeRegressor(max_depth=1).fit(*rows)
    tree = AlternatingTreeRegressor(init=first, max_depth=1, random_state=0)
    tree.set_params(**tree.get_params()).set_params(init__max_depth=2).fit(*rows)
    assert tree.init is first


def test_unknown_settings_are_refused():
    tree = ConvexPolytopeTreeClassifier(inference=Map(), **SMALL)
    with pytest.raises(ValueError, match=r"Map\(\) has no setting 'epoch'; did you mean 'epochs'"):
        tree.set_params(inference__epoch=3)
    with pytest.raises(ValueError, match="inference='vi' is not one object with settings"):
        tree.set_params(inference="vi", inference__epochs=3)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        tree.set_params(depth=3)


def test_partial_fit_says_what_it_needs(rows):
    tree = ConvexPolytopeTreeClassifier()
    assert not hasattr(tree, "partial_fit")
    with pytest.raises(AttributeError, match=r"partial_fit updates a single tree, .*: set n_modes"):
        tree.partial_fit(*rows)
    with pytest.raises(AttributeError, match="partial_fit needs inference='map' or 'svi'"):
        ConvexPolytopeTreeRegressor(inference="nuts").partial_fit(*rows)


def test_columns_whose_names_are_not_text(rows):
    columns = pd.MultiIndex.from_product([["s"], ["a", "b"]])
    X, y = pd.DataFrame(rows[0], columns=columns), rows[1]
    tree = ConvexPolytopeTreeClassifier(inference="map", **SMALL).fit(X, y)
    for method in (tree.partial_dependence, lambda X, key: tree.interactions(X, [key, 1])):
        with pytest.raises(ValueError, match=r"column \('s', 'a'\) does not exist.*'x0', 'x1'"):
            method(X, columns[0])
    assert len(tree.partial_dependence(X, np.int64(0)).grid)


def test_messages_write_numbers_of_numpy_as_those_of_python(rows):
    tree = ConvexPolytopeTreeClassifier(inference="map", **SMALL).fit(*rows)
    wrong = np.int64(7)
    for call in (
        lambda: clone(tree).set_params(max_depth=-wrong).fit(*rows),
        lambda: clone(tree).set_params(inference=Map(epochs=-wrong)).fit(*rows),
        lambda: tree.explain(rows[0][0], target=wrong),
        lambda: tree.partial_dependence(rows[0], wrong),
        lambda: plots.node_scatter(tree, rows[0], rows[1], wrong),
    ):
        with pytest.raises(ValueError, match="7") as told:
            call()
        assert "np." not in str(told.value)
    assert repr(Svi(epochs=wrong)) == "Svi(epochs=7)"
