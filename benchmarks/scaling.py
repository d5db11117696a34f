"""How fit time and memory grow with rows, columns, depth and experts, with fitted exponents.

Run: OMP_NUM_THREADS=1 python benchmarks/scaling.py [--only rows depth ...] [--device cuda]

Each fit has a process of its own: growth, two epochs of MAP and five of SVI on points labelled by
the nearest of 400 prototypes in the first four columns, which needs as deep a tree as is allowed.
Seconds are CPU time. The exponent is the slope of log seconds on log size, over the largest three
sizes.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np
from data import peak_gib
from sklearn.neighbors import NearestNeighbors

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.inference import Growth, Svi

SIZES = {
    "rows": (10_000, 31_600, 100_000, 316_000, 1_000_000),
    "columns": (10, 30, 100, 300, 1_000, 2_000),
    "depth": (4, 6, 8, 10, 12, 14),
    "experts": (1, 3, 10, 30, 100),
}
BASE = {"rows": 20_000, "columns": 16, "depth": 8, "experts": 10}


def table(n_rows: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 10 classes in 400 cells."""
    rng = np.random.default_rng(0)
    prototypes = rng.standard_normal((400, 4))
    X = rng.standard_normal((n_rows, n_columns))
    nearest = NearestNeighbors(n_neighbors=1).fit(prototypes)
    cell = nearest.kneighbors(X[:, :4], return_distance=False)[:, 0]
    return X, cell % 10


def one(sizes: dict[str, int], device: str) -> None:
    X, y = table(sizes["rows"], sizes["columns"])
    before, grown, fit = peak_gib(), [], Growth.fit

    def timed(*args, **keywords):
        begun = time.process_time()
        found = fit(*args, **keywords)
        grown.append(time.process_time() - begun)
        return found

    Growth.fit = timed
    tree = ConvexPolytopeTreeClassifier(
        max_depth=sizes["depth"],
        n_experts=sizes["experts"],
        min_rows=10,
        min_leaf=3,
        min_gain=2.0,
        inference=[Growth(learning_rate=0.15), Svi(epochs=5)],
        n_modes=1,
        dtype="float32",
        device=device,
        random_state=0,
    )
    start = time.process_time()
    tree.fit(X, y)
    seconds = time.process_time() - start
    nodes = tree.posterior_.model.topology.n_nodes
    print(json.dumps([grown[0], seconds - grown[0], nodes, peak_gib() - before]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.device)
        return
    for what in options.only:
        print(f"| {what} | nodes | growth s | refinement s | GiB |\n" + "|---" * 5 + "|")
        seconds = []
        for size in SIZES[what]:
            command = [sys.executable, __file__, "--device", options.device]
            command += ["--one", json.dumps(BASE | {what: size})]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            grown, refined, nodes, memory = json.loads(done.stdout)
            seconds.append((grown, refined))
            print(f"| {size} | {nodes} | {grown:.1f} | {refined:.1f} | {memory:.2f} |", flush=True)
        slopes = np.polyfit(np.log(SIZES[what][-3:]), np.log(seconds[-3:]), 1)[0]
        print(f"exponents: growth {slopes[0]:.2f}, refinement {slopes[1]:.2f}\n", flush=True)


if __name__ == "__main__":
    main()
