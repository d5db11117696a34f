"""Tables: reading, encoding and checks."""

import json
import string
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.tables import (
    Encoding,
    InputError,
    Learner,
    check_complete,
    is_text,
    kind_of,
    open_table,
    read_extra,
    read_target,
    read_weights,
    target_columns,
)
from bayestree.tables.columns import numbers
from bayestree.tables.learning import _folds
from bayestree.tables.profiling import TableProfile


def read_table(path, text=()):
    (frame,) = open_table(path, text, whole=True).chunks()
    return frame


def learned(frame, y=None, weights=None, **kinds):
    n = len(frame)
    targets = target_columns(np.zeros(n) if y is None else np.asarray(y))
    kinds = {str(name): kind_of(column) for name, column in frame.items()} | kinds
    learner = Learner(kinds, [*targets], {})
    learner.add(
        frame, np.column_stack([*targets.values()]), np.ones(n) if weights is None else weights
    )
    return learner.learned()


def encoding_of(frame, *args, **kinds):
    return learned(frame, *args, **kinds).encoding


TEXT = st.text(string.ascii_letters + " ,\"'äß=1", min_size=1, max_size=5).filter(
    lambda text: text.strip() == text and text.lower() not in {"na", "nan", "null", "none"}
)


@st.composite
def tables(draw):
    n = draw(st.integers(1, 6))
    columns = draw(st.lists(st.text(string.ascii_letters, min_size=1), min_size=1, unique=True))
    number = st.floats(-1e6, 1e6, allow_subnormal=False)
    return pd.DataFrame(
        {
            name: draw(
                st.lists(number, min_size=n, max_size=n) | st.lists(TEXT, min_size=n, max_size=n)
            )
            for name in columns
        }
    )


