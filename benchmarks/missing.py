"""Missing values in the splits, or imputed before the fit? Log loss on held-out rows.

Run: BAYESTREE_DATA=... python benchmarks/missing.py [SET...] [--share 0.3]

Values of complete tables are deleted in three ways, in training and held-out rows alike: at random;
at random given the others (MAR: a column has gaps where the next one is above its median); or not
at random (MNAR: where the value itself is above its median). The expected share is the same. One
mode each, five folds, everything else at the defaults.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import warnings
from typing import Any

import numpy as np
import torch
from data import load_all
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - for the next import
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

import bayestree as bt

SETS = ("iris", "wine", "heart", "pima", "glass")
SEED = 0


def gaps(X: np.ndarray, kind: str, share: float, rng: np.random.Generator) -> np.ndarray:
    """Mask of the values to delete."""
    if kind == "random":
        return rng.random(X.shape) < share
    cause = np.roll(X, -1, axis=1) if kind == "MAR" else X
    above = cause > np.median(cause, axis=0)
    return above & (rng.random(X.shape) < 2 * share)


def model() -> Any:
    return bt.ConvexPolytopeTreeClassifier(n_modes=1, random_state=SEED)


def candidates() -> dict[str, Any]:
    chained = IterativeImputer(random_state=SEED, max_iter=5)
    return {
        "in the splits": model(),
        "mean": make_pipeline(SimpleImputer(), model()),
        "chained regressions": make_pipeline(chained, model()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--share", type=float, default=0.3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"| set | values | {' | '.join(candidates())} |\n|---|---|---|---|---|")
    for name in options.sets:
        X, y = load_all(name)
        for kind in ("random", "MAR", "MNAR"):
            rng = np.random.default_rng(SEED)
            deleted = np.where(gaps(X, kind, options.share, rng), np.nan, X)
            losses: dict[str, list[float]] = {}
            for kept, held in StratifiedKFold(5, shuffle=True, random_state=SEED).split(X, y):
                for method, candidate in candidates().items():
                    probability = candidate.fit(deleted[kept], y[kept]).predict_proba(deleted[held])
                    loss = log_loss(y[held], probability, labels=np.unique(y))
                    losses.setdefault(method, []).append(loss)
            own = np.array(losses["in the splits"])
            cells = []
            for method, found in losses.items():
                gap = np.array(found) - own
                error = gap.std(ddof=1) / np.sqrt(len(gap))
                more = "" if method == "in the splits" else f" ({gap.mean():+.3f} ± {error:.3f})"
                cells.append(f"{np.mean(found):.3f}{more}")
            print(f"| {name} | {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
