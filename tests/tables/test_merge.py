"""Tables that are read in parts, by objects that are merged: the same as in one pass."""

import pickle
from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree._utils.wording import CellError, InputError
from bayestree.tables import Learner, profiling
from bayestree.tables.columns import Texts
from bayestree.tables.profiling import TableProfile, _Distinct
from tests.sampling import quickly

DAYS = pd.Series(pd.date_range("1999-11-28 03:00", periods=400, freq="25h"))


def _at(rng, n):
    return pd.Series(rng.choice(DAYS, n))


def _texts(prefix, n_levels):
    return lambda rng, n: pd.Series([f"{prefix}{one}" for one in rng.integers(n_levels, size=n)])


def _dates(*formats):
    def made(rng, n):
        forms = rng.choice(formats, n)
        return pd.Series([f"{day:{form}}" for day, form in zip(_at(rng, n), forms, strict=True)])

    return made


#: Columns (n,) of all kinds, and of values that are refused or doubtful.
COLUMNS = {
    "numbers": lambda rng, n: pd.Series(rng.normal(size=n)),
    "with codes": lambda rng, n: pd.Series(rng.choice([*range(30), 999, -9999], n) * 1.0),
    "doses": lambda rng, n: pd.Series(rng.choice([1, 2, 3, 4, 500, 1e20], n)),
    "integers": lambda rng, n: pd.Series(rng.integers(9, size=n)),
    "booleans": lambda rng, n: pd.Series(rng.random(n) < 0.5),
    "rising": lambda rng, n: pd.Series(rng.integers(1, 90, n).cumsum()),
    "falling": lambda rng, n: pd.Series(-rng.integers(1, 90, n).cumsum()),
    "dense": lambda rng, n: pd.Series(rng.permutation(n) - 7),
    "sparse": lambda rng, n: pd.Series(rng.permutation(9 * n)[:n]),
    "nearly different": lambda rng, n: pd.Series(np.r_[0, rng.permutation(n)][:n]),
    "Unnamed: 0": lambda rng, n: pd.Series(rng.permutation(5 * n)[:n]),
    "few texts": _texts("t", 3),
    "many texts": _texts("t", 90),
    "text identifiers": lambda rng, n: pd.Series([f"n{one}" for one in rng.permutation(n)]),
    "nearly text identifiers": lambda rng, n: pd.Series(
        [f"n{one}" for one in rng.permutation(n) % (n - n // 12)]
    ),
    "identifiers, then gaps": lambda rng, n: pd.Series(
        [f"n{i}" if i < n // 2 or i % 3 else None for i in range(n)]
    ),
    "numbers as text": _texts("", 500),
    "some codes as text": lambda rng, n: pd.Series([f"{i:02}" for i in rng.integers(999, size=n)]),
    "marked numbers": _texts("1,", 500),
    "levels": lambda rng, n: pd.Series(rng.choice(["S", "M", "L"], n)).astype(
        pd.CategoricalDtype(["S", "M", "L"], ordered=True)
    ),
    "categories": lambda rng, n: pd.Series(rng.integers(40, size=n)).astype("category"),
    "ISO dates": _dates("%Y-%m-%d", "%Y-%m-%dT%H:%M"),
    "American or British dates": _dates("%d/%m/%Y"),
    "dates and zones": _dates("%Y-%m-%d %H:%M+01:00", "%Y-%m-%d %H:%M+02:00"),
    "dates in two formats": _dates("%d.%m.%Y", "%d %B %Y"),
    "timestamps": _at,
    "instants": lambda rng, n: _at(rng, n).dt.tz_localize("Europe/Berlin"),
    "instants of two zones": lambda rng, n: pd.Series(
        [one.tz_localize(zone) for one in _at(rng, n) for zone in rng.choice(["UTC", "CET"], 1)]
    ),
    "spans": lambda rng, n: _at(rng, n) - DAYS[0],
    "constant": lambda rng, n: pd.Series(np.full(n, 3)),
    "empty": lambda rng, n: pd.Series(np.full(n, None)),
    "of two types": lambda rng, n: pd.Series(np.where(np.arange(n) < n // 2, None, "text")),
    "text, then numbers": lambda rng, n: pd.Series([*["a"] * (n // 2), *range(n - n // 2)]),
}
TEXTS = [name for name in COLUMNS if " text" in name or "dates" in name or name[:6] == "marked"]
#: What may happen to the values of a column in some rows.
SPOILT = {
    "missing": lambda one: None,
    "infinite": lambda one: -np.inf if isinstance(one, float) else one,
    "too large": lambda one: 1e200 if isinstance(one, float) else one,
    "odd": lambda one: "odd?" if isinstance(one, str) and len(one) > 1 else one,  # not levels
}
#: Types of the same values: of the table, as if read alone, of objects, and pandas' own.
TYPED = (
    lambda chunk: chunk,
    lambda chunk: chunk.infer_objects(),
    lambda chunk: chunk.astype(object),
    lambda chunk: chunk.apply(
        lambda one: one.cat.remove_unused_categories() if one.dtype == "category" else one
    ),
    lambda chunk: chunk.convert_dtypes(),
)


@st.composite
def chunked_tables(draw, names):
    """Chunks of a table, whose index holds the numbers of its rows, by parts of the table."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([200, 30, 3]))
    columns = {}
    for name in names:
        columns[name] = column = COLUMNS[name](rng, n)
        if spoil := SPOILT.get(draw(st.sampled_from(["", *SPOILT]))):
            places = rng.random(n) < draw(st.sampled_from([0.02, 0.05, 1.0]))
            changed = [
                spoil(one) if here else one for one, here in zip(column, places, strict=True)
            ]
            keeps = column.dtype if column.dtype in ("category", float) else None
            columns[name] = pd.Series(changed, dtype=keeps)
    frame = pd.DataFrame(columns)
    ends = sorted(draw(st.sets(st.integers(1, n - 1), min_size=2, max_size=5)))
    chunks = [
        draw(st.sampled_from(TYPED))(frame.iloc[start:end])
        for start, end in pairwise([0, *ends, n])
    ]
    splits = sorted(draw(st.lists(st.integers(0, len(chunks)), min_size=1, max_size=3)))
    return [chunks[start:end] for start, end in pairwise([0, *splits, len(chunks)])], rng


def in_parts(parts, begin):
    """Read each part by an object of its own, which ``begin`` makes, and merge them in order."""
    merged, n_rows = begin(0), 0
    for number, part in enumerate(parts):
        one = begin(n_rows) if number else merged
        for frame, *others in part:
            one.add(frame, *others)
            n_rows += len(frame)
        if number:
            merged.merge(pickle.loads(pickle.dumps(one)))
    return merged


def outcome(compute):
    """Return a result, or what an error says."""
    try:
        return compute()
    except CellError as error:
        return str(error), error.row, error.column, error.missing
    except InputError as error:
        return str(error)


def leaves(nested, path=()):
    """Return the numbers of lists and dicts by their places; other values belong to the place."""
    if not isinstance(nested, dict | list | tuple):
        return {path: nested} if isinstance(nested, float) else {(*path, nested): 0.0}
    pairs = nested.items() if isinstance(nested, dict) else enumerate(nested)
    return {place: leaf for key, one in pairs for place, leaf in leaves(one, (*path, key)).items()}


def profiled(parts, typed):
    frames = [[(frame,) for frame in part] for part in parts]
    names = [*next(frame for part in parts for frame in part)][:3]  # a fourth is a target
    read = in_parts(frames, lambda first: TableProfile(names, codes={names[0]: (3,)}))
    return read.check(typed=typed), read.kinds, read.formats, read.ignored, read.doubts


def learned(parts, kinds, formats):
    learner = in_parts(parts, lambda first: Learner(kinds, ["p", "q"], formats, first=first))
    found = learner.learned()
    return leaves([one.to_json() for one in (found.encoding, *found.by_fold)])


SEVERAL = st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=4, unique=True)


@pytest.mark.parametrize("names", quickly([SEVERAL, *([name] for name in COLUMNS)], quick=(0,)))
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), typed=st.booleans(), limit=st.sampled_from([1_000_000, 40]))
def test_merged_parts_are_one_pass(names, data, typed, limit):
    names = data.draw(names) if names is SEVERAL else names
    parts, rng = data.draw(chunked_tables(names))
    whole = [[*chain(*parts)]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling, "MAX_HASHES", limit)
        expected = outcome(lambda: profiled(whole, typed))
        assert outcome(lambda: profiled(parts, typed)) == expected
    if len(expected) != 5:
        return
    _, kinds, formats, *_ = expected
    rows = [
        [
            (frame, rng.random((len(frame), 2)), rng.integers(3, size=len(frame)) / 2)
            for frame in part
        ]
        for part in parts
    ]
    expected = outcome(lambda: learned([[*chain(*rows)]], kinds, formats))
    found = outcome(lambda: learned(rows, kinds, formats))
    if isinstance(expected, dict):
        # Sums of some hundred numbers near 1 up to rounding; others are exact.
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    else:
        assert found == expected


def test_codes_are_counted_among_the_rows_of_all_parts():
    frame = pd.DataFrame({"size": np.r_[np.arange(60.0), 999, 999]})
    *_, (doubt,) = profiled([[frame[:20]], [frame[20:30], frame[30:]]], typed=True)
    assert "'size' holds 999 in 2 of 62 rows" in doubt


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_parts_are_all_texts(name):
    rng = np.random.default_rng(0)
    column = COLUMNS[name](rng, 300)
    column = column.where(rng.random(300) < 0.95, [f"odd{i}" for i in range(300)])
    parts = [column[:120], column[120:150], column[150:]]
    whole = in_parts([[(part,) for part in parts]], lambda first: Texts(name))
    merged = in_parts([[(part,)] for part in parts], lambda first: Texts(name))
    assert [*merged.kinds] == [*whole.kinds], "in the order of the rows"
    assert vars(merged) == vars(whole)


WIDE = 5 * np.arange(300)


@pytest.mark.parametrize("limit", [1_000_000, 50])
@pytest.mark.parametrize(
    ("values", "count", "count_rows"),
    [
        (WIDE, 300, True),
        (-WIDE, 300, True),
        (np.random.default_rng(0).permutation(300), 300, True),
        (np.random.default_rng(0).permutation(WIDE), 300, False),
        (np.roll(WIDE, 100), 300, False),  # rises in each part
        (np.r_[WIDE[:250], WIDE[251], WIDE[250], WIDE[252:]], 300, False),
        (np.r_[np.arange(149, -1, -1), 700, 150:299], 300, False),  # rows without 299
        (np.tile(np.random.default_rng(0).permutation(100), 3), 0, False),
    ],
)
def test_numbers_that_count_rows(values, count, count_rows, limit, monkeypatch):
    monkeypatch.setattr(profiling, "MAX_HASHES", limit)
    parts = [pd.Series(part) for part in np.split(values, 3)]
    for read in ([[(part,) for part in parts]], [[(part,)] for part in parts]):
        found = in_parts(read, lambda first: _Distinct())
        assert (found.count, found.count_rows) == (count, count_rows)
        assert len(pickle.dumps(found)) < 1000 + 16 * limit


def test_texts_repeat_however_they_come_in_chunks(monkeypatch):
    """Forty of 2,000 occur twice, far apart: too many for an identifier where 39 are."""
    texts = pd.Series([f"t{i % 1960}" for i in range(2000)])
    for most, expected in ((40, 0.02), (39, 1.0)):
        monkeypatch.setattr(profiling, "MAX_REPEATS", most)
        for n_chunks in (1, 10):
            chunks = [(texts.iloc[part],) for part in np.array_split(np.arange(2000), n_chunks)]
            found = in_parts([[one] for one in chunks], lambda first: _Distinct())
            assert found.repeated == expected
