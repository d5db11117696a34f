"""E2EDT (Hehn, Kooij and Hamprecht, 2020) against its figures in the tables of the CPT paper.

Run: BAYESTREE_DATA=... python benchmarks/end_to_end.py letter [--seeds 5] [--set epochs=35 ...]
With --validate rows of the training part stand for the test rows (the official validation rows
where there are any, else a fifth): choose settings by it.
"""

import argparse
import ast
import time

import numpy as np
from data import Split, folder, load, made
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

from bayestree import EndToEndTreeClassifier

#: Published score (accuracy; AUC of two classes) and leaves.
PAPER = {
    "mnist": (0.9612, 357),
    "letter": (0.8631, 543),
    "connect4": (0.8051, 257),
    "bace": (0.8103, 23),
    "hiv": (0.7109, 21),
}
#: Chosen on validation rows. Few epochs for the stumps leave more to the training of the whole
#: tree. Pixels and indicators share a unit; l1 and spatial are priors that the paper's tables lack.
JOBS: dict[str, dict[str, object]] = {
    "mnist": {"max_depth": 11, "max_leaves": 357, "epochs": 5, "refine_epochs": 35,
              "scaling": "common", "spatial": 100.0, "image_shape": (28, 28)},
    "mnist-plain": {"max_depth": 12, "max_leaves": 400},
    "letter": {"max_depth": 11, "learning_rate": 0.03},
    "connect4": {"max_depth": 6, "learning_rate": 0.003, "refine_epochs": 100, "l1": 50.0,
                 "scaling": "common"},
    "bace": {"max_depth": 8, "max_leaves": 23, "order": "best"},
    "hiv": {"max_depth": 8, "max_leaves": 21, "order": "best"},
}  # fmt: skip
NAMES = ("tree", "soft", "leaves", "depth", "non-zeros", "seconds")


def held_out(name: str) -> Split:
    with np.load(folder() / f"{name}.npz") as found:
        split = found.get("split")
        if split is not None and (split == 1).any():
            X, y = found["X"].astype(np.float64), found["y"]
            return Split(X[split == 0], y[split == 0], X[split == 1], y[split == 1])
    rows = load(name)
    parts = train_test_split(rows.X, rows.y, test_size=0.2, stratify=rows.y, random_state=1)
    return Split(parts[0], parts[2], parts[1], parts[3])


#: The settings of the paper where a job does not say otherwise.
SETTINGS: dict[str, object] = {
    "epochs": 20, "steepness_step": 0.1, "learning_rate": 1e-3, "min_gain": 0.0, "smoothing": 0.0,
}  # fmt: skip


def score(clf: EndToEndTreeClassifier, rows: Split, prediction: str) -> float:
    probability = clf.set_params(prediction=prediction).predict_proba(rows.X_test)
    if len(clf.classes_) == 2:
        return float(roc_auc_score(rows.y_test, probability[:, 1]))
    return float(accuracy_score(rows.y_test, clf.classes_[probability.argmax(axis=1)]))


def fit(rows: Split, settings: dict[str, object], seed: int) -> list[float]:
    start = time.perf_counter()
    clf = made(
        EndToEndTreeClassifier, SETTINGS | settings | {"dtype": "float32", "random_state": seed}
    )
    clf.fit(rows.X, rows.y)
    seconds = time.perf_counter() - start
    shape = [clf.get_n_leaves(), clf.get_depth(), np.count_nonzero(clf.tree_.hyperplane)]
    return [score(clf, rows, "tree"), score(clf, rows, "posterior"), *shape, seconds]


def value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    name = options.job.partition("-")[0]
    rows = held_out(name) if options.validate else load(name)
    changes = {key: value(text) for key, _, text in (pair.partition("=") for pair in options.set)}
    settings = JOBS[options.job] | changes
    kind = "validation" if options.validate else "test"
    found = []
    for seed in range(options.seeds):
        found.append(fit(rows, settings, seed))
        each = ", ".join(f"{n} {v:.4g}" for n, v in zip(NAMES, found[-1], strict=True))
        print(f"{options.job} {kind} seed {seed} {settings}: {each}", flush=True)
    mean, sd = np.mean(found, axis=0), np.std(found, axis=0)
    whole = " | ".join(f"{m:.4g} ± {s:.2g}" for m, s in zip(mean, sd, strict=True))
    print(f"{options.job} {kind} mean: {whole} (paper: {PAPER[name]})", flush=True)


if __name__ == "__main__":
    main()
