"""Fits on the CPU and on a GPU, the same code with ``device`` changed, and their ratio.

Run: python benchmarks/gpu.py (needs a CUDA build of torch and a GPU; says so otherwise)

Scores must agree within their standard error; seconds are those of the second fit, after the first
has loaded the kernels.
"""

import time

import torch
from scaling import table

from bayestree import ConvexPolytopeTreeClassifier, EndToEndTreeClassifier

ROWS, TEST = 200_000, 20_000
JOBS = {
    "polytope tree, depth 8, 16 columns": (ConvexPolytopeTreeClassifier, 16, {"max_depth": 8}),
    "polytope tree, depth 4, 500 columns": (ConvexPolytopeTreeClassifier, 500, {"max_depth": 4}),
    "end-to-end tree, depth 8, 100 columns": (EndToEndTreeClassifier, 100, {"max_depth": 8}),
}


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("No GPU: torch.cuda.is_available() is False.")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("| job | CPU s | GPU s | ratio | CPU score | GPU score |\n" + "|---" * 6 + "|")
    for name, (kind, n_columns, settings) in JOBS.items():
        X, y = table(ROWS + TEST, n_columns)
        seconds, scores = {}, {}
        for device in ("cpu", "cuda"):
            for _ in range(1 if device == "cpu" else 2):
                tree = kind(**settings, dtype="float32", device=device, random_state=0)
                start = time.perf_counter()
                tree.fit(X[:ROWS], y[:ROWS])
                seconds[device] = time.perf_counter() - start
            scores[device] = tree.score(X[ROWS:], y[ROWS:])
        cpu, gpu = seconds.values()
        both = " | ".join(f"{score:.4f}" for score in scores.values())
        print(f"| {name} | {cpu:.1f} | {gpu:.1f} | {cpu / gpu:.1f} | {both} |", flush=True)


if __name__ == "__main__":
    main()
