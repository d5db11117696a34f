"""What the contracts of fits share: global state, and fits that are stopped and resumed."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyro
import torch

from bayestree._utils.progress import Watch, watching
from bayestree.inference import Posterior
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes

GROUPS = ("draws", "point", "stats", "warmup_draws", "warmup_stats")


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
