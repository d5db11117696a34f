"""The driver of a sweep: fits the remaining points and writes the table."""

import math
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bayestree._utils.arrays import Fold
from bayestree._utils.errors import InputError
from bayestree._utils.parallel import Call, in_parallel
from bayestree.runs.cluster import spread
from bayestree.runs.configuration import Metric
from bayestree.runs.display import Display
from bayestree.runs.rows import RunRows, read_rows
from bayestree.runs.store import now, versions
from bayestree.runs.sweep.file import HIGHER_IS_BETTER, SweepFile
from bayestree.runs.sweep.results import (
    BEST,
    DONE,
    FAILED,
    NOTES,
    SWEEP,
    PointOutcome,
    SweepFolder,
    SweepPoint,
    fit_and_score,
    folds_of,
    points_of,
    ranking,
    table_of,
)


@dataclass(frozen=True)
class Sweep:
    """A finished sweep: a table of all points, and a ranking of the settings by ``metric``.

    ``best`` is the run file of the best setting; None if all settings have failed points.
    """

    folder: Path
    table: pd.DataFrame
    ranking: pd.DataFrame
    metric: Metric
    best: Path | None

    @property
    def n_failed(self) -> int:
        return int((self.table["status"] == FAILED).sum())


def sweep(
    file: SweepFile,
    *,
    n_jobs: int | None = None,
    scheduler: str | None = None,
    force: bool = False,
    display: Display | None = None,
    command: str | None = None,
) -> Sweep:
    """Fit and score all points of a sweep that are not finished yet.

    Each finished point is written to a separate file, from which the table is assembled, so that no
    point is lost or counted twice when a process is killed. A point is identified by everything
    that affects its numbers: a sweep that was interrupted or extended keeps its finished points.
    Failed points are retried.

    Parameters
    ----------
    file : SweepFile
    n_jobs : int, optional
        Number of points to fit in parallel on this machine; overrides the file.
    scheduler : str, optional
        Address of a Dask scheduler to send the points to; overrides the file.
    force : bool
        Write into a folder that holds something other than a sweep.
    display : Display, optional
        Shows progress.
    command : str, optional
        Command line, for ``sweep.json``.

    Raises
    ------
    InputError
        If data, folder or scheduler cannot be used, or no rows are left to score.
    KeyboardInterrupt
        On Ctrl-C; finished points are kept.
    """
    folder = SweepFolder(file.sweep.folder)
    folder.check()
    display = display or Display()
    with folder.locked(), closing(display):
        display.stage("sweep")
        job = _SweepInProgress(file, folder, _rows(file), display)
        folder.claim(force=force)
        file.write_toml(folder / SWEEP)
        job.write_notes("running", command)
        try:
            job.run(n_jobs or file.sweep.n_jobs, scheduler or file.sweep.scheduler)
        except BaseException:
            job.write_notes("interrupted", command)
            raise
        job.write_notes("done", command)
        return job.result()


def _rows(file: SweepFile) -> dict[int, RunRows]:
    """Return the rows for each seed, which selects the held-out ones."""
    first = file.files[0]
    fixed = first.data.test is not None or first.data.test_fraction == 0
    if first.data.storage == "disk":
        raise InputError('sweeps do not support [data] storage = "disk"; use "memory".')
    rows: dict[int, RunRows] = {}
    for seed in file.seeds:
        if rows and fixed:
            rows[seed] = next(iter(rows.values()))
        else:
            rows[seed] = read_rows(first.model_copy(update={"seed": seed}))
        if not (rows[seed].held_out or file.sweep.folds):
            raise InputError(
                "no rows are held out to score the points; set [sweep] folds, or [data] "
                "test_fraction in the run file."
            )
    return rows


