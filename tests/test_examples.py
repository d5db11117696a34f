"""Every example runs, and what the README says can be typed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bayestree import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

# Why a command of the README is not run here.
LEFT_OUT = {
    "make ": "these run the tests themselves, or install from the network",
    "pip ": "installs from the network",
}


def blocks(language, page=README):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands():
    lines = [line.split("  #")[0] for block in blocks("sh") for line in block.splitlines()]
    return [line.strip() for line in lines if line.strip()]


def run(arguments, folder, *, verdict=False):
    """Run a command in a folder; one that gives a verdict may say no, by exit code 1."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in ((0, 1) if verdict else (0,)), done.stderr
    return done.stdout


# What is written by those that name their results.
RESULTS = {
    "estimator": ("scores.txt", "tree.txt", "tree.png", "boundary.png"),
    "analysis": ("report.txt", "posterior-svi.nc", "posterior-nuts.nc", "priors.png", "tree.png"),
}
OTHERS = sorted(set(ROOT.glob("examples/*.py")) - {ROOT / f"examples/{s}.py" for s in RESULTS})


@pytest.mark.parametrize("script", OTHERS, ids=lambda path: path.name)
def test_example_runs(script, tmp_path):
    assert run([sys.executable, str(script), "--quick"], tmp_path)


@pytest.mark.parametrize("script", RESULTS)
def test_example_says_where_its_results_are(script, tmp_path):
    said = run([sys.executable, str(ROOT / f"examples/{script}.py"), "--quick"], tmp_path)
    folder = tmp_path / "results" / script
    assert str(folder) in said
    for name in RESULTS[script]:
        assert (folder / name).stat().st_size > 0


PAGES = [README, ROOT / "docs/guide.md", ROOT / "docs/pictures.md"]
WITHOUT_PICTURES = [
    ROOT / f"docs/{name}.md" for name in ("convergence", "arviz", "trees", "export", "development")
]


@pytest.mark.parametrize("page", PAGES + WITHOUT_PICTURES, ids=lambda page: page.name)
def test_python_of_the_pages_runs(page, tmp_path):
    # One block after the other in one process, as a reader would type them.
    code = "\n".join(blocks("python", page))
    said = run([sys.executable, "-c", code], tmp_path)
    assert ("Converged: yes" if page.stem == "convergence" else "leaf") in said


def test_commands_of_the_readme_run(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    found = [line for line in commands() if not line.startswith(tuple(LEFT_OUT))]
    assert any(line.startswith("bayestree run") for line in found)
    main = "from bayestree.cli import main; main()"
    for line in found:
        program, *arguments = line.split()
        assert program == "bayestree"
        run([sys.executable, "-c", main, *arguments], tmp_path, verdict="diagnose" in arguments)
    for name in ("report.html", "posterior.nc", "model.safetensors", "predictions.parquet"):
        assert (tmp_path / "results/tumours" / name).stat().st_size > 0


def test_the_run_file_of_the_readme_is_like_the_example():
    shown = tomllib.loads(blocks("toml")[0])
    example = tomllib.loads((ROOT / "examples/tumours.toml").read_text())
    for table in ("data", "model", "inference"):
        assert shown[table].items() <= example[table].items()


# Fits too short to be believed.
SMALL = {
    "svi": ["inference.epochs=2", "inference.n_draws=3", "output.report=false"],
    "nuts": ["n_warmup=4", "n_draws=4", "n_chains=2", "epochs=2", "output.report=false"],
}
RUN_FILES = sorted(set(ROOT.glob("examples/*.toml")) - {ROOT / "examples/priors-sweep.toml"})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("file", RUN_FILES, ids=lambda path: path.name)
def test_run_file_runs(file, tmp_path):
    kind = tomllib.loads(file.read_text())["inference"]["card"]
    settings = [word for value in SMALL[kind] for word in ("--set", value)]
    words = ["run", str(file), "--out", str(tmp_path / "run"), "--json", *settings]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "done"
    assert (tmp_path / "run/posterior.nc").stat().st_size > 0


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/analysis.md"], ids=lambda page: page.name)
def test_pictures_of_the_pages_are_there_and_small(page):
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", page.read_text(), re.DOTALL)
    assert pictures
    for name in pictures:
        assert 0 < (page.parent / name).stat().st_size < 200_000


def test_links_of_the_pages_lead_somewhere():
    for page in [README, *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
