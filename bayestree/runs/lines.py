"""How a run goes on, in plain lines: for pipes, files and logs."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bayestree._utils.progress import Hidden, Parts, Watch
from bayestree._utils.write import naming

EVERY = 10.0  # seconds between lines on a loop


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
        return _Told(self, label, total) if show else Hidden()

    def close(self) -> None: ...


class Loop:
    """How far a loop is."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self.done, self.words, self.finished = 0, "", False
        self.before = 0  # steps that were done when the loop was taken up

    def start(self) -> int:
        self.started = time.monotonic()
        return 0

    def step(self, done: int) -> None:
        if self.done == 0:
            self.before = done - 1
        self.done = done

    def note(self, text: str) -> None:
        self.words = text

    def finish(self) -> None:
        self.finished = True

    def stop(self) -> None: ...

    def so_far(self) -> str:
        """Steps, numbers, and the time that is left."""
        passed = time.monotonic() - self.started
        left = passed / max(self.done - self.before, 1) * (self.total - self.done)
        return self._told(f"{self.done} of {self.total}", f"{clock(left)} left")

    def at_the_end(self) -> str:
        """Steps, numbers, and the time that it took."""
        left_off = not self.finished and self.done < self.total
        steps = f"{self.done} of {self.total}" if left_off else str(self.done)
        return self._told(f"{steps} steps", clock(time.monotonic() - self.started))

    def _told(self, steps: str, seconds: str) -> str:
        return ", ".join(filter(None, (f"{self.label} {steps}", self.words, seconds)))


class _Told(Loop):
    """A loop in lines: one every so often, and one at its end."""

    def __init__(self, lines: Lines, label: str, total: int) -> None:
        super().__init__(label, total)
        self.lines = lines

    def start(self) -> int:
        done = super().start()
        self.told = self.started
        return done

    def step(self, done: int) -> None:
        super().step(done)
        if time.monotonic() - self.told >= self.lines.every:
            self.told = time.monotonic()
            self._tell(self.so_far())

    def stop(self) -> None:
        self._tell(self.at_the_end())

    def _tell(self, text: str) -> None:
        self.lines.write(f"{self.lines.now}: {text}")


class LogFile(Lines):
    """Lines with their times, at the end of a file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # unbuffered: what could not be written is not tried again when the file is closed
        self.file = path.open("ab", buffering=0)
        super().__init__(self._log)

    def close(self) -> None:
        self.file.close()

    def _log(self, line: str) -> None:
        stamped = f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n"
        with naming(self.path):
            self.file.write(stamped.encode())


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, or hours before them."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
