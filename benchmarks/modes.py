"""What do several modes gain? Accuracy (or RMSE), log loss and seconds for 1 to M trees.

    python benchmarks/modes.py iris wine pima --modes 4 --folds 3

Rows are judged by cross-validation; of sets with more than 2,000 rows, a fifth of the training
rows. ``--test`` judges the official test rows instead, with settings that were chosen before.
M trees are fitted once for each fold; the first m of them are those of ``n_modes=m``. Further
settings of the estimator follow as ``name=value``.
"""

import argparse
import ast
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from data import REGRESSION, load, load_all, made
from scipy.special import logsumexp
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.diagnostics import loo, stacking_weights
from bayestree.inference import pointwise

NUMBERS = (*REGRESSION, "diabetes")
LARGE = 2000
PRIOR_ROWS = 5.0  # that of the estimators


def parts(name: str, folds: int, *, test: bool) -> Iterator[tuple[Any, ...]]:
    """Training rows and the rows to judge."""
    if test:
        yield tuple(load(name))
        return
    X, y = (
        load_all(name) if name in ("iris", "wine", "breast_cancer", "diabetes") else load(name)[:2]
    )
    labels = None if name in NUMBERS else y
    if len(y) > LARGE:
        X, X_new, y, y_new = train_test_split(X, y, test_size=0.2, stratify=labels, random_state=0)
        yield X, y, X_new, y_new
        return
    kind = KFold if labels is None else StratifiedKFold
    for rows, new in kind(max(folds, 2), shuffle=True, random_state=0).split(X, y):
        yield X[rows], y[rows], X[new], y[new]


def densities(mode: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log p(y | x) under each draw, shape (draws, n), in the units of y."""
    data = mode.training_data(X, y)
    terms = pointwise.log_likelihood(mode.posterior_.model, mode.posterior_.each(), data)
    return terms - np.log(mode.fitted_.scaling.units.y_scale)


def score_of(fit: Any, mean: np.ndarray, y: np.ndarray) -> float:
    """RMSE of means, or accuracy of probabilities."""
    if mean.ndim == 1:
        return float(np.sqrt(np.mean((mean - y) ** 2)))
    return float(np.mean(fit.classes_[mean.argmax(axis=1)] == y))


def measured(name: str, n_modes: int, folds: int, test: bool, settings: dict[str, Any]) -> None:
    """Print the scores of the first 1 to M modes, by equal weights and by stacking."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    seconds = []
    for X, y, X_new, y_new in parts(name, folds, test=test):
        kind = ConvexPolytopeTreeRegressor if name in NUMBERS else ConvexPolytopeTreeClassifier
        start = time.process_time()
        own = {"n_modes": n_modes, "mode_weights": "equal", "random_state": 0}
        fit = made(kind, own | settings).fit(X, y)
        seconds.append((time.process_time() - start) / n_modes)
        left_out = np.stack([loo(densities(m, X, y)[None]).elpd_row for m in fit.modes_], axis=1)
        new = [densities(mode, X_new, y_new) for mode in fit.modes_]
        score = np.stack([logsumexp(one, axis=0) - np.log(len(one)) for one in new], axis=1)
        predict = "predict" if name in NUMBERS else "predict_proba"
        each = np.stack([getattr(mode, predict)(X_new) for mode in fit.modes_])
        for m in range(1, n_modes + 1):
            stacked = stacking_weights(left_out[:, :m], prior_rows=PRIOR_ROWS)
            for how, weights in (("equal", np.full(m, 1 / m)), ("stacking", stacked)):
                quality = score_of(fit, np.tensordot(weights, each[:m], axes=1), y_new)
                loss = -float(logsumexp(score[:, :m], b=weights, axis=1).mean())
                found.setdefault((m, how), []).append((quality, loss))
    print(f"{name}: {np.mean(seconds):.1f} s for each tree")
    for (m, how), scores in found.items():
        quality, loss = np.mean(scores, axis=0)
        if m > 1 or how == "equal":
            print(f"  M = {m} {how:<8}  {quality:9.4f}  {loss:9.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", nargs="+", metavar="NAME or setting=value")
    parser.add_argument("--modes", type=int, default=4)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--test", action="store_true")
    options = parser.parse_intermixed_args()
    settings = dict(one.split("=", 1) for one in options.given if "=" in one)
    values = {key: ast.literal_eval(value) for key, value in settings.items()}
    warnings.simplefilter("ignore")
    print("accuracy (or RMSE) and log loss (nats a row, in the units of y)")
    for name in options.given:
        if "=" not in name:
            measured(name, options.modes, options.folds, options.test, values)


if __name__ == "__main__":
    main()
