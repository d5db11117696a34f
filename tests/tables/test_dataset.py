"""Parquet data sets of many files."""

import pickle

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bayestree.tables import Dataset, InputError, located, open_table
from bayestree.tables.columns import check_complete


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 20)


def frame(n: int = 66) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "count": np.arange(n),
            "name": [f"n{row % 5}" for row in range(n)],
            "kind": pd.Categorical([f"k{row % 3}" for row in range(n)]),
        }
    )


def written(folder, sizes=(9, 0, 30, 27), row_group_size=11):
    """Write the rows into files whose names are in natural, but not in alphabetical order."""
    folder.mkdir(exist_ok=True)
    ends = np.cumsum(sizes)
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        path = folder / f"part.{8 + number}.parquet"
        frame().iloc[start:end].to_parquet(path, row_group_size=row_group_size)
    return folder


def joined(chunks):
    return pd.concat([chunk.astype({"kind": object}) for chunk in chunks])


def expected():
    return frame().astype({"kind": object})


@pytest.mark.parametrize("pattern", ["", "*.parquet", "part.[0-9]*"])
def test_rows_of_many_files_are_in_the_natural_order_of_their_names(tmp_path, pattern):
    written(tmp_path / "data")
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / ".part.1.parquet.draft").touch()
    (tmp_path / "data" / "_temporary").mkdir()
    frame().to_parquet(tmp_path / "data" / "_temporary" / "part.0.parquet")
    dataset = Dataset.of(tmp_path / "data" / pattern)
    assert dataset.n_rows == 66
    assert dataset.columns == ("size", "count", "name", "kind")
    assert [piece.n_rows for piece in dataset.pieces] == [9, 11, 11, 8, 11, 11, 5]
    chunks = list(dataset.chunks(dataset.pieces))
    assert max(map(len, chunks)) == 5
    pd.testing.assert_frame_equal(joined(chunks), expected(), check_index_type=False)
    pd.testing.assert_frame_equal(joined([dataset.read()]), expected())
    for whole in (False, True):
        table = open_table(tmp_path / "data" / pattern, whole=whole)
        pd.testing.assert_frame_equal(joined(table.chunks()), expected(), check_index_type=False)


def test_another_process_reads_some_row_groups_and_columns(tmp_path):
    dataset = pickle.loads(pickle.dumps(Dataset.of(written(tmp_path / "data"))))
    pieces = [dataset.pieces[2], dataset.pieces[3], dataset.pieces[5]]
    found = pd.concat(dataset.chunks(pieces, ["name", "size"]))
    rows = [*range(20, 39), *range(50, 61)]
    pd.testing.assert_frame_equal(found, frame()[["name", "size"]].loc[rows])


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_parts_of_nearly_equal_size(tmp_path, n):
    dataset = Dataset.of(written(tmp_path / "data"))
    parts = dataset.split(n)
    assert len(parts) == min(n, 7)
    assert sum(parts, ()) == dataset.pieces
    assert all(parts)
    if n <= 3:  # as far from equal as half a row group at each end
        sizes = [sum(piece.n_rows for piece in part) for part in parts]
        assert max(abs(size - 66 / n) for size in sizes) <= 11
    with pytest.raises(ValueError, match="n must be 1 or more, got 0"):
        dataset.split(0)


@pytest.mark.parametrize(
    ("sizes", "expected"), [((1, 1, 60, 1), [2, 60, 1]), ((60, 1, 1, 1), [60, 1, 2])]
)
def test_a_lone_large_row_group_leaves_rows_for_all_parts(tmp_path, sizes, expected):
    (tmp_path / "data").mkdir()
    for number, n in enumerate(sizes):
        frame(n).to_parquet(tmp_path / "data" / f"{number}.parquet")
    parts = Dataset.of(tmp_path / "data").split(3)
    assert [sum(piece.n_rows for piece in part) for part in parts] == expected


