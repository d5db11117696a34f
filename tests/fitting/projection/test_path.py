"""How short trees are found and compared: predictions, parts that are left out, and losses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree.fitting.projection.facets import Conjunction, Facets, Splits
from bayestree.fitting.projection.nodes import Columns, nodes_of
from bayestree.fitting.projection.path import MOST_LOST, Sparsity, _Search
from bayestree.fitting.projection.reference import Reference
from bayestree.inference import Data
from bayestree.models import Categorical, Gaussian, LinearGaussian
from bayestree.topology import Topology
from bayestree.tree import Tree

PLACE = np.array([0, 0, 0, 1, 1, 0, 1])  # leaves of the rows
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0])


def reference_of(leaf, values, share, X=None, scale=1.0, weights=WEIGHTS):
    """A reference of given values (A, n) with probabilities, as ``Reference.of`` makes it."""
    n = values.shape[1]
    data = Data.of(np.zeros((n, 1)) if X is None else X, values[0], weights).for_leaf(leaf)
    every = leaf.response(data.X.repeat(len(values), 1), torch.as_tensor(values.ravel()))
    each = zip(every.split(n), torch.as_tensor(share), strict=True)
    sums = sum(leaf.statistics(one, data.weights * part) for one, part in each)
    mean = share.T if leaf.n_classes else (share * values).sum(axis=0)
    return Reference(leaf, data, every, share, mean, torch.tensor(scale, dtype=torch.float64), sums)


def certain(leaf, y, **given):
    """The reference whose predictions are y itself."""
    return reference_of(leaf, y[None], np.ones((1, len(y))), **given)


def test_leaves_of_classes_have_the_mean_predictions():
    probs = np.array([0.9, 0.2, 0.4, 0.7, 0.1, 0.5, 0.3])
    share = np.stack([1 - probs, probs])
    found = reference_of(Categorical(2), np.array([[0] * 7, [1] * 7]), share)
    sums = found.of_leaves(PLACE, 2)
    mass = np.bincount(PLACE, WEIGHTS)
    second = np.bincount(PLACE, WEIGHTS * probs)
    np.testing.assert_allclose(sums, np.column_stack((mass - second, second)))
    leaves = (second + 0.5) / (mass + 1)  # half a row of each class is the prior
    expected = probs[:, None] * np.log(leaves) + (1 - probs[:, None]) * np.log(1 - leaves)
    np.testing.assert_allclose(found.expected_log_density(sums), expected)


def test_leaves_of_numbers_have_a_common_scale():
    """Only the distance from the mean of a leaf counts, whatever the variance of its rows."""
    values = np.random.default_rng(0).normal(size=(3, 7)) * np.where(PLACE, 10.0, 0.1)
    share = np.full((3, 7), 1 / 3)
    leaf = Gaussian(strength=1e-9)
    found = reference_of(leaf, values, share, scale=2.0)
    sums = found.of_leaves(PLACE, 2)
    means = [np.average(values.mean(0)[k == PLACE], weights=WEIGHTS[k == PLACE]) for k in (0, 1)]
    expected = stats.norm.logpdf(values[..., None], means, 2.0).mean(axis=0)
    np.testing.assert_allclose(found.expected_log_density(sums), expected, rtol=1e-6)
    np.testing.assert_allclose(
        found.log_density(sums, PLACE, np.inf),
        stats.norm.logpdf(values[0], np.array(means)[PLACE], 2.0),
        rtol=1e-6,
    )


def test_some_rows_of_a_reference_are_those_of_their_own():
    probs = np.random.default_rng(0).random(7)
    values, share = np.array([[0] * 7, [1] * 7]), np.stack([1 - probs, probs])
    rows = np.array([5, 1, 2])
    found = reference_of(Categorical(2), values, share).take(rows)
    alone = reference_of(Categorical(2), values[:, rows], share[:, rows], weights=WEIGHTS[rows])
    place = np.array([0, 1, 1])
    sums = found.of_leaves(place, 2)
    np.testing.assert_allclose(sums, alone.of_leaves(place, 2))
    np.testing.assert_allclose(found.expected_log_density(sums), alone.expected_log_density(sums))
    np.testing.assert_array_equal(found.mean, share.T[rows])


class TestFollowing:
    def numbers(self, means):
        """Rows of two leaves, whose y have the means 0 and 5, and are predicted as ``means``."""
        place = np.repeat([0, 1], 50)
        y = 5.0 * place + np.tile([-0.1, 0.1], 50)
        predicted = np.asarray(means, dtype=float)[place]
        reference = reference_of(
            Gaussian(),
            np.stack((y, 2 * predicted - y)),
            np.full((2, 100), 0.5),
            weights=np.ones(100),
        )
        return reference.following(place, 2), place

    def test_rows_that_contradict_the_predictions(self):
        found, place = self.numbers([0.1, 4.8])
        assert [found.mean[place == k].mean() for k in (0, 1)] == pytest.approx([0, 5], abs=0.01)
        sums = found.of_leaves(place, 2)
        np.testing.assert_allclose(sums[:, 1], np.bincount(place, found.mean))

    def test_rows_as_they_are_predicted(self):
        found, place = self.numbers([0.005, 5.005])
        assert [found.mean[place == k].mean() for k in (0, 1)] == pytest.approx([0.005, 5.005])

    def test_the_share_is_that_of_james_and_stein(self):
        """Of 8 and 12 rows with 6 and 3 of the second class, one of two is predicted in all."""
        y = np.array([1] * 6 + [0] * 2 + [1] * 3 + [0] * 9)
        place = np.repeat([0, 1], [8, 12])
        reference = reference_of(
            Categorical(2), np.stack((y, 1 - y)), np.full((2, 20), 0.5), weights=np.ones(20)
        )
        found = reference.following(place, 2)
        chi_square = 8 * 2 * 0.25**2 / 0.5 + 12 * 2 * 0.25**2 / 0.5
        share = 1 - 2 / chi_square
        expected = 0.5 + share * np.array([6 / 8 - 0.5, 3 / 12 - 0.5])
        assert [found.mean[place == k, 1].mean() for k in (0, 1)] == pytest.approx(expected)

    def test_a_single_row_that_was_not_expected_moves_nothing(self):
        probs, place = np.repeat([1e-5, 0.72], 100), np.repeat([0, 1], 100)
        y = np.repeat([1, 0, 1, 0], [1, 99, 70, 30])
        values, share = np.stack((y, 1 - y)), np.full((2, 200), 0.5)
        reference = reference_of(Categorical(2), values, share, weights=np.ones(200))
        reference = replace(reference, mean=np.column_stack((1 - probs, probs)))
        np.testing.assert_array_equal(reference.following(place, 2).mean[:, 1], probs)

    def test_weights_are_rows(self):
        y, place = np.array([0.0, 1.0, 3.0, 4.0]), np.array([0, 0, 1, 1])
        values, share = np.stack((y, y + 1.0)), np.full((2, 4), 0.5)
        once = reference_of(Gaussian(), values, share, weights=np.full(4, 1.0))
        unit = reference_of(Gaussian(), values, share, weights=np.full(4, 7.0))
        np.testing.assert_allclose(once.following(place, 2).mean, unit.following(place, 2).mean)


def below(feature, limit, d=2):
    """The single facet x_feature <= limit."""
    rule = Conjunction(np.eye(d)[[feature]], np.array([limit]))
    return Facets(1, np.append(np.eye(d)[feature], -limit)[None], rule, rule)


def splits_of(*facets):
    """Nodes in a chain: the right child of each node is the next one."""
    children = [[~k, k + 1] for k in range(len(facets))]
    children[-1][1] = ~len(facets)
    return Splits(Topology(np.array(children)), facets, np.full(len(facets), -1))


class TestSplits:
    def test_numbers_are_terms_leaves_and_slopes(self):
        one = splits_of(below(0, 0.0), below(1, 0.5), below(0, 1.0))
        assert one.nodes == [0, 1, 2]
        assert one.numbers == 3 + 4
        assert one.without(2, 0, -5).numbers == 2 + 3 - 5
        assert one.without(1, 0, 0).nodes == [0]  # and what is right of it is gone

    def test_rows_go_where_the_nodes_that_remain_send_them(self):
        one = splits_of(below(0, 0.0), below(1, 0.5), below(0, 1.0))
        X = np.array([[-1.0, 0.0], [0.5, 0.0], [0.5, 1.0], [2.0, 1.0]])
        assert one.places(X).tolist() == [0, 1, 2, 3]
        assert one.without(0, 1, 0).places(X).tolist() == [1, 1, 2, 3]
        assert one.without(0, 1, 0).nodes == [1, 2]
        assert one.reach(one.right(X), 2).tolist() == [2, 3]
        assert one.without(2, 0, 0).places(X).tolist() == [0, 1, 2, 2]

    def test_leaves_below_a_child(self):
        one = splits_of(below(0, 0.0), below(1, 0.5), below(0, 1.0))
        assert sorted(one.leaves_below(one.child(0, 1))) == [1, 2, 3]
        assert one.leaves_below(one.child(0, 0)) == [0]
        assert sorted(one.without(1, 0, 0).leaves_below(0)) == [0, 1]


def search_of(X, reference, *facets):
    """A search in a tree of known facets."""
    one = splits_of(*facets)
    parts = [facet.rule.experts(np.ones(X.shape[1])) for facet in facets]
    weight, plane, intercept = (np.concatenate(part) for part in zip(*parts, strict=True))
    n_leaves = len(facets) + 1
    tree = Tree(
        topology=one.topology,
        expert_start=np.arange(n_leaves),
        weight=weight,
        hyperplane=plane,
        intercept=intercept,
        value=np.zeros(n_leaves),
        leaf_rows=np.zeros(n_leaves),
        center=np.zeros(X.shape[1]),
        scale=np.ones(X.shape[1]),
    )
    columns = Columns([np.array([j]) for j in range(X.shape[1])], np.zeros(X.shape[1]))
    weights = reference.data.weights.numpy()
    nodes = nodes_of(tree, X, weights, 1.0, columns)
    return _Search(tree, nodes, reference, X, weights, Sparsity()), one


def steps(n=200, seed=0):
    """Rows of two columns with a large step in the first, and a small one within its right side."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, 10.0 * (X[:, 0] > 0) + 1.0 * ((X[:, 0] > 0) & (X[:, 1] > 0))


