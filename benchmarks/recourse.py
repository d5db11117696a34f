"""Do changes with an assurance of 90 % hold under an independent refit?

    OMP_NUM_THREADS=1 python benchmarks/recourse.py heart pima breast683 wine breast_cancer

The default classifier is fitted to the training rows of each of five folds, and ``explain`` looks
for the nearest change of eight of these rows, with and without an assurance. A change holds if a
refit predicts the class of the changed row that the first fit predicts: a refit to the same rows
with another seed, or to a bootstrap sample of them, with another seed too. Columns: set, assurance
asked for, rows, changes found, mean distance, mean share of the draws that agree, share of the
changes that hold under the refit to the same rows and to the sample, seconds of CPU for a change.
"""

import argparse
import time

import numpy as np
from data import load_all
from sklearn.model_selection import StratifiedKFold

from bayestree import ConvexPolytopeTreeClassifier

FOLDS, ROWS = 5, 8


def changes(name: str, assurances: list[float | None]) -> dict[float | None, list[tuple]]:
    """Distance, assurance, seconds and, for either refit, whether it holds, of each change."""
    X, y = load_all(name)
    found: dict[float | None, list[tuple]] = {one: [] for one in assurances}
    for fold, (rows, _) in enumerate(
        StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y)
    ):
        random = np.random.default_rng(fold)
        again = random.choice(rows, len(rows))
        fits = [
            ConvexPolytopeTreeClassifier(random_state=seed).fit(X[some], y[some])
            for seed, some in ((fold, rows), (100 + fold, rows), (200 + fold, again))
        ]
        for row in random.choice(rows, ROWS, replace=False):
            for assurance in assurances:
                start = time.process_time()
                change = fits[0].explain(X[row], assurance=assurance).change
                seconds = time.process_time() - start
                if change.row is None:
                    found[assurance].append((np.nan, np.nan, seconds, False, False))
                    continue
                after = np.array([change.cells], dtype=float)
                holds = [fit.predict(after)[0] == change.prediction for fit in fits[1:]]
                found[assurance].append((change.distance, change.assurance, seconds, *holds))
    return found


def shown(name: str, assurance: float | None, of_set: list[tuple]) -> str:
    """One line of the table."""
    distance, agree, seconds, *holds = np.array(of_set, dtype=float).T
    reached = np.isfinite(distance)
    shares = "  ".join(f"{one[reached].mean():.3f}" for one in holds)
    return (
        f"{name:14} {assurance or '-':>5} {len(of_set):4d} {reached.sum():4d}  "
        f"{distance[reached].mean():.2f}  {agree[reached].mean():.3f}  {shares}  "
        f"{seconds.mean():.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--assurance", nargs="+", type=float, default=[0.9])
    given = parser.parse_args()
    assurances = [None, *given.assurance]
    total: dict[float | None, list[tuple]] = {one: [] for one in assurances}
    for name in given.sets:
        for assurance, of_set in changes(name, assurances).items():
            total[assurance] += of_set
            print(shown(name, assurance, of_set), flush=True)
    for assurance, every in total.items():
        print(shown("all", assurance, every))


if __name__ == "__main__":
    main()
