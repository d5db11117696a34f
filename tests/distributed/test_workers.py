"""Fits by Dask workers on loopback, one of which is killed."""

import json
import signal
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from bayestree.distributed import cluster, rows
from bayestree.inference.memory_mapped import HELD
from bayestree.runs.results import WRITERS
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.dask_cluster import Cluster, distributed
from tests.distributed.cases import MAP, SHORT, SVI, classifier, table, written
from tests.distributed.test_fit_files import ALONE, FEATURES, OTHERS
from tests.runs.cases import Recorder

PARTITIONS = {"n_partitions": 3, "drop": OTHERS}


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data"), table())


@pytest.mark.parametrize("inference", [MAP, SVI], ids=str)
def test_the_number_of_workers_changes_only_the_order_of_sums(dask_cluster, data, inference):
    alone = classifier(inference=inference).fit_files(data, "kind", **ALONE)
    both = classifier(inference=inference).fit_files(
        data, "kind", scheduler=dask_cluster.address, **PARTITIONS
    )
    new = table(seed=1)[FEATURES]
    # a few dozen steps in double precision
    np.testing.assert_allclose(both.predict_proba(new), alone.predict_proba(new), atol=1e-9)
    assert WRITERS["text"](both) == WRITERS["text"](alone)


def test_a_worker_in_the_process_of_the_fit(data):
    alone = classifier(inference=SVI).fit_files(data, "kind", **ALONE)
    with distributed.LocalCluster(
        processes=False, threads_per_worker=1, dashboard_address=":0"
    ) as threads:
        found = classifier(inference=SVI).fit_files(
            data, "kind", scheduler=threads.scheduler_address, **PARTITIONS
        )
    new = table(seed=1)[FEATURES]
    assert np.array_equal(found.predict_proba(new), alone.predict_proba(new))


@pytest.mark.parametrize("others", [["a", "a"], ["a", cluster.PROCESS]])
def test_workers_that_share_a_process_are_refused(others, monkeypatch):
    client = SimpleNamespace(run=lambda _: dict(enumerate(others)))
    monkeypatch.setattr(cluster, "client_of", lambda _: nullcontext(client))
    with (
        pytest.raises(InputError, match=r"needs a process of its own, .* LocalCluster\(processes="),
        cluster.workers(None, "tcp://10.0.0.1:8786"),
    ):
        pass


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
    whole = run(run_file(tmp_path / "whole", data, workers=1, partitions=3))
    stopped = Recorder("fit", lambda: None)
    file = run_file(tmp_path / "parts", data, scheduler=dask_cluster.address, partitions=3)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows.DistributedRows, "epoch", _after(2, rows.DistributedRows.epoch, stop))
        with pytest.raises(KeyboardInterrupt):
            run(file, display=stopped)
    other = run_file(tmp_path / "parts", data, workers=1, partitions=3)
    found = run(other, resume=True)
    assert found.manifest["resumed"] == 1
    for name in ("accuracy", "log_loss"):
        assert found.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-9)
    with pytest.raises(InputError, match=r"partitions = 3, but this run has .*partitions = 2"):
        run(run_file(tmp_path / "parts", data, workers=1, partitions=2), resume=True)


def _after(number, action, other):
    """Do ``action`` so often, and then ``other``."""
    left = iter(range(number))

    def act(*given):
        return action(*given) if next(left, None) is not None else other(*given)

    return act


def test_the_rows_of_a_run_are_read_again_without_workers(data, tmp_path):
    found = run(run_file(tmp_path, data, workers=1, partitions=2))
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
def test_a_killed_worker_changes_only_the_order_of_sums(dask_cluster, data, monkeypatch):
    monkeypatch.setattr(cluster, "REPLACED", 0.5)
    settings = {"scheduler": dask_cluster.address, **PARTITIONS}
    whole = classifier(inference=SVI).fit_files(data, "kind", **settings)
    lost = []
    repair = rows.DistributedRows._replace

    def repaired(self):
        lost.append(self.addresses)
        repair(self)

    def killing(self, *given):
        if not lost:
            killer = threading.Timer(0.01, dask_cluster.kill, [dask_cluster.workers[0]])
            killer.start()
            killer.join()
        return epoch(self, *given)

    epoch = rows.DistributedRows._epoch
    monkeypatch.setattr(rows.DistributedRows, "_replace", repaired)
    monkeypatch.setattr(rows.DistributedRows, "_epoch", _after(3, epoch, killing))
    found = classifier(inference=SVI).fit_files(data, "kind", **settings)
    assert len(lost) >= 1
    assert dask_cluster.workers[0].returncode == -signal.SIGKILL
    new = table(seed=1)[FEATURES]
    np.testing.assert_allclose(found.predict_proba(new), whole.predict_proba(new), atol=1e-9)
