"""Progress bars on a terminal, silence elsewhere."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


class Track(Generic[Item]):
    """Iterate over steps and show how far they are.

    Parameters
    ----------
    steps : iterable with a length
    label : str
        What is being done.
    show : bool
        Draw a bar; it is drawn on a terminal only.
    """

    def __init__(self, steps: Iterable[Item], label: str, *, show: bool) -> None:
        self.steps = list(steps)
        self.label = label
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
        self.task = self.progress.add_task(label, total=len(self.steps), note="")

    def __iter__(self) -> Iterator[Item]:
        with self.progress:
            for step in self.steps:
                yield step
                self.progress.advance(self.task)

    def note(self, text: str) -> None:
        """Write a few words behind the bar."""
        self.progress.update(self.task, note=text)
