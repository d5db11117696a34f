"""Sparse trees of fitted estimators: which are chosen, what they say, and where they end up."""

import json
import re
from copy import copy
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_dot,
    export_json,
    export_rules,
    export_text,
    load,
    plots,
)
from bayestree.description import TreeDescription
from bayestree.diagnostics.sparsity import SparsityPath, same_splits
from bayestree.fitting.projection.nodes import Columns
from bayestree.fitting.projection.path import Sparsity, project
from bayestree.inference import Data, Map, Svi
from tests.sampling import quickly

QUICK = {"max_depth": 2, "n_modes": 2, "random_state": 0}


def planted(n=400, d=10, seed=0, own=(3, 7)):
    """Classes on which two columns decide, by half-spaces; a twentieth of them is flipped."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    inside = (X[:, own[0]] < 0.5) & (X[:, own[1]] < 0.8)
    return X, np.where(rng.random(n) < 0.05, ~inside, inside).astype(int)


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return ConvexPolytopeTreeClassifier(**QUICK).fit(X, y), X, y


def columns_of(tree):
    return {int(j) for j in np.flatnonzero(tree.hyperplane.any(axis=0))}


@pytest.mark.portable
def test_planted_columns_are_kept_and_most_others_are_not(fitted):
    clf, _, _ = fitted
    assert {3, 7} <= columns_of(clf.tree_)
    # A column of noise stays if it seems to gain a standard error. The most that such a tree
    # may have is the number of columns; half of them would mean that nothing was selected.
    assert len(columns_of(clf.tree_)) <= 5


@pytest.mark.portable
def test_the_sparse_tree_predicts_as_the_full_one(fitted):
    clf, X, y = fitted
    full = ConvexPolytopeTreeClassifier(**QUICK, sparsity=None).fit(X, y)
    new, labels = planted(4000, seed=1)
    right = [one.classes_[one.tree_.predict(new).argmax(axis=1)] == labels for one in (full, clf)]
    difference = right[0].astype(float) - right[1]
    # A standard error of the training rows may be lost, and four of the new rows.
    allowed = np.sqrt(0.25 / len(X)) + 4 * difference.std() / np.sqrt(len(new))
    assert difference.mean() <= allowed


def test_the_posterior_stays_whole(fitted):
    clf, X, y = fitted
    full = ConvexPolytopeTreeClassifier(**QUICK, sparsity=None).fit(X, y)
    for name, draws in full.posterior_.draws.items():
        np.testing.assert_array_equal(clf.posterior_.draws[name], draws)
    np.testing.assert_array_equal(clf.predict_proba(X), full.predict_proba(X))
    assert not np.array_equal(clf.tree_.hyperplane, full.tree_.hyperplane)
    with pytest.raises(AttributeError, match="full facets"):
        full.sparsity_path()


def test_the_path_ends_with_the_tree(fitted):
    clf, _, _ = fitted
    path, tree = clf.sparsity_path(), clf.tree_
    assert path.coefficients[-1] == np.count_nonzero(tree.hyperplane)
    assert path.columns[-1] == (tree.hyperplane != 0).sum(axis=1).max()
    assert path.coefficients[0] == 1
    assert path.columns.max() <= 3
    assert path.loss[:-1].min() == 0.0
    assert path.loss[-1] in path.loss[:-1]
    assert path.loss[-1] <= path.se[-1]
    assert path.to_frame().index.tolist() == [*["path"] * (len(path.loss) - 1), "chosen"]
    assert f"sparse: {path.coefficients[-1]} coefficients" in str(path)
    assert f"posterior: {path.coefficients[-1]} coefficients" in " ".join(export_text(clf).split())
    assert path.cost in " ".join(export_text(clf).split())


def test_the_cost_is_that_of_the_chosen_tree():
    lost = np.array([0.2, 0.0, 0.1, 0.2])
    path = SparsityPath(np.array([1, 2, 3, 1]), np.array([1, 4, 9, 1]), lost, lost, np.ones(4))
    better = "by 0.2 nats a row (standard error 0.2)"
    assert path.cost == f"A longer tree, of 4 coefficients, predicts hardly better: {better}."
    best = SparsityPath(*(value[[1, 1]] for value in path.arrays().values()))
    assert best.cost == "Longer trees predict no better."


def test_the_text_is_the_tree(fitted):
    """Every number of the tree is printed, and they decide as the tree does."""
    clf, X, _ = fitted
    lines = re.findall(r"(?:if|│) +(x\d.* [<>]= -?[\d.]+)$", export_text(clf), flags=re.MULTILINE)
    tree = clf.tree_
    assert len(lines) == len(tree.weight)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    found = [frame.eval(re.sub(r"([\d.]+) (x\d)", r"\1 * \2", line)).to_numpy() for line in lines]
    beyond = X @ tree.hyperplane.T + tree.intercept > 0
    for holds in found:
        assert any((holds == ~one).all() for one in beyond.T)
    assert "add up" not in export_text(clf)


def test_rules_and_json_state_the_same_tree(fitted):
    clf, X, _ = fitted
    tree, rules = clf.tree_, export_rules(clf)
    assert "softplus" not in rules
    described = TreeDescription(tree)
    several = np.flatnonzero(tree.n_facets > 1).tolist()
    assert several  # or this test would compare nothing
    for node in several:
        assert all(f" {one}\n" in rules for one in described.half_spaces(node))
    (written,) = json.loads(export_json(clf))["trees"]
    leaf = []
    for x in X:
        at = written["root"]
        while "node" in at:
            node = written["nodes"][at["node"]]
            score = sum(
                one["weight"]
                * np.logaddexp(0, x[one["features"]] @ one["coefficients"] + one["intercept"])
                for one in node["facets"]
            )
            at = node["right" if score > np.log(2) else "left"]
        leaf.append(at["leaf"])
    np.testing.assert_array_equal(leaf, tree.apply(X))


@pytest.mark.portable
def test_noise_gains_nothing_on_rows_that_a_tree_has_not_seen():
    """The path without a limit, on one column that decides and many of noise."""
    X, y = planted(120, 30, own=(3, 3))
    clf = ConvexPolytopeTreeClassifier(**QUICK, sparsity=0.0).fit(X, y)
    path = clf.sparsity_path()
    # On the rows of the fit more columns would always gain. The first tree has the column that
    # decides: its loss on other rows exceeds 0 by no more than three standard errors.
    assert path.columns[0] == 1
    assert path.loss[0] <= 3 * path.se[0]


def test_rows_in_narrow_leaves_do_not_hide_the_others():
    """In leaves of little noise a row on the wrong side loses thousands of nats."""
    rng = np.random.default_rng(0)
    X, noise, new = (rng.normal(size=size) for size in ((300, 4), 300, (3000, 4)))
    steps = [((one[:, 0] + one[:, 1] > 0) ^ (one[:, 2] > 1)).astype(float) for one in (X, new)]
    settings = {**QUICK, "n_modes": 1, "inference": "vi"}
    error = [
        np.mean((reg.tree_.predict(new) - steps[1]) ** 2)
        for sparsity in ("auto", None)
        for reg in [
            ConvexPolytopeTreeRegressor(**settings, sparsity=sparsity).fit(
                X, steps[0] + 0.01 * noise
            )
        ]
    ]
    # The variance of y is .25, and without a column that decides half of it remains.
    assert error[0] < error[1] + 0.06


def test_a_column_that_is_left_out_is_replaced_within_constraints():
    """Every facet has one column, so that the full facets have nothing to offer without it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 2] = X[:, 1] + 0.3 * rng.normal(size=300)
    y = rng.random(300) < np.where(X[:, 1] > 0.3, 0.95, 0.05)
    clf = ConvexPolytopeTreeClassifier(
        **{**QUICK, "max_depth": 1}, n_experts=1, interaction_constraints="no_interactions"
    ).fit(X, y)
    found = clf.near_optimal_trees(X, y, without=[1])
    assert set(found.columns) == {("x2",)}


