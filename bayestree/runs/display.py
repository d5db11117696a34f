"""Displays of a running fit: bars on a terminal, plain lines elsewhere, and the log."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from bayestree._utils.progress import Parts, Watch
from bayestree._utils.write import naming


class Display:
    """Receives the reports of a run and monitors its loops; by default it ignores them."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def say(self, text: str) -> None:
        """Report one line."""

    def warn(self, text: str) -> None:
        """Report one line that the user must not miss."""
        self.say(f"warning: {text}")

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """A loop is about to begin (see :class:`bayestree._utils.progress.Monitor`)."""
        return Watch()

    def close(self) -> None:
        """The run has ended, successfully or not."""


class Silent(Display):
    """Reports warnings only, each as a line to ``warn``, or nothing if there is no ``warn``."""

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn

    def warn(self, text: str) -> None:
        if self._warn is not None:
            self._warn(text)


def _forwarded(name: str) -> Any:
    """A method that calls the method of this name of all members."""

    def call(self: Any, *values: Any) -> None:
        for member in self.members:
            getattr(member, name)(*values)

    return call


class Displays(Display):
    """Several displays as one."""

    def __init__(self, *displays: Display) -> None:
        self.members = displays

    stage, say, warn, close = map(_forwarded, ("stage", "say", "warn", "close"))

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _All([each.begin(label, total, parts, show=show) for each in self.members])


class _All(Watch):
    """A loop that several displays show."""

    def __init__(self, members: Sequence[Watch]) -> None:
        self.members = members

    step, note, finish, stop = map(_forwarded, ("step", "note", "finish", "stop"))

    def start(self) -> int:
        return max([watch.start() for watch in self.members])


EVERY = 10.0  # seconds between two lines about a loop


class Lines(Display):
    """Plain lines for files and logs, with ``every`` seconds between two about the same loop."""

    def __init__(self, write: Callable[[str], None], *, every: float = EVERY) -> None:
        self.write, self.every = write, every
        self.current_stage = ""

    def stage(self, name: str) -> None:
        self.current_stage = name
        self.write(name)

    def say(self, text: str) -> None:
        self.write(text)

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _LoopInLines(self, label, total) if show else Watch()


class Loop(Watch):
    """The state of a loop, in words."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self.done, self.text, self.finished = 0, "", False
        self.resumed_at = 0  # steps that were done before the loop was resumed

    def start(self) -> int:
        self.started = time.monotonic()
        return 0

    def step(self, done: int) -> None:
        if self.done == 0:
            self.resumed_at = done - 1
        self.done = done

    def note(self, text: str) -> None:
        self.text = text

    def finish(self) -> None:
        self.finished = True

    def progress(self) -> str:
        """Steps, latest note and time left."""
        passed = time.monotonic() - self.started
        left = passed / max(self.done - self.resumed_at, 1) * (self.total - self.done)
        return self._line(f"{self.done} of {self.total}", f"{clock(left)} left")

    def result(self) -> str:
        """Steps, latest note and time taken."""
        interrupted = not self.finished and self.done < self.total
        steps = f"{self.done} of {self.total}" if interrupted else str(self.done)
        return self._line(f"{steps} steps", clock(time.monotonic() - self.started))

    def _line(self, steps: str, seconds: str) -> str:
        return ", ".join(filter(None, (f"{self.label} {steps}", self.text, seconds)))


class _LoopInLines(Loop):
    """A loop in lines: one at intervals, and one at its end, unless it is short and has no note."""

    def __init__(self, lines: Lines, label: str, total: int) -> None:
        super().__init__(label, total)
        self.lines = lines

    def start(self) -> int:
        done = super().start()
        self.written = self.started
        return done

    def step(self, done: int) -> None:
        super().step(done)
        if time.monotonic() - self.written >= self.lines.every:
            self.written = time.monotonic()
            self._write(self.progress())

    def stop(self) -> None:
        short = self.finished and self.written == self.started
        if self.text or not short:
            self._write(self.result())

    def _write(self, text: str) -> None:
        self.lines.write(f"{self.lines.current_stage}: {text}")


class LogFile(Lines):
    """Lines with their times, appended to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Unbuffered: lines that could not be written are not retried when the file is closed.
        self.file = path.open("ab", buffering=0)
        super().__init__(self._log)

    def close(self) -> None:
        self.file.close()

    def _log(self, line: str) -> None:
        stamped = f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n"
        with naming(self.path):
            self.file.write(stamped.encode())


def clock(seconds: float) -> str:
    """Seconds as ``minutes:seconds``, or ``hours:minutes:seconds``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


class Live(Display):
    """The current stage, and a bar for each loop with its latest note and the time left.

    By default it is shown on standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            _LoopColumn(BarColumn(bar_width=24)),
            _LoopColumn(MofNCompleteColumn()),
            TextColumn("[cyan]{task.fields[note]}"),
            _LoopColumn(TimeRemainingColumn(compact=True)),
            _LoopColumn(TextColumn("left")),
            console=self.console,
            transient=True,
        )
        self.current_stage: tuple[str, TaskID, float] | None = None  # name, task and start

    def stage(self, name: str) -> None:
        self.progress.start()
        self._end_stage()
        task = self.progress.add_task(f"[bold]{name}", total=None, note="")
        self.current_stage = (name, task, time.monotonic())

    def say(self, text: str) -> None:
        self._print(text)

    def warn(self, text: str) -> None:
        self._print(f"warning: {text}", style="yellow")

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _LiveLoop(self, label, total) if show else Watch()

    def close(self) -> None:
        self._end_stage()
        self.progress.stop()

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)

    def _end_stage(self) -> None:
        if self.current_stage is not None:
            name, task, started = self.current_stage
            self.progress.remove_task(task)
            self.say(f"{name} {clock(time.monotonic() - started)}")
            self.current_stage = None


class _LoopColumn(ProgressColumn):
    """A column that is empty for stages, which have no number of steps."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self.column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self.column.render(task)


class _LiveLoop(Loop):
    """A loop on a terminal: a bar while it runs, a line at its end."""

    def __init__(self, live: Live, label: str, total: int) -> None:
        super().__init__(label, total)
        self.live = live

    def start(self) -> int:
        self.task = self.live.progress.add_task(f"  {self.label}", total=self.total, note="")
        return super().start()

    def step(self, done: int) -> None:
        super().step(done)
        self.live.progress.update(self.task, completed=done)

    def note(self, text: str) -> None:
        super().note(text)
        self.live.progress.update(self.task, note=text)

    def stop(self) -> None:
        self.live.progress.remove_task(self.task)
        self.live.say(f"  {self.result()}")
