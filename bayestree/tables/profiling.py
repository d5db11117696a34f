"""Checks of the columns of a table, chunk by chunk: their kinds, identifiers, likely codes."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pandas as pd
from pandas.util import hash_pandas_object

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.tables import columns
from bayestree.tables.dates import common_format

FIRST = 100  # rows in which most columns repeat a value
RARE = 0.02  # share of rows that repeat the text of another, up to which it is like an identifier
MAX_REPEATS = 100_000  # such rows, beyond which it is none
MAX_SPREAD = 2  # numbers of a part of the rows still lie this close, relative to their number
MAX_HASHES = 1_000_000  # values of a column that are compared with each other


class _Distinct:
    """How many values of a column are different, and whether whole numbers count the rows.

    Values of a chunk are compared with each other, and by their hashes with those of other chunks:
    all, or of more than ``MAX_HASHES`` those with the smallest hashes. These are a random sample of
    the different values, with all rows of each, whatever the order of the rows, so that it misses
    repeated values only if they are rare (bottom-k sketch, Cohen and Kaplan 2007).
    """

    def __init__(self) -> None:
        self.n_values = self._n_repeats = 0  # the latter within chunks
        self._hashes: list[AnyArray] | None = []  # None if many values are equal
        self._ends = np.empty(0)  # the first, last, least and largest number, in the order of rows
        self._signs: set[float] = set()  # of the steps from number to number

    def add(self, column: pd.Series) -> None:
        """Read a chunk."""
        if self._hashes is None:
            return
        present = column.dropna()
        whole = pd.api.types.is_integer_dtype(present)
        first = present.head(FIRST).duplicated().sum() if whole else 0
        self._n_repeats += int(first or present.duplicated().sum())
        if self._n_repeats > (0 if whole else MAX_REPEATS):
            self._hashes = None
            return
        found = np.empty(0)
        if whole:
            found = present.to_numpy(dtype=float)
            present = pd.Series(present.to_numpy(dtype=np.int64))  # hashes depend on the type
        hashes = hash_pandas_object(present, index=False).to_numpy()
        self._follow([hashes], len(present), found)

    def merge(self, other: "_Distinct") -> None:
        """Include the values of the following rows."""
        self._n_repeats += other._n_repeats
        if self._hashes is None or other._hashes is None or self._n_repeats > MAX_REPEATS:
            self._hashes = None
        else:
            self._follow(other._hashes, other.n_values, other._ends)
            self._signs |= other._signs

    def _follow(self, hashes: list[AnyArray], n_values: int, found: FloatArray) -> None:
        """Include values by their hashes, and ``found``, those of them that are whole numbers."""
        assert self._hashes is not None
        self._hashes += hashes
        if sum(map(len, self._hashes)) > 2 * MAX_HASHES:
            self._hashes = [self._least()]
        self.n_values += n_values
        joined = np.concatenate([self._ends, found])
        self._signs.update(np.unique(np.sign(np.diff(joined))).tolist())
        if len(joined):
            ends = {0, int(joined.argmin()), int(joined.argmax()), len(joined) - 1}
            self._ends = joined[sorted(ends)]

    def _least(self) -> AnyArray:
        """Return the hashes that are compared."""
        every = np.concatenate([np.empty(0, np.uint64), *(self._hashes or ())])
        return every if len(every) <= MAX_HASHES else np.partition(every, MAX_HASHES)[:MAX_HASHES]

    @property
    def count(self) -> int:
        """Number of values; 0 if some are equal."""
        return 0 if self.repeated else self.n_values

    @property
    def repeated(self) -> float:
        """Share of the values that are equal to others before them; 1 if there are many."""
        found = pd.Index(self._least())
        equal = int(found.duplicated().sum())
        many = self._hashes is None or equal > MAX_REPEATS  # however the rows come in chunks
        return 1.0 if many else equal / max(len(found), 1)

    @property
    def count_rows(self) -> bool:
        """Whether different numbers rise or fall from row to row, or leave out few numbers."""
        n = self.count
        ordered = self._signs in ({1.0}, {-1.0})
        return n > columns.FEW and bool(ordered or np.ptp(self._ends) < MAX_SPREAD * n)


KEPT = 3  # different values at each end, apart from values that look like codes
MIN_ROWS = 20
FAR = 10.0  # distance of any number from the others, relative to their range, to be reported
MAX_SHARE = 0.05  # of the rows: more common numbers are levels, such as doses
REPEATED = re.compile("77+|88+|9+[6-9]")
#: Limits of integers and of single precision, and the fill value of netCDF.
LIMITS = {
    *(2.0**bits - 1 for bits in (15, 16, 31, 32)),
    *(2.0**bits for bits in (15, 31, 63)),
    float(np.finfo(np.float32).max),
    9.969209968386869e36,
}


class Sentinels:
    """The smallest and largest values of a column of numbers, with their numbers of rows."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._ends: Counter[float] = Counter()

    def add(self, values: FloatArray) -> None:
        """Read a chunk; NaN is missing."""
        present = values[np.isfinite(values)]
        self._include(len(values), _ends(present))

    def merge(self, other: "Sentinels") -> None:
        """Include the values of the following rows."""
        self._include(other.n_rows, other._ends)

    def _include(self, n_rows: int, ends: Mapping[float, int]) -> None:
        self.n_rows += n_rows
        self._ends.update(ends)
        kept = _ends(np.array([*self._ends]))
        self._ends = Counter({value: self._ends[value] for value in kept})

    def found(self) -> list[tuple[float, int]]:
        """Return the values that may be codes, with their numbers of rows."""
        plain = sorted(value for value in self._ends if not _is_code(value))
        if self.n_rows < MIN_ROWS or len(plain) < KEPT:
            return []
        found = {*self._codes(plain[0], plain[-1]), *self._others(plain)}
        return [(value, self._ends[value]) for value in sorted(found)]

    def _codes(self, low: float, high: float) -> Iterator[float]:
        """Yield usual codes farther from the other values than these are from each other."""
        for value, count in self._ends.items():
            far = max(low - value, value - high) > high - low
            # Short ones may be values by chance, and a lone negative number among others not.
            if _is_code(value) and (far or value < 0 <= low) and (abs(value) >= 100 or count > 1):
                yield value

    def _others(self, plain: list[float]) -> Iterator[float]:
        """Yield repeated values at either end that are much farther from the others."""
        for end, following, *_, last in (plain, plain[::-1]):
            far = abs(end - following) > FAR * abs(last - following)
            if far and 1 < self._ends[end] < MAX_SHARE * self.n_rows:
                yield end


