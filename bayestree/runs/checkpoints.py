"""Checkpoints of a run: the states of its loops, each in a file that is whole or not there.

A fit is a row of loops; what lies between them takes little time and is worked out anew when a run
is taken up. Each loop then begins where its last checkpoint has it, so that the numbers are those
of a run that nobody disturbed.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bayestree._utils.progress import Bars, Monitor, Parts, Watch
from bayestree._utils.state import capture, from_bytes, restore, to_bytes
from bayestree._utils.write import write_whole
from bayestree.tables import InputError

EVERY = 2.0  # seconds between two checkpoints, at least
SHARE = 0.02  # of the time of a run that goes to checkpoints, at most


class Checkpoints:
    """The monitor of a fit that keeps the states of its outermost loops.

    Parameters
    ----------
    folder : Path
        Made when it is first needed. What it holds was written by an earlier part of the same run.
    every : float
        Seconds between two checkpoints, at least.
    share : float
        Where they take long, checkpoints are so far apart that they take no more than this share
        of the time.
    display : Monitor, optional
        Shows all loops; by default bars on a terminal.
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
        self._stopping = False
        self._depth = 0  # of the loops that run now
        self._count = 0  # of the outermost loops so far
        self._waiting: dict[Path, bytes] = {}  # states that are yet to be written
        self._wait = every
        self._written = time.monotonic()

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """See :class:`bayestree._utils.progress.Monitor`."""
        shown = self.display.begin(label, total, parts, show=show)
        if self._depth:
            return _Loop(self, shown, None)
        self._count += 1
        if parts is None:
            return _Loop(self, shown, None)
        path = self.folder / f"{self._count:04d}.safetensors"
        return _Loop(self, shown, _State(path, label, total, parts))

    def stop_soon(self) -> None:
        """Let the run stop after the step that it is in, by a ``KeyboardInterrupt``."""
        self._stopping = True

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stopping

    def write(self) -> None:
        """Write what is not written yet."""
        started = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        while self._waiting:
            path, raw = next(iter(self._waiting.items()))
            write_whole(path, raw)
            del self._waiting[path]
        self._written = time.monotonic()
        self._wait = max(self.every, (self._written - started) / self.share)

    def clear(self) -> None:
        """Remove all checkpoints, and the folder if it held nothing else."""
        self._waiting.clear()
        if self.folder.is_dir():
            for path in self.folder.glob("*.safetensors"):
                path.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    @property
    def _due(self) -> bool:
        return time.monotonic() - self._written >= self._wait

    def _keep(self, state: "_State", done: int, *, write: bool) -> None:
        self._waiting[state.path] = state.to_bytes(done)
        if write:
            self.write()


class _State:
    """What a checkpoint of one loop holds."""

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

    def put_back(self) -> int:
        """Bring the loop to where its checkpoint has it; the steps that are done."""
        if not self.path.exists():
            return 0
        try:
            state = from_bytes(self.path.read_bytes())
            self._check(state["label"], state["total"])
            restore(self.parts, state["parts"])
            _put_back_generators(state["generators"])
            return int(state["done"])
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            raise InputError(
                f"the checkpoint {str(self.path)!r} is of another run, or was changed ({error}): "
                f"start anew, without what is in {str(self.path.parent)!r}."
            ) from error

    def _check(self, label: str, total: int) -> None:
        if (label, total) != (self.label, self.total):
            raise ValueError(
                f"it is of {total} steps of {label!r}, and the run has {self.total} of "
                f"{self.label!r}"
            )


class _Loop:
    """The watch of one loop; ``state`` is None where it cannot be taken up in the middle."""

    def __init__(self, checkpoints: Checkpoints, shown: Watch, state: _State | None) -> None:
        self.checkpoints, self.shown, self.state = checkpoints, shown, state

    def start(self) -> int:
        self.checkpoints._depth += 1
        self.shown.start()
        done = 0 if self.state is None else self.state.put_back()
        if done:
            self.shown.step(done)
        return done

    def step(self, done: int) -> None:
        self.shown.step(done)
        stopping, due = self.checkpoints.stopping, self.checkpoints._due
        if self.state is not None and (stopping or due):
            self.checkpoints._keep(self.state, done, write=True)
        if stopping:
            self.checkpoints.write()
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.shown.note(text)

    def finish(self) -> None:
        self.shown.finish()
        if self.state is not None:
            self.checkpoints._keep(self.state, self.state.total, write=self.checkpoints._due)

    def stop(self) -> None:
        self.checkpoints._depth -= 1
        self.shown.stop()


def _generators() -> dict[str, Any]:
    """States of torch's own generators."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _put_back_generators(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def stopped_by_signals(checkpoints: Checkpoints) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM stop the block after the step that it is in; the second one at once.

    Outside the main thread, where no handlers can be set, signals are left alone.
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
