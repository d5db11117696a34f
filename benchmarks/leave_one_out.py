"""Which leave-one-out score of a variational fit is that of refits without the rows?

    OMP_NUM_THREADS=1 python benchmarks/leave_one_out.py iris wine breast_cancer heart diabetes

One tree of up to four leaves is fitted to at most 150 rows of a set. Its leave-one-out score is
estimated from its draws by Pareto-smoothed importance sampling, as if they were those of the
posterior ("plain") and reweighted by log p - log q ("corrected"). The truth are refits, each
without a tenth of the rows; with ``--keep`` they keep the tree and repeat MAP and SVI. Columns:
set, rows, leaves, score of the rows that were fitted, score by refits and, for either estimate,
the score, its difference from the refits with a standard error, the share of rows whose k is too
large, and the correlation of the terms of the rows with those of the refits; seconds. Scores are
sums over the rows of log p(y), in nats.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
from data import REGRESSION, load_all, made
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.diagnostics import Loo, loo
from bayestree.inference import pointwise

NUMBERS = (*REGRESSION, "diabetes")


def rows_of(name: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Up to ``most`` rows of a set, drawn at random."""
    X, y = load_all(name)
    kept = np.random.default_rng(0).permutation(len(y))[:most]
    return X[kept], y[kept]


def densities(fit: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log p(y | x) under each draw, shape (draws, n), in the units of y."""
    data = fit.training_data(X, y)
    terms = pointwise.log_likelihood(fit.posterior_.model, fit.posterior_.each(), data)
    return terms - np.log(fit.fitted_.scaling.units.y_scale)


def refitted(whole: Any, X: np.ndarray, y: np.ndarray, folds: int, *, keep: bool) -> np.ndarray:
    """Log p(y_i | x_i, other rows) of each row, by refits; ``keep`` the tree of ``whole``."""
    numbers = isinstance(whole, ConvexPolytopeTreeRegressor)
    kind = KFold if numbers else StratifiedKFold
    found = np.empty(len(y))
    for rows, new in kind(folds, shuffle=True, random_state=0).split(X, y):
        fit = clone(whole)
        if keep:
            fit = clone(whole).set_params(warm_start=True)
            for name, value in vars(whole).items():
                if name.endswith("_") or name.startswith("_"):
                    setattr(fit, name, value)
        fit.fit(X[rows], y[rows])
        terms = densities(fit, X[new], y[new])
        found[new] = logsumexp(terms, axis=0) - np.log(len(terms))
    return found


def measured(name: str, most: int, folds: int, keep: bool, settings: dict[str, Any]) -> None:
    """Print the line of a set."""
    X, y = rows_of(name, most)
    kind = ConvexPolytopeTreeRegressor if name in NUMBERS else ConvexPolytopeTreeClassifier
    start = time.process_time()
    whole = made(kind, {"n_modes": 1, "random_state": 0} | settings).fit(X, y)
    terms = densities(whole, X, y)[None]
    stats = whole.posterior_.stats
    estimates: dict[str, Loo] = {
        "plain": loo(terms),
        "corrected": loo(terms, log_p=stats["log_p"], log_q=stats["log_q"]),
    }
    truth = refitted(whole, X, y, folds, keep=keep)
    spent = time.process_time() - start
    fitted = float(estimates["plain"].fitted_row.sum())
    cells = [name, len(y), whole.get_n_leaves(), f"{fitted:.1f}", f"{truth.sum():.1f}"]
    for one in estimates.values():
        bad = len(one.bad_rows) / len(y)
        gap = one.elpd_row - truth
        error = np.sqrt(len(y)) * gap.std(ddof=1)
        close = np.corrcoef(one.elpd_row, truth)[0, 1]
        cells += [
            f"{one.elpd:.1f}",
            f"{gap.sum():+.1f} ± {error:.1f}",
            f"{bad:.0%}",
            f"{close:.2f}",
        ]
    print("| " + " | ".join(map(str, [*cells, f"{spent:.0f}"])) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = {"inference": "vi", "max_depth": 2, "n_experts": 4, "n_draws": options.draws}
    for name in options.names:
        measured(name, options.rows, options.folds, options.keep, settings)


if __name__ == "__main__":
    main()
