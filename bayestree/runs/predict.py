"""Predictions of tables: into one file, or of a Parquet data set file by file, in processes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayestree import tables
from bayestree._utils.arrays import AnyArray
from bayestree._utils.parallel import Call, in_order
from bayestree._utils.write import url_of, whole_file
from bayestree.estimators._estimator import Estimator
from bayestree.runs import outputs, store
from bayestree.runs.outputs import predict_rows, predictions, scores_of, table_writer
from bayestree.runs.rows import sha256
from bayestree.runs.runner import spread
from bayestree.runs.store import Columns, RunFolder, open_run, read_json, read_model
from bayestree.tables import Dataset, InputError, located
from bayestree.tables.columns import DROP

MAX_SCORED = 2**20  # rows that scores are computed of; of more, evenly spaced ones
STATE = "_predictions.json"  # readers of Parquet leave out names that begin so

Scores = dict[str, float]


class Predicted(NamedTuple):
    """Result of predicting a table.

    ``remarks`` warn about categories that do not occur in the training rows. ``scores`` are
    computed as in :func:`bayestree.runs.outputs.scored`, or state the reason if the target cannot
    be scored, or None if the table does not contain the target. ``n_seen`` is the number of scored
    rows that the model was fitted to; None if nothing is scored, or the file is not the one that
    the run was fitted to. ``n_scored`` is the number of scored rows, and ``n_resumed`` that of rows
    whose predictions were there before.
    """

    n_rows: int
    remarks: list[str]
    scores: Scores | str | None
    n_seen: int | None = None
    n_scored: int = 0
    n_resumed: int = 0


@dataclass
class _Tally:
    """What predicting has found so far: unknown categories, and the rows to score.

    Scored are the rows whose number is a multiple of ``step``, a power of two, so that tallies of
    parts of a table can be joined.
    """

    n_rows: int = 0
    unknown: dict[str, Counter[str]] = field(default_factory=dict)
    step: int = 1
    parts: list[tuple[AnyArray, ...]] = field(default_factory=list)
    fault: str | None = None

    def predict(self, estimator: Estimator, columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the predictions of a chunk, whose index holds row numbers."""
        X = columns.encoding.features(frame)
        used = estimator.fitted_.scaling.used
        columns.encoding.among(used).count_unknown(frame, self.unknown)
        self.n_rows += len(frame)
        table = predictions(estimator, X, columns.numbers_of(columns.extra, frame), columns.targets)
        needed = {*columns.targets, *([columns.extra] if columns.extra else [])}
        if self.fault is None and needed <= {*frame.columns}:
            self._score(estimator, columns, frame, X, table)
        return table

    def _score(
        self,
        estimator: Estimator,
        columns: Columns,
        frame: pd.DataFrame,
        X: Any,
        table: pd.DataFrame,
    ) -> None:
        found = frame[[*columns.targets]]
        numbers = frame.index.to_numpy()
        kept = np.flatnonzero(numbers % self.step == 0)
        try:
            tables.check_complete(found, remedy=DROP)
            found = found.astype(str) if columns.is_text else found.apply(tables.numbers)
            y = found.to_numpy()[:, 0] if found.shape[1] == 1 else found.to_numpy()
            if (extra := columns.numbers_of(columns.extra, frame)) is not None:
                y = np.column_stack((y, extra))
            if (mass := columns.numbers_of(columns.weights, frame)) is None:
                mass = np.ones(len(y))
        except InputError as error:
            self.fault = str(error)
        else:
            if len(kept):
                if columns.extra is None:
                    labels = estimator.fitted_.response.labels
                    rows = _predicted(labels, columns.targets, table.iloc[kept], y[kept])
                else:  # rates, not the counts for exposures in the table
                    rows = predict_rows(estimator, X.iloc[kept], y[kept])
                self.parts.append((numbers[kept], mass[kept], y[kept], *rows))
            self._thin()

    def _thin(self) -> None:
        while sum(len(numbers) for numbers, *_ in self.parts) > MAX_SCORED:
            self.step *= 2
            self._select()

    def _select(self) -> None:
        chosen = [(part, part[0] % self.step == 0) for part in self.parts]
        self.parts = [tuple(each[rows] for each in part) for part, rows in chosen]

    def join(self, other: "_Tally") -> None:
        """Add what another part of the table has found."""
        self.n_rows += other.n_rows
        for name, counts in other.unknown.items():
            self.unknown.setdefault(name, Counter()).update(counts)
        self.fault = self.fault or other.fault
        self.parts += other.parts
        self.step = max(self.step, other.step)
        self._select()
        self._thin()

    def result(
        self, folder: Path, data: Path, estimator: Estimator, columns: Columns, n_resumed: int = 0
    ) -> Predicted:
        """Score the rows, and describe the unknown categories."""
        used = estimator.fitted_.scaling.used
        remarks = columns.encoding.among(used).describe_unknown(self.unknown)
        n_rows = self.n_rows + n_resumed
        if self.fault is not None or not self.parts:
            return Predicted(n_rows, remarks, self.fault, n_resumed=n_resumed)
        _, mass, y, *predicted = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        try:
            mass = tables.read_weights(pd.Series(mass, name=columns.weights))
            scores = scores_of(estimator, y, *predicted, weights=mass, targets=columns.targets)
        except ValueError as error:  # such as survival times without an event
            return Predicted(n_rows, remarks, str(error), n_resumed=n_resumed)
        if (labels := estimator.fitted_.response.labels) is not None:
            remarks += outputs.unseen_classes(y, labels)
        n_seen = _count_training_rows(folder, data)
        return Predicted(n_rows, remarks, scores, n_seen, len(y), n_resumed)


