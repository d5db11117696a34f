"""Shapley values, partial dependence and interactions, against sums by brute force."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.inspection import (
    PartialDependenceDisplay,
    partial_dependence,
    permutation_importance,
)

import bayestree
from bayestree.explain.dependence import interactions, shapley_values
from bayestree.tables import Encoding, Features, Numbers
from bayestree.topology import Topology
from tests.estimators.modes import weighted
from tests.explain.test_counterfactual import table as moves_table
from tests.fitted_cases import BY_SVI, SMALL, rows, trained
from tests.plots.cases import drawn, make_tree

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def posterior():
    X, y, _ = rows()
    return bayestree.ConvexPolytopeTreeClassifier(
        inference=replace(BY_SVI, n_draws=4), n_modes=2, n_experts=3, **SMALL
    ).fit(X, y)


@pytest.fixture(scope="module")
def regressor():
    X, _, y = rows()
    return bayestree.ConvexPolytopeTreeRegressor(
        inference=replace(BY_SVI, n_draws=6), n_modes=1, n_experts=3, **SMALL
    ).fit(X, y)


@pytest.mark.parametrize("n_classes", [0, 3])
def test_shapley_values_are_means_over_all_orders(n_classes):
    tree = make_tree(topology=Topology.complete(3), n_features=4, n_classes=n_classes, seed=1)
    plane = tree.hyperplane.copy()
    plane[:, 2] = 0.0  # a feature that the tree does not use
    tree = replace(tree, hyperplane=plane)
    rng = np.random.default_rng(0)
    X, background = rng.normal(size=(3, 4)), rng.normal(size=(30, 4))
    names = tuple("abc")[:n_classes]
    found = shapley_values([(1.0, tree)], X, background, names, columns(4))

    def value(x, known):
        mixed = background.copy()
        mixed[:, known] = x[known]
        return np.atleast_1d(tree.predict(mixed).reshape(30, -1).mean(axis=0))

    for x, values in zip(X, found.contributions, strict=True):
        expected = np.zeros_like(values)
        for order in permutations(range(4)):
            for place, j in enumerate(order):
                before = value(x, list(order[:place]))
                expected[j] += (value(x, list(order[: place + 1])) - before) / 24
        np.testing.assert_allclose(values, expected, atol=1e-12)
    assert not found.contributions[:, 2].any()
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, tree.predict(X).reshape(3, -1), atol=1e-12)
    table = found.to_frame()
    assert table.shape == (3 * max(1, n_classes), 4)
    drawn(found.plot(row=1))


def test_a_column_of_slopes_alone_contributes():
    """It is in no split, and has a slope of 3 in both leaves."""
    tree = make_tree(topology=Topology.stump(), n_features=2, n_classes=0, seed=1)
    plane, slope = tree.hyperplane * [1.0, 0.0], np.array([[0.0, 3.0], [0.0, 3.0]])
    X, background = np.random.default_rng(0).normal(size=(2, 5, 2))
    tree = replace(tree, hyperplane=plane, slope=slope)
    found = shapley_values([(1.0, tree)], X, background, (), columns(2)).contributions
    np.testing.assert_allclose(found[:, 1, 0], 3 * (X[:, 1] - background[:, 1].mean()))


def columns(d):
    return Encoding(tuple(Numbers(f"x{j}") for j in range(d)))


def test_shapley_values_of_estimators():
    X, clf = rows()[0], trained("classes", "axis")
    found = clf.shapley_values(X[:4])
    np.testing.assert_allclose(
        found.base + found.contributions.sum(axis=1), clf.predict_proba(X[:4])
    )
    reg = trained("numbers", "linear leaves")
    found = reg.shapley_values(X[:2], X[:50])
    np.testing.assert_allclose(
        (found.base + found.contributions.sum(axis=1))[:, 0], reg.predict(X[:2])
    )
    np.testing.assert_allclose(found.base[0], reg.predict(X[:50]).mean())


def test_too_many_features():
    tree = make_tree(n_features=13)
    with pytest.raises(ValueError, match="at most 12 columns, got 13"):
        shapley_values([(1.0, tree)], np.zeros((1, 13)), np.zeros((1, 13)), (), columns(13))


def by_hand(estimator, X, feature, grid, predict):
    found = []
    for value in grid:
        moved = X.copy()
        moved[:, feature] = value
        found.append(predict(estimator, moved))
    return np.array(found)


def test_partial_dependence_of_classes(posterior):
    X = rows()[0][:50]
    found = posterior.partial_dependence(X, "x1", grid=[1.0, 3.0, 5.0])
    each = by_hand(posterior, X, 1, found.grid, lambda clf, x: clf.predict_proba(x))
    np.testing.assert_allclose(found.mean, each.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(found.curves, each.swapaxes(0, 1), atol=1e-6)
    assert (found.low <= found.high).all()
    assert (found.low < found.high).any()
    assert found.to_frame().shape == (9, 5)
    drawn(found.plot())


def test_bands_are_quantiles_of_the_draws(regressor):
    X = rows()[0][:40]
    found = regressor.partial_dependence(X, 0, grid=4, level=0.5)
    grid = np.linspace(*np.quantile(X[:, 0], [0.05, 0.95]), 4)
    np.testing.assert_allclose(found.grid, grid)

    def draws(reg, x):
        standard = reg.fitted_.scaling.standardise(x)
        values = np.concatenate([*reg.posterior_.expectations(standard)])
        return reg.fitted_.scaling.units.decode(values).mean(axis=1)

    each = by_hand(regressor, X, 0, grid, draws)
    ends = np.quantile(each, [0.25, 0.75], axis=1, method="weibull")  # (n + 1) p values below
    np.testing.assert_allclose([found.low[:, 0], found.high[:, 0]], ends, rtol=1e-6)
    np.testing.assert_allclose(found.mean[:, 0], each.mean(axis=1), rtol=1e-6)


def test_bands_of_several_modes_count_draws_by_their_weights(posterior):
    X, grid = rows()[0][:40], [1.0, 3.0, 5.0]
    found = weighted(posterior, [0.1, 0.9]).partial_dependence(X, 1, grid=grid, level=0.5)

    def draws(clf, x):
        standard = clf.fitted_.scaling.standardise(x)
        each = [np.concatenate([*one.posterior_.expectations(standard)]) for one in clf.modes_]
        return np.concatenate(each).mean(axis=1)

    share = np.repeat([0.1, 0.9], 4) / 4
    outside = 0.25 - 0.25 * (share**2).sum()  # of 1 / .205 effective draws

    def quantile(values, level):
        order = values.argsort()
        return np.interp(level, share[order].cumsum() - share[order] / 2, values[order])

    each = by_hand(posterior, X, 1, grid, draws)
    for found_end, level in ((found.low, outside), (found.high, 1 - outside)):
        expected = np.apply_along_axis(quantile, 1, each, level)
        np.testing.assert_allclose(found_end, expected, rtol=1e-6)


def test_a_point_estimate_has_no_band():
    X, reg = rows()[0], trained("numbers", "alternating")
    found = reg.partial_dependence(X, 2, max_rows=30)
    assert len(found.curves) == 30
    np.testing.assert_array_equal(found.low, found.high)
    np.testing.assert_allclose(found.mean, found.low)
    drawn(found.plot(curves=False))
    with pytest.raises(ValueError, match="'x8' is not a column"):
        reg.partial_dependence(X, "x8")


@pytest.fixture(scope="module")
def mixed():
    """A table with every kind of column, and fits to it."""
    X, y = moves_table()
    tree = bayestree.AlternatingTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    forest = bayestree.EndToEndForestClassifier(2, max_depth=1, epochs=3, random_state=0)
    return X, y, tree, forest.fit(X, y)


GRIDS = {  # a column, and values to which it is set
    "income": [0.5, np.nan],
    "colour": ["blue", "green", "red", None],
    "sex": ["f", "m"],
    "size": ["S", "M", "L"],
    "town": ["t3", "t1"],
    "since": pd.to_datetime(["2024-03-01", "2025-01-01"]).tolist(),
}


@pytest.mark.parametrize("name", GRIDS)
def test_dependence_on_a_column_of_a_table(name, mixed):
    X, _, *fits = mixed
    for clf in fits:
        found = clf.partial_dependence(X, name, grid=GRIDS[name], max_rows=30)
        rows = X.iloc[np.linspace(0, len(X) - 1, 30).round().astype(int)]
        for value, mean in zip(GRIDS[name], found.mean, strict=True):
            moved = rows.assign(**{name: pd.Series([value] * 30, index=rows.index)})
            np.testing.assert_allclose(mean, clf.predict_proba(moved).mean(axis=0))
        assert len(found.to_frame()) == 2 * len(GRIDS[name])


def test_encoded_rows_have_the_grids_of_the_table(mixed):
    X, _, tree, _ = mixed
    encoded = Features.of(tree.encoding_.encode(X), tree.encoding_)
    for name in ("income", "age", "colour", "sex", "size", "since"):
        found, expected = (tree.partial_dependence(one, name, grid=5) for one in (encoded, X))
        pd.testing.assert_index_equal(pd.Index(found.grid), pd.Index(expected.grid))
        np.testing.assert_allclose(found.mean, expected.mean)


def test_grids_of_columns(mixed):
    X, _, tree, _ = mixed
    grid = {name: tree.partial_dependence(X, name, max_rows=10).grid for name in X}
    assert len(grid["income"]) == 21, "and one where it is missing"
    assert np.isnan(grid["income"]).tolist() == [False] * 20 + [True]
    assert grid["colour"].tolist() == ["blue", "green", "red", None]
    assert grid["size"].tolist() == ["S", "M", "L"]
    assert len(grid["town"]) == 20, "the most frequent"
    elsewhere = X.assign(town="a town that the fit does not know")
    with pytest.warns(bayestree.UnknownCategoryWarning):
        assert len(tree.partial_dependence(elsewhere, "town", max_rows=10).grid) == 20
    low, high = X["since"].quantile([0.05, 0.95])
    assert (grid["since"][0], grid["since"][-1]) == (low.round("D"), high.round("D"))
    month = tree.partial_dependence(X, "since (month)", max_rows=10)
    assert month.feature == "since (month)"
    assert month.grid.tolist() == [*range(1, 13)]
    for name in ("income", "colour", "since", "town"):
        drawn(tree.partial_dependence(X, name, max_rows=10).plot())
    for name, values, said in (
        ("colour", ["pink"], "grid must hold levels of 'colour', which are 'blue', 'green', 'red'"),
        ("age", [np.nan], "grid has a missing value, but 'age' never lacks one"),
        ("age", [np.inf], "grid must hold finite numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            tree.partial_dependence(X, name, grid=values)


def test_shapley_values_of_columns(mixed):
    """Of a game whose players are the columns, by all orders in which they become known."""
    X, _, _, forest = mixed
    X = X.drop(columns=["town", "age", "since", "size"])
    some = bayestree.AlternatingTreeClassifier(max_depth=2, random_state=0).fit(X, mixed[1])
    found = some.shapley_values(X[:2], X[:25])
    assert found.features == tuple(X)
    for row in range(2):
        expected = np.zeros((3, 2))
        for order in permutations(range(3)):
            known, before = X[:25].copy(), some.predict_proba(X[:25]).mean(axis=0)
            for j in order:
                known[X.columns[j]] = [X.iloc[row, j]] * 25
                after = some.predict_proba(known).mean(axis=0)
                expected[j] += (after - before) / 6
                before = after
        np.testing.assert_allclose(found.contributions[row], expected, atol=1e-12)
    X = mixed[0]
    found = forest.shapley_values(X[:2], X[:20])
    whole = found.base + found.contributions.sum(axis=1)
    np.testing.assert_allclose(whole, forest.predict_proba(X[:2]))
    each = [one.shapley_values(X[:2], X[:20]).contributions for one in forest.estimators_]
    np.testing.assert_allclose(found.contributions, np.mean(each, axis=0))
    drawn(found.plot())


def test_forests_have_importances_but_no_path(mixed):
    X, y, _, forest = mixed
    each = [one.feature_importances_ for one in forest.estimators_]
    np.testing.assert_allclose(forest.feature_importances_, np.mean(each, axis=0))
    found = forest.importance(X, y, n_repeats=1)
    assert found.features == tuple(X)
    np.testing.assert_allclose(found.votes.sum(), 1.0)
    assert found.to_frame()["loss"].idxmax() in {"income", "colour", "sex", "size", "age"}
    assert forest.interactions(X, ["income", "colour"], max_rows=5).strength.shape == (2, 2)
    with pytest.raises(AttributeError, match=r"explain each tree: estimators_\[0\].explain\(x\)"):
        _ = forest.explain


def test_interactions_by_brute_force():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))

    def predict(x):
        return x[:, 0] * x[:, 1] + 2 * x[:, 2] + x[:, 1]

    found = interactions(predict, X, [np.array([j]) for j in range(3)], ("a", "b", "c"))

    def dependence(features):
        values = []
        for at in X:
            moved = X.copy()
            moved[:, features] = at[features]
            values.append(predict(moved).mean())
        return np.array(values) - np.mean(values)

    for j, k in ((0, 1), (0, 2), (1, 2)):
        both = dependence([j, k])
        rest = both - dependence([j]) - dependence([k])
        expected = np.sqrt((rest**2).sum() / (both**2).sum())
        np.testing.assert_allclose(found.strength[j, k], expected, atol=1e-7)
    assert found.strength[0, 1] > 0.3
    np.testing.assert_allclose(found.strength[0, 2], 0.0, atol=1e-7)
    table = found.to_frame()
    assert tuple(table.iloc[0])[:2] == ("a", "b")
    drawn(found.plot())
    assert "Friedman" in str(found)


def test_interactions_of_estimators(posterior):
    X = rows()[0]
    found = posterior.interactions(X, ["x0", 1], max_rows=15)
    assert found.features == ("x0", "x1")
    assert 0 < found.strength[0, 1] <= 1.5
    every = trained("classes", "bivariate").interactions(X, max_rows=10)
    assert len(every.features) == 4


class TestInspectionOfScikitLearn:
    def test_permutation_importance(self, posterior):
        X, y, _ = rows(200, seed=3)
        found = permutation_importance(posterior, X, y, n_repeats=2, random_state=0)
        assert found.importances_mean.argmax() != 3

    @pytest.mark.parametrize("name", ["posterior", "forest", "bivariate"])
    def test_partial_dependence_agrees(self, name, posterior):
        X = rows()[0]
        clf = posterior if name == "posterior" else trained("classes", name)
        theirs = partial_dependence(clf, X[:30], [0], grid_resolution=5)
        grid = theirs["grid_values"][0]
        average = theirs["average"].T  # of all three classes
        expected = by_hand(clf, X[:30], 0, grid, lambda one, x: one.predict_proba(x)).mean(axis=1)
        np.testing.assert_allclose(average, expected, atol=1e-6)
        ours = clf.partial_dependence(X[:30], 0, grid=grid)
        np.testing.assert_allclose(ours.mean, average, atol=1e-6)

    def test_display(self, regressor):
        X = pd.DataFrame(rows()[0], columns=["x0", "x1", "x2", "x3"])
        figure = Figure()
        FigureCanvasAgg(figure)
        shown = PartialDependenceDisplay.from_estimator(
            regressor,
            X.to_numpy()[:25],
            [0, (0, 1)],
            grid_resolution=4,
            ax=figure.subplots(),
            kind="average",
        )
        assert len(shown.pd_results) == 2
        figure.canvas.draw()
