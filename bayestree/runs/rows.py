"""Rows of a run: read in chunks, checked, split into training and held-out rows, and encoded.

A table in memory is a single chunk. Of a table on disk only the target and the weights are kept in
memory; the features are written to a memory-mapped file. Such a table is read three times, and
once more if it is a CSV file. Workers read the rows of a run with ``[cluster]``.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree import tables
from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.distributed.passes import on_workers
from bayestree.distributed.worker import Source
from bayestree.fitted.training_rows import PARTS, large_file
from bayestree.inference import memory_mapped
from bayestree.runs.configuration import DataTable
from bayestree.runs.schema import RunFile
from bayestree.tables import (
    Dataset,
    Encoding,
    Features,
    InputError,
    Kind,
    Learned,
    Learner,
    Table,
    is_dataset,
    located,
)
from bayestree.tables.columns import Codes, check_purposes, codes_by_column, is_single

MOST_COLUMNS = 50_000  # of a table; each takes milliseconds in several passes


class RunRows(NamedTuple):
    """Checked and encoded training and held-out rows.

    ``rows_held`` are the numbers of the held-out rows in their table. ``fingerprints`` identify
    the files: ``data`` and, if the held-out rows have a table of their own, ``test``. If no rows
    are held out, the training rows replace them and ``held_out`` is False. ``order`` holds the
    classes in ascending order, if the table or the run file states one. If workers
    read the ``distributed`` rows of a data set, these are samples of them.
    """

    task: str
    encoding: Encoding
    X: Features
    y: AnyArray  # (n,), (n, 2) with the exposure or event of each row, or (n, q) of several targets
    weights: FloatArray
    X_held: Features
    y_held: AnyArray
    weights_held: FloatArray
    rows_held: IntArray
    held_out: bool
    remarks: list[str]
    fingerprints: Mapping[str, Mapping[str, Any]]
    order: tuple[str, ...] | None = None
    distributed: Any = None
    sample: Any = None

    def thinned(self, like: "RunRows | None" = None) -> "RunRows":
        """Return the rows or, for large files, as many evenly spaced ones as can be drawn.

        ``like`` are the same rows with other columns, of which as many are kept.
        """
        widest = self if like is None else like
        kept, held = _spaced(widest.X), _spaced(widest.X_held)
        return self._replace(
            X=self.X.iloc[kept],
            y=self.y[kept],
            weights=self.weights[kept],
            X_held=self.X_held.iloc[held],
            y_held=self.y_held[held],
            weights_held=self.weights_held[held],
            rows_held=self.rows_held[held],
        )


def _spaced(X: pd.DataFrame) -> slice:
    return slice(
        0, len(X), 1 if large_file(X) is None else -(-X.size * PARTS // memory_mapped.HELD)
    )


def read_rows(file: RunFile, keep: Collection[str] = ()) -> RunRows:
    """Read, check and encode the rows of a run.

    Rows, split and encoding do not depend on where the rows are stored. Columns in ``keep`` are
    features even if they look like a row index.
    """
    data = file.data
    _check_extra(data, data.stated_task)
    scan = _Scan.of(data.path, data, keep)
    with located(data.path):
        task, y = _read_targets(scan.target, data.stated_task)
    _check_levels(data, task)
    fraction = data.test_fraction if data.test is None else 0.0
    kept, held = _split_rows(y, scan.weights, task, fraction, file.seed)
    columns = zip(data.targets, y.T if y.ndim == 2 else [y], strict=True)
    described = [tables.target_columns(column[kept], name) for name, column in columns]
    learned = scan.learned(kept, {name: m for one in described for name, m in one.items()})
    encoding = learned.encoding
    fingerprints = {"data": scan.fingerprint()}
    if data.test is None:
        other, y_other = scan, y
        features = scan.features(learned, kept, held if fraction else None)
    else:
        # Text columns of the training rows are text here, even if they look like numbers.
        text = [*encoding.text, *(data.targets if y.dtype.kind in "UO" else [])]
        other = _Scan.of(data.test, data, text=text)
        with located(data.test):
            each = (tables.read_matching_target(one, y, task) for _, one in other.target.items())
            y_other = _joined(list(each))
        held = np.arange(len(y_other))
        features = [*scan.features(learned, kept), *other.features(learned, None, held)]
        fingerprints["test"] = other.fingerprint()
    (X, _), (X_held, unknown) = features[0], features[-1]
    return RunRows(
        task=task,
        encoding=encoding,
        X=X,
        y=response(y, scan.extra)[kept],
        weights=scan.weights[kept],
        X_held=X_held,
        y_held=response(y_other, other.extra)[held],
        weights_held=other.weights[held],
        rows_held=held,
        held_out=data.test is not None or fraction > 0,
        remarks=[*scan.remarks, *encoding.describe_unknown(unknown)],
        fingerprints=fingerprints,
        order=_order(scan.target, y),
    )


@dataclass
class _Scan:
    """Results of a first pass over a table.

    ``kinds`` belong to the feature columns. ``dtype`` is the type of features on
    disk, single precision if it represents all numbers exactly; None for features in memory.
    """

    table: Table
    kinds: dict[str, Kind]
    formats: dict[str, str | None]
    codes: dict[str, Codes]
    dtype: type | None
    target: pd.DataFrame
    weights: FloatArray
    extra: FloatArray | None
    remarks: list[str]

    @classmethod
    def of(
        cls,
        path: Path,
        data: DataTable,
        keep: Collection[str] | None = None,
        text: Collection[str] = (),
    ) -> "_Scan":
        """Check all rows; without ``keep`` only target and weights, as for a test table."""
        in_memory = data.storage == "memory"
        levels = None if keep is None else data.levels
        excluded = {*data.targets, data.weights, data.extra, *data.drop}

        def codes(names: Sequence[str]) -> dict[str, Codes]:
            return codes_by_column(data.missing_values, [n for n in names if n not in excluded])

        table = tables.open_table(
            path, text, levels=levels, codes=codes, whole=in_memory, max_size=data.max_size
        )
        _check_columns(table, data)
        features = [name for name in table.columns if name not in excluded]
        known = {} if keep is None else codes(features)
        profile = tables.TableProfile(() if keep is None else features, keep or (), known)
        single = dict.fromkeys(features, True)
        targets, weights, extras = [], [], []
        with located(path):
            for frame in table.chunks():
                profile.add(frame.drop(columns=[*data.drop, *(features if keep is None else ())]))
                targets.append(frame[[*data.targets]])
                if data.weights is not None:
                    weights.append(frame[data.weights])
                if data.extra is not None:
                    extras.append(frame[data.extra])
                for name in features:
                    single[name] &= is_single(frame[name].dtype)
            remarks = profile.check()
            target = pd.concat(targets)
            counts = tables.read_weights(pd.concat(weights)) if weights else np.ones(len(target))
            purpose = "event" if data.event else "exposure"
            extra = tables.read_extra(pd.concat(extras), purpose) if extras else None
        used = {name for name in features if name not in profile.ignored}
        dtype = np.float32 if all(single[name] for name in used) else np.float64
        return cls(
            table=table,
            kinds=profile.kinds,
            formats=profile.formats,
            codes=known,
            dtype=None if in_memory else dtype,
            target=target,
            weights=counts,
            extra=extra,
            remarks=remarks,
        )

    def fingerprint(self) -> dict[str, Any]:
        """Return the file's SHA-256, and its numbers of rows and columns."""
        path, shape = self.table.path, (len(self.target), len(self.table.columns))
        if is_dataset(path):
            return Dataset.of(path).fingerprint()
        return {"path": str(path), "sha256": sha256(path), "rows": shape[0], "columns": shape[1]}

    def learned(self, rows: IntArray, targets: Mapping[str, FloatArray]) -> Learned:
        """Return the encoding of columns as features, from these rows and their targets."""
        learner = Learner(self.kinds, [*targets], self.formats, self.codes)
        values = np.column_stack([*targets.values()])
        with located(self.table.path):
            for frame in self.table.chunks():
                part, chosen = _rows_of(frame, rows)
                learner.add(chosen, values[part], self.weights[rows[part]])
        return learner.learned()

    def features(
        self, learned: Learned, training: IntArray | None, held: IntArray | None = None
    ) -> list[tuple[Features, dict[str, Counter[str]]]]:
        """Return features and unknown categories of the training and the held-out rows."""
        encoding = learned.encoding
        names = encoding.feature_names
        selections = [rows for rows in (training, held) if rows is not None]
        found = [(rows, self._allocate((len(rows), len(names)), encoding)) for rows in selections]
        unknown: list[dict[str, Counter[str]]] = [{} for _ in selections]
        with located(self.table.path):
            for frame in self.table.chunks():
                for (rows, array), counts in zip(found, unknown, strict=True):
                    part, chosen = _rows_of(frame, rows)
                    if len(chosen) == 0:
                        continue
                    if rows is training:
                        array[part] = learned.encode_training(chosen, part.start)
                    else:
                        array[part] = encoding.features(chosen)
                    encoding.count_unknown(chosen, counts)
        return [
            (Features.of(array, encoding), counts)
            for (_, array), counts in zip(found, unknown, strict=True)
        ]

    def _allocate(self, shape: tuple[int, int], encoding: Encoding) -> AnyArray:
        if self.dtype is None:
            return np.empty(shape, order="F")  # as pandas lays out a frame
        try:
            dtype = self.dtype if encoding.keeps_values else np.float64
            return memory_mapped.mapped_array(shape, dtype)
        except memory_mapped.NoRoomError as error:
            raise InputError(str(error)) from error


