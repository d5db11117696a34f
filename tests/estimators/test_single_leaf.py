"""A tree that could not split reports the limit that prevented it."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    BivariateTreeClassifier,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
    LocallyConstantTreeClassifier,
    NeuralDecisionForestClassifier,
    ObliqueTreeClassifier,
    ObliqueTreeRegressor,
    SingleLeafWarning,
    WeightedObliqueTreeClassifier,
    inference,
)
from bayestree.inference import Map
from bayestree.models import SoftTree
from bayestree.topology import Topology

SEED = {"random_state": 0}
GROWN = {"inference": "grow", "n_experts": 2} | SEED
STEPS = {"epochs": 3} | SEED


def rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("estimator", "n", "reason"),
    [
        (
            ConvexPolytopeTreeClassifier(**GROWN),
            10,
            "a split needs at least min_leaf=10 rows on each side, but there are 10 rows, and a "
            "split needs a total weight of at least min_rows=20, but the 10 rows weigh 10; lower "
            "min_leaf and min_rows",
        ),
        (
            ConvexPolytopeTreeRegressor(min_leaf=2, **GROWN),
            15,
            "a split needs a total weight of at least min_rows=20, but the 15 rows weigh 15; lower "
            "min_rows",
        ),
        (
            ConvexPolytopeTreeClassifier(min_leaf=30, **GROWN),
            50,
            "at least min_leaf=30 rows on each side, but there are 50 rows; lower min_leaf",
        ),
        (BivariateTreeClassifier(min_leaf=30), 50, "lower min_leaf"),
        (WeightedObliqueTreeClassifier(min_rows=60, **SEED), 50, "lower min_rows"),
        (EndToEndTreeClassifier(min_leaf=30, **STEPS), 50, "lower min_leaf"),
        (EndToEndForestClassifier(2, min_leaf=30, **STEPS), 50, "every tree: .*; lower min_leaf"),
        (AlternatingTreeClassifier(min_leaf=30, **SEED), 50, "lower min_leaf"),
        (AlternatingTreeRegressor(min_leaf=30, **SEED), 50, "lower min_leaf"),
        (AlternatingTreeClassifier(l1=1e4, **SEED), 50, "penalty l1=10000; lower l1"),
        (ObliqueTreeRegressor(min_leaf=30, **SEED), 50, "lower min_leaf"),
        (ObliqueTreeClassifier(ccp_alpha=1.0, **SEED), 50, "ccp_alpha"),
        (BivariateTreeClassifier(ccp_alpha=1.0), 50, "ccp_alpha"),
        (BivariateTreeClassifier(min_gain=100), 50, r"gains 3\d\.\d nats .* min_gain=100\); lower"),
        (
            ConvexPolytopeTreeClassifier(min_gain=100, **GROWN),
            50,
            r"gains [\d.]+ nats of log-likelihood, less than min_gain=100\); lower min_gain",
        ),
    ],
    ids=repr,
)
def test_the_limit_is_named(estimator, n, reason):
    X, y = rows(n)
    with pytest.warns(SingleLeafWarning, match=reason) as told:
        estimator.fit(X, y)
    (one,) = [one for one in told if one.category is SingleLeafWarning]
    assert one.filename == __file__
    assert {tree.tree_.n_leaves for tree in getattr(estimator, "estimators_", [estimator])} == {1}


def test_refinement_that_leaves_no_split_worth_its_gain():
    X, y = rows(60)
    clf = ConvexPolytopeTreeClassifier(
        inference=Map(epochs=2, steepness=None), max_depth=1, **SEED
    ).fit(X, y)
    limits = inference.GrowthLimits(min_gain=1000.0)
    with pytest.warns(SingleLeafWarning, match=r"after the refinement .* min_gain=1000\); lower"):
        inference.harden(clf.posterior_, clf.training_data(X, y), limits=limits)


def test_refinement_that_moves_a_split_out_of_the_rows():
    X, y = rows(60)
    clf = ConvexPolytopeTreeClassifier(
        inference=Map(epochs=2, steepness=None), max_depth=1, **SEED
    ).fit(X, y)
    point = clf.posterior_.point | {"intercept": np.full((1, 20), 100.0)}
    moved = replace(clf.posterior_, point=point)
    with pytest.warns(SingleLeafWarning, match=r"no split leaves min_leaf rows on both sides"):
        inference.harden(moved, clf.training_data(X, y), limits=inference.GrowthLimits())


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_rows_that_are_all_alike():
    for tree in (
        BivariateTreeClassifier(),
        LocallyConstantTreeClassifier(epochs=1),
        NeuralDecisionForestClassifier(epochs=1, n_estimators=1, max_depth=1),
    ):
        with pytest.warns(SingleLeafWarning, match="all rows have the same features"):
            tree.fit(np.ones((30, 2)), np.arange(30) % 2)


@pytest.mark.parametrize(
    "estimator",
    [
        ConvexPolytopeTreeClassifier(max_depth=0, **GROWN),
        ConvexPolytopeTreeClassifier(max_leaves=1, **GROWN),
        AlternatingTreeClassifier(max_depth=0),
        BivariateTreeClassifier(max_depth=0),
        EndToEndForestClassifier(2, max_depth=0, **STEPS),
    ],
    ids=repr,
)
def test_who_asks_for_one_leaf_is_not_warned(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimator.fit(*rows(50)).get_depth() == 0


@pytest.mark.parametrize(
    "estimator", [ConvexPolytopeTreeRegressor(**GROWN), AlternatingTreeRegressor(**SEED)]
)
def test_constant_y_needs_no_split(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimator.fit(rows(50)[0], np.ones(50)).get_n_leaves() == 1


def test_held_out_rows_may_ask_for_a_single_leaf():
    X, y = rows(60)
    data = inference.Data.of(X, y)
    opposite = data._replace(y=1 - data.y)
    with pytest.warns(SingleLeafWarning, match="60 validation rows are predicted best without"):
        inference.grow(SoftTree(Topology.stump()), data, validation=opposite, random_state=0)