@pytest.mark.parametrize("text", [(), ("year",)])
def test_keys_of_hive_partitions_are_columns(tmp_path, text):
    for year, place, own in (
        (2020, "a%20b", frame(7)),
        (2021, "__HIVE_DEFAULT_PARTITION__", frame(4)),
    ):
        folder = tmp_path / f"year={year}" / f"place={place}"
        folder.mkdir(parents=True)
        own.to_parquet(folder / "rows.parquet")
    dataset = Dataset.of(tmp_path, text)
    assert dataset.columns[-2:] == ("year", "place")
    found = pd.concat(dataset.chunks(dataset.pieces, ["place", "count", "year"]))
    years = ["2020"] * 7 + ["2021"] * 4 if text else [2020] * 7 + [2021] * 4
    assert found["year"].tolist() == years
    assert found["place"].fillna("none").tolist() == ["a b"] * 7 + ["none"] * 4
    assert pd.concat(dataset.chunks(dataset.pieces, ["year"]))["year"].tolist() == years
    pd.testing.assert_frame_equal(dataset.read()[["place", "count", "year"]], found)
    lone = tmp_path / "year=2021"
    assert Dataset.of(lone).columns[-2:] == ("year", "place")
    frame().to_parquet(tmp_path / "year=2020" / "other.parquet")
    with pytest.raises(InputError, match="lies in other partitions"):
        Dataset.of(tmp_path)


def test_a_column_of_the_files_has_precedence_over_a_key(tmp_path):
    (tmp_path / "count=7").mkdir()
    frame(3).to_parquet(tmp_path / "count=7" / "rows.parquet")
    assert Dataset.of(tmp_path).read()["count"].tolist() == [0, 1, 2]


def test_urls(tmp_path):
    memory = fsspec.filesystem("memory")
    for path in written(tmp_path / "data").iterdir():
        memory.pipe(f"/bucket/rows/{path.name}", path.read_bytes())
    for url in (
        "memory://bucket/rows",
        "memory://bucket/rows/*.parquet",
        f"file://{tmp_path}/data",
    ):
        table = open_table(url)
        pd.testing.assert_frame_equal(joined(table.chunks()), expected(), check_index_type=False)
    assert (
        Dataset.of("memory://bucket/rows").fingerprint()["sha256"]
        == Dataset.of(tmp_path / "data").fingerprint()["sha256"]
    )
    with pytest.raises(InputError, match="'unknown://rows' cannot be reached: Protocol not known"):
        Dataset.of("unknown://rows")


def test_types_are_converted_to_a_common_one(tmp_path):
    frame(5).to_parquet(tmp_path / "a.parquet")
    other = frame(5)[["name", "count", "kind", "size"]].assign(count=0.5, kind=None)
    other.to_parquet(tmp_path / "b.parquet")
    found = joined(open_table(tmp_path).chunks())
    assert found["count"].tolist() == [0, 1, 2, 3, 4, *[0.5] * 5]
    assert found["kind"].isna().tolist() == [False] * 5 + [True] * 5


@pytest.mark.parametrize("whole", [False, True])
def test_ordered_categories_are_the_same_in_all_files(tmp_path, whole):
    for name, sizes in (("a", "SML"), ("b", "SML"), ("c", "LMS")):
        levels = pd.Categorical(["S", "L"], [*sizes], ordered=True)
        pd.DataFrame({"size": levels}).to_parquet(tmp_path / f"{name}.parquet")
    found = pd.concat(open_table(tmp_path / "[ab].parquet", whole=whole).chunks())["size"]
    assert (found.tolist(), found.cat.categories.tolist()) == (["S", "L"] * 2, ["S", "M", "L"])
    match = r"column 'size' are \['L', 'M', 'S'\] in '.*c.parquet', but \['S', 'M', 'L'\] before"
    with pytest.raises(InputError, match=match):
        list(open_table(tmp_path, whole=whole).chunks())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (frame(5).drop(columns="count"), r"b.parquet' lacks column 'count' of '.*a.parquet'"),
        (frame(5).assign(more=1, x=2), r"a.parquet' lacks columns 'more', 'x' of '.*b.parquet'"),
        (
            frame(5).assign(size="x"),
            r"column 'size' holds (large_)?string in '.*b.parquet', but double",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_named(tmp_path, changed, message):
    frame(5).to_parquet(tmp_path / "a.parquet")
    changed.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=message):
        Dataset.of(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"not a table" * 9, b"x" * 40 + b"\xff\xff\0\0PAR1"]
)
def test_a_broken_file_is_named(tmp_path, content):
    frame(5).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"b.parquet' cannot be read as a Parquet file: "):
        Dataset.of(tmp_path)