@dataclass
class _SweepInProgress:
    """A sweep in progress."""

    file: SweepFile
    folder: SweepFolder
    rows: dict[int, RunRows]  # by seed
    display: Display

    def __post_init__(self) -> None:
        self.first_rows = next(iter(self.rows.values()))
        self.points = points_of(self.file, self.rows)
        self.metric = self.file.metric(self.first_rows.task)
        n_folds = self.file.sweep.folds
        self.folds: dict[int, list[Fold]] = {
            seed: folds_of(rows, n_folds, seed) for seed, rows in self.rows.items() if n_folds
        }
        self.outcomes = self.folder.outcomes(self.points)
        self.started = now()

    def run(self, n_jobs: int, scheduler: str | None) -> None:
        remaining = {point.key: point for point in self.points if point.key not in self.outcomes}
        keys = {point.key for point in self.points}
        self.display.say(
            f"{len(self.file.settings)} settings, {len(keys)} points, "
            f"{len(keys) - len(remaining)} of them already finished"
        )
        if not remaining:
            self._write_table()
            return
        with spread(scheduler):
            self._fit_all(remaining, n_jobs)

    def result(self) -> Sweep:
        """Return the results; writes a run file of the best setting."""
        table = table_of(self.points, self.outcomes)
        ranked = ranking(table, self.metric, len(self.points) // len(self.file.settings))
        best = None
        if ranked["mean"].notna().any():
            best = self.folder / BEST
            self._write_best(int(ranked["point"].iloc[0]), best)
        return Sweep(self.folder.path, table, ranked, self.metric, best)

    def write_notes(self, status: str, command: str | None) -> None:
        """Write the state of the sweep."""
        done = sum(outcome.status == DONE for outcome in self.outcomes.values())
        content = {
            "status": status,
            "command": command,
            "data": {name: dict(value) for name, value in self.first_rows.fingerprints.items()},
            "metric": self.metric,
            "points": len({point.key for point in self.points}),
            "done": done,
            "failed": len(self.outcomes) - done,
            "versions": versions(),
            "started": self.started,
            "ended": now() if status == "done" else None,
        }
        self.folder.write_json(NOTES, content)

    def _fit_all(self, remaining: dict[str, SweepPoint], n_jobs: int) -> None:
        calls = {key: self._call(point) for key, point in remaining.items()}
        watch = self.display.begin("points", len(remaining), None, show=True)
        watch.start()
        try:
            outcomes = in_parallel(calls, n_jobs=n_jobs, lost=PointOutcome.failed)
            for done, (key, outcome) in enumerate(outcomes, start=1):
                self.folder.write_outcome(remaining[key], outcome)
                self.outcomes[key] = outcome
                self._write_table()
                self._report(remaining[key], outcome)
                watch.note(self._best_so_far())
                watch.step(done)
            watch.finish()
        finally:
            watch.stop()

    def _call(self, point: SweepPoint) -> Call[PointOutcome]:
        rows = self.rows[point.file.seed]
        options: dict[str, Any] = {
            "X_scored": rows.X_held,
            "y_scored": rows.y_held,
            "weights_scored": rows.weights_held,
        }
        if point.fold is not None:
            options["fold"] = self.folds[point.file.seed][point.fold]
        estimator = point.file.estimator(rows.task)
        return fit_and_score, (estimator, rows.X, rows.y, rows.weights), options

    def _write_table(self) -> None:
        self.folder.write_table(table_of(self.points, self.outcomes))

    def _write_best(self, number: int, path: Path) -> None:
        file = self.file.files[number]
        output = file.output.model_copy(update={"folder": path.with_suffix("")})
        file.explicit(self.first_rows.task).model_copy(update={"output": output}).write_toml(path)

    def _best_so_far(self) -> str:
        outcomes = self.outcomes.values()
        scores = [each.scores[self.metric] for each in outcomes if self.metric in each.scores]
        best = max if self.metric in HIGHER_IS_BETTER else min
        return f"best {self.metric} {best(scores):.4g}" if scores else ""

    def _report(self, point: SweepPoint, outcome: PointOutcome) -> None:
        parts = [f"{name} = {value}" for name, value in point.setting.items()]
        parts.append(f"seed {point.file.seed}")
        if point.fold is not None:
            parts.append(f"fold {point.fold + 1} of {self.file.sweep.folds}")
        label = ", ".join(parts)
        if outcome.status == FAILED:
            self.display.warn(f"{label}: {outcome.error}")
        else:
            score = outcome.scores.get(self.metric, math.nan)  # a single row has no R2
            self.display.say(f"{label}: {self.metric} {score:.4g}")
