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
    check_complete,
    is_text,
    open_table,
    read_target,
    read_weights,
)


def read_table(path, text=()):
    (frame,) = open_table(path, text, whole=True).chunks()
    return frame


def encoding_of(frame):
    return Encoding.of(
        {
            str(name): set(column.astype(str)) if is_text(column) else None
            for name, column in frame.items()
        }
    )


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
    @settings(max_examples=50, deadline=None)
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
        width = sum(1 if c.categories is None else len(c.categories) for c in encoding.columns)
        assert encoding.encode(frame).shape == (len(frame), width)

    @settings(max_examples=50, deadline=None)
    @given(frame=tables())
    def test_one_hot(self, frame):
        features = encoding_of(frame).encode(frame)
        for name, column in frame.items():
            if is_text(column):
                for value in column.unique():
                    assert (features[f"{name}={value}"] == (column == value)).all()

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
        encoding = encoding_of(pd.DataFrame({"code": ["01", "x"]}))
        assert encoding.encode(read_table(path, text=["code"]))["code=01"].tolist() == [1, 0]

    def test_kinds_of_columns(self):
        assert is_text(pd.Series(["a", None]))
        assert is_text(pd.Series(["a", "b"], dtype="category"))
        assert not is_text(pd.Series([1, 2], dtype="category"))
        assert not is_text(pd.Series([True, None], dtype=object))
        assert not is_text(pd.Series([1, 2], dtype="Int64"))
        with pytest.raises(InputError, match="holds mixed"):
            is_text(pd.Series([[1], "a"]))

    def test_too_many_categories(self):
        with pytest.raises(InputError, match="more than 100 different texts"):
            encoding_of(pd.DataFrame({"id": [f"n{i}" for i in range(101)]}))

    def test_features_of_one_name(self):
        with pytest.raises(InputError, match="two features would be named 'a=b'"):
            encoding_of(pd.DataFrame({"a": ["b"], "a=b": [1]}))

    @pytest.mark.parametrize(
        ("values", "task", "kind"),
        [
            (["a", "b", "a"], "classification", "U"),
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
