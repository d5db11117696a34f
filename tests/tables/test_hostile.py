"""Tables of strangers: text, integers and sizes that would fill memory, or end in a traceback."""

import gzip
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.runs.rows import read_rows
from bayestree.tables import InputError, open_table
from tests.runs.cases import run_file

N = 400


def rows_of(folder, cell=lambda i: "rs"[i % 2], y=lambda i: "pq"[i % 2], head="a,b,y", **data):
    """The rows of a CSV file with a column of numbers, one of cells, and the target."""
    lines = [head, *(f"{i % 7}.5,{cell(i)},{y(i)}" for i in range(N))]
    (folder / "t.csv").write_text("\n".join(lines))
    given = {"path": "t.csv", "target": "y", "drop": [], "test_fraction": 0.0} | data
    return read_rows(run_file(folder, data=given))


def refusal(folder, *columns, **data):
    with pytest.raises(InputError) as error:
        rows_of(folder, *columns, **data)
    said = str(error.value)
    assert "\n" not in said
    assert len(said) < 600
    return said


LONG = "z" * 200_000  # beyond the limit of fields of the csv module


class TestLongText:
    @pytest.mark.parametrize("storage", ["memory", "disk"])
    @pytest.mark.parametrize("column", ["b", "y"])
    def test_classes_and_categories(self, column, storage, tmp_path):
        columns = {"b": lambda i: "rs"[i % 2], "y": lambda i: "pq"[i % 2]}
        short = columns[column]
        columns[column] = lambda i: LONG if i == 7 else short(i)
        tracemalloc.start()
        said = refusal(tmp_path, *columns.values(), storage=storage)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert f"column {column!r} should hold texts of at most 10,000 letters" in said
        assert "line 9 of 't.csv'" in said
        assert "it has 200,000" in said
        assert peak < 60 * len(LONG)  # of fixed width, the rows of a column take 4 N = 1,600 times

    def test_no_array_is_as_wide_as_the_longest_class(self, tmp_path):
        y = rows_of(tmp_path, y=lambda i: "z" * 9000 if i < 9 else "pq"[i % 2]).y
        assert y.dtype == object
        assert max(map(len, y)) == 9000

    def test_a_single_class(self, tmp_path):
        assert "target 'y' has one class, 'p'" in refusal(tmp_path, y=lambda i: "p")

    def test_at_the_separator_of_the_others(self, tmp_path):
        lines = ["a;y", *(f"1,5;{LONG if i == 3 else 'pq'[i % 2]}" for i in range(30))]
        (tmp_path / "t.csv").write_text("\n".join(lines))
        assert open_table(tmp_path / "t.csv", whole=True).columns == ("a", "y")

    def test_beyond_the_limit_of_fields(self, tmp_path, monkeypatch):
        monkeypatch.setattr("bayestree.tables.files.LETTERS", 150_000)
        assert "row 8 holds" in refusal(tmp_path, y=lambda i: LONG if i == 7 else "pq"[i % 2])

    def test_names_of_columns(self, tmp_path):
        assert "has a column whose name has 200,000 letters, 'zzz" in refusal(
            tmp_path, head=f"a,{LONG},y"
        )

    def test_columns_that_are_not_used(self, tmp_path):
        assert len(rows_of(tmp_path, lambda i: LONG[:20_000] + str(i)).encoding.feature_names) == 1
        rows_of(tmp_path, lambda i: LONG if i == 7 else "r", drop=["b"])

    def test_numbers_and_dates(self, tmp_path):
        assert "line 9" in refusal(tmp_path, lambda i: "9" * 200_000 if i == 7 else i)
        day = "2020-01-01 "
        assert "line 9" in refusal(
            tmp_path, lambda i: day * 20_000 if i == 7 else f"2020-{i % 12 + 1}-{i % 28 + 1:02}"
        )


