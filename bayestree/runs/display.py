"""Displays of a run: log records for files, pipes and applications, and bars on a terminal."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bayestree._utils.progress import Bars, Parts, Watch
from bayestree._utils.write import naming

EVERY = 10.0  # seconds between two lines about a loop
LOGGER = logging.getLogger("bayestree.runs")


class Display:
    """Receives the reports of a run and monitors its loops; by default it ignores them."""

    def stage(self, name: str) -> None:
        """Report that a stage begins."""

    def say(self, text: str) -> None:
        """Report one line."""

    def warn(self, text: str) -> None:
        """Report one line that the user must not miss."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """Watch a loop that is about to begin (see :class:`bayestree._utils.progress.Monitor`)."""
        return Watch()

    def close(self) -> None:
        """Release what the display holds: the run has ended, successfully or not."""


class Log(Display):
    """Reports as records of ``logging``, with ``every`` seconds between two about the same loop.

    Warnings have the level ``WARNING``, and all others ``INFO``. With ``propagate``, the records
    reach the logger ``bayestree.runs`` of the application, too.
    """

    def __init__(
        self, *handlers: logging.Handler, every: float = EVERY, propagate: bool = False
    ) -> None:
        self.logger = logging.Logger(LOGGER.name, logging.INFO)  # of this display alone
        self.logger.parent = LOGGER if propagate else None
        for handler in handlers:
            self.logger.addHandler(handler)
        self.every, self.current_stage = every, ""

    def stage(self, name: str) -> None:
        self.current_stage = name
        self.say(name)

    def say(self, text: str) -> None:
        self.logger.info("%s", text)

    def warn(self, text: str) -> None:
        self.logger.warning("warning: %s", text)

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return Loop(self, label, total) if show else Watch()

    def close(self) -> None:
        for handler in self.logger.handlers:
            handler.close()

    def tell(self, loop: "Loop", *, ended: bool) -> None:
        """Report a loop that is running, or has ended unless it was short and has no note."""
        if not ended or loop.text or not (loop.finished and loop.told == loop.started):
            self.say(f"{self.current_stage}: {loop.result() if ended else loop.progress()}")


class Live(Log):
    """A spinner for the current stage, a bar for each loop, and a line for each that has ended.

    By default they are shown on standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        super().__init__(Printed(self._print), every=math.inf)
        self.bars = Bars(self.console)
        self._stage = Watch()
        self._started = 0.0

    def stage(self, name: str) -> None:
        self._end_stage()
        self.current_stage, self._started = name, time.monotonic()
        self._stage = self.bars.begin(f"[bold]{name}", None, None, show=True)
        self._stage.start()

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        loop = super().begin(label, total, parts, show=show)
        return _Watches([loop, self.bars.begin(label, total, parts, show=show)])

    def close(self) -> None:
        self._end_stage()
        super().close()

    def tell(self, loop: "Loop", *, ended: bool) -> None:
        if ended:
            self.say(f"  {loop.result()}")

    def _end_stage(self) -> None:
        if self.current_stage:
            self._stage.stop()
            self.say(f"{self.current_stage} {clock(time.monotonic() - self._started)}")
            self.current_stage = ""

    def _print(self, text: str) -> None:
        style = "yellow" if text.startswith("warning: ") else None
        self.console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)


class Loop(Watch):
    """A loop in words, told to a log at intervals and at its end."""

    def __init__(self, log: Log, label: str, total: int) -> None:
        self.log, self.label, self.total = log, label, total
        self.done, self.text, self.finished = 0, "", False
        self.resumed_at = 0  # steps that were done before the loop was resumed

    def start(self) -> int:
        self.started = self.told = time.monotonic()
        return 0

    def step(self, done: int) -> None:
        if self.done == 0:
            self.resumed_at = done - 1
        self.done = done
        if time.monotonic() - self.told >= self.log.every:
            self.told = time.monotonic()
            self.log.tell(self, ended=False)

    def note(self, text: str) -> None:
        self.text = text

    def finish(self) -> None:
        self.finished = True

    def stop(self) -> None:
        self.log.tell(self, ended=True)

    def progress(self) -> str:
        """Return steps, latest note and time left."""
        passed = time.monotonic() - self.started
        left = passed / max(self.done - self.resumed_at, 1) * (self.total - self.done)
        return self._line(f"{self.done} of {self.total}", f"{clock(left)} left")

    def result(self) -> str:
        """Return steps, latest note and time taken."""
        interrupted = not self.finished and self.done < self.total
        steps = f"{self.done} of {self.total}" if interrupted else str(self.done)
        return self._line(f"{steps} steps", clock(time.monotonic() - self.started))

    def _line(self, steps: str, seconds: str) -> str:
        return ", ".join(filter(None, (f"{self.label} {steps}", self.text, seconds)))


class Printed(logging.Handler):
    """Passes the message of each record to a function; its errors are not suppressed."""

    def __init__(self, write: Callable[[str], None], level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.write = write

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format(record))


class LogFile(Printed):
    """Appends records with their times, in UTC, to a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(self._append)
        self.path = path
        # Unbuffered: lines that could not be written are not retried when the file is closed.
        self.file = path.open("ab", buffering=0)
        self.formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S+00:00")
        self.formatter.converter = time.gmtime

    def close(self) -> None:
        self.file.close()
        super().close()

    def _append(self, line: str) -> None:
        with naming(self.path):
            self.file.write(f"{line}\n".encode())


def _forwarded(name: str) -> Any:
    """Return a method that calls the method of this name of all members."""

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
        return _Watches([each.begin(label, total, parts, show=show) for each in self.members])


class _Watches(Watch):
    """Several watches of one loop."""

    def __init__(self, members: Sequence[Watch]) -> None:
        self.members = members

    step, note, finish, stop = map(_forwarded, ("step", "note", "finish", "stop"))

    def start(self) -> int:
        return max([watch.start() for watch in self.members])


def clock(seconds: float) -> str:
    """Return the seconds as ``minutes:seconds``, or ``hours:minutes:seconds``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
