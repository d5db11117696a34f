"""Checkpoints of a run: the states of its loops, each written to a file without pickle.

A fit is a sequence of loops. The short computations between them are repeated when a run is
resumed; each loop continues from its last checkpoint, so that an interruption does not change
the numbers.
"""

import hashlib
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bayestree._utils.arrays import AnyArray
from bayestree._utils.progress import Bars, Monitor, Parts, Watch
from bayestree._utils.wording import InputError, warn
from bayestree._utils.write import write_whole

HEADER = 8  # bytes of the header length
KEY = "state"
BLANK = "0" * 64  # in the place of the checksum, when this is computed


class DamagedStateError(ValueError):
    """A file that is not what was written as the state of a loop."""


def capture(parts: Parts) -> dict[str, Any]:
    """Return the current state of each part; TypeError for a part without a state.

    Tensors may be shared with the parts: write the state before the loop continues.
    """
    return {name: _capture(name, part) for name, part in parts.items()}


def restore(parts: Parts, state: Mapping[str, Any]) -> None:
    """Restore parts in place, which preserves memory layouts and so the rounding of sums."""
    if parts.keys() != state.keys():
        raise ValueError(f"the state has parts {sorted(state)}, but the loop has {sorted(parts)}.")
    for name, part in parts.items():
        _restore(part, state[name])


def _capture(name: str, part: Any) -> Any:
    if isinstance(part, torch.Tensor | np.ndarray):
        return part
    if isinstance(part, list):
        return list(part)
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    if isinstance(part, np.random.RandomState):
        return part.get_state(legacy=False)
    if isinstance(part, torch.Generator):
        return part.get_state()
    if not hasattr(part, "state_dict"):
        raise TypeError(f"part {name!r} of type {type(part).__name__} has no state_dict().")
    return part.state_dict()


def _restore(part: Any, state: Any) -> None:
    if isinstance(part, torch.Tensor):
        with torch.no_grad():
            part.copy_(state)
    elif isinstance(part, np.ndarray):
        part[...] = state
    elif isinstance(part, list):
        part[:] = state
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    elif isinstance(part, np.random.RandomState | torch.Generator):
        part.set_state(state)
    else:
        part.load_state_dict(state)


def to_bytes(state: Any) -> bytes:
    """Return a state as a safetensors file: arrays, and everything else as JSON in the header.

    The state is a nested dict, list or tuple of tensors, arrays, numbers, strings, bool and None;
    TypeError for anything else. The header has a SHA-256 of the file.
    """
    arrays: dict[str, AnyArray] = {}
    plain = _plain(state, arrays)
    blank = bytes(save(arrays, {KEY: json.dumps({"checksum": BLANK, "state": plain})}))
    return blank.replace(BLANK.encode(), hashlib.sha256(blank).hexdigest().encode(), 1)


def from_bytes(raw: bytes) -> Any:
    """Return the inverse of :func:`to_bytes`. Nothing is executed.

    DamagedStateError for anything else, and ValueError for a state of version 0.2 or earlier.
    """
    try:
        length = int.from_bytes(raw[:HEADER], "little")
        found = json.loads(json.loads(raw[HEADER : HEADER + length])["__metadata__"][KEY])
        checksum = str(found["checksum"]) if "checksum" in found else ""
        blank = raw.replace(checksum.encode(), BLANK.encode(), 1)
        if hashlib.sha256(blank).hexdigest() == checksum:
            return _decode(found["state"], load(raw))
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedStateError(f"not a valid loop state: {error}") from error
    if not checksum:
        raise ValueError("it has no checksum, as those of version 0.2 and earlier")
    raise DamagedStateError("its checksum differs")


def _plain(value: Any, arrays: dict[str, AnyArray]) -> Any:
    """Return a value as JSON, with tags for other types; arrays are moved to ``arrays``."""
    if value is None or isinstance(value, bool | int | float | str):
        return value if not isinstance(value, np.generic) else _stored("scalar", value, arrays)
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"mapping": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, torch.Tensor):
        return _stored("tensor", value.numpy(force=True), arrays)
    if isinstance(value, np.ndarray | np.generic):
        return _stored("array" if isinstance(value, np.ndarray) else "scalar", value, arrays)
    raise TypeError(f"{type(value).__name__} cannot be part of a state.")


