"""Compatibility with scikit-learn, by its own checks."""

from dataclasses import dataclass

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from bayestree import (
    AlternatingDecisionForestClassifier,
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    BivariateTreeClassifier,
    BivariateTreeRegressor,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndForestClassifier,
    EndToEndForestRegressor,
    EndToEndTreeClassifier,
    EndToEndTreeRegressor,
    LocallyConstantTreeClassifier,
    LocallyConstantTreeRegressor,
    NeuralDecisionForestClassifier,
    NeuralDecisionForestRegressor,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
    ObliqueTreeClassifier,
    ObliqueTreeRegressor,
    WeightedObliqueTreeClassifier,
    WeightedObliqueTreeRegressor,
)
from bayestree.inference import Map, Svi, Vi
from bayestree.inference.splitters.searches import OC1, SEARCHES
from bayestree.models import Network
from tests.short_checks import short_stages

CHEAP = {"max_depth": 2, "n_experts": 3, "random_state": 0}
SVI = Svi(epochs=3, n_draws=4, batch_size=50)
MAP = Map(epochs=3, batch_size=50, steepness=None)

# A fit starts from random facets placed at quantiles of a node's rows, and draws minibatches of
# rows: with rows repeated instead of weighted, the same seed starts elsewhere and ends in another
# of many optima. That weights count as repeats is tested where nothing is random
# (test_stumps.py, test_soft_tree.py, test_tree.py), and on average (test_cpt.py).
# The splits of an alternating tree are fitted to a tolerance, in other coordinates where rows are
# few: their last digits decide in which of many optima the tree ends.
CPT = (ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor)
LCN = (LocallyConstantTreeClassifier, LocallyConstantTreeRegressor)  # neurons start at random rows
SUMS = "partial_fit continues from the sums of its first batch, which fit does not keep"
STOCHASTIC = "a seed does not place the same facets on repeated rows as on weighted ones"
# Some regressors need several rows in a leaf, and the checks have few rows of integer weights.
COUNTED = "min_leaf counts rows, whatever their weights"
# Steps of Adam enlarge the differences between sums of weights and of repeated rows.
ROUNDING = "gradient steps enlarge rounding errors beyond the tolerance of 1e-7"
# Empirical Bayes estimates the prior of linear leaves to a tolerance.
TOLERANCE = "the prior of the slopes is estimated to a tolerance"


@dataclass(frozen=True)
class Linear:
    """Builds networks of one layer; unlike a function it has the same repr in every process."""

    def __call__(self, n_features):
        return nn.Linear(n_features, 1)


#: The default of polytopes, and a tree or forest of each base class of the others.
ESTIMATORS = [
    ConvexPolytopeTreeClassifier(),
    ConvexPolytopeTreeRegressor(),
    BivariateTreeClassifier(),
    AlternatingTreeRegressor(),
    EndToEndTreeClassifier(max_depth=2, epochs=20, learning_rate=0.05, random_state=0),
    EndToEndForestRegressor(2, max_depth=2, epochs=10, random_state=0),
]


def expected_failures(estimator):
    """Checks that a fit with other random starts, or other last digits, cannot pass."""
    from_cart = getattr(estimator, "init", None) == "cart"
    reason = ""
    if isinstance(estimator, (*CPT, *LCN)) or (
        isinstance(estimator, AlternatingTreeRegressor) and from_cart
    ):
        reason = STOCHASTIC
    elif isinstance(estimator, (EndToEndTreeRegressor, WeightedObliqueTreeRegressor)):
        if estimator.leaf == "linear":
            reason = TOLERANCE
        elif estimator.min_leaf > 1:
            reason = COUNTED
    elif isinstance(estimator, NeuralDecisionForestRegressor):
        reason = ROUNDING
    elif isinstance(estimator, EndToEndForestRegressor) and estimator.min_leaf > 1:
        reason = COUNTED
    data = ("dense", "sparse") if reason else ()
    found = {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in data}
    if hasattr(estimator, "partial_fit"):
        found["check_fit_score_takes_y"] = SUMS
    return found


