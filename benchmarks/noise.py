"""What is said of fits to noise: verdicts without held-out rows, and gains over a constant.

python -m benchmarks.noise [SEED]
"""

import sys
import warnings
from typing import Any

import numpy as np
import torch

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor

SIZES = [(n, d) for n, widths in {100: (3, 10, 30), 300: (3, 10, 30, 60), 1000: (5, 20, 40)}.items()
         for d in widths]  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng, usable = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 1), []
    kinds: tuple[Any, ...] = (ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor)
    for n, d in SIZES:
        for seed in range(2):
            for kind in kinds:
                X = rng.normal(size=(n, d))
                y = rng.integers(0, 2, n) if kind is kinds[0] else rng.normal(size=n)
                found = kind(random_state=seed).fit(X, y).check_convergence()
                gain, said = found["unseen_gain"].value, found.predictions
                usable.append(said.startswith("can be used"))
                print(f"{kind.__name__} {n} x {d}: {gain:+.1f} nats; {said[:40]}", flush=True)
    print(f"{sum(usable)} of {len(usable)} can be used")


if __name__ == "__main__":
    main()