def test_what_costs_least_is_left_out_first():
    X, y = steps()
    reference = certain(Gaussian(strength=1e-6), y, X=X, scale=5.0, weights=np.ones(len(X)))
    search, one = search_of(X, reference, below(0, 0.0), below(1, 0.0))
    lost, shorter = search._shorter(one)
    assert shorter.nodes == [0]  # the small step
    right = X[:, 0] > 0
    squares = ((y[right] - y[right].mean()) ** 2).sum() / (2 * 5.0**2)
    assert lost == pytest.approx(squares, rel=1e-4)
    assert search._shorter(shorter) is None  # one facet of one column remains


def test_what_costs_least_for_each_number_is_left_out_first():
    """A node costs more than one of its two terms, but less for each of its three numbers."""
    X = np.random.default_rng(0).normal(size=(400, 3))
    rule = Conjunction(np.array([[0.0, 1.0, 0.5]]), np.array([0.0]))
    small = Facets(2, np.array([[0.0, 1.0, 0.5, 0.0]]), rule, rule)
    y = 10.0 * (X[:, 0] > 0) + 1.0 * ((X[:, 0] > 0) & (X[:, 1] + X[:, 2] / 2 > 0))
    reference = certain(Gaussian(strength=1e-6), y, X=X, scale=5.0, weights=np.ones(400))
    search, one = search_of(X, reference, below(0, 0.0, 3), small)
    _, shorter = search._shorter(one)
    assert shorter.nodes == [0]
    assert shorter.numbers == one.numbers - 3


