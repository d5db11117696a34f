"""Fit time, accuracy and leaves against the usual alternatives, in one run.

Run: BAYESTREE_DATA=... python benchmarks/rivals.py [--sets digits letter] [--only cart tao ...]
A candidate whose package is not installed is skipped by name, so that the packages that need an
older scikit-learn can be timed by another interpreter, and the rows put side by side. CPU seconds
are more reliable than wall-clock time if other programs run. Candidates run with their defaults,
except those of this package that need settings for a data set (see OURS).
"""

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from data import load, made
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

SMALL = {"digits": load_digits, "breast_cancer": load_breast_cancer}
SETS = [*SMALL, "satimage", "letter"]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class AbsentError(Exception):
    """The package of a candidate is not installed."""


Make = Callable[[int, str], Any]  # from a seed and the name of a set to an estimator


def named(module: str, name: str, settings: dict[str, dict[str, Any]]) -> Make:
    """Make an estimator of a package that may be absent."""

    def make(seed: int, rows: str) -> Any:
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise AbsentError(f"{module}: {error}") from error
        seeds = {"random_state": seed} if "random_state" in signature(found).parameters else {}
        given = settings.get("all", {}) | settings.get(rows, {}) | seeds
        return made(found, given) if module == "bayestree" else found(**given)

    return make


OTHERS: dict[str, Make] = {
    "cart": lambda seed, _: DecisionTreeClassifier(random_state=seed),
    "random-forest": lambda seed, _: RandomForestClassifier(random_state=seed),
    "treeple": named("treeple.tree", "ObliqueDecisionTreeClassifier", {}),
    "treeple-forest": named("treeple", "ObliqueRandomForestClassifier", {}),
    "obliquetree": named("obliquetree", "Classifier", {"all": {"max_depth": 10}}),
    "stree": named("stree", "Stree", {}),
}
#: Trees of this package: class, and settings for all sets and for single ones (those of the other
#: benchmarks, or chosen on validation rows); the rest is default.
OURS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "cpt": ("ConvexPolytopeTreeClassifier", {
        "all": {"dtype": "float32"},
        "digits": {"scaling": "common"},
        "letter": {"max_depth": 11, "max_leaves": 300, "scaling": "common", "kl_weight": 0.1,
                   "steepness": 3.0, "min_rows": 10, "min_leaf": 3, "min_gain": 2.0},
    }),
    "e2edt": ("EndToEndTreeClassifier", {
        "all": {"dtype": "float32", "learning_rate": 0.03, "epochs": 50},
        "satimage": {"learning_rate": 0.01, "epochs": 20},
        "letter": {"learning_rate": 0.01, "epochs": 20, "max_depth": 11},
    }),
    "e2edf": ("EndToEndForestClassifier", {"all": {"dtype": "float32", "learning_rate": 0.03}}),
    "wodt": ("WeightedObliqueTreeClassifier", {}),
    "tao": ("AlternatingTreeClassifier", {
        "breast_cancer": {"max_depth": 6, "l1": 1.0},
        "satimage": {"max_depth": 7, "l1": 1.0},
        "letter": {"max_depth": 10, "init": "random"},
    }),
    "tao-bivariate": ("AlternatingTreeClassifier", {
        "all": {"split": "bivariate", "l1": 3.0},
        "letter": {"max_depth": 12},
    }),
    "bivariate": ("BivariateTreeClassifier", {"letter": {"max_depth": 20}}),
}  # fmt: skip


def splits(name: str, repeats: int) -> list[Rows]:
    """Training and test rows: the official split, or draws of 75/25 of the small sets."""
    if name not in SMALL:
        rows = load(name)
        return [(rows.X, rows.y, rows.X_test, rows.y_test)]
    X, y = SMALL[name](return_X_y=True)
    drawn = []
    for seed in range(repeats):
        kept, held, y_kept, y_held = train_test_split(
            X, y, test_size=0.25, stratify=y, random_state=seed
        )
        drawn.append((kept, y_kept, held, y_held))
    return drawn


def leaves(estimator: Any) -> int | None:
    """Leaves of a tree, of all trees of a forest; None if it is not known."""
    if hasattr(estimator, "get_n_leaves"):
        return int(estimator.get_n_leaves())
    if hasattr(estimator, "nodes_leaves"):  # STree
        return int(estimator.nodes_leaves()[1])
    if hasattr(estimator, "estimators_"):
        return sum(leaves(tree) or 0 for tree in estimator.estimators_)
    return None


def measure(candidate: str, make: Make, name: str, repeats: int) -> str:
    scores, sizes, seconds, cpu = [], [], [], []
    for seed, (X, y, X_test, y_test) in enumerate(splits(name, repeats)):
        estimator = make(seed, name)
        start, start_cpu = time.perf_counter(), time.process_time()
        estimator.fit(X, y)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
        scores.append(float(np.mean(estimator.predict(X_test) == y_test)))
        sizes.append(leaves(estimator))
    spread = f" ± {np.std(scores, ddof=1):.3f}" if len(scores) > 1 else ""
    told = "-" if None in sizes else f"{np.mean(sizes):.0f}"
    return (
        f"| {name} | {candidate} | {np.mean(scores):.3f}{spread} | {told} | "
        f"{np.mean(seconds):.2f} | {np.mean(cpu):.2f} |"
    )


def main() -> None:
    ours = {key: named("bayestree", cls, settings) for key, (cls, settings) in OURS.items()}
    makers = OTHERS | ours
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--only", nargs="*", choices=makers, default=list(makers))
    parser.add_argument("--repeats", type=int, default=5, help="of the small sets")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of other packages
    print("| set | candidate | accuracy | leaves | s | CPU s |\n|---|---|---|---|---|---|")
    for name in options.sets:
        for candidate in options.only:
            try:
                line = measure(candidate, makers[candidate], name, options.repeats)
            except AbsentError as absent:
                line = f"| {name} | {candidate} | not installed ({absent}) | | | |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
