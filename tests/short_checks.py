"""A shorter check of the bound, and shorter transitions, for tests of what follows a fit."""

from contextlib import contextmanager

import pytest

from bayestree.inference import Nuts, convergence


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


@contextmanager
def short_transitions():
    """Two slides instead of forty, which take most of the time of a transition of NUTS.

    For tests that any draws will do. tests/inference/nuts has the tests of the draws.
    """
    assert "n_slides" in Nuts.__init__.__kwdefaults__
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Nuts.__init__.__kwdefaults__, "n_slides", 2)
        yield
