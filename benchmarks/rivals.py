"""Seconds to fit, accuracy and leaves beside what a user would otherwise take, in one run.

Run: BAYESTREE_DATA=... python benchmarks/rivals.py [--sets digits letter] [--only cart tao ...]
A candidate whose package is not installed is skipped by name, so that the packages that need an
older scikit-learn can be timed by another interpreter, and the rows put side by side. Candidates
run with their defaults, but for those of ours that need settings for a set (see OURS).
"""

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from data import load
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

SMALL = {"digits": load_digits, "breast_cancer": load_breast_cancer}
SETS = [*SMALL, "satimage", "letter"]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class AbsentError(Exception):
    """The package of a candidate is not installed."""


def named(module: str, name: str, **settings: Any) -> Callable[[int], Any]:
    """Make an estimator of a package that may be absent."""

    def make(seed: int) -> Any:
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise AbsentError(f"{module}: {error}") from error
        estimator = found(**settings)
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=seed)
        return estimator

    return make


OTHERS: dict[str, Callable[[int], Any]] = {
    "cart": lambda seed: DecisionTreeClassifier(random_state=seed),
    "random-forest": lambda seed: RandomForestClassifier(random_state=seed),
    "treeple": named("treeple.tree", "ObliqueDecisionTreeClassifier"),
    "treeple-forest": named("treeple", "ObliqueRandomForestClassifier"),
    "obliquetree": named("obliquetree", "Classifier", max_depth=10),
    "stree": named("stree", "Stree"),
}
#: Trees of this package, with what differs from their defaults.
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "e2edt": ("EndToEndTreeClassifier", {}),
    "e2edf": ("EndToEndForestClassifier", {}),
    "wodt": ("WeightedObliqueTreeClassifier", {}),
    "tao": ("AlternatingTreeClassifier", {}),
    "tao-random": ("AlternatingTreeClassifier", {"init": "random"}),
    "tao-sparse": ("AlternatingTreeClassifier", {"l1": 1.0}),
    "tao-bivariate": ("AlternatingTreeClassifier", {"split": "bivariate", "l1": 3.0}),
    "bivariate": ("BivariateTreeClassifier", {}),
}


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
    """Leaves of a tree, of all trees of a forest; None where it does not tell."""
    if hasattr(estimator, "get_n_leaves"):
        return int(estimator.get_n_leaves())
    if hasattr(estimator, "nodes_leaves"):  # STree
        return int(estimator.nodes_leaves()[1])
    if hasattr(estimator, "estimators_"):
        return sum(leaves(tree) or 0 for tree in estimator.estimators_)
    return None


def measure(candidate: str, make: Callable[[int], Any], name: str, repeats: int) -> str:
    scores, sizes, seconds = [], [], []
    for seed, (X, y, X_test, y_test) in enumerate(splits(name, repeats)):
        estimator = make(seed)
        start = time.perf_counter()
        estimator.fit(X, y)
        seconds.append(time.perf_counter() - start)
        scores.append(float(np.mean(estimator.predict(X_test) == y_test)))
        sizes.append(leaves(estimator))
    spread = f" ± {np.std(scores, ddof=1):.3f}" if len(scores) > 1 else ""
    told = "-" if None in sizes else f"{np.mean(sizes):.0f}"
    return (
        f"| {name} | {candidate} | {np.mean(scores):.3f}{spread} | {told} | "
        f"{np.mean(seconds):.2f} |"
    )


def main() -> None:
    ours = {key: named("bayestree", cls, **v) for key, (cls, v) in OURS.items()}
    makers = OTHERS | ours
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--only", nargs="*", choices=makers, default=list(makers))
    parser.add_argument("--repeats", type=int, default=5, help="of the small sets")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of other packages
    print("| set | candidate | accuracy | leaves | s |\n|---|---|---|---|---|")
    for name in options.sets:
        for candidate in options.only:
            try:
                line = measure(candidate, makers[candidate], name, options.repeats)
            except AbsentError as absent:
                line = f"| {name} | {candidate} | not installed ({absent}) | | |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
