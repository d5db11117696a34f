"""Tables that are read in chunks."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bayestree.tables import InputError, open_table


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 20)


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=33),
            "count": np.arange(33),
            "code": [f"{i:02}" for i in range(32)] + ["x"],  # numbers, but for the last
            "flag": rng.random(33) > 0.5,
            "gaps": pd.Series([None] * 8 + [True] * 16 + [None, False, None] * 3, dtype=object),
            "mixed": [True] * 20 + [3] * 13,
        }
    )


def written(folder, ending: str):
    path = folder / f"table{ending}"
    if ending == ".parquet":
        frame().drop(columns="mixed").to_parquet(path, row_group_size=9)
    elif ending == ".npy":
        np.save(path, frame()[["size", "count"]].to_numpy())
    else:
        frame().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".npy"])
def test_chunks_are_parts_of_the_table(ending, tmp_path):
    path = written(tmp_path, ending)
    (whole,), table = open_table(path, whole=True).chunks(), open_table(path)
    chunks = list(table.chunks())
    assert table.columns == tuple(whole.columns)
    assert len(chunks) > 3
    assert max(map(len, chunks)) == 20 // whole.shape[1]
    pd.testing.assert_frame_equal(pd.concat(chunks), whole)


def test_text_may_be_named(tmp_path):
    first = next(open_table(written(tmp_path, ".csv"), text=["count"]).chunks())
    assert first["count"].tolist() == ["0", "1", "2"]


@pytest.mark.parametrize("whole", [False, True])
def test_an_index_with_a_name_is_a_column(tmp_path, whole):
    given = frame().drop(columns="mixed")
    given.set_index(["code", "count"]).to_parquet(tmp_path / "named.parquet")
    table = open_table(tmp_path / "named.parquet", whole=whole)
    assert table.columns == ("size", "flag", "gaps", "code", "count")
    found = pd.concat(table.chunks())[list(given)]
    pd.testing.assert_frame_equal(found, given, check_dtype=False)
    given.set_axis([f"r{row}" for row in range(33)]).to_parquet(tmp_path / "unnamed.parquet")
    assert open_table(tmp_path / "unnamed.parquet", whole=whole).columns == tuple(given)


@pytest.mark.parametrize("whole", [False, True])
def test_dictionaries_of_arrow(tmp_path, whole):
    dictionary = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    given = pd.DataFrame({"code": pd.Series(["a", "b", None] * 11).astype("category")})
    given.astype(dictionary).to_parquet(tmp_path / "t.parquet")
    found = pd.concat(open_table(tmp_path / "t.parquet", whole=whole).chunks())
    pd.testing.assert_frame_equal(found, given)


def test_arrays_are_tables(tmp_path):
    np.save(tmp_path / "fields.npy", frame()[["size", "code"]].to_records(index=False).astype(
        [("size", "f8"), ("code", "U2")]
    ))  # fmt: skip
    (found,) = open_table(tmp_path / "fields.npy", whole=True).chunks()
    assert found["code"].tolist() == frame()["code"].tolist()
    np.save(tmp_path / "rows.npy", np.zeros((2, 3), dtype=np.float32))
    assert list(open_table(tmp_path / "rows.npy").columns) == ["x0", "x1", "x2"]


@pytest.mark.parametrize(
    ("array", "fault"),
    [
        (np.zeros(3), r"shape \(3,\) is not a table"),
        (np.zeros((2, 2, 2)), "is not a table"),
        (np.array([{}, "a"], dtype=object), "cannot be read as a NumPy array"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_arrays_that_are_not_tables(array, fault, whole, tmp_path):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=fault):
        open_table(tmp_path / "a.npy", whole=whole)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("absent.csv", None, "does not exist"),
        ("empty.csv", b"", "is empty"),
        ("head.csv", b"a,b\n", "no rows"),
        ("twice.csv", b"a,a\n1,2\n", "more than one column named 'a'"),
        ("long.csv", b"a,b\n" + b"1,2\n" * 34 + b"1,2,3\n", "cannot be read as a CSV"),
        ("bytes.csv", b"a\n\xff\xfe\n", "cannot be read as a CSV"),
        ("t.parquet", b"PAR1 no", "cannot be read as a Parquet"),
        ("t.npy", b"no array", "cannot be read as a NumPy array"),
        ("t.txt", b"a", "must end in one of"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_files_that_are_not_tables(name, content, fault, whole, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=fault):
        list(open_table(tmp_path / name, whole=whole).chunks())


def test_several_arrays_in_one_file(tmp_path, monkeypatch):
    arrays, closed = np.lib.npyio.NpzFile, []
    close = arrays.close
    monkeypatch.setattr(arrays, "close", lambda self: closed.append(self.fid) or close(self))
    np.savez(tmp_path / "a.npz", np.zeros((2, 2)), np.zeros((2, 2)))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(InputError, match="holds several arrays") as error:
        open_table(tmp_path / "a.npy")
    assert error.tb  # keeps what the functions held, which would be closed when it is forgotten
    assert [one.name for one in closed] == [str(tmp_path / "a.npy")]
