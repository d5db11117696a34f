"""Loops that can be watched: shown on a terminal, and taken up again after an interruption."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
Parts = Mapping[str, Any]


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
            ``bayestree._state``); None for a loop that cannot be taken up in the middle.
        show : bool
            Whether the caller wants to see it.
        """


class Track(Generic[Item]):
    """Iterate over steps while a monitor watches.

    A loop that is taken up again yields only the steps that are not yet done.

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


class _Bar:
    """A bar on a terminal, and nothing elsewhere."""

    def __init__(self, label: str, total: int, *, show: bool) -> None:
        console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not (show and console.is_terminal),
            transient=True,
        )
        self.task = self.progress.add_task(label, total=total, note="")

    def start(self) -> int:
        self.progress.start()
        return 0

    def step(self, done: int) -> None:
        self.progress.update(self.task, completed=done)

    def note(self, text: str) -> None:
        self.progress.update(self.task, note=text)

    def finish(self) -> None:
        """The bar goes when the loop is left."""

    def stop(self) -> None:
        self.progress.stop()


class Bars:
    """The monitor of fits that nobody else watches: bars on a terminal."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _Bar(label, total, show=show)


_monitor: ContextVar[Monitor] = ContextVar("monitor", default=Bars())  # noqa: B039 - no state


@contextmanager
def watching(monitor: Monitor) -> Iterator[None]:
    """Let a monitor watch all loops of the block; those in other processes go unwatched."""
    token = _monitor.set(monitor)
    try:
        yield
    finally:
        _monitor.reset(token)
