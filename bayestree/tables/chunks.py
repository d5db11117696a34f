"""Tables that are read some rows at a time, for those that are larger than memory."""

import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bayestree.tables.csv import Dialect
from bayestree.tables.errors import InputError
from bayestree.tables.files import (
    CSV,
    PARQUET,
    check_file,
    frame_of,
    header_of,
    names_of,
    read_array,
    reading,
)

CELLS = 2**19  # values of a chunk: some 50 MB as text
BUFFER = 2**20  # bytes of a Parquet column that are read at a time

Frames = Iterator[pd.DataFrame]


class ChunkedTable(NamedTuple):
    """A table in a file.

    Attributes
    ----------
    path : Path
    columns : tuple of str
    read : callable
        Gives the chunks, each a DataFrame of these columns, from the first on.
    """

    path: Path
    columns: tuple[str, ...]
    read: Callable[[], Frames]

    def chunks(self) -> Frames:
        """The rows in order, some at a time, as :func:`read_table` would give them.

        Their index goes on from chunk to chunk.

        Raises
        ------
        InputError
            If there are none, or the file is no table of the kind its name says.
        """
        n_rows = 0
        with reading(self.path):
            for frame in self.read():
                if len(frame):
                    rows = pd.RangeIndex(n_rows, n_rows + len(frame))
                    yield frame.set_axis(list(self.columns), axis=1).set_axis(rows)
                    n_rows += len(frame)
        if n_rows == 0:
            raise InputError(f"{str(self.path)!r} has column names but no rows.")


def open_chunks(path: str | Path, text: Collection[str] = ()) -> ChunkedTable:
    """Open a table of any size.

    Parameters
    ----------
    path, text
        As for :func:`read_table`. A CSV file is read through once, to see which columns hold text.

    Raises
    ------
    InputError
        If the file is missing, empty, or no table of the kind its name says.
    """
    source = Path(path)
    ending = check_file(source)
    with reading(source):
        if ending == PARQUET:
            return _of_parquet(source)
        return _of_csv(source, text) if ending == CSV else _of_array(source)


def _size(n_columns: int) -> int:
    """Rows of a chunk."""
    return max(1, CELLS // max(1, n_columns))


def _of_parquet(source: Path) -> ChunkedTable:
    with pq.ParquetFile(source) as file:
        names = file.schema_arrow.empty_table().to_pandas().columns

    def read() -> Frames:
        # Buffered, for else whole columns of a group of rows are held, which may be all rows.
        with pq.ParquetFile(source, buffer_size=BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(_size(len(names)), use_threads=False):
                yield batch.to_pandas()

    return ChunkedTable(source, tuple(map(str, names)), read)


def _of_csv(source: Path, text: Collection[str]) -> ChunkedTable:
    dialect = header_of(source)
    names = pd.read_csv(source, nrows=0, **dialect.options).columns
    kinds: dict[str, set[str]] = {name: set() for name in names}
    for frame in _csv_chunks(source, dialect, text, _size(len(names))):
        for name, dtype in frame.dtypes.items():
            kinds[str(name)].add(_kind(dtype))
    # What a whole column is read as: numbers or true and false, if all of it is, and else text.
    mixed = [name for name, found in kinds.items() if found - {"number"} and found != {"boolean"}]

    def read() -> Frames:
        return _csv_chunks(source, dialect, [*text, *mixed], _size(len(names)))

    return ChunkedTable(source, tuple(map(str, names)), read)


def _kind(dtype: Any) -> str:
    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    return "number" if pd.api.types.is_numeric_dtype(dtype) else "text"


def _csv_chunks(source: Path, dialect: Dialect, text: Collection[str], size: int) -> Frames:
    with pd.read_csv(
        source,
        dtype=dict.fromkeys(text, str),
        low_memory=False,
        chunksize=size,
        **dialect.options,
    ) as reader:
        while True:
            with warnings.catch_warnings():
                # as where a table is read at once
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = next(reader, None)
            if frame is None:
                return
            yield frame


def _of_array(source: Path) -> ChunkedTable:
    array = read_array(source)
    names = names_of(array)

    def read() -> Frames:
        size = _size(len(names))
        for start in range(0, len(array), size):
            yield frame_of(np.array(array[start : start + size]))

    return ChunkedTable(source, tuple(map(str, names)), read)
