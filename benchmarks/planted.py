"""Planted polytopes: is their number of facets found, and how well are new rows predicted?

    python -m benchmarks.planted [SETS] [CELL ...]

Rows are uniform in a box. Each facet cuts off at least 3 % of them that no other cuts off. The
number found is that of the node that sends at least nine of ten of its rows to the same sides.
"""

import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

ALONE, MATCHED, NEW_ROWS, DRAWS, LEVEL = 0.03, 0.9, 2000, 400, 0.9
METHODS = {"default": "auto", "mcmc": "mcmc"}


class Cell(NamedTuple):
    """Facets of the root, columns, rows, and what is asked of the estimator."""

    facets: int
    columns: int
    rows: int
    depth: int = 1  # 2: a line cuts the inside in two
    numbers: bool = False
    noise: float = 0.05  # share of the classes that are drawn again
    n_experts: int | None = None


CELLS = {
    "1 of 2 columns": Cell(1, 2, 300),
    "2 of 3 columns": Cell(2, 3, 600),
    "3 of 2 columns, n 300": Cell(3, 2, 300),
    "3 of 2 columns, n 1200": Cell(3, 2, 1200),
    "3 of 2 columns, n 300, noise .3": Cell(3, 2, 300, noise=0.3),
    "5 of 2 columns": Cell(5, 2, 1200, n_experts=20),
    "6 of 2 columns": Cell(6, 2, 4000, n_experts=20),
    "4 of 5 columns": Cell(4, 5, 1200, n_experts=20),
    "3 of 2 columns, depth 2": Cell(3, 2, 1200, depth=2),
    "numbers, 3 of 2 columns": Cell(3, 2, 600, numbers=True),
}


def planted(cell: Cell, seed: int) -> tuple[Any, Any, Any]:
    """X, y with some of the classes drawn again, and the sides of the rows at the polytope."""
    rng = np.random.default_rng([seed, cell.facets, cell.columns])
    X = rng.uniform(-1.7, 1.7, (cell.rows + NEW_ROWS, cell.columns))
    while True:
        u = rng.normal(size=(cell.facets, cell.columns))
        if cell.columns == 2:
            turn = (np.arange(cell.facets) + rng.uniform(-0.25, 0.25, cell.facets)) / cell.facets
            angle = 2 * np.pi * (turn + rng.uniform())
            u = np.stack([np.cos(angle), np.sin(angle)], 1)
        share = rng.uniform(0.5, 1.0, cell.facets) * min(0.5, 0.75 / cell.facets)
        out = np.array([X @ a > np.quantile(X @ a, 1 - q) for a, q in zip(u, share, strict=True)]).T
        side = out.any(1)
        alone = (out & (out.sum(1, keepdims=True) == 1)).mean(0)
        if alone.min() >= ALONE and 0.25 < side.mean() < 0.8:
            break
    if cell.numbers:
        return X, 2.0 * side - 1 + 0.5 * rng.standard_normal(len(X)), side
    y = side.astype(int)
    if cell.depth == 2:
        line = X @ rng.normal(size=cell.columns)
        y = np.where(side, 2, line > np.median(line[~side]))
    return X, np.where(rng.uniform(size=len(X)) < cell.noise, rng.permutation(y), y), side


def number_found(fit: Any, X: Any, side: Any, number: int) -> tuple[float, bool, bool]:
    """Posterior mean of the facets, and whether mode and interval hold the planted number."""
    tree, sizes = fit.tree_, fit.polytope_size(DRAWS)
    likeness = np.zeros(tree.n_nodes)
    for node, rows, right in tree.walk(X):
        if len(rows) >= len(X) / 4:
            same = (right == side[rows]).mean()
            likeness[node] = max(same, 1 - same)
    if likeness.max(initial=0) < MATCHED:
        return np.nan, False, False
    node = int(likeness.argmax())
    low, high = sizes.interval(LEVEL)[node]
    mean = sizes.sizes()[:, node].mean()
    return mean, sizes.mode()[node] == number, low <= number <= high


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    print("| cell | method | facets | mode right | in the 90 % interval | log score | CPU s |")
    for name in sys.argv[2:] or CELLS:
        cell = CELLS[name]
        kind: Any = ConvexPolytopeTreeRegressor if cell.numbers else ConvexPolytopeTreeClassifier
        usual = {"max_depth": cell.depth, "n_experts": cell.n_experts}
        for method, inference in METHODS.items():
            rows = []
            for seed in range(count):
                X, y, side = planted(cell, seed)
                train, new = slice(cell.rows), slice(cell.rows, None)
                started = time.process_time()
                fit = kind(**usual, inference=inference, random_state=seed).fit(X[train], y[train])
                seconds = time.process_time() - started
                found = number_found(fit, X[train], side[train], cell.facets)
                rows.append((*found, fit.log_score(X[new], y[new]).mean(), seconds))
            mean = np.nanmean(rows, axis=0)
            error = np.nanstd(rows, axis=0) / count**0.5
            cells = [f"{m:.3f} ({e:.3f})" for m, e in zip(mean, error, strict=True)]
            print(f"| {name} | {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
