"""The vote of an expert in NumPy."""

import numpy as np

from bayestree._utils.softplus import softplus


def test_softplus():
    x = np.array([-1e4, -800, -745, -40, -30, -1, -1e-9, 0, 1e-9, 1, 30, 40, 800, 1e300])
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, x), rtol=1e-15)
