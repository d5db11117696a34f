# ruff: noqa: PLC0415 - the environments have different packages
"""Selection of planted columns: false discoveries and power of column_inclusion, lasso and BART.

    python benchmarks/selection.py ours --columns 50 --sets 4      # also: lasso
    python benchmarks/selection.py bart --columns 50 --sets 1      # pip install stochtree
    python benchmarks/selection.py table

Rows are normal with correlation rho between neighbours (rho^|i - j|). Ten of the columns are
planted: four in the root and three in each of its children, whose splits are hyperplanes, or the
outside of a polytope of two facets that share these columns. Classes have the probabilities .95,
.4, .6 and .05 in the four leaves, numbers the means 2, .5, -.5 and -2 and a noise of .7. The method
was developed on other sets (docs of the results). More than 100 columns are fitted by SVI.

The lasso chooses its penalty by five-fold cross-validation, the best one or the strongest within
one standard error. BART is stochtree's with 20 trees, and the thresholds are those of Bleich and
others (2014): shares of the splits by each column, mean of three fits, next to those of 20 fits to
permuted y: local (.95 quantile of each column), global se and global max (.95 quantile of the
largest share). Seconds are CPU time of one process with one thread, per set.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np

PLANTED = 10
KINDS, SHAPES, CORRELATIONS, ROWS = (
    ("class", "number"),
    ("linear", "polytope"),
    (0.0, 0.7),
    (200, 1000),
)
PERMUTATIONS, REPLICATES, TREES = 20, 3, 20
Sets = dict[str, np.ndarray]


def simulate(
    kind: str, shape: str, n: int, d: int, rho: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y and the planted columns."""
    cell = [kind == "class", shape == "linear", n, d, int(10 * rho)]
    rng = np.random.default_rng([seed, *cell])
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    planted = rng.choice(d, PLANTED, replace=False)

    def facet(columns: np.ndarray) -> np.ndarray:
        signs = rng.choice([-1.0, 1.0], len(columns))
        score = X[:, columns] @ (signs * rng.uniform(0.7, 1.3, len(columns)))
        return score / score.std()

    sides = []
    for columns in np.split(planted, [4, 7]):
        if shape == "linear":
            sides.append(facet(columns) > 0)
        else:
            first, second = np.array_split(columns, 2)
            sides.append((facet(first) > 0.5) | (facet(second) > 0.5))
    leaf = np.where(sides[0], 2 + sides[2], sides[1])
    if kind == "class":
        y = (rng.random(n) < np.array([0.95, 0.4, 0.6, 0.05])[leaf]).astype(int)
    else:
        y = np.array([2, 0.5, -0.5, -2])[leaf] + 0.7 * rng.normal(size=n)
    return X, y, planted


def ours(kind: str, X: np.ndarray, y: np.ndarray) -> Sets:
    import torch

    import bayestree as bt

    torch.set_num_threads(1)
    estimator = getattr(bt, f"ConvexPolytopeTree{'Classifier' if kind == 'class' else 'Regressor'}")
    inference = "vi" if X.shape[1] <= 100 else "svi"
    found = estimator(inference=inference, random_state=0).fit(X, y).column_inclusion(X)
    return {f"fdr {q:g}": found.get_support(q, indices=True) for q in (0.05, 0.1, 0.2)}


def lasso(kind: str, X: np.ndarray, y: np.ndarray) -> Sets:
    from sklearn.linear_model import Lasso, LassoCV, LogisticRegression, LogisticRegressionCV

    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    if kind == "number":
        model = LassoCV(cv=5, random_state=0).fit(Z, y)
        penalties, loss, best = model.alphas_, model.mse_path_.T, model.coef_
    else:
        values = np.logspace(-2.5, 0.7, 20) * 200 / len(y)
        model = LogisticRegressionCV(
            Cs=values, cv=5, penalty="l1", solver="liblinear", scoring="neg_log_loss"
        ).fit(Z, y)
        penalties, best = 1 / values, model.coef_[0]
        loss = -np.asarray(next(iter(model.scores_.values())))
    mean, error = loss.mean(axis=0), loss.std(axis=0, ddof=1) / np.sqrt(len(loss))
    limit = mean.min() + error[mean.argmin()]
    strong = penalties[mean <= limit].max()
    if kind == "number":
        coef = Lasso(alpha=strong).fit(Z, y).coef_
    else:
        only = LogisticRegression(C=1 / strong, penalty="l1", solver="liblinear")
        coef = only.fit(Z, y).coef_[0]
    return {"best": np.flatnonzero(best), "one standard error": np.flatnonzero(coef)}


