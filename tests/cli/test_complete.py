"""Shell completion."""

import pytest
from typer.testing import CliRunner

from bayestree import cli
from bayestree.estimators.registry import TREES


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
    assert set(proposed("bayestree fit data.csv --card cpt").split()) == {"cpt", "cpt-k1"}
