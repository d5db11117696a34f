"""Tables in files (CSV, Parquet, NumPy arrays), read in chunks, and frames of other libraries."""

import csv
import gzip
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray
from bayestree._utils.wording import CellError, InputError, brief, refuse_special
from bayestree.tables.column_types import ordered
from bayestree.tables.columns import MAX_TEXT, Codes, text_of
from bayestree.tables.dataset import PARQUET, Dataset, is_dataset, rows_per_chunk

ENCODING = "utf-8-sig"
SEPARATORS = ",;\t|"
SAMPLE = 1000  # records from which the separator and the decimal mark are inferred
LETTERS = 2**22  # fewer records, if they have more letters; also the limit of a field
UNPACKED, GROWTH = 10**9, 20  # bytes, or times those of its files, that are in a compressed table

DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")
AMBIGUOUS_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,234 may be 1.234 or 1234


def records(source: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a file except blank lines: number of the first line, and fields.

    Raises csv.Error, UnicodeDecodeError or OSError if the file is not UTF-8 text, or a quote is
    not closed.
    """
    with _open_text(source, "rt", encoding=ENCODING, newline="") as lines, ExitStack() as after:
        after.callback(csv.field_size_limit, csv.field_size_limit(LETTERS))
        reader = csv.reader(lines, delimiter=separator)
        start = 1
        for fields in reader:
            if fields and (len(fields) > 1 or not fields[0] or fields[0].strip()):
                yield start, fields
            start = reader.line_num + 1


def _sniff(source: Path) -> dict[str, Any]:
    """Infer how pandas reads a file.

    The separator is the one that gives most records as many fields as the header. The decimal mark
    is a comma if the separator is not, and there are numbers such as ``1,5`` but none like ``1.5``.
    """
    samples = {mark: _sample(source, mark) for mark in SEPARATORS}
    separator = max(SEPARATORS, key=lambda mark: _regularity(samples[mark]))
    cells = [cell.strip() for fields in samples[separator][1:] for cell in fields]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    is_comma = (
        separator != ","
        and not all(map(AMBIGUOUS_NUMBER.fullmatch, commas))
        and not any(map(DECIMAL_POINT.fullmatch, cells))
    )
    decimal = "," if is_comma else "."
    return {"sep": separator, "decimal": decimal, "index_col": False, "encoding": ENCODING}


def _explain_failure(source: Path, error: str) -> str:
    """Explain why a file cannot be read as a table, with the line if it can be identified.

    ``error`` is the message of pandas, which is returned if there is no better explanation.
    """
    if (reason := _explain_encoding(source)) is not None:
        return reason
    separator = _sniff(source)["sep"]
    lines = records(source, separator)
    first, header = next(lines, (0, []))
    if not header:
        return "it has no line of column names."
    last = first
    for last, fields in lines:
        if len(fields) > len(header):
            return (
                f"line {last} has {len(fields)} fields, but the header (line {first}) has "
                f"{len(header)}; name every column, delete lines above the header, and quote text "
                f"that contains {separator!r}."
            )
    if "EOF inside string" in error:
        return f"a quote that opens on line {last} is never closed."
    return error


def _open_text(source: Path, mode: str, **options: Any) -> IO[Any]:
    opener: Any = gzip.open if source.name.lower().endswith(".gz") else open
    return opener(source, mode, **options)


def _sample(source: Path, separator: str) -> list[list[str]]:
    found, letters = list[list[str]](), 0
    with suppress(csv.Error):
        for _, fields in islice(records(source, separator), SAMPLE):
            found.append(fields)
            if (letters := letters + sum(map(len, fields))) > LETTERS:
                break
    return found


def _regularity(sample: Sequence[list[str]]) -> tuple[float, int]:
    """Share of records with as many fields as the header, and the number of these fields."""
    widths = [len(fields) for fields in sample]
    if not widths or widths[0] == 1:
        return 0.0, 0
    return widths.count(widths[0]) / len(widths), widths[0]


def _explain_encoding(source: Path) -> str | None:
    """Return the first byte that is not UTF-8, if there is one."""
    remedy = "save it as UTF-8 (in Excel: CSV UTF-8)."
    with _open_text(source, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
                return f"it is in UTF-{32 if bytes(2) in line[:4] else 16}; {remedy}"
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = f"0x{line[error.start]:02x}"
                return f"line {number} contains the byte {byte}, which is not UTF-8; {remedy}"
    return None


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
    """Return the kind of table that the name of an existing file, or of a data set, indicates."""
    if is_dataset(source):
        return PARQUET
    refuse_special(source)
    if not source.is_file():
        raise InputError(f"{str(source)!r} does not exist; specify a CSV or Parquet file.")
    if source.stat().st_size == 0:
        raise InputError(f"{str(source)!r} is empty; it needs a line of column names and rows.")
    if found := table_format(source):
        return found
    known = ", ".join(name for endings in KINDS for name in endings)
    remedy = REMEDIES.get(source.suffix.lower(), "")
    raise InputError(f"{str(source)!r} must end in one of {known}{remedy}.")


def table_format(source: Path) -> tuple[str, ...]:
    """Return the kind of table that the name of a file indicates; empty if it is not a table."""
    return next((each for each in KINDS if source.name.lower().endswith(each)), ())


def read_array(source: Path) -> AnyArray:
    """Map an array from its file; a ValueError if it holds several arrays, or Python objects."""
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("it holds several arrays; save only one.")  # noqa: TRY004 - file content
    return array


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Turn errors of the block into an InputError that explains what is wrong with the file."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, csv.Error, pd.errors.ParserWarning) as error:
        kind, reason = check_file(source), " ".join(str(error).split())
        if kind == CSV:
            with suppress(OSError, EOFError, zlib.error, csv.Error):
                reason = _explain_failure(source, reason)
        raise InputError(f"{str(source)!r} cannot be read as {KINDS[kind]}: {reason}") from error


def frame_of(array: AnyArray) -> pd.DataFrame:
    """Return an array as a table, with the columns of :func:`column_names`."""
    names = column_names(array)
    if array.dtype.names is None:
        return pd.DataFrame(array, columns=names)
    return pd.DataFrame({name: array[name] for name in names})


def column_names(array: AnyArray) -> list[str]:
    """Return the columns of an array: ``x0``, ``x1``, ..., or the names of its fields."""
    fields = array.dtype.names
    if array.ndim != (2 if fields is None else 1):
        raise InputError(
            f"an array of shape {array.shape} is not a table; it needs two dimensions, or one "
            "dimension and named fields."
        )
    return [f"x{number}" for number in range(array.shape[1])] if fields is None else list(fields)


def read_header(source: Path) -> dict[str, Any]:
    """Return how pandas reads a CSV file, whose header is checked."""
    options = _sniff(source)
    line, header = next(records(source, options["sep"]), (0, []))
    if header and re.fullmatch("sep=.?", header[0]):
        raise InputError(
            f"line {line} of {str(source)!r} is an instruction to Excel ({header[0]}); delete it."
        )
    first_places: dict[str, int] = {}
    for number, name in enumerate(header, start=1):
        if name.strip() and first_places.setdefault(name, number) != number:
            raise InputError(
                f"{str(source)!r} has more than one column named {brief(name)}: columns "
                f"{first_places[name]} and {number}; rename one."
            )
    return options


@contextmanager
def located(source: Path) -> Iterator[None]:
    """Name the line of the file if the block refuses a value of its table."""
    try:
        yield
    except CellError as error:
        message = str(error)
        with suppress(csv.Error):  # a field of too many letters for the csv module
            message = _message_with_line(source, error)
        raise InputError(message) from error


def _message_with_line(source: Path, error: CellError) -> str:
    if is_dataset(source):
        file, row = Dataset.of(source).place(error.row)
        return error.located_at(f"row {row + 1} of {file!r}")
    if check_file(source) != CSV:
        return error.located_at(f"row {error.row + 1} of {source.name!r}")
    lines = records(source, _sniff(source)["sep"])
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
        """Yield the rows, chunk by chunk; the index of each chunk holds its row numbers."""
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
    max_size: float | None = None,
) -> Table:
    """Open a CSV or Parquet file, a NumPy array, or a :class:`Dataset` of Parquet files.

    Columns of a CSV file may be separated by commas, semicolons, tabs or vertical bars, whatever
    the file is called; columns in ``text`` are read as text even if they look like numbers. The
    columns of an array are ``x0``, ``x1``, ..., unless its fields have names. Columns in ``levels``
    become ordered categories, and may have no others. In a CSV file, the ``codes`` for missing
    values, a function of the names of all columns, do not make text of a column.

    With ``whole``, the table is read into memory as a single chunk. Otherwise chunks are read when
    they are needed, and a CSV file is read once to find out which columns hold text. Compressed CSV
    files, and Parquet files that are read as a whole, may have ``max_size`` GB once decompressed.
    """
    source = Path(path)
    kind = check_file(source)
    with reading(source):
        names, read = _OPENERS[kind](source, [*text, *(levels or ())], codes, whole, max_size)
        if len(longest := max(map(str, names), key=len, default="")) > MAX_TEXT:
            raise InputError(
                f"{str(source)!r} has a column whose name has {len(longest):,} letters, "
                f"{brief(longest)}; names have at most {MAX_TEXT:,}: shorten it."
            )
        if whole:
            frames = list(read())
            read = lambda: iter(frames)  # noqa: E731
    return Table(source, tuple(map(str, names)), read, levels or {})


def _check_size(source: Path, parts: Iterable[int], stored: int, most: Any, remedy: str) -> None:
    """Refuse a table, stored in some bytes, whose parts have too many once decompressed."""
    limit = max(UNPACKED, GROWTH * stored) if most is None else 1e9 * most
    if any(size > limit for size in accumulate(parts)):
        raise InputError(
            f"{str(source)!r} has more than {limit / 1e9:g} GB once it is decompressed; if that is "
            f"right, {remedy}, or for a fit set max_size in [data] (--set data.max_size=GB)."
        )


def _open_parquet(source: Path, text: Collection[str], _: Any, whole: bool, most: Any) -> Opened:
    dataset = Dataset.of(source, text)
    if whole:
        sizes = (max(one.size, 8 * one.n_rows * len(dataset.columns)) for one in dataset.pieces)
        stored = sum(size for size, _ in dataset.files.values())
        _check_size(source, sizes, stored, most, 'set storage = "disk"')

    def read() -> Frames:
        return iter([dataset.read()]) if whole else dataset.chunks(dataset.pieces)

    return dataset.columns, read


def _open_csv(source: Path, text: Collection[str], codes: Coded, whole: bool, most: Any) -> Opened:
    if source.name.lower().endswith(".gz"):
        with gzip.open(source) as content:
            parts = map(len, iter(partial(content.read, 2**20), b""))
            _check_size(source, parts, source.stat().st_size, most, "decompress it first")
    options = read_header(source)
    names = pd.read_csv(source, nrows=0, **options).columns
    missing = codes([*names])
    mixed: list[str] = []  # columns that are text as a whole, although chunks may look like numbers

    def read() -> Frames:
        with pd.read_csv(
            source,
            dtype=dict.fromkeys([*text, *mixed], str),
            na_values={name: [*map(text_of, own)] for name, own in missing.items()},
            low_memory=False,
            iterator=True,
            chunksize=None if whole else rows_per_chunk(names),
            **options,
        ) as reader:
            while True:
                with warnings.catch_warnings():
                    # Rows longer than the header would otherwise lose their last fields silently.
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    frame = next(reader, None)
                if frame is None:
                    return
                strings = frame.select_dtypes(exclude=["number", "bool"])
                odd = strings.loc[:, (strings == "").any().astype(bool)]  # integers beyond 2^63
                yield frame.assign(**odd.apply(pd.to_numeric, errors="coerce"))

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


def _open_array(source: Path, _: Any, __: Any, whole: bool, ___: Any) -> Opened:
    array = read_array(source)
    names = column_names(array)

    def read() -> Frames:
        size = max(1, len(array)) if whole else rows_per_chunk(names)
        for start in range(0, len(array), size):
            yield frame_of(np.array(array[start : start + size]))

    return names, read


_OPENERS: dict[tuple[str, ...], Callable[..., Opened]] = {
    PARQUET: _open_parquet,
    CSV: _open_csv,
    ARRAY: _open_array,
}
