"""Priors and leaves of the user's own in run files, on the command line, and in folders of runs."""

import sys
from pathlib import Path

import pytest

from bayestree.runs import store
from bayestree.runs.runner import run
from bayestree.runs.schema import read_run
from tests.cli.command import done, refused
from tests.estimators import own_parts
from tests.runs.cases import Recorder, interrupt, table

RUN = """
[data]
path = "data.csv"
target = "kind"
drop = ["price", "n"]
[model]
max_depth = 1
n_experts = 2
min_rows = 4
prior = {name = "my_parts:Ridge", scale = 2.0}
[inference]
inference = "map"
epochs = 3
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A folder with a table, a run file, and the module that it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    rows = table()
    rows.assign(n=(5 * rows["width"]).abs().round()).to_csv("data.csv", index=False)
    Path("my_parts.py").write_text(Path(own_parts.__file__).read_text())
    Path("run.toml").write_text(RUN)
    yield
    for name in ("my_parts", "no_parts"):
        sys.modules.pop(name, None)


def test_a_run_imports_the_module_and_states_the_prior():
    done("run", "run.toml")
    folder = Path("results/run")
    assert (
        '[model.prior]\nname = "my_parts:Ridge"\nscale = 2.0\n' in (folder / "run.toml").read_text()
    )
    assert "prior Ridge(scale=2.0)" in done("summary", folder).stdout
    assert "Ridge(scale=2.0)" in (folder / "report.html").read_text()
    done("predict", folder, "data.csv", "--out", "p.csv")


def test_an_interrupted_run_goes_on():
    quick = ["report=false", "output.draws=false"]
    whole = run(read_run("run.toml", [*quick, "output.folder=whole"])).folder
    with pytest.raises(KeyboardInterrupt):
        run(read_run("run.toml", quick), display=Recorder("scores", interrupt))
    resumed = run(read_run("results/run/run.toml"), resume=True).folder
    for name in ("model.safetensors", "predictions.parquet"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


def test_a_leaf_by_its_name_alone():
    done(
        "fit", "data.csv", "--target", "n", "--set", "task=regression", "--out", "counts",
        "--depth", 1, "--set", "model.leaf=my_parts:Counts", "--set", "report=false",
        "--inference", "grow",
    )  # fmt: skip
    assert "leaf Counts(shape=1.0, rate=1.0)" in done("summary", "counts").stdout


def test_a_folder_is_opened_without_importing_what_it_names():
    done("run", "run.toml", "--set", "report=false")
    path = Path("results/run/run.toml")
    path.write_text(path.read_text().replace("my_parts:", "no_parts:"))
    folder = store.RunFolder(path.parent.resolve())
    manifest = folder.read_manifest()
    files = manifest["files"] | {store.RUN: store.digest(path)}
    folder.write_json(store.MANIFEST, manifest | {"files": files})
    Path("no_parts.py").write_text("raise SystemExit('imported')")
    said = refused("summary", "results/run")
    assert "import no_parts first (on the command line: bayestree --import no_parts ...)" in said
    Path("no_parts.py").write_text(Path("my_parts.py").read_text())
    done("--import", "no_parts", "summary", "results/run")
    said = refused("--import", "nowhere", "summary", "results/run")
    assert "cannot import 'nowhere': ModuleNotFoundError" in said


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("my_parts:Rigde", "my_parts has no such prior, leaf or method"),
        ("my_parts:Counts", "my_parts has no such prior, leaf or method"),
        ("nowhere:Ridge", "cannot import 'nowhere': ModuleNotFoundError"),
        ('{name = "my_parts:Ridge", sd = 2.0}', "unexpected keyword argument 'sd'"),
        ("Ridge", 'or "module:Class" of your HyperplanePrior, or a table of this name and fields'),
    ],
)
def test_mistakes_have_one_line(value, message):
    said = refused("run", "run.toml", "--set", f"model.prior={value}")
    assert said.startswith("bayestree: --set: prior")
    assert message in said
    assert not Path("results").exists()
