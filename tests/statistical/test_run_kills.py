"""Runs killed at random moments and resumed end with the numbers of uninterrupted ones."""

import subprocess
import sys
from pathlib import Path

import pytest

KILL = Path(__file__).parents[2] / "benchmarks" / "kill.py"


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "kills"), [("svi", 20), ("nuts", 5), ("forest", 5)])
def test_killed_at_random_moments(name, kills):
    command = [sys.executable, str(KILL), str(kills), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
