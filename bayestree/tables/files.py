"""Files of tables: CSV, Parquet, and arrays of NumPy."""

import csv as rfc
import re
import warnings
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree.tables.csv import Dialect, records, sniff, why_unreadable
from bayestree.tables.errors import CellError, InputError

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARRAY = (".npy",)
KINDS = {
    PARQUET: "a Parquet file",
    CSV: "a CSV file in UTF-8",
    ARRAY: "an array of NumPy",
}


def read_table(path: str | Path, text: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV or Parquet file, or an array of NumPy.

    Parameters
    ----------
    path : path ending in .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .pq or .npy
        Columns of a CSV file may be separated by commas, semicolons, tabs or bars, whatever its
        name. The columns of an array are ``x0``, ``x1``, ..., unless its fields have names.
    text : collection of str
        Columns of a CSV file that are kept as text, even where they look like numbers.

    Returns
    -------
    DataFrame
        One row or more; names of columns are text, and no two are the same.

    Raises
    ------
    InputError
        If the file is missing, empty, without rows, or no table of the kind its name says.
    """
    source = Path(path)
    ending = check_file(source)
    with reading(source):
        if ending == PARQUET:
            frame = pd.read_parquet(source)
        elif ending == CSV:
            frame = _read_csv(source, text)
        else:
            frame = frame_of(np.array(read_array(source)))
    if len(frame) == 0:
        raise InputError(f"{str(source)!r} has column names but no rows.")
    return frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)


def check_file(source: Path) -> tuple[str, ...]:
    """Which kind of table a file is by its name: ``PARQUET``, ``CSV`` or ``ARRAY``.

    Raises
    ------
    InputError
        If it is none, is missing, or is empty.
    """
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "does not exist"
        raise InputError(f"{str(source)!r} {what}; give a CSV or Parquet file.")
    if source.stat().st_size == 0:
        raise InputError(f"{str(source)!r} is empty; it needs a line of column names and rows.")
    for ending in KINDS:
        if source.name.lower().endswith(ending):
            return ending
    known = ", ".join(name for ending in KINDS for name in ending)
    excel = source.suffix.lower() in (".xls", ".xlsx", ".ods")
    remedy = "; save the sheet as CSV (UTF-8)." if excel else "."
    raise InputError(f"{str(source)!r} must end in one of {known}{remedy}")


def read_array(source: Path) -> NDArray[Any]:
    """An array that is mapped from its file.

    Raises
    ------
    ValueError
        If the file holds none, or Python objects.
    """
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds several arrays; save the one.")  # noqa: TRY004 - of the file
    return array


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Say of a file that the block cannot read what it is not.

    Raises
    ------
    InputError
    """
    try:
        yield
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, rfc.Error, pd.errors.ParserWarning) as error:
        ending = check_file(source)
        kind, reason = KINDS[ending], " ".join(str(error).split())
        if ending == CSV:
            with suppress(OSError, EOFError, zlib.error, rfc.Error):
                reason = why_unreadable(source, reason)
        raise InputError(f"{str(source)!r} cannot be read as {kind}: {reason}") from error


def frame_of(array: NDArray[Any]) -> pd.DataFrame:
    """An array as a table, with the columns of :func:`names_of`."""
    names = names_of(array)
    if array.dtype.names is None:
        return pd.DataFrame(array, columns=names)
    return pd.DataFrame({name: array[name] for name in names})


def names_of(array: NDArray[Any]) -> list[str]:
    """Columns of an array: ``x0``, ``x1``, ..., or its fields where these have names.

    Raises
    ------
    InputError
        If it has not two dimensions, or one and fields.
    """
    fields = array.dtype.names
    if array.ndim != (2 if fields is None else 1):
        raise InputError(
            f"an array of shape {array.shape} is no table; it needs rows and columns, or one "
            "dimension and fields with names."
        )
    return [f"x{number}" for number in range(array.shape[1])] if fields is None else list(fields)


def header_of(source: Path) -> Dialect:
    """How a CSV file writes its table, once its header has been checked.

    Raises
    ------
    InputError
    """
    dialect = sniff(source)
    line, header = next(records(source, dialect.separator), (0, []))
    if header and re.fullmatch("sep=.?", header[0]):
        raise InputError(
            f"line {line} of {str(source)!r} is an instruction to Excel ({header[0]}); delete it."
        )
    places: dict[str, int] = {}
    for number, name in enumerate(header, start=1):
        if name.strip() and name in places:
            raise InputError(
                f"{str(source)!r} has more than one column named {name!r}: columns "
                f"{places[name]} and {number}; rename one."
            )
        places[name] = number
    return dialect


@contextmanager
def located(source: Path | None) -> Iterator[None]:
    """Name the line of a file, where the block refuses a value in a row of its table.

    Raises
    ------
    InputError
    """
    try:
        yield
    except CellError as error:
        if source is None:
            raise
        raise InputError(_located(source, error)) from error


def _located(source: Path, error: CellError) -> str:
    if check_file(source) != CSV:
        return error.at(f"row {error.row + 1} of {source.name!r}")
    found = records(source, sniff(source).separator)
    _, header = next(found)
    line, fields = next(islice(found, error.row, None))
    if error.missing and len(fields) < len(header):
        return (
            f"line {line} of {source.name!r} has {len(fields)} fields, but the header names "
            f"{len(header)} columns; complete the line, or delete it."
        )
    place = f"line {line} of {source.name!r}"
    if error.missing and error.column in header:
        raw = fields[header.index(error.column)].strip()
        place += f", where {raw!r} stands for a missing value" if raw else ""
    return error.at(place)


def _read_csv(source: Path, text: Collection[str]) -> pd.DataFrame:
    dialect = header_of(source)
    with warnings.catch_warnings():
        # Rows longer than the header would otherwise lose their last fields without a word.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            source, dtype=dict.fromkeys(text, str), low_memory=False, **dialect.options
        )
