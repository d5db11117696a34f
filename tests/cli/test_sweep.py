"""`bayestree sweep`, and `run --scheduler`."""

import json

import pandas as pd
import pytest

from tests.cli.command import done, files_in, refused, run
from tests.runs.sweep_cases import RUN, SWEEP, written


@pytest.fixture
def sweep_file(place):
    written(place)
    return place / "sweep.toml"


def test_the_table_and_the_best_first(sweep_file, place):
    result = done("sweep", sweep_file)
    assert len(pd.read_parquet(place / "out" / "results.parquet")) == 8
    head, first, second = result.stdout.split("\n")[1:4]
    assert head.split() == [
        *["point", "model.max_depth", "log_loss", "sd", "leaves", "seconds", "fits"]
    ]
    assert float(first.split()[2]) <= float(second.split()[2])
    assert "8 points in" in result.stdout
    assert "max_depth = 2, seed 1, fold 2 of 2: log_loss" in result.stderr


def test_the_best_setting_can_be_run(sweep_file, place):
    done("sweep", sweep_file, "--quiet")
    quick = ["--set", "report=false", "--quiet"]
    result = done("run", place / "out" / "best.toml", *quick)
    assert "metrics.json" in files_in(place / "out" / "best")
    assert "written to" in result.stdout


def test_json(sweep_file, place):
    result = done("sweep", sweep_file, "--json")
    found = json.loads(result.stdout)
    assert (found["points"], found["failed"], found["metric"]) == (8, 0, "log_loss")
    assert found["table"] == str(place / "out" / "results.parquet")
    assert [one["fits"] for one in found["ranking"]] == [4, 4]
    assert result.stderr == ""


def test_points_that_fail_end_with_1(place):
    text = SWEEP.replace("max_depth = [1, 2]", "image_shape = [[2, 2]]").replace("[0, 1]", "[0]")
    run_file = RUN.replace("bivariate", "e2edf") + "[inference]\nepochs = 1"
    written(place, sweep=text, run=run_file)
    result = run("sweep", "sweep.toml")
    assert result.exit_code == 1
    assert "2 of 2 points failed: see `error` in the table" in result.stdout
    assert (
        "warning: model.image_shape = [2, 2], seed 0, fold 1 of 2: ParameterError" in result.stderr
    )


class TestRefused:
    def test_no_file(self, place):
        assert "sweep file" in refused("sweep", "nowhere.toml")

    def test_nobody_to_do_it(self, sweep_file):
        assert "--jobs must be 1 or more, or -1 for all cores, got 0" in refused(
            "sweep", sweep_file, "--jobs", "0"
        )

    def test_outside_of_root(self, sweep_file, place):
        (place / "in").mkdir()
        assert "is outside --root" in refused("sweep", sweep_file, "--root", place / "in")

    @pytest.mark.parametrize("verb", ["sweep", "run"])
    def test_no_scheduler(self, sweep_file, place, verb):
        file = place / f"{verb}.toml"
        said = refused(verb, file, "--scheduler", "nonsense://", "--quiet")
        assert "no Dask scheduler answers at 'nonsense://'" in said
