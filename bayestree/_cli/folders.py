"""Tables that the verbs write."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def check_output(out: Path, data: Path, *, force: bool) -> None:
    """Refuse a file that cannot or must not be written, before any work is done.

    Raises
    ------
    InputError
    """
    from bayestree.tables import InputError

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out {str(out)!r} must end in .csv or .parquet.")
    if out.exists() and (not force or out.is_dir() or (data.exists() and out.samefile(data))):
        remedy = "name another file" if force else "name another file, or add --force"
        raise InputError(f"--out {str(out)!r} exists; {remedy}.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out {str(out)!r} is in a folder that does not exist; make it first.")


def write_table(table: "pd.DataFrame", out: Path) -> None:
    """Write a table, as CSV or Parquet by its name."""
    from bayestree._utils.write import write_whole

    if out.suffix == ".csv":
        write_whole(out, table.to_csv(index=False))
    else:
        write_whole(out, table.to_parquet(index=False))
