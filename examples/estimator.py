"""A convex polytope tree for real data: 569 tumours, 30 measurements, benign or malignant.

Fits a tree by variational inference and writes the results to results/estimator.
Run: python examples/estimator.py [--quick] [--out FOLDER]
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import bayestree as bt

PAIR = ["worst concave points", "worst area"]  # two columns for the plot of the boundary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short fit")
    parser.add_argument("--out", type=Path, default=Path("results/estimator"))
    options = parser.parse_args()
    n_modes = 1 if options.quick else None
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    cancer = load_breast_cancer(as_frame=True)
    X, y = cancer.data, cancer.target_names[cancer.target]
    split = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    X_train, X_test, y_train, y_test = split

    print(f"Fitting {len(X_train)} rows of {X.shape[1]} features ...", flush=True)
    clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=n_modes, random_state=0)
    clf.fit(X_train, y_train)
    report = describe(clf, X_train, y_train, X_test, y_test)
    print(report)
    (options.out / "scores.txt").write_text(report)
    (options.out / "tree.txt").write_text(f"{bt.export_text(clf)}\n{clf.polytope_size()}\n")
    clf.save(options.out / "model.safetensors")
    bt.plots.tree(clf).figure.savefig(options.out / "tree.png", dpi=150)

    print(f"Fitting {' and '.join(PAIR)} only, for a plot of the boundary ...", flush=True)
    pair = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=n_modes, random_state=0)
    pair.fit(X_train[PAIR], y_train)
    ax = bt.plots.boundary(pair, X_test[PAIR], y_test)
    ax.figure.savefig(options.out / "boundary.png", dpi=150)

    print(f"Done in {time.perf_counter() - started:.0f} s. Results are in {options.out.resolve()}:")
    for path in sorted(options.out.iterdir()):
        print(f"  {path.name}")


def describe(clf, X_train, y_train, X_test, y_test) -> str:
    """Test scores of the posterior, the deterministic tree and CART."""
    cart = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(X_train, y_train)
    posterior, spread = clf.predict_proba(X_test, return_std=True)
    tree = clf.tree_.predict(np.asarray(X_test))
    rows = [
        ("posterior of the tree", posterior, clf.get_n_leaves()),
        ("deterministic tree", tree, clf.get_n_leaves()),
        ("CART (scikit-learn)", cart.predict_proba(X_test), cart.get_n_leaves()),
    ]
    lines = [f"{'on the test rows':<24}{'accuracy':>10}{'log-loss':>10}{'leaves':>8}"]
    for name, probability, leaves in rows:
        accuracy = accuracy_score(y_test, clf.classes_[probability.argmax(axis=1)])
        loss = log_loss(y_test, probability, labels=clf.classes_)
        lines.append(f"{name:<24}{accuracy:>10.3f}{loss:>10.3f}{leaves:>8d}")
    uncertain = np.argsort(-spread.max(axis=1))[:3]
    sizes = clf.polytope_size().to_frame(level=0.9)
    lines += ["", "Facets of each polytope, 90 % credible interval"]
    lines += [f"  {row.Index}: {row.facets_low} to {row.facets_high}" for row in sizes.itertuples()]
    lines += ["", "The most uncertain test rows: P(malignant), +/- one sd"]
    lines += [
        f"  row {X_test.index[i]}: {posterior[i, 1]:.2f} +/- {spread[i, 1]:.2f}" for i in uncertain
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
