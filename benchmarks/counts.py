"""Poisson leaves against Poisson regression, a random forest and gradient boosting, by five folds.

The deviance is the mean Poisson deviance of held-out counts. The log score is the mean log
probability of the count: of the posterior predictive distribution of the tree, of a Poisson
distribution with the predicted mean for the others. Penalties are chosen within the training rows.

Run: BAYESTREE_DATA=... python benchmarks/counts.py [NAME ...] [--models NAME ...] [--modes N]
[--rows N]
"""

import argparse
import time

import numpy as np
import torch
from data import load_all
from scipy.stats import poisson
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels import datasets

from bayestree import ConvexPolytopeTreeRegressor

SETS = ("randhie", "star98", "abalone", "planted")
MODELS = ("tree", "regression", "forest", "boosting", "constant")
PENALTIES = np.geomspace(1e-4, 1.0, 5)
TINY = 1e-6  # least mean of a prediction: the deviance of 0 is infinite


def rows_of(name: str, n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, counts and exposures of a set, of at most ``n_rows`` random rows."""
    rng = np.random.default_rng(0)
    if name == "planted":  # rates on the sides of a triangle in two of five columns
        X, exposure = rng.normal(size=(1000, 5)), rng.gamma(2.0, 0.5, 1000)
        inside = (X[:, 0] > -0.8) & (X[:, 1] > -0.8) & (X[:, 0] + X[:, 1] < 0.6)
        y = rng.poisson(np.where(inside, 4.0, 1.0) * exposure)
    elif name == "star98":
        found = datasets.star98.load_pandas()
        above = found.endog.to_numpy(dtype=float)
        X, y, exposure = found.exog.to_numpy(dtype=float), above[:, 0], above.sum(axis=1)
    elif name == "randhie":
        found = datasets.randhie.load_pandas()
        X, y = found.exog.to_numpy(dtype=float), found.endog.to_numpy(dtype=float)
        exposure = np.ones(len(y))
    else:
        X, y = load_all(name)
        exposure = np.ones(len(y))
    some = np.sort(rng.permutation(len(y))[:n_rows])
    return X[some], y[some], exposure[some]


def other(model: str) -> object:
    """A model of rates, with the exposure as its weight."""
    if model == "regression":
        line = make_pipeline(StandardScaler(), PoissonRegressor(max_iter=1000))
        return GridSearchCV(line, {"poissonregressor__alpha": PENALTIES}, cv=5)
    if model == "forest":
        return RandomForestRegressor(criterion="poisson", min_samples_leaf=5, random_state=0)
    return HistGradientBoostingRegressor(loss="poisson", random_state=0)


def predicted(model: str, own: tuple, test: tuple, options: argparse.Namespace) -> tuple:
    """Expected counts of the test rows, their log scores, coverage of 90 % and leaves."""
    X, y, exposure = own
    Xt, yt, et = test
    if model == "tree":
        tree = ConvexPolytopeTreeRegressor(
            leaf="poisson",
            n_modes=options.modes,
            inference=options.inference,
            random_state=0,
            verbose=False,
        )
        tree.fit(X, y, exposure=exposure)
        both = np.column_stack([yt, et])
        mean = tree.predict(Xt, exposure=et)
        cover = tree.in_interval(Xt, both, 0.9).mean()
        return mean, tree.log_score(Xt, both), cover, tree.get_n_leaves()
    if model == "constant":
        rate = np.full(len(yt), y.sum() / exposure.sum())
    else:
        weighted = {"regression": "poissonregressor__sample_weight"}.get(model, "sample_weight")
        rate = other(model).fit(X, y / exposure, **{weighted: exposure}).predict(Xt)
    mean = np.maximum(rate * et, TINY)
    low, high = poisson.ppf([[0.05], [0.95]], mean)
    return mean, poisson.logpmf(yt, mean), np.mean((low <= yt) & (yt <= high)), 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--modes", type=int, default=3)
    parser.add_argument("--inference", default="svi")
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| set (rows) | model | deviance | log score | in 90 % | leaves | s of a fit |\n"
          "|---|---|---|---|---|---|---|")  # fmt: skip
    for name in options.sets:
        rows = rows_of(name, options.rows)
        for model in options.models:
            start, each = time.process_time(), []
            for kept, held in KFold(5, shuffle=True, random_state=0).split(rows[0]):
                test = tuple(part[held] for part in rows)
                mean, score, cover, leaves = predicted(
                    model, tuple(part[kept] for part in rows), test, options
                )
                each.append((mean_poisson_deviance(test[1], mean), score.mean(), cover, leaves))
            seconds = (time.process_time() - start) / 5
            deviance, score, cover, leaves = np.mean(each, axis=0)
            spread = np.std(each, axis=0, ddof=1)[:2] / np.sqrt(5)
            print(f"| {name} ({len(rows[0])}) | {model} | {deviance:.4g} ± {spread[0]:.2g} | "
                  f"{score:.3f} ± {spread[1]:.2g} | {cover:.2f} | {leaves:.1f} | {seconds:.1f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
