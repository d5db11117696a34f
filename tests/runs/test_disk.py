"""Runs whose rows are read in chunks and kept in files."""

import errno
import os

import numpy as np
import pandas as pd
import pytest

from bayestree.fitted.training_rows import large_file
from bayestree.inference import memory_mapped
from bayestree.runs.rows import read_rows
from bayestree.runs.runner import run
from bayestree.tables import InputError
from tests.runs.cases import Recorder, interrupt, numbers, run_file, table


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 60)


@pytest.fixture
def small_memory(monkeypatch):
    monkeypatch.setattr(memory_mapped, "HELD", 1000)
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 600)


def rows_table(n: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = table(n)
    colour = np.where(frame["kind"] == "big", "red", rng.choice(["red", "blue", "green"], n))
    return frame.assign(colour=colour, many=rng.uniform(0, 2, n))


def both(folder, data=None, **parts):
    """Rows of the same run in memory and on disk."""
    data = {"path": "rows.csv"} | (data or {})
    files = [
        run_file(folder, data=data | {"storage": storage}, seed=3, **parts)
        for storage in ("memory", "disk")
    ]
    return [read_rows(file) for file in files]


def assert_same(found, expected):
    for name in ("X", "X_held"):
        own, other = getattr(found, name), getattr(expected, name)
        pd.testing.assert_frame_equal(own.astype(float), other, check_names=False)
    for name in ("y", "weights", "y_held", "weights_held", "rows_held"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for name in ("task", "encoding", "held_out", "remarks", "fingerprints"):
        assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"weights": "many", "drop": ["price"]},
        {"target": "price", "drop": []},
        {"test_fraction": 0.0},
        {"test": "other.csv"},
        {"path": "rows.parquet", "weights": "many"},
        {"path": "gaps.csv"},
        {"path": "gaps.csv", "target": "price", "drop": [], "test": "gaps.csv"},
        {"path": "rows.npy", "target": "x1", "drop": []},
        {"path": "rows.npy", "target": "x1", "drop": [], "test": "rows.npy"},
    ],
    ids=str,
)
def test_rows_are_those_of_memory(data, tmp_path):
    frame = rows_table()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    gaps = frame.assign(name=[f"n{i % 40}" for i in range(len(frame))], day="2024-01-31")
    gaps.loc[::9, ["width", "name", "colour"]] = None
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    frame.sample(40, random_state=0).to_csv(tmp_path / "other.csv", index=False)
    np.save(tmp_path / "rows.npy", frame[["width", "price", "height"]].to_numpy())
    expected, found = both(tmp_path, data)
    assert_same(found, expected)


def test_categories_that_training_does_not_hold(tmp_path):
    frame = rows_table()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.assign(colour="pink").to_csv(tmp_path / "other.csv", index=False)
    expected, found = both(tmp_path, {"test": "other.csv"})
    assert found.remarks == expected.remarks
    assert (
        "90 rows hold a category that does not occur in the training rows ('pink')"
        in found.remarks[0]
    )


@pytest.mark.parametrize(("kind", "size"), [(np.float32, 4), (np.int16, 4), (np.float64, 8)])
def test_features_in_the_precision_of_the_table(kind, size, tmp_path):
    X = np.random.default_rng(0).integers(0, 9, (50, 3)).astype(kind)
    np.save(tmp_path / "rows.npy", X)
    data = {"path": "rows.npy", "target": "x2", "drop": [], "storage": "disk"}
    found = read_rows(run_file(tmp_path, data=data))
    assert {dtype.itemsize for dtype in found.X.dtypes} == {size}


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("width", np.inf, "1 infinite value"),
        ("kind", None, "1 missing value"),
        ("many", -1.0, "weights 'many' must be zero or more"),
    ],
)
def test_rows_that_are_refused(column, value, fault, tmp_path):
    frame = rows_table()
    frame.loc[80, column] = value
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for storage in ("memory", "disk"):
        file = run_file(tmp_path, data={"path": "rows.csv", "weights": "many", "storage": storage})
        with pytest.raises(InputError, match=fault):
            read_rows(file)


def test_a_full_disk(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match="has no room"):
        run(run_file(tmp_path, data={"storage": "disk"}))
    assert not (tmp_path / "out").exists()


def test_the_model_is_that_of_memory(tmp_path):
    rows_table().to_csv(tmp_path / "rows.csv", index=False)
    folders = []
    for storage in ("memory", "disk"):
        data = {"path": "rows.csv", "storage": storage}
        folders.append(run(run_file(tmp_path, data=data, output={"folder": storage})).folder)
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second
    found, expected = (pd.read_parquet(folder / "predictions.parquet") for folder in folders)
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize(("target", "inference"), [("kind", "svi"), ("price", "map")])
def test_a_run_that_never_holds_its_rows(target, inference, tmp_path):
    rows_table(600).to_csv(tmp_path / "rows.csv", index=False)
    drop = ["price" if target == "kind" else "kind"]
    data = {"path": "rows.csv", "target": target, "drop": drop, "storage": "disk"}
    output = {"draws": inference == "map", "report": inference == "svi"}
    file = run_file(
        tmp_path,
        data=data | {"test_fraction": 0.4},
        inference={"inference": inference},
        output=output,
    )
    found = run(file)
    assert found.file.data.storage == "disk"
    assert found.manifest["data"]["data"]["rows"] == 600
    rows = found.rows()
    assert large_file(rows.X) is not None
    assert large_file(rows.X_held) is not None
    assert found.metrics["scored_rows"] == len(
        pd.read_parquet(found.folder / "predictions.parquet")
    )
    assert found.metrics.get("accuracy", 1.0) > 0.8
    assert (found.folder / "report.html").is_file() == output["report"]
    assert not [path.name for path in found.folder.iterdir() if path.name.startswith(".rows")]
    some = rows.thinned()
    assert 0 < some.X.size <= memory_mapped.HELD
    assert len(some.X) == len(some.y) == len(some.weights)


@pytest.mark.parametrize(
    ("changes", "inference"),
    [({"tree": "tao", "settings": ()}, {}), ({}, {"inference": "nuts"})],
)
def test_fits_that_need_all_rows_are_refused(changes, inference, tmp_path):
    file = run_file(tmp_path, data={"storage": "disk"}, inference=inference)
    file = file.model_copy(update=changes)
    with pytest.raises(InputError, match='storage = "disk" requires a fit'):
        run(file)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small_memory")
def test_a_run_that_is_taken_up_ends_as_one_that_was_not(tmp_path):
    rows_table(600).to_csv(tmp_path / "rows.csv", index=False)
    data = {"path": "rows.csv", "storage": "disk", "test_fraction": 0.4}
    expected = run(run_file(tmp_path, data=data, output={"folder": "whole"}))
    file = run_file(tmp_path, data=data)
    with pytest.raises(KeyboardInterrupt):
        run(file, display=Recorder(("svi", 2), interrupt))
    found = run(file, resume=True)
    assert found.manifest["resumed"] == 1
    assert numbers(found.folder) == numbers(expected.folder)