class TestIntegers:
    @pytest.mark.parametrize("digits", ["9" * 400, "-" + "9" * 400, "1e400"])
    def test_beyond_floats(self, digits, tmp_path):
        said = refusal(tmp_path, lambda i: digits if i == 7 else i)
        assert "line 9 of 't.csv'" in said  # pandas 2 reads them as text
        said = refusal(tmp_path, y=lambda i: digits if i == 7 else i)
        assert "line 9 of 't.csv'" in said
        said = refusal(tmp_path, lambda i: digits, weights="b")
        assert "line 2 of 't.csv'" in said

    # pandas 2 reads integers of more than 64 bits as text
    @pytest.mark.parametrize("start", [2**53, 2**63, 2**64][: int(pd.__version__[0])])
    def test_that_are_the_same_float(self, start, tmp_path):
        (said,) = (x for x in rows_of(tmp_path, lambda i: start + i).remarks if "2^53" in x)
        assert "column 'b' holds integers" in said
        assert not any("2^53" in x for x in rows_of(tmp_path, lambda i: start + 4096 * i).remarks)

    def test_as_classes(self, tmp_path):
        said = refusal(tmp_path, y=lambda i: 2**63 + 1 + i % 2)
        assert said == "target 'y' holds 9.22337e+18, which is not a class; use regression."

    @pytest.mark.parametrize("dtype", [object, "u8"])
    def test_in_frames(self, dtype):
        X = pd.DataFrame({"x": pd.Series([2**63 + i for i in range(40)], dtype=dtype)})
        y = np.arange(40) % 2
        clf = ConvexPolytopeTreeClassifier(inference="grow", max_depth=1)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            clf.fit(X.assign(z=np.arange(40) % 3), y)
        assert any("column 'x' holds integers beyond 2^53" in str(one.message) for one in found)
        if dtype is object:
            with pytest.raises(ValueError, match="too large value"):
                clf.fit(X.assign(z=np.arange(40) % 3, x=10**400), y)


def test_gaps_among_unsigned_integers(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n" + f"{2**64 - 1},1,p\n,2,q\n7,3,p\n" * 9)
    for whole in (True, False):
        (frame,) = open_table(tmp_path / "t.csv", whole=whole).chunks()
        assert frame["a"].isna().sum() == 9
        assert frame["a"].max() == 2.0**64


class TestSizes:
    def test_gzip(self, tmp_path):
        path = tmp_path / "t.csv.gz"
        path.write_bytes(gzip.compress(b"a,y\n" + b"1,p\n2,q\n" * 2_500_000))
        message = (
            r"t.csv.gz' has more than 0.001 GB .*, decompress it first, or for a fit set max_size"
        )
        tracemalloc.start()
        with pytest.raises(InputError, match=message):
            open_table(path, max_size=0.001)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8e6  # of 20 MB
        assert open_table(path).columns == ("a", "y")

    def test_default(self, tmp_path, monkeypatch):
        path = tmp_path / "t.csv.gz"
        path.write_bytes(gzip.compress(b"a,y\n" + b"1,p\n2,q\n" * 10_000))
        monkeypatch.setattr("bayestree.tables.files.UNPACKED", 70_000)
        with pytest.raises(InputError, match="more than 7e-05 GB"):
            open_table(path)
        monkeypatch.setattr("bayestree.tables.files.GROWTH", 1000)
        open_table(path)

    def test_parquet(self, tmp_path):
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"a": np.zeros(10**6, np.int8)}), path)
        with pytest.raises(
            InputError, match=r"more than 0.007 GB .*, set storage = .disk., or for"
        ):
            open_table(path, max_size=0.007, whole=True)
        open_table(path, max_size=0.008, whole=True)
        open_table(path, max_size=0.007)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-32-be"])
def test_encodings(encoding, tmp_path):
    mark = "\ufeff" if encoding.endswith("be") else ""
    (tmp_path / "t.csv").write_bytes((mark + "a,y\n1,p\n").encode(encoding))
    with pytest.raises(InputError, match=f"it is in {encoding[:6].upper()}; save it as UTF-8"):
        open_table(tmp_path / "t.csv")
