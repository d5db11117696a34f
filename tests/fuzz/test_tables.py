"""Arbitrary tables are either prepared for a fit or refused with a message on one line."""

import io

import numpy as np
import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st

from bayestree.runs.rows import read_rows
from bayestree.tables import InputError, open_table
from tests.fuzz.strategies import changed, fuzzed, little_memory
from tests.runs.cases import run_file

CSV = "size,color,kind,count\n" + "".join(
    f"{n * 1.5},{'red' if n % 3 else 'blue'},{'big' if n > 9 else 'small'},{n}\n" for n in range(20)
)


def parquet():
    buffer = io.BytesIO()
    pd.read_csv(io.StringIO(CSV)).to_parquet(buffer, index=False)
    return buffer.getvalue()


PARQUET = parquet()


def ready(path, target="kind", task="auto"):
    """The rows for a fit, if the table can be used; a refusal is one line."""
    try:
        if target not in open_table(path, whole=True).columns:
            return None
        data = {"path": path.name, "target": target, "task": task, "drop": []}
        return read_rows(run_file(path.parent, data=data))
    except InputError as error:
        said = str(error)
    assert said
    assert "\n" not in said
    return None


def holds_together(rows):
    X = np.vstack([rows.X, rows.X_held])
    assert np.isfinite(X).all()
    assert X.dtype == np.float64
    assert X.shape == (len(rows.y) + len(rows.y_held), len(rows.encoding.feature_names))
    assert (rows.weights >= 0).all()


@fuzzed
@given(st.data(), st.sampled_from(["kind", "count"]))
def test_csv_with_changes(tmp_path, data, target):
    path = tmp_path / "a.csv"
    path.write_bytes(data.draw(changed(CSV.encode())))
    rows = ready(path, target, data.draw(st.sampled_from(["auto", "classification", "regression"])))
    if rows is not None:
        holds_together(rows)


@fuzzed
@given(st.data())
def test_parquet_with_changes(tmp_path, data):
    path = tmp_path / "a.parquet"
    path.write_bytes(data.draw(changed(PARQUET)))
    rows = ready(path)
    if rows is not None:
        holds_together(rows)


@fuzzed
@given(st.binary(max_size=80), st.sampled_from([".csv", ".csv.gz", ".parquet"]))
@example(b"kind\n" + b'"' * 200, ".csv")
@example(b"kind,kind\n1,2\n", ".csv")
@example(b"\xef\xbb\xbfkind,x\na,1\nb,2\n", ".csv")
@example(b"kind,x\r1,2\r3,4\r", ".csv")
@example(b"kind,x\n\0,\0\n", ".csv")
@example(b"PAR1PAR1", ".parquet")
def test_bytes_that_are_no_table(tmp_path, content, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    rows = ready(path)
    if rows is not None:
        holds_together(rows)


cells = st.one_of(
    st.text(max_size=4), st.integers(), st.floats(), st.booleans(), st.none(), st.dates(),
    st.sampled_from(["1e400", "-inf", "nan", "", " ", "1_000", "0x1F", "\u0661", "TRUE", "1,5"]),
)  # fmt: skip


@fuzzed
@given(st.lists(st.tuples(cells, cells, st.sampled_from(["a", "b"])), min_size=1, max_size=12))
def test_odd_cells(tmp_path, rows):
    path = tmp_path / "a.csv"
    frame = pd.DataFrame(rows, columns=["x", "y", "kind"])
    frame.to_csv(path, index=False, errors="replace")
    found = ready(path)
    if found is not None:
        holds_together(found)


@fuzzed
@given(st.lists(cells, min_size=4, max_size=12), st.sampled_from([object, "category"]))
def test_odd_columns_of_parquet(tmp_path, values, dtype):
    path = tmp_path / "a.parquet"
    kind = np.where(np.arange(len(values)) % 2, "a", "b")
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "kind": kind})
    try:
        frame.astype({"x": dtype}).to_parquet(path)
    except Exception:  # what Parquet itself does not take
        return
    found = ready(path)
    if found is not None:
        holds_together(found)


hostile = st.one_of(
    cells.map(str),
    st.integers(-(10**400), 10**400).map(str),
    st.sampled_from(["9" * 5000, "z" * 12_000, "\0", '"', "'", "=1+1", "-1", "2.5", "1e30", "1e151",
                     str(2**63), str(2**64), "\ufeff", "\r", "2020-01-31", "9999-12-31", "inf"]),
)  # fmt: skip
names = st.sampled_from(["x", "y", "kind", "", " ", "x.1", "\ufeffx", "sep=;", "z" * 12_000])


@fuzzed
@given(st.data())
def test_hostile_tables(tmp_path, data):
    """Counts and text in any encoding, with odd cells, separators and names."""
    header = [*data.draw(st.lists(names, min_size=2, max_size=3)), "kind"]
    usual = st.sampled_from(["0", "1", "3", "12", "1.5"])
    row = st.lists(usual | hostile, min_size=len(header) - 1, max_size=len(header) - 1)
    target = st.sampled_from(["0", "1", "2", "7"]) | hostile
    rows = data.draw(st.lists(st.tuples(row, target), min_size=1, max_size=8))
    sep = data.draw(st.sampled_from(",;\t|"))
    lines = [sep.join(header), *(sep.join([*own, y]) for own, y in rows * 4)]
    encoding = data.draw(st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "utf-32"]))
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(lines).encode(encoding, errors="replace"))
    given_keys = data.draw(st.sampled_from([{}, {"exposure": header[0]}, {"weights": header[0]}]))
    given_data = {"path": "a.csv", "target": "kind", "drop": []} | given_keys
    said = ""
    try:
        with little_memory(path):
            holds_together(read_rows(run_file(tmp_path, data=given_data)))
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 5000
