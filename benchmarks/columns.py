"""VI beside SVI and a forest on rows of many columns: log scores and CPU seconds.

    BAYESTREE_DATA=FOLDER OMP_NUM_THREADS=1 python benchmarks/columns.py vi digits usps 1000x200

The methods are ``vi``, ``svi`` and ``forest`` (of 300 trees); ``--full`` is the largest number of
columns for which VI has a full covariance. Rows are training rows of each set, at most 1,000 (or
70 % of them), and scores those of up to 1,000 others of them: no test row is used. A name such as
1000x200 is a simulated table of two classes (``make_classification``: 5 informative columns, 15
redundant ones, four clusters a class). Probabilities get an admixture of .1 % of equal ones.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch
from data import load
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.inference.variational import vi as vi_method

ROWS, UNIFORM = 1000, 0.001


def rows_of(name: str) -> list[np.ndarray]:
    """Return rows to fit, others, and the labels of both."""
    if "x" in name:
        n, d = map(int, name.split("x"))
        given = {"n_informative": 5, "n_redundant": 15, "n_clusters_per_class": 4, "class_sep": 1.5}
        X, y = make_classification(n + ROWS, d, random_state=0, **given)
        return [X[:n], X[n:], y[:n], y[n:]]
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        X, y = load(name)[:2]
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    n = min(ROWS, int(0.7 * len(y)))
    found = train_test_split(X, y, train_size=n, stratify=y, random_state=0)
    return [part[:ROWS] for part in found]


def fit(method: str, name: str) -> str:
    X, X_new, y, y_new = rows_of(name)
    model: Any = RandomForestClassifier(300, random_state=0)
    if method != "forest":
        model = ConvexPolytopeTreeClassifier(inference=method, random_state=0)
    started = time.process_time()
    share = model.fit(X, y).predict_proba(X_new)
    seconds = time.process_time() - started
    own = share[np.arange(len(y_new)), np.searchsorted(model.classes_, y_new)]
    scores = np.log((1 - UNIFORM) * own + UNIFORM / share.shape[1])
    error = scores.std() / np.sqrt(len(scores))
    accuracy = np.mean(model.classes_[share.argmax(axis=1)] == y_new)
    found = f"{scores.mean():.3f} ± {error:.3f}; {accuracy:.3f}; {seconds:.1f} s"
    return f"{name} ({len(X)} x {X.shape[1]}), {method}: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=("vi", "svi", "forest"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--full", type=int, default=vi_method.MOST_FULL)
    asked = parser.parse_args()
    vi_method.MOST_FULL = asked.full
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in asked.names:
        print(fit(asked.method, name), flush=True)


if __name__ == "__main__":
    main()
