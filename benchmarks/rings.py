"""The two rings of the CPT paper: a method over ten seeds.

Run: python benchmarks/rings.py [auto|map|svi|vi|mcmc] [--seeds 10] [--set n_experts=12]
"""

import argparse
import time

import numpy as np
import torch
from data import made, rings
from sklearn.metrics import roc_auc_score

from bayestree import ConvexPolytopeTreeClassifier

N_EXPERTS = 50


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("inference", choices=("auto", "map", "svi", "vi", "mcmc"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    torch.set_num_threads(1)
    print("| seed | leaves | facets (posterior mode) | tree accuracy | posterior AUC | CPU s |")
    print("|---|---|---|---|---|---|")
    for seed in range(options.seeds):
        X, y = rings(2_000, seed)
        X_test, y_test = rings(8_000, 1_000 + seed)
        start = time.process_time()
        settings = {"max_depth": 2, "n_experts": N_EXPERTS, "inference": options.inference}
        settings |= {"random_state": seed} | changes
        clf = made(ConvexPolytopeTreeClassifier, settings).fit(X, y)
        seconds = time.process_time() - start
        hard = clf.classes_[clf.tree_.predict(X_test).argmax(axis=1)]
        auc = roc_auc_score(y_test, clf.predict_proba(X_test)[:, 1])
        facets = f"{clf.tree_.n_facets.tolist()} ({clf.polytope_size().mode().tolist()})"
        print(
            f"| {seed} | {clf.get_n_leaves()} | {facets} | {np.mean(hard == y_test):.4f} | "
            f"{auc:.4f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
