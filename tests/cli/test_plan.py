"""`bayestree plan`: what the fit of a run file will do."""

import json

import pytest

import bayestree
from bayestree.fitting.plan import FitPlan
from bayestree.runs.schema import read_run
from tests.cli.command import done, files_in, refused


@pytest.fixture
def run_file(table, place):
    table.assign(time=table["copies"] + 1.5).to_csv("data.csv", index=False)
    text = '[data]\npath = "data.csv"\ntarget = "kind"\ntest_fraction = 0.2\n'
    (place / "run.toml").write_text(text)
    return "run.toml"


def test_the_plan_is_that_of_the_estimator(run_file, place):
    shown = done("plan", run_file).stdout
    assert shown.splitlines()[0].startswith("Plan of a fit to 64 rows")
    assert "method    vi (up to 10,000 rows or 100 features in memory)" in shown
    assert files_in(place) == ["data.csv", "run.toml"]
    estimator = read_run(run_file).estimator("classification")
    assert type(estimator) is bayestree.ConvexPolytopeTreeClassifier
    assert "Vi(steepness=1.0, n_steps=60, n_sweeps=30)" in shown


def test_settings_are_replaced_and_told_as_json(run_file):
    words = ("--set", "inference.inference=svi", "--set", "epochs=7", "--set", "n_modes=2")
    found = json.loads(done("plan", run_file, *words, "--json").stdout)
    assert found["method"] == "svi"
    assert (found["trees"], found["experts"]) == (2, 20)
    assert found["stages"][-1] == "Svi(epochs=7)"


def test_json_is_ascii_whatever_the_names_of_parts(run_file, monkeypatch):
    monkeypatch.setattr(FitPlan, "to_json", lambda plan: {"prior": "Größe()"})
    printed = done("plan", run_file, "--json").stdout
    assert printed.isascii()
    assert json.loads(printed) == {"prior": "Größe()"}


def test_counts_with_an_exposure(run_file):
    words = ("--set", "target=copies", "--set", "task=regression", "--set", "leaf=poisson")
    found = json.loads(done("plan", run_file, *words, "--set", "exposure=time", "--json").stdout)
    assert found["rows"]["n_classes"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "model.tree=tao"), "has a single method"),
        (("--set", "epochs=3"), "epochs=3 is for inference 'svi' or 'nuts' or 'map', and 'auto'"),
        (("--set", "target=absent"), "absent"),
    ],
)
def test_refused(run_file, words, said):
    assert said in refused("plan", run_file, *words)
