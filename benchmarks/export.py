"""Trees as ONNX: do rows reach the same leaves, how large is the file, how fast does it predict?

Run: python benchmarks/export.py
"""

import time
import warnings
from typing import Any

import numpy as np
import onnxruntime
from sklearn.datasets import load_diabetes, load_digits

import bayestree as bt
from bayestree.inference import Map

QUICK = {
    "max_depth": 5,
    "n_experts": 20,
    "inference": Map(epochs=5, steepness=None),
    "random_state": 0,
}

CLASSIFIERS = {
    "CPT, 20 experts": bt.ConvexPolytopeTreeClassifier(**QUICK),
    "CPT, 1 expert": bt.ConvexPolytopeTreeClassifier(**QUICK | {"n_experts": 1}),
    "E2EDT": bt.EndToEndTreeClassifier(max_depth=6, epochs=5, random_state=0),
    "E2EDF, 10 trees": bt.EndToEndForestClassifier(10, max_depth=6, epochs=5, random_state=0),
    "WODT": bt.WeightedObliqueTreeClassifier(random_state=0),
    "TAO, oblique": bt.AlternatingTreeClassifier(max_depth=8, sweeps=3),
    "TAO, axis": bt.AlternatingTreeClassifier(split="axis", max_depth=12, sweeps=3),
    "TAO, bivariate": bt.AlternatingTreeClassifier(split="bivariate", max_depth=8, sweeps=3),
    "bivariate": bt.BivariateTreeClassifier(),
}
REGRESSORS = {
    "CPT, 20 experts": bt.ConvexPolytopeTreeRegressor(**QUICK),
    "TAO": bt.AlternatingTreeRegressor(max_depth=6, sweeps=3),
    "TAO, linear leaves": bt.AlternatingTreeRegressor(max_depth=4, sweeps=3, leaf="linear"),
}


def measure(name: str, estimator: Any, X: np.ndarray, y: np.ndarray) -> None:
    """Print a line; half of the rows are those of the fit, which lie on the borders."""
    estimator.fit(X, y)
    noise = np.random.default_rng(0).normal(size=X.shape) * X.std(axis=0)
    rows = np.vstack([X, X + 0.3 * noise])
    content = bt.export_onnx(estimator)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (leaf,) = session.run(["leaf"], {"X": rows})
    other = int((leaf != estimator.apply(rows)).sum())
    seconds = []
    for predict in (estimator.apply, lambda given: session.run(None, {"X": given})):
        start = time.perf_counter()
        for _ in range(10):
            predict(rows)
        seconds.append((time.perf_counter() - start) / 10 / len(rows))
    print(
        f"| {name} | {X.shape[1]} | {estimator.get_n_leaves()} | {other} of {leaf.size} | "
        f"{len(content) / 1024:.0f} | {1e6 * seconds[0]:.2f} | {1e6 * seconds[1]:.2f} |",
        flush=True,
    )


def main() -> None:
    warnings.simplefilter("ignore")  # fits as short as these are warned of
    print("| tree | features | leaves | rows in other leaves | KB | us a row | us a row, ONNX |")
    print("|---|---|---|---|---|---|---|")
    for name, estimator in CLASSIFIERS.items():
        measure(name, estimator, *load_digits(return_X_y=True))
    for name, estimator in REGRESSORS.items():
        measure(f"{name}, numbers", estimator, *load_diabetes(return_X_y=True))


if __name__ == "__main__":
    main()