# Some checks have constant columns, or too few rows for a split.
USUAL = [
    "ignore::bayestree.UnusedColumnsWarning",
    "ignore::bayestree.SingleLeafWarning",
]
# Once more without short stages, and whatever else the estimators can be.
OTHERS = [
    ConvexPolytopeTreeClassifier(),
    ConvexPolytopeTreeRegressor(),
    EndToEndForestClassifier(),
    EndToEndForestRegressor(),
    EndToEndTreeClassifier(),
    EndToEndTreeRegressor(),
    NonGreedyTreeRegressor(max_depth=2, min_leaf=1, epochs=10, random_state=0),
    NeuralDecisionForestRegressor(2, max_depth=2, epochs=20, learning_rate=0.1, random_state=0),
    EndToEndTreeRegressor(leaf="linear", max_depth=1, epochs=10, random_state=0),
    WeightedObliqueTreeRegressor(leaf="linear", max_depth=2),
    BivariateTreeRegressor(leaf="linear", n_orientations=4, max_depth=2, min_leaf=1),
    *(kind(inference="grow", **CHEAP) for kind in CPT),
    *(kind(inference=MAP, **CHEAP) for kind in CPT),
    ConvexPolytopeTreeClassifier(inference=MAP, n_modes=2, **CHEAP),
    ConvexPolytopeTreeRegressor(inference=SVI, n_modes=1, **CHEAP),
    *(ObliqueTreeClassifier(splitter=splitter) for splitter in SEARCHES),
    *(ObliqueTreeRegressor(splitter=splitter, min_leaf=1) for splitter in SEARCHES),
    AlternatingTreeClassifier(),
    AlternatingTreeClassifier(split="axis", l1=0.01, max_depth=3, random_state=0),
    AlternatingTreeRegressor(init="random", leaf="linear", max_depth=2, min_leaf=1, random_state=0),
    BivariateTreeRegressor(n_orientations=6, max_depth=4),
    WeightedObliqueTreeClassifier(),
    WeightedObliqueTreeRegressor(min_leaf=1, n_starts=1),
    LocallyConstantTreeClassifier(max_depth=3, epochs=30, learning_rate=0.05, random_state=0),
    LocallyConstantTreeRegressor(max_depth=6, epochs=60, learning_rate=0.05, random_state=0),
    NonGreedyTreeClassifier(max_depth=2, epochs=5, random_state=0),
    AlternatingDecisionForestClassifier(2, max_depth=2, random_state=0),
    NeuralDecisionForestClassifier(
        1, max_depth=2, epochs=10, leaf_steps=1, learning_rate=0.3, random_state=0
    ),
    ObliqueTreeClassifier(splitter=OC1(n_restarts=1, n_jumps=1), max_depth=2),
    ConvexPolytopeTreeClassifier(inference=SVI, n_modes=1, **CHEAP),
    ConvexPolytopeTreeRegressor(inference=MAP, n_modes=2, **CHEAP),
    EndToEndTreeClassifier(
        max_depth=2,
        split=Network(Linear()),
        epochs=10,
        steepness=5.0,
        learning_rate=0.05,
        random_state=0,
    ),
    EndToEndTreeRegressor(max_depth=2, epochs=10, min_leaf=1, random_state=0),
    EndToEndForestClassifier(2, max_depth=2, epochs=3, learning_rate=0.05, random_state=0),
]


@pytest.fixture
def short_fits(monkeypatch):
    """Two trees instead of four, and few steps: these checks fit each estimator a hundred times."""
    monkeypatch.setattr(Vi, "default_modes", 2)
    with short_stages():
        yield


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings(*USUAL)
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_rules_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.statistical
@pytest.mark.filterwarnings(*USUAL)
@parametrize_with_checks(OTHERS, expected_failed_checks=expected_failures)
def test_rules_of_scikit_learn_in_full(estimator, check):
    check(estimator)
