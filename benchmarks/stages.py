"""How much CPU time of a default fit is the variational fit, and how much are the sweeps after it?

Run: OMP_NUM_THREADS=1 python benchmarks/stages.py [TABLE ...]

A table is a set of `data.py`, or made rows such as cls-300-5: 300 rows, 5 columns, classes. Set
PYTHONPATH to compare two versions. A first fit imports and compiles what the others need.
"""

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from data import load_all

import bayestree as bt
from bayestree.inference.variational import vi

TABLES = (
    *(f"{kind}-{size}" for size in ("300-5", "1000-13", "4000-20") for kind in ("cls", "num")),
    *("heart", "diabetes", "airfoil"),
)
SECONDS: defaultdict[str, float] = defaultdict(float)


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A stored set, or made rows whose y bends and jumps in four of the columns."""
    kind, *size = name.split("-")
    if not size:
        return load_all(name)
    n, d = map(int, size)
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d))
    center = X[:, 0] + np.maximum(X[:, 1], X[:, 2]) - 1.5 * (X[:, 3] > 0) * X[:, 0]
    if kind == "cls":
        return X, (center + 0.5 * rng.logistic(size=n) > 0).astype(int)
    return X, center + 0.5 * rng.normal(size=n)


def timed(owner: Any, name: str) -> None:
    """Add up the CPU seconds of a function."""
    function: Callable[..., Any] = getattr(owner, name)

    def inside(*given: Any, **named: Any) -> Any:
        started = time.process_time()
        try:
            return function(*given, **named)
        finally:
            SECONDS[name] += time.process_time() - started

    setattr(owner, name, inside)


def fit(X: np.ndarray, y: np.ndarray) -> float:
    """Return the CPU seconds of a default fit."""
    SECONDS.clear()
    classes = np.issubdtype(y.dtype, np.integer)
    kind = bt.ConvexPolytopeTreeClassifier if classes else bt.ConvexPolytopeTreeRegressor
    started = time.process_time()
    kind(random_state=0).fit(X, y)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=TABLES)
    warnings.simplefilter("ignore")
    timed(vi.Vi, "fit_several")
    timed(vi, "swept")
    for name in ("cls-60-5", "num-60-5"):
        fit(*rows(name))
    print("| table | fit, s | VI, s | sweeps, s |\n|---|---|---|---|")
    for name in parser.parse_args().tables:
        seconds = fit(*rows(name))
        of_vi = SECONDS["fit_several"] - SECONDS["swept"]
        print(f"| {name} | {seconds:.2f} | {of_vi:.2f} | {SECONDS['swept']:.2f} |")


if __name__ == "__main__":
    main()
