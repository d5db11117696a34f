"""Rows that tests of several modes share, and short checks of the bound."""

import pytest
from sklearn.datasets import load_diabetes, load_iris

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from tests.estimators.modes import QUICK
from tests.short_checks import short_checks


@pytest.fixture(scope="package", autouse=True)
def _short_checks_of_the_bound():
    with short_checks():
        yield


@pytest.fixture(scope="package")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="package")
def values():
    X, y = load_diabetes(return_X_y=True)
    return X[:120], 1e4 + y[:120]


@pytest.fixture(scope="package")
def several(iris):
    return ConvexPolytopeTreeClassifier(n_modes=3, **QUICK).fit(*iris)


@pytest.fixture(scope="package")
def regressor(values):
    return ConvexPolytopeTreeRegressor(n_modes=2, **QUICK).fit(*values)
