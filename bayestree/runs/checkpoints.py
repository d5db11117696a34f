"""Checkpoints of a run: the states of its loops, each written to a file atomically.

A fit is a sequence of loops. The short computations between them are repeated when a run is
resumed; each loop continues from its last checkpoint, so that the numbers are those of an
uninterrupted run.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bayestree._utils.errors import InputError
from bayestree._utils.progress import Bars, Monitor, Parts, Watch
from bayestree._utils.state import capture, from_bytes, restore, to_bytes
from bayestree._utils.write import write_whole

EVERY = 2.0  # minimum seconds between two checkpoints
SHARE = 0.02  # maximum share of the run time spent on checkpoints


class Checkpoints:
    """The monitor of a fit that saves the states of its outermost loops.

    ``folder`` is created when first needed; it holds the checkpoints of earlier parts of the same
    run. Checkpoints are at least ``every`` seconds apart, and take at most the ``share`` of the run
    time: slow ones are written less often. ``display`` shows all loops; by default it is a bar on a
    terminal.
    """

    def __init__(
        self,
        folder: Path,
        *,
        every: float = EVERY,
        share: float = SHARE,
        display: Monitor | None = None,
    ) -> None:
        self.folder, self.every, self.share = folder, every, share
        self.display = Bars() if display is None else display
        self.stopping = False  # whether the run has been asked to stop
        self._depth = 0  # number of nested loops that are running
        self._count = 0  # number of outermost loops so far
        self._pending: dict[Path, bytes] = {}  # states not yet written
        self._interval = every
        self._written = time.monotonic()

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        shown = self.display.begin(label, total, parts, show=show)
        if self._depth:
            return _Loop(self, shown, None)
        self._count += 1
        if parts is None:
            return _Loop(self, shown, None)
        path = self.folder / f"{self._count:04d}.safetensors"
        return _Loop(self, shown, _State(path, label, total, parts))

    def stop_soon(self) -> None:
        """Interrupt the run by a ``KeyboardInterrupt`` after the current step."""
        self.stopping = True

    def write(self) -> None:
        """Write all pending states."""
        started = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        while self._pending:
            path, raw = next(iter(self._pending.items()))
            write_whole(path, raw)
            del self._pending[path]
        self._written = time.monotonic()
        self._interval = max(self.every, (self._written - started) / self.share)

    @property
    def _due(self) -> bool:
        return time.monotonic() - self._written >= self._interval

    def _save(self, state: "_State", done: int, *, write: bool) -> None:
        self._pending[state.path] = state.to_bytes(done)
        if write:
            self.write()


class _State:
    """Contents of the checkpoint of one loop."""

    def __init__(self, path: Path, label: str, total: int, parts: Parts) -> None:
        self.path, self.label, self.total, self.parts = path, label, total, parts

    def to_bytes(self, done: int) -> bytes:
        return to_bytes(
            {
                "label": self.label,
                "total": self.total,
                "done": done,
                "generators": _generators(),
                "parts": capture(self.parts),
            }
        )

    def restore(self) -> int:
        """Restore the loop from its checkpoint, if any, and return the number of steps done."""
        if not self.path.exists():
            return 0
        try:
            state = from_bytes(self.path.read_bytes())
            self._check(state["label"], state["total"])
            restore(self.parts, state["parts"])
            _restore_generators(state["generators"])
            return int(state["done"])
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            raise InputError(
                f"the checkpoint {str(self.path)!r} belongs to another run or version, or was "
                f"changed ({error}); delete {str(self.path.parent)!r} to start again."
            ) from error

    def _check(self, label: str, total: int) -> None:
        if (label, total) != (self.label, self.total):
            raise ValueError(
                f"it has {total} steps of {label!r}, but the run has {self.total} of {self.label!r}"
            )


class _Loop(Watch):
    """The watch of one loop; ``state`` is None if the loop cannot be resumed midway."""

    def __init__(self, checkpoints: Checkpoints, shown: Watch, state: _State | None) -> None:
        self.checkpoints, self.shown, self.state = checkpoints, shown, state

    def start(self) -> int:
        self.checkpoints._depth += 1
        self.shown.start()
        done = 0 if self.state is None else self.state.restore()
        if done:
            self.shown.step(done)
        return done

    def step(self, done: int) -> None:
        self.shown.step(done)
        stopping, due = self.checkpoints.stopping, self.checkpoints._due
        if self.state is not None and (stopping or due):
            self.checkpoints._save(self.state, done, write=True)
        if stopping:
            self.checkpoints.write()
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.shown.note(text)

    def finish(self) -> None:
        self.shown.finish()
        if self.state is not None:
            self.checkpoints._save(self.state, self.state.total, write=self.checkpoints._due)

    def stop(self) -> None:
        self.checkpoints._depth -= 1
        self.shown.stop()


def _generators() -> dict[str, Any]:
    """Return the states of torch's global generators."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _restore_generators(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def stopped_by_signals(checkpoints: Checkpoints) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM stop the block after the current step, and a second one immediately.

    Signals are left alone outside the main thread, where no handlers can be set.
    """

    def stop(*_: object) -> None:
        if checkpoints.stopping:
            raise KeyboardInterrupt
        checkpoints.stop_soon()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
