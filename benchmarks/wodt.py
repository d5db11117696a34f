"""WODT on the sets of its paper (Yang, Shen and Gao, 2019, Tables 2 and 3), by its protocol.

Run: BAYESTREE_DATA=... python benchmarks/wodt.py [iris wine ...] [--trials 10] [--validate]
Each trial is a 5-fold cross-validation of all rows, whatever their official split. With
--validate a fifth of each fold's training rows stands for its test rows: choose settings by it.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
from data import load_all
from sklearn.model_selection import StratifiedKFold, train_test_split

from bayestree import WeightedObliqueTreeClassifier


class Published(NamedTuple):
    """Test accuracy and leaves, mean and standard deviation."""

    accuracy: float
    accuracy_sd: float
    leaves: float
    leaves_sd: float


PAPER = {
    "iris": Published(0.9733, 0.0248, 5.2, 1.17),
    "wine": Published(0.9665, 0.0323, 3.4, 0.49),
    "glass": Published(0.6216, 0.0256, 46.2, 2.40),
    "heart": Published(0.7630, 0.0429, 23.2, 4.12),
    "breast683": Published(0.9590, 0.0099, 14.0, 2.10),
    "pima": Published(0.7161, 0.0191, 108.2, 4.4),
    "vehicle": Published(0.7069, 0.0383, 114.0, 8.7),
    "fourclass": Published(0.9896, 0.0043, 18.6, 2.42),
    "satimage": Published(0.8760, 0.0097, 210.3, 12.1),
    "usps": Published(0.9058, 0.0050, 150.0, 9.6),
    "letter": Published(0.8786, 0.0030, 1213, 23),
    "connect4": Published(0.7415, 0.0041, 2976, 69),
    "mnist": Published(0.9434, 0.0013, 737.1, 27.0),
}
LARGE = ("satimage", "usps", "letter", "connect4", "mnist")


def fits(name: str, trials: int, settings: dict[str, object], *, validate: bool) -> np.ndarray:
    """Accuracy, leaves, depth and seconds of each fit, shape (trials * 5, 4)."""
    X, y = load_all(name)
    found = []
    for seed in range(trials):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y)
        for fold, (train, test) in enumerate(folds):
            if validate:
                train, test = train_test_split(  # noqa: PLW2901
                    train, test_size=0.2, stratify=y[train], random_state=seed
                )
            start = time.perf_counter()
            clf = WeightedObliqueTreeClassifier(
                min_gain=0, random_state=10 * seed + fold, **settings
            )  # grown to pure leaves, as in the paper
            clf.fit(X[train], y[train])
            seconds = time.perf_counter() - start
            accuracy = clf.score(X[test], y[test])
            found.append((accuracy, clf.get_n_leaves(), clf.get_depth(), seconds))
    return np.array(found)


def row(name: str, found: np.ndarray) -> str:
    """A line of the table, our figures next to the paper's."""
    mean, sd = found.mean(axis=0), found.std(axis=0, ddof=1)
    paper = PAPER[name]
    within = mean[0] >= paper.accuracy - paper.accuracy_sd
    return (
        f"| {name} | {mean[0]:.4f} ± {sd[0]:.4f} | {paper.accuracy:.4f} ± {paper.accuracy_sd:.4f} "
        f"| {'yes' if within else 'no'} | {mean[1]:.1f} ± {sd[1]:.1f} "
        f"| {paper.leaves:g} ± {paper.leaves_sd:g} | {mean[2]:.1f} | {mean[3]:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=[*PAPER], metavar="SET")
    parser.add_argument("--trials", type=int, help="by default 10, of the large sets 1")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--max-iter", type=int, default=20)
    options = parser.parse_args()
    settings = {"max_iter": options.max_iter}
    print("| set | accuracy | paper | within 1 sd or better | leaves | paper | depth | s a fit |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.sets:
        trials = options.trials or (1 if name in LARGE else 10)
        print(row(name, fits(name, trials, settings, validate=options.validate)), flush=True)


if __name__ == "__main__":
    main()