def test_max_columns_binds_whatever_is_lost(fitted):
    _, X, y = fitted
    clf = ConvexPolytopeTreeClassifier(**QUICK, max_columns=1).fit(X, y)
    assert (np.count_nonzero(clf.tree_.hyperplane, axis=1) == 1).all()
    point = ConvexPolytopeTreeClassifier(
        max_depth=1, inference=Map(epochs=5, steepness=None), random_state=0, max_columns=1
    ).fit(X, y)
    assert (np.count_nonzero(point.tree_.hyperplane, axis=1) == 1).all()


def test_a_larger_loss_gives_a_sparser_tree(fitted):
    clf, X, y = fitted
    found = ConvexPolytopeTreeClassifier(**QUICK, sparsity=10.0).fit(X, y)
    assert found.sparsity_path().coefficients[-1] == 1
    assert found.sparsity_path().coefficients[-1] <= clf.sparsity_path().coefficients[-1]


@pytest.mark.parametrize("value", [-0.1, float("nan"), "sparse", True])
def test_an_invalid_loss_is_refused(value, fitted):
    _, X, y = fitted
    with pytest.raises(ValueError, match="sparsity"):
        ConvexPolytopeTreeClassifier(sparsity=value).fit(X, y)


def test_point_estimates_have_full_facets_by_default(fitted):
    _, X, y = fitted
    clf = ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, random_state=0).fit(X, y)
    assert clf.tree_.hyperplane.all()


