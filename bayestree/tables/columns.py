"""Columns of a table as features, target and weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree.tables.errors import CellError, InputError
from bayestree.tables.gaps import check_complete, named, some
from bayestree.tables.texts import MARKED, MOST_CATEGORIES, PLAIN, Texts, dates_remedy

Task = Literal["classification", "regression"]

MOST_CLASSES = 20  # a numeric target of more different whole numbers is a quantity
DATES = ("datetime64", "datetime", "date", "period")  # as pandas infers them


class Column(NamedTuple):
    """A column and, for text, its categories; numbers (and true and false) have none."""

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class Encoding:
    """How columns become features: numbers as they are, text one-hot.

    Parameters
    ----------
    columns : tuple of Column
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Encoding":
        """The encoding of a table's columns, with the categories that occur in it.

        Raises
        ------
        InputError
            If there is no column, or one is neither numbers nor text, holds more than 100
            categories, or would give a feature the name of another.
        """
        if frame.shape[1] == 0:
            raise InputError("no column is left to predict from.")
        encoding = cls(tuple(_describe(str(name), column) for name, column in frame.items()))
        names = pd.Series(encoding.feature_names)
        if names.duplicated().any():
            raise InputError(
                f"two features would be named {names[names.duplicated()].iloc[0]!r}; rename a "
                "column."
            )
        return encoding

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order."""
        return [name for column in self.columns for name in column.features]

    @property
    def text(self) -> list[str]:
        """Names of the text columns."""
        return [column.name for column in self.columns if column.categories is not None]

    def encode(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """Features of a table's rows, and remarks on categories that are not known.

        Columns may be in any order, and others are ignored. A category that is not known
        becomes zeros.

        Returns
        -------
        features : DataFrame of float, shape (n, features)
        remarks : list of str

        Raises
        ------
        InputError
            If a column is absent, has missing or infinite values, or holds text for numbers.
        """
        absent = [column.name for column in self.columns if column.name not in frame]
        if absent:
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(
                f"{named(absent)} {verb} missing; the table has {named(frame.columns)}."
            )
        own = frame[[column.name for column in self.columns]]
        check_complete(own)
        parts = []
        for column in self.columns:
            values = own[column.name]
            if column.categories is None:
                parts.append(numbers(values).to_numpy()[:, None])
            else:
                label = values.astype(str).to_numpy()
                parts.append((label[:, None] == np.array(column.categories)).astype(float))
        features = pd.DataFrame(np.hstack(parts), columns=self.feature_names)
        return features, remarks_on(self.unknown(own))

    def unknown(self, frame: pd.DataFrame) -> dict[str, dict[str, int]]:
        """How many rows hold which category that is not known, by column."""
        found = {}
        for column in self.columns:
            if column.categories is not None:
                label = frame[column.name].astype(str)
                counts = label[~label.isin(column.categories)].value_counts(sort=False)
                found[column.name] = {str(name): int(count) for name, count in counts.items()}
        return found

    def to_json(self) -> list[dict[str, Any]]:
        """The encoding as plain JSON."""
        return [
            {"name": c.name, "categories": None if c.categories is None else list(c.categories)}
            for c in self.columns
        ]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> "Encoding":
        """The inverse of :meth:`to_json`."""
        return cls(
            tuple(
                Column(c["name"], None if c["categories"] is None else tuple(c["categories"]))
                for c in columns
            )
        )


def remarks_on(unknown: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What to tell a person of categories that are not known (see :meth:`Encoding.unknown`)."""
    return [
        f"column {name!r}: {sum(counts.values())} rows hold a category that training did not "
        f"({some(counts)}); it counts as none."
        for name, counts in unknown.items()
        if counts
    ]


def numbers(column: pd.Series) -> pd.Series:
    """A column of numbers, or of true and false, as float.

    Raises
    ------
    InputError
        If it holds text or anything else.
    """
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
    """Whether a column holds text; False for numbers, and for true and false.

    Raises
    ------
    InputError
        If it holds anything else, such as dates.
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
        f"column {column.name!r} holds {kind} values; turn them into numbers or text, or drop it."
    )


def read_target(column: pd.Series, task: str = "auto") -> tuple[Task, NDArray[Any]]:
    """What is to be predicted.

    Parameters
    ----------
    column : Series of length n, without missing values
    task : {"auto", "classification", "regression"}
        ``"auto"``: classification for text, true and false, and at most 20 different whole
        numbers.

    Returns
    -------
    task : {"classification", "regression"}
    y : array, shape (n,)
        Text, integers or booleans; or float.

    Raises
    ------
    InputError
        If the values do not suit the task, or have one class only.
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
                f"target {name!r} holds a different text in each of {len(labels)} rows; no class "
                "occurs twice."
            )
        return "classification", _two_classes(labels, name)
    values = column.astype(float).to_numpy()
    whole = bool((values == np.round(values)).all())
    if task == "auto":
        few = whole and len(np.unique(values)) <= MOST_CLASSES
        task = "classification" if few else "regression"
    if task == "regression":
        return "regression", values
    if not whole:
        value = values[values != np.round(values)][0]
        raise InputError(f"target {name!r} holds {value:g}, which is no class; use regression.")
    boolean = pd.api.types.is_bool_dtype(column)
    return "classification", _two_classes(values.astype(bool if boolean else np.int64), name)


def read_weights(column: pd.Series) -> NDArray[np.float64]:
    """Weights of the rows, shape (n,).

    Raises
    ------
    InputError
        If one is negative, or all are zero.
    """
    values = numbers(column).to_numpy()
    if (values < 0).any() or not values.any():
        raise InputError(
            f"weights {column.name!r} must be zero or more and not all zero, got a least value of "
            f"{values.min():g}."
        )
    return values


def _two_classes(labels: NDArray[Any], name: Any) -> NDArray[Any]:
    if len(np.unique(labels)) < 2:
        raise InputError(f"target {name!r} has one class, {labels[0].item()!r}; two are needed.")
    return labels


def _describe(name: str, column: pd.Series) -> Column:
    if not is_text(column):
        return Column(name)
    categories = tuple(sorted(column.dropna().astype(str).unique()))
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"column {name!r} holds more than {MOST_CATEGORIES} different texts, such as "
            f"{categories[0]!r} and {categories[-1]!r}, too many for categories; drop the column, "
            "or group them."
        )
    return Column(name, categories)
