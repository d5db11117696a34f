"""A run folder written by version 0.2.0: every verb that reads runs still reads it."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bayestree.runs.store import open_run
from tests.cli.command import done, run

FIXTURE = Path(__file__).parents[1] / "data" / "run-0.2.0"


@pytest.fixture
def folder(place):
    shutil.copytree(FIXTURE, place / "old")
    return place / "old" / "run"


def test_predictions_are_the_recorded_ones(folder, place):
    found = json.loads(done("predict", folder, FIXTURE / "data.csv", "--json").stdout)
    assert (found["rows"], found["rows_of_the_fit"]) == (60, 48)
    table, recorded = (
        pd.read_csv(path) for path in (place / "predictions.csv", FIXTURE / "predicted.csv")
    )
    pd.testing.assert_frame_equal(table, recorded, rtol=1e-12)


def test_the_rows_and_their_split_are_the_recorded_ones(folder):
    rows = open_run(folder).rows()
    recorded = pd.read_parquet(folder / "predictions.parquet")
    assert rows.rows_held.tolist() == recorded["row"].tolist()
    assert rows.y_held.tolist() == recorded["kind"].tolist()


def test_summary(folder):
    found = json.loads(done("summary", folder, "--json").stdout)
    (node,) = found["nodes"]
    assert found["counted"] == "facets that alone cut off at least 1 % of the node's rows"
    assert (node["node"], node["rows"], node["facets"]) == ("root", 48.0, 1)
    assert node["split"] == "width + 0.46 height >= -0.19"
    assert "Posterior" in done("summary", folder, "--node", "root").stdout


def test_diagnose(folder):
    result = run("diagnose", folder, "--json")
    found = json.loads(result.stdout)
    assert found["inference"] == "cpt, svi, 3 modes, each: 1 chain of 4 draws"
    assert (found["converged"], result.exit_code) == ("no", 1)


def test_report(folder):
    done("report", folder)
    assert "Small and big" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["text", "rules", "json", "dot"])
def test_export(kind, folder):
    assert "width" in done("export", folder, "--format", kind).stdout


def test_compare(folder):
    shutil.copytree(folder, folder.with_name("other"))
    found = json.loads(done("compare", folder, folder.with_name("other"), "--json").stdout)
    assert [run["accuracy"] for run in found["runs"]] == [10 / 12, 10 / 12]


def test_resume_writes_what_is_missing(folder, place):
    model = (folder / "model.safetensors").read_bytes()
    done("run", folder.with_name("run.toml"), "--resume", "--set", "output.draws=true")
    assert (folder / "posterior.nc").is_file()
    assert (folder / "model.safetensors").read_bytes() == model
    assert open_run(folder).manifest["resumed"] == 1


def test_the_run_can_be_repeated_from_its_folder(folder, place):
    done("run", folder, "--out", "again", "--quiet")
    first, again = (json.loads((f / "metrics.json").read_text()) for f in (folder, Path("again")))
    assert again.keys() == first.keys() | {"objective"}
    assert again["training_rows"] == first["training_rows"]
