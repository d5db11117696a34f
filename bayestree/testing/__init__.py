"""Contracts that parts of a model must keep, as tests that a new part inherits.

A contract is a class of tests that need no test runner: pytest collects them from a subclass whose
name begins with ``Test``, and :meth:`Contract.check` runs them anywhere.

>>> from bayestree.models import Laplace
>>> from bayestree.testing import HyperplanePriorContract
>>> class TestLaplace(HyperplanePriorContract):
...     prior = Laplace(2.0)
>>> skipped = TestLaplace.check()  # AssertionError for the first test that fails
>>> skipped["test_redrawn_sites_keep_the_joint_law"]
'a closed form that the prior does not have'
"""

from bayestree.models.contracts.base import Contract
from bayestree.models.contracts.leaves import LeafContract
from bayestree.models.contracts.priors import HyperplanePriorContract, WeightPriorContract
from bayestree.testing.contract import (
    SplitterContract,
    StageContract,
    Stopped,
    check_every_stop,
    same_posterior,
)

__all__ = [
    "Contract",
    "HyperplanePriorContract",
    "LeafContract",
    "SplitterContract",
    "StageContract",
    "Stopped",
    "WeightPriorContract",
    "check_every_stop",
    "same_posterior",
]
