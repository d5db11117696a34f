"""Kinds of columns of a table, and how each becomes features.

A missing value becomes the mean of its column. If training rows have such values, another feature
is 1 there, whose coefficient is what a missing value contributes to each expert: the missingness
incorporated in attributes of Twala, Jones and Hand (2008), for splits that are linear.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.wording import Days, Indicator, MissingMark, Times, refuse_cells
from bayestree.tables import columns
from bayestree.tables.dates import REMEDY, Clocks

#: Parts of a date: days since 1970 and what may recur every year, month, week and day.
DATE_PARTS = ("days", "month", "day", "weekday", "hour")
UNKNOWN_SPAN = 6.0  # scales of a number on either side of its center, if the model has no range
EXACT = 1e-6  # difference of features up to which they are those of a level
DIGITS = 3  # of the scale of a number, to which its new values are rounded


@dataclass(frozen=True)
class Column:
    """A column and its features; a kind defines ``labels`` and ``raw``.

    ``fill`` (k,) replaces missing values; None if these are refused. With ``gaps``, another feature
    is 1 where the value is missing. Values in ``codes`` stand for missing ones.
    """

    name: str
    fill: tuple[float, ...] | None = None
    gaps: bool = False
    codes: columns.Codes = ()

    kind: ClassVar[str]
    is_text: ClassVar[bool] = False  # whether files should be read without looking for numbers
    unknown_is: ClassVar[str] = "a category that does not occur in the training rows"
    unknown_as: ClassVar[str] = ""  # what such a value counts as
    unknown_remedy: ClassVar[str] = (
        "Replace it by a known category, or fit again to rows that have it."
    )

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the features, except the feature of missing values."""
        return (self.name,)

    def raw(self, values: pd.Series) -> FloatArray:
        """Return the features (n, k) except that of missing values, for which they are NaN."""
        return finite_numbers(values)

    @property
    def levels(self) -> tuple[str, ...]:
        """The values of a column of categories; empty for other columns."""
        return ()

    @property
    def options(self) -> tuple[Any, ...]:
        """The values that the column may have; empty if they are not countable."""
        return self.levels

    def steps(self, value: Any, levels: Sequence[Any]) -> list[float]:
        """Return how far each of some options is from a value."""
        return [float(level != value) for level in levels]

    def shown(self, values: pd.Series) -> list[Any]:
        """Return the values as numbers, text or times; NaN, None or NaT for missing ones."""
        return self.raw(values)[:, 0].tolist()

    def decoded(self, features: FloatArray) -> list[Any]:
        """Return the values of rows with these features (n, k), in the form of :meth:`shown`.

        Numbers that were filled in for missing ones stay, unless a feature marks them. Many
        categories are numbers, since their features need not differ.
        """
        missing = features[:, -1] > 0 if self.gaps else np.zeros(len(features), dtype=bool)
        return np.where(missing, np.nan, features[:, 0]).tolist()

    def portable(self, values: pd.Series) -> AnyArray:
        """Return the values (n,) without pandas' types: numbers, days since 1970, or text."""
        return self.raw(values)[:, 0]

    def unknown(self, values: pd.Series) -> BoolArray:
        """Mask of the values that cannot be encoded, although they are not missing."""
        return np.zeros(len(values), dtype=bool)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features."""
        return self.labels + (MissingMark(f"{self.name} missing"),) * self.gaps

    def encode(self, values: pd.Series) -> FloatArray:
        """Return the features of some rows, shape (n, features)."""
        found = self.raw(values)
        missing = np.isnan(found)
        if missing.any():
            if self.fill is None:
                columns.check_complete(values.to_frame())
            found = np.where(missing, np.array(self.fill), found)
        if not self.gaps:
            return found
        return np.column_stack([found, values.isna().to_numpy(dtype=float)])


@dataclass(frozen=True)
class Numbers(Column):
    """Numbers, or spans of time in days: one feature. What is not a number counts as missing.

    ``span`` has the least and the largest value of the training rows, and ``whole`` states that all
    of them are whole numbers. Models of versions that did not record them have no span.
    """

    span: tuple[float, float] | None = None
    whole: bool = False

    kind = "numbers"
    unknown_is = "a value that cannot be read as a number"
    unknown_as = "a missing one"
    unknown_remedy = f"If it is a number, {columns.PLAIN}."

    def limits(self, center: float, scale: float) -> tuple[float, float]:
        """Return the least and the largest value, by default far from the center."""
        away = UNKNOWN_SPAN * scale
        return self.span or (center - away, center + away)

    def places(self, scale: float) -> int:
        """Return the decimal places of values that are chosen, for numbers of this scale."""
        places = DIGITS - 1 - math.floor(math.log10(scale))
        return min(places, 0) if self.whole else places

    def encode(self, values: pd.Series) -> FloatArray:
        return super().encode(columns.read_numbers(values))

    def unknown(self, values: pd.Series) -> BoolArray:
        return (columns.read_numbers(values).isna() & values.notna()).to_numpy()


@dataclass(frozen=True)
class Booleans(Numbers):
    """False and True: one feature, 0 or 1."""

    kind = "booleans"

    @property
    def options(self) -> tuple[Any, ...]:
        return False, True

    def shown(self, values: pd.Series) -> list[Any]:
        return self._named(super().shown(values))

    def decoded(self, features: FloatArray) -> list[Any]:
        return self._named(super().decoded(features))

    def _named(self, values: list[float]) -> list[Any]:
        return [bool(one) if one in self.options else one for one in values]


@dataclass(frozen=True)
class Dates(Column):
    """Dates and times: a feature for each of the ``parts`` that vary.

    Times are shown by clocks in ``zone``, if there is one. Dates that are stated as text have the
    format ``text_format`` or ISO 8601; values that are no dates count as missing. ``whole`` states
    that no training row has a time of day.
    """

    parts: tuple[str, ...] = DATE_PARTS
    text_format: str | None = None
    zone: str = ""
    whole: bool = False

    kind = "dates"
    unknown_is = "a value that cannot be read as a date"
    unknown_as = "a missing one"
    unknown_remedy = f"If it is a date, {REMEDY}."

    @property
    def labels(self) -> tuple[str, ...]:
        kinds = {"days": Days if self.whole else Times}
        return tuple(kinds.get(part, str)(f"{self.name} ({part})") for part in self.parts)

    def times(self, values: pd.Series) -> pd.Series:
        """Return the times without a zone; NaT if they are missing or cannot be read."""
        return Clocks.of(values, self.text_format).in_zone(self.zone)

    def encode(self, values: pd.Series) -> FloatArray:
        return super().encode(self.times(values))

    def raw(self, values: pd.Series) -> FloatArray:
        return date_parts(self.times(values))[:, [DATE_PARTS.index(part) for part in self.parts]]

    def shown(self, values: pd.Series) -> list[Any]:
        return self.times(values).tolist()

    def decoded(self, features: FloatArray) -> list[Any]:
        first = np.array(super().decoded(features))
        days = first if self.parts[0] == "days" else first / 24  # hours, if days do not vary
        return pd.to_datetime(days, unit="D").round("s").tolist()

    def portable(self, values: pd.Series) -> AnyArray:
        return date_parts(self.times(values))[:, 0]

    def unknown(self, values: pd.Series) -> BoolArray:
        return (self.times(values).isna() & values.notna()).to_numpy()


@dataclass(frozen=True)
class Categories(Column):
    """Categories, one-hot: a feature for each; all are 0 for an unknown one."""

    categories: tuple[str, ...] = ()

    kind = "categories"
    is_text = True
    unknown_as = "no known category"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(Indicator(f"{self.name}={category}") for category in self.categories)

    @property
    def levels(self) -> tuple[str, ...]:
        return self.categories

    def portable(self, values: pd.Series) -> AnyArray:
        return np.array([one or "" for one in self.shown(values)], dtype=object)

    def shown(self, values: pd.Series) -> list[Any]:
        return [None if pd.isna(one) else one for one in texts(values)]

    def decoded(self, features: FloatArray) -> list[Any]:
        known = self.encode(pd.Series(self.categories, dtype=object))
        apart = np.abs(features[:, None] - known).max(axis=2, initial=0.0)
        nearest = zip(apart.argmin(axis=1), apart.min(axis=1) < EXACT, strict=True)
        return [self.categories[place] if same else None for place, same in nearest]

    def places(self, values: pd.Series) -> IntArray:
        """Return the number of each category (n,); -1 for unknown and for missing ones."""
        return pd.Index(self.categories, dtype=object).get_indexer(pd.Index(texts(values)))

    def raw(self, values: pd.Series) -> FloatArray:
        codes = self.places(values)
        found = (codes[:, None] == np.arange(len(self.categories))).astype(float)
        found[values.isna().to_numpy()] = np.nan
        return found

    def unknown(self, values: pd.Series) -> BoolArray:
        return (self.places(values) < 0) & values.notna().to_numpy()


@dataclass(frozen=True)
class Binary(Categories):
    """Two categories: a feature that is 1 for the second."""

    kind = "binary"
    unknown_as = "the mean of the training rows"

    @property
    def labels(self) -> tuple[str, ...]:
        return (Indicator(f"{self.name}={self.categories[1]}"),)

    def raw(self, values: pd.Series) -> FloatArray:
        codes = self.places(values)
        return np.where(codes < 0, np.nan, codes)[:, None]


@dataclass(frozen=True)
class Ordered(Categories):
    """Ordered categories: a feature for each but the first, 1 from it on."""

    kind = "ordered"
    unknown_as = "the mean of the training rows"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(Indicator(f"{self.name}>={category}") for category in self.categories[1:])

    def raw(self, values: pd.Series) -> FloatArray:
        codes = self.places(values)
        found = (codes[:, None] >= np.arange(1, len(self.categories))).astype(float)
        found[codes < 0] = np.nan
        return found

    def steps(self, value: Any, levels: Sequence[Any]) -> list[float]:
        if value not in self.categories:
            return super().steps(value, levels)
        now = self.categories.index(value)
        return [float(abs(self.categories.index(level) - now)) for level in levels]


@dataclass(frozen=True)
class Statistics(Categories):
    """Many categories: the mean of y in each, shrunken to the mean of all rows.

    ``means`` has a row for each category, and a column for each of the ``targets``, such as
    ``"mean of price"``; ``fill`` is the mean of all rows, for unknown categories as well.
    Micci-Barreca (2001), eq. 4, with a constant number of prior rows.
    """

    targets: tuple[str, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()

    kind = "statistics"
    unknown_as = "the mean of the training rows"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}: {target}" for target in self.targets)

    def decoded(self, features: FloatArray) -> list[Any]:
        return Column.decoded(self, features)

    def raw(self, values: pd.Series) -> FloatArray:
        table = np.array([*self.means, [np.nan] * len(self.targets)])
        return table[self.places(values)]  # -1 is the last row


@dataclass(frozen=True)
class Ignored(Categories):
    """A column that the fit ignores, such as identifiers; only gaps are a feature."""

    kind = "ignored"

    def decoded(self, features: FloatArray) -> list[Any]:
        return [None] * len(features)

    def unknown(self, values: pd.Series) -> BoolArray:
        return np.zeros(len(values), dtype=bool)


KINDS: dict[str, type[Column]] = {
    kind.kind: kind
    for kind in (Numbers, Booleans, Dates, Categories, Binary, Ordered, Statistics, Ignored)
}


def texts(values: pd.Series) -> pd.Series:
    """Return categories as text, and missing ones as they are; 2.0 in a float column is 2."""
    return values.astype(object).map(columns.text_of, na_action="ignore")


def ordered(values: pd.Series, levels: Sequence[str]) -> pd.Series:
    """Return the values as ordered categories; values that are not among the levels are refused."""
    labels = texts(values)
    odd = (labels.notna() & ~labels.isin(levels)).to_numpy()
    among = f"one of {columns.abbreviate(map(repr, levels))}"
    refuse_cells(labels, odd, among, "correct it, or add it to the levels")
    found = pd.Categorical(labels, categories=[*levels], ordered=True)
    return pd.Series(found, index=values.index, name=values.name)


def finite_numbers(values: pd.Series) -> FloatArray:
    """Return numbers, shape (n, 1), with NaN for missing ones; infinite ones are refused."""
    found = columns.read_numbers(values)
    columns.check_finite(found)
    return found.to_numpy()[:, None]


def date_parts(times: pd.Series) -> FloatArray:
    """Return the ``DATE_PARTS`` of times without a zone, shape (n, 5); NaN for missing ones."""
    when = times.dt
    hour = when.hour + when.minute / 60 + when.second / 3600
    # pandas 2 would count pd.Timedelta(days=1) in nanoseconds, and overflow for years far from now.
    days = (when.normalize() - pd.Timestamp("1970-01-01")) / np.timedelta64(1, "D") + hour / 24
    parts = (days, when.month, when.day, when.day_of_week, hour)
    return np.column_stack([part.to_numpy(dtype=float) for part in parts])
