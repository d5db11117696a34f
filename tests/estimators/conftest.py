"""Rows that tests of several modes share."""

import pytest
from sklearn.datasets import load_diabetes, load_iris


@pytest.fixture(scope="package")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="package")
def values():
    X, y = load_diabetes(return_X_y=True)
    return X[:120], 1e4 + y[:120]
