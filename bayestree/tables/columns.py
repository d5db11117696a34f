"""Columns of a table as features, target and weights."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.tables.errors import CellError, InputError
from bayestree.tables.invalid import abbreviate, check_complete, quote_columns
from bayestree.tables.texts import MARKED, MAX_CATEGORIES, PLAIN, Texts, dates_remedy

Task = Literal["classification", "regression"]

MAX_CLASSES = 20  # numeric targets with more different whole numbers are quantities
DATES = ("datetime64", "datetime", "date", "period")  # as pandas infers them


class Column(NamedTuple):
    """A column and, for text, its categories; None for numbers and booleans."""

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class Encoding:
    """The encoding of columns as features: numbers unchanged, text one-hot."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, categories: Mapping[str, Collection[str] | None]) -> "Encoding":
        """The encoding of columns with these categories; None for columns of numbers."""
        if not categories:
            raise InputError("no column is left to predict from.")
        encoding = cls(tuple(_column(name, found) for name, found in categories.items()))
        names = pd.Series(encoding.feature_names)
        if names.duplicated().any():
            name = names[names.duplicated()].iloc[0]
            raise InputError(f"two features would be named {name!r}; rename a column.")
        return encoding

    @property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.features]

    @property
    def text(self) -> list[str]:
        return [column.name for column in self.columns if column.categories is not None]

    def encode(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Encode rows as floats, shape (n, features).

        Columns may be in any order, and others are ignored. All features of an unknown category
        are 0 (see :meth:`count_unknown`).
        """
        absent = [column.name for column in self.columns if column.name not in frame]
        if absent:
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(
                f"{quote_columns(absent)} {verb} missing; the table has "
                f"{quote_columns(frame.columns)}."
            )
        frame = frame[[column.name for column in self.columns]]
        check_complete(frame)
        parts = []
        for column in self.columns:
            values = frame[column.name]
            if column.categories is None:
                parts.append(numbers(values).to_numpy()[:, None])
            else:
                labels = values.astype(str).to_numpy()
                parts.append((labels[:, None] == np.array(column.categories)).astype(float))
        return pd.DataFrame(np.hstack(parts), columns=self.feature_names)

    def count_unknown(self, frame: pd.DataFrame, counts: dict[str, Counter[str]]) -> None:
        """Add the numbers of rows with each unknown category to the counts of each column."""
        for column in self.columns:
            if column.categories is not None:
                labels = frame[column.name].astype(str)
                unknown = labels[~labels.isin(column.categories)].value_counts(sort=False)
                counts.setdefault(column.name, Counter()).update(
                    {str(name): int(count) for name, count in unknown.items()}
                )

    def to_json(self) -> list[dict[str, Any]]:
        return [column._asdict() for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> "Encoding":
        return cls(
            tuple(
                Column(c["name"], None if c["categories"] is None else tuple(c["categories"]))
                for c in columns
            )
        )


def _column(name: str, categories: Collection[str] | None) -> Column:
    if categories is None:
        return Column(name)
    found = tuple(sorted(categories))
    if len(found) > MAX_CATEGORIES:
        raise InputError(
            f"column {name!r} holds more than {MAX_CATEGORIES} different texts, such as "
            f"{found[0]!r} and {found[-1]!r}, too many for categories; drop the column, or group "
            "them."
        )
    return Column(name, found)


def describe_unknown(counts: Mapping[str, Counter[str]]) -> list[str]:
    """Warnings about unknown categories (see :meth:`Encoding.count_unknown`)."""
    return [
        f"column {name!r}: {found.total()} rows hold a category that does not occur in the "
        f"training rows ({abbreviate(map(repr, found))}); its features are all 0."
        for name, found in counts.items()
        if found
    ]


def numbers(column: pd.Series) -> pd.Series:
    """Convert a column of numbers or booleans to float; text in it is refused."""
    if not is_text(column):
        return column.astype(float)
    found = pd.to_numeric(column.astype(str), errors="coerce").astype(float)
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


def is_text(column: pd.Series) -> bool:
    """Whether a column holds text; False for numbers and booleans.

    Other values, such as dates, are refused.
    """
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "categorical":
        return is_text(pd.Series(column.cat.categories, name=column.name))
    if kind in ("string", "empty") and not pd.api.types.is_numeric_dtype(column):
        return bool(kind == "string")
    if kind in ("integer", "floating", "boolean", "mixed-integer-float", "decimal"):
        return False
    if kind in DATES:
        raise InputError(f"column {column.name!r} holds dates; {dates_remedy(str(column.name))}")
    raise InputError(
        f"column {column.name!r} holds {kind} values; convert them to numbers or text, or drop it."
    )


def read_target(column: pd.Series, task: str = "auto") -> tuple[Task, AnyArray]:
    """Read the target, which has no missing values, and infer the task.

    The task is classification for text, booleans, or at most 20 different whole numbers. The
    returned array (n,) holds text, integers or booleans; for regression, floats.
    """
    name = column.name
    if is_text(column):
        if task == "regression":
            numbers(column)
        texts = Texts(str(name))
        texts.add(column)
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
    if task == "regression":
        return "regression", values
    _check_whole(values, name, "; use regression")
    boolean = pd.api.types.is_bool_dtype(column)
    return "classification", _two_classes(values.astype(bool if boolean else np.int64), name)


def read_matching_target(column: pd.Series, y: AnyArray, task: str) -> AnyArray:
    """Read the target of other rows in the same way as that of the training rows, ``y``."""
    if y.dtype.kind == "U":
        return column.astype(str).to_numpy(dtype=str)
    values = numbers(column).to_numpy()
    if task == "regression":
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
