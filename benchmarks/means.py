"""Is the posterior mean of a regression as accurate as its own tree?

Run: python benchmarks/means.py [SET...]; needs statsmodels. Sets that had no part in any choice, at
the defaults. Five folds: RMSE of the tree and of the mean, and the mean difference of their squared
errors with its standard error over rows, in units of the variance of y.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from statsmodels import datasets

from bayestree import ConvexPolytopeTreeRegressor

#: Response and columns that are left out.
SETS = {
    "engel": ("foodexp", []),
    "cancer": ("cancer", []),
    "grunfeld": ("invest", ["firm"]),
    "macrodata": ("realinv", ["year", "quarter"]),
    "anes96": ("selfLR", []),
    "modechoice": ("ttme", ["individual"]),
    "statecrime": ("murder", []),
}


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    rows: pd.DataFrame = getattr(datasets, name).load_pandas().data
    response, dropped = SETS[name]
    rows = rows.drop(columns=dropped).select_dtypes("number").dropna()
    return rows.drop(columns=response).to_numpy(float), rows[response].to_numpy(float)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(
        "| set | rows | tree | posterior mean | forest | mean - tree | CPU s |\n" + "|---" * 7 + "|"
    )
    for name in sys.argv[1:] or SETS:
        X, y = table(name)
        errors, began = [], time.process_time()
        for train, test in KFold(5, shuffle=True, random_state=0).split(X):
            reg = ConvexPolytopeTreeRegressor(n_modes=1, random_state=0).fit(X[train], y[train])
            forest = RandomForestRegressor(random_state=0).fit(X[train], y[train])
            found = (reg.tree_.predict(X[test]), reg.predict(X[test]), forest.predict(X[test]))
            errors.append(np.stack([(one - y[test]) ** 2 for one in found]))
        squares = np.concatenate(errors, axis=1) / y.var()
        tree, mean, forest = np.sqrt(squares.mean(axis=1))
        gap = squares[1] - squares[0]
        error = gap.std() / np.sqrt(len(gap))
        print(
            f"| {name} | {len(X)} x {X.shape[1]} | {tree:.3f} | {mean:.3f} | {forest:.3f} | "
            f"{gap.mean():+.3f} ± {error:.3f} | {time.process_time() - began:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
