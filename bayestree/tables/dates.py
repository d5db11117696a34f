"""Dates and times: text in many formats, and the clocks that show them."""

import re
from collections.abc import Iterable
from datetime import timedelta, timezone
from functools import cache
from typing import Any, Final, NamedTuple
from zoneinfo import available_timezones

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray
from bayestree._utils.wording import CellError, InputError, brief, refuse_cells

UNIT: Final = "datetime64[us]"  # for the years 1 to 9999, which nanoseconds cannot count
FEW = 20  # this many different dates or numbers may still be categories
MANY = 100  # this many different texts tell the kind of a column
CODE = r"\d+|(?!\d\d\.\d\d\.)\d\d?\.\d\d?\.\d\d"  # 20240131 and 1.2.34, of codes and versions
REMEDY = "write all dates like 2024-01-31"

#: Formats of dates, without the time that may follow. Where a column does not decide between
#: several, the first of them is taken.
FORMATS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y"),
    *("%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%d.%m.%Y", "%m.%d.%Y"),
    *("%m/%d/%y", "%d/%m/%y", "%y/%m/%d", "%m-%d-%y", "%d-%m-%y", "%y-%m-%d"),
    *("%d.%m.%y", "%m.%d.%y", "%y.%m.%d"),
    *("%d %b %Y", "%d. %b %Y", "%d-%b-%Y", "%d/%b/%Y", "%d%b%Y", "%d %b, %Y"),
    *("%d %b %y", "%d. %b %y", "%d-%b-%y", "%d/%b/%y", "%d%b%y"),
    *("%b %d, %Y", "%b %d %Y", "%b-%d-%Y", "%Y-%b-%d", "%Y %b %d", "%Y/%b/%d"),
    *("%b %Y", "%b-%Y", "%Y %b", "%Y-%b"),
)
#: A time in a text, and the zone of its clock.
TIME = re.compile(
    r"(?:T|:|,? )(?P<hour>\d\d?)(?:(?<=T\d\d)|:)(?P<minute>\d\d)"
    r"(?:(?:(?<=T\d{4})|:)(?P<second>\d\d(?:[.,]\d+)?))?(?:\s?(?P<half>[AaPp])\.?[Mm]\b\.?)?"
    r"(?: ?(?P<zone>(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?|[A-Z]{3,5}|Z)\b(?: \(.*\)|\[.*\])?)?"
)
#: What a date can do without: its weekday, and the ends of ordinal numbers.
EXCESS = re.compile(
    r"^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? |(?<=\d)(?:st|nd|rd|th)\b", re.IGNORECASE
)
MONTH = re.compile(
    r"(?<![a-z])(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?:uary|ruary|ch|il|e|y|ust|t|"
    r"tember|ober|ember)?(?:\.|(?![a-z]))",
    re.IGNORECASE,
)


class Clocks(NamedTuple):
    """Times (n,) as clocks show them, and by how much these are ahead of UTC.

    Times are NaT where they are missing or cannot be read, and ``ahead`` is NaT where the clock is
    not known. ``zone`` is common to all clocks, or empty.
    """

    local: pd.Series
    ahead: pd.Series
    zone: str

    @classmethod
    def of(cls, column: pd.Series, text_format: str | None) -> "Clocks":
        """Read dates of any type; text has the format ``text_format`` or ISO 8601."""
        is_given = column.notna().to_numpy()
        given = column[is_given]
        kind = pd.api.types.infer_dtype(given)
        local: Any = given
        ahead: Any = "NaT"
        zones: set[str] = set()
        if isinstance(given.dtype, pd.DatetimeTZDtype):
            local = given.dt.tz_localize(None)
            ahead = local - given.dt.tz_convert("UTC").dt.tz_localize(None)
            zones = {str(given.dt.tz)}
        elif kind in ("datetime", "date"):
            zones = {str(getattr(one, "tzinfo", None)) for one in given}
            ahead = [one.utcoffset() if getattr(one, "tzinfo", None) else None for one in given]
            local = [_without_zone(one) for one in given]
        elif kind == "period":
            local = pd.PeriodIndex(given).asfreq("s", how="S").asi8.astype("datetime64[s]")
        elif kind != "datetime64":
            parts = _Parts.of(given)
            stated = {one: _ahead(one) for one in set(parts.zone)}
            zones = {str(None if one is None else timezone(one)) for one in stated.values()}
            ahead = [stated[one] for one in parts.zone]
            local = parts.read(text_format)
        zone = zones.pop() if len(zones) == 1 else ""
        known = zone in _zones() or zone.startswith("UTC")
        times = _spread(local, UNIT, column, is_given)
        return cls(
            times, _spread(ahead, "timedelta64[us]", column, is_given), zone if known else ""
        )

    def in_zone(self, zone: str) -> pd.Series:
        """Return times on clocks in ``zone``, or where this or the clock is not known, as shown."""
        if not zone or self.ahead.isna().all():
            return self.local
        there = (self.local - self.ahead).dt.tz_localize("UTC").dt.tz_convert(zone)
        return there.dt.tz_localize(None).fillna(self.local)


