"""Runs that are killed, also while they write a checkpoint, and resumed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bayestree.runs.runner import run
from bayestree.runs.store import FACETS, METRICS, MODEL, PREDICTIONS, TREE, open_run
from tests.runs.cases import Recorder, numbers, run_file

#: A run in a process that kills itself when the draft of a checkpoint is there, and not the file.
KILLED = """
import json, math, os, signal, sys
from functools import partial
from pathlib import Path
from bayestree._utils import write
from bayestree.runs import runner
from bayestree.runs.checkpoints import Checkpoints
from tests.runs.cases import Recorder, run_file

def kill(handle):
    os.kill(os.getpid(), signal.SIGKILL)

def kill_in_the_next_write():
    write.os.fsync = kill

folder, parts, step = json.loads(sys.argv[1])
runner.Checkpoints = partial(Checkpoints, every=0.0, share=math.inf)
display = Recorder(tuple(step), kill_in_the_next_write)
runner.run(run_file(Path(folder), **parts), display=display)
"""
NUTS = {"inference": {"inference": "nuts", "n_warmup": 15, "n_draws": 5, "n_chains": 2}}


def test_chains_go_on_from_the_checkpoint_before(tmp_path):
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "killed").mkdir()
    expected = numbers(run(run_file(tmp_path / "undisturbed", **NUTS)).folder)
    told = json.dumps([str(tmp_path / "killed"), NUTS, ["nuts", 8]])
    process = subprocess.run(
        [sys.executable, "-c", KILLED, told],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert list((tmp_path / "killed").rglob(".*.safetensors.*")), "no draft was being written"
    seen = Recorder()
    found = run(run_file(tmp_path / "killed", **NUTS), resume=True, display=seen)
    assert next(step for label, step in seen.steps if label == "nuts") == 7
    assert numbers(found.folder) == expected
    assert not list(found.folder.rglob(".*.safetensors.*")), "the draft is left"


ROOT = Path(__file__).parents[2]


def contents(folder):
    names = (MODEL, METRICS, TREE, FACETS, PREDICTIONS)
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.statistical
def test_killed_three_times(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    file = run_file(tmp_path / "whole", inference={"epochs": 12, "n_draws": 3, "batch_size": 30})
    run(file)
    command = [sys.executable, "-m", "tests.runs.killed", str(tmp_path / "killed"), "2", "9", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * 3 + ["0"], done.stderr
    assert done.stderr == "13 steps\n", "three loops resumed, seven steps, facets of three draws"
    found = open_run(tmp_path / "killed" / "out")
    assert found.manifest["resumed"] == 3
    assert contents(tmp_path / "killed" / "out") == contents(tmp_path / "whole" / "out")
    assert not (tmp_path / "killed" / "out" / "checkpoints").exists()
