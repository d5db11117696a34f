"""The regressors of the other trees against CART, a random forest, TAO and the polytope tree.

Folds of the public sets: RMSE of test rows with its standard error, leaves, and CPU seconds of the
fit.

Run: BAYESTREE_DATA=... python benchmarks/other_regressors.py [diabetes concrete airfoil abalone]
     [--folds 2] [--only NAME ...] [--linear]   (each tree with constant and with linear leaves)
"""

import argparse
import time
import warnings
from functools import partial

import numpy as np
import torch
from data import load_all
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import root_mean_squared_error as rmse
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.tree import DecisionTreeRegressor

import bayestree as bt

SEED = {"random_state": 0}
SIZES = {"max_leaf_nodes": [4, 8, 16, 32, 64, 128, 256], "min_samples_leaf": [1, 5, 10, 20]}
METHODS = {
    "CART, validated size": lambda: GridSearchCV(DecisionTreeRegressor(**SEED), SIZES, cv=5),
    "random forest": lambda: RandomForestRegressor(**SEED),
    "TAO": lambda: bt.AlternatingTreeRegressor(**SEED),
    "CPT": lambda: bt.ConvexPolytopeTreeRegressor(n_modes=1, **SEED),
    "E2EDT": lambda: bt.EndToEndTreeRegressor(**SEED),
    "E2EDT, soft": lambda: bt.EndToEndTreeRegressor(prediction="posterior", **SEED),
    "E2EDT, linear leaves": lambda: bt.EndToEndTreeRegressor(leaf="linear", max_depth=4, **SEED),
    "E2EDF": lambda: bt.EndToEndForestRegressor(**SEED),
    "WODT": lambda: bt.WeightedObliqueTreeRegressor(**SEED),
    "WODT, linear leaves": lambda: bt.WeightedObliqueTreeRegressor(leaf="linear", **SEED),
    "bivariate": bt.BivariateTreeRegressor,
    "bivariate, min_leaf=10": lambda: bt.BivariateTreeRegressor(min_leaf=10),
}
TREES = {
    name: partial(bt.ObliqueTreeRegressor, splitter=name, **SEED)
    for name in ("cart-lc", "co2", "guide", "hhcart", "oc1")
} | {
    "bivariate": bt.BivariateTreeRegressor,
    "LCN": partial(bt.LocallyConstantTreeRegressor, **SEED),
    "non-greedy": partial(bt.NonGreedyTreeRegressor, **SEED),
    "WODT": partial(bt.WeightedObliqueTreeRegressor, **SEED),
    "TAO": partial(bt.AlternatingTreeRegressor, **SEED),
    "E2EDT": partial(bt.EndToEndTreeRegressor, **SEED),
}
LINEAR = {
    f"{name}, {leaf} leaves": partial(tree, leaf=leaf)
    for name, tree in TREES.items()
    for leaf in ("constant", "linear")
}


def leaves(model: object) -> int:
    """Leaves of a fitted tree, or of all trees of a forest."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, RandomForestRegressor):
        return sum(tree.get_n_leaves() for tree in model.estimators_)
    return model.get_n_leaves()  # type: ignore[attr-defined, no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=["diabetes", "concrete", "airfoil", "abalone"])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    methods = LINEAR if options.linear else METHODS
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| set | method | RMSE | leaves | CPU s |\n|---|---|---|---|---|")
    for name in options.sets:
        X, y = load_all(name)
        for method in options.only or methods:
            found = []
            for train, test in KFold(options.folds, shuffle=True, random_state=0).split(X):
                start = time.process_time()
                model = methods[method]().fit(X[train], y[train])
                seconds = time.process_time() - start
                found.append((rmse(y[test], model.predict(X[test])), leaves(model), seconds))
            error, size, seconds = np.mean(found, axis=0)
            spread = np.std(found, axis=0, ddof=1)[0] / len(found) ** 0.5
            print(
                f"| {name} | {method} | {error:.4g} ± {spread:.2g} | {size:.0f} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
