"""Logistic, ordinal and Student-t leaves against constant and normal ones, and forests.

Classes: the mean log probability of held-out classes, Brier score, and error, in five repetitions
of two folds, with logistic regression on columns of unit variance as well. ``--tree`` compares
the leaves of another tree than the polytope tree.

Ordered classes: the mean log probability of held-out classes, ranked probability score, and
error of the median class. Numbers: in a share of the training rows, y is replaced by values up to
ten times its range; scores are those of held-out rows, which are left as they are.

Run: BAYESTREE_DATA=... python benchmarks/other_leaves.py [logistic | ordinal | student] [NAME ...]
     [--models NAME ...] [--modes N] [--folds N] [--splits N] [--rows N] [--share S]
     [--tree bivariate | co2 | tao | wodt]
"""

import argparse
import time
from functools import partial

import numpy as np
import torch
from data import load_all
from linear_leaves import rows_of, scores_of
from scipy.stats import norm
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedKFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayestree import (
    AlternatingTreeClassifier,
    BivariateTreeClassifier,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ObliqueTreeClassifier,
    WeightedObliqueTreeClassifier,
)
from bayestree.diagnostics import ranked_probability

SETS = {
    "logistic": ("pima", "heart", "vehicle"),
    "ordinal": ("pid", "abalone", "concrete"),
    "student": ("engel", "diabetes", "concrete", "airfoil"),
}
SCORES = {
    "logistic": "log score | Brier score | error",
    "ordinal": "log score | RPS | median error",
    "student": "log score | RMSE | 90 % cover",
}
TREES = {
    "bivariate": BivariateTreeClassifier,
    "co2": partial(ObliqueTreeClassifier, splitter="co2", random_state=0),
    "tao": partial(AlternatingTreeClassifier, random_state=0),
    "wodt": partial(WeightedObliqueTreeClassifier, random_state=0),
}
FLOOR = 1e-3  # share of the uniform distribution in all class probabilities, as forests have zeros


def ordered(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and class numbers of a set; numbers in ten classes of about the same size."""
    if name == "pid":  # party identification in seven steps (American National Election Study)
        from statsmodels import datasets  # noqa: PLC0415 - the other sets do not need it

        found = datasets.anes96.load_pandas().data
        columns = ["logpopul", "TVnews", "age", "educ", "income", "selfLR"]
        return found[columns].to_numpy(float), found["PID"].to_numpy(int)
    X, y = load_all(name)
    if name == "abalone":
        return X, np.clip(y, 4, 18).astype(int) - 4
    return X, np.digitize(y, np.quantile(y, np.arange(1, 10) / 10))


def of_classes(model: str, X: np.ndarray, y: np.ndarray, Xt: np.ndarray, yt: np.ndarray,
               options: argparse.Namespace) -> list:  # fmt: skip
    """Log score, Brier score and error of the best class, or for ordinal classes the ranked
    probability score and the error of the median class; and number of leaves."""
    if model == "forest":
        few = 5 if options.kind == "ordinal" else 1
        clf = RandomForestClassifier(min_samples_leaf=few, random_state=0).fit(X, y)
    elif model == "regression":
        clf = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    elif options.tree:
        clf = TREES[options.tree](leaf=model).fit(X, y)
    else:
        clf = ConvexPolytopeTreeClassifier(
            leaf=model, n_modes=options.modes, random_state=0, verbose=False
        ).fit(X, y)
    p = np.zeros((len(Xt), max(y.max(), yt.max()) + 1))
    p[:, clf.classes_] = clf.predict_proba(Xt)
    p = (1 - FLOOR) * p + FLOOR / p.shape[1]
    log_score = np.log(p[np.arange(len(p)), yt]).mean()
    leaves = 0 if model in ("forest", "regression") else clf.get_n_leaves()
    if options.kind == "ordinal":
        median = (p.cumsum(axis=1) < 0.5).sum(axis=1)
        return [log_score, ranked_probability(yt, p).mean(), np.abs(median - yt).mean(), leaves]
    brier = ((p - np.eye(p.shape[1])[yt]) ** 2).sum(axis=1).mean()
    return [log_score, brier, (p.argmax(axis=1) != yt).mean(), leaves]


def of_numbers(model: str, X: np.ndarray, y: np.ndarray, Xt: np.ndarray, yt: np.ndarray,
               options: argparse.Namespace) -> list:  # fmt: skip
    """Log score, RMSE, share of y in the 90 % interval, and number of leaves."""
    if model == "forest":
        forest = RandomForestRegressor(random_state=0, oob_score=True).fit(X, y)
        sd, mean = np.sqrt(np.mean((y - forest.oob_prediction_) ** 2)), forest.predict(Xt)
        score, low, high, leaves = (
            norm.logpdf(yt, mean, sd),
            mean - 1.645 * sd,
            mean + 1.645 * sd,
            0,
        )
    else:
        reg = ConvexPolytopeTreeRegressor(
            leaf=model, n_modes=options.modes, random_state=0, verbose=False
        ).fit(X, y)
        mean, score, leaves = reg.predict(Xt), scores_of(reg, Xt, yt), reg.get_n_leaves()
        low, high = reg.predict_interval(Xt)
    rmse = np.sqrt(np.mean((mean - yt) ** 2))
    return [score.mean(), rmse, np.mean((low <= yt) & (yt <= high)), leaves]


def spoiled(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """y with a share of values up to ten times as far from its mean as any other."""
    y, wrong = y.astype(float).copy(), rng.random(len(y)) < share
    y[wrong] = y.mean() + rng.uniform(-10, 10, wrong.sum()) * np.ptp(y)
    return y


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=list(SETS))
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--modes", type=int, default=3)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--tree", choices=list(TREES))
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--share", type=float, default=0.05)
    options = parser.parse_args()
    torch.set_num_threads(1)
    kind, number_of = options.kind, options.kind == "student"
    print(f"| set | leaves | {SCORES[kind]} | number of leaves | s of a fit |\n|" + "---|" * 7)
    for name in options.sets or SETS[kind]:
        X, y = ordered(name) if kind == "ordinal" else rows_of(name)
        if kind == "logistic":
            y = np.unique(y, return_inverse=True)[1]
            splitter = RepeatedKFold(
                n_splits=options.splits, n_repeats=options.folds, random_state=0
            )
        else:
            size = min(options.rows, int(0.8 * len(X)))
            splitter = ShuffleSplit(options.folds, train_size=size, random_state=0,
                                    test_size=min(1_000, len(X) - size))  # fmt: skip
        folds = list(splitter.split(X))
        others = ["regression"] if kind == "logistic" else []
        for model in options.models or ["constant", kind, *others, "forest"]:
            start, each = time.process_time(), []
            for number, (own, other) in enumerate(folds):
                rng = np.random.default_rng(number)
                target = spoiled(y[own], options.share, rng) if number_of else y[own]
                score = of_numbers if number_of else of_classes
                each.append(score(model, X[own], target, X[other], y[other], options))
            seconds = (time.process_time() - start) / len(folds)
            mean, error = np.mean(each, axis=0), np.std(each, axis=0, ddof=1) / np.sqrt(len(folds))
            print(f"| {name} | {model} | {mean[0]:.3f} ± {error[0]:.2g} | {mean[1]:.4g} ± "
                  f"{error[1]:.2g} | {mean[2]:.3g} | {mean[3]:.1f} | {seconds:.1f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
