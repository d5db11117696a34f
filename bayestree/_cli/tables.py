"""Tables that the verbs print and write."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


TABLE, PAGE = (".csv", ".parquet"), (".html", ".htm")


def check_output(
    out: Path,
    suffixes: tuple[str, ...] = TABLE,
    *,
    force: bool,
    data: Path | None = None,
    option: str = "--out ",
) -> None:
    """Refuse a path that cannot be written, exists without ``force``, or is the input ``data``."""
    from bayestree.tables import InputError

    name = f"{option}{str(out)!r}"
    if suffixes and out.suffix not in suffixes:
        raise InputError(f"{name} must end in {' or '.join(suffixes)}.")
    if out.is_dir():
        raise InputError(f"{name} is a folder; specify a file.")
    is_input = data is not None and data.exists() and out.exists() and out.samefile(data)
    if out.exists() and (not force or is_input):
        remedy = "choose another file" if force else "choose another file, or add --force"
        raise InputError(f"{name} exists; {remedy}.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{name} is in a folder that does not exist; create it first.")


def write_table(table: "pd.DataFrame", out: Path) -> None:
    """Write a table as CSV or Parquet, depending on the file name."""
    from bayestree._utils.write import write_whole

    if out.suffix == ".csv":
        write_whole(out, table.to_csv(index=False))
    else:
        write_whole(out, table.to_parquet(index=False))


def aligned(columns: Mapping[str, Sequence[str]], *, right: Collection[str] = ()) -> Iterator[str]:
    """Columns of text as lines, the first of which is the header; ``right`` are right-aligned."""
    cells = [[name, *values] for name, values in columns.items()]
    widths = [max(map(len, values)) for values in cells]
    for line in zip(*cells, strict=True):
        padded = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table, including its index, as plain JSON; missing values become null."""
    rows = table.reset_index().to_dict(orient="records")

    def is_missing(value: Any) -> bool:
        return isinstance(value, float) and not math.isfinite(value)

    return [{str(k): None if is_missing(v) else v for k, v in row.items()} for row in rows]
