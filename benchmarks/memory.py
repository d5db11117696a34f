"""Fits on files that are larger than the memory of the process, each in a separate process.

The limit is on all memory that a process writes to (RLIMIT_DATA); files that are mapped do not
count. "anonymous" is the peak of this memory, sampled twenty times a second. MAP, SVI and
EM take one pass over the rows each.

Run: python benchmarks/memory.py [ROWS [COLUMNS [LIMIT_IN_MIB [CASE ...]]]]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import made

from bayestree import ConvexPolytopeTreeClassifier, EndToEndTreeClassifier
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile

MIB = 2**20
CASES = ("grow", "map", "svi", "em", "run", "run in memory")
BLOCK = 100_000


def write(folder: Path, n: int, width: int) -> None:
    """rows.npy, y.npy, and both as rows.parquet; two hyperplanes separate four classes."""
    X = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (n, width))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int64, (n,))
    names = [f"x{i}" for i in range(width)]
    schema = pa.schema([(name, pa.float32()) for name in names] + [("y", pa.int64())])
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((width, 2), dtype=np.float32)
    with pq.ParquetWriter(folder / "rows.parquet", schema) as file:
        for start in range(0, n, BLOCK):
            part = X[start : start + BLOCK]
            part[:] = rng.standard_normal(part.shape, dtype=np.float32)
            label = (part @ planes > 0) @ [1, 2]
            y[start : start + BLOCK] = label
            columns = {name: part[:, i] for i, name in enumerate(names)} | {"y": label}
            file.write_table(pa.table(columns, schema))


class Peak(threading.Thread):
    """Peak anonymous memory of this process, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib = 0.0
        self.start()

    def run(self) -> None:
        while True:
            with Path("/proc/self/status").open() as file:
                line = next(line for line in file if line.startswith("RssAnon"))
            self.mib = max(self.mib, int(line.split()[1]) / 1024)
            time.sleep(0.05)


def one(case: str, folder: Path, limit: int) -> None:
    """Fit, and print a row of the table."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit * MIB, limit * MIB))
    peak = Peak()
    start = time.perf_counter()
    try:
        score = of_run(case, folder) if case.startswith("run") else of_estimator(case, folder)
        found = f"{score:.4f}"
    except MemoryError as error:
        found = f"refused: {error}"
    seconds = time.perf_counter() - start
    print(f"| {case} | {seconds:.0f} | {peak.mib:.0f} | {found} |", flush=True)


def of_estimator(case: str, folder: Path) -> float:
    """Accuracy on the rows of the fit."""
    X, y = np.load(folder / "rows.npy", mmap_mode="r"), np.load(folder / "y.npy")
    common = {"max_depth": 2, "epochs": 1, "dtype": "float32", "random_state": 0}
    if case == "em":
        estimator = EndToEndTreeClassifier(**common)
    else:
        own = {"inference": case, "n_modes": 1, "n_experts": 8}
        estimator = made(ConvexPolytopeTreeClassifier, common | own)
    return float(estimator.fit(X, y).score(X, y))


def of_run(case: str, folder: Path) -> float:
    """Accuracy on held-out rows, by a run with all its files."""
    storage = "memory" if case.endswith("memory") else "disk"
    parts = {
        "data": {"path": "rows.parquet", "target": "y", "storage": storage},
        "model": {"tree": "cpt", "max_depth": 2, "n_experts": 8},
        "inference": {"inference": "svi", "epochs": 1, "dtype": "float32"},
        "output": {"folder": f"out-{storage}"},
    }
    return float(run(RunFile.from_parts(parts, folder / "run.toml")).metrics["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="?", type=int, default=1_200_000)
    parser.add_argument("columns", nargs="?", type=int, default=250)
    parser.add_argument("limit", nargs="?", type=int, default=900)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--in", dest="folder", type=Path, help="of the files; this is a case")
    given = parser.parse_args()
    if given.folder is not None:
        one(given.cases[0], given.folder, given.limit)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, given.rows, given.columns)
        size = (folder / "rows.npy").stat().st_size / MIB
        print(
            f"{given.rows} rows of {given.columns} columns: {size:.0f} MiB in single precision, in"
        )
        print(f"processes that may use {given.limit} MiB\n")
        print("| fit | seconds | anonymous MiB | accuracy |\n|---|---|---|---|", flush=True)
        for case in given.cases:
            sizes = map(str, (given.rows, given.columns, given.limit))
            command = [sys.executable, __file__, *sizes, case, "--in", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            failed = f"| {case} | | | {(done.stderr.strip().splitlines() or ['ended'])[-1]} |\n"
            print(done.stdout or failed, end="", flush=True)


if __name__ == "__main__":
    main()
