"""The explanation of a prediction for a row of a table, with the model of a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from bayestree import tables
from bayestree.runs.store import Columns, open_run, read_model
from bayestree.tables import InputError, located

if TYPE_CHECKING:
    from bayestree.explain.explanation import Explanation


def explain_row(
    folder: Path, row: str, *, features: Sequence[str] = (), target: str | None = None
) -> "Explanation":
    """Explain the prediction for a row with the model of a folder.

    ``row`` is the number of a row, from 0, in the table of the run, or the path of a table with a
    single row. The others are arguments of ``explain`` of the estimators.
    """
    estimator, columns = read_model(folder)
    columns.check_single("explain")
    if not hasattr(estimator, "explain"):
        raise InputError(
            f"the model in {str(folder)!r} is a {type(estimator).__name__} of several trees, which "
            "explain predictions one by one: bayestree.load(...).estimators_[0].explain(x)."
        )
    numbered = row.isdecimal() and not Path(row).exists()
    path = open_run(folder).file.data.path if numbered else Path(row)
    with located(path):
        frame = _row(path, columns, int(row) if numbered else None)
        columns.encoding.features(frame)  # whose messages name the row
    try:
        X = frame[[*columns.encoding.names]]
        return estimator.explain(X, features=features or None, target=target)
    except ValueError as error:
        raise InputError(str(error)) from error


def _row(path: Path, columns: Columns, number: int | None) -> pd.DataFrame:
    """The row of a table with a number, or its only row."""
    n_rows, found = 0, None
    known = columns.encoding
    for frame in tables.open_table(path, known.text, codes=lambda _: known.codes).chunks():
        n_rows += len(frame)
        if found is None and (number or 0) < n_rows:
            found = frame.loc[[number or 0]]
    if number is None and n_rows > 1:
        raise InputError(f"{str(path)!r} has {n_rows} rows; give a table with one row.")
    if found is None:
        raise InputError(f"{str(path)!r} has no row {number}; its rows are 0 to {n_rows - 1}.")
    return found
