"""Sweeps: one run with varied parameters, seeds and folds, in processes or on a cluster."""

import hashlib
import json
import math
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

import pandas as pd
from joblib import parallel_config
from pydantic import TypeAdapter

from bayestree._utils.arrays import AnyArray, FloatArray, Fold, IntArray, split_rows
from bayestree._utils.parallel import Call, in_parallel, one_thread
from bayestree._utils.wording import InputError
from bayestree._utils.write import write_whole
from bayestree.estimators._estimator import Estimator
from bayestree.runs.configuration import Metric
from bayestree.runs.display import Display
from bayestree.runs.outputs import scored
from bayestree.runs.rows import RunRows, read_rows
from bayestree.runs.runner import check_fit, spread
from bayestree.runs.schema import RunFile
from bayestree.runs.store import RunFolder, now, read_json, versions
from bayestree.runs.sweep_file import HIGHER_IS_BETTER, Combination, SweepFile

DONE: Final = "done"
FAILED: Final = "failed"
#: torch's generator is global, but a worker of a cluster may have several threads.
LOCK = threading.Lock()


@dataclass(frozen=True)
class PointOutcome:
    """The result of a point.

    For a forest, ``leaves`` counts the leaves of all trees, and ``depth`` is the greatest.
    ``seconds`` is the time of the fit, ``warnings`` are distinct, ``error`` is the reason of a
    failure in one line; ``worker`` names the host and process that fitted the point.
    """

    status: Literal["done", "failed"]
    scores: dict[str, float] = field(default_factory=dict)
    leaves: int | None = None
    depth: int | None = None
    training_rows: int | None = None
    scored_rows: int | None = None
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    worker: str = ""

    @classmethod
    def failed(cls, error: str) -> Self:
        return cls(FAILED, error=" ".join(error.split()))


def fit_and_score(
    estimator: Estimator,
    X: pd.DataFrame,
    y: AnyArray,
    weights: FloatArray,
    *,
    X_scored: pd.DataFrame,
    y_scored: AnyArray,
    weights_scored: FloatArray,
    fold: tuple[IntArray, IntArray] | None = None,
) -> PointOutcome:
    """Fit an estimator and score it, on one thread so that the numbers are the same anywhere.

    An error is an outcome too, so that the other points are not affected. With ``fold``, the rows
    of X with these numbers are used for training and scoring instead.
    """
    if fold is not None:
        train, held = fold
        X_scored, y_scored, weights_scored = X.iloc[held], y[held], weights[held]
        X, y, weights = X.iloc[train], y[train], weights[train]
    with LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.perf_counter()
        try:
            with parallel_config("sequential"), one_thread():
                estimator.fit(X, y, weights)
                seconds = time.perf_counter() - started
                scores = scored(estimator, X_scored, y_scored, weights_scored)
        except Exception as error:
            return PointOutcome.failed(f"{type(error).__name__}: {error}")
    return PointOutcome(
        DONE,
        scores=scores,
        leaves=int(estimator.get_n_leaves()),
        depth=int(estimator.get_depth()),
        training_rows=len(X),
        scored_rows=len(X_scored),
        seconds=seconds,
        warnings=list(dict.fromkeys(str(one.message) for one in caught)),
        worker=f"{socket.gethostname()}:{os.getpid()}",
    )


KEY_LENGTH = 20  # hexadecimal digits


@dataclass(frozen=True)
class SweepPoint:
    """One fit of a sweep.

    ``key`` is a digest of everything that affects its numbers: data, parameters, seed, fold, and
    versions of packages. ``number`` counts the settings, from 0; ``file`` has the point's seed.
    ``fold`` counts from 0; None if the held-out rows of the run are scored.
    """

    key: str
    number: int
    setting: Combination
    file: RunFile
    fold: int | None


def points_of(sweep: SweepFile, rows: Mapping[int, RunRows]) -> list[SweepPoint]:
    """Return all points, setting by setting; ``rows`` holds the rows of a run for each seed."""
    n_folds = sweep.sweep.folds
    folds: list[int | None] = list(range(n_folds)) if n_folds else [None]
    points = []
    for number, (setting, file) in enumerate(zip(sweep.settings, sweep.files, strict=True)):
        for seed in sweep.seeds:
            seeded = file.model_copy(update={"seed": seed})
            for fold in folds:
                key = _key(seeded, rows[seed], fold, n_folds)
                points.append(SweepPoint(key, number, setting, seeded, fold))
    return points


def folds_of(rows: RunRows, n_folds: int, seed: int) -> list[Fold]:
    """Return training and scored rows of each fold, stratified if all classes have enough rows."""
    if len(rows.X) < n_folds:
        raise InputError(f"[sweep] folds = {n_folds}, but there are {len(rows.X)} training rows.")
    labels = rows.y if rows.task == "classification" else None
    return split_rows(len(rows.X), labels, n_folds, seed)


def _key(file: RunFile, rows: RunRows, fold: int | None, n_folds: int) -> str:
    data = file.data.model_dump(mode="json", exclude={"path", "test", "storage", "max_size"})
    parameters = file.parameters(rows.task)
    parameters.pop("n_jobs", None)  # does not affect the numbers
    content: dict[str, Any] = {
        "tables": {name: each["sha256"] for name, each in rows.fingerprints.items()},
        "data": data | {"task": rows.task},
        "tree": file.tree,
        "parameters": parameters,
        "seed": file.seed,
        "fold": [fold, n_folds],
        "versions": versions(),
    }
    text = json.dumps(content, sort_keys=True, default=repr)  # of settings
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


