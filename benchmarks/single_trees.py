"""Single trees of given depths, on any table: score, on training rows, leaves, depth, CPU seconds.

    python -m benchmarks.single_trees letter --depth 8 10 --methods cpt tao wodt cart
    python -m benchmarks.single_trees heart.csv --target disease --depth 3 --share 0.7 --seeds 5

TABLE is the name of a set in the folder BAYESTREE_DATA (with its official test rows, unless --share
is given), or a file of rows with --target. Methods are those of `python -m benchmarks` at their
defaults or, with --settings, at the first of the settings that validation rows had chosen for this
set. Scores are accuracy (AUC of two classes, RMSE of numbers) of the deterministic tree.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split

from benchmarks.data import Split, load, load_all, stored
from benchmarks.papers.measure import (
    count_leaves,
    depth_of,
    make_model,
    row_scores,
    training_score,
    tree_scores,
)
from benchmarks.papers.methods import METHODS


def parts(options: argparse.Namespace) -> Iterator[Split]:
    """Yield the rows of each seed; without a share the official ones, the same for all."""
    if options.target is not None:
        reader = pd.read_parquet if options.table.endswith(".parquet") else pd.read_csv
        frame = reader(options.table)
        # the same numbers for all methods, some of which take no text and no gaps
        codes = pd.get_dummies(frame.drop(columns=options.target), dtype=float)
        X, y = codes.fillna(codes.mean()).to_numpy(), frame[options.target].to_numpy()
    elif options.share is None:
        yield from [load(options.table)] * options.seeds
        return
    else:
        X, y = load_all(options.table)
    strata = None if y.dtype.kind == "f" else y
    for seed in range(options.seeds):
        kept = options.share or 0.8
        found = train_test_split(X, y, train_size=kept, stratify=strata, random_state=seed)
        yield Split(found[0], found[2], found[1], found[3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table")
    parser.add_argument("--target", help="of a file of rows")
    parser.add_argument("--depth", type=int, nargs="+", required=True)
    parser.add_argument("--share", type=float, help="of the rows that are for training")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=["cpt", "tao", "cart"])
    parser.add_argument("--settings", action="store_true", help="those chosen for this set before")
    options = parser.parse_args()
    if not (Path(options.table).exists() if options.target else stored(options.table)):
        parser.error(f"no table {options.table!r}: name a set of BAYESTREE_DATA or file and target")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    each = list(parts(options))
    classes = len(np.unique(each[0].y))
    numbers = each[0].y.dtype.kind == "f"
    measured = "rmse" if numbers else "auc" if classes == 2 else "accuracy"
    task = "regression" if numbers else "classification"
    print(f"{options.table}: depth and method; {measured}; on training rows; leaves; depth; CPU s")
    for depth, name in product(options.depth, options.methods):
        method = METHODS[name]
        chosen = method.earlier.get(options.table, {}) if options.settings else {}
        rows = [
            measure(make_model(method, task, chosen | {"max_depth": depth}, seed), split, measured)
            for seed, split in enumerate(each)
        ]
        mean, spread = np.mean(rows, axis=0), np.std([one[0] for one in rows])
        score = f"{mean[0]:.4f} ± {spread:.4f}" if len(rows) > 1 else f"{mean[0]:.4f}"
        sizes = "; ".join(f"{value:g}" for value in mean[2:4].round(1))
        print(f"{depth:3d} {name:14} {score}; {mean[1]:.4f}; {sizes}; {mean[4]:.1f}", flush=True)


def measure(model: Any, split: Split, measured: str) -> tuple[float, ...]:
    """Fit a model; return its score, that on training rows, leaves, depth and CPU seconds."""
    began = time.process_time()
    model.fit(split.X, split.y)
    seconds = time.process_time() - began
    score = tree_scores(model, split, measured)
    if score is None:
        score = row_scores(model, split.X_test, split.y_test, measured)
    training = training_score(model, split, measured)
    return score.mean(), training, count_leaves(model, split.X), depth_of(model), seconds


if __name__ == "__main__":
    main()
