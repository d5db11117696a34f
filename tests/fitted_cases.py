"""Estimators of every kind, quick to fit, and a tree of networks."""

from functools import cache

import numpy as np
from torch import nn

import bayestree
from bayestree.inference import Map, Svi
from bayestree.models import Network
from bayestree.models.networks import NetworkTree
from bayestree.tables import Encoding, Numbers
from bayestree.topology import Topology

SMALL = {"max_depth": 2, "random_state": 0}
QUICK = SMALL | {"epochs": 3}  # of trees whose estimator has the epochs
BY_MAP, BY_SVI = Map(epochs=3, steepness=None), Svi(epochs=3, n_draws=2)


def rows(n=240, d=4, seed=0):
    """Features, three classes and a number that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(3.0, 2.0, size=(n, d))
    z = (X - 3) / 2
    label = (z[:, 0] ** 2 + z[:, 1] ** 2 < 1.5).astype(int) + (z[:, 2] > 0.6)
    return X, label, 2 * z[:, 0] + np.abs(z[:, 1]) + 0.1 * rng.normal(size=n)


def _alternating(split, **changes):
    return bayestree.AlternatingTreeClassifier(split=split, max_depth=3, sweeps=2, **changes)


#: Unfitted, by what they stand for.
CLASSIFIERS = {
    "polytopes": lambda: bayestree.ConvexPolytopeTreeClassifier(
        inference=BY_MAP, n_experts=5, **SMALL
    ),
    "one facet": lambda: bayestree.ConvexPolytopeTreeClassifier(
        inference=BY_SVI, n_modes=1, n_experts=1, **SMALL
    ),
    "end to end": lambda: bayestree.EndToEndTreeClassifier(**QUICK),
    "forest": lambda: bayestree.EndToEndForestClassifier(3, **QUICK),
    "weighted": lambda: bayestree.WeightedObliqueTreeClassifier(random_state=0),
    "alternating": lambda: _alternating("oblique"),
    "network signs": lambda: bayestree.LocallyConstantTreeClassifier(**QUICK),
    "bound of the tree": lambda: bayestree.NonGreedyTreeClassifier(max_depth=3, random_state=0),
    "reflections": lambda: bayestree.ObliqueTreeClassifier(max_depth=3),
    "axis": lambda: _alternating("axis"),
    "two features": lambda: _alternating("bivariate", l1=1.0),
    "bivariate": lambda: bayestree.BivariateTreeClassifier(max_depth=4),
}
REGRESSORS = {
    "polytopes": lambda: bayestree.ConvexPolytopeTreeRegressor(
        inference=BY_MAP, n_experts=5, **SMALL
    ),
    "alternating": lambda: bayestree.AlternatingTreeRegressor(max_depth=3, min_leaf=5, sweeps=2),
    "end to end": lambda: bayestree.EndToEndTreeRegressor(**QUICK),
    "forest": lambda: bayestree.EndToEndForestRegressor(3, **QUICK),
    "weighted": lambda: bayestree.WeightedObliqueTreeRegressor(max_depth=4, random_state=0),
    "weighted, linear": lambda: bayestree.WeightedObliqueTreeRegressor(
        max_depth=2, leaf="linear", random_state=0
    ),
    "bivariate": lambda: bayestree.BivariateTreeRegressor(max_depth=4),
    "coordinates": lambda: bayestree.ObliqueTreeRegressor(splitter="cart-lc", max_depth=3),
    "linear leaves": lambda: bayestree.AlternatingTreeRegressor(
        max_depth=2, l1=0, min_leaf=5, sweeps=2, leaf="linear"
    ),
}


@cache
def trained(kind, name):
    """One of the CLASSIFIERS, or REGRESSORS, fitted to the rows; no test changes it."""
    X, label, value = rows()
    if kind == "classes":
        return CLASSIFIERS[name]().fit(X, label)
    return REGRESSORS[name]().fit(X, value)


def linear(n_features):
    return nn.Linear(n_features, 1)


def network_tree():
    """One node whose split is a network."""
    frame = {
        "center": np.zeros(2),
        "scale": np.ones(2),
        "feature_names": ("height", "width"),
        "class_names": ("no", "yes"),
    }
    parameters = {"weight": np.ones((1, 1, 2)), "bias": np.zeros((1, 1))}
    leaves = {"value": np.eye(2), "leaf_rows": np.array([3.0, 5.0])}
    return NetworkTree(Topology.stump(), Network(linear), parameters, **leaves, **frame)


def encoding_of(tree):
    """The encoding of columns that are numbers, with the names of the features of a tree."""
    return Encoding(tuple(map(Numbers, tree.feature_labels)))
