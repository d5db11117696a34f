"""Displays of a running fit: silent ones, and several at once."""

from collections.abc import Callable, Sequence

from bayestree._utils.progress import Parts, Watch


class Display:
    """Where a run reports what it does; also the monitor of its loops. By default nowhere."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def say(self, text: str) -> None:
        """Report one line."""

    def warn(self, text: str) -> None:
        """Report one line that the user must not miss."""

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        """A loop is about to begin (see :class:`bayestree._utils.progress.Monitor`)."""
        return Watch()

    def close(self) -> None:
        """The run has ended, successfully or not."""


class Silent(Display):
    """Reports warnings only.

    Parameters
    ----------
    warn : callable, optional
        Receives a line; by default warnings are not reported either.
    """

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn

    def warn(self, text: str) -> None:
        if self._warn is not None:
            self._warn(text)


class Both(Display):
    """Several displays as one."""

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


class _All(Watch):
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
