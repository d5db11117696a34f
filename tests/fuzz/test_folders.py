"""Run folders that were edited: read, or refused in one line."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bayestree import cli
from bayestree.runs import runner
from bayestree.runs.checkpoints import Checkpoints
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from tests.fuzz.strategies import changed, fuzzed_less, turned, values
from tests.fuzz.test_models import places, put
from tests.runs.cases import NUMBERS, Recorder, interrupt, numbers, run_file

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


def damage(folder, data):
    """Turn a bit of a file of a run, or cut its end off."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(files), label=str(folder))
    path.write_bytes(data.draw(turned(path.read_bytes())))


def answers(place):
    """What a folder says of new rows, and of its tree; None where it is refused."""
    predict = ("predict", place / "tree", place / "rows.csv", "--out", place / "new.csv", "--force")
    summary = ("summary", place / "tree", "--no-rows", "--out", place / "nodes.csv", "--force")
    return [
        None if done(*words) else (place / name).read_text()
        for words, name in ((predict, "new.csv"), (summary, "nodes.csv"))
    ]


@fuzzed_less
@given(st.data())
def test_damage_changes_no_number(whole, tmp_path, data):
    expected = answers(whole)
    copied = copy_of(whole, tmp_path)
    damage(copied / "tree", data)
    for found, right in zip(answers(copied), expected, strict=True):
        assert found in (None, right)
    if done("run", copied / "tree", "--resume", "--quiet") == 0:
        for name in ("metrics.json", "tree.txt", "predictions.parquet"):
            assert (copied / "tree" / name).read_bytes() == (whole / "tree" / name).read_bytes()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was interrupted in its fit, and the numbers of the same run to its end."""
    place = tmp_path_factory.mktemp("stopped")
    expected = numbers(run(run_file(place)).folder)
    shutil.rmtree(place / "out")
    with pytest.MonkeyPatch.context() as patch:
        often = partial(Checkpoints, every=0.0, share=float("inf"))
        patch.setattr(runner, "Checkpoints", often)
        with pytest.raises(KeyboardInterrupt):
            run(run_file(place), display=Recorder(("svi", 4), interrupt))
    assert list((place / "out" / "checkpoints").iterdir())
    return place, expected


@pytest.mark.filterwarnings("ignore:the checkpoint .* is damaged")
@fuzzed_less
@given(st.data())
def test_damage_changes_no_number_of_a_resumed_run(stopped, tmp_path, data):
    place, expected = stopped
    folder = copy_of(place, tmp_path) / "out"
    damage(folder, data)
    if done("run", folder, "--resume", "--quiet") == 0 and (folder / NUMBERS[0]).is_file():
        assert numbers(folder) == expected
