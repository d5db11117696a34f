"""The base of all contracts, and comparisons that allow for sampling error."""

import copy
import math
from collections.abc import Callable
from typing import Any, TypeVar
from unittest import SkipTest

import numpy as np
import torch
from numpy.typing import ArrayLike

T = TypeVar("T")


class Contract:
    """Tests of one part of a model: the methods whose names begin with ``test_``.

    A subclass states the part as a class attribute. Tests of optional methods are skipped where
    the part does not have them.

    Examples
    --------
    >>> class TestEven(Contract):
    ...     number = 4
    ...     def test_the_number_is_even(self):
    ...         assert self.number % 2 == 0, f"{self.number} is odd"
    >>> TestEven.check()
    {}
    >>> class TestOdd(TestEven):
    ...     number = 3
    >>> TestOdd.check()
    Traceback (most recent call last):
    AssertionError: 3 is odd
    """

    @classmethod
    def check(cls) -> dict[str, str]:
        """Run the tests in alphabetical order, each on a new instance.

        Returns
        -------
        dict
            The reason of each test that was skipped, by its name.

        Raises
        ------
        AssertionError
            For the first test that fails.
        """
        skipped = {}
        for name in sorted(name for name in dir(cls) if name.startswith("test_")):
            try:
                getattr(cls(), name)()
            except SkipTest as reason:
                skipped[name] = str(reason)
        return skipped


def skip_unless(condition: object, reason: str) -> None:
    """Skip a test, in :meth:`Contract.check`, pytest and unittest alike."""
    if not condition:
        raise SkipTest(reason)


def seeded(seed: int, call: Callable[[], T]) -> T:
    """Return the result of a call with a seed for torch, whose state stays as it is."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return call()


def assert_close(
    found: Any, expected: Any, what: str, *, rtol: float = 1e-9, atol: float = 0.0
) -> None:
    """Raise AssertionError unless numbers agree, by default up to rounding."""
    pairs = np.broadcast_arrays(np.asarray(found, dtype=float), np.asarray(expected, dtype=float))
    value, other = (np.ravel(one) for one in pairs)
    off = ~np.isclose(value, other, rtol=rtol, atol=atol)
    at = int(off.argmax())
    assert not off.any(), f"{what}: {value[at]:.10g}, where {other[at]:.10g} is expected"


def assert_mean(values: ArrayLike, expected: ArrayLike, what: str) -> None:
    """Raise AssertionError unless draws have a mean, up to five standard errors.

    A correct mean of normal draws fails once in two million tests. ``values`` has shape (S, ...).
    """
    draws = np.asarray(values, dtype=float)
    error = draws.std(0) / math.sqrt(len(draws))
    off = np.abs(draws.mean(0) - expected)
    worst = float((off / (error + 1e-12)).max())
    assert (off <= 5 * error + 1e-12).all(), (
        f"{what}: the mean of {len(draws)} draws is off by {worst:.3g} standard errors"
    )


def assert_copied(part: Any) -> None:
    """Raise AssertionError unless a copy of a part is equal to it, as models and files need."""
    other = copy.deepcopy(part)
    assert other == part, f"a copy of {part!r} is not equal to it: use a frozen dataclass"
    assert hash(other) == hash(part), f"a copy of {part!r} has another hash"
