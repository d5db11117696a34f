"""Fits by Dask workers on loopback, one of which is killed."""

import json
import signal

import numpy as np
import pytest

from bayestree.distributed.passes import DistributedRows
from bayestree.inference.memory_mapped import HELD
from bayestree.inference.training import Ascent
from bayestree.runs.results import WRITERS
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.dask_cluster import Cluster, distributed
from tests.distributed.cases import SHORT, classifier, table, written
from tests.distributed.test_fit_files import ALONE, FEATURES, OTHERS
from tests.runs.cases import Recorder


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data"), table())


def test_the_numbers_do_not_depend_on_the_workers(dask_cluster, data):
    alone = classifier().fit_files(data, "kind", **ALONE)
    both = classifier().fit_files(data, "kind", scheduler=dask_cluster.address, drop=OTHERS)
    new = table(seed=1)[FEATURES]
    assert np.array_equal(both.predict_proba(new), alone.predict_proba(new))
    assert WRITERS["text"](both) == WRITERS["text"](alone)


def test_a_worker_in_the_process_of_the_fit(data):
    alone = classifier().fit_files(data, "kind", **ALONE)
    with distributed.LocalCluster(
        processes=False, threads_per_worker=2, dashboard_address=":0"
    ) as threads:
        found = classifier().fit_files(
            data, "kind", scheduler=threads.scheduler_address, drop=OTHERS
        )
    new = table(seed=1)[FEATURES]
    assert np.array_equal(found.predict_proba(new), alone.predict_proba(new))


def run_file(folder, data, **cluster):
    settings = {name: SHORT[name] for name in ("n_modes", "dtype")}
    split = {name: SHORT[name] for name in ("max_depth", "n_experts")}
    parts = {
        "data": {"path": str(data / "*.parquet"), "target": "kind", "drop": OTHERS},
        "model": split,
        "inference": {"inference": "svi", "epochs": 3, **settings},
        "cluster": cluster,
        "output": {"folder": "out", "report": False},
    }
    return RunFile.from_parts(parts, folder / "run.toml")


def test_a_run_is_resumed_by_other_workers(dask_cluster, data, tmp_path):
    whole = run(run_file(tmp_path / "whole", data, workers=1))
    stopped = Recorder("fit", lambda: None)
    file = run_file(tmp_path / "parts", data, scheduler=dask_cluster.address)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ascent, "epoch", _after(2, Ascent.epoch, stop))
        with pytest.raises(KeyboardInterrupt):
            run(file, display=stopped)
    found = run(run_file(tmp_path / "parts", data, workers=1), resume=True)
    assert found.manifest["resumed"] == 1
    for name in ("accuracy", "log_loss"):
        assert found.metrics[name] == whole.metrics[name]
    with pytest.raises(InputError, match=r"sample_rows = \d+, but this run has .*sample_rows = 99"):
        run(run_file(tmp_path / "parts", data, workers=1, sample_rows=99), resume=True)


def _after(number, action, other):
    """Do ``action`` so often, and then ``other``."""
    left = iter(range(number))

    def act(*given):
        return action(*given) if next(left, None) is not None else other(*given)

    return act


def test_the_rows_of_a_run_are_read_again_without_workers(data, tmp_path):
    found = run(run_file(tmp_path, data, workers=1))
    again = open_run(found.folder).rows()
    assert len(again.X) + len(again.X_held) == len(table()) < HELD
    lines = json.loads((found.folder / "manifest.json").read_text())["data"]["data"]
    assert lines["files"] == 4
    numbers = again.rows_held
    assert again.y_held.tolist() == table()["kind"].to_numpy()[numbers].tolist()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"cluster": {}}, r"\[cluster\] is empty; set workers or scheduler"),
        ({"cluster": {"workers": 0}}, "workers"),
        ({"cluster": {"worker": 2}}, "did you mean 'workers'"),
        (
            {"cluster": {"partitions": 8}},
            "'partitions' was removed after version 0.2.0",
        ),
    ],
)
def test_a_cluster_that_is_refused(data, tmp_path, table, words):
    parts = {"data": {"path": str(data), "target": "kind"}, **table}
    with pytest.raises(InputError, match=words):
        RunFile.from_parts(parts, tmp_path / "run.toml")


@pytest.mark.parametrize("key", ["test", "levels"])
def test_data_that_a_cluster_refuses(data, tmp_path, key):
    value = {"test": str(data), "levels": {"color": ["red", "blue", "green"]}}[key]
    parts = {
        "data": {"path": str(data), "target": "kind", key: value},
        "cluster": {"workers": 1},
    }
    with pytest.raises(InputError, match=rf"\[data\] {key} is not available with \[cluster\]"):
        run(RunFile.from_parts(parts, tmp_path / "run.toml"))


# The last test, since a worker is gone afterwards.
def test_a_killed_worker_changes_nothing(dask_cluster, data, monkeypatch):
    whole = classifier().fit_files(data, "kind", **ALONE)
    parts = DistributedRows._parts

    def killing(self):
        dask_cluster.kill(dask_cluster.workers[0])
        return parts(self)

    monkeypatch.setattr(DistributedRows, "_parts", killing)
    found = classifier().fit_files(data, "kind", scheduler=dask_cluster.address, drop=OTHERS)
    assert dask_cluster.workers[0].returncode == -signal.SIGKILL
    new = table(seed=1)[FEATURES]
    assert np.array_equal(found.predict_proba(new), whole.predict_proba(new))
