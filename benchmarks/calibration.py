"""Calibration of the posterior predictive, against the deterministic tree and a random forest.

Run: BAYESTREE_DATA=... python benchmarks/calibration.py letter [--seed 0] [--models FOLDER]
With --models the fitted tree is saved in FOLDER, and read from there if it already exists.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from classification import JOBS
from data import load, made
from sklearn.ensemble import RandomForestClassifier

import bayestree as bt
from bayestree.diagnostics import Score, calibration

SETTINGS = {name: JOBS[name] for name in ("letter", "mnist", "bace")} | {"pima": {}}
UNIFORM = 0.001  # share of equal probabilities that makes every log score finite
HEAD = (
    "| set | prediction | accuracy | ECE (if calibrated) | ECE, equal width | classwise ECE "
    "| Brier | log score | with 0.1 % uniform | rows at 0 |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def fitted(name: str, seed: int, folder: Path | None) -> bt.ConvexPolytopeTreeClassifier:
    path = None if folder is None else folder / f"{name}-{seed}.safetensors"
    if path is not None and path.exists():
        return bt.load(path)
    rows = load(name)
    settings = {"dtype": "float32", "n_modes": 1, "random_state": seed} | SETTINGS[name]
    clf = made(bt.ConvexPolytopeTreeClassifier, settings).fit(rows.X, rows.y)
    if path is not None:
        clf.save(path)
    return clf


def number(score: Score, digits: int = 4) -> str:
    if not np.isfinite(score.value):
        return "-inf"
    return f"{score.value:.{digits}f} ± {score.error:.{digits}f}"


def line(name: str, kind: str, y: np.ndarray, p: np.ndarray, classes: np.ndarray) -> str:
    found = calibration(y, p, classes=classes)
    mixed = (1 - UNIFORM) * p + UNIFORM / len(classes)
    floored = calibration(y, mixed, classes=classes).log_score
    cells = [
        name,
        kind,
        number(found.accuracy),
        f"{number(found.ece)} ({found.ece.if_calibrated:.4f})",
        number(found.ece_width),
        number(found.ece_classwise),
        number(found.brier),
        number(found.log_score, 3),
        number(floored, 3),
        str(found.n_zero),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=SETTINGS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = load(options.name)
    clf = fitted(options.name, options.seed, options.models)
    forest = RandomForestClassifier(random_state=options.seed).fit(rows.X, rows.y)
    print(HEAD)
    for kind, p, classes in (
        ("posterior", clf.predict_proba(rows.X_test), clf.classes_),
        ("tree", clf.tree_.predict(rows.X_test), clf.classes_),
        ("forest, 100 trees", forest.predict_proba(rows.X_test), forest.classes_),
    ):
        print(line(options.name, kind, rows.y_test, p, classes), flush=True)


if __name__ == "__main__":
    main()
