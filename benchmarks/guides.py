"""The package's two guides, from a warm or a cold start: bounds, facets and held-out scores.

    python benchmarks/guides.py iris heart breast_cancer --folds 3
    python benchmarks/guides.py iris heart breast3 --folds 0

Accuracy (or RMSE) and log loss (nats a row) by cross-validation, or, of sets with more than 2,000
rows, of a fifth of the training rows; without folds, bound, leaves and probabilities of 0, 1, ...
facets of the root in a fit to all rows, to be compared with those of NUTS (benchmarks/mixing.py).
Further settings of the estimator follow as ``name=value``, such as ``reset_idle=True`` or
``random_state=1``; a given ``guide`` or ``kl_schedule`` is the only one.
"""

import argparse
import ast
import time
import warnings
from itertools import product
from typing import Any

import numpy as np
import torch
from mixing import rows_of, shares
from modes import NUMBERS, densities, parts
from scipy.special import logsumexp

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

CHOICES = tuple(product(("polytope", "partially-centred"), ("linear", "cold")))


def scored(fit: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy or RMSE, and log loss, of new rows."""
    each = densities(fit, X, y)
    loss = -float((logsumexp(each, axis=0) - np.log(len(each))).mean())
    found = fit.predict(X)
    right = float(np.mean(found == y))
    return (right if hasattr(fit, "classes_") else float(np.sqrt(np.mean((found - y) ** 2)))), loss


def validated(name: str, folds: int, settings: dict[str, Any]) -> str:
    kind = ConvexPolytopeTreeRegressor if name in NUMBERS else ConvexPolytopeTreeClassifier
    start = time.process_time()
    scores = [
        scored(kind(**settings).fit(X, y), X_new, y_new)
        for X, y, X_new, y_new in parts(name, folds, test=False)
    ]
    seconds = (time.process_time() - start) / len(scores)
    quality, loss = np.mean(scores, axis=0)
    return f"{quality:.4f}, log loss {loss:.4f}, {seconds:.1f} s"


def whole(name: str, settings: dict[str, Any]) -> str:
    kind = ConvexPolytopeTreeRegressor if name in NUMBERS else ConvexPolytopeTreeClassifier
    start = time.process_time()
    fit = kind(**settings).fit(*rows_of(name))
    seconds = time.process_time() - start
    counts = np.asarray(fit.polytope_size(max_draws=200).cutting)
    root = shares(counts[..., 0]) if counts.shape[-1] else "none"
    bound = float(fit.posterior_.stats["final_elbo"])
    size = f"{fit.get_n_leaves()} leaves, facets of the root {root}"
    return f"bound {bound:.1f}, {size}, {seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", nargs="+", metavar="NAME or setting=value")
    parser.add_argument("--folds", type=int, default=3)
    options = parser.parse_intermixed_args()
    given = dict(one.split("=", 1) for one in options.given if "=" in one)
    values = {key: ast.literal_eval(value) for key, value in given.items()}
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.given:
        if "=" in name:
            continue
        for guide, schedule in CHOICES:
            settings = {"guide": guide, "kl_schedule": schedule, "random_state": 0} | values
            if (guide, schedule) != (settings["guide"], settings["kl_schedule"]):
                continue
            judge = (
                validated(name, options.folds, settings) if options.folds else whole(name, settings)
            )
            print(f"{name:<14}{guide:<19}{schedule:<8}{judge}", flush=True)


if __name__ == "__main__":
    main()
