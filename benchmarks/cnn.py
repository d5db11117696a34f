"""MNIST with the convolutional splits of Hehn et al. (2020), section 3.4: ten leaves, best first.

Run: BAYESTREE_DATA=... python benchmarks/cnn.py [--seed 0] [--validate] [--rows N]
With --validate a fifth of the training rows stands for the test rows: choose settings by it.
"""

import argparse
import time

import numpy as np
import torch
from classification import held_out
from data import load, peak_gib

from bayestree import EndToEndTreeClassifier
from bayestree.models import Network, SmallConvNet

SETTINGS: dict[str, object] = {
    "order": "best",
    "max_leaves": 10,
    "max_depth": 20,
    "min_gain": 10.0,
    "scaling": "common",
    "steepness": 25.0,
    "dtype": "float32",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--rows", type=int, help="training rows, at random; by default all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = load("mnist")
    if options.validate:
        rows = held_out(rows)
    kept = np.random.default_rng(options.seed).permutation(len(rows.X))[: options.rows]
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    settings = SETTINGS | {"random_state": options.seed} | changes
    start = time.perf_counter()
    clf = EndToEndTreeClassifier(split=Network(SmallConvNet((28, 28))), **settings)
    clf.fit(rows.X[kept], rows.y[kept])
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    tree = clf.score(rows.X_test, rows.y_test)
    routing = time.perf_counter() - start
    training = clf.score(rows.X[kept], rows.y[kept])
    soft = clf.set_params(prediction="posterior").score(rows.X_test, rows.y_test)
    print(
        f"cnn {'validation' if options.validate else 'test'} seed {options.seed} "
        f"{len(kept)} rows {changes}: tree {tree:.4f} (training {training:.4f}) with "
        f"{clf.get_n_leaves()} leaves, depth {clf.get_depth()}; soft {soft:.4f} at steepness "
        f"{clf.posterior_.model.steepness:g}; {seconds:.0f} s, {peak_gib():.2f} GiB; "
        f"{len(rows.X_test) / routing:,.0f} rows a second",
        flush=True,
    )


if __name__ == "__main__":
    main()
