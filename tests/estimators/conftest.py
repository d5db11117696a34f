"""Rows that tests of several modes share, and short checks of the bound."""

import pytest
from sklearn.datasets import load_diabetes, load_iris

from bayestree.inference import bounds


@pytest.fixture(scope="package", autouse=True)
def _short_checks_of_the_bound():
    """The check that ends a fit by SVI takes longer than the few epochs of these tests.

    It comes last and changes no other number. Its own tests, with all draws and steps, are in
    tests/inference/test_svi.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "MIN_FURTHER", 6)
        patch.setattr(bounds, "ELBO_DRAWS", (6, 6))
        yield


@pytest.fixture(scope="package")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="package")
def values():
    X, y = load_diabetes(return_X_y=True)
    return X[:120], 1e4 + y[:120]
