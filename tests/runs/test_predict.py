"""Predictions of tables that are read in chunks."""

import numpy as np
import pandas as pd
import pytest

from bayestree.runs.outputs import predictions, scored
from bayestree.runs.predict import predict_file
from bayestree.runs.runner import run
from bayestree.tables import InputError
from tests.runs.cases import run_file, table


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    frame = table().assign(colour=["red", "blue"] * 30)
    frame.to_csv(folder / "data.csv", index=False)
    return run(run_file(folder))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 50)


def new() -> pd.DataFrame:
    colour = ["red", "blue", "grey"] * 20
    return table(seed=1).assign(colour=colour)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_chunks_are_joined(fitted, ending, tmp_path):
    frame = new()
    frame.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / f"out{ending}"
    found = predict_file(fitted.folder, tmp_path / "new.parquet", out)
    X = fitted.columns.encoding.features(frame)
    table = pd.read_csv(out) if ending == ".csv" else pd.read_parquet(out)
    expected = predictions(fitted.estimator, X)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    assert found.n_rows == 60
    (remark,) = found.remarks
    assert remark.startswith("column 'colour': 20 rows hold a category that does not occur in")
    assert found.scores == pytest.approx(
        scored(fitted.estimator, X, frame["kind"].to_numpy(), None), rel=1e-12
    )


def test_a_target_that_is_missing_in_some_chunk(fitted, tmp_path):
    frame = new()
    frame.loc[50, "kind"] = np.nan
    frame.to_csv(tmp_path / "new.csv", index=False)
    found = predict_file(fitted.folder, tmp_path / "new.csv", tmp_path / "out.csv")
    assert found.n_rows == len(pd.read_csv(tmp_path / "out.csv")) == 60
    assert "1 missing value ('kind': 1)" in found.scores


def test_nothing_is_written_if_a_chunk_is_refused(fitted, tmp_path):
    frame = new()
    frame.loc[50, "width"] = np.inf
    frame.drop(columns="kind").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="1 infinite value"):
        predict_file(fitted.folder, tmp_path / "new.csv", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
