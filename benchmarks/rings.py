"""The two rings of the CPT paper: MAP and SVI over ten seeds.

Run: python benchmarks/rings.py [map|svi] [--seeds 10]
"""

import argparse
import time

import numpy as np
import torch
from data import made, rings
from sklearn.metrics import roc_auc_score

from bayestree import ConvexPolytopeTreeClassifier, inference
from bayestree.inference import Data, Posterior

RADII = (0.8, 0.4)
PLANTED = (5, 6, 7, 8)
N_EXPERTS = 50


def planted_elbo(clf: ConvexPolytopeTreeClassifier, X: np.ndarray, y: np.ndarray, k: int) -> float:
    """ELBO of the same guide started at regular polygons of k facets and the circles' areas.

    On the topology of the fit; a node that it has beyond the two starts without facets.
    """
    model = clf.posterior_.model
    n_nodes, n_leaves = model.topology.n_nodes, model.topology.n_leaves
    unit = float(clf.tree_.scale.mean())
    sites = {"hyperplane": torch.zeros(n_nodes, N_EXPERTS, 2, dtype=torch.float64),
             "intercept": torch.full((n_nodes, N_EXPERTS), -1.0, dtype=torch.float64),
             "log_weight": torch.full((n_nodes, N_EXPERTS), -6.0, dtype=torch.float64)}  # fmt: skip
    angle = 2 * np.pi * torch.arange(k, dtype=torch.float64) / k
    for node, radius in enumerate(RADII):
        apothem = radius / unit * np.sqrt(np.pi / (k * np.tan(np.pi / k)))
        steep = 10.0 / apothem
        sites["hyperplane"][node, :k] = steep * torch.stack([angle.cos(), angle.sin()], 1)
        sites["intercept"][node, :k] = -steep * apothem
        sites["log_weight"][node, :k] = 0.0
    data = Data.of((X - clf.tree_.center) / clf.tree_.scale, y)
    sites |= model.leaf.estimate(torch.ones(n_leaves, 2, dtype=torch.float64))
    start = Posterior.from_point(model, sites, "planted")
    point = inference.map(model, data, init=start, steepness=(1.0, 1.0), random_state=0)
    fit = inference.svi(model, data, init=point, covariance="expert", random_state=0)
    return float(fit.stats["final_elbo"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("inference", choices=("map", "svi"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--planted", type=int, default=0, help="seeds with planted starts")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    torch.set_num_threads(1)
    print(
        "| seed | leaves | facets (posterior mode) | tree accuracy | posterior AUC | "
        "final ELBO | planted 5-8 | s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for seed in range(options.seeds):
        X, y = rings(2_000, seed)
        X_test, y_test = rings(8_000, 1_000 + seed)
        start = time.perf_counter()
        settings = {"max_depth": 2, "n_experts": N_EXPERTS, "random_state": seed}
        method = {"inference": options.inference, "search_facets": options.inference == "svi"}
        clf = made(ConvexPolytopeTreeClassifier, settings | method | changes).fit(X, y)
        seconds = time.perf_counter() - start
        hard = clf.classes_[clf.tree_.predict(X_test).argmax(axis=1)]
        auc = roc_auc_score(y_test, clf.predict_proba(X_test)[:, 1])
        elbo = clf.posterior_.stats.get("final_elbo", np.nan)
        planted = [round(planted_elbo(clf, X, y, k), 1) for k in PLANTED * (seed < options.planted)]
        facets = f"{clf.tree_.n_facets.tolist()} ({clf.polytope_size().mode().tolist()})"
        print(
            f"| {seed} | {clf.get_n_leaves()} | {facets} | {np.mean(hard == y_test):.4f} | "
            f"{auc:.4f} | {float(elbo):.1f} | {planted} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
