"""Sweeps from file to table."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from sklearn.base import clone
from sklearn.metrics import log_loss

from bayestree import BivariateTreeClassifier
from bayestree.runs import sweep as driver
from bayestree.runs.rows import read_rows
from bayestree.runs.schema import read_run
from bayestree.runs.sweep import (
    PointOutcome,
    SweepFolder,
    SweepPoint,
    fit_and_score,
    folds_of,
    points_of,
    ranking,
    sweep,
    table_of,
)
from bayestree.runs.sweep_file import read_sweep
from bayestree.tables import InputError
from tests.runs.sweep_cases import RUN, SWEEP, Heard, numbers, table, written


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


def test_the_rows_of_a_fold_keep_their_weights():
    X, kind = table().drop(columns="kind"), table()["kind"].to_numpy()
    weights = np.where(kind == "in", 9.0, 1.0)
    train, held = np.arange(60), np.arange(60, 90)
    tree = BivariateTreeClassifier(max_depth=1)
    rows = {"X_scored": X[:0], "y_scored": kind[:0], "weights_scored": weights[:0]}
    found = fit_and_score(clone(tree), X, kind, weights, **rows, fold=(train, held))
    own = tree.fit(X[:60], kind[:60], weights[:60]).predict_proba(X[60:])
    assert found.scores["log_loss"] == pytest.approx(
        log_loss(kind[60:], own, sample_weight=weights[60:])
    )


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


def test_settings_that_exclude_each_other_are_refused_before_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "read_rows", lambda _: pytest.fail("the table was read"))
    text = SWEEP.replace("max_depth = [1, 2]", 'prior = ["inverse-gamma", "laplace"]')
    run = RUN.replace("bivariate", "cpt") + '[inference]\ncard = "vi"'
    said = r"^\[vary\] model\.prior = laplace: inference='vi' needs InverseGammaScale .* use prior="
    with pytest.raises(InputError, match=said):
        sweep(written(tmp_path, sweep=text, run=run))
    assert not (tmp_path / "out").exists()


def test_two_processes_find_the_same_numbers(tmp_path):
    (tmp_path / "other").mkdir()
    alone = sweep(written(tmp_path / "other"))
    found = sweep(written(tmp_path), n_jobs=2)
    assert numbers(found.table).equals(numbers(alone.table))


def test_a_point_that_fails_is_a_row_and_is_tried_again(tmp_path):
    text = SWEEP.replace("max_depth = [1, 2]", "image_shape = [[1, 3], [2, 2]]")
    run = RUN.replace("bivariate", "e2edf") + "[inference]\nepochs = 1"
    heard = Heard()
    found = sweep(written(tmp_path, sweep=text, run=run), display=heard)
    assert found.n_failed == 4
    assert len(heard.warnings) == 4
    failed = found.table[found.table["status"] == "failed"]
    assert failed["error"].str.startswith("ParameterError: ").all()
    assert failed["model.image_shape"].unique().tolist() == ["[2, 2]"]
    assert found.ranking["fits"].tolist() == [4, 0]
    assert read_run(found.best).parameters()["image_shape"] in ((1, 3), [1, 3])
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


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_sweep_is_one_that_can_be():
    for path in EXAMPLES.glob("*-sweep.toml"):
        assert read_sweep(path).settings


def test_priors(tmp_path):
    run = tomllib.loads((EXAMPLES / "priors.toml").read_text())
    run["data"]["path"] = str(EXAMPLES / "data" / "diabetes.csv")
    run["model"] |= {"card": str(EXAMPLES / run["model"]["card"]), "max_depth": 1, "n_experts": 2}
    run["inference"] |= {"epochs": 2, "n_draws": 5}
    (tmp_path / "priors.toml").write_text(tomli_w.dumps(run))
    text = (EXAMPLES / "priors-sweep.toml").read_text()
    for large, small in (
        ("[0, 1]", "[0]"),
        ("folds = 3", "folds = 2"),
        ("[0.1, 1.0, 5.0]", "[0.1]"),
    ):
        text = text.replace(large, small)
    (tmp_path / "sweep.toml").write_text(text)
    file = read_sweep(tmp_path / "sweep.toml")
    found = sweep(file, n_jobs=1)
    assert (found.table["status"] == "done").all()
    assert found.metric == "rmse"
    assert len(found.table) == 2 * len(file.settings)


def points_in(folder, **texts):
    file = written(folder, **texts)
    rows = {seed: read_rows(file.files[0].model_copy(update={"seed": seed})) for seed in file.seeds}
    return points_of(file, rows)


def keys(folder, **texts):
    return [one.key for one in points_in(folder, **texts)]


def test_every_setting_with_every_seed_on_every_fold(tmp_path):
    found = [(one.number, one.file.seed, one.fold) for one in points_in(tmp_path)]
    assert found == [(n, seed, fold) for n in (0, 1) for seed in (0, 1) for fold in (0, 1)]
    assert len(set(keys(tmp_path))) == 8


def test_without_folds_the_held_out_rows_are_scored(tmp_path):
    found = points_in(tmp_path, sweep=SWEEP.replace("folds = 2", ""))
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
        monkeypatch.setattr("bayestree.runs.sweep.versions", lambda: {"torch": "1.0"})
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


@pytest.fixture
def points(tmp_path):
    file = written(tmp_path)
    return [
        SweepPoint(f"{number}-{seed}", number, setting, one.model_copy(update={"seed": seed}), None)
        for number, (setting, one) in enumerate(zip(file.settings, file.files, strict=True))
        for seed in (0, 1)
    ]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sweep").mkdir()
    found = SweepFolder(tmp_path / "sweep")
    found.claim(force=False)
    return found


def outcome(loss, **others):
    return PointOutcome("done", scores={"log_loss": loss}, leaves=2, seconds=1.5, **others)


class TestFolder:
    def test_outcomes_come_back(self, folder, points):
        one = outcome(0.5, depth=1, training_rows=3, scored_rows=4, warnings=["w"], worker="a:1")
        folder.write_outcome(points[0], one)
        assert folder.outcomes(points) == {points[0].key: one}

    def test_failed_points_are_tried_again(self, folder, points):
        folder.write_outcome(points[0], PointOutcome.failed("no\nway"))
        assert folder.outcomes(points) == {}

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "null",
            "{}",
            '{"outcome": 3}',
            '{"outcome": {}}',
            '{"outcome": {"status": "fine"}}',
            '{"outcome": {"status": "done", "scores": 3}}',
            '{"outcome": {"status": "done", "scores": {"log_loss": "x"}}}',
            '{"outcome": {"status": "done", "leaves": "two"}}',
            "[" * 100_000,
        ],
    )
    def test_what_is_no_outcome_is_not_finished(self, folder, points, text):
        (folder / folder._file_name(points[0])).write_text(text)
        assert folder.outcomes(points) == {}

    def test_a_changed_outcome_is_not_finished(self, folder, points):
        folder.write_outcome(points[0], outcome(0.5))
        path = folder / folder._file_name(points[0])
        path.write_text(path.read_text().replace("0.5", "0.25"))
        assert folder.outcomes(points) == {}

    @pytest.mark.parametrize("place", ["points", "points/0-0.json", "results.parquet", ".lock"])
    def test_links_are_not_followed(self, tmp_path, place):
        folder = SweepFolder(tmp_path / "sweep")
        (folder / place).parent.mkdir(parents=True)
        (folder / place).symlink_to(tmp_path)
        with pytest.raises(InputError, match=rf"{place}' is a link .*; remove it"):
            folder.check()

    def test_something_else_is_not_written_to(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(InputError, match="is not empty and not a sweep"):
            SweepFolder(tmp_path).claim(force=False)
        SweepFolder(tmp_path).claim(force=True)
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_a_sweep_that_was_killed_as_it_began(self, folder):
        draft = folder / ".sweep.toml.x1"
        draft.write_text("tit")
        folder.claim(force=False)
        assert not draft.exists()

    def test_points_of_something_else(self, folder):
        (folder / "points" / "mine.txt").write_text("mine")
        with pytest.raises(InputError, match="and not a sweep"):
            folder.claim(force=False)

    def test_drafts_of_a_killed_process_go(self, folder, points):
        draft = folder / "points" / ".0-0.json.x1"
        draft.write_text("half")
        (folder / "sweep.toml").write_text("")
        folder.claim(force=False)
        assert not draft.exists()


class TestTable:
    def test_rows_in_the_order_of_the_points(self, points):
        found = table_of(points, {"1-0": outcome(0.2), "0-1": outcome(0.3)})
        assert found["point"].tolist() == [0, 1]
        assert found["model.max_depth"].tolist() == [1, 2]
        assert found["seed"].tolist() == [1, 0]
        assert found["log_loss"].tolist() == [0.3, 0.2]
        assert found["fold"].isna().all()

    def test_failed_points_say_why(self, points, folder):
        found = table_of(points, {"0-0": PointOutcome.failed("no\nway"), "0-1": outcome(0.1)})
        assert found["error"].tolist() == ["no way", ""]
        assert found["log_loss"].isna().tolist() == [True, False]
        folder.write_table(found)
        assert pd.read_parquet(folder / "results.parquet").equals(found)

    @pytest.mark.parametrize(
        ("values", "written_as"),
        [
            ([1, 2], [1, 2]),
            ([1, 2.5], [1.0, 2.5]),
            ([True, False], [True, False]),
            (["a", "b"], ["a", "b"]),
            (["sqrt", 3], ["sqrt", "3"]),
            ([True, 3], ["true", "3"]),
            ([[8, 8], [4, 4]], ["[8, 8]", "[4, 4]"]),
        ],
    )
    def test_values_of_any_kind_make_a_column(self, points, folder, values, written_as):
        given = [
            SweepPoint(one.key, one.number, {"model.x": value}, one.file, None)
            for one, value in zip(points, values, strict=False)
        ]
        folder.write_table(table_of(given, {one.key: outcome(0.1) for one in given}))
        assert pd.read_parquet(folder / "results.parquet")["model.x"].tolist() == written_as


class TestRanking:
    def test_means_over_seeds_the_best_first(self, points):
        losses = {"0-0": 0.4, "0-1": 0.6, "1-0": 0.1, "1-1": 0.3}
        table = table_of(points, {key: outcome(loss) for key, loss in losses.items()})
        found = ranking(table, "log_loss", 2)
        assert found["point"].tolist() == [1, 0]
        assert found["mean"].tolist() == pytest.approx([0.2, 0.5])
        assert found["sd"].tolist() == pytest.approx([0.02**0.5] * 2)
        assert found["seconds"].tolist() == [3.0, 3.0]

    def test_more_accuracy_is_better(self, points):
        scores = {"0-0": 0.9, "0-1": 0.9, "1-0": 0.8, "1-1": 0.8}
        done = {key: PointOutcome("done", scores={"accuracy": one}) for key, one in scores.items()}
        assert ranking(table_of(points, done), "accuracy", 2)["point"].tolist() == [0, 1]

    def test_a_setting_with_a_failed_fit_is_not_held_against_the_others(self, points):
        done = {"0-0": outcome(0.0), "0-1": PointOutcome.failed("x"), "1-0": outcome(1.0)}
        found = ranking(table_of(points, done | {"1-1": outcome(1.0)}), "log_loss", 2)
        assert found["point"].tolist() == [1, 0]
        assert found["mean"].isna().tolist() == [False, True]
        assert found["fits"].tolist() == [2, 1]

    def test_nothing_but_failures(self, points):
        table = table_of(points, {one.key: PointOutcome.failed("x") for one in points})
        found = ranking(table, "log_loss", 2)
        assert found["mean"].isna().all()
        assert found["fits"].tolist() == [0, 0]
