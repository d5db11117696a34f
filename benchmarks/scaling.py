"""Fit time and peak memory against the number of rows (50 columns), one process for each size.

Run: python benchmarks/scaling.py
"""

import subprocess
import sys
import time

import numpy as np
from data import peak_gib

from bayestree import ConvexPolytopeTreeClassifier

SIZES = (10_000, 100_000, 1_000_000)
COLUMNS = 50


def one(n: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS))
    y = (np.abs(X[:, 0]) + np.abs(X[:, 1]) > 1.5).astype(int) + 2 * (X[:, 2] + X[:, 3] > 0)
    before = peak_gib()
    start = time.perf_counter()
    clf = ConvexPolytopeTreeClassifier(max_depth=4, dtype="float32", random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    print(
        f"| {n} | {seconds:.1f} | {before:.2f} | {peak_gib():.2f} | {clf.get_n_leaves()} |",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
        return
    print("| rows | seconds | GiB before | peak GiB | leaves |\n|---|---|---|---|---|", flush=True)
    for n in SIZES:
        subprocess.run([sys.executable, __file__, str(n)], check=True)


if __name__ == "__main__":
    main()
