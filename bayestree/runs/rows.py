"""A table made ready for a fit: checked, held out, encoded; and what it was when it was read."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from bayestree import tables
from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import nearest_match
from bayestree.tables import Encoding, InputError, located

if TYPE_CHECKING:
    from bayestree.runs.schema import RunFile


class Prepared(NamedTuple):
    """A table, read and checked: features of the training and the held-out rows.

    ``rows_held`` are their numbers in the table that they are from, ``fingerprints`` what that
    table was: one entry for ``data``, and one for ``test`` where the held-out rows have a table of
    their own.
    """

    task: str
    encoding: Encoding
    X: pd.DataFrame
    y: NDArray[Any]
    weights: FloatArray
    X_held: pd.DataFrame
    y_held: NDArray[Any]
    weights_held: FloatArray
    rows_held: NDArray[np.int64]
    held_out: bool
    remarks: list[str]
    fingerprints: Mapping[str, Mapping[str, Any]]


class Known(NamedTuple):
    """Rows of a table whose target is known, and the file that they are from."""

    features: pd.DataFrame
    y: NDArray[Any]
    weights: FloatArray
    source: Path | None


def read_rows(file: "RunFile", keep: Collection[str] = ()) -> Prepared:
    """Read, check and encode the rows of a run.

    Parameters
    ----------
    file : RunFile
        Its ``data`` says where they are, its ``seed`` which are held out.
    keep : collection of str
        Columns that are features even where they look like an index.

    Returns
    -------
    Prepared

    Raises
    ------
    InputError
        If a table cannot be used.
    """
    data = file.data
    if data.storage == "disk":
        from bayestree.runs.disk import read_on_disk  # noqa: PLC0415 - it is built on this module

        return read_on_disk(file, keep)
    frame = _read(Path(data.path), data.target, data.weights, data.drop)
    width = frame.shape[1] + len(set(data.drop))
    prints = {"data": fingerprint(Path(data.path), len(frame), width)}
    if data.test is None:
        found = prepare(
            frame,
            data.target,
            data.weights,
            task=data.task,
            fraction=data.test_fraction,
            seed=file.seed,
            keep=keep,
            source=Path(data.path),
        )
    else:
        # what is text in the one is so in the other, even where it looks like numbers
        text = [str(name) for name in frame if tables.is_text(frame[name])]
        test = _read(Path(data.test), data.target, data.weights, data.drop, text)
        width = test.shape[1] + len(set(data.drop))
        prints["test"] = fingerprint(Path(data.test), len(test), width)
        found = prepare_apart(
            frame,
            test,
            data.target,
            data.weights,
            task=data.task,
            keep=keep,
            sources=(Path(data.path), Path(data.test)),
        )
    return found._replace(fingerprints=prints)


def fingerprint(path: Path, n_rows: int, n_columns: int) -> dict[str, Any]:
    """What a table is known by: its file's SHA-256, and numbers of rows and columns."""
    return {"path": str(path), "sha256": sha256(path), "rows": n_rows, "columns": n_columns}


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def prepare(
    frame: pd.DataFrame,
    target: str,
    weights: str | None,
    *,
    task: str,
    fraction: float,
    seed: int,
    keep: Collection[str] = (),
    source: Path | None = None,
) -> Prepared:
    """Check a table, hold rows out, and turn columns into features by the training rows.

    Parameters
    ----------
    frame : DataFrame
    target, weights : str
        Names of columns.
    task : {"auto", "classification", "regression"}
    fraction : float
        Share of the rows held out; with 0 the training rows stand in for them.
    seed : int
        Of the choice of these rows.
    keep : collection of str
        As for :func:`read_rows`.
    source : Path, optional
        File of the table, whose lines messages name.

    Raises
    ------
    InputError
        If a value is missing or of the wrong kind, or too few rows are left.
    """
    task, known, remarks = _known(frame, target, weights, task, keep, source)
    kept, held = hold_out(known.y, known.weights, task, fraction, seed)
    return _encoded(task, known, kept, known, held, held_out=fraction > 0, remarks=remarks)


def prepare_apart(
    frame: pd.DataFrame,
    test: pd.DataFrame,
    target: str,
    weights: str | None,
    *,
    task: str,
    keep: Collection[str] = (),
    sources: tuple[Path | None, Path | None] = (None, None),
) -> Prepared:
    """The same where the held-out rows are a table of their own, ``test``."""
    task, known, remarks = _known(frame, target, weights, task, keep, sources[0])
    check_classes(known.y, known.weights, task)
    held = _like(known, test, target, weights, task, sources[1])
    every, rows_held = np.arange(len(known.y)), np.arange(len(held.y))
    return _encoded(task, known, every, held, rows_held, held_out=True, remarks=remarks)


