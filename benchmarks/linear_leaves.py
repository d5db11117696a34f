"""Constant and linear leaves against linear regression and a random forest, by five folds.

The log score is the mean log predictive density of held-out y in its units; linear regression and
the forest predict a normal distribution with the deviation of their training or out-of-bag errors.

Run: BAYESTREE_DATA=... python benchmarks/linear_leaves.py [NAME ...] [--modes N] [--set NAME=VALUE]
"""

import argparse
import time

import numpy as np
import torch
from data import load_all
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from bayestree import ConvexPolytopeTreeRegressor
from bayestree.inference.pointwise import log_likelihood

SETS = ("curve", "engel", "star98", "diabetes", "concrete", "airfoil", "abalone")


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y of a set."""
    if name == "curve":  # almost a function of one column out of eight
        rng = np.random.default_rng(0)
        X = rng.normal(size=(600, 8))
        return X, np.exp(0.5 * X[:, 0]) + np.sin(2 * X[:, 0]) + 0.01 * rng.normal(size=600)
    if name not in ("engel", "star98"):
        return load_all(name)
    from statsmodels import datasets  # noqa: PLC0415 - the other sets do not need it

    if name == "engel":
        found = datasets.engel.load_pandas().data
        return found[["income"]].to_numpy(), found["foodexp"].to_numpy()
    found = datasets.star98.load_pandas()
    above = found.endog.to_numpy(dtype=float)
    return found.exog.to_numpy(dtype=float), above[:, 0] / above.sum(axis=1)


def scores_of(reg: ConvexPolytopeTreeRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log predictive density of each row."""
    parts = []
    for mode, weight in zip(reg.modes_, reg.mode_weights_, strict=True):
        found = mode.posterior_
        terms = log_likelihood(found.model, found.each(), mode.training_data(X, y))
        parts.append(np.log(weight + 1e-300) + logsumexp(terms, axis=0) - np.log(len(terms)))
    return logsumexp(parts, axis=0) - np.log(reg.fitted_.scaling.units.y_scale)


def fitted(leaf: str, X: np.ndarray, y: np.ndarray, Xt: np.ndarray, yt: np.ndarray,
           options: argparse.Namespace) -> tuple:  # fmt: skip
    """Prediction, log scores, number of leaves and share of y in the 90 % interval."""
    if leaf in ("constant", "linear"):
        reg = ConvexPolytopeTreeRegressor(
            leaf=leaf, n_modes=options.modes, random_state=0, verbose=False, **options.changes
        ).fit(X, y)
        low, high = reg.predict_interval(Xt)
        cover = np.mean((low <= yt) & (yt <= high))
        return reg.predict(Xt), scores_of(reg, Xt, yt), reg.get_n_leaves(), cover
    if leaf == "regression":
        line = LinearRegression().fit(X, y)
        degrees = max(1, len(y) - X.shape[1] - 1)
        sd, mean = np.sqrt(((y - line.predict(X)) ** 2).sum() / degrees), line.predict(Xt)
    else:
        forest = RandomForestRegressor(random_state=0, oob_score=True).fit(X, y)
        sd, mean = np.sqrt(np.mean((y - forest.oob_prediction_) ** 2)), forest.predict(Xt)
    return mean, norm.logpdf(yt, mean, sd), 0, np.mean(np.abs(yt - mean) < 1.645 * sd)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*",
                        default=["constant", "linear", "regression", "forest"])  # fmt: skip
    parser.add_argument("--modes", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    options.changes = {name: float(v) if "." in v else int(v)
                       for name, _, v in (pair.partition("=") for pair in options.set)}  # fmt: skip
    torch.set_num_threads(1)
    print("| set | model | RMSE | log score | 90 % cover | leaves | s of a fit |\n"
          "|---|---|---|---|---|---|---|")  # fmt: skip
    for name in options.sets:
        X, y = rows_of(name)
        for model in options.models:
            start, each = time.process_time(), []
            for own, other in KFold(5, shuffle=True, random_state=0).split(X):
                mean, score, n_leaves, cover = fitted(
                    model, X[own], y[own], X[other], y[other], options
                )
                error = np.sqrt(np.mean((mean - y[other]) ** 2))
                each.append((error, score.mean(), cover, n_leaves))
            seconds = (time.process_time() - start) / 5
            error, score, cover, leaves = np.mean(each, axis=0)
            spread = np.std(each, axis=0, ddof=1)[:2] / np.sqrt(5)
            print(f"| {name} | {model} | {error:.4g} ± {spread[0]:.2g} | {score:.3f} ± "
                  f"{spread[1]:.2g} | {cover:.2f} | {leaves:.1f} | {seconds:.1f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
