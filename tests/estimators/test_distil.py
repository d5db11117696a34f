"""A single tree that is distilled from several modes."""

import numpy as np
import pytest
from sklearn.base import clone

import bayestree as bt
from bayestree.estimators import _modes
from bayestree.estimators._modes import simulated_rows
from bayestree.inference import Map, Svi

QUICK = {"max_depth": 2, "n_experts": 3, "n_draws": 20, "random_state": 0}
DISTILLED = {"n_modes": 2, "mode_tree": "distilled", "inference": Svi(epochs=4)}


@pytest.fixture(scope="module")
def distilled(iris):
    return bt.ConvexPolytopeTreeClassifier(**DISTILLED, **QUICK).fit(*iris)


@pytest.fixture(scope="module")
def regressor(values):
    return bt.ConvexPolytopeTreeRegressor(**DISTILLED, **QUICK).fit(*values)


def test_only_the_tree_differs(iris, distilled):
    X, y = iris
    medoid = clone(distilled).set_params(mode_tree="medoid").fit(X, y)
    np.testing.assert_array_equal(distilled.predict_proba(X), medoid.predict_proba(X))
    np.testing.assert_array_equal(distilled.mode_weights_, medoid.mode_weights_)
    own, other = distilled.tree_.predict(X), medoid.tree_.predict(X)
    assert not np.array_equal(own, other)
    assert distilled.get_n_leaves() <= medoid.get_n_leaves()
    assert clone(distilled).set_params(prediction="tree").fit(X, y).score(X, y) > 0.9


def test_the_same_seed_gives_the_same_tree(values, regressor):
    again = clone(regressor).fit(*values)
    for name, array in regressor.tree_.arrays().items():
        np.testing.assert_array_equal(again.tree_.arrays()[name], array)


def test_leaves_are_means_of_the_mixture(monkeypatch, values, regressor):
    monkeypatch.setattr(_modes, "SIMULATED", 0)
    found = clone(regressor).fit(*values)
    leaf, mean = found.apply(values[0]), found.predict(values[0])
    expected = np.bincount(leaf, mean) / np.bincount(leaf)
    np.testing.assert_allclose(found.tree_.value, expected)
    assert not np.array_equal(found.tree_.predict(values[0]), regressor.tree_.predict(values[0]))


def test_leaves_predict_the_mixture(values, regressor):
    """The squared distance is less than that of any constant, and leaves have real rows."""
    X, _ = values
    mean = regressor.predict(X)
    own = regressor.tree_.predict(X)
    assert np.mean((own - mean) ** 2) < mean.var()
    assert regressor.tree_.leaf_rows.sum() == len(X)
    assert (regressor.tree_.leaf_rows > 0).all()
    np.testing.assert_array_equal(np.bincount(regressor.apply(X)), regressor.tree_.leaf_rows)


def test_classes_count_relative_to_their_shares():
    """A class that is never probable counts where it is less rare than elsewhere."""
    mean = np.array([[0.9, 0.1], [0.98, 0.02], [0.99, 0.01], [0.99, 0.01]])
    found = _modes._labelled(np.arange(4.0)[:, None], mean, np.ones(4), ("a", "b"), 2.0)
    prior = 0.035
    share = 0.1**2 / prior / (0.1**2 / prior + 0.9**2 / (1 - prior))
    np.testing.assert_array_equal(found.X[:, 0], [0, 0, 1, 2, 3])
    np.testing.assert_array_equal(found.y, [0, 1, 0, 0, 0])
    np.testing.assert_allclose(found.weights, [1 - share, share, 1, 1, 1])
    absent = _modes._labelled(np.zeros((1, 1)), np.array([[1.0, 0.0]]), np.ones(1), ("a", "b"))
    np.testing.assert_array_equal(absent.weights, [1.0])


@pytest.mark.parametrize("starts", [False, True])
def test_the_tree_that_agrees_best_is_kept(monkeypatch, iris, distilled, starts):
    monkeypatch.setattr(
        _modes, "_agreement", lambda found, *_: found.parameters["warm_start"] == starts
    )
    assert clone(distilled).fit(*iris).fitted_.distilled.parameters["warm_start"] is starts


def test_agreement_is_what_the_mixture_expects(values, iris, distilled, regressor):
    X, mean = iris[0], distilled.predict_proba(iris[0])
    chosen = distilled.tree_.predict(X).argmax(axis=1)
    weights = np.arange(len(X))
    expected = np.average(mean[np.arange(len(X)), chosen], weights=weights)
    assert _modes._agreement(distilled.fitted_.shown, X, mean, weights) == pytest.approx(expected)
    units, (X, _) = regressor._scaling.units, values
    apart = (regressor.tree_.predict(X) - regressor.predict(X)) / units.y_scale
    found = _modes._agreement(
        regressor.fitted_.shown, X, units.encode(regressor.predict(X)), np.ones(len(X))
    )
    assert found == pytest.approx(-np.mean(apart**2))


