"""Points and their keys."""

import numpy as np
import pytest

from bayestree.runs.rows import read_rows
from bayestree.runs.sweep.points import folds_of, points_of
from bayestree.tables import InputError
from tests.runs.sweep.cases import RUN, SWEEP, table, written


def points(folder, **texts):
    file = written(folder, **texts)
    rows = {seed: read_rows(file.files[0].model_copy(update={"seed": seed})) for seed in file.seeds}
    return points_of(file, rows)


def keys(folder, **texts):
    return [one.key for one in points(folder, **texts)]


def test_every_setting_with_every_seed_on_every_fold(tmp_path):
    found = [(one.number, one.file.seed, one.fold) for one in points(tmp_path)]
    assert found == [(n, seed, fold) for n in (0, 1) for seed in (0, 1) for fold in (0, 1)]
    assert len(set(keys(tmp_path))) == 8


def test_without_folds_the_held_out_rows_are_scored(tmp_path):
    found = points(tmp_path, sweep=SWEEP.replace("folds = 2", ""))
    assert [one.fold for one in found] == [None] * 4


class TestKeys:
    @pytest.mark.parametrize(
        ("sweep", "run"),
        [
            (SWEEP.replace("n_jobs = 1", "n_jobs = 2"), RUN),
            (SWEEP.replace('folder = "out"', 'folder = "other"'), RUN),
            (SWEEP, 'title = "Boxes"' + RUN),
            (SWEEP, RUN + "[output]\nreport = false"),
            (SWEEP, RUN.replace("[model]", "[model]\nmin_leaf = 1")),  # what it is anyway
        ],
    )
    def test_same_for_the_same_numbers(self, tmp_path, sweep, run):
        assert keys(tmp_path, sweep=sweep, run=run) == keys(tmp_path)

    def test_other_versions_give_other_numbers(self, tmp_path, monkeypatch):
        here = keys(tmp_path)
        monkeypatch.setattr("bayestree.runs.sweep.points.versions", lambda: {"torch": "1.0"})
        assert not set(keys(tmp_path)) & set(here)

    def test_processes_of_the_estimator_are_of_no_account(self, tmp_path):
        run = RUN.replace("bivariate", "tao")
        assert keys(tmp_path, run=run + "[inference]\nn_jobs = 2") == keys(tmp_path, run=run)

    @pytest.mark.parametrize(
        ("sweep", "run"),
        [
            (SWEEP.replace("folds = 2", "folds = 3"), RUN),
            (SWEEP, RUN.replace("[model]", "test_fraction = 0.3\n[model]")),
            (SWEEP, RUN.replace("[model]", "drop = ['depth']\n[model]")),
            (SWEEP, RUN + "min_leaf = 5"),
            (SWEEP, RUN.replace("bivariate", "tao")),
        ],
    )
    def test_another_for_other_numbers(self, tmp_path, sweep, run):
        assert not set(keys(tmp_path, sweep=sweep, run=run)) & set(keys(tmp_path))

    def test_more_values_keep_those_of_before(self, tmp_path):
        more = SWEEP.replace("[1, 2]", "[3, 2, 1]").replace("[0, 1]", "[2, 1, 0]")
        assert set(keys(tmp_path, sweep=more)) > set(keys(tmp_path))

    def test_other_data_is_another_point(self, tmp_path):
        file = written(tmp_path)
        before = {one.key for one in points_of(file, rows_of(file))}
        table(seed=1).to_csv(tmp_path / "data.csv", index=False)
        assert not before & {one.key for one in points_of(file, rows_of(file))}

    def test_another_place_of_the_data_is_of_no_account(self, tmp_path):
        (tmp_path / "moved").mkdir()
        assert keys(tmp_path / "moved") == keys(tmp_path)


def rows_of(file):
    return {seed: read_rows(file.files[0]) for seed in file.seeds}


class TestFolds:
    @pytest.mark.parametrize("n_folds", [2, 5])
    def test_every_row_is_scored_once_and_evenly_over_the_classes(self, tmp_path, n_folds):
        rows = read_rows(written(tmp_path).files[0])
        folds = folds_of(rows, n_folds, seed=0)
        assert sorted(np.concatenate([held for _, held in folds])) == list(range(len(rows.X)))
        for train, held in folds:
            assert sorted([*train, *held]) == list(range(len(rows.X)))
            assert abs((rows.y[held] == "in").mean() - (rows.y == "in").mean()) < 0.06

    def test_the_seed_says_which(self, tmp_path):
        rows = read_rows(written(tmp_path).files[0])
        first, again, other = (folds_of(rows, 3, seed)[0][1] for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_a_class_of_fewer_rows_than_folds(self, tmp_path):
        rows = read_rows(written(tmp_path).files[0])
        y = np.where(np.arange(len(rows.y)) < 2, "rare", rows.y)
        assert len(folds_of(rows._replace(y=y), 5, seed=0)) == 5

    def test_more_folds_than_rows_are_refused(self, tmp_path):
        rows = read_rows(written(tmp_path).files[0])
        with pytest.raises(InputError, match="folds = 100, but there are 72 training rows"):
            folds_of(rows, 100, seed=0)