def _spread(values: Any, dtype: str, column: pd.Series, places: BoolArray) -> pd.Series:
    """Return a column with the given values at some places, and NaT at others."""
    found = np.full(len(column), "NaT", dtype=dtype)
    found[places] = np.asarray(values, dtype=dtype)
    return pd.Series(found, column.index, name=column.name)


_zones = cache(available_timezones)


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


def _ahead(zone: str | None) -> timedelta | None:
    """Return how far clocks of a zone such as ``+01:00`` are ahead; None for names like ``CET``."""
    if zone in ("Z", "UTC", "GMT"):
        return timedelta(0)
    found = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)?", zone or "")
    if found is None or int(found[2]) > 23:
        return None
    return int(found[1] + "1") * timedelta(hours=int(found[2]), minutes=int(found[3] or 0))


class _Parts(NamedTuple):
    """The parts of texts (n,): the date, the time since midnight, and the zone if it is stated.

    The time is 0 if there is none, and NaT if it does not exist.
    """

    day: pd.Series
    time: pd.Series
    zone: pd.Series

    @classmethod
    def of(cls, column: pd.Series) -> "_Parts":
        rows = [_split(str(text)) for text in column]
        return cls(
            pd.Series([row[0] for row in rows], column.index, dtype=object),
            # pandas 2 would read the numbers as nanoseconds, whatever the dtype.
            pd.Series(np.array([row[1] for row in rows], "timedelta64[us]"), column.index),
            pd.Series([row[2] for row in rows], column.index, dtype=object),
        )

    def read(self, text_format: str | None) -> pd.Series:
        """Return the times; NaT if they are none."""
        days = _read_days(self.day.unique(), text_format)
        return days.reindex(self.day).set_axis(self.day.index) + self.time


def _split(text: str) -> tuple[str, int | None, str | None]:
    """Return the date, the microseconds since midnight, and the zone."""
    found = TIME.search(text)
    if found is None:
        return text.strip(), 0, None
    hour, minute = int(found["hour"]), int(found["minute"])
    second = float((found["second"] or "0").replace(",", "."))
    exists = hour < 24 and minute < 60 and second < 60
    if found["half"]:
        exists = exists and 1 <= hour <= 12
        hour = hour % 12 + 12 * (found["half"] in "Pp")
    time = round(((hour * 60 + minute) * 60 + second) * 1e6) if exists else None
    return (text[: found.start()] + text[found.end() :]).strip(), time, found["zone"]


def _read_days(days: Iterable[str], text_format: str | None) -> pd.Series:
    """Return the dates of different texts, by text; NaT if they are none."""
    texts = pd.Series([*days], [*days], dtype=object).map(_plain)
    iso = texts.where(texts.str.match(r"\d{4}\D"))
    found = pd.to_datetime(iso, errors="coerce", format="ISO8601").astype(UNIT)
    if text_format is None:
        return found
    return pd.to_datetime(texts, errors="coerce", format=text_format).astype(UNIT).fillna(found)


def _plain(day: str) -> str:
    """Return a date without its weekday, and with short names of months."""
    return MONTH.sub(lambda name: name[1], EXCESS.sub("", " ".join(day.split())))


def _shape(day: str) -> str:
    """Return a date with letters for its numbers and for the name of its month."""
    numbers = {1: "0", 2: "0", 4: "Y", 8: "Y00"}
    day = MONTH.sub("b", _plain(day))
    return re.sub(r"\d+", lambda found: numbers.get(len(found[0]), "?"), day)


@cache
def _formats_by_shape() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in FORMATS:
        example = one.replace("%Y", "2001").replace("%b", "Jan")
        found.setdefault(_shape(re.sub("%[dmy]", "01", example)), []).append(one)
    return found


def _readings(days: Iterable[str]) -> dict[str, pd.Series]:
    """Return what different texts are by each format that some of them may have."""
    shapes = set(map(_shape, days))
    formats = {one for shape in shapes for one in _formats_by_shape().get(shape, [])}
    return {one: _read_days(days, one) for one in FORMATS if one in formats}