def test_a_file_keeps_the_path(fitted, tmp_path):
    clf, X, _ = fitted
    clf.save(tmp_path / "clf.bayestree")
    again = load(tmp_path / "clf.bayestree")
    for one in fields(SparsityPath):
        own, read = (getattr(each.sparsity_path(), one.name) for each in (clf, again))
        np.testing.assert_array_equal(own, read)
    assert export_text(again) == export_text(clf)
    np.testing.assert_array_equal(again.tree_.apply(X), clf.tree_.apply(X))


def test_categories_and_missing_values_are_columns():
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], 300)
    size = rng.normal(size=300)
    y = np.where(kind == "b", size > 0.5, size > -0.5)
    frame = pd.DataFrame({"noise": rng.normal(size=300), "kind": kind, "size": size})
    frame.loc[:20, "size"] = np.nan
    clf = ConvexPolytopeTreeClassifier(**QUICK, max_columns=2).fit(frame, y)
    groups = clf.encoding_.places
    used = [[one[own].any() for own in groups] for one in clf.tree_.hyperplane != 0]
    assert max(map(sum, used)) <= 2
    # levels are relative to one of them
    assert (np.count_nonzero(clf.tree_.hyperplane[:, groups[1]], axis=1) <= 2).all()


@pytest.mark.parametrize(
    "family", quickly(["linear", "poisson", "pair", "constant", "student"], quick=(0, 1, 2))
)
def test_every_family_of_numbers(family):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    signal = 3.0 * (X[:, 1] > 0)
    settings = {**QUICK, "max_depth": 1, "leaf": "constant" if family == "pair" else family}
    y = signal + rng.normal(size=200)
    if family == "poisson":
        y = rng.poisson(1 + signal)
    elif family == "pair":
        y = np.column_stack((signal, -signal)) + rng.normal(size=(200, 2))
    reg = ConvexPolytopeTreeRegressor(**settings).fit(X, y)
    assert 1 in columns_of(reg.tree_)
    assert np.isfinite(reg.sparsity_path().loss).all()


@pytest.mark.parametrize("leaf", quickly(["ordinal", "logistic"], quick=(0,)))
def test_every_family_of_classes(leaf):
    X, y = planted(d=4, own=(0, 1))
    clf = ConvexPolytopeTreeClassifier(**QUICK | {"max_depth": 1}, leaf=leaf).fit(X, y)
    assert clf.tree_.n_nodes == 1
    assert np.isfinite(clf.sparsity_path().loss).all()


def test_weights_are_repeated_rows():
    X, y = planted(150, 4, own=(0, 1))
    weights = np.random.default_rng(1).integers(0, 3, 150)
    common = {"max_depth": 1, "n_modes": 1, "random_state": 0}
    common |= {"inference": Map(epochs=5, steepness=20.0)}
    clf = ConvexPolytopeTreeClassifier(**common).fit(X, y)
    tree, columns = clf.tree_, Columns([np.array([j]) for j in range(4)], np.zeros(4))

    def point(rows, labels, weight):
        data = Data.of(clf.fitted_.scaling.standardise(rows), labels, weight)
        reference = [(clf.posterior_, 1.0)]
        found = project(
            tree,
            rows,
            data,
            posterior=clf.posterior_,
            reference=reference,
            columns=columns,
            sparsity=Sparsity(most=2),
        )
        np.testing.assert_allclose(found.share, data.weights / data.weights.sum())
        return found.path[-1]

    once = point(X[weights > 0], y[weights > 0], weights[weights > 0].astype(float))
    many = point(np.repeat(X, weights, 0), np.repeat(y, weights), None)
    assert once.coefficients == many.coefficients
    # a repeated row is left out with one copy, a weighted one as a whole
    assert once.loss == pytest.approx(many.loss, abs=0.05)


