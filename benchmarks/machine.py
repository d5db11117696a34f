"""One machine: threads, memory, CPU time next to a random forest, rows on disk, synchronisations.

Run: BAYESTREE_DATA=... python benchmarks/machine.py threads letter mnist rows
     python benchmarks/machine.py memory rows wide
     python benchmarks/machine.py disk 1e6 3e6 1e7 --settings '{"n_modes": 1}'
     python benchmarks/machine.py forest rows
     python benchmarks/machine.py waits

Fits have the defaults, apart from ``--settings``, and a process each. ``rows`` are 1,000,000 x 20
and ``wide`` 100,000 x 784 in single precision; classes are the number of six planted polytopes that
a row is in, 5 % of them wrong. ``disk`` writes as many rows of 20 columns to a file. Memory is the
peak of resident memory above that before the rows were made or mapped, the rows included, and of
worker processes, which also have the libraries, what they do not share. CPU seconds are those of
the process, and of its workers. ``waits`` counts by torch.profiler what would let a GPU wait.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from data import load, made, peak_gib
from sklearn.ensemble import RandomForestClassifier

from bayestree import ConvexPolytopeTreeClassifier, inference
from bayestree.inference.training import Ascent
from bayestree.models import Categorical, named

SIZES = {"rows": (1_000_000, 20), "wide": (100_000, 784)}
WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::_to_copy")


def planted(X: np.ndarray, seed: int) -> np.ndarray:
    """Fill X, in memory or mapped, with normal numbers; return the classes."""
    n, d = X.shape
    rng = np.random.default_rng(0)
    facets = rng.standard_normal((d, 24)) * (rng.random((d, 24)) < 5 / d)
    limits, rng = rng.uniform(0.3, 1.2, 24), np.random.default_rng(seed)
    y = np.empty(n, np.int64)
    for start in range(0, n, 100_000):
        some = rng.standard_normal((min(100_000, n - start), d), dtype=np.float32)
        X[start : start + len(some)] = some
        inside = (some @ facets < limits).reshape(-1, 6, 4).all(2).sum(1)
        wrong = rng.random(len(some)) < 0.05
        y[start : start + len(some)] = np.where(wrong, rng.integers(0, 7, len(some)), inside)
    return y


def rows_of(name: str, folder: str) -> tuple[Any, ...]:
    """Return X and y for the fit, and for the score."""
    if name not in SIZES and not name[0].isdigit():
        found = load(name)
        return found.X.astype(np.float32), found.y, found.X_test, found.y_test
    shape = SIZES.get(name, (round(float(name)) if name[0].isdigit() else 0, 20))
    X_test = np.empty((20_000, shape[1]), np.float32)
    y_test = planted(X_test, 1)
    if name in SIZES:
        X = np.empty(shape, np.float32)
        return X, planted(X, 2), X_test, y_test
    path = Path(folder) / "rows.npy"
    y = planted(np.lib.format.open_memmap(path, "w+", np.float32, shape), 2)
    return np.load(path, mmap_mode="r"), y, X_test, y_test


class Workers(threading.Thread):
    """CPU seconds of the worker processes, and the peak of their memory (PSS), sampled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: dict[str, float] = {}
        self.gib, self.done = 0.0, threading.Event()

    def run(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        while not self.done.wait(2.0):
            total = 0.0
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    status = (folder / "stat").read_text().rpartition(")")[2].split()
                    if status[1] == str(os.getpid()):
                        self.seconds[folder.name] = sum(map(int, status[11:13])) / tick
                        smaps = (folder / "smaps_rollup").read_text().split()
                        total += int(smaps[smaps.index("Pss:") + 1]) / 2**20
                except OSError:  # it has just ended
                    continue
            self.gib = max(self.gib, total)


def one(name: str, settings: dict[str, Any], *, forest: bool) -> dict[str, Any]:
    """Fit once, in this process."""
    before, workers = peak_gib(), Workers()
    with tempfile.TemporaryDirectory() as folder:
        X, y, X_test, y_test = rows_of(name, folder)
        tree: Any = made(ConvexPolytopeTreeClassifier, {"random_state": 0} | settings)
        if forest:
            tree = RandomForestClassifier(100, random_state=0, n_jobs=1)
        workers.start()
        wall, cpu = time.perf_counter(), time.process_time()
        tree.fit(X, y)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        workers.done.set()
        workers.join()
        peak = peak_gib() - before
    torch.set_num_threads(1)  # for the same bits of predictions
    found = tree.predict_proba(X_test)
    return {
        "wall": round(wall, 1),
        "cpu": round(cpu, 1),
        "workers cpu": round(sum(workers.seconds.values()), 1),
        "GiB": round(peak, 2),
        "x table": round(peak * 2**30 / (4 * X.size), 2),
        "workers GiB": round(workers.gib, 2),
        "accuracy": round(float((tree.classes_[found.argmax(1)] == y_test).mean()), 4),
        "leaves": 0 if forest else [mode.tree_.n_leaves for mode in tree.modes_],
        "digest": hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()[:12],
    }


def apart(name: str, settings: dict[str, Any], n_threads: int = 1, *, forest: bool = False) -> Any:
    """Fit in a process of its own; print and return what was measured."""
    command = [sys.executable, __file__, "one", name, "--settings", json.dumps(settings)]
    command += ["--forest"] * forest
    threads = {name: str(n_threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | threads)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}, {n_threads} threads{', forest' * forest}: {found}", flush=True)
    return found


def waits() -> None:
    """Count the operations in growth, and by step of MAP and SVI, dense as on a GPU."""
    X = np.empty((20_000, 20), np.float32)
    data = inference.Data.of(X, planted(X, 2), dtype=torch.float32)
    epoch = Ascent.epoch

    def counted(label: str, n_steps: int, run: Callable[[], Any]) -> Any:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            found = run()
        number = {event.key: event.count for event in seen.key_averages()}
        each = {key: round(number.get(key, 0) / n_steps, 2) for key in WAITS}
        print(label, each, "of", round(sum(number.values()) / n_steps), "operations", flush=True)
        return found

    def profiled(self: Any, *given: Any) -> Any:
        name = f"a step of {type(self.module).__name__}"
        return counted(name, self.per_epoch, lambda: epoch(self, *given))

    model = named.convex_polytope(Categorical(7), n_experts=20)
    grown = counted("growth", 1, lambda: inference.grow(model, data, random_state=0))
    Ascent.epoch = profiled
    common: dict[str, Any] = {"epochs": 2, "routing_tolerance": 0.0, "random_state": 0}
    found = inference.map(grown.model, data, init=grown, **common)
    inference.svi(grown.model.with_(steepness=6.0), data, init=found, **common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["threads", "memory", "disk", "forest", "waits", "one"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--forest", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "waits":
        waits()
    for name in options.names:
        if options.what == "one":
            print(json.dumps(one(name, options.settings, forest=options.forest)))
            continue
        first = apart(name, options.settings)
        if options.what == "threads":
            both = apart(name, options.settings, 2)
            same = first["digest"] == both["digest"]
            busy = both["cpu"] + both["workers cpu"] / 2  # of two cores, without waiting
            print(
                f"{name}: {first['wall'] / both['wall']:.2f} x by the clock, "
                f"{first['cpu'] / busy:.2f} x by CPU seconds, same numbers: {same}"
            )
        if options.what == "forest":
            other = apart(name, {}, forest=True)
            print(f"{name}: {first['cpu'] / other['cpu']:.2f} x the CPU seconds of the forest")


if __name__ == "__main__":
    main()
