"""scikit-learn's checks of X, y and weights, with messages that name columns and rows."""

import re
from collections.abc import Iterator
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bayestree._utils.arrays import BoolArray, FloatArray
from bayestree.tables import InputError, check_complete

NUMERIC_SHARE = 0.9  # share of numbers above which the other values of a column are errors
#: How to convert times to numbers, by the type that pandas infers.
TIMES = {
    "datetime64": "pandas.DatetimeIndex({}).day_of_year",
    "datetime": "pandas.DatetimeIndex({}).day_of_year",
    "date": "pandas.DatetimeIndex({}).day_of_year",
    "period": "pandas.PeriodIndex({}).day_of_year",
    "timedelta64": "pandas.TimedeltaIndex({}).total_seconds()",
    "timedelta": "pandas.TimedeltaIndex({}).total_seconds()",
}


class _Column(NamedTuple):
    """A column that is not numeric."""

    content: pd.Series
    name: str
    code: str  # the column in Python
    element: str  # template for one of its elements in Python


def validated(estimator: Any, X: Any, *args: Any, **checks: Any) -> Any:
    """``validate_data`` of scikit-learn, with clearer errors.

    Dates, which scikit-learn would convert to nanoseconds, are refused.
    """
    rows = X
    if isinstance(X, list):
        with suppress(ValueError):  # rows of different lengths, which validate_data refuses
            rows = np.asarray(X, dtype=object)
    for column in _columns(rows):
        _refuse_times(column)
    if args:
        _refuse_missing(args[0])
    try:
        return validate_data(estimator, X, *args, **checks)
    except (TypeError, ValueError) as error:
        fits = checks.get("reset", True)
        message = _text_message(list(_columns(rows)), fits=fits) or _gaps_message(rows, str(error))
        if not message:
            raise
        raise ValueError(message) from error


def fitted_rows(estimator: Any, X: ArrayLike) -> FloatArray:
    """Rows for a fitted estimator, as an array with the features of the fit."""
    check_is_fitted(estimator)
    rows: FloatArray = validated(estimator, X, reset=False, dtype=np.float64)
    return rows


def checked_weights(sample_weight: Any, n_rows: int) -> FloatArray:
    """The weight of each row, shape (n_rows,); ones by default."""
    if sample_weight is None or isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, 1.0 if sample_weight is None else sample_weight)
    weights: FloatArray = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, order="C", input_name="sample_weight"
    )
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have shape ({n_rows},), one weight for each row of X, got "
            f"{weights.shape}."
        )
    if (weights < 0).any():
        raise ValueError(
            f"sample_weight must be 0 or more, got negative values such as {weights.min():g}."
        )
    if not weights.any():
        raise ValueError("sample_weight is zero everywhere; some row must have a positive weight.")
    return weights


def _refuse_missing(y: Any) -> None:
    """Refuse None, NaN and the like in y."""
    if y is None:
        return  # scikit-learn refuses it
    # NumPy would convert a NaN in a list of labels to the text "nan".
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
        # By position, because two columns may have the same name.
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
            f"as {TIMES[kind].format(column.code)}, or leave it out."
        )


def _text_message(columns: list[_Column], *, fits: bool) -> str:
    """The message about text among the columns, in a fit or a prediction; empty without text."""
    found = [(column, odd) for column in columns if (odd := _is_text(column.content)).any()]
    if not found:
        return ""
    column, odd = found[0]
    row = int(odd.argmax())
    where = column.element.format(row)
    head = (
        f"could not convert string to float: column {column.name} of X holds "
        f"{str(column.content.iloc[row])!r} ({where})"
    )
    if odd.mean() <= 1 - NUMERIC_SHARE:
        return f"{head}, and numbers in {(~odd).sum()} of {len(odd)} rows; correct it."
    listed = ", ".join(column.name for column, _ in found)
    command = ", or fit the table by `bayestree fit`, which encodes text" if fits else ""
    return (
        f"{head}. One-hot encode text, as by sklearn.compose.make_column_transformer(("
        f"sklearn.preprocessing.OneHotEncoder(sparse_output=False), [{listed}]), "
        f"remainder='passthrough'){command}."
    )


def _is_text(values: pd.Series) -> BoolArray:
    """Mask of the values that are text but not a number."""
    text = np.array([isinstance(value, str) for value in values], dtype=bool)
    number = pd.to_numeric(values.astype(str), errors="coerce").notna().to_numpy(dtype=bool)
    return text & ~number


def _gaps_message(X: Any, error: str) -> str:
    """The message about missing and infinite values; empty if they did not cause the error."""
    known = isinstance(X, pd.DataFrame | np.ndarray)
    if not known or not re.match("Input X contains (NaN|infinity)", error):
        return ""
    try:
        check_complete(pd.DataFrame(X).infer_objects().reset_index(drop=True))
    except InputError as gaps:
        return f"{error.splitlines()[0].rstrip('.')}: {gaps}"
    return ""
