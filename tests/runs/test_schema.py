"""The run file: its content, its errors, and round trips."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.estimators.registry import TREES, tasks_of
from bayestree.fitted.serialization import REMOVED
from bayestree.inference import Smc, Svi, Vi
from bayestree.inference.splitters.searches import OC1
from bayestree.runs.cards import read_toml
from bayestree.runs.schema import RunFile, read_run
from bayestree.runs.settings import tree_parameters
from bayestree.tables import InputError

ROOT = Path(__file__).parents[2]
BASE = {"data": {"path": "x.csv", "target": "y"}}
OF_CLASSES = {"data": {"path": "x.csv", "target": "y", "task": "classification"}}


def made(parts=None, where="run.toml", **options):
    return RunFile.from_parts(BASE | (parts or {}), where, **options)


def written(folder, text, name="run.toml"):
    path = folder / name
    path.write_text(text)
    return path


class TestReading:
    def test_all_of_it(self, tmp_path):
        text = """
            title = "Tumours"
            question = "Which are malignant?"
            seed = 3
            [data]
            path = "data/tumours.csv"
            target = "diagnosis"
            weights = "copies"
            drop = ["id"]
            test = "test.csv"
            [model]
            card = "cpt"
            max_depth = 3
            [inference]
            card = "svi"
            epochs = 40
            steepness = "none"
            [output]
            folder = "../results"
            report = false
        """
        run = read_run(written(tmp_path, text))
        home = tmp_path.resolve()
        assert (run.title, run.seed, run.tree, run.task()) == ("Tumours", 3, "cpt", None)
        assert (run.data.path, run.data.test) == (home / "data/tumours.csv", home / "test.csv")
        assert (run.data.weights, run.data.drop, run.data.test_fraction) == ("copies", ("id",), 0)
        assert run.output.folder == home.parent / "results"
        assert (run.output.draws, run.output.report) == (True, False)
        found = run.parameters("classification")
        said = {"max_depth": 3, "epochs": 40, "n_draws": 50, "n_experts": None, "random_state": 3}
        assert said.items() <= found.items()
        assert found["steepness"] is None
        run_only = {"missing_values": None, "verbose": "auto", "warm_start": False}
        of_parts = ConvexPolytopeTreeClassifier.file_settings()
        expected = {name: value for name, value in found.items() if name not in of_parts}
        expected |= run_only | {"inference": Svi(epochs=40)}
        assert run.estimator("classification").get_params(deep=False) == expected

    def test_what_is_left_out(self):
        run = made(where="/work/first.toml")
        assert (run.title, run.question, run.seed, run.tree) == ("", "", 0, "cpt")
        assert run.output.folder == Path("/work/results/first")
        assert run.data.test_fraction == 0.2
        for task in ("classification", "regression"):  # the defaults in Python
            found = run.parameters(task)
            assert (found["inference"], found["n_experts"]) == ("auto", None)

    def test_the_method_may_choose_the_number_of_experts(self):
        run = made({"model": {"n_experts": "none"}, "inference": {"card": "vi"}})
        assert run.parameters("classification")["n_experts"] is None
        assert run.parameters("classification")["steepness"] == 1
        assert run.parameters("regression")["steepness"] == 6

    def test_regression_has_its_own_numbers(self):
        run = made({"model": {"card": "cpt", "max_depth": 2}, "inference": {"card": "map"}})
        of_classes, of_numbers = run.parameters("classification"), run.parameters("regression")
        assert (of_classes["scale_shape"], of_numbers["scale_shape"]) == (0.5, 2.0)
        assert of_classes["max_depth"] == of_numbers["max_depth"] == 2
        own = made({"model": {"card": "cpt", "scale_shape": 1.0}})
        assert own.parameters("regression")["scale_shape"] == 1.0

    def test_the_task_may_follow_from_the_tree(self, monkeypatch):
        monkeypatch.setitem(TREES, "wodt", replace(TREES["wodt"], regressor=None))
        assert made({"model": {"card": "wodt"}}).task() == "classification"
        assert made().task() is None
        with pytest.raises(ValueError, match="task depends on the data"):
            made().parameters()

    def test_what_one_task_can_take_is_left_to_the_data(self):
        run = made({"model": {"card": "tao", "leaf_ridge": 2.0}})
        assert run.parameters("regression")["leaf_ridge"] == 2.0
        with pytest.raises(
            InputError, match="'tao' has no parameter 'leaf_ridge' for classification"
        ):
            run.parameters("classification")
        with pytest.raises(InputError, match="no parameter 'leaf_ridge' for classification"):
            RunFile.from_parts(OF_CLASSES | {"model": {"tree": "tao", "leaf_ridge": 2.0}}, "a.toml")

    def test_leaves_of_one_task(self):
        run = made({"model": {"card": "wodt", "leaf": "logistic"}})
        assert run.estimator("classification").get_params()["leaf"] == "logistic"
        with pytest.raises(InputError, match="leaf"):
            run.parameters("regression")
        with pytest.raises(InputError, match="leaf"):
            RunFile.from_parts(OF_CLASSES | {"model": {"tree": "wodt", "leaf": "linear"}}, "a.toml")

    def test_cards_by_path_are_relative_to_the_run_file(self, tmp_path):
        (tmp_path / "cards").mkdir()
        written(tmp_path / "cards", 'tree = "wodt"\nmax_depth = 7')
        text = '[data]\npath = "a.csv"\ntarget = "y"\n[model]\ncard = "cards/run.toml"'
        run = read_run(written(tmp_path, text))
        assert (run.tree, run.parameters("regression")["max_depth"]) == ("wodt", 7)

    def test_weights_of_classes_by_their_names(self):
        run = made({"model": {"class_weight": {"0": 1.0, "1": 2.5}}})
        found = run.estimator("classification", np.array([1, 0, 1])).class_weight
        assert found == {0: 1.0, 1: 2.5}
        found = made({"model": {"class_weight": {"true": 2, "False": 1}}})
        assert found.estimator("classification", [True, False]).class_weight == {True: 2, False: 1}
        with pytest.raises(InputError, match="class_weight: no class is named '2'"):
            made({"model": {"class_weight": {"2": 1.0}}}).estimator("classification", [0, 1])
        balanced = made({"model": {"class_weight": "balanced"}})
        assert balanced.estimator("classification", ["a", "b"]).class_weight == "balanced"


class TestSets:
    def test_they_win(self, tmp_path):
        text = '[data]\npath = "a.csv"\ntarget = "y"\n[model]\ncard = "cpt"\nmax_depth = 1'
        path = written(tmp_path, text)
        sets = ["max_depth=2", "inference.epochs=5", "seed=8", "output.folder=there", "target=z"]
        run = read_run(path, sets)
        found = run.parameters("regression")
        assert [found[name] for name in ("max_depth", "epochs", "random_state")] == [2, 5, 8]
        assert (run.output.folder.name, run.data.target) == ("there", "z")
        assert read_run(path, ["model.card=wodt"]).tree == "wodt"

    def test_a_method_that_replaces_another_takes_no_settings_that_it_lacks(self):
        card, sets = {"model": {"card": "cpt-paper"}}, [("weight_prior", "gamma-process")]
        said = (
            "card 'cpt-paper': left out objective, epochs, batch_size, learning_rate, which "
            "inference = 'vi' of --set lacks."
        )
        with pytest.warns(UserWarning, match=said):
            run = made(card, sets=[*sets, ("inference", "vi"), ("n_draws", 7)])
        assert run.estimator("classification").inference == Vi(steepness=1.0, n_draws=7)
        svi = made(card, sets=[*sets, ("inference", "svi")])
        assert svi.parameters("regression")["batch_size"] == 500
        with (
            pytest.warns(UserWarning, match=said),
            pytest.raises(InputError, match="inference='vi' has no such setting"),
        ):  # what was asked for is not left out
            made(card, sets=[("inference", "vi"), ("epochs", 7)]).estimator("classification")

    def test_one_of_two_ways_to_hold_out_replaces_the_other(self):
        held = {"data": BASE["data"] | {"test_fraction": 0.5}}
        assert made(held, sets=[("test", "t.csv")]).data.test_fraction == 0
        given = {"data": BASE["data"] | {"test": "t.csv"}}
        assert made(given, sets=[("data.test_fraction", 0.1)]).data.test is None

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("max_dept", "--set: no key is named 'max_dept'; did you mean 'max_depth'"),
            ("model.max_dept", r"--set: \[model\] has no key 'max_dept'; did you mean 'max_depth'"),
            ("inference.max_depth", r"'max_depth' belongs in \[model\]; move it"),
            ("card", "'card' is a key of several tables; write model.card or inference.card"),
            ("modl.x", "--set: no table is named 'modl'; did you mean 'model'"),
            ("data.seed", r"'seed' belongs above all tables; move it"),
            ("n_particles", r"table: write inference = \{name = \"smc\", n_particles = ...\}"),
            ("model.random_state", "'random_state' is set by the run itself; set 'seed' instead"),
        ],
    )
    def test_refused(self, name, said):
        with pytest.raises(InputError, match=said):
            made(sets=[(name, 3)])


def test_a_table_of_settings(tmp_path):
    settings = {"name": "oc1", "n_restarts": 3, "start": "random"}
    parts = {"model": {"tree": "oc1", "splitter": settings}}
    run = made(parts)
    assert run.parameters("regression")["splitter"] == OC1(n_restarts=3, start="random")
    assert run.estimator("regression").splitter == OC1(n_restarts=3, start="random")
    written = run.explicit("regression").to_toml(tmp_path)
    again = RunFile.from_parts(tomllib.loads(written), tmp_path / "run.toml")
    assert again.parameters() == run.parameters("regression")
    smc = {"name": "smc", "n_draws": 10, "split_base": 0.5}
    found = made({"inference": {"inference": smc}}).parameters("classification")
    assert found["inference"] == Smc(n_draws=10, split_base=0.5)


REFUSED = [
    ({"data": 3}, r"run.toml: data must be a table, \[data\], got 3"),
    ({"data": {"path": "x"}}, r"\[data\] has no target; add target = "),
    ({"data": {"path": 3, "target": "y"}}, r"\[data\]: path must be a path in quotes, got 3"),
    ({"data": BASE["data"] | {"tsk": "auto"}}, r"\[data\]: unknown key 'tsk'; did you mean 'task'"),
    (
        {"data": BASE["data"] | {"task": "clasification"}},
        r"\[data\]: task must be 'auto', .*, got 'clasification'; did you mean 'classification'\?",
    ),
    ({"data": BASE["data"] | {"target": 3}}, r"\[data\]: target must be text or a list, got 3"),
    ({"inference": {"inference": "svii"}}, r"got 'svii'; did you mean 'svi'\?"),
    ({"data": BASE["data"] | {"test_fraction": 1.0}}, "test_fraction must be 0.9 or less, got 1.0"),
    ({"data": BASE["data"] | {"drop": "x"}}, r"drop must be a list, got 'x'\."),
    (
        {"data": BASE["data"] | {"test": "t", "test_fraction": 0.1}},
        "set test or test_fraction, not both",
    ),
    (
        {"data": BASE["data"] | {"max_depth": 3}},
        r"'max_depth' belongs in \[model\]; move it",
    ),
    ({"dat": {}}, r"run.toml: no table is named \[dat\]; did you mean '\[data\]'"),
    ({"sed": 3}, "no key is named 'sed'; did you mean 'seed'"),
    ({"seed": -1}, "seed must be 0 or more, got -1"),
    ({"seed": 2**32}, "seed must be below 4294967296, got 4294967296"),
    ({"seed": True}, "seed must be an integer, got True"),
    ({"max_depth": 3}, r"run.toml: 'max_depth' belongs in \[model\]; move it there"),
    (
        {"model": {"max_dept": 3}},
        r"\[model\]: tree 'cpt' has no parameter 'max_dept'; did you mean",
    ),
    ({"model": {"epochs": 3}}, r"\[model\]: 'epochs' belongs in \[inference\]; move it"),
    ({"inference": {"prior": "flat"}}, r"\[inference\]: 'prior' belongs in \[model\]; move it"),
    ({"inference": {"tree": "cpt"}}, r"\[inference\]: 'tree' belongs in \[model\]; move it"),
    ({"model": {"seed": 3}}, r"\[model\]: 'seed' belongs above all tables; move it"),
    (
        {"model": {"max_depth": "3"}},
        "max_depth must be an integer of 0 or more, or \"none\", got '3'",
    ),
    ({"model": {"max_depth": True}}, "max_depth must be an integer .*, got True"),
    ({"model": {"max_depth": 2**40}}, "max_depth must be .*, got 1099511627776"),
    ({"model": {"rate": 0}}, "rate must be a number above 0, got 0"),
    ({"model": {"rate": float("nan")}}, "rate must be .*, got nan"),
    (
        {"model": {"max_leaves": 0}},
        'max_leaves must be an integer of 1 or more, or "none", got 0',
    ),
    ({"model": {"image_shape": [3]}}, r"image_shape must be \[height, width\], .*, got \[3\]"),
    ({"inference": {"target_acceptance": 1}}, "must be a number above 0 and below 1"),
    ({"inference": {"guide": 3}}, "guide must be a string, got 3"),
    ({"model": {"random_state": 3}}, "'random_state' is set by the run itself; set 'seed'"),
    (
        {"model": {"card": "cp"}},
        r"run.toml \[model\]: no model card is named 'cp'; did you mean 'cpt'",
    ),
    ({"model": {"card": 3}}, "card must be a name or a path, got 3"),
    ({"model": {"card": "./no.toml"}}, "model card '.*no.toml' does not exist"),
    ({"model": {"tree": "oak"}}, "no tree is named 'oak'; expected one of"),
    (
        {"model": {"card": "wodt", "tree": "tao"}},
        "conflicting trees: card 'wodt' names 'wodt' and ",
    ),
    (
        {"model": {"tree": "cpt-k1", "n_experts": 3}},
        "n_experts of tree 'cpt-k1' must be 1, got 3; choose another tree",
    ),
    (
        {"model": {"tree": "wodt", "n_experts": 3}},
        "no parameter 'n_experts', which cpt, cpt-k1 have",
    ),
    (
        {"model": {"tree": "oc1", "splitter": {"name": "co2"}}},
        "splitter of tree 'oc1' must be \"oc1\", or a table of its name and settings, got",
    ),
    (
        {"model": {"tree": "oc1", "splitter": {"name": "oc1", "n_restart": 3}}},
        "splitter 'oc1' has no setting 'n_restart'; did you mean 'n_restarts'",
    ),
    (
        {"model": {"tree": "co2", "splitter": {"name": "co2", "nu": -1.0}}},
        "nu of splitter 'co2' must be a number above 0, or \"none\", got -1.0",
    ),
    (
        {"model": {"tree": "oc1"}, "inference": {"n_restarts": 3}},
        r"'n_restarts' belongs in a table: write splitter = \{name = \"oc1\", n_restarts = ...\}",
    ),
    *(
        ({"inference": {name: False}}, rf"'{name}' was removed after version 0\.2\.0; .*remove it")
        for name in REMOVED
    ),
    (
        {"model": {"card": "wodt"}, "inference": {"card": "svi"}},
        "card 'svi': tree 'wodt' has no parameter .* Inference cards of 'wodt': lbfgs",
    ),
]


@pytest.mark.parametrize(("parts", "said"), REFUSED)
def test_refused(parts, said):
    with pytest.raises(InputError, match=said) as caught:
        made(parts)
    assert "\n" not in str(caught.value)


def test_no_data_at_all():
    with pytest.raises(InputError, match=r"run.toml: the table \[data\] is missing"):
        RunFile.from_parts({}, "run.toml")


class TestRoot:
    def test_every_path_stays_inside(self, tmp_path):
        inside = tmp_path / "in"
        inside.mkdir()
        card = written(tmp_path, 'tree = "cpt"', "card.toml")
        for parts in (
            {"data": {"path": "../x.csv", "target": "y"}},
            {"data": BASE["data"] | {"test": str(tmp_path / "x.csv")}},
            {"model": {"card": str(card)}},
            {"inference": {"card": "../card.toml"}},
            {"output": {"folder": "../out"}},
        ):
            with pytest.raises(InputError, match="is outside --root"):
                made(parts, inside / "run.toml", root=inside)
        made({"model": {"card": "cpt"}}, inside / "run.toml", root=inside)

    def test_links_in_the_folder_of_the_run(self, tmp_path):
        inside = tmp_path / "in"
        (inside / "out" / "checkpoints").mkdir(parents=True)
        parts = {"output": {"folder": "out"}}
        (inside / "out" / "own.log").symlink_to(inside / "other.log")
        assert made(parts, inside / "run.toml", root=inside).output.folder.name == "out"
        (inside / "out" / "checkpoints" / "0").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match=r"link '.*checkpoints/0' is outside --root"):
            made(parts, inside / "run.toml", root=inside)
        made(parts, inside / "run.toml")

    def test_files_of_a_data_set(self, tmp_path):
        inside = tmp_path / "in"
        (inside / "rows").mkdir(parents=True)
        (inside / "rows" / "0.parquet").symlink_to(tmp_path / "x.parquet")
        for path in ("rows", "rows/*.parquet", "s3://bucket/rows"):
            parts = {"data": {"path": path, "target": "y", "task": "regression"}}
            with pytest.raises(InputError, match=r"is outside --root"):
                made(parts, inside / "run.toml", root=inside)
            assert f'path = "{path}"' in made(parts, inside / "run.toml").to_toml(inside)

    def test_the_run_file_as_well(self, tmp_path):
        (tmp_path / "in").mkdir()
        path = written(tmp_path, '[data]\npath = "in/x.csv"\ntarget = "y"')
        with pytest.raises(InputError, match=r"run file '.*' is outside --root"):
            read_run(path, root=tmp_path / "in")
        assert read_run(path, root=tmp_path).data.path == tmp_path.resolve() / "in" / "x.csv"


EVERY = [(tree, task) for tree in TREES for task in tasks_of(tree)]


class TestWriting:
    @pytest.mark.parametrize(("tree", "task"), EVERY)
    def test_explicit_and_read_again(self, tree, task, tmp_path):
        run = made({"seed": 5, "model": {"card": tree}}, tmp_path / "run.toml")
        explicit = run.explicit(task)
        folder = tmp_path / "results" / "run"
        folder.mkdir(parents=True)
        explicit.write_toml(folder / "run.toml")
        content = read_toml(folder / "run.toml", "run file")
        said = {**content["model"], **content["inference"]}
        del said["tree"]
        assert said.keys() == tree_parameters(tree, task).keys()
        again = read_run(folder / "run.toml")
        assert again.task() == task
        assert again.parameters() == run.parameters(task)
        assert again == explicit
        assert again.to_toml(folder) == explicit.to_toml(folder)

    def test_paths_are_seen_from_the_folder(self, tmp_path):
        run = made(where=tmp_path / "run.toml").explicit("regression")
        folder = tmp_path / "results" / "run"
        text = run.to_toml(folder)
        assert 'path = "../../x.csv"' in text
        assert 'folder = "."' in text

    def test_a_test_file_and_weights_of_classes_stay(self, tmp_path):
        data = BASE["data"] | {"test": "t.csv", "drop": ["a", "b"]}
        parts = {"data": data, "model": {"class_weight": {"a": 2.0}, "image_shape": [1, 2]}}
        run = made(parts, tmp_path / "run.toml")
        run.explicit("classification").write_toml(tmp_path / "again.toml")
        again = read_run(tmp_path / "again.toml")
        assert again.data == run.explicit("classification").data
        assert again.parameters() == run.parameters("classification")
        assert again.parameters()["class_weight"] == {"a": 2.0}

    def test_not_before_the_task_is_known(self, tmp_path, monkeypatch):
        monkeypatch.setitem(TREES, "wodt", replace(TREES["wodt"], regressor=None))
        with pytest.raises(ValueError, match="task depends on the data"):
            made({"model": {"card": "tao"}}).to_toml(tmp_path)
        run = made({"model": {"card": "wodt", "max_depth": 3}}, tmp_path / "run.toml")
        run.write_toml(tmp_path / "again.toml")
        assert read_run(tmp_path / "again.toml").parameters() == run.parameters()


def test_a_run_goes_to_another_process_as_its_fields():
    run = made({"model": {"card": "cpt"}})
    assert RunFile(**dict(run)) == run
    assert json.loads(run.model_dump_json())["tree"] == "cpt"


RUNS = [path for path in (ROOT / "examples").glob("*.toml") if "[vary]" not in path.read_text()]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_examples_are_run_files(path):
    run = read_run(path, root=ROOT)
    assert run.title
    assert run.question


@pytest.mark.parametrize("value", ["false", "true"])
def test_removed_parameters_of_a_run_that_has_been_fitted(value, tmp_path):
    text = f'[data]\npath = "x.csv"\ntarget = "y"\n[inference]\nlearn_prior = {value}\n'
    path = written(tmp_path, text, "run.toml")
    assert not any(one.key == "learn_prior" for one in read_run(path, removed="any").settings)
    if value == "false":
        assert read_run(path, removed="default").settings == ()
        return
    for removed in ("default", "refused"):
        with pytest.raises(InputError, match="'learn_prior' was removed after"):
            read_run(path, removed=removed)
