"""Columns of a table as features, target and weights."""

from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.tables.errors import CellError, InputError
from bayestree.tables.texts import MARKED, PLAIN, Texts, dates_remedy

Task = Literal["classification", "regression", "survival"]
Kind = Literal["numbers", "text", "dates", "ignored"]

NUMERIC = ("regression", "survival")  # tasks whose targets are numbers
MAX_CLASSES = 20  # numeric targets with more different whole numbers are quantities
# Types as pandas infers them.
DATES = ("datetime64", "datetime", "date", "period")
SPANS = ("timedelta64", "timedelta")
BOOLEANS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
NUMBERS = ("integer", "floating", "boolean", "mixed-integer-float", "decimal", *SPANS)


def numbers(column: pd.Series) -> pd.Series:
    """Convert numbers or booleans to float, and spans of time to days.

    Text is refused unless it states numbers, or nothing but ``True`` and ``False``.
    """
    found = read_numbers(column)
    odd = (found.isna() & column.notna()).to_numpy()
    if odd.any():
        row, value = column.index[odd][0], str(column[odd].iloc[0])
        raise CellError(
            f"column {column.name!r} should hold numbers, but",
            int(row),
            f" holds {value!r}; {PLAIN if MARKED.fullmatch(value) else 'correct it'}, or drop the "
            "row.",
            column=str(column.name),
        )
    return found


def read_numbers(column: pd.Series) -> pd.Series:
    """Convert as :func:`numbers` does; what is not a number becomes NaN. Dates are refused."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in DATES:
        raise _dates_refused(column)
    if kind in SPANS:
        return pd.to_timedelta(column) / pd.Timedelta(days=1)
    if kind in NUMBERS or kind == "empty" or pd.api.types.is_numeric_dtype(column):
        if column.hasnans:  # which may be None or pandas.NA
            column = column.astype(object).where(column.notna(), np.nan)
        return column.astype(float)
    if column.dropna().isin([*BOOLEANS]).all():
        return column.map(BOOLEANS).astype(float)
    return pd.to_numeric(column.astype(str), errors="coerce").astype(float)


def kind_of(column: pd.Series) -> Kind:
    """The kind of a column by the type of its values; empty ones are taken for numbers.

    Values of other types are refused.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "text"
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "empty" or pd.api.types.is_numeric_dtype(column) or kind in NUMBERS:
        return "numbers"
    if kind == "string":
        return "text"
    if kind in DATES:
        return "dates"
    raise InputError(
        f"column {column.name!r} holds {kind} values; convert them to numbers or text, or drop it."
    )


def is_text(column: pd.Series) -> bool:
    """Whether a target holds text; dates are refused."""
    kind = kind_of(column)
    if kind == "dates":
        raise _dates_refused(column)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return is_text(pd.Series(column.cat.categories, name=column.name))
    return kind == "text"


def _dates_refused(column: pd.Series) -> InputError:
    return InputError(f"column {column.name!r} holds dates; {dates_remedy(str(column.name))}")


def read_target(column: pd.Series, task: str = "auto") -> tuple[Task, AnyArray]:
    """Read the target, which has no missing values, and infer the task.

    The task is classification for text, booleans, or at most 20 different whole numbers. The
    returned array (n,) holds text, integers or booleans; for regression and survival, floats.
    """
    name = column.name
    if is_text(column):
        if task in NUMERIC:
            return cast(Task, task), numbers(column).to_numpy()
        texts = Texts(str(name))
        texts.add(column)
        if texts.are_dates(typed=False):
            raise InputError(f"target {name!r} holds dates; {dates_remedy(str(name))}")
        texts.check()
        labels = column.astype(str).to_numpy(dtype=str)
        n_classes = len(np.unique(labels))
        if n_classes == len(labels) > 1:
            raise InputError(
                f"target {name!r} holds a different text in each of {len(labels)} rows; choose a "
                "column whose classes repeat."
            )
        return "classification", _two_classes(labels, name)
    values = column.astype(float).to_numpy()
    whole = bool((values == np.round(values)).all())
    if task == "auto":
        few = whole and len(np.unique(values)) <= MAX_CLASSES
        task = "classification" if few else "regression"
    if task in NUMERIC:
        return cast(Task, task), values
    _check_whole(values, name, "; use regression")
    boolean = pd.api.types.is_bool_dtype(column)
    return "classification", _two_classes(values.astype(bool if boolean else np.int64), name)


def read_matching_target(column: pd.Series, y: AnyArray, task: str) -> AnyArray:
    """Read the target of other rows in the same way as that of the training rows, ``y``."""
    if y.dtype.kind == "U":
        return column.astype(str).to_numpy(dtype=str)
    values = numbers(column).to_numpy()
    if task in NUMERIC:
        return values
    _check_whole(values, column.name)
    return values.astype(y.dtype)


def read_weights(column: pd.Series) -> FloatArray:
    """Weights of the rows (n,): none negative, and not all zero."""
    values = numbers(column).to_numpy()
    if (values < 0).any() or not values.any():
        raise InputError(
            f"weights {column.name!r} must be zero or more and not all zero, got a minimum of "
            f"{values.min():g}."
        )
    return values


def _check_whole(values: AnyArray, name: Any, remedy: str = "") -> None:
    fractions = values[values != np.round(values)]
    if len(fractions):
        raise InputError(f"target {name!r} holds {fractions[0]:g}, which is not a class{remedy}.")


def _two_classes(labels: AnyArray, name: Any) -> AnyArray:
    if len(np.unique(labels)) < 2:
        raise InputError(f"target {name!r} has one class, {labels[0].item()!r}; two are needed.")
    return labels
