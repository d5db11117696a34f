"""`bayestree cards`: list, show, copy, and the schemas for editors."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from bayestree.estimators.registry import TREES
from bayestree.runs.cards import cards
from tests.cli.command import refused, run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("words", [("cards",), ("cards", "list")])
def test_list(words):
    told = run(*words)
    assert told.exit_code == 0, told.output
    for card in cards():
        assert f"\n  {card.name} " in told.stdout
    assert "(Armandpour, Sadeghian and Zhou," in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 100


def test_list_for_machines():
    found = json.loads(run("cards", "list", "--json").stdout)["cards"]
    assert [(one["kind"], one["name"]) for one in found] == [(c.kind, c.name) for c in cards()]
    cpt = next(one for one in found if one["name"] == "cpt")
    assert (cpt["tree"], cpt["values"]["n_experts"]) == ("cpt", "none")
    assert cpt["by_task"]["regression"]["scale_shape"] == 2.0


def test_show():
    text = (ROOT / "models" / "cpt.toml").read_text()
    assert run("cards", "show", "cpt").stdout == text
    assert json.loads(run("cards", "show", "cpt", "--json").stdout)["name"] == "cpt"
    assert "write models/tao or inference/tao" in refused("cards", "show", "tao")
    assert run("cards", "show", "inference/tao").exit_code == 0
    assert "did you mean 'cpt-k1'" in refused("cards", "show", "cpt-1")


def test_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "copied to cpt.toml" in run("cards", "copy", "cpt").stdout
    assert run("cards", "copy", "svi", "mine.toml").exit_code == 0
    assert Path("cpt.toml").read_text() == (ROOT / "models" / "cpt.toml").read_text()
    assert tomllib.loads(Path("mine.toml").read_text())["inference"] == "svi"
    assert "exists; choose another file, or add --force" in refused("cards", "copy", "cpt")
    assert run("cards", "copy", "wodt", "cpt.toml", "--force").exit_code == 0
    assert 'tree = "wodt"' in Path("cpt.toml").read_text()
    assert run("cards", "show", "cpt.toml").stdout == Path("cpt.toml").read_text()
    assert "does not exist; create it first" in refused("cards", "copy", "cpt", "no/cpt.toml")


def test_parameters(monkeypatch):
    told = run("cards", "parameters", "tao", "--task", "regression").stdout
    assert told.index("[model]") < told.index("max_depth = 6\n") < told.index("[inference]")
    assert 'Expected: "constant" or "linear".' in " ".join(told.split())
    found = json.loads(run("cards", "parameters", "cpt", "--json").stdout)["parameters"]
    depth = next(one for one in found if one["name"] == "max_depth")
    assert (depth["table"], depth["default"]) == ("model", "none")
    assert "Maximum number of splits on a path" in depth["description"]
    assert "no tree is named 'oak'" in refused("cards", "parameters", "oak")
    monkeypatch.setitem(TREES, "wodt", replace(TREES["wodt"], regressor=None))
    assert "supports classification only" in refused(
        "cards", "parameters", "wodt", "--task", "regression"
    )


@pytest.mark.parametrize("of", ["run", "sweep", "model", "inference"])
def test_schema(of, tmp_path):
    printed = run("cards", "schema", of)
    assert printed.exit_code == 0
    schema = json.loads(printed.stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert run("cards", "schema", of, "--out", tmp_path / "s.json").stdout == ""
    assert json.loads((tmp_path / "s.json").read_text()) == schema
    assert "does not exist" in refused("cards", "schema", of, "--out", tmp_path / "no" / "s.json")
