"""The driver of a sweep: what is finished, what is left, and the table."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bayestree._utils.parallel import Call, in_parallel
from bayestree.runs.cluster import spread
from bayestree.runs.manifest import now, versions
from bayestree.runs.progress import Both, Display, Silent
from bayestree.runs.rows import Prepared, read_rows
from bayestree.runs.sweep.file import MORE, Metric, SweepFile
from bayestree.runs.sweep.fit import DONE, FAILED, Outcome, fit_and_score
from bayestree.runs.sweep.points import Fold, Point, folds_of, points_of
from bayestree.runs.sweep.results import (
    BEST,
    NOTES,
    SWEEP,
    SweepFolder,
    ranking,
    table_of,
)
from bayestree.tables import InputError


@dataclass(frozen=True)
class Sweep:
    """A sweep that has come to its end.

    Parameters
    ----------
    folder : Path
    table : DataFrame
        A row for each point (see :func:`~bayestree.runs.sweep.results.table_of`).
    ranking : DataFrame
        A row for each setting, the best first (see
        :func:`~bayestree.runs.sweep.results.ranking`).
    metric : str
        What they are ranked by.
    best : Path, optional
        Run file of the best setting; None if no setting has all its points.
    """

    folder: Path
    table: pd.DataFrame
    ranking: pd.DataFrame
    metric: Metric
    best: Path | None

    @property
    def n_failed(self) -> int:
        """Points that failed."""
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
    """Fit and score every point of a sweep that is not yet finished.

    Each point that is finished is a file of its own, from which the table is put together, so that
    none is lost or counted twice, whichever process is killed, and whenever. A point is known by
    all that its numbers depend on: a sweep that was interrupted, or has got more values, goes on
    with what it has. Points that failed are tried again.

    Parameters
    ----------
    file : SweepFile
    n_jobs : int, optional
        Points at once on this machine, in place of the file's.
    scheduler : str, optional
        Address of a Dask scheduler to send the points to, in place of the file's.
    force : bool
        Write into a folder that holds something other than a sweep.
    display : Display, optional
        Where to say what is being done.
    command : str, optional
        What was typed, for the notes.

    Returns
    -------
    Sweep

    Raises
    ------
    InputError
        If data, folder or scheduler cannot be used, or no rows are left to score.
    KeyboardInterrupt
        On Ctrl-C; what is finished stays.
    """
    folder = SweepFolder(file.sweep.folder)
    folder.check()
    with folder.locked(), Both(display or Silent()) as told:
        told.stage("sweep")
        rows = _rows(file)
        points = points_of(file, rows)
        metric = file.metric(next(iter(rows.values())).task)
        folder.claim(force=force)
        file.write_toml(folder / SWEEP)
        job = _Job(file, folder, rows, points, metric, told)
        job.note("running", command)
        try:
            job.go(n_jobs or file.sweep.n_jobs, scheduler or file.sweep.scheduler)
        except BaseException:
            job.note("interrupted", command)
            raise
        job.note("done", command)
        return job.found()


def _rows(file: SweepFile) -> dict[int, Prepared]:
    """The rows of each seed, which says which are held out."""
    first = file.files[0]
    fixed = first.data.test is not None or first.data.test_fraction == 0
    if first.data.storage == "disk":
        raise InputError('[data] storage = "disk" is for single runs; a sweep needs "memory".')
    found: dict[int, Prepared] = {}
    for seed in file.seeds:
        if found and fixed:
            found[seed] = next(iter(found.values()))
        else:
            found[seed] = read_rows(first.model_copy(update={"seed": seed}))
        if not (found[seed].held_out or file.sweep.folds):
            raise InputError(
                "no rows are left to score the points on: give [sweep] folds, or [data] "
                "test_fraction in the run file."
            )
    return found


@dataclass
class _Job:
    """A sweep under way."""

    file: SweepFile
    folder: SweepFolder
    rows: dict[int, Prepared]
    points: list[Point]
    metric: Metric
    display: Display

    def __post_init__(self) -> None:
        n_folds = self.file.sweep.folds
        self.folds: dict[int, list[Fold]] = {
            seed: folds_of(rows, n_folds, seed) for seed, rows in self.rows.items() if n_folds
        }
        self.outcomes = self.folder.outcomes(self.points)
        self.started = now()

    def go(self, n_jobs: int, scheduler: str | None) -> None:
        """Do what is left to do."""
        left = {one.key: one for one in self.points if one.key not in self.outcomes}
        keys = {one.key for one in self.points}
        self.display.say(
            f"{len(self.file.settings)} settings, {len(keys)} points, "
            f"{len(keys) - len(left)} of them finished"
        )
        if not left:
            self._write_table()
            return
        calls = {key: self._call(point) for key, point in left.items()}
        with spread(scheduler):
            self._do(left, calls, n_jobs)

    def found(self) -> Sweep:
        """The results, with a run file of the best setting."""
        table = table_of(self.points, self.outcomes)
        ranked = ranking(table, self.metric, len(self.points) // len(self.file.settings))
        best = None
        if ranked["mean"].notna().any():
            best = self.folder / BEST
            self._write_best(int(ranked["point"].iloc[0]), best)
        return Sweep(self.folder.path, table, ranked, self.metric, best)

    def note(self, status: str, command: str | None) -> None:
        """Write what the sweep is, and how far."""
        done = sum(one.status == DONE for one in self.outcomes.values())
        rows = next(iter(self.rows.values()))
        content = {
            "status": status,
            "command": command,
            "data": {name: dict(value) for name, value in rows.fingerprints.items()},
            "metric": self.metric,
            "points": len({one.key for one in self.points}),
            "done": done,
            "failed": len(self.outcomes) - done,
            "versions": versions(),
            "started": self.started,
            "ended": now() if status == "done" else None,
        }
        self.folder.write_json(NOTES, content)

    def _do(self, left: dict[str, Point], calls: dict[str, Call[Outcome]], n_jobs: int) -> None:
        watch = self.display.begin("points", len(left), None, show=True)
        watch.start()
        try:
            found = in_parallel(calls, n_jobs=n_jobs, lost=Outcome.failed)
            for done, (key, outcome) in enumerate(found, start=1):
                self.folder.keep(left[key], outcome)
                self.outcomes[key] = outcome
                self._write_table()
                self._tell(left[key], outcome)
                watch.note(self._best_so_far())
                watch.step(done)
            watch.finish()
        finally:
            watch.stop()

    def _call(self, point: Point) -> Call[Outcome]:
        rows = self.rows[point.file.seed]
        given: dict[str, Any] = {
            "X_scored": rows.X_held,
            "y_scored": rows.y_held,
            "weights_scored": rows.weights_held,
        }
        if point.fold is not None:
            given["fold"] = self.folds[point.file.seed][point.fold]
        estimator = point.file.estimator(rows.task)
        return fit_and_score, (estimator, rows.X, rows.y, rows.weights), given

    def _write_table(self) -> None:
        self.folder.write_table(table_of(self.points, self.outcomes))

    def _write_best(self, number: int, path: Path) -> None:
        file = self.file.files[number]
        task = next(iter(self.rows.values())).task
        output = file.output.model_copy(update={"folder": path.with_suffix("")})
        file.explicit(task).model_copy(update={"output": output}).write_toml(path)

    def _best_so_far(self) -> str:
        every = self.outcomes.values()
        scores = [one.scores[self.metric] for one in every if self.metric in one.scores]
        best = max if self.metric in MORE else min
        return f"best {self.metric} {best(scores):.4g}" if scores else ""

    def _tell(self, point: Point, outcome: Outcome) -> None:
        where = [f"{name} = {value}" for name, value in point.setting.items()]
        where.append(f"seed {point.file.seed}")
        if point.fold is not None:
            where.append(f"fold {point.fold + 1} of {self.file.sweep.folds}")
        what = ", ".join(where)
        if outcome.status == FAILED:
            self.display.warn(f"{what}: {outcome.error}")
        else:
            score = outcome.scores.get(self.metric, math.nan)  # no R2 of a single row
            self.display.say(f"{what}: {self.metric} {score:.4g}")
