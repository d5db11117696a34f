"""Tables in files, read in chunks; a table read into memory has one chunk."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bayestree._utils.errors import InputError
from bayestree.tables.columns import Codes, text_of
from bayestree.tables.files import (
    ARRAY,
    CSV,
    PARQUET,
    check_file,
    column_names,
    frame_of,
    from_arrow,
    read_array,
    read_header,
    reading,
)
from bayestree.tables.kinds import ordered

CELLS = 2**19  # values per chunk, about 50 MB as text
BUFFER = 2**20  # bytes of a Parquet column that are read at a time

Frames = Iterator[pd.DataFrame]
Coded = Callable[[Sequence[str]], Mapping[str, Codes]]
Opened = tuple[Collection[Any], Callable[[], Frames]]


class Table(NamedTuple):
    """A table in a file: its column names, and a function that returns its chunks in order.

    ``levels`` are the categories of columns that hold ordered ones.
    """

    path: Path
    columns: tuple[str, ...]
    read: Callable[[], Frames]
    levels: Mapping[str, Sequence[str]]

    def chunks(self) -> Frames:
        """The rows in order, chunk by chunk; the index of each chunk holds its row numbers."""
        n_rows = 0
        with reading(self.path):
            for frame in self.read():
                if len(frame):
                    rows = pd.RangeIndex(n_rows, n_rows + len(frame))
                    named = frame.set_axis(list(self.columns), axis=1).set_axis(rows)
                    own = {name: ordered(named[name], among) for name, among in self.levels.items()}
                    yield named.assign(**own) if own else named
                    n_rows += len(frame)
        if n_rows == 0:
            raise InputError(f"{str(self.path)!r} has column names but no rows.")


def open_table(
    path: str | Path,
    text: Collection[str] = (),
    *,
    levels: Mapping[str, Sequence[str]] | None = None,
    codes: Coded = lambda _: {},
    whole: bool = False,
) -> Table:
    """Open a CSV or Parquet file, or a NumPy array.

    Columns of a CSV file may be separated by commas, semicolons, tabs or vertical bars, whatever
    the file is called; columns in ``text`` are read as text even if they look like numbers. The
    columns of an array are ``x0``, ``x1``, ..., unless its fields have names. Columns in ``levels``
    become ordered categories, and may have no others. In a CSV file, the ``codes`` for missing
    values, a function of the names of all columns, do not make text of a column.

    With ``whole``, the table is read into memory as a single chunk. Otherwise chunks are read when
    they are needed, and a CSV file is read once to find out which columns hold text.
    """
    source = Path(path)
    kind = check_file(source)
    with reading(source):
        names, read = _OPENERS[kind](source, [*text, *(levels or ())], codes, whole)
        if whole:
            frames = list(read())
            read = lambda: iter(frames)  # noqa: E731
    return Table(source, tuple(map(str, names)), read, levels or {})


def _rows_per_chunk(names: Collection[Any]) -> int:
    return max(1, CELLS // max(1, len(names)))


def _open_parquet(source: Path, _: Collection[str], __: Coded, whole: bool) -> Opened:
    with pq.ParquetFile(source) as file:
        names = from_arrow(file.schema_arrow.empty_table()).columns

    def read() -> Frames:
        if whole:
            yield from_arrow(pq.read_table(source))
            return
        # Without a buffer, whole columns of a row group are read, which may hold all rows.
        with pq.ParquetFile(source, buffer_size=BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(_rows_per_chunk(names), use_threads=False):
                yield from_arrow(batch)

    return names, read


def _open_csv(source: Path, text: Collection[str], codes: Coded, whole: bool) -> Opened:
    dialect = read_header(source)
    names = pd.read_csv(source, nrows=0, **dialect.options).columns
    missing = codes([*names])
    mixed: list[str] = []  # columns that are text as a whole, although chunks may look like numbers

    def read() -> Frames:
        with pd.read_csv(
            source,
            dtype=dict.fromkeys([*text, *mixed], str),
            na_values={name: [*map(text_of, own)] for name, own in missing.items()},
            low_memory=False,
            iterator=True,
            chunksize=None if whole else _rows_per_chunk(names),
            **dialect.options,
        ) as reader:
            while True:
                with warnings.catch_warnings():
                    # Rows longer than the header would otherwise lose their last fields silently.
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    frame = next(reader, None)
                if frame is None:
                    return
                yield frame

    if not whole:
        kinds: dict[str, set[str]] = {name: set() for name in names}
        for frame in read():
            for name, column in frame.items():
                if column.notna().any():
                    kinds[str(name)].add(_kind(column))
        mixed += [name for name, found in kinds.items() if len(found) > 1 or "text" in found]
    return names, read


def _kind(column: pd.Series) -> str:
    # A column of booleans with missing values has the type object.
    if pd.api.types.infer_dtype(column, skipna=True) == "boolean":
        return "boolean"
    return "number" if pd.api.types.is_numeric_dtype(column) else "text"


def _open_array(source: Path, _: Collection[str], __: Coded, whole: bool) -> Opened:
    array = read_array(source)
    names = column_names(array)

    def read() -> Frames:
        size = max(1, len(array)) if whole else _rows_per_chunk(names)
        for start in range(0, len(array), size):
            yield frame_of(np.array(array[start : start + size]))

    return names, read


_OPENERS: dict[tuple[str, ...], Callable[[Path, Collection[str], Coded, bool], Opened]] = {
    PARQUET: _open_parquet,
    CSV: _open_csv,
    ARRAY: _open_array,
}
