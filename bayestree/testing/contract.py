"""The base of all contracts, comparisons that allow for sampling error, and stopped fits."""

import copy
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from unittest import SkipTest

import numpy as np
import pyro
import torch
from numpy.typing import ArrayLike

from bayestree._utils.progress import Watch, watching
from bayestree.inference import Posterior
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes

T = TypeVar("T")
GROUPS = ("draws", "point", "stats", "warmup_draws", "warmup_stats")


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
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


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


def global_state() -> tuple[Any, ...]:
    """Return the state that calls share: of random generators, of torch and of Pyro."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 - the global state is what is watched
    return (
        torch.get_rng_state().tolist(),
        numpy_state[1].tolist(),
        numpy_state[2:],
        random.getstate(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        sorted(pyro.get_param_store().keys()),
        pyro.settings.get(),
    )


class Stopped(Exception):  # noqa: N818 - what it says, like StopIteration
    """A fit was stopped on purpose."""


class Watcher:
    """A monitor that keeps the outermost loops of a fit, and may stop after one of their steps.

    Parameters
    ----------
    at : int, optional
        Stop after this total number of steps of all outermost loops.
    kept : dict
        States of the loops of an earlier fit, in the order of the loops.
    """

    def __init__(self, at: int | None = None, kept: Mapping[int, bytes] | None = None) -> None:
        self.at, self.kept = at, dict(kept or {})
        self.depth = self.loops = self.steps = 0
        self.labels: list[str] = []

    def begin(self, label: str, total: int, parts: Any, *, show: bool) -> "_WatchedLoop":
        if self.depth:
            return _WatchedLoop(self, None, total, None)
        self.loops += 1
        self.labels.append(label)
        assert parts is not None, f"the loop {label!r} cannot be resumed: state the parts of Track"
        return _WatchedLoop(self, self.loops, total, parts)


class _WatchedLoop(Watch):
    def __init__(self, watcher: Watcher, number: int | None, total: int, parts: Any) -> None:
        self.watcher, self.number, self.total, self.parts = watcher, number, total, parts

    def start(self) -> int:
        self.watcher.depth += 1
        raw = None if self.number is None else self.watcher.kept.get(self.number)
        if raw is None:
            return 0
        state = from_bytes(raw)
        restore(self.parts, state["parts"])
        torch.set_rng_state(state["generator"])
        return int(state["done"])

    def step(self, done: int) -> None:
        if self.number is None:
            return
        self.watcher.steps += 1
        if self.watcher.steps == self.watcher.at:
            self._keep(done)
            raise Stopped

    def finish(self) -> None:
        if self.number is not None:
            self._keep(self.total)

    def stop(self) -> None:
        self.watcher.depth -= 1

    def _keep(self, done: int) -> None:
        assert self.number is not None
        state = {"done": done, "parts": capture(self.parts), "generator": torch.get_rng_state()}
        self.watcher.kept[self.number] = to_bytes(state)


def check_every_stop(
    fit: Callable[[], Any], same: Callable[[Any, Any], bool], *, most: int = 2
) -> list[str]:
    """Stop a fit after a step, resume it, and compare the results; at several of its steps.

    Parameters
    ----------
    fit : callable
        Without arguments.
    same : callable
        Whether two results of ``fit`` are equal, bit for bit.
    most : int
        Number of steps at which the fit is stopped: the first, then the last, then others.

    Returns
    -------
    list of str
        The labels of the outermost loops.

    Raises
    ------
    AssertionError
        If a resumed fit repeats steps, or its result differs.
    """
    expected, whole = _watched(fit)
    gaps = max(1, min(most, whole.steps) - 1)
    for at in sorted({1 + i * (whole.steps - 1) // gaps for i in range(min(most, whole.steps))}):
        stopped = Watcher(at)
        try:
            with watching(stopped):
                fit()
        except Stopped:
            pass
        else:
            raise AssertionError(f"the fit has fewer than {at} steps the second time")
        found, again = _watched(fit, stopped.kept)
        where = f"stopped after {at} of {whole.steps} steps"
        assert again.labels == whole.labels, f"{where}: loops {again.labels}, not {whole.labels}"
        assert again.steps == whole.steps - at, f"{where}: {again.steps} steps were done again"
        assert same(found, expected), f"{where}: the resumed fit has another result"
    return whole.labels


def _watched(fit: Callable[[], Any], kept: Mapping[int, bytes] | None = None) -> tuple[Any, Any]:
    with watching(watcher := Watcher(kept=kept)):
        return fit(), watcher


def same_posterior(a: Posterior, b: Posterior) -> bool:
    """Return whether two posteriors are equal, bit for bit, apart from the sign of NaN."""
    return a.model == b.model and all(_bits(a, group) == _bits(b, group) for group in GROUPS)


def _bits(posterior: Posterior, group: str) -> dict[str, tuple[str, bytes]]:
    found = {}
    for name, value in getattr(posterior, group).items():
        missing = np.isnan(value) if value.dtype.kind == "f" else False
        found[name] = (str(value.dtype), np.where(missing, np.nan, value).tobytes())
    return found
