"""Formats of dates in frames and in CSV files, and dates of other types."""

import datetime as dt
import re
import warnings
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from bayestree import (
    AlternatingTreeClassifier,
    UnknownCategoryWarning,
    UnusedColumnsWarning,
    export_rules,
    export_text,
)
from bayestree._utils.wording import Days, Times
from bayestree.runs.rows import read_rows
from tests.export.readers import COMPARE, FLIPPED
from tests.export.test_rules import chain
from tests.runs.cases import run_file

WHEN = pd.Series(pd.date_range("2021-01-30 22:04:05.25", periods=60, freq="593h7min"))
LABELS = np.where(np.arange(60) % 2, "odd", "even")
#: Formats, and the unit to which their texts state times.
DATES = {
    # ISO 8601
    "%Y-%m-%d": "D",
    "%Y-%m-%dT%H:%M": "m",
    "%Y-%m-%dT%H:%M:%S": "s",
    "%Y-%m-%dT%H:%M:%S.%f": "us",
    "%Y-%m-%dT%H:%M:%SZ": "s",
    "%Y-%m-%dT%H:%M:%S.%fZ": "us",
    "%Y-%m-%dT%H:%M:%S+01:00": "s",
    "%Y-%m-%dT%H:%M:%S-0530": "s",
    "%Y-%m-%dT%H:%M:%S+01": "s",
    "%Y%m%dT%H%M%S": "s",
    "%Y%m%dT%H%M%SZ": "s",
    "%Y%m%d %H:%M": "m",
    "%Y-%m": "M",
    # with blanks, as databases and data frames write them
    "%Y-%m-%d %H:%M": "m",
    "%Y-%m-%d %H:%M:%S": "s",
    "%Y-%m-%d %H:%M:%S.%f": "us",
    "%Y-%m-%d %H:%M:%S,%f": "us",
    "%Y-%m-%d %H:%M:%S+00:00": "s",
    "%Y-%m-%d %H:%M:%S.%f +0200": "us",
    "%Y-%m-%d %H:%M:%S UTC": "s",
    "%Y-%m-%d %H:%M:%S CET": "s",
    "%Y-%m-%dT%H:%M:%S+01:00[Europe/Berlin]": "s",
    "%Y/%m/%d": "D",
    "%Y/%m/%d %H:%M:%S": "s",
    "%Y.%m.%d": "D",
    # the month first
    "%m/%d/%Y": "D",
    "%m/%d/%Y %H:%M": "m",
    "%m/%d/%Y %I:%M %p": "m",
    "%m/%d/%Y %I:%M:%S %p": "s",
    "%m/%d/%Y, %I:%M:%S\u202f%p": "s",
    "%m/%d/%Y %I:%M%p": "m",
    "%m/%d/%y": "D",
    "%m/%d/%y %H:%M": "m",
    "%m-%d-%Y": "D",
    # the day first
    "%d/%m/%Y": "D",
    "%d/%m/%Y %H:%M:%S": "s",
    "%d/%m/%Y %I:%M %p": "m",
    "%d/%m/%y": "D",
    "%d-%m-%Y": "D",
    "%d-%m-%Y %H:%M": "m",
    "%d.%m.%Y": "D",
    "%d.%m.%Y %H:%M": "m",
    "%d.%m.%Y, %H:%M:%S": "s",
    "%d.%m.%y": "D",
    # names of months
    "%d %b %Y": "D",
    "%d %B %Y": "D",
    "%d. %B %Y": "D",
    "%d-%b-%Y": "D",
    "%d-%b-%y": "D",
    "%d%b%Y": "D",
    "%d%b%Y:%H:%M:%S": "s",
    "%dth %B %Y": "D",
    "%b %d, %Y": "D",
    "%b. %d, %Y": "D",
    "%B %d, %Y": "D",
    "%B %d, %Y %I:%M %p": "m",
    # with weekdays
    "%a, %d %b %Y": "D",
    "%A, %B %d, %Y": "D",
    "%a, %d %b %Y %H:%M:%S GMT": "s",
    "%a, %d %b %Y %H:%M:%S +0200": "s",
    "%a %b %d %H:%M:%S %Y": "s",
    "%a %b %d %H:%M:%S CET %Y": "s",
    "%a %b %d %Y %H:%M:%S GMT+0100 (Central European Standard Time)": "s",
}
#: Columns of which many look like dates.
OTHERS = {
    "codes": WHEN.dt.strftime("%Y%m%d").astype(int),
    "years": WHEN.dt.year,
    "seconds": WHEN.astype("int64"),
    "times": WHEN.dt.strftime("%H:%M:%S"),
    "versions": [f"v{i % 9}.{i // 9}.{i % 7}" for i in range(60)],
    "phones": [f"555-{100 + i}-{2000 + i}" for i in range(60)],
    "articles": [f"A-{i}-2024" for i in range(60)],
    "weeks": WHEN.dt.strftime("%G-W%V-%u"),
    "quarters": [f"Q{i % 4 + 1} {1960 + i}" for i in range(60)],
    "impossible": [f"2024-02-{30 + i % 2} {i:02}:00" for i in range(24)] * 2 + ["2024-13-01"] * 12,
    "names": [f"Marble {i} Junk 20{i:02}" for i in range(60)],
    "years first, of two digits": WHEN.dt.strftime("%y-%m-%d"),
    "months": WHEN.dt.strftime("%b %Y"),
    "logs": WHEN.dt.strftime("%d/%b/%Y:%H:%M:%S"),
    "German": [f"{i % 28 + 1}. Dezember 2021 {i}" for i in range(60)],
}


