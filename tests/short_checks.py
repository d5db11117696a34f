"""A shorter check of the bound, and shorter stages of a fit, for tests of what follows."""

from contextlib import contextmanager

import pytest

from bayestree.fitting.projection import path
from bayestree.inference import Growth, Nuts, Vi, convergence
from bayestree.inference.variational import vi


@contextmanager
def short_checks():
    """The check that ends a fit by SVI takes longer than the few epochs of most tests.

    It comes last and changes no other number. Its own tests, with all draws and steps, are in
    tests/inference/variational/test_svi.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convergence, "MIN_FURTHER", 6)
        patch.setattr(convergence, "ELBO_DRAWS", (6, 6))
        yield


@contextmanager
def short_stages():
    """Few steps of growth and VI, few slides of NUTS, two folds for a path.

    They take most of the time of short fits. For tests that any draws and any tree will do:
    tests/inference and tests/fitting/projection have those of the draws and the tree.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path, "N_FOLDS", 2)
        patch.setattr(vi, "MAX_ROUNDS", 1)
        for stage, name, few in ((Nuts, "n_slides", 2), (Growth, "steps", 20), (Vi, "n_steps", 8)):
            assert name in stage.__init__.__kwdefaults__
            patch.setitem(stage.__init__.__kwdefaults__, name, few)
        yield
