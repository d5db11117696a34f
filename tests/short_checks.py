"""A shorter check of the bound, for tests of what follows a fit."""

from contextlib import contextmanager

import pytest

from bayestree.inference import convergence


@contextmanager
def short_checks():
    """The check that ends a fit by SVI takes longer than the few epochs of most tests.

    It comes last and changes no other number. Its own tests, with all draws and steps, are in
    tests/inference/test_svi.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convergence, "MIN_FURTHER", 6)
        patch.setattr(convergence, "ELBO_DRAWS", (6, 6))
        yield
