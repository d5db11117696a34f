"""Fits and predictions on a GPU, where there is one."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_iris

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndTreeClassifier,
    EndToEndTreeRegressor,
)
from bayestree.inference import Data, GrowthLimits, Map, Svi, grow
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SVI = Svi(epochs=3, n_draws=5)
BRIEF = {"inference": SVI, "max_depth": 2, "n_experts": 3, "n_modes": 1}
CASES = {
    "svi": {},
    "defaults": {"n_experts": None, "n_draws": None, "n_modes": None},
    "single precision": {"dtype": "float32"},
    "sparse routing": {"max_depth": 6, "min_rows": 5, "min_gain": 0.0},
    "map": {"inference": Map(epochs=3, steepness=None)},
    "grow": {"inference": "grow"},
    "held-out rows": {"validation_fraction": 0.3},
    "modes": {"n_modes": 2},
    "expert": {"inference": Svi(epochs=3, covariance="expert", n_draws=5)},
    "autoguide": {"inference": Svi(epochs=3, guide="AutoNormal", n_draws=5)},
    "monotone": {"monotonic_cst": [0, 0, 0, 1]},
    "laplace": {"prior": "laplace"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor])
def test_predictions_of_a_fit_on_a_gpu(kind, case):
    classes = kind is ConvexPolytopeTreeClassifier
    X, y = load_iris(return_X_y=True)
    X, y = (X[50:], y[50:]) if classes else (np.delete(X, 2, axis=1), X[:, 2])
    chosen = BRIEF | CASES[case]
    if "monotonic_cst" in chosen and not classes:
        chosen["monotonic_cst"] = [1, 0, 0]
    tree = kind(device="cuda", random_state=0, **chosen).fit(X, y)
    here = tree.predict_proba(X) if classes else tree.predict(X)
    with torch.device("cuda"):
        there = tree.predict_proba(X) if classes else tree.predict(X)
    np.testing.assert_allclose(there, here, atol=1e-6 if chosen.get("dtype") is None else 1e-4)
    assert tree.score(X, y) > 0.4


@pytest.mark.parametrize("leaf", ["linear", "student", "poisson"])
def test_other_leaves(leaf):
    X, y = load_diabetes(return_X_y=True)
    y = np.round(y / 50) if leaf == "poisson" else y
    tree = ConvexPolytopeTreeRegressor(device="cuda", leaf=leaf, random_state=0, **BRIEF).fit(
        X[:200], y[:200]
    )
    here = tree.predict_interval(X)
    with torch.device("cuda"):
        np.testing.assert_allclose(tree.predict_interval(X), here, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The posterior under Flat")
@pytest.mark.parametrize("inference", ["em", "svi"])
@pytest.mark.parametrize("kind", [EndToEndTreeClassifier, EndToEndTreeRegressor])
def test_end_to_end_trees(kind, inference):
    X, y = load_iris(return_X_y=True)
    tree = kind(device="cuda", max_depth=2, inference=inference, random_state=0).fit(X, y)
    assert tree.score(X, y) > 0.5


def test_the_same_tree_as_on_the_cpu():
    """L-BFGS draws no random numbers: both devices follow one path up to rounding."""
    X, y = load_iris(return_X_y=True)
    rows = Data.of((X - X.mean(0)) / X.std(0), y)
    model = SoftTree(Topology.leaf(), Polytope(3), leaf=Categorical(3))
    start = grow(model, rows, limits=GrowthLimits(max_depth=2), steps=20, random_state=0)
    found = [
        Map(optimiser="lbfgs", epochs=2).fit(
            start.model, Data(*(part.to(device) for part in rows)), init=start, random_state=0
        )
        for device in ("cpu", "cuda")
    ]
    here, there = (one.predictive(rows.X.numpy())[0] for one in found)
    np.testing.assert_allclose(there, here, atol=1e-6)