def test_the_posterior_is_that_of_its_splits(iris, distilled):
    assert distilled.posterior_.n_draws == 20
    nodes = distilled.fitted_.shown.reach.nodes
    assert len(nodes) == distilled.tree_.n_nodes
    assert nodes.max() < distilled.posterior_.model.topology.n_nodes
    assert distilled.posterior_.model.steepness == distilled.modes_[0].posterior_.model.steepness
    sizes = distilled.polytope_size(10)
    assert [*sizes.to_frame().index] == [*distilled.tree_.topology.node_labels]
    uncertain = distilled.split_uncertainty(iris[0])
    assert uncertain.mean.shape == (150, distilled.tree_.n_nodes)
    assert "facet" in str(distilled.facets())
    assert "Shrinkage" in type(distilled.shrinkage()).__name__


def test_its_posterior_is_judged(iris, distilled):
    found = distilled.check_convergence(iris[0])
    own = distilled._view(distilled.fitted_.distilled).check_convergence(iris[0])
    assert found["distilled tree: elbo"].value == own["elbo"].value
    assert "distilled tree: elbo" not in distilled.modes_[0].check_convergence(iris[0])


def test_the_number_of_leaves_is_limited(iris):
    X, y = iris
    found = bt.ConvexPolytopeTreeClassifier(**DISTILLED, **QUICK, max_leaves=2).fit(X, y)
    assert found.get_n_leaves() == 2


def test_files_hold_the_tree(tmp_path, iris, distilled):
    distilled.save(tmp_path / "tree.bt")
    loaded = bt.load(tmp_path / "tree.bt")
    for name, array in distilled.tree_.arrays().items():
        np.testing.assert_array_equal(loaded.tree_.arrays()[name], array)
    np.testing.assert_array_equal(loaded.predict_proba(iris[0]), distilled.predict_proba(iris[0]))
    assert str(loaded.polytope_size(10)) == str(distilled.polytope_size(10))
    loaded.save(tmp_path / "again.bt")
    assert (tmp_path / "again.bt").read_bytes() == (tmp_path / "tree.bt").read_bytes()


def test_texts_name_it(distilled):
    assert "a single tree distilled from the predictions of 2 modes" in bt.export_text(distilled)


@pytest.mark.parametrize("inference", [Map(epochs=4, steepness=None), "grow"], ids=str)
def test_point_estimates(values, inference):
    X, y = values
    settings = QUICK | DISTILLED | {"inference": inference}
    found = bt.ConvexPolytopeTreeRegressor(**settings).fit(X, y)
    assert found.posterior_.n_draws == 1
    assert found.posterior_.inference == "map"
    assert found.tree_.n_nodes


def test_unused_columns_and_weights(values):
    X, y = values
    wide = np.column_stack([X[:, :3], np.ones(len(X)), X[:, 0]])
    weights = np.arange(len(X)) % 3
    with pytest.warns(bt.UnusedColumnsWarning):
        found = bt.ConvexPolytopeTreeRegressor(**DISTILLED, **QUICK).fit(wide, y, weights)
    assert not found.tree_.hyperplane[:, 3:].any()
    assert found.tree_.leaf_rows.sum() == pytest.approx(weights.sum())
    assert found.posterior_.draws["hyperplane"].shape[-1] == 5


def test_where_the_nearest_mode_has_no_split():
    X = np.random.default_rng(0).normal(size=(40, 2))
    found = bt.ConvexPolytopeTreeClassifier(min_gain=20, **DISTILLED, **QUICK)
    with pytest.warns(bt.SingleLeafWarning):
        found.fit(X, np.arange(40) % 2)
    assert found.get_n_leaves() == 1
    assert found.fitted_.distilled is None


def test_simulated_rows_lie_between_neighbours():
    rng = np.random.RandomState(0)
    group = np.arange(60) % 3
    X = np.column_stack(
        [10.0 * group + rng.uniform(size=60), rng.randint(9, size=60), np.eye(3)[group]]
    )
    standardised = (X - X.mean(0)) / X.std(0)
    weights = np.where(group == 2, 0.0, 1.0)
    found = simulated_rows(X, standardised, weights, 200, rng)
    assert found.shape == (200, 5)
    # encoded categories are kept whole, and with them the column on which they differ
    assert (found[:, 2:].sum(axis=1) == 1).all()
    assert np.isin(found[:, 2:], [0, 1]).all()
    assert not found[:, 4].any()  # rows without weight are not drawn
    part = found[:, 2:].argmax(axis=1)
    assert ((found[:, 0] >= 10 * part) & (found[:, 0] <= 10 * part + 1)).all()
    assert (found[:, 1] == np.rint(found[:, 1])).all()
    assert len(np.unique(found[:, 0])) > 190


def test_few_rows_are_their_own_neighbours():
    X = np.array([[0.0], [1.0]])
    found = simulated_rows(X, X, np.ones(2), 20, np.random.RandomState(0))
    assert np.isin(found, [0, 1]).all()
