"""Progress of a run in plain lines: for pipes, files and logs."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bayestree._utils.progress import Parts, Watch
from bayestree._utils.write import naming
from bayestree.runs.progress import Display

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