class DateTexts:
    """The texts of a column that may be dates, examined chunk by chunk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_rows = self.n_dates = 0
        self.days: dict[str, str] = {}  # different dates without their times, and a text of each
        self.first_other: tuple[int, str] | None = None

    def add(self, labels: pd.Series, counts: pd.Series) -> None:
        """Read texts, indexed by row; ``counts`` says how often each occurs."""
        self.n_rows += len(labels)
        texts = pd.Series(counts.index, dtype=object)
        if len(texts) > MANY and self._examine(texts[:MANY]).mean() < 0.5:
            return
        is_date = self._examine(texts)
        self.n_dates += int(counts.to_numpy()[is_date].sum())
        if self.first_other is None and not is_date.all():
            other = texts[~is_date].iloc[0]  # counts are in the order of the rows
            self.first_other = int(labels.index[labels == other][0]), other

    def merge(self, other: "DateTexts") -> None:
        """Include the texts of the following rows."""
        self.n_rows += other.n_rows
        self.n_dates += other.n_dates
        self.days |= other.days
        self.first_other = self.first_other or other.first_other

    def _examine(self, texts: pd.Series) -> BoolArray:
        """Return which texts are dates; these are kept."""
        parts = _Parts.of(texts)
        days = parts.day.unique()
        known = pd.DataFrame(_readings(days), index=days).notna().any(axis=1)
        is_date = parts.day.map(known) & parts.time.notna() & ~texts.str.fullmatch(CODE)
        self.days |= dict(zip(parts.day[is_date], texts[is_date], strict=True))
        return is_date.to_numpy(dtype=bool)

    def check(self, *, typed: bool) -> bool:
        """Return whether all texts are dates; if nearly all are, the others are refused in files.

        ``typed`` tables were not read from a file.
        """
        share = 0.5 if len(self.days) > MANY else 0.9
        if typed or self.first_other is None or self.n_dates < share * self.n_rows:
            return self.n_dates == self.n_rows > 0
        row, value = self.first_other
        others = self.n_rows - self.n_dates
        raise CellError(
            f"{self._found()}, but",
            row,
            f" holds {brief(value)}{f', the first of {others}' if others > 1 else ''}; list it in "
            f"missing_values if it stands for a missing date, or {REMEDY}, or drop the column.",
            column=self.name,
        )

    def warnings(self) -> list[str]:
        """Return a warning about dates that are treated as categories."""
        if self.first_other is None or len(self.days) <= FEW or 2 * self.n_dates < self.n_rows:
            return []
        row, value = self.first_other
        return [
            f"{self._found()}, and is treated as categorical because row {row + 1} holds "
            f"{brief(value)}: if it stands for a missing date, list it in missing_values."
        ]

    def _found(self) -> str:
        return f"column {self.name!r} holds dates in {self.n_dates} of {self.n_rows} rows"

    def choose(self) -> tuple[str, list[str]]:
        """Return the format of the dates, and a warning if they could have another one.

        Of several formats that fit all dates, it is the one with the most different months, then
        with the fewest different years: many dates are the first days of months.
        """
        days = [*self.days]
        readings = _readings(days)
        fits = {one: when for one, when in readings.items() if when.notna().all()}
        if not fits:
            odd = max(readings.values(), key=lambda when: when.notna().sum()).isna()
            texts = [self.days[days[int(place)]] for place in (odd.argmin(), odd.argmax())]
            raise InputError(
                f"column {self.name!r} holds dates in several formats, such as {texts[0]!r} and "
                f"{texts[1]!r}; {REMEDY}, or drop the column."
            )
        chosen = max(fits, key=lambda one: _order(fits[one]))
        for when in fits.values():
            told = (when.dt.month == fits[chosen].dt.month).all()  # by years that vary less
            differs = (when != fits[chosen]).to_numpy()
            if differs.any() and not (told and _order(when) < _order(fits[chosen])):
                text = self.days[days[int(differs.argmax())]]
                read, other = (f"{one[differs].iloc[0]:%Y-%m-%d}" for one in (fits[chosen], when))
                return chosen, [
                    f"column {self.name!r} holds dates like {text!r}, which is read as {read} but "
                    f"could be {other}; if it is, {REMEDY}."
                ]
        return chosen, []


def _order(when: pd.Series) -> tuple[int, int]:
    """Return how plausible it is that days, months and years are in this order."""
    return when.dt.month.nunique(), -when.dt.year.nunique()


def read_times(column: pd.Series, text_format: str | None) -> Clocks:
    """Read dates of any type, and refuse all other values."""
    found = Clocks.of(column, text_format)
    odd = (found.local.isna() & column.notna()).to_numpy()
    refuse_cells(column, odd, "dates", f"{REMEDY}, or drop the row")
    return found
