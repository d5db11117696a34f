"""Trees whose predictions are monotone in some columns."""

import numpy as np
import pandas as pd
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    load,
)
from bayestree.fitting.engine import with_ordered_leaves
from bayestree.inference import Map, Svi
from bayestree.topology import Topology
from bayestree.tree import Tree

MAP, SVI = Map(epochs=10, steepness=None), Svi(epochs=10, n_draws=5)
CHEAP = {"max_depth": 2, "n_experts": 3, "inference": SVI, "n_modes": 1}
CHEAP |= {"monotonic_cst": [1, -1, 0], "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    """A response that rises with x0, and with x1 as well, against the constraint."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    y = np.tanh(2 * X[:, 0]) + 0.7 * X[:, 1] + np.abs(X[:, 2]) + 0.3 * rng.normal(size=240)
    return X, y


def assert_monotone(predict, X, directions):
    """Along each constrained column from 12 rows; a prediction may leave out a share of 1e-6."""
    for column, direction in directions.items():
        line = np.repeat(X[:12], 40, axis=0)
        line[:, column] = np.tile(np.linspace(-4, 4, 40), 12)
        steps = np.diff(predict(line).reshape(12, 40), axis=1)
        assert (direction * steps >= -1e-5).all()


METHODS = {
    "grow": {"inference": "grow"},
    "map": {"inference": MAP, "n_experts": 1},
    "svi": {},
    "modes": {"inference": MAP, "n_modes": 2, "max_depth": 1},
}


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
def test_probabilities_are_monotone(rows, settings):
    X, y = rows
    clf = ConvexPolytopeTreeClassifier(**CHEAP | settings).fit(X, np.where(y > 0.5, "yes", "no"))
    assert clf.get_n_leaves() > 1
    assert_monotone(lambda rows: clf.predict_proba(rows)[:, 1], X, {0: 1, 1: -1})
    assert_monotone(lambda rows: clf.tree_.predict(rows)[:, 1], X, {0: 1, 1: -1})


def test_every_draw_is_monotone(rows):
    """Also where leaves are alike, whose free posteriors are in any order."""
    X, _ = rows
    y = np.random.default_rng(1).random(len(X)) < 0.5
    clf = ConvexPolytopeTreeClassifier(
        min_gain=0, **CHEAP | {"inference": Svi(epochs=5, n_draws=20)}
    )
    clf.fit(X, y)
    posterior = clf.posterior_
    line = np.repeat(clf.fitted_.scaling.standardise(X[:4]), 40, axis=0)
    line[:, 0] = np.tile(np.linspace(-9, 9, 40), 4)
    draws = np.concatenate(list(posterior.expectations(line)))[..., 1]
    assert draws.shape == (20, 160)
    assert (np.diff(draws.reshape(20, 4, 40)) >= -1e-5).all()
    np.testing.assert_allclose(posterior.draws["leaf_probs"].sum(-1), 1)


@pytest.mark.parametrize("leaf", ["constant", "poisson"])
def test_means_and_rates_are_monotone(rows, leaf):
    X, y = rows
    y = y if leaf == "constant" else np.floor(np.exp(y / 2))
    inference = SVI if leaf == "constant" else MAP
    reg = ConvexPolytopeTreeRegressor(leaf=leaf, **CHEAP | {"inference": inference}).fit(X, y)
    assert reg.get_n_leaves() > 1
    assert_monotone(reg.predict, X, {0: 1, 1: -1})
    assert_monotone(reg.tree_.predict, X, {0: 1, 1: -1})
    free = reg.set_params(monotonic_cst=None, inference=MAP).fit(X, y)
    with pytest.raises(AssertionError):
        assert_monotone(free.predict, X, {1: -1})


@pytest.fixture(scope="module")
def table(rows):
    """Columns by name: gaps, ordered categories, a constant, and text."""
    X, y = rows
    frame = pd.DataFrame({"a": X[:, 0], "constant": 1.0, "b": X[:, 1], "text": "u"})
    frame.loc[::7, "a"] = np.nan
    frame.loc[::2, "text"] = "v"
    grades = pd.cut(X[:, 2], [-9, -0.5, 0.5, 9], labels=["low", "middle", "high"])
    return frame.assign(grade=grades), y


@pytest.fixture(scope="module")
def named(table):
    frame, y = table
    signs = {"a": 1, "b": 1, "grade": -1, "constant": 1, "text": 0}
    reg = ConvexPolytopeTreeRegressor(**CHEAP | {"inference": MAP, "monotonic_cst": signs})
    with pytest.warns(UserWarning, match="constant"):
        return reg.fit(frame, y)


def test_columns_by_name(named, table):
    frame = table[0][1:60:7]
    line = frame.loc[frame.index.repeat(30)].assign(a=np.tile(np.linspace(-4, 4, 30), len(frame)))
    assert (np.diff(named.predict(line).reshape(-1, 30), axis=1) >= -1e-5).all()
    grades = [named.predict(frame.assign(grade=grade)) for grade in ("low", "middle", "high")]
    assert (np.diff(grades, axis=0) <= 1e-5).all()
    signs = dict(zip(named.tree_.feature_names, named.posterior_.model.monotone, strict=True))
    assert {name for name, sign in signs.items() if sign == -1} == {"grade>=middle", "grade>=high"}
    assert signs["a missing"] == signs["text=v"] == 0


def test_files_and_warm_starts_keep_the_constraint(named, table, tmp_path):
    named.save(tmp_path / "tree.safetensors")
    restored = load(tmp_path / "tree.safetensors")
    assert restored.posterior_.model.monotone == named.posterior_.model.monotone
    assert restored.monotonic_cst == named.monotonic_cst
    restored.set_params(warm_start=True, inference=Map(epochs=2, steepness=None)).fit(*table)
    assert restored.posterior_.model.topology == named.posterior_.model.topology
    with pytest.raises(ValueError, match="another monotonic_cst"):
        restored.set_params(monotonic_cst=None).fit(*table)


REFUSED = [
    ({"monotonic_cst": [1, 0]}, "a number for each column of X, 3, got 2"),
    ({"monotonic_cst": [2, 0, 0]}, "a list of -1 or 0 or 1 for each column, or a dict"),
    ({"monotonic_cst": {"x9": 1}}, "monotonic_cst: 'x9' is not a column"),
    ({"inference": "nuts"}, "cannot keep predictions monotone"),
    ({"inference": "smc"}, "cannot keep predictions monotone"),
    ({"inference": Svi(guide="AutoNormal", n_draws=5)}, "cannot keep predictions monotone"),
    ({"inference": Svi(covariance="expert", n_draws=5)}, "cannot keep predictions monotone"),
    ({"inference": Map(engine="pyro")}, "each with engine='direct'"),
    ({"leaf": "linear"}, "leaf='constant' or 'poisson'"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_refused(rows, settings, message):
    X, y = rows
    with pytest.raises(ValueError, match=message):
        ConvexPolytopeTreeRegressor(**CHEAP | settings).fit(X, y)


def test_other_responses_are_refused(rows, table):
    X, y = rows
    with pytest.raises(ValueError, match="two classes, or one output"):
        ConvexPolytopeTreeClassifier(**CHEAP).fit(X, np.digitize(y, [0, 1]))
    with pytest.raises(ValueError, match="two classes, or one output"):
        ConvexPolytopeTreeRegressor(**CHEAP).fit(X, np.column_stack((y, y)))
    frame = table[0].drop(columns="constant")
    with pytest.raises(ValueError, match="'text' contains binary"):
        ConvexPolytopeTreeRegressor(monotonic_cst={"text": 1}).fit(frame, y)
    assert not hasattr(ConvexPolytopeTreeRegressor(**CHEAP), "partial_fit")
    assert "monotonic_cst" not in ConvexPolytopeTreeSurvival().get_params()


def test_splits_without_monotone_features_order_nothing():
    """Below a split of x0, which must rise, the left leaf of a split of x1 may be the larger."""
    unit = {"center": np.zeros(2), "scale": np.ones(2)}
    planes = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    topology = Topology(np.array([[~0, 1], [~1, ~2]]))
    tree = Tree.from_standardised(topology, np.ones((2, 1)), planes, np.zeros((2, 1)), **unit)
    tree = tree._with(value=np.array([0.0, 5.0, 3.0]), leaf_rows=np.array([10.0, 10.0, 20.0]))
    assert with_ordered_leaves(tree, (1, 0)).value.tolist() == [0.0, 5.0, 3.0]
    assert with_ordered_leaves(tree, (-1, 0)).value == pytest.approx([2.75, 2.75, 2.75])
    pooled = with_ordered_leaves(tree, (1, 1)).value
    assert pooled == pytest.approx([0.0, 11 / 3, 11 / 3])
