"""Regression sets against scikit-learn's cross-validated CART.

Run: BAYESTREE_DATA=... python benchmarks/regression.py [airfoil concrete abalone kin40k]
"""

import argparse
import time

import numpy as np
import torch
from data import REGRESSION, Split, load, made
from sklearn.metrics import root_mean_squared_error as rmse
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.tree import DecisionTreeRegressor

from bayestree import ConvexPolytopeTreeRegressor

LEAVES = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, None]


def cart(rows: Split) -> tuple[float, int]:
    """Test RMSE and leaves of CART, its limits chosen by five folds of the training rows."""
    grid = {
        "max_leaf_nodes": LEAVES,
        "min_samples_leaf": [1, 3, 5, 10, 20],
        "ccp_alpha": [share * rows.y.var() for share in (0.0, 1e-4, 1e-3, 1e-2)],
    }
    if len(rows.X) > 10_000:  # a coarser grid, or CART would take most of the time
        grid |= {"max_leaf_nodes": [256, 1024, 2048, None], "min_samples_leaf": [1, 5, 10],
                 "ccp_alpha": [0.0]}  # fmt: skip
    folds = KFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(DecisionTreeRegressor(random_state=0), grid, cv=folds,
                          scoring="neg_mean_squared_error")  # fmt: skip
    found = search.fit(rows.X, rows.y).best_estimator_
    return rmse(rows.y_test, found.predict(rows.X_test)), found.get_n_leaves()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=REGRESSION)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--inference", default="svi", choices=("map", "svi"))
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    changes = {name: float(v) if "." in v else int(v)
               for name, _, v in (pair.partition("=") for pair in options.set)}  # fmt: skip
    torch.set_num_threads(1)
    print("| set | CART RMSE (leaves) | tree RMSE (leaves) | predictive RMSE | 90 % cover | s |")
    print("|---|---|---|---|---|---|")
    for name in options.sets:
        rows = load(name)
        reference, reference_leaves = cart(rows)
        for seed in range(options.seeds):
            settings = {"max_depth": 6, "dtype": "float32", "random_state": seed, "n_modes": 1,
                        "inference": options.inference} | changes  # fmt: skip
            start = time.perf_counter()
            reg = made(ConvexPolytopeTreeRegressor, settings).fit(rows.X, rows.y)
            seconds = time.perf_counter() - start
            low, high = reg.predict_interval(rows.X_test)
            cover = np.mean((low <= rows.y_test) & (rows.y_test <= high))
            print(f"| {name} | {reference:.4g} ({reference_leaves}) | "
                  f"{rmse(rows.y_test, reg.tree_.predict(rows.X_test)):.4g} "
                  f"({reg.get_n_leaves()}) | {rmse(rows.y_test, reg.predict(rows.X_test)):.4g} | "
                  f"{cover:.3f} | {seconds:.0f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