def _ends(values: FloatArray) -> dict[float, int]:
    """Return the outermost values at both ends, with their numbers."""
    found = {}
    for sign in (1.0, -1.0):
        rest, plain = values, 0
        while len(rest) and plain < KEPT:
            value = sign * (sign * rest).max()
            same = rest == value
            found[float(value)] = int(same.sum())
            plain += not _is_code(value)
            rest = rest[~same]
    return found


def _is_code(value: float) -> bool:
    """Return whether a number is a usual code: -9, 77, 999, -99.9, 1e20 or a limit of integers."""
    size = abs(value)
    digits = f"{size:.15g}"
    if "." in digits and value > 0:  # a price
        return False
    if REPEATED.fullmatch(digits.replace(".", "")) or value == -9:
        return True
    return size in LIMITS or (size >= 1e9 and size == 10.0 ** round(math.log10(size)))


def _are_merged(column: pd.Series) -> bool:
    """Return whether some different numbers of a column are the same float."""
    found = columns.read_numbers(column)
    return bool((found.abs() > columns.EXACT).any()) and found.nunique() < column.nunique()


class UnusedColumnsWarning(UserWarning):
    """Columns of X that are not used by the fit, such as constant columns and identifiers."""


class DoubtfulColumnsWarning(UserWarning):
    """Columns that are used although their values may not mean what they seem to.

    Examples are codes for missing values, numbers as text, and row numbers.
    """


