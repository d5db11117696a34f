"""Does Pareto k say how far P(y | x) under a variational fit is from that under NUTS?

Run: OMP_NUM_THREADS=1 python benchmarks/psis.py [--tables tumours moons]

Trees of one node; P(first class | x) at 25 rows, from 1,000 draws of each fit, against 800 draws of
NUTS. Columns: gain of the ELBO by further steps; k of the joint density; medians over the rows of
the k of P r and of |P - mean P| r, where r are the importance ratios (Vehtari et al. 2024); mean
difference of P before and after reweighting by PSIS; median ratio of its standard deviations.
"""

import argparse
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.preprocessing import scale

from bayestree._utils.monte_carlo import pareto_k, psis
from bayestree.inference import Data, GrowthLimits, Posterior, grow, nuts, svi
from bayestree.inference import map as fit_map
from bayestree.models import Categorical, named

TINY = 1e-300  # added to values whose logarithm is taken
FITS: dict[str, dict[str, Any]] = {
    "default": {},
    "2,000 epochs": {"epochs": 2000},
    "1,000 epochs, covariance='expert'": {"epochs": 1000, "covariance": "expert"},
    "20 epochs": {"epochs": 20},
    "60 epochs": {"epochs": 60},
    "learning rate 1e-4": {"learning_rate": 1e-4},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "learning rate 3": {"learning_rate": 3.0},
}


def table(name: str) -> tuple[Data, int]:
    """Rows, and the number of experts of their node."""
    if name == "moons":
        X, y = datasets.make_moons(500, noise=0.25, random_state=1)
        return Data.of(scale(X), y), 4
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return Data.of(scale(X[:, :3]), y), 3


def first_class(posterior: Posterior, rows: np.ndarray) -> np.ndarray:
    """P(first class | x), shape (draws, rows)."""
    each = posterior.each()
    return np.stack([(posterior.leaf_probs(rows, s) @ s["leaf_probs"].numpy())[:, 0] for s in each])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", default=["tumours", "moons"])
    print("| table | fit | ELBO | gain | k | k of P | k of dev. | diff. | by PSIS | sd ratio |")
    print("|---" * 10 + "|")
    for name in parser.parse_args().tables:
        data, n_experts = table(name)
        model = named.convex_polytope(Categorical(2), n_experts=n_experts).with_(steepness=6.0)
        grown = grow(model, data, limits=GrowthLimits(1), random_state=0)
        init = fit_map(grown.model, data, init=grown, epochs=300, random_state=0)
        rows = data.X[torch.linspace(0, len(data.X) - 1, 25).long()].numpy()
        first = svi(init.model, data, init=init, n_draws=20, random_state=1)
        chains = {"n_chains": 2, "n_warmup": 300, "n_draws": 400, "random_state": 0}
        exact = first_class(nuts(init.model, data, init=first, **chains), rows)
        for fit, settings in FITS.items():
            found = svi(init.model, data, init=init, n_draws=1000, random_state=2, **settings)
            share = first_class(found, rows)
            ratios = (found.stats["log_p"] - found.stats["log_q"]).ravel()
            spread = np.abs(share - share.mean(0))
            k_each = [
                np.median([pareto_k(ratios + np.log(one + TINY)) for one in values.T])
                for values in (share, spread)
            ]
            weights = np.exp(psis(ratios)[0])
            means = share.mean(0), weights / weights.sum() @ share
            errors = [np.abs(mean - exact.mean(0)).mean() for mean in means]
            figures = [found.stats["final_elbo"], found.stats["elbo_gain"], pareto_k(ratios)]
            figures += [*k_each, *errors, np.median(share.std(0) / exact.std(0))]
            print(f"| {name} | {fit} | " + " | ".join(f"{value:.3f}" for value in figures) + " |")


if __name__ == "__main__":
    main()
