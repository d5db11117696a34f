"""Dates and times: text in many formats, and the clocks that show them."""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta, timezone
from functools import cache
from typing import Any, Final, NamedTuple
from zoneinfo import available_timezones

import numpy as np
import pandas as pd

from bayestree._utils.arrays import BoolArray
from bayestree._utils.wording import InputError, refuse_cells

UNIT: Final = "datetime64[us]"  # for the years 1 to 9999, which nanoseconds cannot count
NOT_DATES = r"\d+|(?!\d\d\.\d\d\.)\d\d?\.\d\d?\.\d\d"  # 20240131 and 1.2.34, of codes and versions
REMEDY = "write all dates like 2024-01-31"

#: Formats of dates, without the time that may follow. None is ISO 8601, also with / or . for -.
FORMATS = (
    *(None, "%Y%m%d"),
    *("%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%d.%m.%Y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y"),
    *("%d %b %Y", "%d. %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d%b%Y", "%b %d, %Y", "%b %d %Y"),
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
            local = [t.replace(tzinfo=None) if getattr(t, "tzinfo", None) else t for t in given]
        elif kind == "period":
            local = pd.PeriodIndex(given).asfreq("s", how="S").asi8.astype("datetime64[s]")
        elif kind != "datetime64":
            parts = Parts.of(given)
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


def _ahead(zone: str | None) -> timedelta | None:
    """Return how far clocks of a zone such as ``+01:00`` are ahead; None for names like ``CET``."""
    if zone in ("Z", "UTC", "GMT"):
        return timedelta(0)
    found = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)?", zone or "")
    if found is None or int(found[2]) > 23:
        return None
    return int(found[1] + "1") * timedelta(hours=int(found[2]), minutes=int(found[3] or 0))


class Parts(NamedTuple):
    """The parts of texts (n,): the date, the time since midnight, and the zone if it is stated.

    The time is 0 if there is none, and NaT if it does not exist.
    """

    day: pd.Series
    time: pd.Series
    zone: pd.Series

    @classmethod
    def of(cls, column: pd.Series) -> "Parts":
        texts = column.astype(object).map(str)
        found = texts.str.extract(TIME).astype(object)
        hour, minute, second = (
            pd.to_numeric(found[one].str.replace(",", ".")).fillna(0.0)
            for one in ("hour", "minute", "second")
        )
        half = found["half"].notna()
        exists = (hour < 24) & (minute < 60) & (second < 60) & (~half | hour.between(1, 12))
        hour = hour.where(~half, hour % 12 + 12 * found["half"].isin(["P", "p"]))
        time = pd.to_timedelta(((hour * 60 + minute) * 60 + second).mul(1e6).round(), unit="us")
        day = texts.str.replace(TIME, "", n=1, regex=True).str.strip()
        zone = found["zone"].where(found["zone"].notna(), None)
        return cls(day, time.where(exists).astype("timedelta64[us]"), zone)

    def read(self, text_format: str | None) -> pd.Series:
        """Return the times; NaT if they are none."""
        days = read_days(self.day.unique(), [text_format])[text_format]
        return days.reindex(self.day).set_axis(self.day.index) + self.time


def read_days(days: Iterable[str], formats: Iterable[str | None]) -> dict[str | None, pd.Series]:
    """Return the dates of different texts, by text, for each format; NaT if they are none.

    Dates in ISO 8601 are read in any case.
    """
    texts = pd.Series([*days], [*days], dtype=object).map(_plain)
    iso = _dates(texts.where(texts.str.match(r"\d{4}\D")), "ISO8601")
    return {one: iso if one is None else _dates(texts, one).fillna(iso) for one in formats}


def _dates(texts: pd.Series, text_format: str) -> pd.Series:
    return pd.to_datetime(texts, errors="coerce", format=text_format).astype(UNIT)


def _plain(day: str) -> str:
    """Return a date without its weekday, and with short names of months."""
    return MONTH.sub(lambda name: name[1], EXCESS.sub("", " ".join(day.split())))


def find_dates(texts: pd.Series) -> tuple[BoolArray, dict[str, str]]:
    """Return which texts are dates; also their days, without times, with a text of each."""
    parts = Parts.of(texts)
    days = parts.day.unique()
    known = pd.DataFrame(read_days(days, FORMATS), index=days).notna().any(axis=1)
    found = parts.day.map(known) & parts.time.notna() & ~texts.str.fullmatch(NOT_DATES)
    return found.to_numpy(dtype=bool), dict(zip(parts.day[found], texts[found], strict=True))


def common_format(name: str, texts: Mapping[str, str]) -> str | None:
    """Return the only format that fits all days of a column; None is ISO 8601.

    ``texts`` has a text for each day, for messages.
    """
    days = [*texts]
    readings = read_days(days, FORMATS)
    fits = {one: when for one, when in readings.items() if when.notna().all()}
    if not fits:
        odd = max(readings.values(), key=lambda when: when.notna().sum()).isna()
        one, other = (texts[days[int(place)]] for place in (odd.argmin(), odd.argmax()))
        raise InputError(
            f"column {name!r} holds dates in several formats, such as {one!r} and {other!r}; "
            f"{REMEDY}, or drop the column."
        )
    (chosen, when), *others = fits.items()
    for _, also in others:
        if (differs := (when != also).to_numpy()).any():
            text = texts[days[int(differs.argmax())]]
            read = " or ".join(f"{each[differs].iloc[0]:%Y-%m-%d}" for each in (when, also))
            raise InputError(
                f"column {name!r} holds dates like {text!r}, which may be {read}; {REMEDY}, or "
                "drop the column."
            )
    return chosen


def read_times(column: pd.Series, text_format: str | None) -> Clocks:
    """Read dates of any type, and refuse all other values."""
    found = Clocks.of(column, text_format)
    odd = (found.local.isna() & column.notna()).to_numpy()
    refuse_cells(column, odd, "dates", f"{REMEDY}, or drop the row")
    return found
