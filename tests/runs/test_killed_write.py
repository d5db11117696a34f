"""Runs that are killed by SIGKILL, and taken up from what is on the disk."""

import json
import signal
import subprocess
import sys

import pytest

from bayestree.runs.runner import run
from tests.runs.cases import Recorder, numbers, run_file

#: A run in a process that kills itself: at a step of a loop, or in the middle of writing.
KILLED = """
import json, math, os, signal, sys
from functools import partial
from pathlib import Path
from bayestree import _write
from bayestree.runs import runner
from bayestree.runs.checkpoints import Checkpoints
from tests.runs.cases import Recorder, run_file

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def kill_in_the_next_write():
    _write.os.fsync = kill

folder, parts, label, done, writing = json.loads(sys.argv[1])
runner.Checkpoints = partial(Checkpoints, every=0.0, share=math.inf)
act = kill_in_the_next_write if writing else kill
display = Recorder((label, done), act)
runner.run(run_file(Path(folder), **parts), resume=True, display=display)
"""
SVI = {"inference": {"epochs": 4, "n_draws": 3}}
NUTS = {"inference": {"inference": "nuts", "n_warmup": 15, "n_draws": 5, "n_chains": 2}}


def killed(folder, parts, label, done, *, writing=False):
    told = json.dumps([str(folder), parts, label, done, writing])
    found = subprocess.run([sys.executable, "-c", KILLED, told], capture_output=True, check=False)
    assert found.returncode == -signal.SIGKILL, found.stderr.decode()


@pytest.mark.parametrize(
    ("parts", "kills"),
    [
        (SVI, [("map", 3, False), ("svi", 3, True)]),
        (NUTS, [("nuts", 8, False)]),
    ],
    ids=["svi", "nuts"],
)
def test_the_numbers_are_those_of_an_undisturbed_run(parts, kills, tmp_path):
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "killed").mkdir()
    expected = numbers(run(run_file(tmp_path / "undisturbed", **parts)).folder)
    for label, done, writing in kills:
        killed(tmp_path / "killed", parts, label, done, writing=writing)
    told = Recorder()
    found = run(run_file(tmp_path / "killed", **parts), resume=True, display=told)
    assert numbers(found.folder) == expected
    assert found.manifest["resumed"] == len(kills)
    assert not [path.name for path in found.folder.rglob(".*.*")], "drafts are left"
    # the step in which it was killed is the first that is done again
    last, done, _ = kills[-1]
    assert next(step for label, step in told.steps if label == last) == done - 1
