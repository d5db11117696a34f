"""Every tree by the command line: fitted, written, read back."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.cli import shared
from bayestree.estimators.registry import TREES
from bayestree.runs.settings import tree_parameters
from tests.cli.command import NUMBERS, QUICK, done, refused


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["width", "height"])
    score = X["width"] + X["height"]
    X.assign(kind=np.where(score > 0, "big", "small")).to_csv("classes.csv", index=False)
    X.assign(price=score.round(3)).to_csv("numbers.csv", index=False)


# Any parameter of a tree that makes it quick.
SMALL = {"epochs": 20, "refine_epochs": 2, "learning_rate": 0.05, "n_draws": 2, "max_depth": 2,
         "n_estimators": 4, "min_rows": 2, "min_leaf": 1, "min_gain": 0}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "task", "target"),
    [
        pytest.param(name, task, target, marks=marks if TREES[name].classifier else ())
        for name in TREES
        for task, target, marks in (
            ("classification", "kind", ()),
            ("regression", "price", pytest.mark.statistical),
        )
        if TREES[name].of(task)
    ],
)
def test_every_tree_fits_and_predicts(name, task, target, tables, tmp_path):
    known = tree_parameters(name, task)
    sets = [f"--set={key}={value}" for key, value in SMALL.items() if key in known]
    sets += ["--inference", "svi"] if name.startswith("cpt") else []
    data = "classes.csv" if task == "classification" else "numbers.csv"
    done("fit", data, "--target", target, "--tree", name, "--out", "tree", *sets, *NUMBERS)
    # the others give one draw, of splits that have one facet
    assert (tmp_path / "tree" / "facets.csv").exists() == name.startswith("cpt")
    said = done("predict", "tree", data).stdout
    model = bayestree.load("tree/model.safetensors")
    assert type(model).__name__ == TREES[name].of(task)
    table = pd.read_csv(data)
    found = pd.read_csv("predictions.csv")["prediction"]
    assert list(found) == pytest.approx(list(model.predict(table[["width", "height"]])))
    score = float(re.search(r"(?:accuracy|r2) ([\d.]+)", said)[1])
    assert score > (0.75 if task == "classification" else 0.4)


def test_numbers_that_a_tree_of_classes_finds_are_refused(tables, tmp_path, monkeypatch):
    monkeypatch.setitem(TREES, "wodt", replace(TREES["wodt"], regressor=None))
    said = refused("fit", "numbers.csv", "--target", "price", "--tree", "wodt", "--out", "tree")
    assert "tree 'wodt' supports classification only; for regression use cpt, " in said
    assert not (tmp_path / "tree").exists()


def test_the_same_by_a_card(tables, tmp_path):
    (tmp_path / "my.toml").write_text(
        'tree = "cpt-k1"\nmax_depth = 1\ninference = "svi"\nepochs = 2\nn_draws = 2'
    )
    words = ("fit", "classes.csv", "--target", "kind", *NUMBERS, "--out")
    done(*words, "a", "--card", "my.toml")
    done(*words, "b", "--tree", "cpt-k1", "--depth", "1", *QUICK[:4], "--draws", "2")
    read = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert read[0] == read[1]
    said = refused(*words, "c", "--card", "my.toml", "--set", "max_dept=2")
    assert "did you mean 'max_depth'" in said
    assert not (tmp_path / "c").exists()


def test_a_large_tree_is_written_not_printed(tables, tmp_path, monkeypatch):
    words = ("fit", "classes.csv", "--target", "kind", "--tree", "wodt", *NUMBERS, "--out")
    printed = done(*words, "a").stdout
    assert (tmp_path / "a" / "tree.txt").read_text() in printed
    monkeypatch.setattr(shared, "MAX_PRINTED", 1)
    printed = done(*words, "b").stdout
    assert "leaves: see b/tree.txt" in printed
    assert (tmp_path / "b" / "tree.txt").read_text() not in printed


def test_a_forest_is_written_tree_by_tree(tables, tmp_path):
    sets = [f"--set={key}={SMALL[key]}" for key in ("epochs", "n_estimators", "max_depth")]
    words = ("fit", "classes.csv", "--target", "kind", "--tree", "e2edf", "--out", "wood")
    done(*words, *sets, *NUMBERS)
    text = (tmp_path / "wood" / "tree.txt").read_text()
    model = bayestree.load("wood/model.safetensors")
    assert text.count("tree ") == len(model.estimators_) == 4
    assert bayestree.export_text(model.estimators_[3]) in text


def test_the_table_of_trees_lists_every_card_and_what_has_no_regressor():
    page = (Path(__file__).parents[2] / "docs" / "trees" / "trees.md").read_text(encoding="utf-8")
    table = page.partition("\n## ")[0]
    cells = re.findall(r"^\| .* \| (.*) \| ((?:`[\w-]+`(?:, )?)+) \|$", table, re.MULTILINE)
    told = {
        n: "no regressor" not in by for by, cards in cells for n in re.findall(r"[\w-]+", cards)
    }
    assert told == {n: bool(TREES[n].regressor) for n in TREES}