@pytest.fixture(params=["frame", "file"])
def encoded(request, tmp_path):
    """Encodes a table, as an estimator does or as a run does with a CSV file."""

    def encode(frame):
        if request.param == "frame":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnusedColumnsWarning)
                return AlternatingTreeClassifier(max_depth=1).fit(frame, LABELS).encoding_
        frame.assign(label=LABELS).to_csv(tmp_path / "t.csv", index=False)
        data = {"path": "t.csv", "target": "label", "drop": [], "test_fraction": 0.0}
        found = read_rows(run_file(tmp_path, data=data))
        for remark in found.remarks:
            warnings.warn(remark, UserWarning, stacklevel=1)
        return found.encoding

    return encode


def column(encoding, name):
    return encoding.columns[encoding.number(name)]


def parse(texts, encoded):
    frame = pd.DataFrame({"day": texts})
    return column(encoded(frame), "day").shown(frame["day"])


class TestFormats:
    def test_dates(self, encoded):
        frame = pd.DataFrame({form: WHEN.dt.strftime(form) for form in DATES})
        encoding = encoded(frame)
        for form, unit in DATES.items():
            found = column(encoding, form)
            assert found.kind == "dates", form
            expected = WHEN.to_numpy().astype(f"datetime64[{unit}]").tolist()
            shown = np.array(found.shown(frame[form]), dtype="datetime64[us]")
            assert (shown == np.array(expected, dtype="datetime64[us]")).all(), form

    def test_others(self, encoded):
        frame = pd.DataFrame(OTHERS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # columns that the fit ignores
            encoding = encoded(frame)
        assert {one.name for one in encoding.columns} == {*OTHERS}
        assert [one.name for one in encoding.columns if one.kind == "dates"] == []

    @pytest.mark.parametrize(
        ("last", "first"),
        [("05/13/24", "1990-05-01"), ("13/05/24", "1990-01-05"), ("13.05.24", "1990-01-05")],
    )
    def test_one_row_tells_the_order(self, encoded, last, first):
        mark = last[2]
        texts = [f"05{mark}0{i % 9 + 1}{mark}{90 + i // 9}" for i in range(59)]
        assert parse([*texts, last], encoded)[0] == pd.Timestamp(first)

    @pytest.mark.parametrize(
        ("form", "read"),
        [
            ("%d/%m/%Y", "2000-01-02 or 2000-02-01"),
            ("%m-%d-%Y", "2000-02-01 or 2000-01-02"),
            ("%d/%m/%y", "2000-01-02 or 2000-02-01"),
        ],
    )
    def test_nothing_tells_the_order(self, encoded, form, read):
        """First days of months may also be days of January; with points, the day is first."""
        when = pd.Series(pd.date_range("2000-01-01", periods=60, freq="MS"))
        with pytest.raises(ValueError, match=f"which may be {read}; write all dates like"):
            parse(when.dt.strftime(form), encoded)
        assert parse(when.dt.strftime("%d.%m.%y"), encoded) == when.tolist()

    def test_times_and_zones_may_differ(self, encoded):
        texts = ["2024-01-31", "2024-01-31T10:15", "2024-01-31 10:15:30.5Z", "31/01/2024 9:15 pm"]
        days = [f"{day:02}/02/2024 08:00" for day in range(1, 29)] * 2
        shown = parse([*texts, *days], encoded)
        days = ["2024-01-31", "2024-01-31 10:15", "2024-01-31 10:15:30.5", "2024-01-31 21:15"]
        assert shown[:4] == [*map(pd.Timestamp, days)]

    def test_several_formats(self, encoded):
        texts = ["13/02/2020", *(f"02/{day}/2020" for day in range(1, 29))]
        with pytest.raises(
            ValueError,
            match="column 'day' holds dates in several formats, such as '02/1/2020' and "
            "'13/02/2020'; write all dates like 2024-01-31",
        ):
            parse([*texts, *[None] * 31], encoded)

    def test_a_mistake_among_dates(self, encoded, request):
        """It is refused in a file; in a frame, the column stays text."""
        texts = WHEN.dt.strftime("%d.%m.%Y").where(WHEN.index != 3, "unknown")
        table = pd.DataFrame({"day": texts, "other": range(len(texts))})
        said = r"column 'day' holds dates in 59 of 60 rows, .* holds 'unknown'[;:] .*list it"
        if request.node.callspec.params["encoded"] == "file":
            with pytest.raises(ValueError, match=said):
                encoded(table)
        else:
            with (
                pytest.warns(UserWarning, match=said),
                pytest.warns(UserWarning, match="column 'other' holds a different whole number"),
            ):
                assert column(encoded(table), "day").kind == "ignored"

    def test_many_mistakes_among_dates(self, encoded):
        texts = WHEN.dt.strftime("%Y-%m-%d").where(WHEN.index % 5 != 1, "unknown")
        with pytest.warns(
            UserWarning, match=r"dates in 48 of 60 rows, and .* because row 2 holds 'unknown'"
        ):
            assert encoded(pd.DataFrame({"day": texts})).columns[0].kind == "statistics"

    def test_seasons_are_not_months(self, encoded):
        texts = [f"{year}-{(year + 1) % 100:02}" for year in range(2000, 2030)] * 2
        assert encoded(pd.DataFrame({"season": texts})).columns[0].kind == "categories"


class TestClocks:
    """A time is the one that the clock showed; new rows are converted to it if it is known."""

    ZONE = ZoneInfo("Europe/Berlin")
    AT = pd.date_range("2024-03-30 20:30", periods=60, freq="31min", tz=ZONE)

    def test_change_to_summer_time(self, encoded):
        texts = self.AT.map(lambda at: at.isoformat())
        assert {text[-6:] for text in texts} == {"+01:00", "+02:00"}
        assert parse(texts, encoded) == [*self.AT.tz_localize(None)]

    @pytest.mark.parametrize(
        "form", ["%Y-%m-%dT%H:%MZ", "%d %b %Y %H:%M +0530", "%Y-%m-%d %H:%M-03:30"]
    )
    def test_new_rows_of_another_clock(self, encoded, form):
        texts = pd.Series(self.AT.tz_localize(None).strftime(form))
        column = encoded(pd.DataFrame({"day": texts})).columns[0]
        given = pd.to_datetime(texts, utc=True)
        for same in (
            given,
            given.dt.tz_convert("Asia/Tokyo"),
            given.map(lambda at: at.isoformat()),
        ):
            np.testing.assert_array_equal(column.raw(same), column.raw(texts))
        assert column.shown(texts) == [*self.AT.tz_localize(None)]


TYPES = {
    **{
        f"datetime64[{unit}]": pd.Series(["2024-01-31T10:15", None], dtype=f"datetime64[{unit}]")
        for unit in ("s", "ms", "us", "ns")
    },
    "zone": pd.Series(["2024-01-31T10:15", None], dtype="datetime64[us]").dt.tz_localize(
        "Asia/Tokyo"
    ),
    "dateutil": pd.Series([pd.Timestamp("2024-01-31T10:15", tz="dateutil/Europe/Berlin"), pd.NaT]),
    "Arrow": pd.Series([dt.datetime(2024, 1, 31, 10, 15), None]).astype("timestamp[us][pyarrow]"),
    "datetime": [dt.datetime(2024, 1, 31, 10, 15), None],
    "aware": [dt.datetime(2024, 1, 31, 10, 15, tzinfo=ZoneInfo("Asia/Tokyo")), pd.NaT],
    "several zones": [
        dt.datetime(2024, 1, 31, 10, 15, tzinfo=dt.UTC),
        None,
        dt.datetime(2024, 1, 31, 10, 15, tzinfo=ZoneInfo("Asia/Tokyo")),
        dt.datetime(2024, 1, 31, 10, 15),
    ],
    "dates among times": [pd.Timestamp("2024-01-31T10:15"), None, dt.date(2024, 2, 1)],
    "periods": pd.PeriodIndex(["2024-01-31T10:15", None], freq="min"),
    "objects": [pd.Period("2024-01-31T10:15", "min"), None],
}
#: Dates that nanoseconds cannot count.
FAR = {
    "datetime64[s]": np.array(["0001-01-01", "9999-12-31"] * 30, dtype="datetime64[s]"),
    "dates": [dt.date(1, 1, 1), dt.date(9999, 12, 31)] * 30,
    "datetimes": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)] * 30,
    "periods": pd.PeriodIndex(["0001-01-01", "9999-12-31"] * 30, freq="D"),
    "text": [*(f"{year:04}-01-01" for year in range(1, 60)), "9999-12-31"],
    "German text": [*(f"01.02.{year:04}" for year in range(1500, 1559)), "31.12.9999"],
}


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
@pytest.mark.parametrize("values", TYPES.values(), ids=TYPES)
def test_other_types(values):
    frame = pd.DataFrame({"day": pd.Series(values, dtype=getattr(values, "dtype", object))})
    y = ["a", "b", "a", "b"][: len(frame)]
    fitted = AlternatingTreeClassifier(max_depth=1).fit(frame, y)
    found = fitted.encoding_.columns[0]
    assert found.kind == "dates"
    assert found.gaps
    shown = found.shown(frame["day"])
    assert shown[0] == pd.Timestamp("2024-01-31T10:15")
    assert [pd.isna(one) for one in shown] == frame["day"].isna().tolist()
    assert len(fitted.predict(frame)) == len(frame)


