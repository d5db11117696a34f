"""How a run goes on, live on a terminal."""

import time

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

from bayestree._utils.progress import Hidden, Parts, Watch
from bayestree.runs.lines import Loop, clock


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
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            _OfLoops(BarColumn(bar_width=24)),
            _OfLoops(MofNCompleteColumn()),
            TextColumn("[cyan]{task.fields[note]}"),
            _OfLoops(TimeRemainingColumn(compact=True)),
            _OfLoops(TextColumn("left")),
            console=self.console,
            transient=True,
        )
        self.now: tuple[str, TaskID, float] | None = None  # the stage, since when

    def stage(self, name: str) -> None:
        self.progress.start()
        self._end_stage()
        task = self.progress.add_task(f"[bold]{name}", total=None, note="")
        self.now = (name, task, time.monotonic())

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.console.print(
            f"warning: {text}", markup=False, highlight=False, soft_wrap=True, style="yellow"
        )

    def begin(self, label: str, total: int, parts: Parts | None, *, show: bool) -> Watch:
        return _Shown(self, label, total) if show else Hidden()

    def close(self) -> None:
        self._end_stage()
        self.progress.stop()

    def _end_stage(self) -> None:
        if self.now is not None:
            name, task, since = self.now
            self.progress.remove_task(task)
            self.say(f"{name} {clock(time.monotonic() - since)}")
            self.now = None


class _OfLoops(ProgressColumn):
    """A column for loops, which have a number of steps; stages have none."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self.column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self.column.render(task)


class _Shown(Loop):
    """A loop on a terminal: a bar while it goes on, a line at its end."""

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
        self.live.say(f"  {self.at_the_end()}")
