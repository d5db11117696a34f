"""How columns of a table become features: numbers, categories, dates, and missing values.

A missing value becomes the mean of its column and, if training rows have such values, 1 in a
feature of its own, whose coefficient is what a missing value contributes to each expert: the
missingness incorporated in attributes of Twala, Jones and Hand (2008), for splits that are linear.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.tables.columns import numbers, times
from bayestree.tables.errors import InputError
from bayestree.tables.invalid import abbreviate, check_complete, check_finite, quote_columns

#: Parts of a date: days since 1970 and what may recur every year, month, week and day.
DATE_PARTS = ("days", "month", "day", "weekday", "hour")


@dataclass(frozen=True)
class Column:
    """A column and its features; those of one kind are defined by ``labels`` and ``raw``.

    ``fill`` (k,) replaces missing values; None if these are refused. With ``gaps``, another feature
    is 1 where the value is missing.
    """

    name: str
    fill: tuple[float, ...] | None = None
    gaps: bool = False

    kind: ClassVar[str]
    is_text: ClassVar[bool] = False  # whether files should be read without looking for numbers

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the features other than that of missing values."""
        return (self.name,)

    def raw(self, values: pd.Series) -> FloatArray:
        """The features (n, k) other than that of missing values; NaN for missing ones."""
        return finite_numbers(values)

    def unknown(self, values: pd.Series) -> BoolArray:
        """Mask of the values that the training rows do not have, and that are not missing."""
        return np.zeros(len(values), dtype=bool)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features."""
        return self.labels + (f"{self.name} missing",) * self.gaps

    def encode(self, values: pd.Series) -> FloatArray:
        """The features of some rows, shape (n, features)."""
        found = self.raw(values)
        missing = np.isnan(found)
        if missing.any():
            if self.fill is None:
                check_complete(values.to_frame())
            found = np.where(missing, np.array(self.fill), found)
        if not self.gaps:
            return found
        return np.column_stack([found, values.isna().to_numpy(dtype=float)])


@dataclass(frozen=True)
class Numbers(Column):
    """Numbers, booleans, or spans of time in days: one feature."""

    kind = "numbers"


@dataclass(frozen=True)
class Dates(Column):
    """Dates and times: a feature for each of the ``parts`` that vary.

    Times are those of the clocks in ``zone``, if there is one. ``text_format`` is the format of
    dates that are stated as text, by default ISO 8601.
    """

    parts: tuple[str, ...] = DATE_PARTS
    text_format: str | None = None
    zone: str = ""

    kind = "dates"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name} ({part})" for part in self.parts)

    def raw(self, values: pd.Series) -> FloatArray:
        found = date_parts(values, self.text_format, self.zone)
        return found[:, [DATE_PARTS.index(part) for part in self.parts]]


@dataclass(frozen=True)
class Categories(Column):
    """Categories, one-hot: a feature for each; all are 0 for an unknown one."""

    categories: tuple[str, ...] = ()

    kind = "categories"
    is_text = True

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.categories)

    def codes(self, values: pd.Series) -> IntArray:
        """The number of each category (n,); -1 for unknown and for missing ones."""
        found: IntArray = pd.Index(self.categories, dtype=object).get_indexer(
            pd.Index(texts(values))
        )
        return found

    def raw(self, values: pd.Series) -> FloatArray:
        codes = self.codes(values)
        found = (codes[:, None] == np.arange(len(self.categories))).astype(float)
        found[values.isna().to_numpy()] = np.nan
        return found

    def unknown(self, values: pd.Series) -> BoolArray:
        found: BoolArray = (self.codes(values) < 0) & values.notna().to_numpy()
        return found


@dataclass(frozen=True)
class Ordered(Categories):
    """Ordered categories: a feature for each but the first, 1 from it on."""

    kind = "ordered"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}>={category}" for category in self.categories[1:])

    def raw(self, values: pd.Series) -> FloatArray:
        codes = self.codes(values)
        found = (codes[:, None] >= np.arange(1, len(self.categories))).astype(float)
        found[codes < 0] = np.nan
        return found


@dataclass(frozen=True)
class Statistics(Categories):
    """Many categories: the mean of y in each, shrunken to the mean of all rows.

    ``means`` has a row for each category, and a column for each of the ``targets``, such as
    ``"mean of price"``; ``fill`` is that of all rows, for unknown categories as well. Micci-Barreca
    (2001), eq. 4, with a constant number of prior rows.
    """

    targets: tuple[str, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()

    kind = "statistics"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}: {target}" for target in self.targets)

    def raw(self, values: pd.Series) -> FloatArray:
        table = np.array([*self.means, [np.nan] * len(self.targets)])
        found: FloatArray = table[self.codes(values)]  # -1 is the last row
        return found


KINDS: dict[str, type[Column]] = {
    kind.kind: kind for kind in (Numbers, Dates, Categories, Ordered, Statistics)
}


@dataclass(frozen=True)
class Encoding:
    """The encoding of columns as features."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("no column is left to predict from.")
        if len(set(self.feature_names)) < len(self.feature_names):
            (name, _), *_ = Counter(self.feature_names).most_common(1)
            raise InputError(f"two features would be named {name!r}; rename a column.")

    @cached_property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.features]

    @cached_property
    def is_plain(self) -> bool:
        """Whether each column is a feature, without a mark for missing values."""
        return all(type(column) is Numbers and not column.gaps for column in self.columns)

    @property
    def places(self) -> list[IntArray]:
        """The numbers of the features of each column."""
        ends = np.cumsum([len(column.features) for column in self.columns])
        return np.split(np.arange(ends[-1]), ends[:-1])

    def movable(self, row: FloatArray) -> list[str]:
        """Names of the columns of numbers that an encoded row (d,) has a value of."""
        return [
            column.name
            for column, own in zip(self.columns, self.places, strict=True)
            if type(column) is Numbers and not (column.gaps and row[own[-1]])
        ]

    def mark(self, feature: int) -> int | None:
        """The feature that marks missing values of the column of numbers with this feature."""
        for column, own in zip(self.columns, self.places, strict=True):
            if type(column) is Numbers and column.gaps and own[0] == feature:
                return int(own[1])
        return None

    @property
    def by_y(self) -> list[str]:
        """Names of the columns whose features are means of y."""
        return [column.name for column in self.columns if isinstance(column, Statistics)]

    @property
    def text(self) -> list[str]:
        """Names of the columns that files should not be searched for numbers."""
        return [column.name for column in self.columns if column.is_text]

    def encode(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Encode rows as floats, shape (n, features).

        Columns may be in any order, and others are ignored. All features of an unknown category
        are 0, or those of the mean (see :meth:`count_unknown`).
        """
        absent = [column.name for column in self.columns if column.name not in frame]
        if absent:
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(
                f"{quote_columns(absent)} {verb} missing; the table has "
                f"{quote_columns(frame.columns)}."
            )
        parts = [column.encode(frame[column.name]) for column in self.columns]
        return pd.DataFrame(np.hstack(parts), columns=self.feature_names)

    def named(self, X: Any) -> pd.DataFrame:
        """Rows as a table with the names of the columns, if they have none."""
        if isinstance(X, pd.DataFrame):
            return X
        names = [column.name for column in self.columns]
        return pd.DataFrame(X, columns=names).infer_objects()

    def filled(self, rows: FloatArray) -> FloatArray:
        """Rows (n, d) of a plain encoding, with means in the place of missing values."""
        missing = np.isnan(rows)
        gaps = missing.any(axis=0)
        if not gaps.any():
            return rows
        names = [column.name for column in self.columns]
        if any(self.columns[j].fill is None for j in np.flatnonzero(gaps)):
            check_complete(pd.DataFrame(rows, columns=names))
        fill = np.array([np.nan if one.fill is None else one.fill[0] for one in self.columns])
        return np.where(missing, fill, rows)

    def count_unknown(self, frame: pd.DataFrame, counts: dict[str, Counter[str]]) -> None:
        """Add the numbers of rows with each unknown category to the counts of each column."""
        for column in self.columns:
            values = frame[column.name]
            unknown = texts(values[column.unknown(values)]).value_counts(sort=False)
            counts.setdefault(column.name, Counter()).update(
                {str(name): int(count) for name, count in unknown.items()}
            )

    def to_json(self) -> list[dict[str, Any]]:
        return [{"kind": column.kind} | asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> "Encoding":
        return cls(tuple(_column(dict(entry)) for entry in columns))


def _column(entry: dict[str, Any]) -> Column:
    """A column from its entry in JSON; those of earlier versions have no kind."""
    if "kind" not in entry:
        found = entry["categories"]
        return (
            Numbers(entry["name"])
            if found is None
            else Categories(entry["name"], (0.0,) * len(found), categories=tuple(found))
        )
    kind = KINDS[entry.pop("kind")]
    known = {field.name for field in fields(kind)}
    if not entry.keys() <= known:
        raise ValueError(f"unknown keys of a column: {sorted(entry.keys() - known)}")
    return kind(**{key: _tuples(value) for key, value in entry.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def texts(values: pd.Series) -> pd.Series:
    """Categories as text, and missing ones as they are; 2.0, a number in a float column, is 2."""
    return values.astype(object).map(_text, na_action="ignore")


def _text(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def finite_numbers(values: pd.Series) -> FloatArray:
    """A column of numbers, shape (n, 1), with NaN for missing ones; infinite ones are refused."""
    found = numbers(values)
    check_finite(found.to_frame())
    return found.to_numpy()[:, None]


def date_parts(values: pd.Series, text_format: str | None, zone: str) -> FloatArray:
    """The ``DATE_PARTS`` of dates, shape (n, 5); NaN for missing ones."""
    when = times(values, text_format, zone).dt
    hour = when.hour + when.minute / 60 + when.second / 3600
    days = (when.normalize() - pd.Timestamp(0)) / pd.Timedelta(days=1) + hour / 24
    parts = (days, when.month, when.day, when.day_of_week, hour)
    found: FloatArray = np.column_stack([part.to_numpy(dtype=float) for part in parts])
    return found


def describe_unknown(counts: Mapping[str, Counter[str]]) -> list[str]:
    """Warnings about unknown categories (see :meth:`Encoding.count_unknown`)."""
    return [
        f"column {name!r}: {found.total()} rows hold a category that does not occur in the "
        f"training rows ({abbreviate(map(repr, found))}); its features are all 0, or the mean."
        for name, found in counts.items()
        if found
    ]
