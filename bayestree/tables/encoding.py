"""The encoding of the columns of a table as features."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.wording import InputError, brief, nearest_match, warn, written
from bayestree.tables.column_types import (
    KINDS,
    Categories,
    Column,
    Dates,
    Numbers,
    Ordered,
    Statistics,
    texts,
)
from bayestree.tables.columns import Codes, abbreviate, check_complete, quote_columns, without_codes
from bayestree.tables.dataset import from_arrow
from bayestree.tables.files import open_table


class Features(pd.DataFrame):
    """Encoded rows of a table, which fits and predictions take in the place of the table."""

    encoding: "Encoding"
    _metadata: ClassVar[list[str]] = ["encoding"]

    @classmethod
    def of(cls, values: AnyArray, encoding: "Encoding") -> "Features":
        """Return the values (n, features), which are not copied."""
        # pandas 2 would keep the classes of the names, and scikit-learn takes plain strings alone.
        found = cls(values, columns=[*map(str, encoding.feature_names)], copy=False)
        found.encoding = encoding
        return found

    @property
    def _constructor(self) -> type["Features"]:
        return Features


def column_number(key: str | int, names: Sequence[str]) -> int:
    """Return the number of a column that is given by its name or number."""
    if isinstance(key, str):
        if key not in names:
            raise ValueError(f"{key!r} is not a column of the fit{nearest_match(key, names)}")
        return names.index(key)
    if not (isinstance(key, int | np.integer) and 0 <= key < len(names)):
        known = abbreviate(map(repr, names))
        raise ValueError(
            f"column {written(key)} does not exist; the fit had {len(names)}: {known}. Give one of "
            "these names, or a number from 0."
        )
    return int(key)


def column_numbers(keys: str | int | Iterable[Any], names: Sequence[str]) -> list[int]:
    """Return the numbers of columns: one, or several, each given by its name or number."""
    if isinstance(keys, str | Integral):
        return [column_number(keys, names)]
    return [number for key in cast(Iterable[Any], keys) for number in column_numbers(key, names)]


class UnknownCategoryWarning(UserWarning):
    """A row to predict holds an unknown category, or text that is not a number or a date."""


@dataclass(frozen=True)
class Encoding:
    """The encoding of columns as features."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.feature_names:
            raise InputError("no column is left to predict from.")
        if len(set(self.feature_names)) < len(self.feature_names):
            (name, _), *_ = Counter(self.feature_names).most_common(1)
            raise InputError(f"two features would be named {name!r}; rename a column.")

    @cached_property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.features]

    @property
    def keeps_values(self) -> bool:
        """Whether features are the numbers of the columns themselves, or 0 and 1."""
        return all(
            (isinstance(one, Numbers) and not one.gaps) or type(one) is Categories
            for one in self.columns
        )

    @cached_property
    def is_plain(self) -> bool:
        """Whether each column is a feature, and missing values are NaN without a mark."""
        return all(
            isinstance(column, Numbers) and not (column.gaps or column.codes)
            for column in self.columns
        )

    @property
    def places(self) -> list[IntArray]:
        """The numbers of the features of each column."""
        ends = np.cumsum([len(column.features) for column in self.columns])
        return np.split(np.arange(ends[-1]), ends[:-1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def number(self, key: str | int) -> int:
        """Return the number of a column that is given by its name or number."""
        return column_number(key, self.names)

    def among(self, features: BoolArray) -> "Encoding":
        """Return the encoding of the columns that have some of these features."""
        pairs = zip(self.columns, self.places, strict=True)
        return Encoding(tuple(column for column, own in pairs if features[own].any()))

    def part(self, key: str | int) -> tuple[Column, IntArray]:
        """Return a column, a part of a date like ``"day (month)"``, or a step, and its features."""
        for column, own in zip(self.columns, self.places, strict=True):
            if (
                isinstance(column, Dates | Ordered)
                and key in column.labels
                and key not in self.names
            ):
                return Numbers(str(key)), own[[column.labels.index(str(key))]]
        number = self.number(key)
        if not len(self.places[number]):
            raise ValueError(f"column {self.names[number]!r} is ignored by the fit.")
        return self.columns[number], self.places[number]

    def by_column(self, values: FloatArray) -> FloatArray:
        """Sum over the features of each column, (..., c), of values (..., d)."""
        return np.stack([values[..., own].sum(axis=-1) for own in self.places], axis=-1)

    def portable(self, X: Any) -> dict[str, AnyArray]:
        """Return the columns (n,) as an ONNX model takes them: numbers, days since 1970, or text.

        Missing numbers and dates are NaN, and missing text is empty.
        """
        return {column.name: column.portable(values) for column, values in self._values(X)}

    def shown(self, X: Any) -> list[list[Any]]:
        """Return the values of each column: numbers, text, or times; of encoded rows, decoded."""
        if isinstance(X, Features):
            values = X.to_numpy()
            pairs = zip(self.columns, self.places, strict=True)
            return [column.decoded(values[:, own]) for column, own in pairs]
        return [column.shown(values) for column, values in self._values(X)]

    def _values(self, X: Any) -> Iterator[tuple[Column, pd.Series]]:
        """Yield the columns with their values, without codes for missing ones."""
        table = self.named(X)
        for number, column in enumerate(self.columns):
            yield column, without_codes(table.iloc[:, number], column.codes)

    @property
    def by_y(self) -> list[str]:
        """Names of the columns whose features are means of y."""
        return [column.name for column in self.columns if isinstance(column, Statistics)]

    @property
    def text(self) -> list[str]:
        """Names of the columns that files should not be searched for numbers."""
        return [column.name for column in self.columns if column.is_text]

    @property
    def codes(self) -> dict[str, Codes]:
        """The codes for missing values of each column that has some."""
        return {column.name: column.codes for column in self.columns if column.codes}

    def chunks(self, path: str | Path, text: Iterable[str] = ()) -> Iterator[pd.DataFrame]:
        """Yield the chunks of a table, read as in the fit; columns in ``text`` are text too."""
        return open_table(path, [*self.text, *text], codes=lambda _: self.codes).chunks()

    def encode(self, X: Any) -> pd.DataFrame:
        """Encode rows as floats, shape (n, features).

        Columns may be in any order, and others are ignored. All features of an unknown category
        are 0, or features of the mean (see :meth:`warn_unknown`).
        """
        return X if isinstance(X, Features) else pd.DataFrame(self.features(self.named(X)))

    def features(self, frame: pd.DataFrame) -> Features:
        """Encode rows of a table, whose index holds the row numbers that messages state."""
        absent = [name for name in self.names if name not in frame]
        if absent:
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(
                f"{quote_columns(absent)} {verb} missing; the table has "
                f"{quote_columns(frame.columns)}."
            )
        parts = [one.encode(without_codes(frame[one.name], one.codes)) for one in self.columns]
        return Features.of(np.hstack(parts), self)

    def named(self, X: Any) -> pd.DataFrame:
        """Return a table, numbered from 0, with the names of the columns if they have none."""
        X = as_pandas(X)
        if isinstance(X, pd.DataFrame):
            return X.reset_index(drop=True)
        return pd.DataFrame(X, columns=[*self.names]).infer_objects()

    def filled(self, rows: FloatArray) -> FloatArray:
        """Return the rows (n, d) of a plain encoding, with means in the place of missing values."""
        missing = np.isnan(rows)
        gaps = missing.any(axis=0)
        if not gaps.any():
            return rows
        if any(self.columns[j].fill is None for j in np.flatnonzero(gaps)):
            check_complete(pd.DataFrame(rows, columns=[*self.names]))
        fill = np.array([np.nan if one.fill is None else one.fill[0] for one in self.columns])
        return np.where(missing, fill, rows)

    def count_unknown(self, frame: pd.DataFrame, counts: dict[str, Counter[str]]) -> None:
        """Add the numbers of rows with each unknown category to the counts of each column."""
        for column in self.columns:
            values = without_codes(frame[column.name], column.codes)
            if (odd := column.unknown(values)).any():
                unknown = texts(values[odd]).astype(str).tolist()
                counts.setdefault(column.name, Counter()).update(unknown)

    def describe_unknown(self, counts: Mapping[str, Counter[str]]) -> list[str]:
        """Return a remark for each column about the counts of its unknown categories."""
        numbers = {name: found.total() for name, found in counts.items()}
        return [
            f"column {column.name!r}: {numbers[column.name]} "
            f"{'row holds' if numbers[column.name] == 1 else 'rows hold'} {column.unknown_is} "
            f"({abbreviate(map(brief, counts[column.name]))}); it counts as {column.unknown_as}. "
            f"{column.unknown_remedy}"
            for column in self.columns
            if counts.get(column.name)
        ]

    def warn_unknown(self, frame: pd.DataFrame) -> None:
        """Warn about unknown categories, once for each column."""
        counts: dict[str, Counter[str]] = {}
        self.count_unknown(frame, counts)
        for remark in self.describe_unknown(counts):
            warn(remark, UnknownCategoryWarning)

    def to_json(self) -> list[dict[str, Any]]:
        return [{"kind": column.kind} | asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> "Encoding":
        return cls(tuple(_column(dict(entry)) for entry in columns))


def _column(entry: dict[str, Any]) -> Column:
    """Return a column from its entry in JSON."""
    kind = KINDS[entry.pop("kind")]
    known = {field.name for field in fields(kind)}
    if not entry.keys() <= known:
        raise ValueError(f"unknown keys of a column: {sorted(entry.keys() - known)}")
    return kind(**{key: _tuples(value) for key, value in entry.items()})


def _tuples(value: Any) -> Any:
    """Return lists as tuples; no value of a column is a table."""
    if isinstance(value, dict):
        raise TypeError(f"unknown entry: {value}")
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def as_pandas(X: Any) -> Any:
    """Convert a table of another library, or columns of Arrow or sparse ones, to pandas' own types.

    Anything else is returned as it is, single columns included.
    """
    if not isinstance(X, pd.DataFrame):
        exports = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
        if not exports or isinstance(X, pd.Series):
            return X
        if hasattr(X, "dtype"):  # an array of numbers, whose table may have a row for each of them
            return np.asarray(X)
        try:
            table = pa.table(X)
        except (pa.ArrowInvalid, TypeError):  # Arrow lacks a type, such as integers of 128 bits
            if not hasattr(X, "columns"):
                return X
            return pd.DataFrame({name: [*X[name]] for name in X.columns})
        if hasattr(X, "__len__") and len(X) != len(table):
            raise TypeError(
                f"X, a {type(X).__name__} of length {len(X)}, gives {len(table)} rows; convert it "
                "to a DataFrame or an array with a row for each prediction."
            )
        return from_arrow(table)
    changed = X
    for place, dtype in enumerate(X.dtypes):
        if isinstance(dtype, pd.ArrowDtype):
            values = X.iloc[:, place].array.__arrow_array__().to_pandas().array
        elif isinstance(dtype, pd.SparseDtype):
            values = np.asarray(X.iloc[:, place])
        else:
            continue
        changed = X.copy(deep=False) if changed is X else changed
        changed.isetitem(place, values)
    return changed
