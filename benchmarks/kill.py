"""Runs that are killed at random moments and resumed: do they end with the same numbers?

Run: python benchmarks/kill.py [KILLS [RUN ...]]

Each run of the table is first executed without interruption. It is then started KILLS times, killed
(SIGKILL) at a random moment, and resumed with ``--resume``; and once it is killed repeatedly, at
moments within a third of the uninterrupted time, until it completes. All files that contain numbers
must be equal to those of the uninterrupted run, byte for byte, since both are on one machine.
``resumed`` is the time of the resumed part as a share of that of the uninterrupted run.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
NUMBERS = ("model.safetensors", "metrics.json", "tree.txt", "predictions.parquet")
SOME = ("facets.csv",)  # of the trees that have facets
MOST = 30  # kills in a row
FAST = ["--set", "report=false", "--set", "output.draws=false"]
#: Example and settings, by name.
RUNS = {
    "svi": ("tumours.toml", []),
    "svi, two starts": ("priors.toml", []),
    "nuts": ("wines.toml", ["n_chains=2", "n_warmup=100", "n_draws=50"]),
    "forest": ("tumours.toml", ["model.card=e2edf", "inference.card=em-forest", "max_depth=5"]),
}


def command(name: str, folder: Path) -> list[str]:
    file, sets = RUNS[name]
    given = [word for value in sets for word in ("--set", value)]
    out = ["--out", str(folder), "--resume", "--quiet", *FAST]
    return [sys.executable, "-m", "bayestree.cli", "run", str(EXAMPLES / file), *given, *out]


def attempt(words: list[str], seconds: float | None) -> bool:
    """Whether the process completed before it was killed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    if process.returncode:
        raise SystemExit(said)
    return True


def numbers(folder: Path) -> dict[str, str]:
    """Digests of the files that hold numbers."""
    names = [*NUMBERS, *(name for name in SOME if (folder / name).exists())]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def place(folder: Path) -> str:
    """The stage that a killed run had reached."""
    manifest = folder / "manifest.json"
    if not manifest.exists():
        return "before"
    stages = json.loads(manifest.read_text())["stages"]
    kept = list((folder / "checkpoints").glob("*.safetensors"))
    return f"after {stages[-1]}" if stages else f"fit, {len(kept)} checkpoints"


def once(name: str, folder: Path, moment: float) -> tuple[str, float]:
    """Kill a run once and resume it; the stage it had reached, and the seconds of the rest."""
    if attempt(command(name, folder), moment):
        return "ended before", 0.0
    where, started = place(folder), time.monotonic()
    attempt(command(name, folder), None)
    return where, time.monotonic() - started


def in_a_row(name: str, folder: Path, longest: float, moments: random.Random) -> int:
    """Kill a run repeatedly until it completes; the number of kills."""
    for kills in range(MOST):
        if attempt(command(name, folder), moments.uniform(longest / 6, longest)):
            return kills
        longest *= 1.1  # a process that never lives through its start would never end
    attempt(command(name, folder), None)
    return MOST


def row(name: str, kills: int, folder: Path) -> bool:
    """A row of the table; whether all numbers were equal."""
    moments, started = random.Random(0), time.monotonic()
    attempt(command(name, folder / "whole"), None)
    whole, expected = time.monotonic() - started, numbers(folder / "whole")
    equal, places, rest = 0, [], []
    while len(places) < kills:
        there = folder / str(len(places))
        where, seconds = once(name, there, moments.uniform(0, whole))
        if where != "ended before":
            equal += numbers(there) == expected
            places.append(where)
            rest.append(seconds / whole)
        else:
            there.rename(folder / f"ended {time.monotonic()}")
    many = in_a_row(name, folder / "row", whole / 3, moments)
    alike = numbers(folder / "row") == expected
    found = ", ".join(f"{places.count(where)} {where}" for where in sorted(set(places)))
    resumed = sum(rest) / max(len(rest), 1)
    told = f"{many} kills: {'equal' if alike else 'DIFFERENT'}"
    print(
        f"| {name} | {whole:.0f} | {equal} of {kills} | {resumed:.2f} | {found} | {told} |",
        flush=True,
    )
    return alike and equal == kills


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("| run | seconds | equal | resumed | killed | in a row |")
    print("|---|---|---|---|---|---|")
    fine = True
    for name in sys.argv[2:] or RUNS:
        with tempfile.TemporaryDirectory() as folder:
            fine &= row(name, kills, Path(folder))
    sys.exit(not fine)


if __name__ == "__main__":
    main()
