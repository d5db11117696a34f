"""Loops whose progress is shown, and which resume after an interruption."""

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Generic, Literal, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
Parts = Mapping[str, Any]
Verbose = bool | Literal["auto"]

DELAY = 1.0  # seconds of a fit, before "auto" shows its progress
INTERVAL = 0.2  # seconds between two changes of a line of text


class Watch(Protocol):
    """What a monitor does with one loop."""

    def start(self) -> int:
        """The loop begins: bring its parts to where they were, and say how many steps are done."""

    def step(self, done: int) -> None:
        """So many steps are done; the parts are as they are after the last of them."""

    def note(self, text: str) -> None:
        """A few words on how it goes."""

    def finish(self) -> None:
        """The loop came to its end."""

    def stop(self) -> None:
        """The loop is left, at its end or before."""


class Monitor(Protocol):
    """What watches the loops of a fit."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """A loop of so many steps is about to begin.

        Parameters
        ----------
        label : str
        total : int
        parts : mapping or None
            All that the loop changes and later steps depend on, but for torch's generator (see
            ``bayestree._utils.state``); None for a loop that cannot be taken up in the middle.
        show : bool
            Whether the caller wants to see it.
        """


class Track(Generic[Item]):
    """Iterate over steps while a monitor watches.

    A loop that resumes yields only the steps that are not yet done.

    Parameters
    ----------
    steps : iterable with a length
    label : str
        What is being done.
    show : bool
        Show how far it is.
    parts : mapping, optional
        All that the loop changes (see :class:`Monitor`). What follows from them alone, such as
        the number of the step, is better worked out anew in each step.
    """

    def __init__(
        self, steps: Iterable[Item], label: str, *, show: bool, parts: Parts | None = None
    ) -> None:
        # a range stays one: that of all the levels a tree may have can be long
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
        """Write a few words behind the bar."""
        self.watch.note(text)

    def finish(self) -> None:
        """Nothing is left to be done: to be said before a loop is left early."""
        self.watch.finish()


class Hidden:
    """A loop without a display."""

    def start(self) -> int:
        return 0

    def step(self, done: int) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self) -> None: ...

    def stop(self) -> None: ...


class Bars:
    """The default monitor of loops: bars on a terminal or in a notebook.

    Nested bars are stacked and removed when the outermost loop ends.

    Parameters
    ----------
    shown : bool
        Whether there is anything to see.
    since : float
        Time by ``time.monotonic`` at which the bars may appear.
    """

    def __init__(self, *, shown: bool = True, since: float = 0.0) -> None:
        self.shown, self.since = shown, since
        self._lock = threading.Lock()
        self._open = 0  # loops that run now
        self._timer: threading.Timer | None = None
        self.progress: Progress

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """See :class:`Monitor`."""
        return _Bar(self, label, total) if show and self.shown and _can_show() else Hidden()

    def open(self) -> None:
        """A loop begins: show the bars, at once or in time."""
        with self._lock:
            self._open += 1
            if self._open > 1:
                return
            console = Console(stderr=True)
            kind = _TextLine if console.is_jupyter and not find_spec("ipywidgets") else Progress
            self.progress = kind(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=console,
                transient=True,
                # what goes to a file or a pipe must not end up on the terminal
                redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            )
            wait = self.since - time.monotonic()
            if wait <= 0:
                self.progress.start()
            else:
                self._timer = threading.Timer(wait, self._appear)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """A loop ended."""
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


class _TextLine(Progress):
    """The bars as one line of text, for notebooks without ipywidgets, which rich needs there."""

    shown = False
    due = 0.0  # time of the next change
    width = 0  # of the text that is there now

    def start(self) -> None:
        """Write from the next step on."""
        self.shown = True

    def update(self, *args: Any, **fields: Any) -> None:
        """Change a task, and the line now and then."""
        super().update(*args, **fields)
        if self.shown and time.monotonic() >= self.due:
            self.due = time.monotonic() + INTERVAL
            each = (
                f"{task.description} {task.completed:g}/{task.total:g} {task.fields['note']}"
                for task in self.tasks
            )
            self._write(", ".join(map(str.strip, each)))

    def stop(self) -> None:
        """Clear the line."""
        if self.shown:
            self._write("")
            sys.stderr.write("\r")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self.width)}")
        sys.stderr.flush()
        self.width = len(text)


class _Bar:
    """The bar of one loop."""

    def __init__(self, bars: Bars, label: str, total: int) -> None:
        self.bars, self.label, self.total = bars, label, total

    def start(self) -> int:
        self.bars.open()
        self.task = self.bars.progress.add_task(self.label, total=self.total, note="")
        return 0

    def step(self, done: int) -> None:
        self.bars.progress.update(self.task, completed=done)

    def note(self, text: str) -> None:
        self.bars.progress.update(self.task, note=text)

    def finish(self) -> None:
        """The bar goes when the loop is left."""

    def stop(self) -> None:
        self.bars.progress.remove_task(self.task)
        self.bars.close()


def _can_show() -> bool:
    """Whether standard error is a terminal, or a notebook shows it."""
    console = Console(stderr=True)
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return console.is_jupyter or (terminal and not console.is_dumb_terminal)


def _in_charge() -> bool:
    """Whether this is the main thread of the main process, and no worker of another fit."""
    main = threading.current_thread() is threading.main_thread()
    return main and multiprocessing.current_process().name == "MainProcess"


_monitor: ContextVar[Monitor] = ContextVar("monitor", default=Bars())  # noqa: B039 - shared on purpose


@contextmanager
def fitting(verbose: Verbose) -> Iterator[None]:
    """Show the loops of one fit as its parameter ``verbose`` says, unless a monitor watches it.

    ``"auto"`` shows them after a second, and in the main process only: the workers of a search
    over parameters, of a forest or of a sweep would write over each other.
    """
    if not isinstance(_monitor.get(), Bars):
        yield
        return
    auto = verbose == "auto"
    shown = bool(verbose) and (not auto or _in_charge())
    with watching(Bars(shown=shown, since=time.monotonic() + DELAY if auto else 0.0)):
        yield


@contextmanager
def watching(monitor: Monitor) -> Iterator[None]:
    """Let a monitor watch all loops of the block; those in other processes go unwatched."""
    token = _monitor.set(monitor)
    try:
        yield
    finally:
        _monitor.reset(token)
