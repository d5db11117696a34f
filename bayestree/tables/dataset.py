"""Parquet data sets of many files: a folder, a pattern or a URL, read by row groups in chunks."""

import hashlib
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayestree._utils.wording import InputError
from bayestree._utils.write import url_of
from bayestree.tables import parquet_files
from bayestree.tables.parquet_files import Value, from_arrow, naming, system

CELLS = 2**19  # values per chunk, about 50 MB as text
BUFFER = 2**20  # bytes of a Parquet column that are read at a time
READERS = 16  # footers that are read at the same time


def rows_per_chunk(names: Collection[Any]) -> int:
    """Return the number of rows of these columns that are read at a time."""
    return max(1, CELLS // max(1, len(names)))


class Piece(NamedTuple):
    """A row group of a data set: what a reader needs to find it.

    ``start`` is the number of its first row in the data set, ``size`` the number of its bytes
    before compression, and ``partition`` are the keys and values of the hive partition of its file.
    """

    file: str
    row_group: int
    start: int
    n_rows: int
    size: int
    partition: Mapping[str, Value]


@dataclass(frozen=True)
class Dataset:
    """The rows of one or many Parquet files with the same columns, in a fixed order.

    Files are in the order of their paths, in which numbers count as numbers (``part.2`` comes
    before ``part.10``). Folders ``key=value`` above a file are columns, unless the file has a
    column of this name. A data set can be pickled, and holds no rows.

    Attributes
    ----------
    path : str
        The folder, pattern, file or URL.
    columns : tuple of str
        Columns of the files, then the keys of hive partitions.
    schema : pyarrow.Schema
        Types of the columns, to which those of each file are converted.
    files : mapping from str to tuple of int and str
        Bytes of each file, and SHA-256 of its footer.
    pieces : tuple of Piece
        Row groups that have rows, in order.
    """

    path: str
    schema: pa.Schema
    files: Mapping[str, tuple[int, str]]
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, path: str | Path, text: Collection[str] = ()) -> "Dataset":
        """Find the files of a data set and read their footers, but no rows.

        Parameters
        ----------
        path : str or Path
            A folder, whose folders are searched too; a pattern with ``*``, ``**``, ``?`` or
            ``[...]``; a file; or the URL of one of these on any file system of fsspec.
        text : collection of str
            Keys of hive partitions whose values are text, even if all of them are whole numbers.

        Raises
        ------
        InputError
            If there is no such file, a file is not Parquet, or the files have different columns.
        """
        found = url_of(path) or str(path)
        filesystem, place = system(found)
        with naming(found):
            sizes = parquet_files.find(filesystem, place, found)
        with ThreadPoolExecutor(READERS) as pool:
            read = partial(parquet_files.footer, filesystem)
            footers = list(pool.map(read, sizes, sizes.values()))
        partitions = parquet_files.partitions([*sizes], text)
        stored = parquet_files.common_schema({one.file: one.schema for one in footers})
        keys = [key for key in partitions[0] if key not in stored.names]
        types = {key: pa.array([one[key] for one in partitions]).type for key in keys}
        pieces: list[Piece] = []
        for footer, partition in zip(footers, partitions, strict=True):
            kept = {key: partition[key] for key in keys}
            for group, (n_rows, size) in enumerate(footer.row_groups):
                start = pieces[-1].start + pieces[-1].n_rows if pieces else 0
                pieces += [Piece(footer.file, group, start, n_rows, size, kept)] if n_rows else []
        files = {one.file: (one.size, one.sha256) for one in footers}
        return cls(found, pa.schema([*stored, *types.items()]), files, tuple(pieces))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.schema.names)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.pieces[-1].start + self.pieces[-1].n_rows if self.pieces else 0

    def split(self, n: int) -> list[tuple[Piece, ...]]:
        """Return ``n`` parts of consecutive row groups, with nearly equal numbers of rows.

        No part is empty: there are fewer parts if there are fewer row groups.
        """
        if n < 1:
            raise ValueError(f"n must be 1 or more, got {n}.")
        n = min(n, len(self.pieces))
        if n == 0:
            return []
        middles = [piece.start + piece.n_rows / 2 for piece in self.pieces]
        cuts = np.searchsorted(middles, np.arange(n) * self.n_rows / max(n, 1))
        order = np.arange(n)
        cuts = np.maximum.accumulate(cuts - order) + order  # a row group or more for each part
        cuts = np.minimum(cuts, len(self.pieces) - n + order)
        return [
            self.pieces[start:end]
            for start, end in zip(cuts, [*cuts[1:], len(self.pieces)], strict=True)
        ]

    def by_file(self) -> dict[str, tuple[Piece, ...]]:
        """Return the row groups of each file that has rows."""
        return {
            name: tuple(own) for name, own in groupby(self.pieces, key=lambda piece: piece.file)
        }

    def chunks(
        self, pieces: Sequence[Piece], columns: Sequence[str] | None = None
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of row groups in order, in chunks of bounded size.

        The index of each chunk holds row numbers in the data set.

        Raises
        ------
        InputError
            If a file cannot be read.
        """
        size, orders = rows_per_chunk(columns or self.columns), dict[str, pd.Index]()
        for run in _runs(pieces):
            start = run[0].start
            # Without a buffer, whole columns of a row group are read, which may hold all rows.
            with self._opened(run[0].file, buffer_size=BUFFER, pre_buffer=False) as file:
                groups = [piece.row_group for piece in run]
                stored = self._stored(columns)
                for batch in file.iter_batches(size, groups, stored, use_threads=False):
                    frame = self._frame(batch, run[0], columns, orders)
                    yield frame.set_axis(pd.RangeIndex(start, start + len(frame)))
                    start += len(frame)

    def read(self) -> pd.DataFrame:
        """Return all rows."""
        found, orders = [], dict[str, pd.Index]()
        for name, pieces in self.by_file().items():
            with self._opened(name) as file:
                found.append(self._frame(file.read(), pieces[0], None, orders))
        if not found:
            return from_arrow(self.schema.empty_table())
        return pd.concat(found, ignore_index=True) if len(found) > 1 else found[0]

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and the number of the row in this file."""
        pieces = next(
            own for own in self.by_file().values() if row < own[-1].start + own[-1].n_rows
        )
        return pieces[0].file, row - pieces[0].start

    def relative(self, file: str) -> str:
        """Return the path of a file from the folder that holds all files and hive partitions."""
        return "/".join(file.split("/")[self._outside :])

    @cached_property
    def _outside(self) -> int:
        common = posixpath.commonpath([posixpath.dirname(name) for name in self.files]).split("/")
        return len(list(takewhile(lambda one: "=" not in one, common)))

    def fingerprint(self) -> dict[str, Any]:
        """Identify the data set by the names, sizes and footers of its files, not by its rows.

        Footers hold the number and the sizes of row groups and, as most libraries write them, the
        least and greatest value of each column. Names are relative, so that a folder may move.
        """
        lines = [f"{self.relative(name)} {size} {own}" for name, (size, own) in self.files.items()]
        return {
            "path": self.path,
            "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
            "rows": self.n_rows,
            "columns": len(self.columns),
            "files": len(self.files),
            "bytes": sum(size for size, _ in self.files.values()),
        }

    def _stored(self, columns: Sequence[str] | None) -> list[str] | None:
        """Return the columns to read from files; None for all."""
        keys = self.pieces[0].partition
        return None if columns is None else [name for name in columns if name not in keys]

    @contextmanager
    def _opened(self, name: str, **options: Any) -> Iterator[pq.ParquetFile]:
        with (
            naming(name),
            pq.ParquetFile(name, filesystem=system(self.path)[0], **options) as file,
        ):
            yield file

    def _frame(
        self,
        part: Any,
        piece: Piece,
        columns: Sequence[str] | None,
        orders: dict[str, pd.Index],
    ) -> pd.DataFrame:
        """Convert a part of a file to the types of the schema, with its partition as columns.

        ``orders`` are the ordered categories of the parts before, which must have the same.
        """
        part.validate(full=True)  # damaged text fails only where it is read
        fields = [self.schema.field(name) for name in columns or self.columns]
        arrays = [
            pa.repeat(pa.scalar(piece.partition[field.name], field.type), part.num_rows)
            if field.name in piece.partition
            else part.column(field.name).cast(field.type)
            for field in fields
        ]
        frame = from_arrow(pa.table(arrays, schema=pa.schema(fields)))
        for name, dtype in frame.dtypes.items():
            if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
                known = orders.setdefault(str(name), dtype.categories)
                if not known.equals(dtype.categories):
                    raise InputError(
                        f"the ordered categories of column {name!r} are {[*dtype.categories]} in "
                        f"{piece.file!r}, but {[*known]} before; write the same ones in all files."
                    )
        return frame


def _runs(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Return row groups by the runs in which they follow each other in a file."""
    runs: list[list[Piece]] = []
    for piece in pieces:
        last = runs[-1][-1] if runs else None
        if last and (last.file, last.start + last.n_rows) == (piece.file, piece.start):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs
