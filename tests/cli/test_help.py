"""The help of the command line, and its completions."""

import io
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import bayestree
from bayestree import cli
from bayestree.estimators.registry import TREES
from tests.cli.command import run


class TestHelp:
    def test_no_torch(self):
        code = (
            "import sys; from typer.testing import CliRunner; from bayestree.cli import app\n"
            "for words in (['--help'], ['run', '--help'], ['fit', '--help'], ['--version']):\n"
            "    assert CliRunner().invoke(app, words).exit_code == 0\n"
            "assert not {'torch', 'pandas', 'sklearn', 'numpy'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_version(self):
        assert run("--version").stdout == f"bayestree {bayestree.__version__}\n"

    def test_every_option_is_explained(self):
        page = run("fit", "--help").stdout
        for option in ("--target", "--test-fraction", "--weights", "--drop", "--force"):
            assert option in page
        assert "bayestree predict iris-tree new.csv" in run("--help").stdout


def test_a_terminal_that_lacks_a_character_shows_another(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(cli, "app", lambda: sys.stdout.write("├─ L: leaf"))
    cli.main()
    sys.stdout.flush()
    assert raw.getvalue().split() == [b"??", b"L:", b"leaf"]


def proposed(line, shell="bash"):
    told = {
        "_BAYESTREE_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    result = CliRunner().invoke(cli.app, [], env=told, prog_name="bayestree")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_verbs_and_options():
    assert proposed("bayestree diag").split() == ["diagnose"]
    assert proposed("bayestree export --max").split() == ["--max-features", "--max-facets"]
    assert proposed("bayestree export run --format d").split() == ["dot"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_trees_by_name(shell):
    text = proposed("bayestree fit data.csv --tree ", shell)
    assert all(name in text for name in TREES)
    assert "cpt" not in proposed("bayestree fit data.csv --tree e2", shell)


def test_cards_by_name():
    assert "em-forest" in proposed("bayestree cards show em").split()
    of_cpt = {"cpt", "cpt-k1", "cpt-paper"}
    assert set(proposed("bayestree fit data.csv --card cpt").split()) == of_cpt
