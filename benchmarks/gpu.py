"""Fits and predictions on the CPU and on a GPU: the same code, with another device.

Run: BAYESTREE_DATA=... python benchmarks/gpu.py [--only letter mnist rows] [--quick]

Letter and MNIST have the settings of classification.py, rows are 1,000,000 x 100 of scaling.py.
Seconds are wall-clock time, on the CPU with all its cores, on the GPU after a small fit that loads
the kernels; "-" is a job that took longer than --limit seconds. The scores (of test rows, by the
posterior predictive) must agree within their standard errors. --quick runs small parts of the
tables, without a GPU on the CPU alone.
"""

import argparse
import signal
import time
from typing import Any

import numpy as np
import torch
from classification import JOBS
from data import Split, load, made
from scaling import table
from sklearn.base import clone

from bayestree import ConvexPolytopeTreeClassifier

JOBS = {name: JOBS[name] for name in ("letter", "mnist")} | {
    "rows": {"max_depth": 6, "n_experts": 10, "min_gain": 10.0, "epochs": 5, "batch_size": 10_000}
}
QUICK = {"max_depth": 3, "epochs": 2}


def rows_of(name: str, *, quick: bool) -> Split:
    if name != "rows":
        found = load(name)
    else:
        train, test = (2_000, 1_000) if quick else (1_000_000, 100_000)
        X, y = table(train + test, 100)
        found = Split(X[:train], y[:train], X[train:], y[train:])
    most = 2_000 if quick else None
    return Split(*(column[:most] for column in found))


def timed(limit: int, run: Any) -> tuple[Any, float]:
    """Return the result and the seconds, or None and NaN after ``limit`` seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    start = time.perf_counter()
    try:
        return run(), time.perf_counter() - start
    except TimeoutError:
        return None, np.nan
    finally:
        signal.alarm(0)


def measured(name: str, rows: Split, device: str, options: argparse.Namespace) -> list[float]:
    """Seconds of the fit and of the predictions, score and its standard error."""
    settings = JOBS[name] | (QUICK if options.quick else {})
    settings |= {"inference": "svi", "n_modes": 1, "dtype": "float32", "device": device}
    tree = made(ConvexPolytopeTreeClassifier, settings | {"sparsity": None, "random_state": 0})
    if device != "cpu":
        clone(tree).set_params(inference__epochs=1, max_depth=2).fit(rows.X[:2_000], rows.y[:2_000])
    fitted, seconds = timed(options.limit, lambda: tree.fit(rows.X, rows.y))
    if fitted is None:
        return [np.nan] * 4
    with torch.device(device):  # on which predictions run
        tree.predict_proba(rows.X_test[:100])
        proba, predicted = timed(options.limit, lambda: tree.predict_proba(rows.X_test))
    right = tree.classes_[proba.argmax(axis=1)] == rows.y_test
    return [seconds, predicted, right.mean(), right.std() / len(right) ** 0.5]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[*JOBS], choices=[*JOBS])
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--limit", type=int, default=600)
    options = parser.parse_args()
    found = torch.cuda.is_available()
    if not (found or options.quick):
        raise SystemExit("No GPU: torch.cuda.is_available() is False.")
    devices = options.devices if found else ["cpu"]
    card = torch.cuda.get_device_name() if found else "no GPU"
    torch.set_num_threads(options.threads)
    print(f"{card}, torch {torch.__version__}, {options.threads} threads")
    print("| job | device | fit s | predict s | score | +- |\n" + "|---" * 6 + "|")
    for name in options.only:
        rows = rows_of(name, quick=options.quick)
        for device in devices:
            fit, predict, score, error = measured(name, rows, device, options)
            print(
                f"| {name}, {len(rows.X):,} x {rows.X.shape[1]} | {device} | {fit:.1f} | "
                f"{predict:.2f} | {score:.4f} | {error:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
