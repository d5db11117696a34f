"""The two rings of the paper (Armandpour et al. 2021, section 4.1): three leaves suffice.

2,000 points on a square, with one class between two circles and the other elsewhere. CART needs
many leaves; a polytope tree needs one polytope for the outer circle and one for the inner.
Run: python examples/rings.py [--quick] [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import bayestree as bt
from bayestree.inference import Svi


def rings(n_rows, seed):
    """Uniform points on a square; class "between" lies between circles of radius 0.4 and 0.8."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n_rows, 2))
    radius = np.hypot(X[:, 0], X[:, 1])
    return X, np.where((radius > 0.4) & (radius < 0.8), "between", "elsewhere")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and epochs")
    parser.add_argument("--out", type=Path, default=Path("results/rings"))
    options = parser.parse_args()
    n_rows, n_experts, epochs = (300, 10, 10) if options.quick else (2000, 50, None)
    options.out.mkdir(parents=True, exist_ok=True)

    X, y = rings(n_rows, seed=0)
    clf = bt.ConvexPolytopeTreeClassifier(
        inference=Svi(epochs=epochs),  # with many experts for the round borders
        n_modes=1,
        max_depth=2,
        n_experts=n_experts,
        random_state=0,
    )
    clf.fit(X, y)
    X_test, y_test = rings(5000, seed=1)
    print(f"{clf.get_n_leaves()} leaves, accuracy {clf.score(X_test, y_test):.3f} on new points")

    path = options.out / "rings.png"
    figure = Figure(figsize=(10.4, 5.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(0.8, 1))
    bt.plots.tree(clf, left, X=X, y=y)
    bt.plots.boundary(clf, X, y, right)
    figure.savefig(path, dpi=100)
    print(f"Plot: {path.resolve()}")


if __name__ == "__main__":
    main()