def _read_targets(targets: pd.DataFrame, task: str) -> tuple[Any, AnyArray]:
    """Return the task, and the target (n,), or several (n, q), which are numbers."""
    if targets.shape[1] == 1:
        return tables.read_target(targets.iloc[:, 0], task)
    if task not in ("auto", "regression"):
        raise InputError(f"several targets need the task 'regression', got {task!r}: list one.")
    return "regression", _joined(
        [tables.read_target(one, "regression")[1] for _, one in targets.items()]
    )


def _joined(columns: list[AnyArray]) -> AnyArray:
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def response(y: AnyArray, extra: FloatArray | None) -> AnyArray:
    """Return y, with the exposure or event of each row as a second column."""
    return y if extra is None else np.column_stack((y, extra))


def _order(targets: pd.DataFrame, y: AnyArray) -> tuple[str, ...] | None:
    """Return the classes of a target of text that holds ordered categories, in their order."""
    dtype = targets.iloc[:, 0].dtype
    if y.dtype.kind in "UO" and isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
        return tuple(map(str, dtype.categories))
    return None


def _check_levels(data: DataTable, task: str) -> None:
    """Refuse an order of classes for a target of numbers."""
    for name in data.targets:
        if name in (data.levels or ()) and task != "classification":
            raise InputError(
                f"target {name!r} is listed in levels, whose order is for classes, but the task is "
                f"{task!r}: remove it there, or set the task 'classification'."
            )


