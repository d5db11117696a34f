"""The encoding of columns, learned from training rows chunk by chunk."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray, hashed
from bayestree.tables.column_types import (
    DATE_PARTS,
    Binary,
    Booleans,
    Categories,
    Column,
    Dates,
    Ignored,
    Numbers,
    Ordered,
    Statistics,
    date_parts,
    finite_numbers,
    texts,
)
from bayestree.tables.columns import Codes, Kind, short, without_codes
from bayestree.tables.dates import read_times
from bayestree.tables.encoding import Encoding

MAX_ONE_HOT = 30  # columns with more categories become statistics of y
PRIOR_ROWS = 10.0  # rows with the mean of all that are added to each category
SAME = 1e-9  # of the largest mean: two means that differ by less are equal but for rounding
FOLDS = 5  # the statistic of a training row comes from rows in other folds, without its own y


def target_columns(
    y: AnyArray, name: str = "y", classes: AnyArray | None = None
) -> dict[str, FloatArray]:
    """Return the quantities whose means describe a category: y, or indicators of its classes.

    The sorted ``classes`` are by default those of ``y``.
    """
    if y.ndim == 2:
        return {f"mean of {name}{number}": column for number, column in enumerate(y.T)}
    if y.dtype.kind == "f":
        return {f"mean of {name}": y}
    classes = np.unique(y) if classes is None else classes
    shown = classes[1:] if len(classes) == 2 else classes
    return {f"P({label})": (y == label).astype(float) for label in shown.tolist()}


class Learner:
    """Collects what the encoding of columns of these kinds needs from the training rows.

    ``formats`` belong to dates that are stated as text, and ``codes`` stand for missing values.
    Parts of the rows can be read by several learners, which :meth:`merge` joins; ``first`` is the
    number of the first training row that this one reads.
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        targets: Sequence[str],
        formats: Mapping[str, str | None],
        codes: Mapping[str, Codes] | None = None,
        first: int = 0,
    ) -> None:
        self.targets, self.codes = tuple(targets), codes or {}
        self._next = first
        self._parts: dict[str, _Part] = {
            name: _DatePart(name, formats.get(name)) if kind == "dates" else _PARTS[kind](name)
            for name, kind in kinds.items()
        }

    def add(self, frame: pd.DataFrame, targets: FloatArray, weights: FloatArray) -> None:
        """Update by some rows, their targets (n, t) and weights (n,)."""
        folds = _folds(self._next, len(frame))
        self._next += len(frame)
        used = weights > 0
        for name, part in self._parts.items():
            values = without_codes(frame[name][used], self.codes.get(name, ()))
            part.add(values, weights[used], targets[used], folds[used])

    def merge(self, other: "Learner") -> None:
        """Include the following rows, which a learner of the same columns has read."""
        self._next = other._next
        for name, part in other._parts.items():
            self._parts[name].merge(part)

    def learned(self) -> "Learned":
        """Return the encodings of new rows and of the training rows."""
        encoding = Encoding(self.columns(None))
        if not any(isinstance(column, Statistics) for column in encoding.columns):
            return Learned(encoding, ())
        return Learned(encoding, tuple(Encoding(self.columns(fold)) for fold in range(FOLDS)))

    def columns(self, fold: int | None) -> tuple[Column, ...]:
        """Return the columns as learned from all folds, or without one of them."""
        found = (part.column(self.targets, fold) for part in self._parts.values())
        return tuple(replace(one, codes=self.codes.get(one.name, ())) for one in found)


