"""X as scikit-learn checks it, with the columns named that hold text, dates or gaps."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from bayestree.tables import InputError, check_complete

MOSTLY = 0.9  # of the values of a column: where so many are numbers, the others are faults
#: How to make numbers of times, by what pandas infers them to be.
TIMES = {
    "datetime64": "pandas.DatetimeIndex({}).day_of_year",
    "datetime": "pandas.DatetimeIndex({}).day_of_year",
    "date": "pandas.DatetimeIndex({}).day_of_year",
    "period": "pandas.PeriodIndex({}).day_of_year",
    "timedelta64": "pandas.TimedeltaIndex({}).total_seconds()",
    "timedelta": "pandas.TimedeltaIndex({}).total_seconds()",
}


class _Column(NamedTuple):
    """A column that may hold anything but numbers, its name in messages, and how to write it."""

    content: pd.Series
    name: str
    written: str
    place: str


def validated(estimator: Any, X: Any, *args: Any, **checks: Any) -> Any:
    """``validate_data`` of scikit-learn, with clearer errors.

    Raises
    ------
    ValueError
        For dates, which that takes for nanoseconds or refuses with an error of NumPy; for text,
        missing and infinite values, also in y; and as that does.
    """
    rows = X
    if isinstance(X, list):
        with suppress(ValueError):  # of rows of different lengths, which validate_data refuses
            rows = np.asarray(X, dtype=object)
    for column in _columns(rows):
        _refuse_times(column)
    if args:
        _refuse_missing(args[0])
    try:
        return validate_data(estimator, X, *args, **checks)
    except (TypeError, ValueError) as error:
        fits = checks.get("reset", True)
        said = _about_text(list(_columns(rows)), fits=fits) or _about_gaps(rows, str(error))
        if not said:
            raise
        raise ValueError(said) from error


def _refuse_missing(y: Any) -> None:
    """Refuse None, NaN and the like in y, which may be scikit-learn's word for no y."""
    if y is None:
        return  # which scikit-learn refuses
    # NumPy would make the text "nan" of a NaN in a list of labels
    values = y if hasattr(y, "dtype") else np.asarray(y, dtype=object)
    rows = np.unique(np.argwhere(np.atleast_1d(pd.isna(values)))[:, 0])
    if len(rows):
        number = f"{len(rows)} missing {'value' if len(rows) == 1 else 'values'}"
        raise ValueError(
            f"Input y contains NaN or None: {number}, first at row {rows[0] + 1}; drop the rows of "
            "X and y whose y is missing."
        )


def _columns(X: Any) -> Iterator[_Column]:
    if isinstance(X, pd.DataFrame):
        # by place, for two columns may have one name
        for number, (name, dtype) in enumerate(zip(X.columns, X.dtypes, strict=True)):
            if not pd.api.types.is_numeric_dtype(dtype):
                key = f"X[{name!r}]"
                yield _Column(X.iloc[:, number], repr(name), key, f"{key}.iloc[{{}}]")
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind not in "biufc":
        for number in range(X.shape[1]):
            values = pd.Series(X[:, number])
            yield _Column(values, str(number), f"X[:, {number}]", f"X[{{}}, {number}]")


def _refuse_times(column: _Column) -> None:
    kind = pd.api.types.infer_dtype(column.content, skipna=True)
    if kind in TIMES:
        raise ValueError(
            f"column {column.name} of X holds dates or times ({kind}); replace it by numbers, such "
            f"as {TIMES[kind].format(column.written)}, or leave it out."
        )


def _about_text(columns: list[_Column], *, fits: bool) -> str:
    """What to say of text among the columns, to a fit or a prediction; empty if there is none."""
    found = [(column, odd) for column in columns if (odd := _odd(column.content)).any()]
    if not found:
        return ""
    column, odd = found[0]
    row = int(odd.argmax())
    where = column.place.format(row)
    head = (
        f"could not convert string to float: column {column.name} of X holds "
        f"{str(column.content.iloc[row])!r} ({where})"
    )
    if odd.mean() <= 1 - MOSTLY:
        return f"{head}, and numbers in {(~odd).sum()} of {len(odd)} rows; correct it."
    listed = ", ".join(column.name for column, _ in found)
    command = ", or fit the table by `bayestree fit`, which encodes text" if fits else ""
    return (
        f"{head}. One-hot encode text, as by sklearn.compose.make_column_transformer(("
        f"sklearn.preprocessing.OneHotEncoder(sparse_output=False), [{listed}]), "
        f"remainder='passthrough'){command}."
    )


def _odd(values: pd.Series) -> NDArray[np.bool_]:
    """Which values are text, and no number as text."""
    text = np.array([isinstance(value, str) for value in values], dtype=bool)
    number = pd.to_numeric(values.astype(str), errors="coerce").notna().to_numpy(dtype=bool)
    return text & ~number


def _about_gaps(X: Any, error: str) -> str:
    """What to say of missing and infinite values; empty if they are not the matter."""
    known = isinstance(X, pd.DataFrame | np.ndarray)
    if not known or not re.match("Input X contains (NaN|infinity)", error):
        return ""
    try:
        check_complete(pd.DataFrame(X).infer_objects().reset_index(drop=True))
    except InputError as gaps:
        return f"{error.splitlines()[0].rstrip('.')}: {gaps}"
    return ""