def check_columns(
    frame: pd.DataFrame, source: str, target: str, weights: str | None, drop: Sequence[str]
) -> None:
    """Refuse names that are no columns of a table, and columns that are named for two purposes.

    Raises
    ------
    InputError
    """
    named = [("target", target), *([("weights", weights)] if weights else [])]
    for purpose, name in [*named, *(("drop", name) for name in drop)]:
        if name not in frame:
            known = ", ".join(map(repr, frame.columns[:20]))
            alone = "; commas, semicolons, tabs or bars may separate columns."
            end = nearest_match(name, frame.columns, alone if len(frame.columns) == 1 else ".")
            if not pd.to_numeric(pd.Series(frame.columns), errors="coerce").isna().all():
                end += " The first line of a CSV file must name the columns."
            raise InputError(
                f"{purpose} {name!r} is not a column of {source!r}, which has {known}{end}"
            )
    for purpose, name in named:
        if name in drop or (purpose == "weights" and name == target):
            raise InputError(f"{purpose} {name!r} is named for another purpose as well.")


def _read(
    path: Path,
    target: str,
    weights: str | None,
    drop: Sequence[str],
    text: Sequence[str] = (),
) -> pd.DataFrame:
    frame = tables.read_table(path, text)
    check_columns(frame, path.name, target, weights, drop)
    return frame.drop(columns=list(drop))


def _known(
    frame: pd.DataFrame,
    target: str,
    weights: str | None,
    task: str,
    keep: Collection[str],
    source: Path | None,
) -> tuple[str, Known, list[str]]:
    """The task, the rows, and what to tell a person of the columns."""
    features = frame.drop(columns=[target, *([weights] if weights else [])])
    survey = tables.Survey(features.columns, keep)
    with located(source):
        survey.add(frame)
        remarks = survey.check()
        found, y = tables.read_target(frame[target], task)
        counts = np.ones(len(frame)) if weights is None else tables.read_weights(frame[weights])
    return found, Known(features.drop(columns=[*survey.idle]), y, counts, source), remarks


def _like(
    known: Known,
    test: pd.DataFrame,
    target: str,
    weights: str | None,
    task: str,
    source: Path | None,
) -> Known:
    """Rows of another table, their target read as that of the training rows was."""
    with located(source):
        tables.check_complete(test)
        counts = np.ones(len(test)) if weights is None else tables.read_weights(test[weights])
        y = target_like(known.y, test[target], task)
    features = test.drop(columns=[target, *([weights] if weights else [])])
    return Known(features, y, counts, source)


def target_like(y: NDArray[Any], column: pd.Series, task: str) -> NDArray[Any]:
    """The target of other rows, read as that of the training rows was.

    Raises
    ------
    InputError
        If it holds text for numbers, or fractions for classes.
    """
    if y.dtype.kind == "U":
        return column.astype(str).to_numpy(dtype=str)
    values = tables.numbers(column).to_numpy()
    if task == "regression":
        return values
    if (values != np.round(values)).any():
        value = values[values != np.round(values)][0]
        raise InputError(f"target {column.name!r} holds {value:g}, which is no class.")
    return values.astype(y.dtype)


def _encoded(
    task: str,
    known: Known,
    kept: NDArray[np.int64],
    other: Known,
    held: NDArray[np.int64],
    *,
    held_out: bool,
    remarks: list[str],
) -> Prepared:
    encoding = Encoding.of(known.features.iloc[kept])
    X, _ = encoding.encode(known.features.iloc[kept])
    with located(other.source):
        X_held, unknown = encoding.encode(other.features.iloc[held])
    return Prepared(
        task=task,
        encoding=encoding,
        X=X,
        y=known.y[kept],
        weights=known.weights[kept],
        X_held=X_held,
        y_held=other.y[held],
        weights_held=other.weights[held],
        rows_held=held,
        held_out=held_out,
        remarks=[*remarks, *unknown],
        fingerprints={},
    )


def hold_out(
    y: NDArray[Any], weights: FloatArray, task: str, fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and to score on: the same, if none are held out.

    Raises
    ------
    InputError
        If too few are left, or too few classes.
    """
    rows = np.arange(len(y))
    n_held = round(fraction * len(y))
    kept = held = rows
    if fraction > 0:
        if not 1 <= n_held <= len(y) - 2:
            raise InputError(
                f"a test fraction of {fraction:g} of {len(y)} rows leaves too few to train on or "
                "to score; 0 scores the training rows."
            )
        classes, sizes = np.unique(y, return_counts=True)
        even = task == "classification" and sizes.min() > 1
        even = even and len(classes) <= min(n_held, len(y) - n_held)
        kept, held = train_test_split(
            rows, test_size=n_held, random_state=seed, stratify=y if even else None
        )
    check_classes(y[kept], weights[kept], task)
    return np.sort(kept), np.sort(held)


def check_classes(y: NDArray[Any], weights: FloatArray, task: str) -> None:
    """Refuse rows to train on that hold a single class.

    Raises
    ------
    InputError
    """
    if len(np.unique(y[weights > 0])) < (2 if task == "classification" else 1):
        raise InputError("the training rows of positive weight hold too few classes; add rows.")
