"""Every example runs, and so does the code of the README."""

import json
import re
import runpy
import shutil
import sys
import tomllib
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

import matplotlib as mpl
import matplotlib.pyplot as plt
import pyro
import pytest
import torch
from typer.testing import CliRunner

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    cli,
)
from bayestree._utils.parameters import parameters_of
from bayestree.estimators import registry
from bayestree.fitting.settings import with_methods
from bayestree.inference import Map, Smc, Svi, Vi
from tests.sampling import quickly
from tests.short_checks import short_checks, short_stages

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

# Why a command of the README is not run here.
LEFT_OUT = {
    "make ": "these run the tests themselves, or install from the network",
    "pip ": "installs from the network",
}


def blocks(language, page=README):
    """Code of a page in a language; cells, which the site executes, are Python."""
    cell = r"\{code-cell\} ipython3\n(?::[^\n]*\n)*" if language == "python" else "(?!)"
    fence = rf"^```(?:{language}\n|{cell})(.*?)^```"
    return re.findall(fence, page.read_text(), re.MULTILINE | re.DOTALL)


def commands():
    lines = [line.split("  #")[0] for block in blocks("sh") for line in block.splitlines()]
    return [line.strip() for line in lines if line.strip()]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Run in an empty folder, and restore the state of this process."""
    monkeypatch.chdir(tmp_path)
    registered = mock.patch.dict(registry.ESTIMATORS)
    with mpl.rc_context(), torch.random.fork_rng(), registered:
        yield
    plt.close("all")
    pyro.clear_param_store()


# What is written by those that name their results.
RESULTS = {
    "estimator": ("scores.txt", "tree.txt", "tree.png", "boundary.png"),
    "analysis": ("report.txt", "posterior-default.nc", "posterior-mcmc.nc", "priors.png"),
}
APART = (*RESULTS, "score_onnx", "serve_onnx")  # which have files in tests/export
OTHERS = sorted(set(ROOT.glob("examples/*.py")) - {ROOT / f"examples/{s}.py" for s in APART})


def run(script, capsys, monkeypatch):
    """Output of a script of the examples, run with --quick."""
    monkeypatch.setattr(sys, "argv", [str(script), "--quick"])
    with short_checks(), short_stages():
        runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("script", OTHERS, ids=lambda path: path.name)
def test_example_runs(script, capsys, monkeypatch):
    assert run(script, capsys, monkeypatch)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("script", quickly(RESULTS, quick=(0,)))
def test_example_says_where_its_results_are(script, tmp_path, capsys, monkeypatch):
    said = run(ROOT / f"examples/{script}.py", capsys, monkeypatch)
    folder = tmp_path / "results" / script
    assert str(folder) in said
    for name in RESULTS[script]:
        assert (folder / name).stat().st_size > 0


PAGES = [
    README,
    *(ROOT / f"docs/{name}.md" for name in ("start/guide", "show/readable")),
]
WITHOUT_PICTURES = [
    ROOT / f"docs/{name}.md"
    for name in (
        "start/methods",
        "posterior/questions",
        "trees/fitting",
        "show/export",
        "posterior/modes",
        "data/tables",
        "how-to/continue",
        "posterior/convergence",
        "posterior/scores",
        "posterior/arviz",
        "show/explain",
        "show/chosen",
        "show/features",
        "data/responses",
        "data/numbers",
        "data/monotone",
        "posterior/smc",
        "data/large-data",
        "develop/own-parts",
        "develop/own-leaves",
        "develop/own-methods",
    )
]
N_QUICK = 6  # of these; what the others show has tests of its own


#: This one shows the defaults at work. In others few epochs, draws and particles will do, and one
#: tree where their number is open.
IN_FULL = ("convergence",)
TREES = (ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, ConvexPolytopeTreeSurvival)
OTHERS_WITH_EPOCHS = [
    kind
    for kind in map(registry.estimator_class, registry.ESTIMATORS)
    if kind not in TREES and "epochs" in parameters_of(kind)
]


def brief(fit):
    def fitted(self, *rows, **more):
        self.set_params(epochs=min(self.epochs or 5, 5))
        return fit(self, *rows, **more)

    return fitted


def hastened(inference):
    """The method with few epochs or particles; SVI where the rows would select one."""
    match inference:
        case str():
            return with_methods({"inference": inference, "epochs": 5}, "svi")["inference"]
        case Map():
            return replace(inference, epochs=min(inference.epochs or 5, 5))
        case Svi():
            epochs = min(inference.epochs or 5, 5)
            return replace(inference, epochs=epochs, n_draws=min(inference.n_draws, 50))
        case Vi():
            return replace(inference, n_draws=min(inference.n_draws, 50))
        case Smc():
            return replace(inference, n_draws=20, n_rounds=3, efficiency=0.3)
    return inference


def short(fit):
    def fitted(self, *rows, **more):
        self.set_params(inference=hastened(self.inference), n_modes=self.n_modes or 1)
        return fit(self, *rows, **more)

    return fitted


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page",
    [*PAGES, *quickly(WITHOUT_PICTURES, quick=range(N_QUICK))],
    ids=lambda page: page.name,
)
def test_python_of_the_pages_runs(page, capsys, monkeypatch):
    in_full = page.stem in IN_FULL
    for tree in () if in_full else TREES:
        for name in {"fit", "partial_fit"} & {*dir(tree)}:
            monkeypatch.setattr(tree, name, short(getattr(tree, name)))
    for tree in () if in_full else OTHERS_WITH_EPOCHS:
        monkeypatch.setattr(tree, "fit", brief(tree.fit))
    # One block after the other in one namespace, as a reader would type them.
    code = compile("\n".join(blocks("python", page)), page.name, "exec")
    with ExitStack() as stack:
        for shorter in () if in_full else (short_checks, short_stages):
            stack.enter_context(shorter())
        exec(code, {"__name__": "__main__"})
    said = capsys.readouterr().out
    expected = {"convergence": "Converged: yes", "methods": "Plan of a fit"}
    assert expected.get(page.stem, "leaf") in said


def test_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    found = [line for line in commands() if not line.startswith(tuple(LEFT_OUT))]
    assert any(line.startswith("bayestree run") for line in found)
    for line in found:
        words = line.split()
        assert words[0] == "bayestree"
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        # A command that gives a verdict may say no, by exit code 1.
        allowed = (0, 1) if "diagnose" in words else (0,)
        assert (ended.value.code or 0) in allowed, capsys.readouterr().err
    for name in ("report.html", "posterior.nc", "model.safetensors", "predictions.parquet"):
        assert (tmp_path / "results/tumours" / name).stat().st_size > 0


def test_the_run_file_of_the_readme_is_like_the_example():
    shown = tomllib.loads(blocks("toml")[0])
    example = tomllib.loads((ROOT / "examples/tumours.toml").read_text())
    assert shown.keys() >= {"data", "model"}
    for table, settings in shown.items():
        assert settings.items() <= example[table].items()


# Fits too short to be believed.
SMALL = {
    "auto": ["output.report=false"],
    "vi": ["inference.n_draws=3", "output.report=false"],
    "paper": ["inference.epochs=2", "output.report=false"],
    "svi": ["inference.epochs=2", "inference.n_draws=3", "output.report=false"],
    "nuts": ["n_warmup=4", "n_draws=4", "n_chains=2", "epochs=2", "output.report=false"],
}
RUN_FILES = sorted(set(ROOT.glob("examples/*.toml")) - {ROOT / "examples/priors-sweep.toml"})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("file", RUN_FILES, ids=lambda path: path.name)
def test_run_file_runs(file, tmp_path):
    content = tomllib.loads(file.read_text())
    paper = content["model"]["card"].endswith("-paper")  # which has a single point
    kind = "paper" if paper else content["inference"].get("card", "auto")
    settings = [word for value in SMALL[kind] for word in ("--set", value)]
    words = ["run", str(file), "--out", str(tmp_path / "run"), "--json", *settings]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "done"
    if paper:
        metrics = json.loads((tmp_path / "run/metrics.json").read_text())
        assert metrics["objective"].keys() == {"impurity"}
    else:
        assert (tmp_path / "run/posterior.nc").stat().st_size > 0


def test_the_picture_of_the_readme_is_there_and_small():
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", README.read_text(), re.DOTALL)
    assert 0 < (ROOT / picture).stat().st_size < 200_000


def test_links_of_the_pages_lead_somewhere():
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
