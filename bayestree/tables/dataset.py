"""Parquet data sets of many files: a folder, a pattern or a URL, read by row groups in chunks."""

import hashlib
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayestree._utils.wording import InputError, counted
from bayestree._utils.write import url_of
from bayestree.tables.columns import quote_columns

CELLS = 2**19  # values per chunk, about 50 MB as text
BUFFER = 2**20  # bytes of a Parquet column that are read at a time
READERS = 16  # footers that are read at the same time
PARQUET = (".parquet", ".pq")
FOOTER = 2**16  # bytes at the end of a file, which hold most footers
WILDCARD = re.compile(r"[*?\[]")
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # as pandas stores it
KEY = re.compile(r"([^/=]+)=([^/]*)/")  # a folder of a hive partition
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the value of rows without one

Value = str | int | None


def is_dataset(path: str | Path) -> bool:
    """Return whether a path is a folder, a URL or a pattern such as ``data/*.parquet``."""
    if url_of(path):
        return True
    local = Path(path)
    return local.is_dir() or bool(not local.exists() and WILDCARD.search(str(path)))


def from_arrow(table: Any) -> pd.DataFrame:
    """Convert a table or batch of Arrow; an index is a column if it has a name, else left out."""
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame.loc[:, [not UNNAMED_INDEX.fullmatch(str(name)) for name in frame]]


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
        filesystem, place = _system(found)
        with _naming(found):
            sizes = _find(filesystem, place, found)
        with ThreadPoolExecutor(READERS) as pool:
            read = partial(_footer, filesystem)
            footers = list(pool.map(read, sizes, sizes.values()))
        partitions = _partitions([*sizes], text)
        stored = _common_schema({one.file: one.schema for one in footers})
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
        # Row groups that follow each other in a file are read by one reader.
        numbered = groupby(enumerate(pieces), lambda one: (one[1].file, one[1].row_group - one[0]))
        for _, found in numbered:
            run = [piece for _, piece in found]
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
            _naming(name),
            pq.ParquetFile(name, filesystem=_system(self.path)[0], **options) as file,
        ):
            yield file

    def _frame(
        self, part: Any, piece: Piece, columns: Sequence[str] | None, orders: dict[str, pd.Index]
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


class _Footer(NamedTuple):
    """What the end of a file says about it."""

    file: str
    size: int
    sha256: str
    schema: pa.Schema
    row_groups: list[tuple[int, int]]  # rows and bytes of each


def _system(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path in it."""
    from fsspec.core import url_to_fs  # noqa: PLC0415 - slow to import

    try:
        system, place = url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise InputError(f"{path!r} cannot be reached: {error}.") from error
    return system, str(place)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the file in errors of the block."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{name!r} cannot be read as a Parquet file: {reason}") from error


def _find(system: Any, place: str, path: str) -> dict[str, int]:
    """Return the sizes of the Parquet files of a file, folder or pattern, in order; refuse none."""
    matched = {place: None} if system.exists(place) else {}
    if not matched and WILDCARD.search(place):
        matched = system.glob(place, detail=True)
    found: dict[str, int] = {}
    for root in matched:
        for name, info in system.find(root, detail=True).items():
            inside = name[len(root) :].split("/")  # such as _temporary, and drafts
            if name.lower().endswith(PARQUET) and not any(one[:1] in ("_", ".") for one in inside):
                found[name] = info["size"]
    if found:
        return dict(sorted(found.items(), key=lambda item: (_natural(item[0]), item[0])))
    fault = "does not exist; specify a CSV or Parquet file"
    if matched:
        is_folder = len(matched) == 1 and system.isdir(place)
        fault = f"{'is a folder' if is_folder else 'leads to files, but'} without Parquet files"
    elif WILDCARD.search(place):
        fault = "matches no file; correct the pattern"
    endings = " or ".join(PARQUET)
    raise InputError(
        f"{path!r} {fault}. A data set is a folder of files that end in {endings}, or a pattern "
        "such as 'data/*.parquet'."
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key for sorting, by which numbers in names count as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(int(part or 0), "") if place % 2 else (0, part) for place, part in enumerate(parts)]


def _footer(system: Any, name: str, size: int) -> _Footer:
    """Read the end of a file: the magic number after the length of the metadata before it."""
    with _naming(name):
        if size < 8:
            raise pa.ArrowInvalid(f"it has {counted(size, 'byte')}, too few for a footer.")
        end = system.cat_file(name, start=max(0, size - FOOTER))
        length = int.from_bytes(end[-8:-4], "little") + 8
        if len(end) < length <= size:
            end = system.cat_file(name, start=size - length)
        content = end[-length:]
        metadata = pq.read_metadata(pa.BufferReader(content))
        schema = metadata.schema.to_arrow_schema()
    if repeated := {column for column in schema.names if schema.names.count(column) > 1}:
        raise InputError(
            f"{name!r} has more than one of {quote_columns(sorted(repeated))}; rename them."
        )
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return _Footer(
        name,
        size,
        hashlib.sha256(content).hexdigest(),
        pa.schema([field for field in schema if not UNNAMED_INDEX.fullmatch(field.name)]),
        [(group.num_rows, group.total_byte_size) for group in groups],
    )


def _common_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the schema that the schemas of all files can be converted to; else name the file."""
    (first, common), *others = schemas.items()
    for name, schema in others:
        if schema.equals(common):
            continue
        for here, there in ((name, first), (first, name)):
            known = {*schemas[here].names}
            if missing := [one for one in schemas[there].names if one not in known]:
                raise InputError(
                    f"{here!r} lacks {quote_columns(missing)} of {there!r}; all files of a data "
                    "set need the same columns."
                )
        for place, mine in enumerate(common):
            field = schema.field(mine.name)
            try:
                parts = [pa.schema([one]) for one in (mine, field)]
                both = pa.unify_schemas(parts, promote_options="permissive")
                common = common.set(place, both.field(0))
            except pa.ArrowException:
                raise InputError(
                    f"column {field.name!r} holds {field.type} in {name!r}, but {mine.type} in "
                    f"{first!r}; write it with one type in all files."
                ) from None
    return common


def _partitions(names: Sequence[str], text: Collection[str]) -> list[dict[str, Value]]:
    """Return the keys and values of the hive partition of each file; whole numbers as such."""
    found: list[dict[str, Value]] = [
        {
            unquote(key): None if value == NO_VALUE else unquote(value)
            for key, value in KEY.findall(name)
        }
        for name in names
    ]
    for name, own in zip(names, found, strict=True):
        if own.keys() != found[0].keys():
            raise InputError(
                f"{name!r} lies in other partitions (key=value) than {names[0]!r}: "
                f"{[*own]} instead of {[*found[0]]}; all files need the same keys."
            )
    for key in found[0].keys() - set(text):
        try:
            numbers = pa.array([own[key] for own in found], pa.string()).cast(pa.int64())
        except pa.ArrowInvalid:
            continue
        for own, number in zip(found, numbers.to_pylist(), strict=True):
            own[key] = number
    return found
