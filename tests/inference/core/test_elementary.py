"""Elementary functions against those of NumPy in extended precision."""

import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from bayestree.inference.core import elementary

POINTS = np.concatenate(
    [np.linspace(0, 700, 50_001), np.linspace(0, 40, 50_001), np.geomspace(1e-300, 1, 1000)]
)
BOTH = np.concatenate([-POINTS, POINTS])
POSITIVE = np.concatenate([np.geomspace(1e-307, 1e307, 50_001), np.linspace(0.5, 2, 50_001)])


@njit
def evaluate(kind, x, out):
    for i in range(x.shape[0]):
        if kind == 0:
            out[i] = elementary.exp_and_rest(x[i])[0]
        elif kind == 1:
            out[i] = elementary.exp_and_rest(x[i])[1]
        elif kind == 2:
            out[i] = elementary.log(x[i])
        else:
            out[i] = elementary.softplus(x[i])


@pytest.mark.portable
@pytest.mark.parametrize(
    ("kind", "x", "exact"),
    [
        (0, -POINTS, np.exp),
        (1, -POINTS, lambda x: -np.expm1(x)),
        (2, POSITIVE, np.log),
        (3, BOTH, lambda x: np.logaddexp(0, x)),
    ],
    ids=["exp", "1 - exp", "log", "softplus"],
)
def test_relative_error(kind, x, exact):
    found = np.empty_like(x)
    evaluate(kind, x, found)
    np.testing.assert_allclose(found, exact(x.astype(np.longdouble)).astype(float), 1e-15, 1e-320)


def test_compiles_without_a_folder_for_code():
    """As in a read-only installation of a user without a home."""
    script = (
        "from numba.core.caching import CacheImpl; CacheImpl._locator_classes = []\n"
        "from bayestree.inference.core import experts"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
