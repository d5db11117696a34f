"""Does MAP choose the steepness of its splits well? The printed tree at 1, 6, 20 and by default.

Run: python benchmarks/map_steepness.py FOLDER [--tables NAME ...] [--rows 600] [--split 0]

FOLDER has a table NAME.csv.gz for each key of its file tables.json, which gives its "target" and
its "kind": class, number or count. Up to 1,000 of the 30 % of the rows that are held out
(stratified by class, or by quartile of y) judge fits to 600 of the others. The default is the fit
at one of the three values, so that three fits of a table are enough. For the log score, and for
accuracy or R², a difference of the default from the best of the three is printed with its standard
error over the held-out rows. Seconds are CPU time; those of the chosen value include the choice.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split

import bayestree as bt
from bayestree.inference import Map
from bayestree.inference.map import STEEPNESS

FLOOR = 1e-3  # mixed into the probabilities of classes


def measured(model: Any, X: pd.DataFrame, y: np.ndarray, *, classifies: bool) -> np.ndarray:
    """Log score, and correctness or minus the squared error, of each row, shape (2, n)."""
    if not classifies:
        error = (model.predict(X) - y) ** 2 / np.var(y)
        return np.stack([np.broadcast_to(model.log_score(X, y), len(y)), 1 - error])
    share = (1 - FLOOR) * model.predict_proba(X) + FLOOR / len(model.classes_)
    own = np.append(share, np.full((len(X), 1), FLOOR / len(model.classes_)), axis=1)
    known = {label: number for number, label in enumerate(model.classes_)}
    number = np.array([known.get(label, -1) for label in y])
    return np.stack([np.log(own[np.arange(len(y)), number]), share.argmax(axis=1) == number])


def compared(scores: dict[float, np.ndarray], chosen: float) -> str:
    """The chosen value's score, what it lacks to the best value's, and the best value."""
    best = max(scores, key=lambda one: float(scores[one].mean()))
    lack = scores[chosen] - scores[best]
    error = lack.std(ddof=1) / len(lack) ** 0.5
    behind = "" if best == chosen else f" ({lack.mean():.3f} ± {error:.3f} against {best:g})"
    return f"{scores[chosen].mean():.3f}{behind}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--split", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of doubtful columns
    listed = json.loads((options.folder / "tables.json").read_text())
    print("| table | rows | steepness; left out | log score | accuracy or R² | leaves | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in options.tables or listed:
        kind = listed[name]["kind"]
        if kind == "survival":
            continue
        frame = pd.read_csv(options.folder / f"{name}.csv.gz", low_memory=False)
        classifies = kind == "class"
        y = frame.pop(listed[name]["target"]).astype(str if classifies else float).to_numpy()
        strata = y if classifies else np.digitize(y, np.unique(np.quantile(y, [0.25, 0.5, 0.75])))
        train, test = train_test_split(
            np.arange(len(y)), test_size=0.3, random_state=100 + options.split, stratify=strata
        )
        train, test = train[: options.rows], test[:1000]
        kept, held = frame.iloc[train], frame.iloc[test]
        settings: dict[str, Any] = {"random_state": 0}
        if kind == "count":
            settings["leaf"] = "poisson"
        kinds = bt.ConvexPolytopeTreeClassifier, bt.ConvexPolytopeTreeRegressor
        make = kinds[not classifies]
        scores, leaves, seconds = {}, {}, {}
        for steepness in (None, *STEEPNESS):
            if steepness in scores:
                continue  # which is the default
            begin = time.process_time()
            model = make(inference=Map(steepness=steepness), **settings).fit(kept, y[train])
            spent = time.process_time() - begin
            value = model.posterior_.model.steepness if steepness is None else steepness
            if steepness is None:
                chosen, left_out = value, model.posterior_.stats.get("left_out", np.zeros(3))
            scores[value] = measured(model, held, y[test], classifies=classifies)
            leaves[value], seconds[value] = model.get_n_leaves(), spent
        log_score, other = (compared({k: v[i] for k, v in scores.items()}, chosen) for i in (0, 1))
        print(
            f"| {name} | {len(train)} | {chosen:g}; "
            f"{', '.join(f'{value:.0f}' for value in left_out - left_out.max())} | "
            f"{log_score} | {other} | {', '.join(str(leaves[one]) for one in STEEPNESS)} | "
            f"{', '.join(f'{seconds[one]:.1f}' for one in STEEPNESS)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
