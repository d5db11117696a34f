"""Log scores and CPU of a default fit with and without its sweeps, beside a random forest.

    BAYESTREE_DATA=FOLDER python -m benchmarks.swept [SET ...]

Five folds of at most 1,500 rows; differences are paired by row.
"""

import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import KFold, StratifiedKFold

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from benchmarks.data import REGRESSION, load_all

SETS = (
    "heart", "pima", "iris", "breast_cancer", "wine", "glass", "vehicle", "diabetes", "airfoil",
    "concrete",
)  # fmt: skip
MOST = 1500


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or SETS:
        X, y = load_all(name)
        some = np.random.default_rng(0).permutation(len(X))[:MOST]
        X, y = X[some], y[some]
        numbers = name in (*REGRESSION, "diabetes")
        kind: Any = ConvexPolytopeTreeRegressor if numbers else ConvexPolytopeTreeClassifier
        forest: Any = RandomForestRegressor if numbers else RandomForestClassifier
        splitter = (KFold if numbers else StratifiedKFold)(5, shuffle=True, random_state=0)
        scores, seconds = np.zeros((2, len(y))), np.zeros(3)
        for train, test in splitter.split(X, y):
            for place, inference in enumerate(("auto", "vi")):
                started = time.process_time()
                fit = kind(inference=inference, random_state=0).fit(X[train], y[train])
                seconds[place] += time.process_time() - started
                scores[place, test] = np.log(
                    np.maximum(np.exp(fit.log_score(X[test], y[test])), 1e-6)
                )
            started = time.process_time()
            forest(300, random_state=0, n_jobs=1).fit(X[train], y[train])
            seconds[2] += time.process_time() - started
        gain = scores[0] - scores[1]
        ours, former, of_forest = seconds / 5
        print(
            f"{name:14} {len(y):5} x {X.shape[1]:3}: {scores[0].mean():.4f} against "
            f"{scores[1].mean():.4f}, {gain.mean():+.4f} +- {gain.std() / len(gain) ** 0.5:.4f}; "
            f"CPU {ours:.2f} and {former:.2f} s a fit, forest {of_forest:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