class Observed:
    """The least and the largest value of each column, and whether all are whole; NaN is missing."""

    def __init__(self, n_columns: int) -> None:
        self.low, self.high = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
        self.whole = np.ones(n_columns, dtype=bool)

    def add(self, rows: FloatArray) -> None:
        """Include some rows (n, columns)."""
        self.low = np.fmin(self.low, np.fmin.reduce(rows, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(rows, initial=-np.inf))
        self.whole &= (np.isnan(rows) | (rows == np.round(rows))).all(axis=0)

    def merge(self, other: "Observed") -> None:
        """Include the rows that another object has read."""
        self.low, self.high = np.fmin(self.low, other.low), np.fmax(self.high, other.high)
        self.whole &= other.whole

    def of(self, column: int) -> tuple[tuple[float, float] | None, bool]:
        """Return ``span`` and ``whole`` of a column of numbers."""
        if self.low[column] > self.high[column]:
            return None, False
        return (float(self.low[column]), float(self.high[column])), bool(self.whole[column])


class Learned(NamedTuple):
    """The encoding of new rows and, if they differ, of the training rows of each fold."""

    encoding: Encoding
    by_fold: tuple[Encoding, ...]

    def encode_training(self, frame: pd.DataFrame, first: int = 0) -> FloatArray:
        """Return the features of training rows, numbered from ``first``."""
        if not self.by_fold:
            return self.encoding.features(frame).to_numpy()
        folds = _folds(first, len(frame))
        found = np.empty((len(frame), len(self.encoding.feature_names)))
        for fold, encoding in enumerate(self.by_fold):
            found[folds == fold] = encoding.features(frame[folds == fold])
        return found


def encode_with_y(
    encoding: Encoding, frame: pd.DataFrame, targets: Mapping[str, FloatArray], weights: FloatArray
) -> FloatArray:
    """Encode rows with known y: the rows of the fit as it encoded them, without their own y.

    They are recognised by the means of y in their categories, which the encoding knows.
    """
    known = [column for column in encoding.columns if isinstance(column, Statistics)]
    learner = Learner(dict.fromkeys(encoding.by_y, "text"), [*targets], {}, encoding.codes)
    learner.add(frame, np.column_stack([*targets.values()]), weights)
    if not all(map(_same_means, known, learner.columns(None))):
        return encoding.features(frame).to_numpy()
    by_fold = []
    for fold in range(FOLDS):
        own = dict(zip(encoding.by_y, learner.columns(fold), strict=True))
        by_fold.append(Encoding(tuple(own.get(one.name, one) for one in encoding.columns)))
    return Learned(encoding, tuple(by_fold)).encode_training(frame)


def _same_means(one: Statistics, other: Column) -> bool:
    """Whether two columns have the same categories and means, apart from rounding."""
    if not isinstance(other, Statistics) or other.categories != one.categories:
        return False
    means, found = np.array(one.means), np.array(other.means)
    limit = SAME * np.abs(means).max(initial=0.0)
    return means.shape == found.shape and bool((np.abs(found - means) <= limit).all())


def _folds(first: int, n_rows: int) -> IntArray:
    """Return the fold of each of some consecutive rows, by a hash of its number.

    Remainders of the numbers would put all rows of a category into one fold where rows are sorted
    and categories recur with a period.
    """
    return (hashed(np.arange(first, first + n_rows)) % np.uint64(FOLDS)).astype(np.int64)


class _NumberPart:
    """The mean of a column of numbers, and whether values are missing."""

    n_features = 1

    def __init__(self, name: str) -> None:
        self.name, self.gaps = name, False
        self.types: set[str] = set()  # of the values, as pandas infers them
        self.sums: FloatArray = np.zeros(1 + self.n_features)  # of weights, and weighted values
        self.observed = Observed(self.n_features)

    def add(
        self, values: pd.Series, weights: FloatArray, targets: FloatArray, folds: IntArray
    ) -> None:
        raw = self.raw(values)
        self.observed.add(raw)
        present = ~np.isnan(raw[:, 0])
        self.gaps = self.gaps or not present.all()
        self.types.add(pd.api.types.infer_dtype(values, skipna=True))
        terms = weights[:, None] * np.column_stack([np.ones(len(raw)), raw])
        # One by one, so that the sum does not depend on the chunks.
        self.sums = np.cumsum(np.vstack([self.sums, terms[present]]), axis=0)[-1]

    def merge(self, other: Any) -> None:
        self.observed.merge(other.observed)
        self.gaps = self.gaps or other.gaps
        self.types |= other.types
        self.sums = self.sums + other.sums

    def raw(self, values: pd.Series) -> FloatArray:
        return finite_numbers(values)

    @property
    def fill(self) -> FloatArray:
        return self.sums[1:] / (self.sums[0] or 1.0)

    def column(self, targets: tuple[str, ...], without: int | None) -> Column:
        kind = Booleans if self.types - {"empty"} == {"boolean"} else Numbers
        span, whole = self.observed.of(0)
        return kind(self.name, tuple(self.fill.tolist()), self.gaps, span=span, whole=whole)


class _DatePart(_NumberPart):
    """Means of the parts of dates, and which parts vary."""

    n_features = len(DATE_PARTS)

    def __init__(self, name: str, given: str | None) -> None:
        super().__init__(name)
        self.given = given
        self.zones: set[str] = set()

    def raw(self, values: pd.Series) -> FloatArray:
        clocks = read_times(values, self.given)
        if clocks.local.notna().any():
            self.zones.add(clocks.zone)
        return date_parts(clocks.local)

    def merge(self, other: Any) -> None:
        super().merge(other)
        self.zones |= other.zones

    def column(self, targets: tuple[str, ...], without: int | None) -> Column:
        varies = self.observed.low < self.observed.high
        varies[0] |= not varies.any()
        kept = tuple(part for part, kept in zip(DATE_PARTS, varies, strict=True) if kept)
        fill = tuple(self.fill[varies].tolist())
        zone = next(iter(self.zones)) if len(self.zones) == 1 else ""
        whole = bool(self.observed.whole[0])
        return Dates(self.name, fill, self.gaps, (), kept, self.given, zone, whole)


class _TextPart:
    """The categories of a column, with sums of the weights and targets by fold."""

    def __init__(self, name: str) -> None:
        self.name, self.gaps = name, False
        self.numbers: dict[str, int] = {}
        self.order: tuple[str, ...] | None = None
        self.sums: FloatArray = np.zeros((FOLDS, 0, 0))  # (folds, categories, 1 + targets)

    def add(
        self, values: pd.Series, weights: FloatArray, targets: FloatArray, folds: IntArray
    ) -> None:
        if isinstance(values.dtype, pd.CategoricalDtype) and values.cat.ordered:
            self.order = tuple(texts(values.cat.categories.to_series()))
        labels = texts(values)
        present = labels.notna().to_numpy()
        self.gaps = self.gaps or not present.all()
        local, found = pd.factorize(short(labels[present]))
        terms = np.column_stack([np.ones(len(targets)), targets])[present]
        own = self._places(found, terms.shape[1])
        np.add.at(self.sums, (folds[present], own[local]), weights[present][:, None] * terms)

    def merge(self, other: Any) -> None:
        self.order = self.order if other.order is None else other.order
        self.gaps = self.gaps or other.gaps
        own = self._places(other.numbers, other.sums.shape[2])
        self.sums[:, own, : other.sums.shape[2]] += other.sums

    def _places(self, labels: Iterable[str], n_sums: int) -> IntArray:
        """Return the places of categories in the sums, which new ones extend."""
        own = [self.numbers.setdefault(one, len(self.numbers)) for one in labels]
        shape = np.maximum(self.sums.shape, (FOLDS, len(self.numbers), n_sums))
        self.sums = np.pad(self.sums, [(0, new) for new in shape - self.sums.shape])
        return np.array(own, dtype=int)

    def column(self, targets: tuple[str, ...], without: int | None) -> Column:
        categories = tuple(sorted(self.numbers))
        each = self.sums[:, [self.numbers[one] for one in categories]]
        if self.order is not None and 2 <= len(self.order) <= MAX_ONE_HOT:
            known = dict(zip(categories, each[..., 0].sum(axis=0), strict=True))
            rows = np.array([known.get(one, 0.0) for one in self.order])
            above = rows[::-1].cumsum()[::-1][1:] / (rows.sum() or 1.0)
            return Ordered(self.name, tuple(above.tolist()), self.gaps, categories=self.order)
        rows = each[..., 0].sum(axis=0)
        if len(categories) == 2:
            share = float(rows[1] / (rows.sum() or 1.0))
            return Binary(self.name, (share,), self.gaps, categories=categories)
        if len(categories) <= MAX_ONE_HOT:
            shares = np.zeros_like(rows) if self.gaps else rows / (rows.sum() or 1.0)
            return Categories(self.name, tuple(shares.tolist()), self.gaps, categories=categories)
        total = each.sum(axis=(0, 1))
        # Of all rows, for every fold: else a category of one row would tell its fold, and so y.
        mean = total[1:] / (total[0] or 1.0)
        each = each[np.arange(FOLDS) != without].sum(axis=0)
        means = (each[:, 1:] + PRIOR_ROWS * mean) / (each[:, :1] + PRIOR_ROWS)
        return Statistics(
            self.name,
            tuple(mean.tolist()),
            self.gaps,
            categories=categories,
            targets=tuple(targets),
            means=tuple(map(tuple, means.tolist())),
        )


class _IgnoredPart:
    """Whether some of the values are missing, and others are not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.missing: set[bool] = set()

    def add(
        self, values: pd.Series, weights: FloatArray, targets: FloatArray, folds: IntArray
    ) -> None:
        self.missing.update(values.isna().unique().tolist())

    def merge(self, other: Any) -> None:
        self.missing |= other.missing

    def column(self, targets: tuple[str, ...], without: int | None) -> Column:
        return Ignored(self.name, (), len(self.missing) > 1)


_Part = _NumberPart | _TextPart | _IgnoredPart
_PARTS: dict[Kind, type[_Part]] = {
    "numbers": _NumberPart,
    "text": _TextPart,
    "ignored": _IgnoredPart,
}
