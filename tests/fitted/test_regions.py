"""Agreement of the draws with the printed tree, and the regions of its nodes and leaves."""

import numpy as np
import pandas as pd
import pytest

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.diagnostics.draws import Matches
from bayestree.diagnostics.uncertainty import RuleProbability, Splits, region_shares
from bayestree.inference import Svi
from bayestree.plots import boundary
from bayestree.topology import Topology

N = 200
SVI = Svi(epochs=6, n_draws=20)
QUICK = {"inference": SVI, "max_depth": 2, "n_experts": 3, "random_state": 0}


def table(seed=0):
    """Two numbers, of which some are missing, a category, and three classes."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    X["colour"] = rng.choice(["red", "green"], N)
    score = X["a"] + (X["colour"] == "red") + rng.normal(size=N) / 2
    y = np.digitize(score, [-0.3, 1.2])
    X.loc[rng.random(N) < 0.1, "b"] = np.nan
    return X, y


@pytest.fixture(scope="module", params=[1, 2])
def fitted(request):
    X, y = table()
    return ConvexPolytopeTreeClassifier(n_modes=request.param, **QUICK).fit(X, y), X


def stump(*intercepts):
    """Draws of a logistic stump in one feature, x + b > 0 goes right, as one chain."""
    b = np.reshape(intercepts, (1, -1, 1, 1)).astype(float)
    return {"hyperplane": np.ones((*b.shape, 1)), "intercept": b}


def test_shares_of_a_stump():
    X, right = np.array([[-2.0], [0.0], [3.0]]), np.array([[False], [True], [True]])
    draws = stump(-1, 0.5, 1, 2.5)
    node, region, reached = region_shares(
        draws, X, right, Splits(Topology.stump(), Matches.fixed(np.arange(1), draws))
    )
    np.testing.assert_allclose(node[:, 0], [0.75, 0.75, 1])
    np.testing.assert_allclose(region, [[1, 0.75, 0.25], [1, 0.25, 0.75], [1, 0, 1]])
    assert reached.tolist() == [[True, True, False], [True, False, True], [True, False, True]]


def test_a_path_is_taken_as_a_whole():
    """Each draw disagrees about one of two splits: each split has one half, the path no draw."""
    topology = Topology.complete(2)
    b = np.array([[[-1.0, 1.0, 0.5], [1.0, 1.0, -1.0]]])[..., None]
    draws = {"hyperplane": np.zeros((*b.shape, 1)), "intercept": b}
    node, region, reached = region_shares(
        draws,
        np.zeros((1, 1)),
        np.array([[False, False, False]]),
        Splits(topology, Matches.fixed(np.arange(topology.n_nodes), draws)),
    )
    np.testing.assert_allclose(node, [[0.5, 0, 0.5]])
    labels = [*topology.node_labels, *topology.leaf_labels]
    found = dict(zip(labels, region[0], strict=True))
    assert {name for name, share in found.items() if share == 0.5} == {"L", "R", "LR", "RL"}
    assert [name for name, there in zip(labels, reached[0], strict=True) if there] == [
        "root",
        "L",
        "LL",
    ]


def test_the_agreement_at_a_node_is_that_of_its_rows():
    """Two of three rows reach L, about whose split three quarters of the draws agree there."""
    reached = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 0, 0, 1]], dtype=bool)
    node = np.array([[1.0, 0.5], [1.0, 1.0], [0.7, 0.0]])
    labels = ("root", "L", "LL", "LR", "R")
    found = RuleProbability(node, reached * 1.0, reached, None, node, ("a", "b"), labels, 0.9)
    np.testing.assert_allclose(found.to_frame()["agreement"], [0.9, 0.75, *[np.nan] * 3])


def test_against_the_uncertainty_of_the_splits(fitted):
    clf, X = fitted
    shown = clf.modes_[clf.fitted_.medoid] if clf.fitted_.several else clf
    found, splits = clf.rule_probability(X), shown.split_uncertainty(X)
    np.testing.assert_allclose(found.node, 1 - splits.disagreement)
    tree, rows = clf.tree_, clf.encoding_.encode(X).to_numpy()
    np.testing.assert_array_equal(found.reached, tree.decision_path(rows).toarray())
    n_nodes = tree.n_nodes
    np.testing.assert_allclose(found.region[:, n_nodes:].sum(axis=1), 1)
    np.testing.assert_allclose(found.region[:, 0], 1)
    path = found.region[np.arange(len(X)), n_nodes + tree.apply(rows)]
    np.testing.assert_allclose(found.path, path)
    assert (found.path <= np.where(found.reached[:, :n_nodes], found.node, 1).min(axis=1)).all()
    assert (found.inner <= found.outer).all()
    assert found.to_frame()["inner"].le(found.to_frame()["outer"]).all()


def test_the_class_is_asked_of_every_mode(fitted):
    clf, X = fitted
    found = clf.rule_probability(X)
    own = clf.tree_.predict(clf.encoding_.encode(X).to_numpy()).argmax(axis=1)
    total = np.zeros(N)
    for tree, weight in clf.fitted_:
        standard = tree.scaling.standardise(clf.encoding_.encode(X).to_numpy())
        each = np.concatenate([*tree.posterior.expectations(standard)])
        total = total + weight * (each.argmax(axis=-1) == own).mean(axis=0)
    np.testing.assert_allclose(found.prediction, total)
    assert (found.prediction <= 1 + 1e-9).all()
    text = str(found)
    assert f"{100 * found.path.mean():.1f} % send a row to its leaf" in text
    assert f"{100 * total.mean():.1f} % predict its class (mean over {N} rows)" in text


def test_tables(fitted):
    clf, X = fitted
    found = clf.rule_probability(X, level=0.5)
    by_row = found.to_frame("row")
    assert by_row["leaf"].tolist() == [
        found.labels[clf.tree_.n_nodes + leaf] for leaf in clf.apply(X)
    ]
    rows = clf.encoding_.encode(X)
    extent = found.to_frame("column")
    for v, name in enumerate(found.labels):
        inside = rows["a"][found.region[:, v] >= 0.75]
        if len(inside):
            assert extent.loc[(name, "a"), ("inner", "low")] == inside.min()
            assert extent.loc[(name, "a"), ("inner", "high")] == inside.max()
    with pytest.raises(ValueError, match="by must be"):
        found.to_frame("leaf")
    with pytest.raises(ValueError, match="level must lie"):
        clf.rule_probability(X, level=1.0)


def test_one_draw_and_one_leaf():
    X, y = table()
    X = X[["a"]]
    grown = ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, n_modes=1, random_state=0)
    found = grown.fit(X, y > 0).rule_probability(X)
    np.testing.assert_array_equal(found.path, 1)
    np.testing.assert_array_equal(found.inner, found.reached)
    alone = ConvexPolytopeTreeClassifier(n_modes=1, min_gain=1e9, **QUICK)
    with pytest.warns(UserWarning, match="single leaf"):
        leaf = alone.fit(X, y)
    found = leaf.rule_probability(X)
    assert found.labels == leaf.tree_.topology.leaf_labels
    np.testing.assert_array_equal(found.path, 1)
    assert found.to_frame()["inner"].tolist() == [1.0]


def test_numbers_and_refusals():
    X, y = table()
    X = X[["a"]]
    reg = ConvexPolytopeTreeRegressor(n_modes=1, **QUICK)
    found = reg.fit(X, y).rule_probability(X)
    assert found.prediction is None
    assert "predict" not in str(found)
    assert "prediction" not in found.to_frame("row")
    with pytest.raises(ValueError, match=r"use output\(0\).rule_probability"):
        reg.fit(X, np.column_stack([y, y])).rule_probability(X)


def test_the_picture_has_both_edges():
    X, y = table()
    X = X[["a", "colour"]].assign(colour=np.arange(N) % 7 * 1.0)
    clf = ConvexPolytopeTreeClassifier(n_modes=1, **QUICK).fit(X, y)
    ax = boundary(clf, X, y, region="L", resolution=40)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"L in 5 % of draws", "L in 95 % of draws"} <= {*labels}
    with pytest.raises(ValueError, match=r"region must be one of root, .*got 'X'"):
        boundary(clf, X, y, region="X", resolution=40)
    grown = ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, n_modes=1, random_state=0)
    with pytest.raises(ValueError, match="region needs the draws"):
        boundary(grown.fit(X, y), X, y, region="L")
