"""CSV files: their separators and decimal marks, and what is on which line."""

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

ENCODING = "utf-8-sig"
SEPARATORS = ",;\t|"
SAMPLE = 1000  # records that tell the separator and the decimal mark

DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")
EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,234 may be 1.234 or 1234

Record = tuple[int, list[str]]


class Dialect(NamedTuple):
    """How a file writes a table."""

    separator: str
    decimal: str

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of ``pandas.read_csv``."""
        return {
            "sep": self.separator,
            "decimal": self.decimal,
            "index_col": False,
            "encoding": ENCODING,
        }


def records(source: Path, separator: str) -> Iterator[Record]:
    """The lines of a file that are not blank: the number of the first line of each, and its fields.

    Raises
    ------
    csv.Error, UnicodeDecodeError, OSError
        If the file is not text in UTF-8, or a quote is not closed.
    """
    with _opened(source) as lines:
        reader = csv.reader(lines, delimiter=separator)
        start = 1
        for fields in reader:
            if fields and (len(fields) > 1 or not fields[0] or fields[0].strip()):
                yield start, fields
            start = reader.line_num + 1


def sniff(source: Path) -> Dialect:
    """The separator that splits most lines into as many fields as the header, and the decimal mark.

    A comma is a decimal mark where another mark separates the columns, there are such numbers as
    ``1,5``, and none such as ``1.5``.

    Raises
    ------
    UnicodeDecodeError, OSError
        If the file is not text in UTF-8.
    """
    samples = {mark: _sample(source, mark) for mark in SEPARATORS}
    separator = max(SEPARATORS, key=lambda mark: _regular(samples[mark]))
    cells = [cell.strip() for fields in samples[separator][1:] for cell in fields]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    is_comma = (
        separator != ","
        and not all(map(EITHER.fullmatch, commas))
        and not any(map(DECIMAL_POINT.fullmatch, cells))
    )
    return Dialect(separator, "," if is_comma else ".")


def why_unreadable(source: Path, error: str) -> str:
    """What keeps a file from being a table, with its line where that can be told.

    Parameters
    ----------
    source : Path
    error : str
        What pandas says of it.
    """
    if (reason := _not_text(source)) is not None:
        return reason
    separator = sniff(source).separator
    lines = records(source, separator)
    first, header = next(lines, (0, []))
    if not header:
        return "it has no line of column names."
    last = first
    for last, fields in lines:
        if len(fields) > len(header):
            return (
                f"line {last} has {len(fields)} fields, but the header (line {first}) has "
                f"{len(header)}; name every column, delete lines above the header, and put quotes "
                f"around texts that hold {separator!r}."
            )
    if "EOF inside string" in error:
        return f"a quote that opens on line {last} is never closed."
    return error


def _opened(source: Path) -> TextIO:
    if source.name.lower().endswith(".gz"):
        return gzip.open(source, "rt", encoding=ENCODING, newline="")
    return source.open(encoding=ENCODING, newline="")


def _sample(source: Path, separator: str) -> list[list[str]]:
    try:
        return [fields for _, fields in islice(records(source, separator), SAMPLE)]
    except csv.Error:
        return []


def _regular(sample: Sequence[list[str]]) -> tuple[float, int]:
    """The share of records with as many fields as the header, and their number."""
    widths = [len(fields) for fields in sample]
    if not widths or widths[0] == 1:
        return 0.0, 0
    return widths.count(widths[0]) / len(widths), widths[0]


def _not_text(source: Path) -> str | None:
    remedy = "save it as UTF-8 (in Excel: CSV UTF-8)."
    with gzip.open(source) if source.name.lower().endswith(".gz") else source.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                return f"it is in UTF-16; {remedy}"
            try:
                line.decode()
            except UnicodeDecodeError as error:
                wrong = line[error.start]
                return f"line {number} holds the byte 0x{wrong:02x}, which is not UTF-8; {remedy}"
    return None
