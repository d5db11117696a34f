"""Importance of features, against CART and against sums over rows and draws."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.feature_selection import SelectFromModel
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import check_random_state
from torch import nn

import bayestree
from bayestree._utils.arrays import shuffled
from bayestree._utils.state import draw_seed
from bayestree.baselines import from_sklearn
from bayestree.explain.importance import _score_decrease, split_importance
from bayestree.models import Network
from bayestree.topology import Topology
from bayestree.tree import Tree
from tests.fitted_cases import BY_SVI, CLASSIFIERS, QUICK, SMALL, rows, trained
from tests.plots.cases import drawn

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def shuffles(n, count=1, seed=0, weights=None):
    """The shuffles of ``importance`` with this seed."""
    random = check_random_state(draw_seed(seed))
    return [shuffled(random, np.ones(n) if weights is None else weights) for _ in range(count)]


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, DecisionTreeRegressor])
def test_splits_along_the_axes_have_the_importances_of_cart(kind):
    X, label, value = rows()
    y = label if kind is DecisionTreeClassifier else value
    cart = kind(max_depth=4, random_state=0).fit(X, y)
    tree = from_sklearn(cart)
    found = split_importance([(1.0, tree)])
    np.testing.assert_allclose(found, cart.feature_importances_, atol=1e-9)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_has_importances(name):
    X, clf = rows()[0], trained("classes", name)
    found = clf.feature_importances_
    assert found.shape == (4,)
    np.testing.assert_allclose(found.sum(), 1.0)
    assert (found >= 0).all()
    # The last feature is noise, and the first three determine the class.
    assert found[3] < found[:3].max()
    assert SelectFromModel(clf, prefit=True).transform(X).shape[1] >= 1


def test_an_unfitted_tree_has_none():
    assert not hasattr(bayestree.BivariateTreeClassifier(), "feature_importances_")


def test_networks_have_none():
    X, y, _ = rows()
    split = Network(lambda d: nn.Linear(d, 1))
    clf = bayestree.EndToEndTreeClassifier(split=split, **QUICK).fit(X, y)
    assert not hasattr(clf, "feature_importances_")
    found = clf.importance(X, y)
    assert not found.votes.any()
    assert found.loss.argmax() != 3


@pytest.fixture(scope="module")
def posterior():
    X, y, _ = rows()
    return bayestree.ConvexPolytopeTreeClassifier(
        inference=replace(BY_SVI, n_draws=4, steepness=1.0), n_modes=1, n_experts=3, **SMALL
    ).fit(X, y)


def test_loss_and_votes_by_hand(posterior):
    """Votes of one draw, and the loss of the average over all draws."""
    X, y, _ = rows(60, seed=1)
    found = posterior.importance(X, y, n_repeats=1, random_state=3)
    order = shuffles(60, seed=3)[0]
    draw, model = 2, posterior.posterior_.model
    draws = [
        {name: values[0, s] for name, values in posterior.posterior_.draws.items()}
        for s in range(4)
    ]
    beta = draws[draw]["hyperplane"]

    def pass_through(x, sites):
        """Reach, votes and prediction of one row, node by node."""
        weight, beta = np.exp(sites["log_weight"]), sites["hyperplane"]
        z = posterior.fitted_.scaling.standardise(x[None])[0]
        votes = weight * np.logaddexp(0.0, beta @ z + sites["intercept"])
        right = 1 - np.exp(-votes.sum(axis=1))
        reach, leaf = np.zeros(len(votes)), np.zeros(len(votes) + 1)
        waiting = [(0, 1.0)]
        while waiting:
            node, p = waiting.pop()
            if node < 0:
                leaf[~node] = p
                continue
            reach[node] = p
            left_child, right_child = model.topology.children[node]
            waiting += [(left_child, p * (1 - right[node])), (right_child, p * right[node])]
        return reach, votes, leaf @ sites["leaf_probs"]

    assert model.steepness == 1
    total = np.zeros(4)
    for x in X:
        reach, votes, _ = pass_through(x, draws[draw])
        share = votes / votes.sum(axis=1, keepdims=True)
        size = np.abs(beta) / np.abs(beta).sum(axis=2, keepdims=True)
        total += np.einsum("v,vk,vkj->j", reach, share, size)
    np.testing.assert_allclose(found.votes[draw], total / total.sum(), rtol=1e-5)

    def scores(rows_):
        each = [[pass_through(x, sites)[2] for sites in draws] for x in rows_]
        return np.log(np.mean(each, axis=1)[np.arange(60), y])

    for j in range(4):
        moved = X.copy()
        moved[:, j] = X[order, j]
        loss = scores(X) - scores(moved)
        np.testing.assert_allclose(found.loss[j], loss.mean(), atol=1e-5)
        np.testing.assert_allclose(found.loss_error[j], loss.std() / np.sqrt(60), atol=1e-5)


def test_noise_does_not_matter_to_a_planted_tree(posterior):
    """On new rows, shuffling noise changes the mean log score by chance alone."""
    X, y, _ = rows(2000, seed=5)
    found = posterior.importance(X, y)
    table = found.to_frame()
    assert table.index[0] in ("x0", "x1", "x2")
    assert table["loss_low"].iloc[0] > 0
    # the prior treats the four columns alike; the rows tell them apart
    assert (table["votes_prior"] == 0.25).all()
    assert table["votes"].iloc[0] > 0.25 > table["votes"]["x3"]
    assert "with 90% intervals" in str(found)
    drawn(found.plot())


def test_intervals_of_losses_are_normal(posterior):
    X, y, _ = rows(60, seed=1)
    found = posterior.importance(X, y, n_repeats=1, level=0.8)
    table = found.to_frame().loc[[*found.features], ["loss_low", "loss_high"]]
    expected = stats.norm.interval(0.8, found.loss, found.loss_error)
    np.testing.assert_allclose(table, np.column_stack(expected))


def test_a_class_that_a_leaf_lacks_counts_as_half_a_row():
    """Of rows of the weight 10, instead of a probability of 1/2."""
    X, y, weights = np.full((4, 1), 0.5), np.zeros(4, dtype=int), np.arange(1.0, 5.0)
    decrease = _score_decrease(lambda x: (np.hstack((x, 1 - x)), x), X, y, weights, None)
    np.testing.assert_allclose(decrease(np.zeros((4, 1))), np.log(0.5) - np.log(0.5 / 10))


def test_the_mixture_of_modes_is_scored():
    """Not each of its draws, whose average loss is larger."""
    X, y, _ = rows()
    clf = bayestree.ConvexPolytopeTreeClassifier(
        inference=replace(BY_SVI, n_draws=3), n_modes=2, n_experts=2, **SMALL
    ).fit(X, y)
    found = clf.importance(X, y, n_repeats=1, max_draws=6)
    moved = X.copy()
    moved[:, 0] = X[shuffles(len(X))[0], 0]
    of_class = np.arange(len(X)), y
    loss = np.log(clf.predict_proba(X)[of_class] / clf.predict_proba(moved)[of_class])
    np.testing.assert_allclose(found.loss[0], loss.mean(), rtol=1e-9)
    splits = sum(
        w * mode.feature_importances_ for w, mode in zip(clf.mode_weights_, clf.modes_, strict=True)
    )
    np.testing.assert_allclose(clf.feature_importances_, splits)


def test_point_estimates_of_numbers():
    X, _, y = rows()
    reg = trained("numbers", "linear leaves")
    weights = np.resize([1.0, 3.0], len(X))
    found = reg.importance(X, y, weights, n_repeats=2, random_state=0)
    orders = shuffles(len(X), 2, weights=weights)
    before = np.average((reg.predict(X) - y) ** 2, weights=weights)
    after = []
    for order in orders:
        moved = X.copy()
        moved[:, 0] = X[order, 0]
        after.append(np.average((reg.predict(moved) - y) ** 2, weights=weights))
    np.testing.assert_allclose(found.loss[0], (np.mean(after) - before) / (2 * before))
    assert "votes_low" not in str(found)


@pytest.mark.parametrize("prediction", ["posterior", "tree"])
def test_weights_count_rows(posterior, prediction):
    X, y, _ = rows(40, seed=2)
    weights = np.r_[np.resize([1.0, 3.0], 20), np.zeros(20)]
    clf = copy(posterior).set_params(prediction=prediction)
    found = clf.importance(X, y, weights, n_repeats=1)
    expected = clf.importance(X[:20], y[:20], 2 * weights[:20], n_repeats=1)
    np.testing.assert_allclose(found.loss, expected.loss)
    np.testing.assert_allclose(found.votes, expected.votes)
    order = shuffles(20, weights=weights[:20])[0]
    moved = X[:20].copy()
    moved[:, 0] = X[order, 0]

    def score(rows_):
        return np.log(clf.predict_proba(rows_)[np.arange(20), y[:20]])

    share, loss = weights[:20] / weights.sum(), score(X[:20]) - score(moved)
    mean = share @ loss
    np.testing.assert_allclose(found.loss[0], mean, rtol=1e-5)
    error = np.sqrt(share**2 @ (loss - mean) ** 2)
    np.testing.assert_allclose(found.loss_error[0], error, rtol=1e-5)


def test_refusals(posterior):
    X, y, _ = rows(30)
    with pytest.raises(ValueError, match="n_repeats must be 1 or more, got 0"):
        posterior.importance(X, y, n_repeats=0)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        posterior.importance(X, y, level=1.0)
    with pytest.raises(ValueError, match="max_draws must be 1 or more, got 0"):
        posterior.importance(X, y, max_draws=0)


def test_sparse_facets_count_by_their_distances_in_units_of_scale():
    steep, cut = 2.0**20, np.array([[0.5, 1.5]])  # facets x_j <= center + cut scale
    tree = Tree.from_standardised(
        Topology.stump(), np.ones((1, 2)), steep * np.eye(2)[None], -steep * cut,
        center=np.array([3.0, -7.0]), scale=np.array([1.0, 100.0]),
    )  # fmt: skip
    tree = replace(tree, value=np.array([0.0, 1.0]), leaf_rows=np.ones(2))
    assert tree.is_conjunction[0]
    votes = np.logaddexp(0.0, 1.0 - cut[0])  # one unit from the mean towards each facet
    np.testing.assert_allclose(split_importance([(1.0, tree)]), votes / votes.sum())


def test_slopes_count_as_the_impurity_that_their_terms_remove():
    """Of independent normal features, for which the sum of squares is the measure."""
    X = np.random.default_rng(0).normal(size=(3000, 2)) * [1.0, 4.0]
    reg = bayestree.ObliqueTreeRegressor(splitter="guide", leaf="linear", max_depth=0)
    reg.fit(X, 2 * X[:, 0] + X[:, 1])
    found = reg.feature_importances_
    np.testing.assert_allclose(found, (reg.tree_.slope[0] * X.std(axis=0)) ** 2 / 20, rtol=0.05)


def test_slopes_of_classes_count_to_first_order():
    """By the change of the probabilities for a small step of each feature from the mean."""
    rng = np.random.default_rng(0)
    X, step = rng.normal(size=(300, 2)) * [1.0, 4.0], 1e-5
    y = (X @ [1.0, 0.5] + rng.logistic(size=300) > 0) + 1 * (X[:, 0] > 1)
    clf = bayestree.ObliqueTreeClassifier(splitter="guide", leaf="logistic", max_depth=0)
    tree = clf.fit(X, y).tree_
    moved = tree.predict(tree.center + step * np.diag(tree.scale)) - tree.value
    expected = (moved**2).sum(axis=1)
    np.testing.assert_allclose(clf.feature_importances_, expected / expected.sum(), rtol=1e-3)
