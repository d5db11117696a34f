"""Tables of any number of rows, as data sets of Parquet files, and fits over several processes.

Run: python benchmarks/large_data.py make FOLDER --rows 10000000 --columns 20 [--files 20 --seed 0]
     python benchmarks/large_data.py fit FOLDER [--workers 2 --partitions 4 --set NAME=JSON ...]
     python benchmarks/large_data.py workers FOLDER [--batches 500 5000 50000 --methods map svi]
     python benchmarks/large_data.py kill FOLDER
     python benchmarks/large_data.py resume FOLDER
     python benchmarks/large_data.py scaling FOLDER ...
     python benchmarks/large_data.py batches FOLDER

``make`` writes independent standard normal columns ``x0``, ``x1``, …, a category of 12 levels, and
``y``. This is 1 in the union of two polytopes, one in x0 to x2 and one in x3 to x5, except for the
last three levels; then a tenth of the labels is flipped, so that no tree is right in more than nine
tenths of the rows. Each polytope is a tetrahedron that holds three tenths of the rows. Rows are
drawn and written block by block, a row group each, from a generator that the seed and the number of
the block's first row initialise. The folder must not exist.

``fit`` measures a fit in a process of its own, and prints a line of JSON: seconds of each pass and
step, CPU and waiting seconds of the workers per step, bytes, peaks of memory, and the log loss on
50,000 new rows. Memory is that of the process without pages of files ("RssAnon"), sampled 50 times
a second, above what it was once all libraries were loaded. ``--kill`` ends a worker at a stage
(SIGKILL). The other verbs start such fits and print tables:

- ``workers``: one, two and four processes with the same four partitions;
- ``kill``: workers that are killed at each stage, against an undisturbed fit;
- ``resume``: the process of a run with ``[cluster]`` is killed, and the run is resumed;
- ``scaling``: 2,000 steps of at most 5,000 rows, for each data set, and fitted exponents;
- ``batches``: sizes of batches at the same number of passes.

Set OMP_NUM_THREADS=1. Bytes are counted on the loopback device, which no other process must use:
``unshare -n sh -c "ip link set lo up; python benchmarks/large_data.py ..."``.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import made
from kill import numbers

BLOCK = 100_000  # rows of a row group
LEVELS = [f"level {letter}" for letter in "abcdefghijkl"]
OUTSIDE = 3  # of the levels
FLIPPED = 0.1
INSIDE = 0.3
DIMENSIONS = 3  # of each polytope
POLYTOPES = 2


def polytopes(seed: int) -> list[tuple[np.ndarray, float]]:
    """Normals (facets, 3) of each polytope, and the limit of all its facets."""
    rng = np.random.default_rng([seed, 0])
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(DIMENSIONS)
    found = []
    for _ in range(POLYTOPES):
        rotation = np.linalg.qr(rng.standard_normal((DIMENSIONS, DIMENSIONS)))[0]
        normals = corners @ rotation
        farthest = (rng.standard_normal((BLOCK, DIMENSIONS)) @ normals.T).max(axis=1)
        found.append((normals, float(np.quantile(farthest, INSIDE))))
    return found


def block(first: int, n_rows: int, n_columns: int, seed: int) -> pa.Table:
    """Some rows from number ``first`` on, which draws them."""
    rng = np.random.default_rng([seed, 1, first])
    X = rng.standard_normal((n_columns, n_rows), dtype=np.float32)
    level = rng.integers(len(LEVELS), size=n_rows, dtype=np.int8)
    inside = np.zeros(n_rows, dtype=bool)
    for number, (normals, limit) in enumerate(polytopes(seed)):
        own = X[number * DIMENSIONS : (number + 1) * DIMENSIONS]
        inside |= (normals @ own <= limit).all(axis=0)
    inside &= level < len(LEVELS) - OUTSIDE
    y = inside ^ (rng.random(n_rows) < FLIPPED)
    columns = {f"x{j}": values for j, values in enumerate(X)}
    columns["level"] = pa.DictionaryArray.from_arrays(level, LEVELS)
    return pa.table(columns | {"y": y.astype(np.int8)})


def make(folder: Path, rows: int, columns: int, files: int, seed: int) -> None:
    if columns < POLYTOPES * DIMENSIONS:
        raise SystemExit(f"--columns must be at least {POLYTOPES * DIMENSIONS}, got {columns}.")
    folder.mkdir(parents=True)
    schema = block(0, 1, columns, seed).schema
    ends = [rows * number // files for number in range(files + 1)]
    for number, (start, end) in enumerate(pairwise(ends)):
        path = folder / f"part-{number:05}.parquet"
        with pq.ParquetWriter(path, schema, use_dictionary=["level"]) as file:
            for first in range(start, end, BLOCK):
                file.write_table(block(first, min(BLOCK, end - first), columns, seed))
    size = sum(path.stat().st_size for path in folder.glob("part-*.parquet"))
    print(f"{rows:,} rows, {columns} numbers and a category, in {files} files: {size:,} bytes")


# One fit, in this process and its workers.

PARTITIONS = 4
STEPS = 2_000
BATCH = 5_000
MOST_EPOCHS = 500
NEW_ROWS = 50_000
NEW = 10**12  # number of the first of them


def anonymous() -> int:
    """Bytes of this process that are not pages of files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def watch(epochs: bool = True, seconds: float = 0.02) -> None:
    """Sample the memory of this process from now on, and time its ``epochs``."""
    from bayestree.distributed import worker  # noqa: PLC0415 - in each worker

    seen = SimpleNamespace(start=anonymous(), peak=0, cpu=0.0, wall=0.0, waits=0.0, bytes=0)
    worker.seen, epoch, sum_over = seen, worker.epoch, worker._sum_over

    def sample() -> None:
        while True:
            seen.peak = max(seen.peak, anonymous())
            time.sleep(seconds)

    def timed_epoch(*given: Any) -> Any:
        start = time.process_time(), time.perf_counter()
        found = epoch(*given)
        seen.cpu += time.process_time() - start[0]
        seen.wall += time.perf_counter() - start[1]
        return found

    def timed_sum(name: str) -> Any:
        reduce = sum_over(name)

        def timed(tensor: Any) -> None:
            start = time.perf_counter()
            reduce(tensor)
            seen.waits += time.perf_counter() - start
            seen.bytes = max(seen.bytes, tensor.numel() * tensor.element_size())

        return timed

    if epochs:
        worker.epoch, worker._sum_over = timed_epoch, timed_sum
    threading.Thread(target=sample, daemon=True).start()


