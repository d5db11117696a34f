"""A Dask scheduler and two workers on loopback; one of them is killed."""

import re
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree import ConvexPolytopeTreeClassifier, EndToEndForestClassifier
from bayestree.distributed import passes
from bayestree.inference import Nuts, Svi
from bayestree.runs.runner import spread
from bayestree.runs.sweep import sweep
from bayestree.tables import InputError
from tests.cli.command import done
from tests.dask_cluster import Cluster
from tests.runs.sweep_cases import SWEEP, Heard, numbers, table, written

pytest.importorskip("distributed")

RUN = """
[data]
path = "data.csv"
target = "kind"

[model]
tree = "cpt"
n_experts = 3

[inference]
inference = "map"
epochs = 2
"""
FOREST = """
[data]
path = "data.csv"
target = "kind"

[model]
tree = "e2edf"
n_estimators = 3
max_depth = 2

[inference]
epochs = 2

[output]
report = false
"""


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def rows():
    frame = table()
    return frame[["width", "height"]].to_numpy(), frame["kind"].to_numpy()


@pytest.mark.statistical
def test_a_forest_is_the_same(dask_cluster, rows):
    forest = EndToEndForestClassifier(3, max_depth=2, epochs=2, random_state=0)
    alone = forest.fit(*rows).predict_proba(rows[0])
    with spread(dask_cluster.address):
        assert np.array_equal(forest.fit(*rows).predict_proba(rows[0]), alone)


@pytest.mark.statistical
def test_chains_are_the_same(dask_cluster, rows):
    tree = ConvexPolytopeTreeClassifier(
        max_depth=1,
        min_gain=1.0,
        n_experts=2,
        inference=[
            Svi(epochs=10, n_draws=5),
            Nuts(n_chains=2, n_warmup=5, thinning=4, drop_idle=True, n_draws=5),
        ],
        random_state=0,
    )
    alone = tree.fit(*rows).posterior_.draws
    with spread(dask_cluster.address):
        there = tree.fit(*rows).posterior_.draws
    assert all(np.array_equal(there[name], alone[name]) for name in alone)


def test_a_run_is_the_same(dask_cluster, tmp_path):
    written(tmp_path, run=FOREST)
    plain = ["run", tmp_path / "run.toml", "--quiet", "--out"]
    done(*plain, tmp_path / "alone")
    done(*plain, tmp_path / "there", "--scheduler", dask_cluster.address)
    alone, there = (
        pd.read_parquet(tmp_path / name / "predictions.parquet") for name in ("alone", "there")
    )
    assert there.equals(alone)


def test_predictions_are_the_same(dask_cluster, tmp_path):
    written(tmp_path, run=FOREST)
    folder = tmp_path / "model"
    done("run", tmp_path / "run.toml", "--quiet", "--out", folder)
    (tmp_path / "rows").mkdir()
    for number, start in enumerate((0, 30, 50)):
        table()[start : start + 20].to_parquet(tmp_path / "rows" / f"{number}.parquet")
    for name, option in (("alone", ()), ("there", ("--scheduler", dask_cluster.address))):
        done("predict", folder, tmp_path / "rows", "--out", tmp_path / name, *option)
    alone, there = (pd.read_parquet(tmp_path / name) for name in ("alone", "there"))
    assert len(alone) == 60
    assert there.equals(alone)


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr(passes, "TIMEOUT", 1)
    with pytest.raises(InputError, match="no Dask scheduler answers"), spread("tcp://127.0.0.1:1"):
        pass


def test_no_address():
    with pytest.raises(InputError, match="at 'nonsense://'; start one"), spread("nonsense://"):
        pass


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"bayestree\[cluster\]"), spread("tcp://127.0.0.1:1"):
        pass


def test_workers_of_another_version(dask_cluster, monkeypatch):
    monkeypatch.setattr(passes, "__version__", "99.0")
    words = f"has bayestree {bayestree.__version__}, but this machine has 99.0"
    with pytest.raises(InputError, match=re.escape(words)), spread(dask_cluster.address):
        pass


def test_errors_of_files_stay_what_they_are(dask_cluster):
    with pytest.raises(FileNotFoundError), spread(dask_cluster.address):
        Path("nowhere/file").read_text(encoding="utf-8")


def test_a_cluster_that_goes_away(dask_cluster):
    with (
        pytest.raises(InputError, match="have stopped; restart them"),
        spread(dask_cluster.address),
    ):
        raise TimeoutError


def test_a_killed_worker_loses_no_point_and_doubles_none(dask_cluster, tmp_path):
    file = written(tmp_path, sweep=SWEEP, run=RUN)
    heard = Heard(2, lambda: dask_cluster.kill(dask_cluster.workers[0]))
    found = sweep(file, scheduler=dask_cluster.address, display=heard)
    assert heard.act is None
    assert dask_cluster.workers[0].returncode == -signal.SIGKILL
    assert len(found.table) == len(heard.done) == 8
    assert found.table["key"].is_unique
    assert (found.table["status"] == "done").all()
    assert len(list((tmp_path / "out" / "points").iterdir())) == 8

    other = tmp_path / "other"
    other.mkdir()
    alone = sweep(written(other, sweep=SWEEP, run=RUN))
    assert numbers(found.table).equals(numbers(alone.table))


def test_no_workers(dask_cluster, monkeypatch):
    monkeypatch.setattr(passes, "TIMEOUT", 1)
    for process in dask_cluster.workers:
        if process.poll() is None:
            dask_cluster.kill(process)
    with pytest.raises(InputError, match="has no workers"), spread(dask_cluster.address):
        pass
