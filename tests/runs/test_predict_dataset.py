"""Predictions of Parquet data sets, file by file."""

import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from joblib import parallel_config

from bayestree.runs import predict
from bayestree.runs.outputs import predictions, scored
from bayestree.runs.predict import predict_dataset
from bayestree.runs.runner import run
from bayestree.tables import Dataset, InputError
from tests.cli.command import done, refused
from tests.runs.cases import run_file, table


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return run(run_file(tmp_path_factory.mktemp("fitted")))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 50)


def new(n=70):
    return table(n, seed=1)


def written(folder, frame=None):
    """Write 70 rows into files of two partitions; another file has no rows."""
    frame = new() if frame is None else frame
    for name, rows in (
        ("day=9/part.2.parquet", frame[:20]),
        ("day=9/part.10.parquet", frame[20:21]),
        ("day=10/part.1.parquet", frame[21:]),
        ("day=10/part.3.parquet", frame[:0]),
    ):
        path = folder / "rows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(path, row_group_size=15)
    return folder / "rows"


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("[!.]*") if path.is_file())


FILES = [
    "_predictions.json",
    "day=10/part.1.parquet",
    "day=9/part.10.parquet",
    "day=9/part.2.parquet",
]


def expected(fitted, frame=None):
    frame = new() if frame is None else frame
    return predictions(fitted.estimator, fitted.columns.encoding.features(frame))


def assert_predicted(fitted, out):
    table = expected(fitted)
    for name, rows in zip(FILES[1:], (slice(21, None), slice(20, 21), slice(20)), strict=True):
        own = pq.ParquetFile(out / name).read().to_pandas()
        pd.testing.assert_frame_equal(own, table[rows].reset_index(drop=True), check_dtype=False)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, in dask
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_file_for_each_file(fitted, tmp_path, n_jobs):
    data, out = written(tmp_path), tmp_path / "new" / "out"
    with parallel_config("threading"):  # processes start slowly; test_cluster.py has some
        found = predict_dataset(fitted.folder, data, out, n_jobs=n_jobs)
    assert files_in(out) == FILES
    assert_predicted(fitted, out)
    X = fitted.columns.encoding.features(new())
    score = scored(fitted.estimator, X, new()["kind"].to_numpy(), None)
    assert found == (70, [], pytest.approx(score, rel=1e-12), None, 70, 0)
    for read in (pd.read_parquet, lambda folder: dd.read_parquet(folder).compute()):
        table = read(str(out))
        assert list(table.columns) == ["prediction", "p(big)", "p(small)", "day"]
        assert table["day"].astype(int).value_counts().to_dict() == {9: 21, 10: 49}


def test_the_command(fitted, tmp_path):
    words = ("predict", fitted.folder, written(tmp_path) / "*" / "*.parquet", "--out")
    out = tmp_path / "out"
    assert done(*words, out).stdout.startswith(f"70 rows predicted: {out}\nscores: accuracy ")
    assert "holds predictions; add --resume to complete them, or --force" in refused(*words, out)
    (out / FILES[1]).unlink()
    again = done(*words, out, "--resume").stdout
    assert again.startswith(f"70 rows predicted, 21 of them before: {out}\nscores on 49 rows: ")
    found = json.loads(done(*words, out, "--force", "--json").stdout)
    assert (found["file"], found["rows"], found["scored_rows"]) == (str(out), 70, 70)
    for option in (("--jobs", 2), ("--resume",), ("--scheduler", "tcp://x:1")):
        assert "are for predictions of Parquet files" in refused(*words, "one.csv", *option)
    assert "--jobs must be 1 or more" in refused(*words, out, "--jobs", 0)


def test_an_interrupted_call_is_completed(fitted, tmp_path, monkeypatch):
    data, out = written(tmp_path), tmp_path / "out"
    frames = Dataset.chunks

    def interrupt(self, *args):
        if self.pieces[0].file.endswith("part.1.parquet"):
            (out / "day=10" / ".part.1.parquet.0").touch()  # as a killed process would
            yield next(frames(self, *args))
            raise KeyboardInterrupt
        yield from frames(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "chunks", interrupt)
        with pytest.raises(KeyboardInterrupt):
            predict_dataset(fitted.folder, data, out)
    assert "day=10/part.1.parquet" not in files_in(out)
    before = (out / FILES[2]).stat().st_mtime_ns
    found = predict_dataset(fitted.folder, data, out, resume=True)
    assert (found.n_rows, found.n_resumed, found.n_scored) == (70, 21, 49)
    assert (out / FILES[2]).stat().st_mtime_ns == before
    assert [path.name for path in (out / "day=10").iterdir()] == ["part.1.parquet"]
    assert_predicted(fitted, out)


