"""The command line in this process."""

from typer.testing import CliRunner

from bayestree import cli

NUMBERS = ["--set", "report=false", "--set", "output.draws=false"]

#: A fit of a second, of which only the numbers are wanted.
QUICK = ["--inference", "svi", "--epochs", "2", "--draws", "3", "--experts", "3", "--depth", "1",
         *NUMBERS, "--set", "n_modes=1"]  # fmt: skip

#: What such a fit leaves.
FOLDER = ["columns.json", "facets.csv", "manifest.json", "metrics.json", "model.safetensors",
          "predictions.parquet", "run.log", "run.toml", "tree.txt"]  # fmt: skip


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def done(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words):
    """The message on stderr: one line, with exit code 2."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("bayestree: ")
    assert result.stderr.count("\n") == 1
    assert isinstance(result.exception, SystemExit)
    return result.stderr


def files_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")