SWEEP, NOTES, TABLE = "sweep.toml", "sweep.json", "results.parquet"
BEST, POINTS = "best.toml", "points"


class SweepFolder(RunFolder):
    """The folder of one sweep, which may be extended."""

    file_names = (SWEEP, NOTES, TABLE, BEST)
    folders = (POINTS,)

    def claim(self, *, force: bool) -> None:
        """Prepare the folder for a sweep; it may hold something else only with ``force``."""
        if not (self.is_new() or (self / SWEEP).is_file() or force):
            raise InputError(
                f"the folder {self} is not empty and not a sweep; choose another, or add --force."
            )
        (self / POINTS).mkdir(exist_ok=True)
        self.remove_drafts()
        for draft in (self / POINTS).glob(".*"):
            draft.unlink()  # left behind by a killed process

    def outcomes(self, points: Iterable[SweepPoint]) -> dict[str, PointOutcome]:
        """Return the outcomes of finished points, by key; invalid files are ignored."""
        found = {}
        for point in points:
            try:
                content = read_json(self / self._file_name(point))
                outcome = TypeAdapter(PointOutcome).validate_python(content["outcome"])
            except (OSError, ValueError, TypeError, LookupError, RecursionError):
                continue
            if outcome.status == DONE:
                found[point.key] = outcome
        return found

    def write_outcome(self, point: SweepPoint, outcome: PointOutcome) -> None:
        """Write the outcome of a point atomically."""
        content = {
            "setting": point.setting,
            "seed": point.file.seed,
            "fold": point.fold,
            "outcome": asdict(outcome),
        }
        self.write_json(self._file_name(point), content)

    def write_table(self, table: pd.DataFrame) -> None:
        write_whole(self / TABLE, table.to_parquet(index=False))

    def is_ignorable(self, path: Path) -> bool:
        empty = path.name == POINTS and path.is_dir() and not any(path.iterdir())
        return empty or super().is_ignorable(path)

    def _file_name(self, point: SweepPoint) -> str:
        return f"{POINTS}/{point.key}.json"


def table_of(points: Iterable[SweepPoint], outcomes: Mapping[str, PointOutcome]) -> pd.DataFrame:
    """Return a row for each point that has an outcome, in the order of the points."""
    found = [(point, outcomes[point.key]) for point in points if point.key in outcomes]
    settings = [point.setting for point, _ in found]
    scores = dict.fromkeys(name for _, one in found for name in one.scores)
    names = settings[0] if settings else {}
    sizes = ("leaves", "depth", "training_rows", "scored_rows")
    columns: dict[str, Any] = {
        "point": [point.number for point, _ in found],
        **{name: _same_type([one[name] for one in settings]) for name in names},
        "seed": [point.file.seed for point, _ in found],
        "fold": pd.array([point.fold for point, _ in found], dtype="Int64"),
        "status": [one.status for _, one in found],
        **{name: [one.scores.get(name) for _, one in found] for name in scores},
        **{name: pd.array([getattr(o, name) for _, o in found], dtype="Int64") for name in sizes},
        "seconds": [one.seconds for _, one in found],
        "warnings": ["\n".join(one.warnings) for _, one in found],
        "error": [one.error for _, one in found],
        "worker": [one.worker for _, one in found],
        "key": [point.key for point, _ in found],
    }
    return pd.DataFrame(columns)


def ranking(table: pd.DataFrame, metric: Metric, n_fits: int) -> pd.DataFrame:
    """Return the settings, the best first: the mean of the metric over seeds and folds.

    ``n_fits`` is the number of fits of each setting. Settings with unfinished fits have no
    comparable mean; they come last.
    """
    names = ["point", *(name for name in map(str, table) if "." in name)]
    done = table[table["status"] == DONE]
    if metric not in table:
        return table[names].drop_duplicates("point").assign(mean=None, fits=0)
    groups = done.groupby("point")
    sizes = groups.agg(
        mean=(metric, "mean"),
        sd=(metric, "std"),
        leaves=("leaves", "mean"),
        seconds=("seconds", "sum"),
        fits=(metric, "size"),
    )
    found = table[names].drop_duplicates("point").join(sizes, on="point")
    found["fits"] = found["fits"].fillna(0).astype(int)
    found.loc[found["fits"] < n_fits, "mean"] = None
    ascending = metric not in HIGHER_IS_BETTER
    return found.sort_values("mean", ascending=ascending, kind="stable").reset_index(drop=True)


def _same_type(values: Sequence[Any]) -> list[Any]:
    """Return the values if they have one type, as Parquet requires; otherwise as text."""
    for kinds in ((bool,), (int,), (int, float), (str,)):
        if all(type(value) in kinds for value in values):
            return list(values)
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


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

    ``n_jobs`` and ``scheduler`` override the file. ``force`` writes into a folder that holds
    something other than a sweep. The ``command`` is for ``sweep.json``.
    """
    for setting, one in zip(file.settings, file.files, strict=True):
        try:
            check_fit(one)
        except InputError as error:
            point = ", ".join(f"{name} = {value}" for name, value in setting.items())
            raise InputError(f"[vary] {point}: {error}") from error
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
    if first.cluster is not None:
        raise InputError("sweeps do not support [cluster]; remove this table from the run file.")
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
            file = self.file.files[int(ranked["point"].iloc[0])]
            output = file.output.model_copy(update={"folder": best.with_suffix("")})
            explicit = file.explicit(self.first_rows.task)
            explicit.model_copy(update={"output": output}).write_toml(best)
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