def _stored(tag: str, value: Any, arrays: dict[str, AnyArray]) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an array of type {array.dtype} cannot be part of a state.")
    name, axes = str(len(arrays)), _axes(array)
    arrays[name] = np.array(array.transpose(axes), order="C")
    return {tag: [name, axes]}


def _axes(array: AnyArray) -> list[int]:
    """Return the axes in memory order, which determines the order of summation."""
    axes = list(range(array.ndim))
    if 0 in array.strides:  # broadcast
        return axes
    return sorted(axes, key=lambda axis: -abs(array.strides[axis]))


def _decode(value: Any, arrays: Mapping[str, AnyArray]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()
    if tag == "tuple":
        return tuple(_decode(item, arrays) for item in inner)
    if tag == "mapping":
        return {_decode(k, arrays): _decode(v, arrays) for k, v in inner}
    name, axes = inner
    # A copy is aligned and writable, unlike arrays in the file.
    array = np.array(arrays[name]).transpose(np.argsort(axes))
    if tag == "tensor":
        return torch.from_numpy(array).clone()  # with torch's alignment
    return {"array": array, "scalar": array[()]}[tag]


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
        self.stopping = False  # whether to raise a KeyboardInterrupt after the current step
        self.depth = 0  # number of nested loops that are running
        self._count = 0  # number of outermost loops so far
        self._pending: dict[Path, bytes] = {}  # states not yet written
        self._interval = every
        self._written = time.monotonic()

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        shown = self.display.begin(label, total, parts, show=show)
        state = None
        if not self.depth:
            self._count += 1
            if parts is not None:
                path = self.folder / f"{self._count:04d}.safetensors"
                state = _State(path, label, total, parts)
        return _Loop(self, shown, state)

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
    def due(self) -> bool:
        return time.monotonic() - self._written >= self._interval

    def keep(self, state: "_State", done: int, *, write: bool) -> None:
        self._pending[state.path] = state.to_bytes(done)
        if write:
            self.write()


class _State:
    """Contents of the checkpoint of one loop."""

    def __init__(self, path: Path, label: str, total: int, parts: Parts) -> None:
        self.path, self.label, self.total, self.parts = path, label, total, parts

    def to_bytes(self, done: int) -> bytes:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return to_bytes(
            {
                "label": self.label,
                "total": self.total,
                "done": done,
                "generators": {"cpu": torch.get_rng_state(), "cuda": cuda},
                "parts": capture(self.parts),
            }
        )

    def restore(self) -> int:
        """Restore the loop from its checkpoint, if any, and return the number of steps done.

        A loop whose checkpoint is damaged starts again where the loop before it has ended, as one
        without a checkpoint, so that the numbers stay the same.
        """
        if not self.path.exists():
            return 0
        try:
            state = from_bytes(self.path.read_bytes())
            self._check(state["label"], state["total"])
            restore(self.parts, state["parts"])
            torch.set_rng_state(state["generators"]["cpu"])
            if cuda := state["generators"]["cuda"]:
                torch.cuda.set_rng_state_all(cuda)
            return int(state["done"])
        except DamagedStateError as error:
            warn(
                f"the checkpoint {str(self.path)!r} is damaged ({error}); {self.label!r} starts "
                "again, which does not change the numbers.",
                UserWarning,
            )
            return 0
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
        self.checkpoints.depth += 1
        self.shown.start()
        done = 0 if self.state is None else self.state.restore()
        if done:
            self.shown.step(done)
        return done

    def step(self, done: int) -> None:
        self.shown.step(done)
        stopping, due = self.checkpoints.stopping, self.checkpoints.due
        if self.state is not None and (stopping or due):
            self.checkpoints.keep(self.state, done, write=True)
        if stopping:
            self.checkpoints.write()
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.shown.note(text)

    def finish(self) -> None:
        self.shown.finish()
        if self.state is not None:
            self.checkpoints.keep(self.state, self.state.total, write=self.checkpoints.due)

    def stop(self) -> None:
        self.checkpoints.depth -= 1
        self.shown.stop()


@contextmanager
def stopped_by_signals(checkpoints: Checkpoints) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM stop the block after the current step, and a second one immediately.

    Signals are left alone outside the main thread, where no handlers can be set.
    """

    def stop(*_: object) -> None:
        if checkpoints.stopping:
            raise KeyboardInterrupt
        checkpoints.stopping = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
