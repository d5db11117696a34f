"""Processor seconds and scores of default fits to small tables, in processes of their own.

Run: OMP_NUM_THREADS=1 python benchmarks/small.py [--tables iris wine ...] [--inference svi]

The seconds are those of a process that fits once and predicts: imports of torch and scikit-learn,
those of the package, ``fit``, and of it the part outside the loops of growth and refinement.
Scores are means over five folds (seed 0). Set PYTHONPATH to compare two versions.
"""

import argparse
import subprocess
import sys

import numpy as np
from sklearn import datasets
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate
from statsmodels.datasets import spector

import bayestree as bt

TABLES = ("spector", "iris", "wine", "breast_cancer", "diabetes")
CODE = """
import sys, time
from time import process_time as now
start = now()
import torch, sklearn.base
needed = now() - start
start = now()
import bayestree as bt
from bayestree._utils import progress
name, *keywords = sys.argv[1:]
kind = bt.ConvexPolytopeTreeRegressor if name == "diabetes" else bt.ConvexPolytopeTreeClassifier
imported = now() - start
sys.path.insert(0, "benchmarks")
from small import rows
X, y = rows(name)

loops, loop = [], progress.Track.__iter__
def timed(track):
    begun = now()
    try:
        yield from loop(track)
    finally:
        loops.append(now() - begun)

progress.Track.__iter__ = timed
start = now()
tree = kind(inference=keywords[0], dtype=keywords[1], random_state=0).fit(X, y)
fitted = now() - start
start = now()
tree.predict(X)
seconds = needed, imported, fitted, fitted - sum(loops), now() - start
print(*(f"{value:.3f}" for value in seconds), tree.get_n_leaves())
"""


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y of a table."""
    if name == "spector":
        frame = spector.load_pandas().data
        return frame.drop(columns="GRADE").to_numpy(float), frame["GRADE"].to_numpy(int)
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def scores(name: str, inference: str, dtype: str) -> str:
    """Held-out accuracy and log loss, or R² and RMSE, over five folds."""
    keywords = {"inference": inference, "dtype": dtype, "random_state": 0}
    shuffled = {"n_splits": 5, "shuffle": True, "random_state": 0}
    if name == "diabetes":
        tree, folds = bt.ConvexPolytopeTreeRegressor(**keywords), KFold(**shuffled)
        kinds = ("r2", "neg_root_mean_squared_error")
    else:
        tree, folds = bt.ConvexPolytopeTreeClassifier(**keywords), StratifiedKFold(**shuffled)
        kinds = ("accuracy", "neg_log_loss")
    found = cross_validate(tree, *rows(name), cv=folds, scoring=kinds)
    return " | ".join(f"{abs(np.mean(found[f'test_{kind}'])):.3f}" for kind in kinds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--inference", default="svi")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--no-scores", action="store_true")
    options = parser.parse_args()
    heads = "table, rows, torch + sklearn s, import s, fit s, outside loops s, predict s, leaves"
    print("| " + heads.replace(", ", " | ") + " | score | loss |\n" + "|---" * 10 + "|")
    for name in options.tables:
        command = [sys.executable, "-P", "-c", CODE, name, options.inference, options.dtype]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = "- | -" if options.no_scores else scores(name, options.inference, options.dtype)
        figures = " | ".join(done.stdout.split())
        print(f"| {name} | {len(rows(name)[0])} | {figures} | {found} |", flush=True)


if __name__ == "__main__":
    main()
