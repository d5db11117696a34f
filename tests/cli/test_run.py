"""`bayestree run`."""

import json

import pytest

from bayestree.runs import outputs
from bayestree.runs.store import open_run
from tests.cli.command import FOLDER, done, files_in, refused, run

TEXT = """
title = "Sizes"

[data]
path = "../data.csv"
target = "kind"
drop = ["price"]

[model]
card = "cpt"
max_depth = 1
n_experts = 3

[inference]
card = "svi"
epochs = 2
n_draws = 3
n_modes = 1

[output]
folder = "../results"
draws = false
report = false
"""


@pytest.fixture
def file(table, place):
    table.to_csv("data.csv", index=False)
    (place / "files").mkdir()
    (place / "files" / "sizes.toml").write_text(TEXT)
    return "files/sizes.toml"


def test_what_is_said_and_written(file, place):
    result = done("run", file)
    assert files_in(place / "results") == FOLDER
    tree = (place / "results" / "tree.txt").read_text()
    assert tree in result.stdout
    assert "written to results: columns.json, " in result.stdout
    assert "data.csv: classification of 'kind' (2 classes); " in result.stderr
    assert "fit: svi 2 steps" in result.stderr
    accuracy = json.loads((place / "results" / "metrics.json").read_text())["accuracy"]
    assert f"accuracy {accuracy:.4g}" in result.stdout


def test_json_is_all_that_is_on_standard_output(file, place):
    result = done("run", file, "--json")
    found = json.loads(result.stdout)
    assert found["folder"] == str(place / "results")
    assert found["status"] == "done"
    assert found["metrics"] == json.loads((place / "results" / "metrics.json").read_text())
    assert found["files"] == FOLDER
    assert result.stderr == ""


def test_quiet(file):
    result = done("run", file, "--quiet")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1


def test_values_in_place_of_those_of_the_file(file, place):
    done("run", file, "--set", "model.n_experts=2", "--set", "seed=5", "--out", "my out")
    found = open_run(place / "my out")
    assert found.file.seed == 5
    assert found.estimator.n_experts == 2
    assert "did you mean 'n_experts'" in refused("run", file, "--set", "n_expert=2")


def test_a_folder_in_place_of_a_file(file, place):
    done("run", file)
    done("run", "results", "--out", "again")
    models = [(place / name / "model.safetensors").read_bytes() for name in ("results", "again")]
    assert models[0] == models[1]
    assert "does not exist" in refused("run", "files")


def test_no_path_leaves_the_root(file, place):
    assert "is outside --root 'files'" in refused("run", file, "--root", "files")
    done("run", file, "--root", ".")
    said = refused("run", file, "--root", ".", "--out", place.parent / "elsewhere")
    assert "is outside --root '.'" in said


def test_interrupted_and_taken_up(file, place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(outputs, "scored", interrupted)
        result = run("run", file, "--quiet")
        forced = run("run", file, "--quiet", "--force")
    assert result.exit_code == forced.exit_code == 130
    assert "with --resume instead of --force to continue" in forced.stderr
    assert result.stderr == "bayestree: interrupted; repeat the command with --resume to continue\n"
    assert "add --resume" in refused("run", file)
    done("run", file, "--resume")
    assert open_run(place / "results").manifest["resumed"] == 1
    assert "add --force" in refused("run", file)
    done("run", file, "--force")


def test_nobody_reads_the_progress(file, place, monkeypatch):
    def gone(text, *, err=False):
        raise BrokenPipeError

    monkeypatch.setattr("bayestree.cli.shared.typer.echo", gone)
    run("run", file)
    assert open_run(place / "results").manifest["status"] == "done"