def _check_extra(data: DataTable, task: str) -> None:
    """Refuse an exposure or event that the task does not have."""
    for key, needed in (("exposure", "regression"), ("event", "survival")):
        column = getattr(data, key)
        if column is not None and task != needed:
            raise InputError(
                f"{key} {column!r} is for the task {needed!r}, but the task is {task!r}: set task, "
                f"or remove {key}."
            )


def _rows_of(frame: pd.DataFrame, rows: IntArray) -> tuple[slice, pd.DataFrame]:
    """Return the part of the sorted ``rows`` that a chunk holds, and these rows."""
    start = frame.index[0]
    part = slice(*np.searchsorted(rows, [start, start + len(frame)]))
    return part, frame.iloc[rows[part] - start]


def _check_columns(table: Table, data: DataTable) -> None:
    """Refuse too many columns, unknown names, and columns that are listed for two purposes."""
    if len(table.columns) > MOST_COLUMNS:
        raise InputError(
            f"{table.path.name!r} has {len(table.columns):,} columns, more than {MOST_COLUMNS:,}: "
            "write a table of those that matter."
        )
    keys = ("weights", "exposure", "event")
    others = [(key, name) for key in keys if (name := getattr(data, key)) is not None]
    dropped = [("drop", name) for name in dict.fromkeys(data.drop)]
    levels = [("levels", name) for name in data.levels or ()]
    note = ""
    if len(table.columns) == 1:
        note = " Columns may be separated by commas, semicolons, tabs or vertical bars."
    if pd.to_numeric(pd.Series(table.columns), errors="coerce").notna().any():
        note += " The first line of a CSV file must name the columns."
    targets = [("target", name) for name in data.targets]
    for purposes in ([*targets, *others, *dropped], [*others, *levels]):
        check_purposes(purposes, table.columns, table.path.name, note)


