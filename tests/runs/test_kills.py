"""Runs whose process is killed, and which are resumed, repeatedly."""

import signal
import subprocess
import sys
from pathlib import Path

from bayestree.runs.runner import run
from bayestree.runs.store import FACETS, METRICS, MODEL, PREDICTIONS, TREE, open_run
from tests.runs.cases import run_file

ROOT = Path(__file__).parents[2]


def contents(folder):
    names = (MODEL, METRICS, TREE, FACETS, PREDICTIONS)
    return {name: (folder / name).read_bytes() for name in names}


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
