"""Spatial regularisation of E2EDT (its eq. 15, Fig. 4) on MNIST: accuracy, and pictures of kernels.

Run: BAYESTREE_DATA=... python benchmarks/spatial.py [--strengths 0 10 100 1000] [--validate]
With --validate the official validation rows stand for the test rows: choose the strength by it.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from data import Split, folder, load
from matplotlib.figure import Figure

from bayestree import EndToEndTreeClassifier
from bayestree.models import Spatial

SHAPE, SHOWN = (28, 28), 10


def rows_of(name: str, *, validate: bool) -> Split:
    if not validate:
        return load(name)
    with np.load(folder() / f"{name}.npz") as found:
        X, y, split = found["X"].astype(np.float64), found["y"], found["split"]
    return Split(X[split == 0], y[split == 0], X[split == 1], y[split == 1])


def roughness(kernels: np.ndarray) -> float:
    """Squared differences of neighbours over squared coefficients; nearly 4 for white noise."""
    steps = sum((np.diff(kernels, axis=axis) ** 2).sum((1, 2)) for axis in (1, 2))
    return float(np.mean(steps / (kernels**2).sum((1, 2))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--strengths", type=float, nargs="+", default=[0, 10, 100, 1000])
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/spatial"))
    options = parser.parse_args()
    rows = rows_of("mnist", validate=options.validate)
    options.out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(SHOWN, 1.15 * len(options.strengths)), layout="constrained")
    panels = figure.subplots(len(options.strengths), SHOWN, squeeze=False)
    print(
        "| strength | seed | tree | soft | leaves | roughness | s |\n|---|---|---|---|---|---|---|"
    )
    for row, strength in zip(panels, options.strengths, strict=True):
        for seed in range(options.seeds):
            began = time.perf_counter()
            clf = EndToEndTreeClassifier(
                max_depth=options.depth,
                scaling="common",
                prior=Spatial(strength, SHAPE) if strength else "flat",
                image_shape=SHAPE,
                dtype="float32",
                random_state=seed,
            ).fit(rows.X, rows.y)
            seconds = time.perf_counter() - began
            scores = [
                clf.set_params(prediction=by).score(rows.X_test, rows.y_test)
                for by in ("tree", "posterior")
            ]
            kernels = clf.posterior_.point["hyperplane"].reshape(-1, *SHAPE)
            cells = (f"{strength:g}", seed, f"{scores[0]:.4f}", f"{scores[1]:.4f}")
            shape = (clf.get_n_leaves(), f"{roughness(kernels):.3f}", f"{seconds:.0f}")
            print("| " + " | ".join(map(str, (*cells, *shape))) + " |", flush=True)
            if seed == 0:
                for kernel, ax in zip(kernels, row, strict=False):
                    bound = np.abs(kernel).max()
                    ax.imshow(kernel, cmap="gray", vmin=-bound, vmax=bound)
                row[0].set_ylabel(f"strength {strength:g}", fontsize=8)
                for ax in row:
                    ax.set(xticks=[], yticks=[])
    figure.savefig(options.out / "kernels.png", dpi=110)


if __name__ == "__main__":
    main()
