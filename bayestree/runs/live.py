"""Progress of a run as bars on a terminal."""

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

from bayestree._utils.progress import Parts, Watch
from bayestree.runs.lines import Loop, clock
from bayestree.runs.progress import Display


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
