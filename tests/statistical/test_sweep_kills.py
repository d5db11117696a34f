"""A sweep whose driver is killed repeatedly ends with the table of an uninterrupted one."""

import os
import random
import subprocess
import sys
import time

import pandas as pd
import pytest

from bayestree.runs.sweep import sweep
from tests.runs.sweep_cases import SWEEP, numbers, written

KILLS = 10
LARGE = SWEEP.replace("folds = 2", "folds = 4").replace("[1, 2]", "[1, 2, 3, 4]")
RUN = """
[data]
path = "data.csv"
target = "kind"

[model]
tree = "cpt"
n_experts = 5

[inference]
inference = "map"
epochs = 60
"""


@pytest.mark.statistical
def test_killed_at_random_moments(tmp_path):
    (tmp_path / "other").mkdir()
    whole = sweep(written(tmp_path / "other", sweep=LARGE, run=RUN))
    written(tmp_path, sweep=LARGE, run=RUN)
    moments = random.Random(0)
    command = [sys.executable, "-m", "bayestree.cli", "sweep", "sweep.toml", "--jobs", "2"]
    points = tmp_path / "out" / "points"
    seen = set()
    for _ in range(KILLS):
        driver = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
        wanted = len(seen) + moments.randint(1, 3)
        while driver.poll() is None and len(finished(points)) < wanted:
            time.sleep(moments.random() / 10)
        driver.kill()
        driver.wait()
        assert finished(points) >= seen
        seen = finished(points)
        while left_over(driver):
            time.sleep(0.5)
    assert seen
    subprocess.run(command, cwd=tmp_path, check=True)
    found = pd.read_parquet(tmp_path / "out" / "results.parquet")
    assert found["key"].is_unique
    assert numbers(found).equals(numbers(whole.table))


def left_over(driver):
    """Whether a process that it has started is still there."""
    try:
        os.killpg(driver.pid, 0)
    except ProcessLookupError:
        return False
    return True


def finished(points):
    return {path.name for path in points.glob("*.json")}
