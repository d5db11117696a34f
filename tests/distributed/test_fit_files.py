"""Fits to data sets that outgrow the memory of a process, by that of the fit alone."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from bayestree import ConvexPolytopeTreeClassifier, EndToEndTreeClassifier
from bayestree.inference import Map, Svi
from tests.distributed.cases import MAP, SVI, classifier, regressor, table, written

FEATURES = ["a", "b", "c", "color"]
OTHERS = ["price", "count", "exposure", "copies"]
ALONE = {"n_workers": 1, "drop": OTHERS}


@pytest.fixture(scope="module")
def rows():
    return table()


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    return written(tmp_path_factory.mktemp("data"), rows)


def without(name):
    return {**ALONE, "drop": [one for one in (*OTHERS, "kind") if one != name]}


class TestTheSameAsInMemory:
    """A sample that has all rows gives the fit to these."""

    ALL = Map(epochs=20, batch_size=10_000)

    def test_classes(self, rows, data):
        given = {"inference": self.ALL}
        there = classifier(**given).fit_files(data, "kind", **ALONE)
        here = classifier(**given).fit(rows[FEATURES], rows["kind"])
        probability = [one.predict_proba(rows[FEATURES]) for one in (there, here)]
        # means of columns are sums in another order
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


def test_several_modes(rows, data):
    tree = classifier(n_modes=2).fit_files(data, "kind", **ALONE)
    assert len(tree.modes_) == 2


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
        ({"sample_rows": 0}, "sample_rows must be 1 or more, got 0"),
        ({"n_partitions": 3}, "n_partitions=3 was removed after version 0.2.0, .* omit it"),
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
        ({"class_weight": "balanced"}, "name a column of weights instead"),
        ({"warm_start": True}, "leave warm_start at False"),
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


def test_files_without_rows(rows, tmp_path):
    with pytest.raises(ValueError, match="has no rows"):
        classifier().fit_files(written(tmp_path, rows[:0], 1), "kind", **ALONE)
