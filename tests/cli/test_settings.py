"""From the tree's name, cards and single settings to an estimator."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayestree
from bayestree import cli
from bayestree._cli import output
from bayestree._cli.settings import Choice, Setting, choose, fit_rows, make, read_card, read_pair
from bayestree._cli.trees import TREES
from bayestree.tables import InputError

NONE = ({}, ())


def card(folder, text, name="my.toml"):
    path = folder / name
    path.write_text(text)
    return path


class TestPairs:
    @pytest.mark.parametrize(
        ("pair", "name", "value"),
        [
            ("max_depth=3", "max_depth", 3),
            ("rate=1e-3", "rate", 0.001),
            ("extend = true", "extend", True),
            ('guide="Auto=Normal"', "guide", "Auto=Normal"),
            ("scaling=common", "scaling", "common"),
            ("order=best-first", "order", "best-first"),
            ("image_shape=[28, 28]", "image_shape", [28, 28]),
        ],
    )
    def test_values_are_those_of_toml(self, pair, name, value):
        found = read_pair(pair)
        assert found == Setting(name, value, "--set")
        assert type(found.value) is type(value)

    @pytest.mark.parametrize("pair", ["depth", "=3", "depth=", "depth=3 4", "a=1\nb=2", "x=not so"])
    def test_refused(self, pair):
        with pytest.raises(InputError, match="--set"):
            read_pair(pair)


class TestChoose:
    def test_later_settings_win(self, tmp_path):
        cards = [
            card(tmp_path, 'tree = "cpt"\nmax_depth = 1\nrate = 2.0', "a.toml"),
            card(tmp_path, "max_depth = 2\nmin_rows = 5", "b.toml"),
        ]
        options = {"--depth": ("max_depth", 3), "--experts": ("n_experts", None)}
        made = make(choose(None, cards, options, ["min_rows=7"]), "classification", seed=4)
        found = made.get_params()
        assert [found[name] for name in ("max_depth", "rate", "min_rows")] == [3, 2.0, 7]
        assert (found["n_experts"], found["random_state"]) == (20, 4)

    def test_the_tree_of_a_card(self, tmp_path):
        path = card(tmp_path, 'tree = "cpt-k1"')
        assert choose(None, [path], *NONE).tree == "cpt-k1"
        assert choose("cpt-k1", [path], *NONE).tree == "cpt-k1"
        assert choose(None, [], *NONE).tree == "cpt"
        with pytest.raises(InputError, match=r"--tree names 'cpt' and card .* names 'cpt-k1'"):
            choose("cpt", [path], *NONE)

    def test_unknown_trees(self, tmp_path):
        with pytest.raises(InputError, match=r"--tree: .*'cpt-k2'; did you mean 'cpt-k1'"):
            choose("cpt-k2", [], *NONE)
        with pytest.raises(InputError, match=r"no tree is named 3; it may be one of .*cpt"):
            choose(None, [card(tmp_path, "tree = 3")], *NONE)
        with pytest.raises(InputError, match=r"no tree is named \['cpt'\]"):
            choose(None, [card(tmp_path, "tree = ['cpt']")], *NONE)

    def test_unreadable_cards(self, tmp_path):
        with pytest.raises(InputError, match="is no file"):
            read_card(tmp_path)
        with pytest.raises(InputError, match="is not TOML"):
            read_card(card(tmp_path, "max_depth 3"))


class TestMake:
    @pytest.mark.parametrize(
        ("setting", "said"),
        [
            (("max_dept", 3), "--set: tree 'cpt' has no parameter 'max_dept'; did you mean 'max_d"),
            (("zzzz", 3), "it may be one of batch_size, .*validation_fraction"),
            (("max_depth", 1.5), "'max_depth' parameter .* must be an int"),
            (("scaling", "comon"), "'scaling' parameter .* Got 'comon'"),
            (("random_state", 3), "use --seed"),
            (("verbose", False), "set by the command line"),
        ],
    )
    def test_refused(self, setting, said):
        with pytest.raises(InputError, match=said):
            make(Choice("cpt", [Setting(*setting, "--set")]), "classification", seed=0)

    def test_what_makes_a_tree_stays(self):
        choice = Choice("cpt-k1", [Setting("n_experts", 3, "--experts")])
        with pytest.raises(InputError, match=r"--experts: n_experts = 3, but tree 'cpt-k1'"):
            make(choice, "regression", seed=0)
        same = Choice("cpt-k1", [Setting("n_experts", 1, "--experts")])
        assert make(same, "regression", seed=0).n_experts == 1

    def test_an_option_that_the_tree_does_not_have(self):
        choice = choose("wodt", [], {"--draws": ("n_draws", 5)}, ())
        with pytest.raises(InputError, match=r"--draws: tree 'wodt' .* 'n_draws'; leave it out"):
            make(choice, "classification", seed=0)

    def test_where_a_tree_begins(self):
        assert make(Choice("cpt-k1", []), "regression", seed=0).n_experts == 1
        assert make(Choice("cpt", []), "regression", seed=0).n_experts == 20

    @pytest.mark.parametrize("name", [name for name in TREES if TREES[name].regressor is None])
    def test_a_tree_of_classes_only(self, name):
        said = f"tree '{name}' is of classes only; for regression take cpt, "
        with pytest.raises(InputError, match=said):
            make(Choice(name, []), "regression", seed=0)

    @pytest.mark.parametrize("name", TREES)
    def test_what_is_fixed_and_started_with_are_parameters(self, name):
        tree = TREES[name]
        for kind in filter(None, (tree.classifier, tree.regressor)):
            parameters = getattr(bayestree, kind)().get_params()
            assert {**tree.fixed, **tree.start}.keys() <= parameters.keys()

    def test_settings_that_do_not_go_together(self):
        choice = Choice("cpt", [Setting("search_facets", True, "--set")])
        told = {"kl_weight": 0.5}

        class Odd:
            def fit(self, X, y, weights):
                raise ValueError(f"search_facets needs {told}")

        class Rows:
            X = y = weights = None

        with pytest.raises(InputError, match="search_facets needs"):
            fit_rows(Odd(), Rows, choice)
        with pytest.raises(ValueError, match="search_facets") as caught:
            fit_rows(Odd(), Rows, Choice("cpt", []))
        assert not isinstance(caught.value, InputError)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["width", "height"])
    score = X["width"] + X["height"]
    X.assign(kind=np.where(score > 0, "big", "small")).to_csv("classes.csv", index=False)
    X.assign(price=score.round(3)).to_csv("numbers.csv", index=False)


# Any parameter of a tree that makes it quick.
QUICK = {"epochs": 20, "refine_epochs": 2, "learning_rate": 0.05, "n_draws": 2, "max_depth": 2,
         "n_estimators": 4, "min_rows": 2, "min_leaf": 1, "min_gain": 0}  # fmt: skip


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("name", "task", "target"),
    [
        (name, task, target)
        for name in TREES
        for task, target in (("classification", "kind"), ("regression", "price"))
        if TREES[name].of(task)
    ],
)
def test_every_tree_fits_and_predicts(name, task, target, tables, tmp_path):
    parameters = getattr(bayestree, TREES[name].of(task))().get_params()
    sets = [f"--set={key}={value}" for key, value in QUICK.items() if key in parameters]
    data = "classes.csv" if task == "classification" else "numbers.csv"
    fitted = run("fit", data, "--target", target, "--tree", name, "--out", "tree", *sets)
    assert fitted.exit_code == 0, fitted.output
    # the others give one draw, of splits that have one facet
    assert (tmp_path / "tree" / "facets.csv").exists() == name.startswith("cpt")
    done = run("predict", "tree", data)
    assert done.exit_code == 0, done.output
    model = bayestree.load("tree/model.safetensors")
    assert type(model).__name__ == TREES[name].of(task)
    table = pd.read_csv(data)
    found = pd.read_csv("predictions.csv")["prediction"]
    assert list(found) == pytest.approx(list(model.predict(table[["width", "height"]])))
    score = float(re.search(r"(?:accuracy|r2) ([\d.]+)", done.stdout)[1])
    assert score > (0.75 if task == "classification" else 0.4)


def test_the_same_by_a_card(tables, tmp_path):
    path = card(tmp_path, 'tree = "cpt-k1"\nmax_depth = 1\nepochs = 2\nn_draws = 2')
    words = ("fit", "classes.csv", "--target", "kind", "--out")
    assert run(*words, "a", "--card", path).exit_code == 0
    options = ("--depth", "1", "--epochs", "2", "--draws", "2")
    assert run(*words, "b", "--tree", "cpt-k1", *options).exit_code == 0
    read = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert read[0] == read[1]
    refused = run(*words, "c", "--card", path, "--set", "max_dept=2")
    assert refused.exit_code == 2
    assert "did you mean 'max_depth'" in refused.stderr
    assert not (tmp_path / "c").exists()


def test_a_large_tree_is_written_not_printed(tables, tmp_path, monkeypatch):
    words = ("fit", "classes.csv", "--target", "kind", "--tree", "wodt", "--out")
    printed = run(*words, "a").stdout
    assert (tmp_path / "a" / "tree.txt").read_text() in printed
    monkeypatch.setattr(output, "MOST_PRINTED", 1)
    printed = run(*words, "b").stdout
    assert "leaves: see b/tree.txt" in printed
    assert (tmp_path / "b" / "tree.txt").read_text() not in printed


def test_a_forest_is_written_tree_by_tree(tables, tmp_path):
    sets = [f"--set={key}={QUICK[key]}" for key in ("epochs", "n_estimators", "max_depth")]
    words = ("fit", "classes.csv", "--target", "kind", "--tree", "e2edf", "--out", "wood")
    assert run(*words, *sets).exit_code == 0
    text = (tmp_path / "wood" / "tree.txt").read_text()
    model = bayestree.load("wood/model.safetensors")
    assert text.count("tree ") == len(model.estimators_) == 4
    assert bayestree.export_text(model.estimators_[3]) in text


def test_the_page_of_the_command_line_lists_every_tree():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([\w-]+)` \| .* \| yes \| (yes)? ?\|$", page, re.MULTILINE)
    assert dict(told) == {n: "yes" if TREES[n].regressor else "" for n in TREES}