@pytest.mark.parametrize("values", FAR.values(), ids=FAR)
def test_years_that_nanoseconds_cannot_count(values):
    frame = pd.DataFrame({"day": values})
    if frame["day"].map(type).eq(str).all() and pd.__version__ < "3":
        pytest.skip("pandas 2 reads text as nanoseconds: such years are missing, with a warning")
    encoding = AlternatingTreeClassifier(max_depth=1).fit(frame, LABELS).encoding_
    days = encoding.encode(frame)["day (days)"].to_numpy()
    assert days[-1] == (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
    assert days[0] < -100_000


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("hours", [[0], [12], [0, 7 + 1 / 3]])
def test_limits_are_dates_that_tell_the_same_rows_apart(hours, sign):
    """Whole days need no time; where the time is the same in all rows, it is still stated."""
    times = pd.Timestamp("2019-01-30") + pd.to_timedelta(np.arange(60) * 24.0, unit="h")
    frame = pd.DataFrame({"start": times + pd.to_timedelta(np.resize(hours, 60), unit="h")})
    encoding = AlternatingTreeClassifier(max_depth=1).fit(frame, LABELS).encoding_
    X, names = encoding.encode(frame).to_numpy(), encoding.feature_names
    days, plane = X[:, 0], sign * np.eye(1, len(names))
    for low in [days[5], *np.random.default_rng(0).uniform(days[3], days[30], 20)]:
        ends = (low, low + 9.3)[::sign]  # what is beyond the second end goes right, then the first
        tree = chain([*plane, *-plane], [-sign * ends[1], sign * ends[0]], names=names)
        *rules, _ = export_rules(tree).splitlines()
        for rule, leaf in zip(rules, (2, 1), strict=True):
            least, below, above, most = re.search(
                r"\((?:(\S+ ?\S*) (<=?) )?start (?:([<>]=?) (.+?))\)", rule
            ).groups()
            held = COMPARE[above](frame["start"], pd.Timestamp(most))
            if least:
                held &= COMPARE[FLIPPED[below]](frame["start"], pd.Timestamp(least))
            assert (held == (tree.apply(X) == leaf)).all(), rule
            assert bool(re.search(r"\d:\d", rule)) <= (hours != [0])
        condition = re.search("left if  (.*)", export_text(tree))[1]
        assert condition.rpartition(" ")[2] in "".join(rules)


def test_midnight_is_a_time_among_times_and_a_day_among_days():
    assert Days("start (days)").date(19_802, up=True) == "2024-03-20"
    assert Times("start (days)").date(19_802, up=True) == "2024-03-20 00:00"
    assert Days("start (days)").date(-1e6, up=True) == "-1000000"  # before the year 1


def test_sums_count_days():
    """Since 1970 in facets, and in leaves since a day near the mean of all rows."""
    plane, when = [[0.5, 1.0]], Days("start (days)")
    tree = chain(plane, [-10_000.0], names=(when, "age"))
    assert "(age + 0.5 days of start since 1970 <= 10000)" in export_rules(tree)
    tree = replace(
        tree,
        value=np.array([7.0, 0.0]),
        slope=np.array([[0.5, 0.0], [0.0, 0.0]]),
        center=np.array([17962.6, 0.0]),
        scale=np.array([100.0, 1.0]),
    )
    assert "mean = 6.7 + 0.5 days of start since 2019-03-07" in export_text(tree)


@pytest.mark.parametrize("value", ["soon", "31/31/2024", "2024-01-31 25:00", 20240131, True])
def test_new_rows_that_hold_no_date(encoded, value):
    """They count as missing."""
    frame = pd.DataFrame({"day": WHEN.dt.strftime("%d/%m/%Y").where(WHEN.index != 3)})
    encoding = encoded(frame)
    new = pd.DataFrame({"day": pd.Series([value, frame["day"][0], None], dtype=object)})
    with pytest.warns(UnknownCategoryWarning) as caught:
        encoding.warn_unknown(new)
    (said,) = [str(one.message) for one in caught]
    assert said == (
        f"column 'day': 1 row holds a value that cannot be read as a date ({str(value)!r}); it "
        "counts as a missing one. If it is a date, write all dates like 2024-01-31."
    )
    found = encoding.encode(new).to_numpy()
    np.testing.assert_array_equal(found[0], found[2])
    assert found[:, -1].tolist() == [1, 0, 1]
    portable = encoding.portable(new)["day"]
    assert np.isnan(portable).tolist() == [True, False, True]
