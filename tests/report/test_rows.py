"""Importance of features for splits, and the uncertainty of splits."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.diagnostics.uncertainty import Dependence
from bayestree.report.rows import (
    LabelledRows,
    evaluation_rows,
    measured_effects,
    most_important,
    permutation_importance,
    rows_of,
    split_uncertainty,
    trend_of,
)
from tests.export.test_text import committee, oblique
from tests.fitted_cases import encoding_of, network_tree


def rows_for(tree, n=400, *, held_out=False):
    rng = np.random.default_rng(3)
    X = tree.center + tree.scale * rng.normal(size=(n, tree.n_features))
    return LabelledRows(X, None, np.ones(n), held_out)


def test_a_node_by_shuffling_every_feature():
    """The mean over many shuffles of a column, by the tree's own routing."""
    tree = committee()
    rows = rows_for(tree)
    (found,) = permutation_importance([tree], rows, encoding_of(tree)).nodes
    X, rng = rows.matrix, np.random.default_rng(11)
    right = tree.goes_right(0, X)
    shares = np.zeros((20, tree.n_features))
    for feature in range(tree.n_features):
        for share in shares:
            shuffled = X.copy()
            shuffled[:, feature] = rng.permutation(X[:, feature])
            share[feature] = (tree.goes_right(0, shuffled) != right).mean()
    # standard error of the difference of a mean of 5 shuffles and one of 20, of the same rows
    error = shares.std(axis=0, ddof=1) * np.sqrt(1 / 5 + 1 / 20)
    assert (np.abs(found[0] - shares.mean(axis=0)) <= 4 * error).all()
    assert (found[0] > 8 * error).any()


def test_a_feature_counts_by_what_its_split_changes():
    """A root on one feature, whose sides differ, above a node on another, whose sides do not."""
    tree = oblique()
    one = replace(tree, hyperplane=tree.hyperplane * [1.0, 0.0, 0.0])
    alike = replace(one, value=np.broadcast_to(one.value[:1], one.value.shape))
    assert permutation_importance([one], rows_for(one), encoding_of(one)).total.tolist() == [
        1.0,
        0.0,
        0.0,
    ]
    assert not permutation_importance([alike], rows_for(alike), encoding_of(one)).total.any()
    both = permutation_importance([one, alike], rows_for(one), encoding_of(one))
    assert both.total.tolist() == [1.0, 0.0, 0.0]
    assert all(nodes[0, 0] > 0 for nodes in both.nodes)


def test_networks_have_no_features():
    tree = network_tree()
    found = permutation_importance([tree], rows_for(tree), encoding_of(tree))
    assert not found.nodes[0].any()
    assert not found.total.any()


def test_the_strongest_hold_nine_tenths():
    assert most_important(np.array([0.1, 0.5, 0.0, 0.4])).tolist() == [1, 3]
    assert most_important(np.array([0.2, 0.5, 0.0, 0.4])).tolist() == [1, 3, 0]
    assert most_important(np.zeros(3)).tolist() == []


def test_held_out_rows_are_asked_first():
    tree = oblique()
    train, held = rows_for(tree, 3000), rows_for(tree, 40, held_out=True)
    assert evaluation_rows(train, held).counted == "40 held-out rows"
    assert evaluation_rows(train, None).counted == "2,000 training rows"
    assert evaluation_rows(None, None) is None


def test_effects_count_rows_by_their_weights(drawn):
    clf, given = drawn
    weights = np.where(given["X_held"]["north"] > 0, 5.0, 1.0)
    rows = rows_of(clf, given["X_held"], given["y_held"], weights, held_out=True)
    importance = permutation_importance([clf.tree_], rows, clf.encoding_)
    found = measured_effects(clf, [clf.tree_], rows, importance)
    own = clf.importance(given["X_held"], given["y_held"], weights, n_repeats=1).to_frame()
    assert [one.loss.value for one in found] == pytest.approx(own["loss"].tolist())
    assert [one.loss.low for one in found] == pytest.approx(own["loss_low"].tolist())


def test_nothing_is_said_without_draws():
    class Silent(ConvexPolytopeTreeClassifier):
        tree_ = oblique()
        posterior_ = SimpleNamespace(n_chains=1, n_draws=1)
        split_uncertainty = pytest.fail

    assert split_uncertainty(Silent(), rows_for(oblique())) is None


@pytest.mark.parametrize(
    ("mean", "half", "trend"),
    [
        ([0, 1, 2, 3], 0.1, "rises"),
        ([3, 2, 1, 0], 0.1, "falls"),
        ([0, 2, 2, 0], 0.1, "both"),
        ([0, 1, 2, 3], 2.0, "unclear"),
    ],
)
def test_the_direction_of_an_effect(mean, half, trend):
    mean = np.array(mean, dtype=float)
    curve = Dependence("x", np.arange(4.0), mean, mean - half, mean + half, mean[None], "")
    assert trend_of(curve) == trend