def _predicted(
    labels: AnyArray | None, targets: Sequence[str], table: pd.DataFrame, y: AnyArray
) -> tuple[AnyArray, ...]:
    """Return what :func:`predict_rows` does from a table of predictions of the same rows."""
    if len(targets) > 1:
        return (table[[f"prediction: {name}" for name in targets]].to_numpy(),)
    predicted = table["prediction"].to_numpy()
    if labels is None:
        return (predicted,)
    probability = table.iloc[:, 1:].to_numpy()
    return predicted, (probability * (y[:, None] == labels)).sum(axis=1)


def predict_file(folder: Path, data: Path, out: Path, *, quote: bool = False) -> Predicted:
    """Predict the rows of a table with the model of a folder, and write the predictions.

    The folder belongs to a run, or holds a model with its ``columns.json``. ``out`` ends in .csv or
    .parquet, and is written completely or not at all; ``quote`` as in :func:`table_writer`.
    """
    estimator, columns = read_model(folder)
    tally = _Tally()
    with located(data), whole_file(out) as draft, table_writer(draft, out.suffix, quote) as write:
        for frame in columns.encoding.chunks(data, columns.text_targets):
            write(tally.predict(estimator, columns, frame))
    return tally.result(folder, data, estimator, columns)


def _count_training_rows(folder: Path, data: Path) -> int | None:
    """Return the number of training rows, if the table is the one that the run was fitted to."""
    try:
        run = open_run(folder)
        same = sha256(data) == run.manifest["data"]["data"]["sha256"]
        return run.metrics.get("training_rows") if same else None
    except InputError:
        return None


