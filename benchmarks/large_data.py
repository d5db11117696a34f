"""Tables of any number of rows, as data sets of Parquet files, and fits to samples of them.

Run: python benchmarks/large_data.py make FOLDER --rows 1000000 --columns 20 [--files 20 --seed 0]
     python benchmarks/large_data.py fit FOLDER [--sample-rows 100000 --set NAME=JSON ...]
     python benchmarks/large_data.py samples FOLDER [--sizes 10000 100000 1000000 --seeds 3]

``make`` writes independent standard normal columns ``x0``, ``x1``, …, a category of 12 levels, and
``y``. This is 1 in the union of two polytopes, one in x0 to x2 and one in x3 to x5, except for the
last three levels; then a tenth of the labels is flipped, so that no tree is right in more than nine
tenths of the rows. Each polytope is a tetrahedron that holds three tenths of the rows. Rows are
drawn and written block by block, a row group each, from a generator that the seed and the number of
the block's first row initialise. The folder must not exist.

``fit`` measures a fit in a process of its own, and prints a line of JSON: CPU seconds, the peak of
memory, the mean log score of 50,000 new rows with its standard error, and the check of the sample.
Memory is that of the process without pages of files ("RssAnon"), sampled 50 times a second, above
what it was once all libraries were loaded. ``samples`` starts such fits of the same number of steps
to samples of several sizes, and prints a table with the differences of the log scores row by row.

Set OMP_NUM_THREADS=1.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import made

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


# One fit, in this process.

STEPS = 4_000
BATCH = 500
NEW_ROWS = 50_000
NEW = 10**12  # number of the first of them


def anonymous() -> int:
    """Bytes of this process that are not pages of files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def watch(peak: list[int], seconds: float = 0.02) -> None:
    """Sample the memory of this process from now on."""

    def sample() -> None:
        while True:
            peak[0] = max(peak[0], anonymous())
            time.sleep(seconds)

    threading.Thread(target=sample, daemon=True).start()


def fit(folder: Path, *, sample_rows: int | None, settings: list[str], out: str, seed: int) -> None:
    """One fit, of which a line of JSON tells what was measured."""
    from bayestree import ConvexPolytopeTreeClassifier  # noqa: PLC0415

    warnings.simplefilter("ignore")
    given = {"n_modes": 1, "inference": "svi", "max_depth": 3, "n_experts": 6, "sparsity": None}
    given |= {key: json.loads(value) for key, _, value in (one.partition("=") for one in settings)}
    tree = made(ConvexPolytopeTreeClassifier, given | {"random_state": seed})
    columns = len(pq.read_schema(next(folder.glob("*.parquet"))).names) - 2
    new = block(NEW, NEW_ROWS, columns, 0).to_pandas()
    start, peak = anonymous(), [0]
    watch(peak)
    cpu = time.process_time()
    tree.fit_files(folder, "y", n_workers=1, sample_rows=sample_rows)
    cpu = time.process_time() - cpu
    score = tree.log_score(new.drop(columns="y"), new["y"])
    if out:
        np.save(out, score)
    told = {
        "sample_rows": sample_rows, "seed": seed, "cpu": cpu, "memory": peak[0] - start,
        "score": score.mean(), "error": score.std() / len(score) ** 0.5,
        "leaves": tree.get_n_leaves(), "check": str(tree.sample_check_),
    }  # fmt: skip
    print(json.dumps(told), flush=True)


def samples(folder: Path, sizes: list[int], seeds: int) -> None:
    print("| rows in the sample | seed | log score | less than the largest | CPU s | MB | check |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for seed in range(seeds):
            best = None
            for size in sorted(sizes, reverse=True):
                out = f"{place}/{size}-{seed}.npy"
                epochs = max(1, round(STEPS * BATCH / size))
                words = ["--sample-rows", str(size), "--seed", str(seed), "--out", out]
                words += ["--set", f"epochs={epochs}", "--set", f"batch_size={BATCH}"]
                command = [sys.executable, __file__, "fit", str(folder), *words]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                one, score = json.loads(done.stdout.splitlines()[-1]), np.load(out)
                best = score if best is None else best
                lost = best - score
                error = lost.std() / len(lost) ** 0.5
                row = [f"{size:,}", seed, f"{one['score']:.4f}", f"{lost.mean():.4f} ± {error:.4f}"]
                row += [f"{one['cpu']:.0f}", f"{one['memory'] / 1e6:.0f}", one["check"]]
                print("| " + " | ".join(map(str, row)) + " |", flush=True)


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
    one.add_argument("--sample-rows", type=int)
    one.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=JSON")
    one.add_argument("--out", default="")
    one.add_argument("--seed", type=int, default=0)
    one = verbs.add_parser("samples", help="compare sizes of samples")
    one.add_argument("folder", type=Path)
    one.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    one.add_argument("--seeds", type=int, default=3)
    given = vars(parser.parse_args())
    {"make": make, "fit": fit, "samples": samples}[given.pop("verb")](**given)


if __name__ == "__main__":
    main()
