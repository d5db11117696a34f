"""Run folders that were edited: read, or refused in one line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bayestree import cli
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from tests.fuzz.strategies import changed, fuzzed_less, values
from tests.fuzz.test_models import places, put

TEXTS = ["manifest.json", "columns.json", "metrics.json", "run.toml"]
JSONS = ["manifest.json", "columns.json"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in its folder, next to its table."""
    place = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    kind = np.where(X["a"] > 0, "big", "small")
    X.assign(color=np.where(X["b"] > 0, "red", "blue"), kind=kind).to_csv(
        place / "rows.csv", index=False
    )
    parts = {
        "data": {"path": "rows.csv", "target": "kind"},
        "model": {"card": "wodt"},
        "output": {"folder": "tree", "draws": False, "report": False},
    }
    run(RunFile.from_parts(parts, place / "run.toml"))
    return place


def copy_of(whole, tmp_path):
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def done(*words):
    """The exit code of a command: it ends well, or with one line."""
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 2), result.output
    if result.exit_code == 2:
        assert result.stderr.splitlines()[-1].startswith("bayestree: ")
    return result.exit_code


def used(place):
    """Everything that reads a folder, but for what takes long."""
    tree, rows = place / "tree", place / "rows.csv"
    return [
        done("predict", tree, rows, "--out", place / "found.csv", "--force"),
        done("run", tree, "--resume", "--quiet"),
        done("summary", tree),
        done("export", tree, "--format", "json"),
    ]


def test_as_it_was(whole, tmp_path):
    assert used(copy_of(whole, tmp_path)) == [0, 0, 0, 0]


@fuzzed_less
@given(st.sampled_from(TEXTS), st.data())
def test_files_with_changes(whole, tmp_path, name, data):
    copied = copy_of(whole, tmp_path)
    path = copied / "tree" / name
    path.write_bytes(data.draw(changed(path.read_bytes())))
    used(copied)


@fuzzed_less
@given(st.sampled_from(JSONS), st.data())
def test_files_of_odd_values(whole, tmp_path, name, data):
    copied = copy_of(whole, tmp_path)
    path = copied / "tree" / name
    content = json.loads(path.read_text())
    where = data.draw(st.sampled_from(list(places(content))))
    odd = data.draw(values.map(lambda value: json.loads(json.dumps(value, default=str))))
    path.write_text(json.dumps(put(content, where, odd)))
    used(copied)