class TableProfile:
    """Checks of a table that is read in chunks, with messages about the whole table.

    Parts of a table can be read by several surveys, which :meth:`merge` joins.
    ``features`` are the columns to predict from; only their values may be missing, or stated by
    ``codes``. Columns in ``keep`` are never ignored. ``kinds`` belong to the features; ``formats``,
    of dates that are stated as text, ``ignored``, the messages about ignored columns by name, and
    ``doubts``, the other warnings, are set by :meth:`check`.
    """

    def __init__(
        self,
        features: Collection[str],
        keep: Collection[str] = (),
        codes: Mapping[str, columns.Codes] | None = None,
    ) -> None:
        self.kinds: dict[str, columns.Kind] = dict.fromkeys(features, "numbers")
        self.formats: dict[str, str | None] = {}
        self.ignored: dict[str, str] = {}
        self.doubts: list[str] = []
        self._keep, self.codes = tuple(keep), codes or {}
        self._invalid = columns.InvalidValues()
        self._texts: dict[str, columns.Texts] = {}
        self._distinct = {name: _Distinct() for name in features}
        self._sentinels = {name: Sentinels() for name in features}
        self._merged: set[str] = set()  # columns in which different integers are the same float

    def add(self, frame: pd.DataFrame) -> None:
        """Read a chunk, indexed by row number in the whole table."""
        own = {
            name: columns.without_codes(frame[name], codes) for name, codes in self.codes.items()
        }
        frame = frame.assign(**own)
        self._invalid.add(frame)
        for name, before in self.kinds.items():
            column = frame[name]
            here = columns.kind_of(column)
            if before == "numbers":
                self.kinds[name] = here
            if here == "text" and not isinstance(column.dtype, pd.CategoricalDtype):
                self._texts.setdefault(name, columns.Texts(name)).add(column)
            if here == "numbers" and column.dtype.kind in "iuO" and _are_merged(column.dropna()):
                self._merged.add(name)
            if here == "text" or pd.api.types.is_integer_dtype(column):
                self._distinct[name].add(column)
            if pd.api.types.is_any_real_numeric_dtype(column):
                self._sentinels[name].add(column.to_numpy(dtype=float, na_value=np.nan))

    def merge(self, other: "TableProfile") -> None:
        """Include the following rows, which a profile of the same columns has read."""
        self._invalid.merge(other._invalid)
        self._merged |= other._merged
        for name, texts in other._texts.items():
            self._texts.setdefault(name, columns.Texts(name)).merge(texts)
        for name, before in self.kinds.items():
            if before == "numbers":
                self.kinds[name] = other.kinds[name]
            self._distinct[name].merge(other._distinct[name])
            self._sentinels[name].merge(other._sentinels[name])

    def check(self, *, typed: bool = False) -> list[str]:
        """Refuse a table that cannot be used; otherwise set ``ignored`` and return the warnings.

        Text among numbers is refused, unless the table is ``typed``: it was not read from a file,
        where a single malformed number makes text of a column.
        """
        self._invalid.check(gaps=self.kinds, remedy=columns.DROP)
        for name, texts in self._texts.items():
            if texts.are_dates(typed=typed):
                self.kinds[name] = "dates"
                self.formats[name] = common_format(name, texts.days)
            else:
                if not typed:
                    texts.check()
                self.doubts += texts.date_warnings()
        reasons = {
            name: "is unnamed and empty" if columns.UNNAMED.fullmatch(name) else "is empty"
            for name in self._invalid.empty
        }
        reasons |= self._identifiers()
        self.ignored = {
            name: f"column {name!r} {reason}; ignored."
            for name, reason in reasons.items()
            if name in self.kinds and name not in self._keep
        }
        self.kinds |= dict.fromkeys(self.ignored, "ignored")
        text = [one for name, one in self._texts.items() if self.kinds[name] == "text"]
        self.doubts += [
            f"column {name!r} holds integers beyond 2^53, some of which are the same number to the "
            "fit: drop it if it is an identifier, or subtract a constant."
            for name in sorted(self._merged)
        ]
        self.doubts += [doubt for texts in text for doubt in texts.warnings(typed=typed)]
        self.doubts += [
            f"column {name!r} holds {columns.text_of(value)} in {count} of {one.n_rows} rows, far "
            "from all other values: if it is a code for missing, list it in missing_values."
            for name, one in self._sentinels.items()
            for value, count in one.found()
        ]
        return [*self.ignored.values(), *self.doubts]

    def _identifiers(self) -> dict[str, str]:
        """Explain why columns that tell rows apart are ignored; other ones become doubts."""
        reasons = {}
        for name, kind in self.kinds.items():
            values = self._distinct[name]
            if kind == "text" and values.n_values > columns.FEW and values.repeated <= RARE:
                each = "nearly every" if values.repeated else "every"
                reasons[name] = f"holds a different text in {each} row, like an identifier"
                if name in self._texts and self._texts[name].are_numbers:
                    reasons[name] = (
                        f"holds numbers as text, and a different text in {each} row; if it is a "
                        "quantity, convert it to numbers"
                    )
            elif kind == "numbers" and columns.UNNAMED.fullmatch(name) and values.count:
                reasons[name] = "is unnamed and looks like a row index"
            elif kind == "numbers" and values.count_rows:
                self.doubts.append(
                    f"column {name!r} holds a different whole number in every row, like an "
                    "identifier or a count of the rows: if it is one, drop it."
                )
        return reasons