def test_text_that_is_no_unicode_is_refused(tmp_path):
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 3, 6], "i4")), pa.py_buffer(b"red\xb2ed")]
    )
    pq.write_table(pa.table({"color": text}), tmp_path / "rows.parquet")
    dataset = Dataset.of(str(tmp_path / "rows.parquet"))
    for read in (dataset.read, lambda: [*dataset.chunks(dataset.pieces)]):
        with pytest.raises(InputError, match=r"rows.parquet' cannot be read .*: .*UTF8"):
            read()


def test_a_name_of_two_columns_is_refused(tmp_path):
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(InputError, match=r"twice.parquet' has more than one of column 'a'; rename"):
        Dataset.of(tmp_path)


def test_a_file_that_vanishes_is_named(tmp_path):
    dataset = Dataset.of(written(tmp_path / "data"))
    (tmp_path / "data" / "part.10.parquet").unlink()
    with pytest.raises(InputError, match=r"part.10.parquet' cannot be read"):
        list(dataset.chunks(dataset.pieces))


def test_what_is_no_data_set_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a\n1\n")
    for path, message in (
        (tmp_path, r"is a folder without Parquet files. A data set is a folder of files"),
        (tmp_path / "*.csv", "leads to files, but without Parquet files"),
        (tmp_path / "*.parquet", "matches no file; correct the pattern"),
        ("memory://absent", "does not exist; specify"),
    ):
        with pytest.raises(InputError, match=message):
            open_table(path)
    frame(0).to_parquet(tmp_path / "empty.parquet")
    for whole in (False, True):
        with pytest.raises(InputError, match="has column names but no rows"):
            list(open_table(tmp_path, whole=whole).chunks())


def test_a_refused_value_is_located_in_its_file(tmp_path):
    written(tmp_path / "data")
    path = tmp_path / "data" / "part.11.parquet"
    pq.write_table(
        pa.Table.from_pandas(
            pd.read_parquet(path).replace({"size": {frame()["size"][41]: np.nan}})
        ),
        path,
    )
    table = open_table(tmp_path / "data")
    match = r"1 missing value \('size': 1\), first at row 3 of '.*part.11.parquet'"
    with pytest.raises(InputError, match=match), located(table.path):
        check_complete(pd.concat(table.chunks()))


def test_the_fingerprint_identifies_files_wherever_they_lie(tmp_path):
    first = Dataset.of(written(tmp_path / "a")).fingerprint()
    assert first == {
        "path": str(tmp_path / "a"),
        "sha256": first["sha256"],
        "rows": 66,
        "columns": 4,
        "files": 4,
        "bytes": sum(path.stat().st_size for path in (tmp_path / "a").iterdir()),
    }
    assert Dataset.of(written(tmp_path / "b")).fingerprint() == {
        **first,
        "path": str(tmp_path / "b"),
    }
    changed = tmp_path / "b" / "part.8.parquet"
    pd.read_parquet(changed).assign(count=lambda rows: rows["count"] + 1).to_parquet(
        changed, row_group_size=11
    )
    assert Dataset.of(tmp_path / "b").fingerprint()["sha256"] != first["sha256"]
