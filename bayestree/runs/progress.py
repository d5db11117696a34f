"""Displays of a running fit: silent ones, and several at once."""

from collections.abc import Callable, Sequence
from typing import Any

from bayestree._utils.progress import Parts, Watch


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