class TestTables:
    @settings(max_examples=20, deadline=None)
    @given(frame=tables())
    def test_files_keep_what_was_written(self, frame, tmp_path_factory):
        folder = tmp_path_factory.getbasetemp()
        encoding = encoding_of(frame)
        expected = encoding.encode(frame)
        frame.to_csv(folder / "t.csv", index=False)
        frame.to_parquet(folder / "t.parquet")
        for name in ("t.csv", "t.parquet"):
            read = read_table(folder / name, text=encoding.text)
            found, unknown = encoding.encode(read), {}
            encoding.count_unknown(read, unknown)
            assert not any(unknown.values())
            pd.testing.assert_frame_equal(found, expected)

    @settings(max_examples=50, deadline=None)
    @given(frame=tables(), data=st.data())
    def test_order_and_other_columns_do_not_matter(self, frame, data):
        encoding = Encoding.from_json(json.loads(json.dumps(encoding_of(frame).to_json())))
        assert encoding == encoding_of(frame)
        mixed = frame[data.draw(st.permutations(list(frame.columns)))].assign(**{"1": 0})
        pd.testing.assert_frame_equal(encoding.encode(frame), encoding.encode(mixed))
        assert list(encoding.encode(frame)) == encoding.feature_names

    @settings(max_examples=50, deadline=None)
    @given(frame=tables())
    def test_one_hot(self, frame):
        features = encoding_of(frame).encode(frame)
        for name, column in frame.items():
            if is_text(column):
                for value in sorted(column.unique())[column.nunique() == 2 :]:
                    assert (features[f"{name}={value}"] == (column == value)).all()

    @pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
    def test_names_of_features_are_plain_strings(self):
        # Before version 3, pandas keeps the classes of the names. scikit-learn refuses such names.
        frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "t": ["u", "v", "w"]})
        with pd.option_context("future.infer_string", False):
            names = encoding_of(frame).encode(frame).columns
        assert [*names] == ["a", "a missing", "t=u", "t=v", "t=w"]
        assert {*map(type, names)} == {str}

    @settings(max_examples=100, deadline=None)
    @given(content=st.binary(max_size=60))
    def test_any_bytes_are_a_table_or_refused(self, content, tmp_path_factory):
        for name in ("any.csv", "any.parquet", "any.csv.gz"):
            path = tmp_path_factory.getbasetemp() / name
            path.write_bytes(content)
            try:
                frame = read_table(path)
            except InputError:
                continue
            assert len(frame) > 0

    def test_long_rows_are_refused_whatever_the_warnings(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("size,kind\n1,a,x\n2,b,y\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(InputError, match="cannot be read as a CSV"):
                read_table(path)

    def test_numbers_stay_text_where_training_had_text(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("code\n01\n02\n")
        encoding = encoding_of(pd.DataFrame({"code": ["01", "0"]}))
        assert encoding.encode(read_table(path, text=["code"]))["code=01"].tolist() == [1, 0.5]

    def test_kinds_of_columns(self):
        assert is_text(pd.Series(["a", None]))
        assert is_text(pd.Series(["a", "b"], dtype="category"))
        assert not is_text(pd.Series([1, 2], dtype="category"))
        assert not is_text(pd.Series([True, None], dtype=object))
        assert not is_text(pd.Series([1, 2], dtype="Int64"))
        with pytest.raises(InputError, match="holds mixed"):
            is_text(pd.Series([[1], "a"]))

        assert kind_of(pd.Series([1, 2], dtype="category")) == "text", "as its type says"
        assert kind_of(pd.Series(pd.to_timedelta([1, 2]))) == "numbers"
        assert kind_of(pd.Series([None, None])) == "numbers"

    def test_features_of_one_name(self):
        with pytest.raises(InputError, match="two features would be named 'a=b'"):
            encoding_of(pd.DataFrame({"a": ["b"], "a=b": [1]}))

    @pytest.mark.parametrize(
        ("values", "task", "kind"),
        [
            (["a", "b", "a"], "classification", "O"),
            ([0, 1, 1], "classification", "i"),
            ([0.0, 1.0, 1.0], "classification", "i"),
            ([True, False, False], "classification", "b"),
            ([0.5, 1.0, 1.0], "regression", "f"),
            (list(range(21)), "regression", "f"),
            (list(range(20)), "classification", "i"),
        ],
    )
    def test_targets(self, values, task, kind):
        found, y = read_target(pd.Series(values, name="y"))
        assert (found, y.dtype.kind) == (task, kind)
        assert y.tolist() == values

    def test_a_target_of_text_that_states_numbers(self):
        task, y = read_target(pd.Series(["1.5", "2", "2"], name="y"), "regression")
        assert (task, y.tolist()) == ("regression", [1.5, 2.0, 2.0])

    def test_targets_that_do_not_suit(self):
        text, number = pd.Series(["a", "b", "a"], name="y"), pd.Series([0.5, 1.0], name="y")
        with pytest.raises(InputError, match="'y' should hold numbers, but row 1 holds 'a'"):
            read_target(text, "regression")
        with pytest.raises(InputError, match=r"holds 0\.5, which is not a class"):
            read_target(number, "classification")
        with pytest.raises(InputError, match="one class, 1; two are needed"):
            read_target(pd.Series([1, 1], name="y"))
        assert read_target(pd.Series([1, 1]), "regression")[0] == "regression"

    def test_weights(self):
        assert read_weights(pd.Series([0, 2])).tolist() == [0.0, 2.0]
        for bad in ([0, 0], [-1, 2]):
            with pytest.raises(InputError, match="zero or more and not all zero"):
                read_weights(pd.Series(bad, name="w"))

    @pytest.mark.parametrize(
        ("purpose", "values", "said"),
        [
            ("exposure", [1, 0, -2], "'e' should hold exposures above 0, but row 2 holds '0'"),
            ("event", [1, 0, 2], "'e' should hold events: .* but row 3 holds '2'; .* as event"),
        ],
    )
    def test_exposures_and_events(self, purpose, values, said):
        column = pd.Series(values, name="e", dtype=object)
        assert read_extra(column[:1], purpose).tolist() == [1.0]
        with pytest.raises(InputError, match=said):
            read_extra(column, purpose)

    def test_missing_values_of_many_columns(self):
        frame = pd.DataFrame(np.full((3, 12), np.nan)).rename(columns=str)
        frame.loc[0] = 1.0
        said = r"24 missing values \('0': 2, .* and 4 more\), first at row 2; impute them"
        with pytest.raises(InputError, match=said):
            check_complete(frame)

    def test_a_column_without_values(self):
        frame = pd.DataFrame({"a": [1.0, np.nan], "b": [np.nan, np.nan]})
        with pytest.raises(InputError, match="column 'b' is empty"):
            check_complete(frame)


class TestEncoding:
    def test_missing_numbers_become_the_mean_and_a_feature(self):
        frame = pd.DataFrame({"a": [1.0, np.nan, 4.0, 7.0], "b": [0.0, 1.0, 2.0, 3.0]})
        found = encoding_of(frame, None, np.array([1.0, 1.0, 1.0, 0.5]))
        assert found.feature_names == ["a", "a missing", "b"]
        mean = (1 + 4 + 3.5) / 2.5
        rows = found.encode(frame.assign(b=[np.nan, 1, 2, 3]))
        assert rows["a"].tolist() == [1, mean, 4, 7]
        assert rows["a missing"].tolist() == [0, 1, 0, 0]
        assert rows["b"][0] == pytest.approx((0 + 1 + 2 + 1.5) / 3.5), "only at prediction"

    def test_rows_without_weight_teach_nothing(self):
        frame = pd.DataFrame({"a": [np.nan, 1.0, 2.0], "b": ["x", "y", "z"]})
        assert encoding_of(frame, None, np.array([0.0, 1.0, 1.0])) == encoding_of(frame[1:])

    def test_categories(self):
        frame = pd.DataFrame({"c": ["b", None, "a", "c", "c"]})
        found = encoding_of(frame)
        assert found.feature_names == ["c=a", "c=b", "c=c", "c missing"]
        complete = encoding_of(frame.drop(1))
        gap = complete.encode(pd.DataFrame({"c": [None]})).to_numpy().tolist()
        assert gap == [[0.25, 0.25, 0.5]], "the mean, where there is no feature of missing values"
        rows = found.encode(frame[:3]).to_numpy().tolist()
        assert rows == [[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
        new = pd.DataFrame({"c": ["new", "a"]})
        assert found.encode(new).to_numpy().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]

    def test_two_categories_are_one_feature(self):
        frame = pd.DataFrame({"c": ["b", None, "a", "a", "a"]})
        found = encoding_of(frame)
        assert found.feature_names == ["c=b", "c missing"]
        rows = found.encode(pd.DataFrame({"c": ["b", "a", None, "new"]})).to_numpy().tolist()
        assert rows == [[1, 0], [0, 0], [0.25, 1], [0.25, 0]], "unknown ones are the mean"
        assert Encoding.from_json(json.loads(json.dumps(found.to_json()))) == found

    def test_ordered_categories(self):
        sizes = pd.Categorical(["S", "L", None, "S"], ["S", "M", "L"], ordered=True)
        frame = pd.DataFrame({"size": sizes})
        found = encoding_of(frame)
        assert found.feature_names == ["size>=M", "size>=L", "size missing"]
        third = 1 / 3  # of the sizes that are known
        assert found.encode(frame).to_numpy() == pytest.approx(
            np.array([[0, 0, 0], [1, 1, 0], [third, third, 1], [0, 0, 0]])
        )

    @pytest.mark.parametrize("kind", ["zone", "text", "periods", "objects"])
    def test_dates(self, kind):
        days = pd.Series(pd.to_datetime(["2024-01-31", "2024-02-03", None, "1970-01-02"]))
        values = {
            "zone": days.dt.tz_localize("Europe/Berlin"),
            "text": days.dt.strftime("%Y-%m-%d"),
            "periods": days.dt.to_period("D"),
            "objects": days.dt.date.astype(object),
        }[kind]
        frame = pd.DataFrame({"day": values})
        found = encoding_of(frame, day="dates")
        names = ["day (days)", "day (month)", "day (day)", "day (weekday)", "day missing"]
        assert found.feature_names == names, "the hour is always 0"
        rows = found.encode(frame).to_numpy()
        assert rows[0].tolist() == [19753, 1, 31, 2, 0]
        assert rows[3].tolist() == [1, 1, 2, 4, 0]
        assert rows[2] == pytest.approx([*rows[[0, 1, 3], :4].mean(axis=0), 1])

    def test_hours_and_spans(self):
        frame = pd.DataFrame(
            {
                "at": pd.to_datetime(["2024-01-31 06:00", "2024-01-31 07:30"]),
                "for": pd.to_timedelta(["6h", "36h"]),
            }
        )
        found = encoding_of(frame)
        assert found.feature_names == ["at (days)", "at (hour)", "for"]
        assert found.encode(frame).to_numpy().tolist() == [
            [19753.25, 6, 0.25],
            [19753.3125, 7.5, 1.5],
        ]

    @pytest.mark.parametrize(
        ("form", "known"), [("%d/%m/%Y", "%d/%m/%Y"), ("%m-%d-%Y", "%m-%d-%Y"), ("%Y-%m-%d", None)]
    )
    def test_formats_of_dates(self, form, known):
        days = pd.Series(pd.date_range("2024-01-01", periods=40))
        frame = pd.DataFrame({"day": days.dt.strftime(form)})
        profile = TableProfile(["day"])
        profile.add(frame)
        profile.check()
        assert (profile.kinds, profile.formats) == ({"day": "dates"}, {"day": known})
        learner = Learner(profile.kinds, ["mean of y"], profile.formats)
        learner.add(frame, np.zeros((40, 1)), np.ones(40))
        found = learner.learned().encoding
        alone = found.encode(frame[4:5].reset_index(drop=True))
        np.testing.assert_array_equal(alone, found.encode(frame)[4:5])
        np.testing.assert_array_equal(alone, found.encode(pd.DataFrame({"day": days[4:5]})))

    def test_clocks_of_the_training_rows(self):
        at = pd.date_range("2024-01-01", periods=5, freq="7h", tz="Europe/Berlin")
        found = encoding_of(pd.DataFrame({"at": at}))
        same = found.encode(pd.DataFrame({"at": at.tz_convert("UTC")}))
        np.testing.assert_array_equal(same, found.encode(pd.DataFrame({"at": at})))

    def test_whole_numbers_and_floats_are_the_same_category(self):
        found = encoding_of(pd.DataFrame({"c": pd.Categorical([1, 2, 3])}))
        assert found.feature_names == ["c=1", "c=2", "c=3"]
        assert found.encode(pd.DataFrame({"c": [2.0]})).to_numpy().tolist() == [[0, 1, 0]]

    @pytest.mark.parametrize("values", [[True, None], [1.0, pd.NA], pd.array([1, None], "Int64")])
    def test_missing_values_of_other_types(self, values):
        found = encoding_of(pd.DataFrame({"a": values}))
        assert found.encode(pd.DataFrame({"a": values})).to_numpy().tolist() == [[1, 0], [1, 1]]

    @pytest.mark.parametrize("value", [np.inf, "inf", "1e200"])
    def test_infinite_values_in_any_form(self, value):
        found = encoding_of(pd.DataFrame({"a": [1.0, 2.0]}))
        with pytest.raises(
            InputError, match=r"1 (infinite|too large) value \('a': 1\), first at row 2"
        ):
            found.encode(pd.DataFrame({"a": pd.Series([type(value)(1), value], dtype=object)}))

    def test_dates_in_several_formats_are_refused(self):
        frame = pd.DataFrame({"day": ["2024-01-31", "31.1.24"]})
        with pytest.raises(InputError, match=r"hold dates, but row 2 holds '31\.1\.24'; write all"):
            encoding_of(frame, day="dates")
        with pytest.raises(InputError, match="hold dates, but row 1 holds '5'"):
            encoding_of(pd.DataFrame({"day": [5]}), day="dates")

    @pytest.mark.parametrize("y", [["no", "yes", "yes"], [1.0, 2.0, 4.5], ["a", "b", "c"]])
    def test_many_categories(self, y):
        """The mean of y in each category, with ten more rows that have the mean of all."""
        names = np.array([f"n{i}" for i in np.random.default_rng(0).integers(40, size=300)])
        frame, y = pd.DataFrame({"id": names}), np.resize(y, 300)
        found = learned(frame, y)
        columns = target_columns(y)
        assert found.encoding.feature_names == [f"id: {name}" for name in columns]
        rows = found.encoding.encode(frame.assign(id=np.resize(["n3", "n7", "new"], 300)))
        for name, values in columns.items():
            mean = values.mean()
            for row, label in enumerate(["n3", "n7"]):
                own = values[names == label]
                expected = (own.sum() + 10 * mean) / (len(own) + 10)
                assert rows[f"id: {name}"][row] == pytest.approx(expected)
            assert rows[f"id: {name}"][2] == pytest.approx(mean)
        # a training row is described by rows of other folds, every fifth row being in its own
        values = next(iter(columns.values()))
        others = (_folds(0, 300) != _folds(2, 1)) & (names == names[2])
        expected = (values[others].sum() + 10 * values.mean()) / (others.sum() + 10)
        assert found.encode_training(frame)[2, 0] == pytest.approx(expected)

    def test_own_y_does_not_leak(self):
        """Labels of their own for each row would otherwise predict any y."""
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=400)
        frame = pd.DataFrame({"id": [f"n{i}" for i in range(400)]})
        feature = learned(frame, y).encode_training(frame)[:, 0]
        np.testing.assert_allclose(feature, y.mean())

    def test_folds_do_not_follow_a_period(self):
        """In a sorted panel, every category would otherwise be in a single fold."""
        states = np.arange(2000) % 50
        folds = _folds(0, 2000)
        assert min(len(np.unique(folds[states == state])) for state in range(50)) == 5
        # four standard errors of the share of a fold
        share = np.bincount(folds) / 2000
        assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 2000)
        np.testing.assert_array_equal(_folds(700, 50), folds[700:750])

    def test_a_sorted_panel(self):
        rng = np.random.default_rng(0)
        effect = rng.normal(size=50)
        states = np.arange(1000) % 50
        y = effect[states] + 0.1 * rng.normal(size=1000)
        frame = pd.DataFrame({"state": [f"s{state}" for state in states]})
        feature = learned(frame, y).encode_training(frame)[:, 0]
        assert np.corrcoef(feature, effect[states])[0, 1] > 0.9, "shrinkage alone differs"

    def test_chunks_do_not_matter_and_weights_are_copies(self):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(
            {
                "a": np.where(rng.random(200) < 0.1, np.nan, rng.normal(size=200)),
                "b": rng.choice(["x", "y", None], 200),
                "c": [f"n{i}" for i in rng.integers(50, size=200)],
                "d": pd.date_range("2024-01-01", periods=200),
            }
        )
        y, weights = rng.normal(size=200), rng.integers(4, size=200).astype(float)
        learner = Learner({str(name): kind_of(frame[name]) for name in frame}, ["mean of y"], {})
        for rows in (slice(0, 63), slice(63, 64), slice(64, 200)):
            learner.add(frame[rows], y[rows, None], weights[rows])
        found, whole = learner.learned(), learned(frame, y, weights)
        copies = np.repeat(np.arange(200), weights.astype(int))
        for same in (whole.encoding, encoding_of(frame.loc[copies], y[copies])):
            np.testing.assert_allclose(found.encoding.encode(frame), same.encode(frame))
        parts = [found.encode_training(frame[:63]), found.encode_training(frame[63:], 63)]
        np.testing.assert_allclose(np.concatenate(parts), whole.encode_training(frame))

    def test_unknown_categories_are_counted(self):
        frame = pd.DataFrame({"c": ["b", "a", "a"], "a": [1.0, 2.0, 3.0]})
        counts = {}
        encoding_of(frame).count_unknown(frame.assign(c=pd.Series(["new", "a", None])), counts)
        assert counts == {"c": {"new": 1}}

    def test_a_changed_file(self):
        with pytest.raises(ValueError, match="unknown keys of a column: \\['size'\\]"):
            Encoding.from_json([{"name": "a", "kind": "numbers", "size": 1}])


@pytest.mark.parametrize("spelling", [str, str.upper, str.lower])
def test_words_for_booleans_are_one_and_zero(spelling):
    column = pd.Series([spelling(word) for word in ("True", "False")])
    assert numbers(column).tolist() == [1.0, 0.0]