def bart(kind: str, X: np.ndarray, y: np.ndarray) -> Sets:
    from stochtree import BARTModel, OutcomeModel

    rng = np.random.default_rng(0)

    def shares(values: np.ndarray, seed: int) -> np.ndarray:
        general = {"random_seed": seed, "num_threads": 1}
        if kind == "class":
            general["outcome_model"] = OutcomeModel(outcome="binary", link="probit")
        model = BARTModel()
        model.sample(
            X_train=X,
            y_train=values.astype(float),
            num_gfr=0,
            num_burnin=250,
            num_mcmc=250,
            general_params=general,
            mean_forest_params={"num_trees": TREES},
        )
        counts = model.forest_container_mean.get_overall_split_counts(X.shape[1])
        return counts / max(counts.sum(), 1)

    own = np.mean([shares(y, seed) for seed in range(REPLICATES)], axis=0)
    null = np.array([shares(rng.permutation(y), 10 + seed) for seed in range(PERMUTATIONS)])
    mean, sd = null.mean(axis=0), null.std(axis=0, ddof=1)
    most = np.quantile(((null - mean) / np.where(sd > 0, sd, 1)).max(axis=1), 0.95)
    limits = {
        "local": np.quantile(null, 0.95, axis=0),
        "global se": mean + most * sd,
        "global max": np.quantile(null.max(axis=1), 0.95),
    }
    return {name: np.flatnonzero(own > limit) for name, limit in limits.items()}


METHODS = {"ours": ours, "lasso": lasso, "bart": bart}


def measure(method: str, d: int, n_sets: range, rows: list[int], folder: Path) -> None:
    """Select columns in each set and keep them as lines of JSON; sets that are there are kept."""
    for seed, n, rho, shape, kind in product(n_sets, rows, CORRELATIONS, SHAPES, KINDS):
        file = folder / f"{method}-{kind}-{shape}-{n}-{d}-{rho}-{seed}.json"
        if file.exists():
            continue
        X, y, planted = simulate(kind, shape, n, d, rho, seed)
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = METHODS[method](kind, X, y)
        line = {
            "seconds": time.process_time() - start,
            "found": {
                name: [int(np.isin(chosen, planted).sum()), len(chosen)]
                for name, chosen in found.items()
            },
        }
        file.write_text(json.dumps(line))
        print(file.stem, line, flush=True)


def table(folder: Path) -> None:
    """Print realised false discovery rate, with its standard error over sets, and power."""
    import pandas as pd

    lines = []
    for file in sorted(folder.glob("*.json")):
        method, kind, shape, n, d, rho, _ = file.stem.split("-")
        result = json.loads(file.read_text())
        for name, (right, chosen) in result["found"].items():
            rate = (chosen - right) / max(chosen, 1)
            cell = {
                "columns": int(d),
                "rows": int(n),
                "rho": float(rho),
                "y": kind,
                "splits": shape,
            }
            values = {"fdr": rate, "power": right / PLANTED, "seconds": result["seconds"]}
            lines.append({"method": f"{method}, {name}", **cell, **values})
    frame = pd.DataFrame(lines)
    for keys in (
        ["columns", "rows", "rho"],
        ["columns", "rows", "rho", "y", "splits"],
        ["columns"],
    ):
        groups = frame.groupby([*keys, "method"])
        found = groups[["fdr", "power", "seconds"]].mean()
        found.insert(1, "error", groups["fdr"].std() / np.sqrt(groups.size()))
        found["sets"] = groups.size()
        print(found.round(3).to_string(), "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=[*METHODS, "table"])
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--rows", type=int, nargs="*", default=[*ROWS])
    parser.add_argument("--sets", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("results/selection"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.method == "table":
        table(given.folder)
    else:
        measure(given.method, given.columns, range(given.sets), given.rows, given.folder)