def test_terms_without_effect_are_free():
    """A copy of a column that decides leaves the path at no cost."""
    X, y = steps()
    X = np.column_stack((X, X[:, 0] + 1e-6 * X[:, 1]))
    reference = certain(Gaussian(strength=1e-6), y, X=X, scale=5.0, weights=np.ones(len(X)))
    rule = Conjunction(np.array([[1.0, 0.0, 1.0]]), np.array([0.0]))
    both = Facets(2, np.array([[1.0, 0.0, 1.0, 0.0]]), rule, rule)
    search, one = search_of(X, reference, both)
    lost, shorter = search._shorter(one)
    assert lost <= 1e-9
    assert shorter.numbers == one.numbers - 1


def test_slopes_count_among_the_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, 3 * X[:, 1], 0.0) + 0.1 * rng.normal(size=300)
    leaf = LinearGaussian(slope_strength=(1e-6, 1e-6), strength=1e-6)
    reference = certain(leaf, y, X=X, scale=0.1, weights=np.ones(300))
    search, one = search_of(X, reference, below(0, 0.0))
    assert search._rounded(one).slopes == 1
    assert search._rounded(one).numbers == 1 + 2 + 1


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_the_loss_of_a_single_row_is_within_its_error(n):
    """Another row may be like the one that differs most, so that it proves nothing."""
    search = _Search(None, (), None, np.zeros((n, 1)), np.ones(n), Sparsity())
    lost = np.append(np.zeros(n - 1), 2.0)
    mean, error = search._mean(lost)
    assert mean == pytest.approx(2 / n)
    assert error > mean
    # of the rows themselves, and of one that is 2 off
    assert error**2 == pytest.approx(lost.var() / n + (2 / n) ** 2)


