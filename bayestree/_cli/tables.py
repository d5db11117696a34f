"""Tables as lines of text, and as JSON."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def aligned(columns: Mapping[str, Sequence[str]], *, right: Collection[str] = ()) -> Iterator[str]:
    """Columns of text in lines, the first of which names them.

    Parameters
    ----------
    columns : mapping of sequences of str
        Of one length.
    right : collection of str
        Columns that are aligned to the right, as numbers are.
    """
    whole = [[name, *values] for name, values in columns.items()]
    widths = [max(map(len, values)) for values in whole]
    for line in zip(*whole, strict=True):
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table, its index among the columns, as plain JSON; what is missing is null."""
    rows = table.reset_index().to_dict(orient="records")
    return [{str(name): finite(value) for name, value in row.items()} for row in rows]


def finite(value: Any) -> Any:
    """A value for JSON, which knows no infinities."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