def test_monotone_features_keep_their_signs():
    X, _ = planted(300, 4, own=(0, 1))
    y = X[:, 0] + X[:, 1] + np.random.default_rng(0).normal(size=300) > 0
    clf = ConvexPolytopeTreeClassifier(
        max_depth=1, n_modes=1, inference=Svi(epochs=30), random_state=0, monotonic_cst=[1, 1, 0, 0]
    ).fit(X, y)
    own = clf.tree_.hyperplane[:, :2]
    assert (own >= 0).all() or (own <= 0).all()
    grid = np.column_stack((np.linspace(-3, 3, 50), np.zeros((50, 3))))
    assert (np.diff(clf.tree_.predict(grid)[:, 1]) >= 0).all()


def test_importance_knows_both_facets():
    """Votes of sparse facets are steps, which vanish for most rows."""
    X, y = planted(300, 3, own=(0, 1))
    clf = ConvexPolytopeTreeClassifier(**QUICK, max_columns=1).fit(X, y)
    assert columns_of(clf.tree_) >= {0, 1}
    assert (clf.feature_importances_[:2] > 0.1).all()
    assert clf.feature_importances_.sum() == pytest.approx(1.0)


class TestNearOptimalTrees:
    def test_the_best_comes_first(self, fitted):
        clf, X, y = fitted
        found = clf.near_optimal_trees(X, y)
        assert 1 <= len(found) <= len(clf.modes_)
        assert found.weight.sum() == pytest.approx(1.0)
        assert found.loss[0] == 0.0
        np.testing.assert_allclose(found.score[0] - found.score, found.loss)
        assert (np.diff(found.loss) >= 0).all()
        used = [tuple(f"x{j}" for j in sorted(columns_of(tree))) for tree in found]
        assert list(found.columns) == used
        assert found.to_frame()["leaves"].tolist() == [tree.n_leaves for tree in found]
        assert f"{found[0].n_leaves} leaves" in export_text(found[0])
        assert max(map(len, str(found).split("\n"))) < 100
        assert f" {found.score[0]:.3f} 0.000 0.000 " in str(found)

    def test_the_score_is_that_of_leaves_without_the_row(self, fitted):
        clf, X, y = fitted
        found = clf.near_optimal_trees(X, y)[0]
        fitted = found.predict(X)[np.arange(len(X)), np.searchsorted(clf.classes_, y)]
        score = clf.near_optimal_trees(X, y).score[0]
        # leaves that hold the row itself predict it better, the more so the smaller they are
        assert np.log(fitted).mean() - 0.1 < score < np.log(fitted).mean()

    def test_the_score_is_in_the_units_of_y(self):
        X, y = planted(120, 2, own=(0, 1))
        short = {"max_depth": 1, "n_modes": 1, "inference": Svi(epochs=20), "random_state": 0}
        one, eight = (
            ConvexPolytopeTreeRegressor(**short)
            .fit(X, factor * y)
            .near_optimal_trees(X, factor * y)
            .score
            for factor in (1.0, 8.0)  # powers of 2, which change no rounding
        )
        np.testing.assert_allclose(eight, one - np.log(8))

    def test_every_export_takes_its_trees(self, fitted, tmp_path):
        clf, X, y = fitted
        found = clf.near_optimal_trees(X, y)[0]
        for write in (export_text, export_rules, export_dot, export_json):
            assert "x3" in write(found)
        assert plots.tree(found, X=X, y=y).child_axes

    def test_trees_that_are_nearly_the_same_are_merged(self, fitted, monkeypatch):
        """Each mode has two topologies, of a quarter and three quarters of its draws."""
        clf, X, y = fitted
        twice = copy(clf)
        one, *_ = clf.fitted_.trees
        monkeypatch.setattr(
            "bayestree.fitting.projection.by_topology",
            lambda posterior, *_: [(posterior, 0.25), (posterior, 0.75)],
        )
        twice.fitted_ = replace(clf.fitted_, trees=[one, one], weights=np.array([0.3, 0.7]))
        found = twice.near_optimal_trees(X, y)
        assert len(found) == 1
        assert found.weight.tolist() == pytest.approx([1.0])

    def test_rows_count_by_their_weights(self, fitted):
        _, X, y = fitted
        weights = np.r_[np.full(200, 10.0), np.full(200, 0.1)]
        found = ConvexPolytopeTreeClassifier(**QUICK).fit(X, y, weights)
        trees = found.near_optimal_trees(X, y, weights)
        assert trees.loss[0] == 0.0
        assert (np.diff(trees.loss) >= 0).all()

    def test_the_tree_that_is_shown_is_in_the_list(self):
        """Also where the fit saw other features than new rows have.

        A text column of many levels is encoded by the y of other rows, and detached values are
        drawn in.
        """
        rng = np.random.default_rng(0)
        town, a, b = rng.integers(100, size=300), rng.normal(size=300), rng.normal(size=300)
        y = np.where(rng.random(300) < expit(2 * a + 2 * np.sin(17 * town)), "yes", "no")
        b[:2] = -50.0
        X = pd.DataFrame({"a": a, "b": b, "town": [f"town {number}" for number in town]})
        clf = ConvexPolytopeTreeClassifier(**QUICK).fit(X, y)
        assert any(same_splits(tree, clf.tree_) for tree in clf.near_optimal_trees(X, y))

    def test_columns_can_be_excluded(self, fitted):
        clf, X, y = fitted
        for unwanted in ([3], "x3"):
            found = clf.near_optimal_trees(X, y, without=unwanted)
            assert found.excluded == ("x3",)
            assert all("x3" not in own for own in found.columns)
            assert all(3 not in columns_of(tree) for tree in found)

    def test_filtered_by_column(self, fitted):
        clf, X, y = fitted
        found = clf.near_optimal_trees(X, y)
        for unwanted in (["x3"], [3], [["x3"]], [range(2, 4)]):
            assert len(found.without(*unwanted)) == 0
        assert len(found.without()) == len(found)
        assert str(found.without("x3", "x2")) == (
            "No tree of the list does without x2 and x3; "
            "near_optimal_trees(X, y, without=['x2', 'x3']) looks for one."
        )
        with pytest.raises(ValueError, match="'x33' is not a column of the fit; did you mean 'x3'"):
            found.without("x3", "x33")

    def test_refusals(self, fitted):
        clf, X, y = fitted
        with pytest.raises(ValueError, match="column"):
            clf.near_optimal_trees(X, y, without=[10])
        with pytest.raises(ValueError, match="at least one column"):
            clf.near_optimal_trees(X, y, without=range(10))
        with pytest.raises(ValueError, match="features"):
            clf.near_optimal_trees(X[:, :3], y)


