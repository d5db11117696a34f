"""VI beside SVI and a forest on many columns or many rows: log scores and CPU seconds.

    BAYESTREE_DATA=FOLDER OMP_NUM_THREADS=1 python benchmarks/columns.py vi digits usps 1000x200

The methods are ``vi``, ``svi`` and ``forest`` (of 300 trees); ``--full`` is the largest number of
columns for which VI has a full covariance. Rows are training rows of each set, at most ``--rows``
(or 70 % of them), and scores those of up to as many others of them: no test row is used. A name
such as 1000x200 is a simulated table of two classes (``make_classification``: 5 informative
columns, 15 redundant ones, four clusters a class). Probabilities get an admixture of .1 % of equal
ones.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch
from data import REGRESSION, load
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference.variational import vi as vi_method

UNIFORM = 0.001


def rows_of(name: str, most: int) -> list[np.ndarray]:
    """Return rows to fit, others, and the labels of both."""
    if "x" in name:
        n, d = map(int, name.split("x"))
        given = {"n_informative": 5, "n_redundant": 15, "n_clusters_per_class": 4, "class_sep": 1.5}
        X, y = make_classification(n + most, d, random_state=0, **given)
        return [X[:n], X[n:], y[:n], y[n:]]
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        X, y = load(name)[:2]
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    n = min(most, int(0.7 * len(y)))
    strata = None if name in REGRESSION else y
    found = train_test_split(X, y, train_size=n, stratify=strata, random_state=0)
    return [part[:most] for part in found]


def fit(method: str, name: str, most: int) -> str:
    X, X_new, y, y_new = rows_of(name, most)
    model: Any = RandomForestClassifier(300, random_state=0)
    if method != "forest":
        numbers = name in REGRESSION
        kind = ConvexPolytopeTreeRegressor if numbers else ConvexPolytopeTreeClassifier
        model = kind(inference=method, random_state=0)
    started = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - started
    if name in REGRESSION:
        scores, error = model.log_score(X_new, y_new), rmse(model.predict(X_new), y_new)
        return line(name, X, method, scores, error, seconds)
    share = model.predict_proba(X_new)
    own = share[np.arange(len(y_new)), np.searchsorted(model.classes_, y_new)]
    scores = np.log((1 - UNIFORM) * own + UNIFORM / share.shape[1])
    accuracy = float(np.mean(model.classes_[share.argmax(axis=1)] == y_new))
    return line(name, X, method, scores, accuracy, seconds)


def rmse(found: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((found - y) ** 2)))


def line(
    name: str, X: np.ndarray, method: str, scores: np.ndarray, accuracy: float, seconds: float
) -> str:
    """Log score, accuracy or root mean squared error, and CPU seconds of a fit."""
    error = scores.std() / np.sqrt(len(scores))
    found = f"{scores.mean():.3f} ± {error:.3f}; {accuracy:.3f}; {seconds:.1f} s"
    return f"{name} ({len(X)} x {X.shape[1]}), {method}: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=("auto", "vi", "svi", "forest"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--full", type=int, default=vi_method.MOST_FULL)
    parser.add_argument("--rows", type=int, default=1000)
    asked = parser.parse_args()
    vi_method.MOST_FULL = asked.full
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in asked.names:
        print(fit(asked.method, name, asked.rows), flush=True)


if __name__ == "__main__":
    main()
