"""E2EDF, neural and alternating decision forests on Letter and USPS.

Run: BAYESTREE_DATA=... python benchmarks/forest.py letter [--method ndf] [--trees 10]
[--set epochs=45 ...]
With --validate a fifth of the training rows stands for the test rows: choose settings by it.
The scores of the first 1, 3, 5, ... trees are those of smaller forests; a random forest of 100
axis-aligned trees is included for comparison.
"""

import argparse
import ast
import time
from typing import Any

import numpy as np
from data import Split, load
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

from bayestree import (
    AlternatingDecisionForestClassifier,
    EndToEndForestClassifier,
    NeuralDecisionForestClassifier,
)

KINDS: dict[str, Any] = {
    "e2edf": EndToEndForestClassifier,
    "ndf": NeuralDecisionForestClassifier,
    "adf": AlternatingDecisionForestClassifier,
}
#: Of E2EDF (2020, sections 2.7 and 3.6): depth, epochs and features per split as the paper has them
#: (features and trees after Kontschieder et al., 2015, whose forests have 70 and 100 trees); the
#: learning rate was chosen on validation rows.
E2EDF: dict[str, object] = {"max_depth": 10, "epochs": 45, "dtype": "float32", "smoothing": 0.0}
#: Of the others: chosen on validation rows (``--validate``).
SETTINGS: dict[tuple[str, str], dict[str, object]] = {
    ("e2edf", "letter"): E2EDF | {"max_features": 8, "learning_rate": 0.01},
    ("e2edf", "usps"): E2EDF
    | {"image_shape": (16, 16), "patch_size": (10, 10), "learning_rate": 0.001},
    ("ndf", "letter"): {"max_depth": 10, "epochs": 20, "batch_size": 500},
    ("ndf", "usps"): {"epochs": 10, "batch_size": 500, "learning_rate": 0.01},
}


def held_out(rows: Split) -> Split:
    parts = train_test_split(rows.X, rows.y, test_size=0.2, stratify=rows.y, random_state=1)
    return Split(parts[0], parts[2], parts[1], parts[3])


def by_size(forest: Any, rows: Split) -> dict[int, float]:
    """Test accuracy of the first trees, by their number."""
    found = np.array([tree.predict_proba(rows.X_test) for tree in forest.estimators_])
    shares = np.cumsum(found, axis=0)
    sizes = [size for size in (1, 3, 5, 10, 20, 50, 100) if size < len(shares)] + [len(shares)]
    labels = [forest.classes_[shares[size - 1].argmax(axis=1)] for size in sizes]
    return {n: accuracy_score(rows.y_test, y) for n, y in zip(sizes, labels, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["letter", "usps", "satimage", "mnist"])
    parser.add_argument("--method", choices=KINDS, default="e2edf")
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    rows = load(options.job)
    if options.validate:
        rows = held_out(rows)
    changes = {
        name: ast.literal_eval(value)
        for name, _, value in (pair.partition("=") for pair in options.set)
    }
    settings = SETTINGS.get((options.method, options.job), {}) | changes
    kind = KINDS[options.method]
    start = time.process_time()
    forest = kind(options.trees, random_state=options.seed, **settings).fit(rows.X, rows.y)
    seconds = time.process_time() - start
    scores = ", ".join(f"{n}: {score:.4f}" for n, score in by_size(forest, rows).items())
    kept = "validation" if options.validate else "test"
    print(
        f"{options.method} {options.job} {kept} seed {options.seed} "
        f"{settings}: accuracy by trees {scores}; {forest.get_n_leaves() / options.trees:.0f} "
        f"leaves a tree, depth {forest.get_depth()}, {seconds:.0f} CPU s",
        flush=True,
    )
    start = time.process_time()
    others = RandomForestClassifier(100, random_state=options.seed).fit(rows.X, rows.y)
    leaves = np.mean([tree.get_n_leaves() for tree in others.estimators_])
    seconds = time.process_time() - start
    print(
        f"{options.job} random forest of 100: {others.score(rows.X_test, rows.y_test):.4f}; "
        f"{leaves:.0f} leaves a tree, {seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