def seen() -> dict[str, Any] | None:
    """What this process has seen; None in the place of a worker that has gone."""
    from bayestree.distributed import worker  # noqa: PLC0415

    return vars(worker.seen) if hasattr(worker, "seen") else None


def sent() -> int:
    """Bytes that have been sent over loopback, by all processes of this network namespace."""
    line = next(own for own in Path("/proc/net/dev").read_text().splitlines() if "lo:" in own)
    return int(line.partition(":")[2].split()[8])


def on_each(workers: Any, function: Any) -> list[Any]:
    """Call a function in all workers."""
    if not hasattr(workers, "client"):
        return [function()]
    return [one for one in workers.client.run(function).values() if one is not None]


class Stopwatch:
    """Times of the passes and epochs of a fit, and what its workers see; kills one of them."""

    def __init__(self, kill: str | None, after: float) -> None:
        from bayestree.distributed.rows import DistributedRows  # noqa: PLC0415

        self.seconds: dict[str, float] = {}
        self.epochs: list[float] = []
        self.workers: list[dict[str, Any]] = []
        self.steps, self.sent, self.per_epoch, self.lost, self.end = 0, 0, 0, 0, 0.0
        self.kill, self.after, self.killed = kill, after, 0.0
        rows = DistributedRows
        for name in ("read", "_each", "_load", "_prepared", "epoch", "_epoch", "close"):
            setattr(rows, name, self._timed(name, getattr(rows, name)))

    def _timed(self, name: str, function: Any) -> Any:
        def timed(rows: Any, *given: Any) -> Any:
            if name == "read" and hasattr(rows.workers, "client"):
                rows.workers.client.run(watch)
            if name == "close":
                self.workers, self.lost = on_each(rows.workers, seen), rows.n_lost
            stage = given[0].__name__ if name == "_each" else name.strip("_")
            self._perhaps_kill(rows, f"{stage}:{len(self.epochs)}" if "epoch" in name else stage)
            before, start = sent(), time.perf_counter()
            try:
                return function(rows, *given)
            finally:
                self.end = time.perf_counter()
                took = self.end - start
                if name == "epoch":
                    self.epochs.append(took)
                    self.per_epoch = getattr(given[0], "per_epoch", 1)
                    self.steps += self.per_epoch
                    self.sent += sent() - before
                self.seconds[stage] = self.seconds.get(stage, 0.0) + took
                if stage == "prepared":
                    self._perhaps_kill(rows, "growth")

        return timed

    def _perhaps_kill(self, rows: Any, stage: str) -> None:
        """Kill the last worker in a moment, if this is the stage to do so."""
        if stage != self.kill or self.killed:
            return
        workers = rows.workers.client.run(os.getpid)
        self.killed = time.perf_counter()
        victim = workers[max(rows._held.values(), default=max(workers))]
        threading.Timer(self.after, os.kill, (victim, signal.SIGKILL)).start()


