"""Rows that tests of several modes share, and short checks of the bound."""

import pytest
from sklearn.datasets import load_diabetes, load_iris

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
