"""What a run says while it goes on: to nobody, line by line, or live on a terminal."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bayestree._progress import Parts, Watch

EVERY = 10.0  # seconds between lines on a loop


class Display(Protocol):
    """Where a run says what it does; a monitor of its loops as well."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def say(self, text: str) -> None:
        """One line for a person."""

    def warn(self, text: str) -> None:
        """One line of which a person must know."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """A loop is about to begin (see :class:`bayestree._progress.Monitor`)."""

    def close(self) -> None:
        """The run ends, well or not."""


class Silent:
    """Says nothing but what a person must know, and that by ``warn``.

    Parameters
    ----------
    warn : callable, optional
        Takes a line.
    """

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn

    def stage(self, name: str) -> None: ...

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None:
        if self._warn is not None:
            self._warn(text)

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _Unseen()

    def close(self) -> None: ...


class _Unseen:
    """A loop that nobody looks at."""

    def start(self) -> int:
        return 0

    def step(self, done: int) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """Plain lines: for files, pipes and logs.

    Parameters
    ----------
    write : callable
        Takes a line.
    every : float
        Seconds between two lines on the same loop.
    """

    def __init__(self, write: Callable[[str], None], *, every: float = EVERY) -> None:
        self.write, self.every = write, every
        self.now = ""  # the stage

    def stage(self, name: str) -> None:
        self.now = name
        self.write(name)

    def say(self, text: str) -> None:
        self.write(text)

    def warn(self, text: str) -> None:
        self.write(f"warning: {text}")

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _Told(self, label, total) if show else _Unseen()

    def close(self) -> None: ...


class _Told:
    """A loop in lines: one every so often, and one at its end."""

    def __init__(self, lines: Lines, label: str, total: int) -> None:
        self.lines, self.label, self.total = lines, label, total
        self.done, self.words = 0, ""
        self.first, self.finished = 0, False

    def start(self) -> int:
        self.started = self.told = time.monotonic()
        return 0

    def step(self, done: int) -> None:
        now = time.monotonic()
        if now == self.started or self.done == 0:
            self.first = done - 1  # steps that were done before the loop was taken up
        self.done = done
        if now - self.told >= self.lines.every:
            self.told = now
            steps = max(done - self.first, 1)
            left = (now - self.started) / steps * (self.total - done)
            self._tell(f"{done} of {self.total}", f"{_clock(left)} left")

    def note(self, text: str) -> None:
        self.words = text

    def finish(self) -> None:
        self.finished = True

    def stop(self) -> None:
        steps = f"{self.done} of {self.total}" if self.done < self.total else f"{self.total}"
        end = "" if self.finished else ", left off"
        self._tell(f"{steps} steps{end}", _clock(time.monotonic() - self.started))

    def _tell(self, *words: str) -> None:
        told = (*words[:1], *([self.words] if self.words else []), *words[1:])
        self.lines.write(f"{self.lines.now}: {self.label} {', '.join(told)}")


class LogFile(Lines):
    """Lines with their times, at the end of a file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.file = path.open("a", encoding="utf-8")
        super().__init__(self._log)

    def close(self) -> None:
        self.file.close()

    def _log(self, line: str) -> None:
        self.file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n")
        self.file.flush()


class Live:
    """Bars on a terminal: the stage, and each loop with its numbers and the time left.

    Parameters
    ----------
    console : rich.console.Console, optional
        By default that of standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("[cyan]{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.task: TaskID | None = None

    def stage(self, name: str) -> None:
        self.progress.start()
        if self.task is not None:
            self.progress.remove_task(self.task)
        self.task = self.progress.add_task(f"[bold]{name}", total=None, note="")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        self.console.print(f"warning: {text}", markup=False, highlight=False, style="yellow")

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _Shown(self.progress, label, total) if show else _Unseen()

    def close(self) -> None:
        self.progress.stop()


class _Shown:
    """A loop on a terminal."""

    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self.progress = progress
        self.task = progress.add_task(f"  {label}", total=total, note="", visible=False)

    def start(self) -> int:
        self.progress.reset(self.task, visible=True)
        return 0

    def step(self, done: int) -> None:
        self.progress.update(self.task, completed=done)

    def note(self, text: str) -> None:
        self.progress.update(self.task, note=text)

    def finish(self) -> None: ...

    def stop(self) -> None:
        self.progress.remove_task(self.task)


class Both:
    """Several displays as one, closed at the end of its block.

    Parameters
    ----------
    displays : displays
    """

    def __init__(self, *displays: Display) -> None:
        self.displays = displays

    def stage(self, name: str) -> None:
        for display in self.displays:
            display.stage(name)

    def say(self, text: str) -> None:
        for display in self.displays:
            display.say(text)

    def warn(self, text: str) -> None:
        for display in self.displays:
            display.warn(text)

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _All([each.begin(label, total, parts, show=show) for each in self.displays])

    def close(self) -> None:
        for display in self.displays:
            display.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _All:
    """A loop that several displays show."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self.watches = watches

    def start(self) -> int:
        return max([watch.start() for watch in self.watches])

    def step(self, done: int) -> None:
        for watch in self.watches:
            watch.step(done)

    def note(self, text: str) -> None:
        for watch in self.watches:
            watch.note(text)

    def finish(self) -> None:
        for watch in self.watches:
            watch.finish()

    def stop(self) -> None:
        for watch in self.watches:
            watch.stop()


def _clock(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