def new_rows(columns: int, seed: int) -> tuple[Any, np.ndarray]:
    """Rows that no data set has."""
    table = block(NEW, NEW_ROWS, columns, seed).to_pandas()
    return table.drop(columns="y"), table["y"].to_numpy()


def fit(
    folder: Path, *, workers: int, partitions: int, settings: list[str], kill: str, after: float,
    out: str, seed: int,
) -> None:  # fmt: skip
    """One fit, of which a line of JSON tells what was measured."""
    from distributed import config  # noqa: F401, PLC0415 - loads the libraries

    from bayestree import ConvexPolytopeTreeClassifier  # noqa: PLC0415
    from bayestree.tables.dataset import Dataset  # noqa: PLC0415

    warnings.simplefilter("ignore")
    given = {"n_modes": 1, "inference": "map", "max_depth": 3, "n_experts": 6, "random_state": 0}
    given |= {key: json.loads(value) for key, _, value in (one.partition("=") for one in settings)}
    tree = made(ConvexPolytopeTreeClassifier, given)
    clock = Stopwatch(kill, after)
    watch(epochs=workers == 1)
    start = time.perf_counter()
    tree.fit_files(folder, "y", n_workers=workers, n_partitions=partitions)
    end, here = time.perf_counter(), seen()
    data = Dataset.of(folder)
    X, y = new_rows(len(data.columns) - 2, seed)
    probs = tree.predict_proba(X)
    own = tree.tree_.arrays()
    if out:
        np.savez(
            out, probs=probs, **{key: value for key, value in own.items() if value.dtype != "O"}
        )
    steps, each = max(clock.steps, 1), clock.workers
    passes = {name: clock.seconds.get(name, 0.0) for name in ("scan", "learn", "load", "prepared")}
    fitted = sum(clock.epochs)
    told = {
        "rows": data.n_rows, "columns": X.shape[1] - 1, "workers": workers,
        "batch": given.get("batch_size", 500),
        "method": given["inference"], "epochs": len(clock.epochs), "steps": clock.steps,
        "steps_per_epoch": clock.per_epoch, **passes, "epoch_seconds": fitted,
        "seconds": end - start, "step": fitted / steps,
        "rest": end - start - sum(passes.values()) - fitted,
        "work": max(one["cpu"] for one in each) / steps,
        "wait": max(one["waits"] for one in each) / steps,
        "message": max(one["bytes"] for one in each), "sent": clock.sent / steps / workers,
        "worker_memory": max(one["peak"] - one["start"] for one in each),
        "memory": here["peak"] - here["start"], "lost": clock.lost,
        "repair": max(clock.epochs, default=0.0) - float(np.median(clock.epochs or [0.0])),
        "log_loss": float(-np.log(probs[np.arange(len(y)), y]).mean()),
        "accuracy": float((probs.argmax(1) == y).mean()), "nodes": tree.tree_.n_nodes,
    }  # fmt: skip
    print(json.dumps(told), flush=True)


