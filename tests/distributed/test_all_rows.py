"""Leaves that are estimated from all rows of a data set, after a fit to a sample of them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from bayestree import EndToEndTreeClassifier, SmallSampleWarning
from bayestree.distributed.passes import on_workers
from bayestree.distributed.worker import Pass, Source, joined, summed
from bayestree.estimators import _data_sets
from bayestree.inference import Mcmc
from bayestree.runs.runner import plan, run
from bayestree.runs.schema import RunFile, read_run
from bayestree.tables import InputError
from bayestree.tables.dataset import Dataset
from tests.distributed.cases import SVI, classifier, regressor, table, written
from tests.distributed.test_fit_files import FEATURES, OTHERS

N, SAMPLE = 3_000, 400
SETTINGS = {"n_workers": 1, "sample_rows": SAMPLE}
QUIET = pytest.mark.filterwarnings("ignore::bayestree.SmallSampleWarning")


@pytest.fixture(scope="module")
def rows():
    return table(N)


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    return written(tmp_path_factory.mktemp("data"), rows)


def fitted(tree, data, target, **columns):
    drop = [name for name in (*OTHERS, "kind") if name not in (target, *columns.values())]
    return tree.fit_files(data, target, drop=drop, **columns, **SETTINGS)


def sums_by_leaf(tree, rows, *columns):
    leaf = tree.apply(rows[FEATURES])
    return [np.bincount(leaf, column, tree.get_n_leaves()) for column in columns]


@QUIET
class TestTreesHaveTheLeavesOfAllRows:
    def test_classes(self, rows, data):
        tree = fitted(classifier(smoothing=2.0), data, "kind")
        inside = (rows["kind"] == "in").to_numpy(float)
        number, own = sums_by_leaf(tree, rows, np.ones(N), inside)
        np.testing.assert_allclose(tree.tree_.leaf_rows, number)
        np.testing.assert_allclose(tree.tree_.value[:, 0], (own + 2 * inside.mean()) / (number + 2))

    def test_expectation_maximisation(self, rows, data):
        tree = EndToEndTreeClassifier(max_depth=2, epochs=3, refine_epochs=3, random_state=0)
        fitted(tree, data, "kind")
        number, own = sums_by_leaf(tree, rows, np.ones(N), rows["kind"] == "in")
        smoothing = tree.smoothing
        share = (own + smoothing * own.sum() / N) / (number + smoothing)
        np.testing.assert_allclose(tree.tree_.value[:, 0], share)

    def test_numbers_with_weights(self, rows, data):
        tree = fitted(regressor(), data, "price", weights="copies")
        weights = rows["copies"].to_numpy(float)
        number, own = sums_by_leaf(tree, rows, weights, weights * rows["price"])
        np.testing.assert_allclose(tree.tree_.leaf_rows, number)
        np.testing.assert_allclose(tree.tree_.value, own / number)

    def test_counts_with_exposures(self, rows, data):
        tree = fitted(regressor(leaf="poisson"), data, "count", exposure="exposure")
        count, exposure = sums_by_leaf(tree, rows, rows["count"], rows["exposure"])
        prior = tree.posterior_.model.leaf
        mean = (count + prior.shape) / (exposure + prior.rate)
        np.testing.assert_allclose(tree.tree_.value, mean)

    def test_every_mode(self, rows, data):
        tree = fitted(classifier(n_modes=2), data, "kind")
        for mode in tree.modes_:
            (number,) = sums_by_leaf(mode, rows, np.ones(N))
            np.testing.assert_allclose(mode.tree_.leaf_rows, number)

    def test_monotone_leaves_stay(self, data):
        tree = fitted(classifier(monotonic_cst={"a": -1}), data, "kind")
        assert tree.tree_.leaf_rows.sum() == tree.sample_check_.n_sample


@QUIET
class TestPosteriors:
    def test_a_point_estimate_is_its_only_draw(self, rows, data):
        posterior = fitted(classifier(), data, "kind").posterior_
        for name in posterior.model.leaf.sites:
            np.testing.assert_array_equal(posterior.draws[name][0, 0], posterior.point[name])

    def test_draws_of_leaves_vary_as_little_as_so_many_rows_allow(self, rows, data):
        tree = fitted(classifier(inference=replace(SVI, n_draws=400)), data, "kind")
        p = tree.posterior_.draws["leaf_probs"][0, :, :, 0].astype(float)
        number = tree.tree_.leaf_rows
        mean = p.mean(axis=0)
        # of a beta distribution of about so many rows; hard and soft leaves are not the same
        largest = number.argmax()
        expected = np.sqrt(mean * (1 - mean) / number)[largest]
        assert p.std(axis=0)[largest] == pytest.approx(expected, rel=0.5)

    def test_draws_of_a_sampler_stay(self, data, monkeypatch):
        sampler = Mcmc(n_chains=1, n_warmup=5, n_draws=5)
        whole = fitted(classifier(inference=sampler), data, "kind").posterior_
        monkeypatch.setattr(_data_sets, "_with_all_rows", lambda tree, *_, **__: tree)
        part = fitted(classifier(inference=sampler), data, "kind").posterior_
        np.testing.assert_array_equal(whole.draws["leaf_probs"], part.draws["leaf_probs"])

    def test_memberships_sum_to_one(self, rows, data):
        tree = fitted(regressor(inference=SVI), data, "price")
        own, here = tree.fitted_.shown, tree.training_data(rows[FEATURES], rows["price"])
        found, _ = summed(own, here, tree.apply(rows[FEATURES]))
        torch.testing.assert_close(found.soft.sum(0), found.hard.sum(0))
        parts = [
            summed(own, here.take(some), tree.apply(rows[FEATURES].iloc[some.numpy()]))[0]
            for some in torch.arange(N).split(1_500)
        ]
        (both,) = joined(*(Pass([one], np.zeros((2, 6))) for one in parts)).trees
        torch.testing.assert_close(both.soft, found.soft)
        torch.testing.assert_close(both.rows, found.rows)

    def test_scores_are_log_densities_in_the_units_of_y(self, rows, data):
        tree = fitted(regressor(inference=replace(SVI, n_draws=8)), data, "price")
        check = tree.sample_check_
        assert check.n_sample + check.n_others == N
        mean = np.average(
            [check.sample_score, check.others_score], weights=[check.n_sample, check.n_others]
        )
        # before the leaves are estimated from all rows, which changes them by a tenth of an error
        score = tree.log_score(rows[FEATURES], rows["price"]).mean()
        assert mean == pytest.approx(score, abs=0.02)


class TestSamples:
    def test_each_row_is_as_probable_as_any_other(self, data):
        source = Source(Dataset.of(data), "kind", drop=tuple(OTHERS))
        with on_workers(source, "classification", n_workers=1, sample_rows=SAMPLE) as (_, sample):
            numbers = sample.training.numbers
        assert len(np.unique(numbers)) == len(numbers)
        share = SAMPLE / N
        # four standard deviations of a binomial number, also in each quarter of the rows
        for own, n in [(numbers, N), *((numbers[numbers // 750 == i], 750) for i in range(4))]:
            assert abs(len(own) - share * n) < 4 * np.sqrt(share * (1 - share) * n)

    def test_neighbours_of_held_out_rows_are_not_preferred(self, data):
        source = Source(Dataset.of(data), "kind", drop=tuple(OTHERS), held_out=0.3)
        with on_workers(source, "classification", n_workers=1, sample_rows=SAMPLE) as (_, sample):
            numbers, aside = sample.training.numbers, sample.held_out.numbers
        share = np.isin(numbers + 1, aside).mean()
        assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(numbers))

    def test_all_rows_are_in_a_large_sample(self, data):
        tree = classifier().fit_files(data, "kind", n_workers=1, drop=OTHERS, sample_rows=N)
        assert tree.sample_check_ is None
        assert tree.tree_.leaf_rows.sum() == N

    @QUIET
    def test_a_fit_in_memory_has_no_check(self, rows, data):
        tree = fitted(classifier(), data, "kind")
        assert tree.sample_check_ is not None
        assert f"(a sample of {N:,}, for about {SAMPLE:,}; see sample_rows)" in str(tree.plan_)
        assert tree.fit(rows[FEATURES], rows["kind"]).sample_check_ is None

    def test_a_tree_that_follows_chance_is_told(self, tmp_path):
        chance = table(N).assign(kind=np.random.default_rng(1).choice(["in", "out"], N))
        limits = {"max_depth": 6, "inference": "grow", "prior": "flat"}
        tree = classifier(**limits, min_leaf=1, min_gain=0.0, min_rows=2.0)
        with pytest.warns(SmallSampleWarning, match="set a larger sample_rows"):
            fitted(tree, written(tmp_path, chance), "kind")
        assert tree.sample_check_.gains
        assert tree.sample_check_.others_score < np.log(0.5)


@QUIET
def test_a_run_records_the_check(data, tmp_path):
    parts = {
        "data": {"path": str(data), "target": "kind", "drop": OTHERS, "test_fraction": 0.2},
        "model": {"max_depth": 2, "n_experts": 2},
        "inference": {"inference": "map", "epochs": 3, "n_modes": 1},
        "cluster": {"workers": 1, "sample_rows": SAMPLE},
        "output": {"folder": "out", "report": False},
    }
    file = RunFile.from_parts(parts, tmp_path / "run.toml")
    planned, found = plan(file), run(file)
    check, n_training = found.metrics["sample_check"], found.metrics["training_rows"]
    assert check["n_sample"] + check["n_others"] == n_training
    assert planned.table.n_rows == check["n_sample"]
    assert f"a sample of {n_training:,}, for about {SAMPLE:,}" in str(planned)
    assert n_training + found.metrics["held_out_rows"] == N
    assert found.metrics["sampled_training_rows"] == check["n_sample"]
    assert json.loads((found.folder / "manifest.json").read_text())["sample_check"] == check


def test_a_run_file_of_an_earlier_version(data, tmp_path):
    file = tmp_path / "run.toml"
    path = json.dumps(str(data))
    file.write_text(f"[data]\npath = {path}\ntarget = 'kind'\n[cluster]\npartitions = 2\n")
    with pytest.raises(InputError, match=r"'partitions' was removed after version 0\.2\.0"):
        read_run(file)
    assert read_run(file, removed="any").cluster is not None


@QUIET
def test_encoded_rows_of_many_categories(tmp_path):
    """Categories that become means of y are encoded as in the sample, without their own fold."""
    rng = np.random.default_rng(0)
    town = rng.integers(40, size=N)
    frame = pd.DataFrame({"town": [f"town {one}" for one in town], "a": rng.normal(size=N)})
    frame["kind"] = np.where(town + 5 * rng.normal(size=N) > 20, "in", "out")
    data = written(tmp_path, frame)
    tree = classifier().fit_files(data, "kind", **SETTINGS)
    assert tree.encoding_.by_y == ["town"]
    assert tree.tree_.leaf_rows.sum() == N
