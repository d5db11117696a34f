"""Do the chains of NUTS agree at the defaults, and what do they cost?

Run: BAYESTREE_DATA=... python benchmarks/mixing.py [SET...] [--jobs 2] [--set NAME=VALUE...]
Worst R-hat and fewest effective draws of P(y | x) (of the mean, for numbers) at up to 100 rows, of
P(right) at rows of each node, and of the number of facets that cut off 1 % of a node's rows; facet
probabilities of the root beside those of SVI.
"""

import argparse
import time
import warnings

import numpy as np
import torch
from data import REGRESSION, load_all
from sklearn.datasets import load_breast_cancer

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree._utils.chains import ess, r_hat

SETS = ("iris", "breast3", "breast30", "pima", "heart", "glass", "airfoil")
MIN_SPREAD = 1e-3  # quantities that vary less are constant


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in ("breast3", "breast30"):
        X, y = load_breast_cancer(return_X_y=True)
        return (X[:, [0, 1, 4]] if name == "breast3" else X), y
    return load_all(name)


def agreement(values: np.ndarray) -> str:
    """Worst R-hat and fewest effective draws of quantities (chain, draw, ...)."""
    flat = values.reshape(*values.shape[:2], -1).astype(float)
    flat = flat[..., flat.std((0, 1)) > MIN_SPREAD]
    if not flat.shape[2]:
        return "constant"
    worst = max(float(r_hat(flat[..., j])) for j in range(flat.shape[2]))
    least = min(float(ess(flat[..., j], "bulk")) for j in range(flat.shape[2]))
    return f"{worst:.3f} {least:.0f}"


def shares(counts: np.ndarray) -> str:
    """Probabilities of 0, 1, 2, ... facets."""
    return " ".join(f"{share:.2f}" for share in np.bincount(counts.ravel()) / counts.size)


def report(name: str, jobs: int, changes: dict[str, float]) -> None:
    X, y = rows_of(name)
    kind = ConvexPolytopeTreeRegressor if name in REGRESSION else ConvexPolytopeTreeClassifier
    settings = {"random_state": 0} | changes
    svi = kind(**settings).fit(X, y)
    began = time.perf_counter(), time.process_time()
    est = kind(inference="nuts", n_jobs=jobs, **settings).fit(X, y)
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    said = est.label_free(X, n_rows=100)
    sizes = est.polytope_size(max_draws=1_000)
    counts = np.asarray(sizes.cutting)
    by_svi = np.asarray(svi.polytope_size(max_draws=1_000).cutting)[..., 0]
    model, stats = est.posterior_.model, est.posterior_.stats
    saturated = stats["reached_max_treedepth"].mean()
    print(
        f"{name}: {model.topology.n_nodes} nodes x {model.split.n_experts} experts, "
        f"{wall:.0f} s ({cpu:.0f} CPU in this process), {saturated:.0%} truncated, "
        f"{int(stats['diverging'].sum())} divergences; R-hat and effective draws: prediction "
        f"{agreement(said['prediction'].to_numpy())}, P(right) "
        f"{agreement(said['p_right'].to_numpy())}, facets {agreement(counts)}; facets of the root "
        f"{shares(counts[..., 0])}, by SVI {shares(by_svi)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    for name in options.sets:
        report(name, options.jobs, changes)


if __name__ == "__main__":
    main()
