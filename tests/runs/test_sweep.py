"""Sweeps from file to table."""

import json

import numpy as np
import pandas as pd
import pytest

from bayestree.runs import sweep as driver
from bayestree.runs.rows import read_rows
from bayestree.runs.schema import read_run
from bayestree.runs.sweep import fit_and_score, sweep
from bayestree.tables import InputError
from tests.runs.sweep_cases import RUN, SWEEP, Heard, numbers, written


def files_in(folder):
    return sorted(path.name for path in folder.glob("[!.]*"))


def test_a_folder_with_all_of_it(tmp_path):
    found = sweep(written(tmp_path), command="bayestree sweep")
    out = tmp_path / "out"
    assert files_in(out) == ["best.toml", "points", "results.parquet", "sweep.json", "sweep.toml"]
    assert pd.read_parquet(out / "results.parquet").equals(found.table)
    assert len(found.table) == len(files_in(out / "points")) == 8
    notes = json.loads((out / "sweep.json").read_text())
    assert (notes["status"], notes["points"], notes["done"], notes["failed"]) == ("done", 8, 8, 0)
    assert notes["command"] == "bayestree sweep"
    assert found.metric == "log_loss"
    assert found.best == out / "best.toml"


def test_a_point_is_the_fit_that_it_says(tmp_path):
    file = written(tmp_path, sweep=SWEEP.replace("folds = 2", ""))
    found = sweep(file).table
    run = file.files[1].model_copy(update={"seed": 1})
    rows = read_rows(run)
    tree = run.estimator("classification").fit(rows.X, rows.y, rows.weights)
    own = found[(found["point"] == 1) & (found["seed"] == 1)].iloc[0]
    assert own["accuracy"] == tree.score(rows.X_held, rows.y_held)
    assert own["leaves"] == tree.get_n_leaves()
    assert (own["training_rows"], own["scored_rows"]) == (72, 18)


def test_folds_are_of_the_training_rows(tmp_path):
    found = sweep(written(tmp_path)).table
    assert (found["training_rows"] + found["scored_rows"] == 72).all()
    assert (found["scored_rows"] == 36).all()


def test_the_best_setting_as_a_run(tmp_path):
    found = sweep(written(tmp_path))
    best = read_run(found.best)
    depth = int(found.ranking["model.max_depth"][0])
    assert best.parameters()["max_depth"] == depth
    assert best.output.folder == tmp_path / "out" / "best"
    assert best.data.path == tmp_path / "data.csv"


def test_finished_points_are_not_fitted_again(tmp_path, monkeypatch):
    sweep(written(tmp_path))
    more = written(tmp_path, sweep=SWEEP.replace("[1, 2]", "[1, 2, 3]"))
    heard = Heard()
    found = sweep(more, display=heard)
    assert len(heard.done) == 4
    assert all("max_depth = 3" in line for line in heard.done)
    assert len(found.table) == 12
    assert found.table["key"].is_unique
    monkeypatch.setattr(driver, "in_parallel", None)
    assert sweep(more).table.equals(found.table)


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupted_sweep_goes_on(tmp_path):
    (tmp_path / "other").mkdir()
    whole = sweep(written(tmp_path / "other"))
    with pytest.raises(KeyboardInterrupt):
        sweep(written(tmp_path), display=Heard(3, interrupt))
    out = tmp_path / "out"
    assert len(files_in(out / "points")) == 3
    assert len(pd.read_parquet(out / "results.parquet")) == 3
    assert json.loads((out / "sweep.json").read_text())["status"] == "interrupted"
    heard = Heard()
    found = sweep(written(tmp_path), display=heard)
    assert len(heard.done) == 5
    assert numbers(found.table).equals(numbers(whole.table))


def test_two_processes_find_the_same_numbers(tmp_path):
    (tmp_path / "other").mkdir()
    alone = sweep(written(tmp_path / "other"))
    found = sweep(written(tmp_path), n_jobs=2)
    assert numbers(found.table).equals(numbers(alone.table))


def test_a_point_that_fails_is_a_row_and_is_tried_again(tmp_path):
    text = SWEEP.replace("max_depth = [1, 2]", "patch_size = [[1, 1], [9, 9]]")
    run = RUN.replace("bivariate", "e2edf") + "image_shape = [1, 3]\n[inference]\nepochs = 1"
    heard = Heard()
    found = sweep(written(tmp_path, sweep=text, run=run), display=heard)
    assert found.n_failed == 4
    assert len(heard.warnings) == 4
    failed = found.table[found.table["status"] == "failed"]
    assert failed["error"].str.startswith("ValueError: ").all()
    assert failed["model.patch_size"].unique().tolist() == ["[9, 9]"]
    assert found.ranking["fits"].tolist() == [4, 0]
    assert read_run(found.best).parameters()["patch_size"] in ((1, 1), [1, 1])
    again = Heard()
    sweep(written(tmp_path, sweep=text, run=run), display=again)
    assert (len(again.done), len(again.warnings)) == (0, 4)


def test_folds_of_a_row_have_no_r2(tmp_path):
    text = SWEEP.replace("folds = 2", 'folds = 9\nmetric = "r2"').replace("[0, 1]", "[0]")
    run = RUN.replace('"kind"', '"width"').replace("bivariate", "tao-axis")
    run = run.replace("[model]", "test_fraction = 0.9\n[model]")
    found = sweep(written(tmp_path, sweep=text.replace("[1, 2]", "[1]"), run=run))
    assert (found.table["status"] == "done").all()
    assert found.best is None


class TestRefused:
    def test_no_rows_to_score(self, tmp_path):
        run = RUN.replace("[model]", "test_fraction = 0.0\n[model]")
        with pytest.raises(InputError, match="no rows are held out to score"):
            sweep(written(tmp_path, sweep=SWEEP.replace("folds = 2", ""), run=run))
        assert not (tmp_path / "out").exists()

    def test_a_tree_that_has_not_the_task(self, tmp_path):
        run = RUN.replace('"kind"', '"width"\nevent = "kind"')
        with pytest.raises(InputError, match="'bivariate' supports classification and regression"):
            sweep(written(tmp_path, run=run))

    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes.txt").write_text("mine")
        with pytest.raises(InputError, match="not empty and not a sweep"):
            sweep(written(tmp_path))

    def test_a_folder_that_another_process_writes_to(self, tmp_path):
        file = written(tmp_path)
        with pytest.raises(InputError, match="another process"):
            sweep(file, display=Heard(1, lambda: sweep(file)))


class TestFit:
    class Broken:
        def fit(self, X, y, weights):
            raise MemoryError("too\nlarge")

    def test_an_error_is_an_outcome(self):
        rows = (pd.DataFrame({"a": [1.0]}), np.zeros(1), np.ones(1))
        found = fit_and_score(
            self.Broken(), *rows, X_scored=rows[0], y_scored=rows[1], weights_scored=rows[2]
        )
        assert (found.status, found.error) == ("failed", "MemoryError: too large")