def test_losses_count_by_the_weights_of_the_rows():
    """Of rows of the shares 3/5, 1/5, 1/5, the last loses 2 nats."""
    search = _Search(None, (), None, np.zeros((3, 1)), np.array([3.0, 1.0, 1.0]), Sparsity())
    mean, error = search._mean(np.array([0.0, 0.0, 2.0]))
    assert mean == pytest.approx(0.4)
    assert error**2 == pytest.approx((9 * 0.16 + 0.16 + 1.6**2) / 25 + 0.4**2)
    assert search._mean(np.array([0.0, 0.0, 1e9])) == search._mean(np.array([0, 0, MOST_LOST]))


class TestTheShortest:
    """Log densities of 100 rows in trees, the shortest first."""

    def search(self, loss=None):
        return _Search(None, (), None, np.zeros((100, 1)), np.ones(100), Sparsity(loss))

    def scores(self, *means):
        noise = np.random.default_rng(0).normal(size=100)
        return [mean + 0.1 * np.roll(noise, place) for place, mean in enumerate(means)]

    def test_that_loses_less_than_an_error(self):
        each = self.scores(-1.0, -0.5, -0.005, 0.0)
        assert self.search()._shortest(each) == 2

    def test_whose_loss_is_allowed(self):
        each = self.scores(-1.0, -0.5, -0.05, 0.0)
        for loss, expected in ((0.7, 1), (2.0, 0), (0.1, 2), (0.0, 3)):
            assert self.search(loss)._shortest(each) == expected

    def test_a_lucky_short_tree_is_no_reason(self):
        """Its loss is that of all trees up to the longest one of a larger loss."""
        each = self.scores(-1.0, -0.001, -0.9, -0.8, 0.0)
        assert self.search()._shortest(each) == 4
