"""What groups of columns find and cost: interaction_constraints and shared scales at the defaults.

    python benchmarks/facet_groups.py                              # simulated sets
    BAYESTREE_DATA=... python benchmarks/facet_groups.py heart concrete

Simulated rows are normal, with four groups of three columns. One class lies inside a polytope of
two facets, each of one group; a twentieth of the labels is flipped. Seconds are CPU time.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from itertools import product
from typing import Any

import numpy as np
from data import REGRESSION, load_all
from sklearn.model_selection import KFold

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.models import GroupedScale

GROUPS = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]
ROWS, NEW, SETS, FLIPPED = (100, 300, 1000), 5000, 10, 0.05
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "groups": {"interaction_constraints": GROUPS},
    "other groups": {"interaction_constraints": [*zip(*GROUPS, strict=True)]},
    "one column": {"interaction_constraints": "no_interactions"},
    "shared scales": {"prior": GroupedScale(0.5, 0.1, 0.1, groups=GROUPS)},
}


def simulate(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and classes of a polytope of two facets, which holds about half of the rows."""
    rng, plane = np.random.default_rng([n, seed]), np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    normals = plane.choice([-1, 1], (2, 3)) * plane.uniform(0.7, 1.3, (2, 3))
    facets = np.einsum("nkj,kj->nk", X[:, :6].reshape(n, 2, 3), normals)
    right = (facets > 0.55 * np.linalg.norm(normals, axis=1)).any(axis=1)
    return X, (right ^ (rng.random(n) < FLIPPED)).astype(int)


def simulated(n: int, name: str) -> None:
    """Print log scores below the truth's, and in how many sets facets have the planted groups."""
    best = (1 - FLIPPED) * np.log(1 - FLIPPED) + FLIPPED * np.log(FLIPPED)
    scores, found, start = [], 0, time.process_time()
    for seed in range(SETS):
        tree = ConvexPolytopeTreeClassifier(random_state=0, **SETTINGS[name])
        tree.fit(*simulate(n, seed))
        scores.append(tree.log_score(*simulate(NEW, seed)).mean() - best)
        found += {(*np.flatnonzero(one),) for one in tree.tree_.hyperplane} == {*GROUPS[:2]}
    print(n, name, summary(scores), found, (time.process_time() - start) / SETS, flush=True)


def real(name: str) -> None:
    """Print log scores of held-out rows without constraints, and with one column a facet."""
    X, y = load_all(name)
    numbers, rows = name in REGRESSION, {label: [] for label in ("none", "one column")}
    kind = ConvexPolytopeTreeRegressor if numbers else ConvexPolytopeTreeClassifier
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        for label, scores in rows.items():
            tree = kind(random_state=0, **SETTINGS[label]).fit(X[train], y[train])
            scores.extend(tree.log_score(X[test], y[test]))
    each = (*rows.values(), np.diff([*rows.values()], axis=0)[0])
    print(name, "without, with one column, difference:", *map(summary, each), flush=True)


def summary(values: Any) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        real(name)
    for n, name in product(ROWS, SETTINGS) if not sys.argv[1:] else ():
        simulated(n, name)
