"""What a run says while it goes on: to nobody, or to several displays at once."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from bayestree._utils.progress import Hidden, Parts, Watch


class Display(Protocol):
    """Where a run says what it does; a monitor of its loops as well."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def say(self, text: str) -> None:
        """One line for a person."""

    def warn(self, text: str) -> None:
        """One line of which a person must know."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """A loop is about to begin (see :class:`bayestree._utils.progress.Monitor`)."""

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
        return Hidden()

    def close(self) -> None: ...


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
