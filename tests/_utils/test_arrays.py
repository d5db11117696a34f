"""Functions of arrays that several layers share."""

import numpy as np
import pytest

from bayestree._utils.arrays import softplus, weighted_quantiles

LEVELS = [0.1, 0.5, 0.9]


@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 3, 2)])
def test_weighted_quantiles_are_those_of_repeated_values(shape):
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=shape), rng.integers(0, 5, size=9)
    found = weighted_quantiles(values, counts / counts.sum(), LEVELS)
    repeated = np.repeat(values, counts, axis=0)
    expected = np.quantile(repeated, LEVELS, axis=0, method="inverted_cdf")
    np.testing.assert_array_equal(found, expected)


def test_equal_weights_have_the_quantiles_of_equal_shares_despite_rounding():
    values = np.arange(1.0, 11.0)
    found = weighted_quantiles(values, np.full(10, 0.1), LEVELS)
    np.testing.assert_array_equal(found, [1.0, 5.0, 9.0])


def test_softplus():
    x = np.array([-1e4, -800, -745, -40, -30, -1, -1e-9, 0, 1e-9, 1, 30, 40, 800, 1e300])
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, x), rtol=1e-15)
