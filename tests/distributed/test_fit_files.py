"""Fits to data sets in partitions, by the process of the fit alone."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone

from bayestree import ConvexPolytopeTreeClassifier, EndToEndTreeClassifier
from bayestree.distributed import cluster, worker
from bayestree.distributed.rows import DistributedRows
from bayestree.inference import Map, Svi, memory_mapped
from tests.distributed.cases import MAP, SVI, classifier, regressor, table, written

FEATURES = ["a", "b", "c", "color"]
OTHERS = ["price", "count", "exposure", "copies"]
ALONE = {"n_workers": 1, "n_partitions": 3, "drop": OTHERS}


@pytest.fixture(scope="module")
def rows():
    return table()


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    return written(tmp_path_factory.mktemp("data"), rows)


def without(name):
    return {**ALONE, "drop": [one for one in (*OTHERS, "kind") if one != name]}


class TestTheSameAsInMemory:
    """With all rows in every step, the partitions only change the order of sums."""

    ALL = Map(epochs=20, batch_size=10_000)

    def test_classes(self, rows, data):
        given = {"inference": self.ALL}
        there = classifier(**given).fit_files(data, "kind", **ALONE)
        here = classifier(**given).fit(rows[FEATURES], rows["kind"])
        probability = [one.predict_proba(rows[FEATURES]) for one in (there, here)]
        # sums in another order, in double precision, over 20 steps of Adam
        np.testing.assert_allclose(*probability, atol=1e-7)
        assert there.classes_.tolist() == here.classes_.tolist()
        assert there.encoding_.feature_names == here.encoding_.feature_names
        assert there.feature_names_in_.tolist() == FEATURES

    def test_numbers_with_weights(self, rows, data):
        given = {"inference": self.ALL}
        settings = without("price")
        settings["drop"].remove("copies")
        there = regressor(**given).fit_files(data, "price", weights="copies", **settings)
        here = regressor(**given).fit(rows[FEATURES], rows["price"], rows["copies"])
        np.testing.assert_allclose(
            there.predict(rows[FEATURES]), here.predict(rows[FEATURES]), atol=1e-7
        )

    def test_counts_with_exposures(self, rows, data):
        given = {"inference": self.ALL, "leaf": "poisson"}
        settings = without("count")
        settings["drop"].remove("exposure")
        there = regressor(**given).fit_files(data, "count", exposure="exposure", **settings)
        here = regressor(**given).fit(rows[FEATURES], rows["count"], exposure=rows["exposure"])
        np.testing.assert_allclose(
            there.predict(rows[FEATURES]), here.predict(rows[FEATURES]), atol=1e-7
        )

    def test_expectation_maximisation(self, rows, data):
        tree = EndToEndTreeClassifier(
            max_depth=2, epochs=5, refine_epochs=5, batch_size=10_000, random_state=0
        )
        there = clone(tree).fit_files(data, "kind", **ALONE)
        here = clone(tree).fit(rows[FEATURES], rows["kind"])
        probability = [one.predict_proba(rows[FEATURES]) for one in (there, here)]
        np.testing.assert_allclose(*probability, atol=1e-7)


@pytest.mark.parametrize("inference", [MAP, SVI, "auto"], ids=str)
def test_the_same_numbers_again(rows, data, inference, monkeypatch):
    monkeypatch.setitem(Svi.__init__.__kwdefaults__, "epochs", 3)
    state = torch.get_rng_state()
    found = [
        classifier(inference=inference)
        .fit_files(data, "kind", **ALONE)
        .predict_proba(rows[FEATURES])
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*found)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_posterior_counts_all_rows_although_the_sample_is_small(rows, data, monkeypatch):
    monkeypatch.setattr(memory_mapped, "HELD", 600)
    tree = classifier(inference=SVI).fit_files(data, "kind", **ALONE)
    assert tree.posterior_.stats["n_rows"] == pytest.approx(len(rows))
    # 600 numbers are 85 rows of 7 features: at most, so every eighth row of 600.
    assert tree.tree_.leaf_rows.sum() == 75


def test_several_modes(rows, data):
    tree = classifier(n_modes=2).fit_files(data, "kind", **ALONE)
    assert len(tree.modes_) == 2


def test_several_modes_stay_in_the_process_that_knows_the_partitions(data, monkeypatch):
    epochs, epoch = [], DistributedRows.epoch
    monkeypatch.setattr(DistributedRows, "epoch", lambda *given: epochs.append(1) or epoch(*given))
    with parallel_config("loky", n_jobs=2):
        classifier(n_modes=2).fit_files(data, "kind", **ALONE)
    assert len(epochs) == 2 * MAP.epochs


def test_a_class_that_only_one_file_has(rows, tmp_path):
    rare = rows.assign(kind=np.where(np.arange(len(rows)) < 5, "rare", rows["kind"]))
    tree = classifier().fit_files(written(tmp_path, rare), "kind", **ALONE)
    assert tree.classes_.tolist() == ["in", "out", "rare"]


def test_remarks_about_columns(rows, tmp_path):
    odd = rows.assign(empty=np.nan)
    with pytest.warns(UserWarning, match="column 'empty' is empty; ignored"):
        classifier().fit_files(written(tmp_path, odd), "kind", **ALONE)


def test_a_failed_fit_leaves_the_estimator_as_it_was(rows, data, tmp_path):
    tree = classifier().fit_files(data, "kind", **ALONE)
    before = tree.predict_proba(rows[FEATURES])
    one = written(tmp_path, rows.assign(kind="in"))
    with pytest.raises(ValueError, match="has one class, 'in'"):
        tree.fit_files(one, "kind", **ALONE)
    np.testing.assert_array_equal(tree.predict_proba(rows[FEATURES]), before)
    tree.fit(rows[FEATURES], rows["kind"])  # whose classes are its own


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": "kid"}, "target 'kid' is not a column of .* did you mean 'kind'"),
        ({"weights": "kind"}, "weights 'kind' is also named as target"),
        ({"drop": ["none"]}, "drop 'none' is not a column"),
        ({"n_workers": 0}, "n_workers must be 1 or more, got 0"),
        ({"n_partitions": 0}, "n_partitions must be 1 or more, got 0"),
        ({"scheduler": "tcp://127.0.0.1:1", "n_workers": 2}, "either n_workers or a scheduler"),
        ({"weights": "a"}, "weights 'a' must be zero or more"),
    ],
)
def test_refused_arguments(data, given, words):
    with pytest.raises(ValueError, match=words):
        classifier().fit_files(data, **{"target": "kind", **ALONE, **given})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inference": "vi"}, "needs a fit that takes its steps on minibatches"),
        ({"inference": Map(optimiser="lbfgs")}, "takes its steps on minibatches"),
        ({"class_weight": "balanced"}, "name a column of weights instead"),
        ({"validation_fraction": 0.2}, "leave validation_fraction at 0"),
        ({"warm_start": True}, "leave warm_start at False"),
        ({"n_jobs": 2}, "leave n_jobs at None"),
        ({"device": "cuda"}, "got device='cuda'"),
    ],
)
def test_refused_parameters(data, settings, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        classifier(**settings).fit_files(data, "kind", **ALONE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.inf}, "infinite value ('a': 1), first at row 150 of '{}/part-3.parquet'"),
        ({"kind": None}, "missing value ('kind': 1), first at row 150 of '{}/part-3.parquet'"),
    ],
)
def test_refused_values_are_found_in_every_file(rows, tmp_path, change, words):
    bad = rows.copy()
    for name, value in change.items():
        bad.loc[bad.index[-1], name] = value
    with pytest.raises(ValueError, match=re.escape(words.format(tmp_path))):
        classifier().fit_files(written(tmp_path, bad), "kind", **ALONE)


def test_no_such_files(tmp_path):
    with pytest.raises(ValueError, match="matches no file"):
        classifier().fit_files(tmp_path / "*.parquet", "kind", **ALONE)


def test_workers_need_dask(data, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ValueError, match=re.escape("pip install 'bayestree[cluster]'")):
        classifier().fit_files(data, "kind", **{**ALONE, "n_workers": 2})


def test_workers_that_go_again_and_again(data, monkeypatch):
    def gone(*_):
        raise cluster.WorkerLostError

    monkeypatch.setattr("bayestree.distributed.worker.epoch", gone)
    with pytest.raises(ValueError, match="workers were lost 5 times in the same step"):
        classifier().fit_files(data, "kind", **ALONE)


@pytest.mark.parametrize("name", ["load", "prepare", "epoch"])
def test_work_whose_worker_goes_is_repeated(data, monkeypatch, name):
    expected = classifier(inference=Map(epochs=2, steepness=None)).fit_files(data, "kind", **ALONE)
    function, calls = getattr(worker, name), []

    def lost_at_first(*given):
        calls.append(given)
        if len(calls) == 2:
            raise cluster.WorkerLostError
        return function(*given)

    monkeypatch.setattr(worker, name, lost_at_first)
    found = classifier(inference=Map(epochs=2, steepness=None)).fit_files(data, "kind", **ALONE)
    frame = pd.read_parquet(data)[FEATURES]
    np.testing.assert_array_equal(found.predict_proba(frame), expected.predict_proba(frame))
    assert len(calls) > 2


def test_a_process_whose_epoch_fails_leaves_its_group(monkeypatch):
    monkeypatch.setitem(worker._groups, "fit", (0, None))
    with pytest.raises(AttributeError, match="shared_epoch"):
        worker.epoch("fit", pickle.dumps((None, 0)), [], [], 0)
    assert "fit" not in worker._groups


@pytest.mark.portable
def test_planted_sides_are_found_from_all_rows(tmp_path):
    rows = table(6_000)
    data = written(tmp_path, rows)
    tree = ConvexPolytopeTreeClassifier(
        inference=Map(epochs=20, steepness=None), max_depth=2, n_modes=1, random_state=0
    ).fit_files(data, "kind", **ALONE)
    new = table(4_000, seed=1)
    # The classes have no noise: a linear boundary within each color. Some rows lie next to it.
    error = float(np.mean(tree.predict(new[FEATURES]) != new["kind"]))
    assert error < 0.05 + 4 * np.sqrt(0.05 * 0.95 / len(new))
    assert isinstance(pd.Series(tree.predict(new[FEATURES])).iloc[0], str)


@pytest.mark.parametrize("stage", [MAP, SVI], ids=str)
def test_minibatches_of_few_rows_of_each_partition(rows, data, stage):
    # 200 rows in 86 steps are three at a time, which end after 67 steps
    method = replace(stage, batch_size=7)
    tree = classifier(inference=method).fit_files(data, "kind", **ALONE)
    assert tree.tree_.n_leaves > 1
    assert np.isfinite(tree.predict_proba(rows[FEATURES])).all()


def test_a_partition_whose_rows_have_no_weight(rows, tmp_path):
    weighted = rows.assign(copies=np.where(np.arange(len(rows)) < 250, 0.0, 1.0))
    others = {**ALONE, "drop": ["price", "count", "exposure"]}
    tree = classifier().fit_files(written(tmp_path, weighted), "kind", weights="copies", **others)
    assert tree.tree_.n_leaves > 1
    assert np.isfinite(tree.predict_proba(rows[FEATURES])).all()


def test_files_without_rows(rows, tmp_path):
    with pytest.raises(ValueError, match="has no rows"):
        classifier().fit_files(written(tmp_path, rows[:0], 1), "kind", **ALONE)


def test_the_word_connection_in_a_message_does_not_mean_that_a_worker_has_gone():
    assert not cluster._is_loss(ValueError("column 'connection' has 2 missing values"))
    assert cluster._is_loss(RuntimeError("Connection closed by peer"))
