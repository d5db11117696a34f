"""Fits that continue from the fitted tree."""

from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch

from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndTreeClassifier,
    SingleLeafWarning,
    UnusedColumnsWarning,
    load,
)
from bayestree.inference import Map, Svi, memory_mapped
from bayestree.models import Laplace, Network

QUICK = {
    "n_modes": 1,
    "max_depth": 2,
    "n_experts": 3,
    "random_state": 0,
    "warm_start": True,
}
MAP, SVI = Map(epochs=3, steepness=None), Svi(epochs=3, n_draws=4)
STILL = {
    "inference": Map(epochs=1, learning_rate=1e-9, steepness=None)
}  # a refinement that stays at its start


def rows(n=300, seed=0):
    """Rows inside and outside a disc, and on either side of a line outside it."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    inside = X[:, 0] ** 2 + X[:, 1] ** 2 < 1
    return X, np.where(inside, "in", np.where(X[:, 2] > 0, "up", "down"))


def numbers(n=300, seed=0):
    X, labels = rows(n, seed)
    return X, 3.0 * (labels == "in") + 1.0 * (labels == "up") + 0.01 * X[:, 0]


def classifier(**settings):
    return ConvexPolytopeTreeClassifier(**QUICK | {"inference": MAP} | settings)


def regressor(**settings):
    return ConvexPolytopeTreeRegressor(**QUICK | {"inference": MAP} | settings)


def assert_same_splits(found, expected):
    assert found.posterior_.model.topology == expected.posterior_.model.topology
    for name in ("hyperplane", "intercept", "log_weight"):
        now, before = found.posterior_.point[name], expected.posterior_.point[name]
        np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-7)


def linear(n_features):
    return torch.nn.Linear(n_features, 1)


@pytest.mark.portable
def test_map_continues_where_it_ended():
    X, y = rows()
    # Where splits are steep, the leaves of the deterministic tree, with which it starts, suit them.
    clf = classifier(inference=Map(epochs=5, batch_size=len(X), steepness=20.0)).fit(X, y)
    first = clf.posterior_.stats["log_joint"]
    assert clf.posterior_.model.topology.n_nodes > 1
    second = clf.fit(X, y).posterior_.stats["log_joint"]
    # A new fit with the same seed and steps would give the same values again. Five steps on all
    # rows, without the noise of minibatches, are far from the optimum.
    assert second[0] > (first[0] + first[-1]) / 2
    assert second[-1] > first[-1]


@pytest.mark.parametrize(("kind", "draw"), [(classifier, rows), (regressor, numbers)])
def test_splits_and_units_are_kept_on_other_rows(kind, draw):
    clf = kind().fit(*draw())
    before = deepcopy(clf)
    X, y = draw(200, seed=1)
    clf.set_params(**STILL).fit(1.2 * X + 0.1, y)
    assert_same_splits(clf, before)
    for kept, unit in zip(clf.fitted_.scaling.units, before.fitted_.scaling.units, strict=True):
        np.testing.assert_array_equal(kept, unit)


def test_leaves_are_those_of_the_new_rows():
    X, y = rows()
    clf = classifier().fit(X, y).set_params(**STILL).fit(X, y)
    before = clf.predict_proba(X)
    turned = {"down": "in", "in": "up", "up": "down"}
    clf.fit(X, [turned[one] for one in y])
    np.testing.assert_allclose(clf.predict_proba(X), before[:, [2, 0, 1]], atol=1e-5)

    X, y = numbers()
    reg = regressor().fit(X, y).set_params(**STILL).fit(X, y)
    before = reg.predict(X)
    reg.fit(X, 2 * y.mean() - y)
    np.testing.assert_allclose(reg.predict(X), 2 * y.mean() - before, atol=1e-5)


def test_without_refinement_only_leaves_change():
    X, y = rows()
    clf = classifier(inference="grow").fit(X, y)
    before = deepcopy(clf)
    clf.fit(*rows(200, seed=1))
    assert_same_splits(clf, before)
    assert (clf.tree_.leaf_rows.sum(), before.tree_.leaf_rows.sum()) == (200, 300)


def test_svi_continues_from_map():
    X, y = rows()
    clf = classifier(inference=Map(epochs=3, learning_rate=1e-9, steepness=None)).fit(X, y)
    before = deepcopy(clf)
    clf.set_params(inference=Svi(epochs=3, learning_rate=1e-9, n_draws=4)).fit(X, y)
    assert clf.posterior_.inference == "svi"
    assert clf.posterior_.n_draws == 4
    assert_same_splits(clf, before)


def test_the_steepness_continues_unless_the_method_has_its_own():
    X, y = rows()
    clf = classifier(inference=Map(epochs=2, steepness=8.0)).fit(X, y)
    assert clf.set_params(inference__steepness=20.0).plan(X, y).last.steepness == (8.0, 20.0)
    given = Map(epochs=2)
    assert clf.set_params(inference=given).plan(X, y).last == given
    assert classifier(inference=Map(steepness=20.0)).plan(X, y).last.steepness == (1.0, 20.0)


def test_another_prior_starts_from_the_same_splits():
    X, y = rows()
    clf = classifier(inference=SVI).fit(X, y)
    before = deepcopy(clf)
    clf.set_params(prior=Laplace(0.1, 10.0), **STILL).fit(X, y)
    assert_same_splits(clf, before)


@pytest.mark.parametrize("kind", [classifier, regressor])
@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
def test_unused_columns_stay_unused(kind):
    X, y = (rows if kind is classifier else numbers)()
    clf = kind().fit(np.column_stack([X[:, 0], np.ones(len(X)), X]), y)
    before = deepcopy(clf)
    noise = np.random.default_rng(1).normal(size=(len(X), 2))
    new = np.column_stack([X[:, 0], noise, X[:, 1:]])
    clf.set_params(**STILL).fit(new, y)
    assert_same_splits(clf, before)
    assert not clf.posterior_.point["hyperplane"][..., [1, 2]].any()
    assert not clf.tree_.arrays()["hyperplane"][:, [1, 2]].any()


def test_false_fits_anew():
    X, y = rows()
    new_rows = rows(200, seed=1)
    expected = classifier(warm_start=False).fit(*new_rows)
    for warm in (False, True):  # a first fit has nothing to continue from
        clf = classifier(warm_start=warm).fit(*new_rows)
        np.testing.assert_array_equal(clf.predict_proba(X), expected.predict_proba(X))
    clf = classifier(warm_start=False).fit(X, y).fit(*new_rows)
    np.testing.assert_array_equal(clf.predict_proba(X), expected.predict_proba(X))


@pytest.mark.parametrize(
    ("tree", "draw"),
    [
        (classifier(inference=SVI), rows),
        (regressor(), numbers),
        (AlternatingTreeClassifier(max_depth=2, sweeps=1, l1=0.1, warm_start=True), rows),
        (EndToEndTreeClassifier(max_depth=2, epochs=5, warm_start=True, random_state=0), rows),
    ],
)
def test_a_loaded_tree_continues_like_the_saved_one(tree, draw, tmp_path):
    X, y = draw()
    X = np.column_stack([np.ones(len(X)), X])
    with pytest.warns(UnusedColumnsWarning):
        tree.fit(X, y)
    tree.save(tmp_path / "tree.safetensors")
    found = load(tmp_path / "tree.safetensors")
    assert found.warm_start
    other = draw(200, seed=1)
    new = np.column_stack([other[0][:, 0], other[0]]), other[1]
    for one in (tree, found):
        one.set_params(random_state=3).fit(*new)
    np.testing.assert_array_equal(found.predict(X), tree.predict(X))
    for name, value in tree.posterior_.point.items():
        np.testing.assert_array_equal(found.posterior_.point[name], value)


@pytest.mark.parametrize("split", ["oblique", Network(linear)])
def test_em_continues_at_its_steepness(split):
    X, y = rows()
    settings = {"epochs": 10, "steepness_step": 0.5, "random_state": 0, "warm_start": True}
    clf = EndToEndTreeClassifier(max_depth=2, split=split, **settings).fit(X, y)
    before = deepcopy(clf).posterior_
    assert before.model.topology.n_nodes > 0
    clf.set_params(refine_epochs=3, learning_rate=1e-12).fit(X, y)
    found = clf.posterior_
    assert found.model.topology == before.model.topology
    assert found.model.steepness == before.model.steepness + 2 * 0.5
    for name in found.model.split.parameters(before.point):
        np.testing.assert_allclose(found.point[name], before.point[name], rtol=1e-5, atol=1e-9)
    clf.set_params(refine_epochs=0).fit(X, y)
    assert clf.posterior_.model.steepness == found.model.steepness


@pytest.mark.parametrize("leaf", ["constant", "linear"])
def test_alternating_optimisation_continues(leaf):
    X, y = numbers()
    settings = {"leaf": leaf, "l1": 0.01, "min_leaf": 1, "random_state": 0}
    reg = AlternatingTreeRegressor(max_depth=3, sweeps=1, warm_start=True, **settings).fit(X, y)
    first = reg.posterior_.stats["loss"]
    second = reg.set_params(sweeps=10).fit(X, y).posterior_.stats["loss"]
    # Under a penalty the best tree is one after a sweep; its start has the same leaves' values.
    np.testing.assert_allclose(second[0], first[-1], rtol=1e-6)
    assert second.min() <= second[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[:, :2], y), "X has 2 features, but .* expecting 3 .*warm_start=False"),
        (
            lambda X, y: (X, np.where(y == "up", "over", y)),
            r"has the new classes \['over'\] and lacks .*\['up'\].*False",
        ),
        (lambda X, y: (X[y != "up"], y[y != "up"]), r"but y lacks the classes \['up'\]"),
    ],
)
def test_other_rows_are_refused(change, message):
    X, y = rows()
    clf = classifier().fit(X, y)
    before = clf.predict_proba(X)
    with pytest.raises(ValueError, match=message):
        clf.fit(*change(X, y))
    np.testing.assert_array_equal(clf.predict_proba(X), before)


def test_other_names_of_features_are_refused():
    X, y = numbers()
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    reg = regressor().fit(table, y)
    with pytest.raises(ValueError, match=r"(?s)The feature names.*- d.*set warm_start=False"):
        reg.fit(table.rename(columns={"c": "d"}), y)
    with pytest.raises(ValueError, match="contains infinity") as caught:
        reg.fit(table.where(table > 0, np.inf), y)
    assert "warm_start" not in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "changed", "message"),
    [
        (classifier(), {"n_experts": 4}, r"n_experts=3\).*n_experts=4\).*set warm_start=False"),
        (classifier(), {"n_experts": 1}, "Oblique"),
        (AlternatingTreeClassifier(warm_start=True), {"split": "axis"}, r"max_features=1\)"),
    ],
)
def test_splits_of_another_form_are_refused(tree, changed, message):
    X, y = rows()
    tree.fit(X, y).set_params(**changed)
    with pytest.raises(ValueError, match=message):
        tree.fit(X, y)


@pytest.mark.parametrize(
    ("tree", "changed"),
    [
        (classifier(min_gain=1e6), {"min_gain": 0.0}),
        (AlternatingTreeClassifier(l1=1e6, warm_start=True), {"l1": 0.0}),
    ],
)
def test_a_single_leaf_stays(tree, changed):
    X, y = rows()
    with pytest.warns(SingleLeafWarning):
        tree.fit(X, y)
    tree.set_params(**changed)
    with pytest.warns(SingleLeafWarning, match="set warm_start=False"):
        tree.fit(X, y)
    assert tree.get_n_leaves() == 1


def test_rows_in_a_file(tmp_path, monkeypatch):
    X, y = rows()
    mapped = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    clf = classifier().fit(X, y)
    before = deepcopy(clf)
    monkeypatch.setattr(memory_mapped, "HELD", 100)
    assert_same_splits(clf.set_params(**STILL).fit(mapped, y), before)
