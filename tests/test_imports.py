"""Slow imports that a fit does not need: each takes a fifth of a second to two seconds."""

import subprocess
import sys

CODE = """
import sys
import numpy as np
from bayestree import {kind}
X = np.random.default_rng(0).normal(size=(120, 2))
y = X[:, 0] > 0
tree = {kind}(inference="grow", max_depth=2, random_state=0).fit(X, y)
assert tree.tree_.n_leaves > 1
tree.predict(X)
slow = "torch._dynamo", "sympy", "xarray", "arviz", "matplotlib", "sklearn.model_selection"
sys.exit(", ".join(name for name in slow if name in sys.modules) or 0)
"""


def test_growth_and_its_diagnostics_import_nothing_slow():
    for kind in ("ConvexPolytopeTreeClassifier", "ConvexPolytopeTreeRegressor"):
        code = CODE.format(kind=kind)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