def test_a_file_with_other_rows_is_predicted_again(fitted, tmp_path):
    data, out = written(tmp_path), tmp_path / "out"
    predict_dataset(fitted.folder, data, out)
    pd.DataFrame({"prediction": ["big"]}).to_parquet(out / FILES[1])
    assert predict_dataset(fitted.folder, data, out, resume=True).n_resumed == 21
    assert_predicted(fitted, out)


def test_a_damaged_file_is_predicted_again(fitted, tmp_path):
    data, out = written(tmp_path), tmp_path / "out"
    predict_dataset(fitted.folder, data, out)
    part, whole = out / FILES[1], (out / FILES[1]).read_bytes()
    for damaged in (whole[:20] + bytes([whole[20] ^ 1]) + whole[21:], whole[:-9], b""):
        part.write_bytes(damaged)
        assert predict_dataset(fitted.folder, data, out, resume=True).n_resumed < 70
        assert part.read_bytes() == whole
    state = out / "_predictions.json"
    for text in ("", "[]", state.read_text().replace("a", "b", 1)):
        state.write_text(text)
        with pytest.raises(InputError, match=r"_predictions\.json' was changed"):
            predict_dataset(fitted.folder, data, out, resume=True)


@pytest.mark.parametrize("place", ["_predictions.json", ".lock", "day=10", FILES[1]])
def test_links_are_not_followed(fitted, tmp_path, place):
    data, out, other = written(tmp_path), tmp_path / "out", tmp_path / "other"
    predict_dataset(fitted.folder, data, out)
    (out / place).rename(other)
    (out / place).symlink_to(other)
    before = other.stat().st_mtime_ns
    for how in ({"resume": True}, {"force": True}):
        with pytest.raises(InputError, match=rf"{place}' is a link .*; remove it"):
            predict_dataset(fitted.folder, data, out, **how)
    assert other.stat().st_mtime_ns == before


def test_predictions_of_other_data_are_not_mixed(fitted, tmp_path):
    data, out = written(tmp_path), tmp_path / "out"
    predict_dataset(fitted.folder, data, out)
    written(tmp_path, new().iloc[::-1])
    with pytest.raises(InputError, match="predictions of another model, or of other data; choose"):
        predict_dataset(fitted.folder, data, out, resume=True)
    (data / "day=9" / "part.2.parquet").rename(data / "day=9" / "part.3.parquet")
    predict_dataset(fitted.folder, data, out, force=True)
    assert "day=9/part.2.parquet" not in files_in(out)


def test_other_files_are_never_replaced(fitted, tmp_path):
    data = written(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    with pytest.raises(InputError, match="own' holds other files; choose another folder"):
        predict_dataset(fitted.folder, data, tmp_path / "own", force=True)
    for out in (data, data / "day=9", data / "out", tmp_path):
        with pytest.raises(InputError, match="lies among the data; choose another folder"):
            predict_dataset(fitted.folder, data, out, force=True)


@pytest.mark.parametrize(("maximum", "step"), [(20, 4), (48, 2)])
def test_evenly_spaced_rows_are_scored(fitted, tmp_path, monkeypatch, maximum, step):
    """With 48, the last file of 49 rows is thinned alone, and the others fit beside it."""
    monkeypatch.setattr(predict, "MAX_SCORED", maximum)
    found = predict_dataset(fitted.folder, written(tmp_path), tmp_path / "out")
    rows = new()[::step]
    X = fitted.columns.encoding.features(rows)
    score = scored(fitted.estimator, X, rows["kind"].to_numpy(), None)
    assert (found.n_rows, found.n_scored) == (70, len(rows))
    assert found.scores == pytest.approx(score, rel=1e-12)


def test_a_refused_value_is_located(fitted, tmp_path):
    frame = new()
    frame.loc[30, "width"] = np.inf
    out = tmp_path / "out"
    with pytest.raises(
        InputError, match=r"1 infinite value .* row 10 of '.*day=10/part.1.parquet'"
    ):
        predict_dataset(fitted.folder, written(tmp_path, frame), out)
    assert files_in(out) == [FILES[0], *FILES[2:]]  # those of day 9, which comes first
