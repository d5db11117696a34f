"""File formats of tables: CSV, Parquet and NumPy arrays."""

import csv as rfc
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray
from bayestree.tables.csv import Dialect, explain_failure, records, sniff
from bayestree.tables.errors import CellError, InputError

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARRAY = (".npy",)
KINDS = {PARQUET: "a Parquet file", CSV: "a CSV file in UTF-8", ARRAY: "a NumPy array"}
#: What to do with a file that is not a table, by its ending.
REMEDIES = {
    **dict.fromkeys((".xls", ".xlsx", ".ods"), "; save the sheet as CSV (UTF-8)"),
    ".toml": "; a run file is run by `bayestree run`",
    ".safetensors": "; a model predicts by `bayestree predict FOLDER TABLE`",
}


def check_file(source: Path) -> tuple[str, ...]:
    """The kind of table that the name of an existing file indicates: PARQUET, CSV or ARRAY."""
    if not source.is_file():
        fault = "is a folder" if source.is_dir() else "does not exist"
        raise InputError(f"{str(source)!r} {fault}; specify a CSV or Parquet file.")
    if source.stat().st_size == 0:
        raise InputError(f"{str(source)!r} is empty; it needs a line of column names and rows.")
    if found := table_format(source):
        return found
    known = ", ".join(name for endings in KINDS for name in endings)
    remedy = REMEDIES.get(source.suffix.lower(), "")
    raise InputError(f"{str(source)!r} must end in one of {known}{remedy}.")


def table_format(source: Path) -> tuple[str, ...]:
    """The kind of table that the name of a file indicates; empty if it is not a table."""
    return next((each for each in KINDS if source.name.lower().endswith(each)), ())


def read_array(source: Path) -> AnyArray:
    """Map an array from its file; a ValueError if it holds several arrays, or Python objects."""
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds several arrays; save only one.")  # noqa: TRY004 - file content
    return array


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Turn errors of the block into an InputError that explains what is wrong with the file."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, rfc.Error, pd.errors.ParserWarning) as error:
        kind, reason = check_file(source), " ".join(str(error).split())
        if kind == CSV:
            with suppress(OSError, EOFError, zlib.error, rfc.Error):
                reason = explain_failure(source, reason)
        raise InputError(f"{str(source)!r} cannot be read as {KINDS[kind]}: {reason}") from error


def frame_of(array: AnyArray) -> pd.DataFrame:
    """An array as a table, with the columns of :func:`column_names`."""
    names = column_names(array)
    if array.dtype.names is None:
        return pd.DataFrame(array, columns=names)
    return pd.DataFrame({name: array[name] for name in names})


def column_names(array: AnyArray) -> list[str]:
    """Columns of an array: ``x0``, ``x1``, ..., or the names of its fields."""
    fields = array.dtype.names
    if array.ndim != (2 if fields is None else 1):
        raise InputError(
            f"an array of shape {array.shape} is not a table; it needs two dimensions, or one "
            "dimension and named fields."
        )
    return [f"x{number}" for number in range(array.shape[1])] if fields is None else list(fields)


def read_header(source: Path) -> Dialect:
    """The dialect of a CSV file whose header has been checked."""
    dialect = sniff(source)
    line, header = next(records(source, dialect.separator), (0, []))
    if header and re.fullmatch("sep=.?", header[0]):
        raise InputError(
            f"line {line} of {str(source)!r} is an instruction to Excel ({header[0]}); delete it."
        )
    first_places: dict[str, int] = {}
    for number, name in enumerate(header, start=1):
        if name.strip() and first_places.setdefault(name, number) != number:
            raise InputError(
                f"{str(source)!r} has more than one column named {name!r}: columns "
                f"{first_places[name]} and {number}; rename one."
            )
    return dialect


@contextmanager
def located(source: Path) -> Iterator[None]:
    """Name the line of the file if the block refuses a value of its table."""
    try:
        yield
    except CellError as error:
        raise InputError(_message_with_line(source, error)) from error


def _message_with_line(source: Path, error: CellError) -> str:
    if check_file(source) != CSV:
        return error.located_at(f"row {error.row + 1} of {source.name!r}")
    lines = records(source, sniff(source).separator)
    _, header = next(lines)
    line, fields = next(islice(lines, error.row, None))
    if error.missing and len(fields) < len(header):
        return (
            f"line {line} of {source.name!r} has {len(fields)} fields, but the header names "
            f"{len(header)} columns; complete the line, or delete it."
        )
    place = f"line {line} of {source.name!r}"
    if error.missing and error.column in header:
        raw = fields[header.index(error.column)].strip()
        place += f", where {raw!r} stands for a missing value" if raw else ""
    return error.located_at(place)
