"""Prediction of 1,000,000 rows of 16 columns: the deterministic tree and scikit-learn's CART.

Run: BAYESTREE_DATA=... python benchmarks/predict.py
"""

import time

import numpy as np
from data import load
from sklearn.tree import DecisionTreeClassifier

from bayestree import ConvexPolytopeTreeClassifier

ROWS = 1_000_000


def main() -> None:
    rows = load("letter")
    many = rows.X[np.random.default_rng(0).integers(len(rows.X), size=ROWS)]
    fitted = {
        "CART": DecisionTreeClassifier(random_state=0).fit(rows.X, rows.y),
        "CPT": ConvexPolytopeTreeClassifier(
            max_depth=11, max_leaves=300, inference="grow", dtype="float32", random_state=0
        ).fit(rows.X, rows.y),
        "CPT, 1 expert": ConvexPolytopeTreeClassifier(
            max_depth=11,
            max_leaves=300,
            n_experts=1,
            inference="grow",
            dtype="float32",
            random_state=0,
        ).fit(rows.X, rows.y),
    }
    for name, tree in fitted.items():
        tree.predict(many[:1000])
        start = time.perf_counter()
        tree.predict(many)
        print(f"{name}: {time.perf_counter() - start:.2f} s, {tree.get_n_leaves()} leaves")


if __name__ == "__main__":
    main()
