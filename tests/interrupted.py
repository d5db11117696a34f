"""Fits that are stopped after a step of a loop, and resumed as by a new process."""

import pytest
import torch

from bayestree._utils.progress import watching
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes


class Stopped(Exception):
    """The fit was stopped."""


class Watcher:
    """A monitor that keeps the outermost loops of a fit, and may stop after one of their steps.

    Parameters
    ----------
    at : int, optional
        Stop after this total number of steps of all outermost loops.
    kept : dict
        States of the loops of an earlier fit, in the order of the loops.
    """

    def __init__(self, at=None, kept=None):
        self.at, self.kept = at, dict(kept or {})
        self.depth = self.loops = self.steps = 0
        self.labels = []

    def begin(self, label, total, parts, *, show):
        if self.depth:
            return _Loop(self, None, total, None)
        self.loops += 1
        self.labels.append(label)
        assert parts is not None, f"the loop {label!r} cannot be taken up"
        return _Loop(self, self.loops, total, parts)


class _Loop:
    def __init__(self, watcher, number, total, parts):
        self.watcher, self.number, self.total, self.parts = watcher, number, total, parts

    def start(self):
        self.watcher.depth += 1
        raw = self.watcher.kept.get(self.number)
        if raw is None:
            return 0
        state = from_bytes(raw)
        restore(self.parts, state["parts"])
        torch.set_rng_state(state["generator"])
        return state["done"]

    def step(self, done):
        if self.number is None:
            return
        self.watcher.steps += 1
        if self.watcher.steps == self.watcher.at:
            self._keep(done)
            raise Stopped

    def note(self, text):
        pass

    def finish(self):
        if self.number is not None:
            self._keep(self.total)

    def stop(self):
        self.watcher.depth -= 1

    def _keep(self, done):
        state = {"done": done, "parts": capture(self.parts), "generator": torch.get_rng_state()}
        self.watcher.kept[self.number] = to_bytes(state)


def watched(fit, **options):
    """The result of a fit, and its monitor."""
    with watching(watcher := Watcher(**options)):
        return fit(), watcher


def check_every_stop(fit, same, *, most=2):
    """Stop a fit after a step of it, take it up again, and compare; at several of its steps.

    Parameters
    ----------
    fit : callable
        Without arguments.
    same : callable
        Whether two of the things that it returns are equal, bit for bit.
    most : int
        Steps that are tried, the first and the last among them.

    Returns
    -------
    list of str
        The labels of the outermost loops.
    """
    expected, whole = watched(fit)
    gaps = max(1, min(most, whole.steps) - 1)
    for at in sorted({1 + i * (whole.steps - 1) // gaps for i in range(gaps + 1)}):
        with watching(stopped := Watcher(at)), pytest.raises(Stopped):
            fit()
        found, again = watched(fit, kept=stopped.kept)
        assert again.labels == whole.labels
        assert again.steps == whole.steps - at, "steps were done twice"
        assert same(found, expected), f"stopped after {at} of {whole.steps} steps"
    return whole.labels


def same_posterior(a, b):
    """Whether two posteriors are equal, bit for bit."""
    groups = ("draws", "point", "stats", "warmup_draws", "warmup_stats")
    return a.model == b.model and all(
        getattr(a, group).keys() == getattr(b, group).keys()
        and all(
            value.dtype == getattr(b, group)[name].dtype
            and value.tobytes() == getattr(b, group)[name].tobytes()
            for name, value in getattr(a, group).items()
        )
        for group in groups
    )
