"""Loops with progress bars that can resume after an interruption."""

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from pydantic import Field
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)

Item = TypeVar("Item")
Parts = Mapping[str, Any]
Verbose = bool | Annotated[int, Field(ge=0)] | Literal["auto"]

DELAY = 1.0  # seconds before "auto" shows the progress of a fit
INTERVAL = 0.2  # seconds between updates of a line of text


class Watch:
    """Callbacks of a monitor for one loop; by default they do nothing."""

    def start(self) -> int:
        """Begin: restore the parts and return the number of completed steps."""
        return 0

    def step(self, done: int) -> None:
        """Take notice of a step, given the number of completed steps."""

    def note(self, text: str) -> None:
        """Show a short status text."""

    def finish(self) -> None:
        """Take notice that the loop is complete."""

    def stop(self) -> None:
        """End: the loop is left, complete or not."""


class Monitor(Protocol):
    """Watches the loops of a fit."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """Watch a loop of ``total`` steps, which is about to begin.

        ``parts`` is all state that the loop changes and later steps need, except torch's
        generator (see ``bayestree.runs.checkpoints``); None for a loop that cannot be resumed.
        """


class Track(Generic[Item]):
    """Iterate over steps while a monitor watches; a resumed loop yields only the remaining steps.

    ``parts`` is all state that the loop changes (see :class:`Monitor`); what follows from it should
    be recomputed in each step.
    """

    def __init__(
        self, steps: Iterable[Item], label: str, *, show: bool, parts: Parts | None = None
    ) -> None:
        # A range, which may be huge, is not expanded.
        self.steps: Sequence[Item] = steps if isinstance(steps, Sequence) else list(steps)
        self.watch = _monitor.get().begin(label, len(self.steps), parts, show=show)

    def __iter__(self) -> Iterator[Item]:
        try:
            done = self.watch.start()
            for step in self.steps[done:]:
                yield step
                done += 1
                self.watch.step(done)
            self.watch.finish()
        finally:
            self.watch.stop()

    def note(self, text: str) -> None:
        """Show a short text next to the bar."""
        self.watch.note(text)

    def finish(self) -> None:
        """Declare the loop complete before leaving it early."""
        self.watch.finish()


class Bars:
    """The default monitor: bars on a terminal or in a notebook.

    Nested bars are stacked and removed when the outermost loop ends. They appear at the time
    ``since``, as measured by ``time.monotonic``. On a given ``console`` they are shown in any case.
    """

    def __init__(
        self, console: Console | None = None, *, shown: bool = True, since: float = 0.0
    ) -> None:
        self.console, self.shown, self.since = console, shown, since
        self._lock = threading.Lock()
        self._open = 0  # running loops
        self._timer: threading.Timer | None = None
        self.progress: Progress

    def begin(self, label: str, total: int | None, parts: Parts | None, *, show: bool) -> Watch:
        """See :class:`Monitor`; without a ``total`` there is a spinner in the place of the bar."""
        visible = show and self.shown and (self.console is not None or _can_show())
        return _Bar(self, label, total) if visible else Watch()

    def open(self) -> int:
        """Register a loop and return how many are around it; bars may appear after a delay."""
        with self._lock:
            self._open += 1
            if self._open == 1:
                self.progress = _progress(self.console or Console(stderr=True))
                wait = self.since - time.monotonic()
                if wait <= 0:
                    self.progress.start()
                else:
                    self._timer = threading.Timer(wait, self._appear)
                    self._timer.daemon = True
                    self._timer.start()
            return self._open - 1

    def close(self) -> None:
        """Remove a loop."""
        with self._lock:
            self._open -= 1
            if self._open == 0:
                if self._timer is not None:
                    self._timer.cancel()
                self.progress.stop()

    def _appear(self) -> None:
        with self._lock:
            if self._open:
                self.progress.start()


def _progress(console: Console) -> Progress:
    kind = _TextLine if console.is_jupyter and not find_spec("ipywidgets") else Progress
    return kind(
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description}"),
        _LoopColumn(BarColumn(bar_width=24)),
        _LoopColumn(MofNCompleteColumn()),
        TextColumn("[cyan]{task.fields[note]}"),
        _LoopColumn(TimeRemainingColumn(compact=True)),
        console=console,
        transient=True,
        # Output to a file or a pipe must not be redirected to the terminal.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )


class _LoopColumn(ProgressColumn):
    """A column that is empty if the number of steps is unknown."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self.column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self.column.render(task)


class _TextLine(Progress):
    """One line of text instead of bars, for notebooks without ipywidgets, which rich requires."""

    shown = False
    due = 0.0  # time of the next update
    width = 0  # of the current text

    def start(self) -> None:
        self.shown = True

    def update(self, *args: Any, **fields: Any) -> None:
        super().update(*args, **fields)
        if self.shown and time.monotonic() >= self.due:
            self.due = time.monotonic() + INTERVAL
            each = (
                f"{task.description} {task.completed:g}/{task.total:g} {task.fields['note']}"
                for task in self.tasks
                if task.total is not None
            )
            self._write(", ".join(map(str.strip, each)))

    def stop(self) -> None:
        if self.shown:
            self._write("")
            sys.stderr.write("\r")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self.width)}")
        sys.stderr.flush()
        self.width = len(text)


class _Bar(Watch):
    """The bar of one loop."""

    def __init__(self, bars: Bars, label: str, total: int | None) -> None:
        self.bars, self.label, self.total = bars, label, total

    def start(self) -> int:
        name = "  " * self.bars.open() + self.label
        self.task = self.bars.progress.add_task(name, total=self.total, note="")
        return 0

    def step(self, done: int) -> None:
        self.bars.progress.update(self.task, completed=done)

    def note(self, text: str) -> None:
        self.bars.progress.update(self.task, note=text)

    def stop(self) -> None:
        self.bars.progress.remove_task(self.task)
        self.bars.close()


def _can_show() -> bool:
    """Return whether standard error is a terminal or is shown in a notebook."""
    console = Console(stderr=True)
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return console.is_jupyter or (terminal and not console.is_dumb_terminal)


_DEFAULT = Bars()
_monitor: ContextVar[Monitor] = ContextVar("monitor", default=_DEFAULT)


def watched() -> bool:
    """Return whether a monitor is active, which does not see the loops of other processes."""
    return _monitor.get() is not _DEFAULT


def steps_of(steps: Iterable[Item], label: str) -> Track[Item]:
    """Track steps of what is computed from a fit, shown where a caller asked for progress."""
    return Track(steps, label, show=watched())


@contextmanager
def fitting(verbose: Verbose) -> Iterator[None]:
    """Show the loops of a block according to ``verbose``, unless another monitor is active.

    ``"auto"`` shows them after a second and only in the main thread of the main process, because
    parallel workers would overwrite each other's output.
    """
    if watched():
        yield
        return
    auto = verbose == "auto"
    shown = bool(verbose)
    if shown and auto:
        main = threading.current_thread() is threading.main_thread()
        shown = main and multiprocessing.current_process().name == "MainProcess"
    with watching(Bars(shown=shown, since=time.monotonic() + DELAY if auto else 0.0)):
        yield


@contextmanager
def watching(monitor: Monitor) -> Iterator[None]:
    """Let a monitor watch all loops of the block, except loops in other processes."""
    token = _monitor.set(monitor)
    try:
        yield
    finally:
        _monitor.reset(token)