def _split_rows(
    y: AnyArray, weights: FloatArray, task: str, fraction: float, seed: int
) -> tuple[IntArray, IntArray]:
    """Return numbers of the training and the held-out rows; all rows twice if the fraction is 0.

    Classes are held out in proportion if they have enough rows.
    """
    rows = np.arange(len(y))
    n_held = round(fraction * len(y))
    kept = held = rows
    if fraction > 0:
        from sklearn.model_selection import train_test_split  # noqa: PLC0415 - slow

        if not 1 <= n_held <= len(y) - 2:
            raise InputError(
                f"a test fraction of {fraction:g} of {len(y)} rows leaves too few rows to train on "
                "or to score; use 0 to score the training rows."
            )
        classes, sizes = np.unique(y, return_counts=True)
        stratified = task == "classification" and sizes.min() > 1
        stratified = stratified and len(classes) <= min(n_held, len(y) - n_held)
        kept, held = train_test_split(
            rows, test_size=n_held, random_state=seed, stratify=y if stratified else None
        )
    if len(np.unique(y[kept][weights[kept] > 0])) < (2 if task == "classification" else 1):
        raise InputError(
            "the training rows with positive weight have too few classes; add rows of other "
            "classes."
        )
    return np.sort(kept), np.sort(held)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of the footers of a data set, in hexadecimal digits."""
    if is_dataset(path):
        return str(Dataset.of(path).fingerprint()["sha256"])
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


@contextmanager
def rows_of(file: RunFile, keep: Collection[str] = (), *, here: bool = False) -> Iterator[RunRows]:
    """Read the rows of a run or, if it has a cluster, a sample of them by its workers.

    The workers stay for the block. With ``here``, this process reads the rows even so.
    """
    if file.cluster is None:
        yield read_rows(file, keep)
        return
    data, where = file.data, file.cluster
    for key, given in (("test", data.test), ("levels", data.levels), ("event", data.event)):
        if given is not None:
            raise InputError(f"[data] {key} is not available with [cluster]; leave one out.")
    if len(data.targets) > 1:
        raise InputError("several targets are not available with [cluster]; list one.")
    dataset = Dataset.of(data.path)
    target, held = data.targets[0], data.test_fraction
    source = Source(dataset, target, data.weights, data.exposure, data.drop)
    source.check()
    codes = codes_by_column(data.missing_values, source.features)
    source = replace(source, codes=codes, held_out=held, seed=file.seed)
    with on_workers(
        source,
        data.stated_task,
        n_workers=1 if here else where.workers,
        scheduler=None if here else where.scheduler,
        sample_rows=where.sample_rows,
    ) as (rows, sample):
        training = sample.training
        aside = sample.held_out if held else training
        yield RunRows(
            task=sample.target.task,
            encoding=sample.encoding,
            X=Features.of(training.X, sample.encoding),
            y=response(training.y, training.extra),
            weights=training.weights,
            X_held=Features.of(aside.X, sample.encoding),
            y_held=response(aside.y, aside.extra),
            weights_held=aside.weights,
            rows_held=aside.numbers,
            held_out=held > 0,
            remarks=[*sample.ignored, *sample.doubts],
            fingerprints={"data": dataset.fingerprint()},
            distributed=rows,
            sample=sample,
        )
