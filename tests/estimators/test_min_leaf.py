"""Leaves of the trees that are shown have at least ``min_leaf`` rows."""

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes

from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndTreeClassifier,
)
from bayestree.inference import Map, Svi

pytestmark = pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
LEAST = 12
COMMON = {"min_leaf": LEAST, "random_state": 0}
CPT = COMMON | {"n_modes": 1, "max_depth": 3, "n_experts": 4}
MAP, SVI = Map(epochs=4, steepness=None), Svi(epochs=4, n_draws=4)
FITS = [
    AlternatingTreeClassifier(**COMMON, max_depth=4),
    AlternatingTreeRegressor(**COMMON, max_depth=4),
    ConvexPolytopeTreeClassifier(**CPT, inference=MAP),
    ConvexPolytopeTreeRegressor(**CPT | {"n_modes": 2, "max_depth": 2}, inference=SVI),
    EndToEndTreeClassifier(**COMMON, max_depth=3, epochs=3, learning_rate=0.05),
]


@pytest.mark.parametrize("estimator", FITS, ids=range(len(FITS)))
def test_every_leaf_has_enough_rows(estimator):
    load = load_breast_cancer if is_classifier(estimator) else load_diabetes
    X, y = load(return_X_y=True)
    tree = estimator.fit(X, y).tree_
    assert tree.n_nodes
    assert np.bincount(tree.apply(X), minlength=tree.n_leaves).min() >= LEAST


def test_batches():
    X, y = load_breast_cancer(return_X_y=True)
    clf = ConvexPolytopeTreeClassifier(**CPT, inference=MAP)
    for part in (slice(300), slice(300, 569)):
        clf.partial_fit(X[part], y[part])
    assert clf.tree_.leaf_rows.min() >= LEAST
