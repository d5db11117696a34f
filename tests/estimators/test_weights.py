"""The scale of weights: counts of equal rows, or shares with a sum of 1."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import AdaBoostClassifier

from bayestree import (
    AlternatingTreeClassifier,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    SingleLeafWarning,
)
from bayestree.fitted.validation import checked_weights
from bayestree.inference import Map, Svi

MAP = Map(epochs=20, steepness=None)
SMALL = {"max_depth": 1, "n_modes": 1, "inference": MAP, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(128, 2))
    return X, rng.integers(1, 4, 128) + 5 * (X[:, 0] > 0)


def labels(y):
    return (y > 4).astype(int)


each_kind = pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (ConvexPolytopeTreeClassifier(**SMALL), labels),
        (ConvexPolytopeTreeRegressor(**SMALL), np.array),
        (ConvexPolytopeTreeRegressor(leaf="linear", **SMALL), np.array),
        (ConvexPolytopeTreeRegressor(leaf="poisson", **SMALL), np.array),
        (ConvexPolytopeTreeSurvival(**SMALL), np.array),
        (AlternatingTreeClassifier(max_depth=1, random_state=0), labels),
    ],
    ids=["classes", "numbers", "linear leaves", "counts", "survival", "TAO"],
)


@each_kind
def test_shares_that_sum_to_one_weigh_as_much_as_rows(rows, estimator, target):
    X, y = rows[0], target(rows[1])
    whole = clone(estimator).fit(X, y)
    shares = np.full(128, 1 / 128)  # powers of two, so that nothing is rounded
    found = clone(estimator).fit(X, y, sample_weight=shares)
    assert np.array_equal(found.predict(X), whole.predict(X))
    assert found.tree_.leaf_rows.sum() == 128
    if hasattr(found, "training_data"):
        assert found.training_data(X, y, shares).weights.sum() == 128


@each_kind
def test_scores_count_a_weight_as_so_many_rows(rows, estimator, target):
    X, y = rows[0], target(rows[1])
    found = clone(estimator).fit(X, y)
    rng = np.random.default_rng(1)
    y, weights = rng.permutation(y), rng.integers(3, size=128)  # right for some rows alone
    copies = np.repeat(np.arange(128), weights)
    assert found.score(X, y, weights) == pytest.approx(found.score(X[copies], y[copies]))
    if hasattr(found, "scores"):
        scores = found.scores(y, found.predict(X), weights)
        repeated = found.scores(y[copies], found.predict(X[copies]), np.ones(len(copies)))
        assert scores == pytest.approx(repeated)


@pytest.mark.parametrize("leaf", ["constant", "student"])
def test_units_are_those_of_copies(rows, leaf):
    """Of X and y; a tree of one leaf is fitted in them."""
    X, y = rows
    weights = np.where(y > 6, 3, 1)
    copies = np.repeat(np.arange(128), weights)
    tree = ConvexPolytopeTreeRegressor(leaf=leaf, **SMALL | {"max_depth": 0})
    once = clone(tree).fit(X, y, weights).fitted_.scaling.units
    repeated = clone(tree).fit(X[copies], y[copies]).fitted_.scaling.units
    for one, other in zip(once, repeated, strict=True):
        np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("kind", [ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor])
def test_rows_may_stand_for_very_many(kind):
    X, y = load_iris(return_X_y=True)
    found = kind(max_depth=2, n_modes=2, random_state=0)
    assert found.fit(X, y, np.full(len(X), 1e8)).score(X, y) > 0.8


def test_the_scale_of_other_weights_counts_rows():
    for counts in ([3.0, 0.0, 1.0], [0.5, 0.0, 0.6], [0.0, 1.0, 0.0]):
        assert checked_weights(counts, 3).tolist() == counts
    # rows of weight 0 count no more than absent ones
    assert checked_weights([0.25, 0.0, 0.75], 3).tolist() == [0.5, 0.0, 1.5]
    rounded = np.full(1000, np.float32(1) / 1000, dtype=np.float32)
    assert checked_weights(rounded, 1000).sum() == pytest.approx(1000)


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_batches_of_small_weights_keep_their_scale(rows):
    X, y = rows[0], labels(rows[1])
    tree = ConvexPolytopeTreeClassifier(**SMALL | {"inference": Svi(epochs=1)})
    for weight in (0.02, 0.01, 0.001):
        tree.partial_fit(X, y, sample_weight=np.full(128, weight))
        assert tree.tree_.leaf_rows.sum() < 128 * 0.032  # and not 128


def test_folds_of_shares_weigh_as_much_as_folds_of_rows(rows):
    X, y = rows[0], labels(rows[1])
    tree = ConvexPolytopeTreeClassifier(**SMALL)
    plain = clone(tree).fit(X, y).loo(X, y, n_folds=2)
    shares = np.full(128, 1 / 128)
    found = clone(tree).fit(X, y, shares).loo(X, y, shares, n_folds=2)
    assert np.array_equal(found.elpd_row, plain.elpd_row)


def test_a_boosted_tree_has_splits(rows):
    X, y = rows
    noisy = labels(y) ^ (np.random.default_rng(1).random(128) < 0.2)
    one = ConvexPolytopeTreeClassifier(**SMALL)
    found = AdaBoostClassifier(one, n_estimators=2, random_state=0).fit(X, noisy)
    assert [tree.get_n_leaves() for tree in found.estimators_] == [2, 2]


@pytest.mark.parametrize(
    ("settings", "total"), [({}, 8), ({"min_rows": 0}, 2), ({"min_rows": 0, "min_gain": 100}, 128)]
)
def test_the_factor_is_named_if_it_helps(rows, settings, total):
    X, y = rows[0], labels(rows[1])
    tree = ConvexPolytopeTreeClassifier(**SMALL | {"inference": "grow"}, **settings)
    with pytest.warns(SingleLeafWarning) as told:
        tree.fit(X, y, sample_weight=np.full(128, total / 128))
    (text,) = [str(one.message) for one in told]
    helps = total < 128
    assert helps == (f"multiply the weights by {128 / total:.3g} if only their" in text)
    if helps:
        tree.fit(X, y, sample_weight=np.full(128, 1.0))
        assert tree.get_n_leaves() == 2


def test_a_data_set_has_counts(rows, tmp_path):
    table = pd.DataFrame(rows[0], columns=["a", "b"]).assign(y=labels(rows[1]), share=1 / 128)
    table.to_parquet(tmp_path / "rows.parquet")
    tree = ConvexPolytopeTreeClassifier(**SMALL | {"inference": "grow"})
    with pytest.raises(ValueError, match=r"weights 'share' sum to 1, but .* multiply them by 128"):
        tree.fit_files(tmp_path / "rows.parquet", "y", weights="share", n_workers=1)
