"""Slow imports that fits and most verbs do not need: each takes a fifth of a second or more."""

import subprocess
import sys

CODE = """
import sys
import numpy as np
import bayestree.cli
import bayestree.runs.predict, bayestree.runs.results, bayestree.runs.runner  # of most verbs
from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Map

X = np.random.default_rng(0).normal(size=(120, 2))
y = X[:, 0] > 0
for kind, method in (
    (ConvexPolytopeTreeClassifier, "grow"),
    (ConvexPolytopeTreeRegressor, Map(epochs=1)),
):
    tree = kind(inference=method, max_depth=2, random_state=0).fit(X, y)
    assert tree.tree_.n_leaves > 1
    tree.predict(X)
slow = (
    "torch._dynamo", "sympy", "xarray", "arviz", "matplotlib", "sklearn.model_selection", "dask"
)
sys.exit(", ".join(name for name in slow if name in sys.modules) or 0)
"""


def test_point_estimates_and_their_diagnostics_import_nothing_slow():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
