"""CSV files: separators, decimal marks and the records on each line."""

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

ENCODING = "utf-8-sig"
SEPARATORS = ",;\t|"
SAMPLE = 1000  # records from which the separator and the decimal mark are inferred

DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")
AMBIGUOUS_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,234 may be 1.234 or 1234

Record = tuple[int, list[str]]


class Dialect(NamedTuple):
    """Separator and decimal mark of a file."""

    separator: str
    decimal: str

    @property
    def options(self) -> dict[str, Any]:
        return {
            "sep": self.separator,
            "decimal": self.decimal,
            "index_col": False,
            "encoding": ENCODING,
        }


def records(source: Path, separator: str) -> Iterator[Record]:
    """The records of a file except blank lines: number of the first line, and fields.

    Raises csv.Error, UnicodeDecodeError or OSError if the file is not UTF-8 text, or a quote is
    not closed.
    """
    with _open(source, "rt", encoding=ENCODING, newline="") as lines:
        reader = csv.reader(lines, delimiter=separator)
        start = 1
        for fields in reader:
            if fields and (len(fields) > 1 or not fields[0] or fields[0].strip()):
                yield start, fields
            start = reader.line_num + 1


def sniff(source: Path) -> Dialect:
    """Infer the dialect: the separator that gives most records as many fields as the header.

    The decimal mark is a comma if the separator is not, and there are numbers such as ``1,5`` but
    none such as ``1.5``.
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
    return Dialect(separator, "," if is_comma else ".")


def explain_failure(source: Path, error: str) -> str:
    """The reason why a file cannot be read as a table, with the line if it can be identified.

    ``error`` is the message of pandas, which is returned if there is no better explanation.
    """
    if (reason := _explain_encoding(source)) is not None:
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
                f"{len(header)}; name every column, delete lines above the header, and quote text "
                f"that contains {separator!r}."
            )
    if "EOF inside string" in error:
        return f"a quote that opens on line {last} is never closed."
    return error


def _open(source: Path, mode: str, **options: Any) -> IO[Any]:
    opener: Any = gzip.open if source.name.lower().endswith(".gz") else open
    return opener(source, mode, **options)


def _sample(source: Path, separator: str) -> list[list[str]]:
    try:
        return [fields for _, fields in islice(records(source, separator), SAMPLE)]
    except csv.Error:
        return []


def _regularity(sample: Sequence[list[str]]) -> tuple[float, int]:
    """Share of records with as many fields as the header, and the number of these fields."""
    widths = [len(fields) for fields in sample]
    if not widths or widths[0] == 1:
        return 0.0, 0
    return widths.count(widths[0]) / len(widths), widths[0]


def _explain_encoding(source: Path) -> str | None:
    """The first byte that is not UTF-8, if there is one."""
    remedy = "save it as UTF-8 (in Excel: CSV UTF-8)."
    with _open(source, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                return f"it is in UTF-16; {remedy}"
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = f"0x{line[error.start]:02x}"
                return f"line {number} contains the byte {byte}, which is not UTF-8; {remedy}"
    return None
