"""Tables of any number of rows, as data sets of Parquet files.

Run: python benchmarks/large_data.py make FOLDER --rows 10000000 --columns 20 --files 20 [--seed 0]

``make`` writes independent standard normal columns ``x0``, ``x1``, …, a category of 12 levels, and
``y``. This is 1 in the union of two polytopes, one in x0 to x2 and one in x3 to x5, except for the
last three levels; then a tenth of the labels is flipped, so that no tree is right in more than nine
tenths of the rows. Each polytope is a tetrahedron that holds three tenths of the rows. Rows are
drawn and written block by block, a row group each, from a generator that the seed and the number of
the block's first row initialise. The folder must not exist.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("make", help="write a data set")
    one.add_argument("folder", type=Path)
    one.add_argument("--rows", type=int, default=10_000_000)
    one.add_argument("--columns", type=int, default=20, help="of numbers; at least 6")
    one.add_argument("--files", type=int, default=20)
    one.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    {"make": make}[given.pop("verb")](**given)


if __name__ == "__main__":
    main()
