"""Runs that are killed at random moments and taken up again: the same numbers?

Run: python benchmarks/kill.py [KILLS] [IN_A_ROW] [KEY=VALUE ...]

examples/tumours.toml is run undisturbed, with draws and predictions. Then, KILLS times, it is run
anew, killed by SIGKILL at a moment drawn evenly from the time that the undisturbed run took, and
taken up by --resume. Last, one run is killed IN_A_ROW times, and each time taken up, before it may
end. Model, columns, tree, facets, metrics, predictions (bytes) and draws (values) of each have to
equal those of the undisturbed run. Further words are --set values, such as epochs=200.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bayestree import _arviz
from bayestree._state import from_bytes

RUN = Path(__file__).parents[1] / "examples" / "tumours.toml"
FILES = (
    "model.safetensors",
    "columns.json",
    "tree.txt",
    "facets.csv",
    "metrics.json",
    "predictions.parquet",
)


def started(folder: Path, settings: list[str], *more: str) -> subprocess.Popen:
    """A run in a process group of its own."""
    words = [sys.executable, "-m", "bayestree.cli", "run", str(RUN), "--quiet"]
    words += ["--out", str(folder)]
    for setting in ("report=false", *settings):
        words += ["--set", setting]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    quiet = {"stdout": subprocess.DEVNULL, "env": environment}
    return subprocess.Popen([*words, *more], start_new_session=True, **quiet)


def finished(folder: Path, settings: list[str], *more: str) -> float:
    """Run to the end; the seconds that it took."""
    before = time.monotonic()
    assert started(folder, settings, *more).wait() == 0, f"the run in {folder} failed"
    return time.monotonic() - before


def killed(folder: Path, settings: list[str], after: float, *more: str) -> bool:
    """Kill a run after some seconds; whether it was still going."""
    process = started(folder, settings, *more)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def place(folder: Path) -> str:
    """What a killed run has to go on from; every file of it is whole."""
    if not (folder / "manifest.json").exists():
        return "nothing"
    stages = json.loads((folder / "manifest.json").read_text())["stages"]
    kept = sorted((folder / "checkpoints").glob("*.safetensors"))
    states = [from_bytes(path.read_bytes()) for path in kept]
    loops = [f"{state['label']} {state['done']}/{state['total']}" for state in states]
    return ", ".join([*stages, *loops]) or "its beginning"


def draws(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of the posterior's file."""
    container = _arviz.arviz().from_netcdf(folder / "posterior.nc")
    return {
        f"{group}/{name}": np.asarray(container[group][name].values)
        for group in _arviz.names(container)
        for name in container[group].data_vars
    }


def differences(folder: Path, other: Path) -> list[str]:
    """Files of two runs that differ."""
    found = [n for n in FILES if (folder / n).read_bytes() != (other / n).read_bytes()]
    one, two = draws(folder), draws(other)
    same = one.keys() == two.keys() and all(
        np.array_equal(one[name], two[name], equal_nan=one[name].dtype.kind == "f") for name in one
    )
    left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    drafts = [name for name in left if name != ".lock"]
    return found + ([] if same else ["posterior.nc"]) + drafts


def main(kills: int, in_a_row: int, settings: list[str]) -> bool:
    """Print a line for each kill; whether all numbers were the same."""
    rng = np.random.default_rng(0)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "undisturbed"
        whole = finished(base, settings)
        print(f"undisturbed: {whole:.1f} s", flush=True)
        for number in range(kills):
            folder, after = Path(name) / str(number), rng.uniform(0, whole)
            going = killed(folder, settings, after)
            found = place(folder) if going else "it had ended"
            took = finished(folder, settings, "--resume")
            wrong = differences(folder, base)
            bad += bool(wrong)
            say = ", ".join(wrong) or "equal"
            print(f"{number}: killed after {after:.1f} s ({found}), {took:.1f} s more: {say}")
            sys.stdout.flush()
        folder, times = Path(name) / "row", []
        for _ in range(in_a_row):
            after = rng.uniform(whole / 3, 2 * whole / 3)
            if not killed(folder, settings, after, "--resume"):
                break
            times.append(f"{after:.1f} s ({place(folder)})")
        finished(folder, settings, "--resume")
        wrong = differences(folder, base)
        bad += bool(wrong)
        print(f"killed {len(times)} times in a row, after {'; '.join(times)}: ", end="")
        print(", ".join(wrong) or "equal")
    return not bad


if __name__ == "__main__":
    counts = [int(word) for word in sys.argv[1:] if "=" not in word]
    told = [word for word in sys.argv[1:] if "=" in word]
    sys.exit(0 if main(*[*counts, *(20, 4)[len(counts) :]], told) else 1)