def predict_dataset(
    folder: Path,
    data: Path,
    out: Path,
    *,
    n_jobs: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    force: bool = False,
) -> Predicted:
    """Predict a Parquet data set into a folder: for each file with rows one of the same name.

    A file is written completely or not at all, and holds its rows in order. The rows in memory are
    a chunk for each process and the scored ones, of which there are at most 2^20.

    Parameters
    ----------
    folder, data, out : Path
        Folder of the model; data set; folder to write. ``data`` and the folders must be the same
        places on all workers of a cluster.
    n_jobs : int, optional
        Number of processes, by default 1; -1 for all cores.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers predict the files.
    resume : bool
        Keep the files in ``out`` that an interrupted call with the same model and data has
        completed; they are not scored.
    force : bool
        Replace the predictions in ``out``.

    Raises
    ------
    InputError
        If ``out`` holds anything else, or predictions of another model or of other data to resume.
    """
    estimator, columns = read_model(folder)
    text = [*columns.encoding.text, *columns.text_targets]
    dataset = Dataset.of(url_of(data) or data.absolute(), text)
    if not dataset.n_rows:
        raise InputError(f"{dataset.path!r} has column names but no rows.")
    inside = data.is_dir() and out.resolve().is_relative_to(data.resolve())
    if inside or any(Path(name).is_relative_to(out.resolve()) for name in dataset.files):
        raise InputError(f"--out {str(out)!r} lies among the data; choose another folder.")
    state = {"model": sha256(folder / store.MODEL), "data": dataset.fingerprint()["sha256"]}
    tally, n_resumed = _Tally(), 0
    calls: list[Call[_Tally]] = []
    with _folder(out, state, resume=resume, force=force), spread(scheduler):
        for name, pieces in dataset.by_file().items():
            part = replace(dataset, files={}, pieces=pieces)
            target, n_rows = out.resolve() / dataset.relative(name), sum(p.n_rows for p in pieces)
            if _is_complete(target, n_rows):
                n_resumed += n_rows
            else:
                calls.append((_predict_part, (folder.resolve(), state["model"], part, target), {}))
        for part_tally in in_order(calls, n_jobs=n_jobs):
            tally.join(part_tally)
    return tally.result(folder, data, estimator, columns, n_resumed)


def _is_complete(path: Path, n_rows: int) -> bool:
    """Return whether a file has this number of rows, none of them damaged."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return sum(map(len, file.iter_batches())) == n_rows
    except (OSError, pa.ArrowException):
        return False


class _PredictionFolder(RunFolder):
    """A folder of predictions, in which a link is nowhere allowed."""

    file_names = (STATE,)
    folders = ("",)


@contextmanager
def _folder(out: Path, state: dict[str, str], *, resume: bool, force: bool) -> Iterator[None]:
    """Lock a folder for predictions; refuse to overwrite what is in it, or to mix models."""
    place, known = _PredictionFolder(out), out / STATE
    place.check()
    if not place.is_new():
        if not known.is_file():
            raise InputError(f"--out {str(out)!r} holds other files; choose another folder.")
        if not (resume or force):
            raise InputError(
                f"--out {str(out)!r} holds predictions; add --resume to complete them, or --force "
                "to replace them."
            )
        if not force and read_json(known) != state:
            raise InputError(
                f"--out {str(out)!r} holds predictions of another model, or of other data; choose "
                "another folder, or add --force to replace them."
            )
    with place.locked():
        for old in out.iterdir() if force else ():
            if old.name != store.LOCK:
                store.remove(old)
        place.write_json(STATE, state)
        yield


@lru_cache(maxsize=1)
def _model(folder: Path, _digest: str) -> tuple[Estimator, Columns]:
    """Read the model of a folder once in each process; ``_digest`` tells new models from old."""
    return read_model(folder)


def _predict_part(folder: Path, digest: str, dataset: Dataset, target: Path) -> _Tally:
    """Predict a file of a data set."""
    estimator, columns = _model(folder, digest)
    tally = _Tally()
    target.parent.mkdir(parents=True, exist_ok=True)
    wanted = {*columns.encoding.names, *columns.targets, columns.extra, columns.weights}
    names = [name for name in dataset.columns if name in wanted]
    with (
        located(Path(dataset.path)),
        whole_file(target) as draft,
        table_writer(draft, ".parquet") as write,
    ):
        for frame in dataset.chunks(dataset.pieces, names):
            write(tally.predict(estimator, columns, frame))
    return tally
