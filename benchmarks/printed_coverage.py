"""How often intervals hold the numbers of printed trees, when the truth is projected onto them.

    python -m benchmarks.printed_coverage [SETS] [CELL ...]

Sets and cells are those of ``node_coverage``. The truth of a number is what fits E(y | x) at the
rows best, in the form of the tree that is printed. Standard errors are those of sums over sets.
"""

import sys
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import torch

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.diagnostics.printed import Form
from benchmarks.node_coverage import CELLS, Cell, truth

LEVEL = 0.9


def hits(seed: int, cell: Cell) -> dict[str, Any]:
    """Tell which numbers of a set are in their intervals, by their kind, and the CPU seconds."""
    _, _, _, X, y, mean, _ = truth(seed, cell)
    kind = ConvexPolytopeTreeClassifier if cell.classes else ConvexPolytopeTreeRegressor
    started = time.process_time()
    fit = kind(max_depth=cell.depth, random_state=seed).fit(X, y)
    fitted = time.process_time()
    found = fit.tree_intervals(X, level=LEVEL)
    seconds = time.process_time() - fitted, fitted - started
    form = Form(fit.tree_, X)
    true = form.fitted(np.column_stack((1 - mean, mean)) if cell.classes else mean[:, None])
    divisor = np.array([one.divisor for one in form.half_spaces])
    plane, bound = (one.mean(axis=-1).T / divisor for one in true[:2])
    value = found.value.reshape(*true.value.shape, 2)
    each = {
        "limits": (found.limit, bound),
        "coefficients": (found.coefficient, plane.T),
        "leaves": (value[:, -1], true.value[:, -1]),
    }
    inside: dict[str, Any] = {"seconds": seconds}
    for name, (ends, one) in each.items():
        known = ~np.isnan(ends[..., 0])
        inside[name] = ((ends[..., 0] <= one) & (one <= ends[..., 1]))[known].tolist()
    return inside


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    n_sets = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for name in sys.argv[2:] or CELLS:
        found = defaultdict(list)
        for seed in range(n_sets):
            for key, own in hits(seed, CELLS[name]).items():
                found[key].append(own)
        of_fit = np.sum(found.pop("seconds"), axis=0)
        parts = []
        for key, sets in found.items():
            count, held = np.array([[len(own), sum(own)] for own in sets], dtype=float).T
            if share := held.sum() / max(count.sum(), 1):
                error = np.sqrt(((held - share * count) ** 2).sum()) / count.sum()
                parts.append(f"{key} {share:.3f} ({error:.3f}) of {count.sum():.0f}")
        print(f"{name}: {', '.join(parts)}; CPU {of_fit[0] / of_fit[1]:.2f} of the fit", flush=True)


if __name__ == "__main__":
    main()