def measured(folder: Path, workers: int, partitions: int, *others: str, **settings: Any) -> Any:
    """What ``fit`` prints in a process of its own; None if it fails, after its last line."""
    given = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    words = [str(folder), "--workers", str(workers), "--partitions", str(partitions)]
    words += [word for one in given for word in ("--set", one)]
    command = [sys.executable, __file__, "fit", *words, *others]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1], flush=True)
        return None
    return SimpleNamespace(**json.loads(done.stdout.splitlines()[-1]))


def differences(one: Path, other: Path) -> tuple[float, float]:
    """Largest difference of probabilities and of the arrays of trees; NaN for other topologies."""
    a, b = np.load(one), np.load(other)
    same = all(a[name].shape == b[name].shape for name in a.files)
    trees = [
        np.abs(a[name].astype(float) - b[name].astype(float)).max(initial=0.0)
        for name in a.files
        if same and name != "probs"
    ]
    return float(np.abs(a["probs"] - b["probs"]).max()), max(trees) if same else float("nan")


def compare_workers(
    folder: Path, batches: list[int], methods: list[str], counts: list[int]
) -> None:
    print(
        "| rows | columns | method | batch | workers | ms per step | CPU ms | waiting | kB sent |"
    )
    print("efficiency | log loss | probabilities | trees |")
    for method in methods:
        for batch in batches:
            epochs = 20 if batch >= 50_000 else 2
            with tempfile.TemporaryDirectory() as place:
                first = None
                for count in counts:
                    out = Path(place) / f"{count}.npz"
                    settings = {"inference": method, "batch_size": batch, "epochs": epochs}
                    found = measured(folder, count, PARTITIONS, "--out", str(out), **settings)
                    first = first or found
                    row = [found.rows, found.columns, method, batch, count]
                    row += [f"{1e3 * value:.2f}" for value in (found.step, found.work, found.wait)]
                    row += [f"{found.sent / 1e3:.1f}", f"{first.step / found.step / count:.2f}"]
                    row += [f"{found.log_loss:.4f}"]
                    row += [f"{gap:.1e}" for gap in differences(out, Path(place) / "1.npz")]
                    print_row(row)


STAGES = ("", "scan", "learn", "load", "prepared", "growth")


def compare_kills(folder: Path) -> None:
    print("| method | killed in | seconds | lost | repair | probabilities | trees |")
    for method in ("map", "svi"):
        settings = {"inference": method, "batch_size": 5000, "epochs": 4}
        with tempfile.TemporaryDirectory() as place:
            epochs = 0
            for stage in (
                (*STAGES, "epoch:0", "epoch:2", "last") if method == "map" else ("", "last")
            ):
                out = Path(place) / f"{stage or 'undisturbed'}.npz"
                words = ["--kill", f"epoch:{epochs - 1}" if stage == "last" else stage]
                found = measured(
                    folder, 2, PARTITIONS, *words, "--after", "0.2", "--out", str(out), **settings
                )
                if found is None:
                    continue
                epochs = found.epochs
                gaps = differences(out, Path(place) / "undisturbed.npz")
                row = [method, words[1] or "-", f"{found.seconds:.1f}", found.lost]
                print_row([*row, f"{found.repair:.1f}", *(f"{gap:.1e}" for gap in gaps)])


def compare_resumed(folder: Path) -> None:
    """Runs that are killed once there is a checkpoint, and resumed by any number of workers."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "run.toml"
        file.write_text(
            f"""[data]