def test_the_path_is_drawn(fitted):
    clf, _, _ = fitted
    ax = plots.sparsity_path(clf)
    assert ax.get_xlabel() == "coefficients of all facets"
    with pytest.raises(TypeError, match="sparsity_path"):
        plots.sparsity_path(3)


def test_a_point_estimate_of_numbers_becomes_sparse():
    """Its only draw of the parameters stands for a distribution of y."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = np.where(X[:, 0] > 0, 3.0, 0.0) + 0.3 * rng.normal(size=120)
    reg = ConvexPolytopeTreeRegressor(
        inference=Map(epochs=20), max_depth=1, n_modes=1, sparsity=0.05, random_state=0
    ).fit(X, y)
    assert np.isfinite(reg.sparsity_path().loss).all()
    assert reg.tree_.used.tolist() == [True, False, False]


def test_no_tree_is_better_than_the_best():
    """Also where the shortest tree loses more than counts at many rows, here of large weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = 3 * (X[:, 0] + X[:, 1] > 0) + X[:, 3] + 0.3 * rng.normal(size=150)
    weights = 10.0 ** np.linspace(-6, 2, 150)
    reg = ConvexPolytopeTreeRegressor(n_modes=1, random_state=0).fit(X, y, sample_weight=weights)
    assert reg.sparsity_path().loss.min() == 0


def test_the_gain_of_the_best_tree_is_to_the_best_tree():
    """Also in models of version 0.2.0, whose first tree has full facets."""
    path = SparsityPath(
        columns=np.array([9, 1, 3, 2]),
        coefficients=np.array([30, 2, 8, 5]),
        loss=np.array([0.0, 0.2, -0.02, 0.03]),
        se=np.array([0.0, 0.1, 0.04, 0.04]),
        agreement=np.ones(4),
    )
    better = "by 0.05 nats a row (standard error 0.04)"
    assert path.cost == f"A longer tree, of 8 coefficients, predicts hardly better: {better}."
