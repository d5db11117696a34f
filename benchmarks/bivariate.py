"""Bivariate trees against CART: accuracy, leaves, features per node and seconds, mean +- sd.

Run: BAYESTREE_DATA=... python benchmarks/bivariate.py breast_cancer [--seeds 5] [--only METHOD ...]

Each seed gives a different stratified split into 75 % training and 25 % test rows. The penalty of a
leaf (``ccp_alpha``) or a feature (``l1``, TAO's lambda) is chosen from a few values on a fifth of
the training rows, the largest one in a tie; ``TAO, l1 = 3`` is fixed. Seconds are CPU time of the
last fit. The poster on bivariate trees has plots only, and so no figures to compare with.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from bayestree import AlternatingTreeClassifier, BivariateTreeClassifier

TOYS = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
}
DEPTH = {"letter": 12}  # of the trees that TAO starts from; 8 elsewhere
PRICES = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)  # of a leaf, impurity averaged over the rows
LAMBDAS = (0.1, 1.0, 3.0, 10.0)  # of a feature, misclassified rows

Fit = Callable[[np.ndarray, np.ndarray], Any]


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in TOYS:
        return TOYS[name](return_X_y=True)
    with np.load(Path(os.environ["BAYESTREE_DATA"]) / f"{name}.npz") as found:
        return found["X"].astype(np.float64), np.unique(found["y"], return_inverse=True)[1]


def methods(name: str) -> dict[str, list[Fit]]:
    """The methods compared; of several fits, the best on the validation rows."""
    depth = DEPTH.get(name, 8)

    def cart(alpha: float) -> Fit:
        return DecisionTreeClassifier(ccp_alpha=alpha, random_state=0).fit

    def grown(alpha: float) -> Fit:
        return BivariateTreeClassifier(max_depth=30, min_gain=0, ccp_alpha=alpha).fit

    def tao(split: str, price: float) -> Fit:
        model = AlternatingTreeClassifier(split=split, l1=price, max_depth=depth, random_state=0)
        return model.fit

    return {
        "CART": [cart(0.0)],
        "CART, pruned": [cart(alpha) for alpha in PRICES],
        "bivariate": [grown(0.0)],
        "bivariate, pruned": [grown(alpha) for alpha in PRICES],
        "TAO axis, l1 = 3": [tao("axis", 3.0)],
        "TAO bivariate, l1 = 3": [tao("bivariate", 3.0)],
        "TAO axis": [tao("axis", price) for price in LAMBDAS],
        "TAO bivariate": [tao("bivariate", price) for price in LAMBDAS],
    }


def chosen(fits: list[Fit], X: np.ndarray, y: np.ndarray) -> Fit:
    if len(fits) == 1:
        return fits[0]
    kept, held, y_kept, y_held = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    scores = [fit(kept, y_kept).score(held, y_held) for fit in fits]
    return fits[len(fits) - 1 - int(np.argmax(scores[::-1]))]


def features_a_node(clf: Any) -> float:
    if isinstance(clf, DecisionTreeClassifier) or clf.tree_.n_nodes == 0:
        return 1.0
    return float((clf.tree_.hyperplane != 0).sum(axis=1).mean())


def run(name: str, fits: list[Fit], seed: int) -> list[float]:
    X, y = rows_of(name)
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, stratify=y, random_state=seed
    )
    fit = chosen(fits, train, y_train)
    start = time.process_time()
    clf = fit(train, y_train)
    seconds = time.process_time() - start
    return [clf.score(test, y_test), clf.get_n_leaves(), features_a_node(clf), seconds]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", metavar="METHOD")
    options = parser.parse_args()
    found = methods(options.name)
    for method in options.only or found:
        with threadpool_limits(1):
            table = np.array([run(options.name, found[method], s) for s in range(options.seeds)])
        (score, leaves, features, seconds), spread = table.mean(axis=0), table.std(axis=0)
        print(
            f"| {options.name} | {method} | {score:.3f} ± {spread[0]:.3f} | "
            f"{leaves:.1f} ± {spread[1]:.1f} | {features:.2f} | {seconds:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