path = "{folder.resolve()}/*.parquet"
target = "y"
test_fraction = 0.2
[model]
max_depth = 3
n_experts = 6
[inference]
inference = "map"
epochs = 40
n_modes = 1
batch_size = 5000
[cluster]
workers = 2
partitions = {PARTITIONS}
"""
        )
        whole = numbers(run(file, Path(place) / "whole", None, 2))
        print("| resumed with | checkpoints | files that differ |")
        for count in (2, 1, 4):
            there = Path(place) / str(count)
            run(file, there, 0.4, 2)
            kept = len([*(there / "checkpoints").glob("*.safetensors")])
            found = numbers(run(file, there, None, count))
            different = [name for name, own in whole.items() if found[name] != own]
            print_row([f"{count} workers", kept, ", ".join(different) or "none"])


def run(file: Path, folder: Path, killed_after: float | None, workers: int) -> Path:
    """Run a file; perhaps kill its process some seconds after its first checkpoint."""
    words = ["run", str(file), "--out", str(folder), "--resume", "--quiet"]
    words += ["--set", "report=false", "--set", f"cluster.workers={workers}"]
    process = subprocess.Popen([sys.executable, "-m", "bayestree.cli", *words])
    while killed_after is not None and process.poll() is None:
        if [*(folder / "checkpoints").glob("*.safetensors")]:
            time.sleep(killed_after)
            process.kill()
        time.sleep(0.05)
    process.wait()
    return folder


def scale(folders: list[Path]) -> None:
    print(
        "| rows | columns | epochs | scan | learn | load | prepare | steps | rest | ms per step |"
    )
    print("CPU ms | MB of a worker | MB of the fit | log loss |")
    found = []
    for folder in folders:
        rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
        epochs = max(1, round(STEPS / -(-rows // BATCH)))
        one = measured(folder, 2, PARTITIONS, batch_size=BATCH, epochs=min(epochs, MOST_EPOCHS))
        found.append(one)
        row = [one.rows, one.columns, one.epochs]
        seconds = (one.scan, one.learn, one.load, one.prepared, one.epoch_seconds, one.rest)
        row += [f"{value:.1f}" for value in seconds]
        row += [f"{1e3 * one.step:.1f}", f"{1e3 * one.work:.1f}", f"{one.worker_memory / 1e6:.0f}"]
        print_row([*row, f"{one.memory / 1e6:.0f}", f"{one.log_loss:.4f}"])
    for name in ("rows", "columns"):
        other = "columns" if name == "rows" else "rows"
        common = min(getattr(one, other) for one in found)
        own = [one for one in found if getattr(one, other) == common]
        for what in (
            "scan",
            "learn",
            "load",
            "prepared",
            "step",
            "rest",
            "worker_memory",
            "memory",
        ):
            values = [[getattr(one, key) for one in own] for key in (name, what)]
            if len(own) > 1:
                slope = np.polyfit(*np.log(values), 1)[0]
                print(f"{what} grows as {name} to the power {slope:.2f}", flush=True)


def compare_batches(folder: Path) -> None:
    print("| batch | epochs | steps | seconds | log loss | accuracy |")
    for epochs in (2, 10):
        for batch in (500, 5_000, 50_000):
            one = measured(folder, 2, PARTITIONS, batch_size=batch, epochs=epochs)
            row = [batch, epochs, one.steps, f"{one.seconds:.0f}", f"{one.log_loss:.4f}"]
            print_row([*row, f"{one.accuracy:.4f}"])


def print_row(values: list[Any]) -> None:
    print("| " + " | ".join(map(str, values)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("make", help="write a data set")
    one.add_argument("folder", type=Path)
    one.add_argument("--rows", type=int, default=10_000_000)
    one.add_argument("--columns", type=int, default=20, help="of numbers; at least 6")
    one.add_argument("--files", type=int, default=20)
    one.add_argument("--seed", type=int, default=0)
    one = verbs.add_parser("fit", help="measure a fit")
    one.add_argument("folder", type=Path)
    one.add_argument("--workers", type=int, default=2)
    one.add_argument("--partitions", type=int, default=4)
    one.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=JSON")
    one.add_argument("--kill", help="scan, learn, load, prepared, growth or epoch:NUMBER")
    one.add_argument("--after", type=float, default=0.1, help="seconds")
    one.add_argument("--out", default="")
    one.add_argument("--seed", type=int, default=0)
    one = verbs.add_parser("workers", help="compare numbers of processes")
    one.add_argument("folder", type=Path)
    one.add_argument("--batches", type=int, nargs="+", default=[500, 5_000, 50_000])
    one.add_argument("--methods", nargs="+", default=["map", "svi"])
    one.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    for name in ("kill", "resume", "batches"):
        verbs.add_parser(name).add_argument("folder", type=Path)
    verbs.add_parser("scaling").add_argument("folders", type=Path, nargs="+")
    given = vars(parser.parse_args())
    verbs_by_name = {
        "make": make, "fit": fit, "workers": compare_workers, "kill": compare_kills,
        "resume": compare_resumed, "scaling": scale, "batches": compare_batches,
    }  # fmt: skip
    verbs_by_name[given.pop("verb")](**given)


if __name__ == "__main__":
    main()
