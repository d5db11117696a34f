"""Files of tables: CSV, Parquet, and arrays of NumPy."""

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree.tables.errors import InputError

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz")
ARRAY = (".npy",)
ENCODING = "utf-8-sig"  # of CSV files
KINDS = {
    PARQUET: "a Parquet file",
    CSV: "a CSV file with commas, in UTF-8",
    ARRAY: "an array of NumPy",
}


def read_table(path: str | Path, text: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV or Parquet file, or an array of NumPy.

    Parameters
    ----------
    path : path ending in .csv, .csv.gz, .parquet, .pq or .npy
        The columns of an array are ``x0``, ``x1``, ..., unless its fields have names.
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
    raise InputError(f"{str(source)!r} must end in one of {known}.")


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
    except (ValueError, OSError, EOFError, pd.errors.ParserWarning) as error:
        kind = KINDS[check_file(source)]
        reason = " ".join(str(error).split())
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


def check_header(source: Path) -> None:
    """Refuse a CSV file two of whose columns have one name.

    Raises
    ------
    InputError
    """
    header = pd.read_csv(source, header=None, nrows=1, dtype=str, encoding=ENCODING).iloc[0]
    twice = header[header.duplicated() & header.notna()]
    if len(twice):
        raise InputError(f"{str(source)!r} has more than one column named {twice.iloc[0]!r}.")


def _read_csv(source: Path, text: Collection[str]) -> pd.DataFrame:
    check_header(source)
    with warnings.catch_warnings():
        # Rows longer than the header would otherwise lose their last fields without a word.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            source,
            dtype=dict.fromkeys(text, str),
            index_col=False,
            encoding=ENCODING,
            low_memory=False,
        )
