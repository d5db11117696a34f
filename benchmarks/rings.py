"""The two rings of the CPT paper: MAP and SVI over ten seeds.

Run: python benchmarks/rings.py [map|svi] [--seeds 10]
"""

import argparse
import time

import numpy as np
import torch
from data import rings
from sklearn.metrics import roc_auc_score

from bayestree import ConvexPolytopeTreeClassifier


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("inference", choices=("map", "svi"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    torch.set_num_threads(2)
    print("| seed | leaves | facets | tree accuracy | posterior AUC | final ELBO | s |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(options.seeds):
        X, y = rings(2_000, seed)
        X_test, y_test = rings(8_000, 1_000 + seed)
        start = time.perf_counter()
        clf = ConvexPolytopeTreeClassifier(
            max_depth=2, n_experts=50, inference=options.inference, random_state=seed, **changes
        ).fit(X, y)
        seconds = time.perf_counter() - start
        hard = clf.classes_[clf.tree_.predict(X_test).argmax(axis=1)]
        auc = roc_auc_score(y_test, clf.predict_proba(X_test)[:, 1])
        elbo = clf.posterior_.stats.get("final_elbo", np.nan)
        print(
            f"| {seed} | {clf.get_n_leaves()} | {clf.tree_.n_facets.tolist()} | "
            f"{np.mean(hard == y_test):.4f} | {auc:.4f} | {float(elbo):.1f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
