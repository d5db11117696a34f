"""Searches for the hyperplane of a node: brute force, worked examples, and planted splits."""

import itertools
import math

import numpy as np
import pytest
import torch

from bayestree.inference import Data
from bayestree.inference.splitters import planes
from bayestree.inference.splitters.planes import NodeRows, PlaneSplitter
from bayestree.literature import plane_searches
from bayestree.literature.oblique import SEARCHES
from bayestree.literature.plane_searches import CO2, OC1, CartLC, Guide, HHCart
from bayestree.models import Categorical, Gaussian
from bayestree.models.criteria import Entropy, Gini

OBLIQUE = {
    "cart-lc": CartLC(),
    "cart-lc, random": CartLC(start="random"),
    "oc1": OC1(n_restarts=3),
    "oc1, random": OC1(n_restarts=3, start="random"),
    "co2": CO2(),
    "co2, random": CO2(start="random"),
    "hhcart": HHCart(),
    "hhcart, all": HHCart(eigenvectors="all"),
}


def node(X, y, weights=None, *, min_leaf=1, criterion=None):
    """Rows of a node; integer y are classes."""
    data = Data.of(np.asarray(X, dtype=float), y, weights)
    leaf = Gaussian() if data.y.is_floating_point() else Categorical(int(data.y.max()) + 1)
    statistics = leaf.statistics(data.y, data.weights).double().T.numpy().copy()
    X, y, weights = (part.numpy() for part in data)
    return NodeRows(X, y, weights, statistics, criterion or leaf.criterion, min_leaf)


def problem(n=30, d=3, *, levels=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) if levels is None else rng.integers(levels, size=(n, d)) * 1.0
    return X, rng.integers(3, size=n), rng.integers(1, 4, size=n) * 1.0


def rng():
    return np.random.default_rng(0)


def quality(rows, right):
    left = rows.statistics[:, ~right].sum(axis=1, keepdims=True)
    return float(rows.quality(left, rows.statistics.sum(axis=1))[0])


class TestExactSearch:
    @pytest.mark.parametrize("levels", [None, 3])
    @pytest.mark.parametrize("min_leaf", [1, 7])
    @pytest.mark.parametrize("few", [0, 9])  # sums by row, or by class
    def test_cuts(self, levels, min_leaf, few, monkeypatch):
        monkeypatch.setattr(planes, "NUMBERS", 100)  # in several parts
        monkeypatch.setattr(planes, "FEW", few)
        X, y, weights = problem(levels=levels)
        rows = node(X, y, weights, min_leaf=min_leaf)
        directions = np.array([[1.0, 0, 0], [1, -1, 0], [1, 2, -1], [0, 0, 0]])
        found = rows.cuts(directions)
        for direction, best, threshold in zip(
            directions, found.quality, found.threshold, strict=True
        ):
            value = X @ direction
            middle = (np.unique(value)[1:] + np.unique(value)[:-1]) / 2
            every = [
                quality(rows, value > t)
                for t in middle
                if min((value > t).sum(), (value <= t).sum()) >= min_leaf
            ]
            assert best == pytest.approx(max(every, default=-math.inf), rel=1e-12)
            if every:
                assert quality(rows, value > threshold) == pytest.approx(best, rel=1e-12)

    @pytest.mark.parametrize("min_leaf", [1, 7])
    @pytest.mark.parametrize("few", [0, 9])
    @pytest.mark.parametrize("criterion", [Entropy(), Gini()])
    def test_steps(self, min_leaf, few, criterion, monkeypatch):
        monkeypatch.setattr(planes, "NUMBERS", 100)
        monkeypatch.setattr(planes, "FEW", few)
        X, y, weights = problem(seed=1)
        X[:4, 1] = 0.0  # rows whose score does not change, on both sides
        rows = node(X, y, weights, min_leaf=min_leaf, criterion=criterion)
        start = np.array([[1.0, 0.5, 0, 0.1]] * 3)
        moves = np.array([[0, 1.0, 0, 0], [0, 0, 0, 1.0], [0.3, -1.0, 0.2, 0.5]])
        found = rows.steps(start, moves)
        for plane, move, got in zip(start, moves, found, strict=True):
            score, slope = rows.with_ones @ plane, rows.with_ones @ move
            at = np.unique(-score[slope != 0] / slope[slope != 0])
            sides = [rows.with_ones @ (plane + a * move) > 0 for a in (at[1:] + at[:-1]) / 2]
            every = [
                quality(rows, right)
                for right in sides
                if min(right.sum(), (~right).sum()) >= min_leaf
            ]
            assert quality(rows, rows.with_ones @ got > 0) == pytest.approx(max(every), rel=1e-12)
            assert rows.qualities(got[None])[0] == pytest.approx(max(every), rel=1e-12)

    def test_a_step_along_a_coefficient_by_hand(self):
        # scores x + a z: the third row changes sides at a = 1, the fourth at a = 2, in the
        # other direction; between them the classes are apart
        rows = node([[-1.0, 0], [1, 0], [-1, 1], [2, -1]], [0, 1, 1, 1])
        plane, move = np.array([[1.0, 0, 0]]), np.array([[0, 1.0, 0]])
        np.testing.assert_allclose(rows.steps(plane, move), [[1.0, 1.5, 0.0]])

    def test_a_plane_that_leaves_a_side_empty(self):
        rows = node(*problem())
        assert rows.qualities(np.array([[0.0, 0, 0, 1], [0, 0, 0, -1]])).tolist() == [-math.inf] * 2
        same = node(np.ones((4, 2)), [0, 1, 0, 1])
        assert same.best_axis() is None
        np.testing.assert_array_equal(
            same.steps(np.eye(3)[:1], np.eye(3)[1:2]), np.eye(3)[:1] - np.eye(3)[1:2]
        )

    def test_quartiles_count_weights_as_rows(self):
        values, weights = np.array([[4.0], [1], [3], [2]]), np.array([1.0, 5, 1, 1])
        rows = node(values, [0, 1, 0, 1], weights=weights)
        np.testing.assert_array_equal(rows.quartiles[:, 0], [1, 1, 2])


class TestHHCart:
    @pytest.mark.parametrize("vector", [[3.0, 4, 0], [1.0, 0, 0], [-1.0, 0, 0], [0, 0, 1.0]])
    def test_a_reflection_maps_the_vector_to_the_first_axis(self, vector):
        unit = np.array(vector) / np.linalg.norm(vector)
        matrix = plane_searches.reflection(unit.copy())
        np.testing.assert_allclose(matrix @ unit, [1, 0, 0], atol=1e-15)
        np.testing.assert_allclose(matrix @ matrix, np.eye(3), atol=1e-15)

    def test_by_hand(self):
        # both classes lie along (1, 1), parted by x - y = 0; (1, 1) / sqrt 2 goes to the first
        # axis, so the second column of the reflection is (1, -1) / sqrt 2
        X = np.array([[0, 1.0], [2, 3], [4, 5], [1, 0], [3, 2], [5, 4]])
        plane = HHCart().find(node(X, [0, 0, 0, 1, 1, 1]), rng())
        np.testing.assert_allclose(plane, [math.sqrt(0.5), -math.sqrt(0.5), 0], atol=1e-12)

    def test_only_other_eigenvectors_show_some_splits(self):
        # each class varies most along e1, then along (e2 + e3), which no first vector reveals
        a, b = np.meshgrid(np.linspace(-9, 9, 7), np.linspace(-2, 2, 5))
        flat = np.column_stack([a.ravel(), b.ravel(), b.ravel()])
        X = np.concatenate([flat, flat + np.array([0, 0.2, -0.2])])
        rows = node(X, np.repeat([0, 1], 35))
        every = HHCart(eigenvectors="all").find(rows, rng())
        assert rows.qualities(every[None])[0] == pytest.approx(0.0, abs=1e-9)
        dominant = HHCart().find(rows, rng())
        assert rows.qualities(dominant[None])[0] < -1

    def test_the_original_axes_win_ties(self):
        X = np.random.default_rng(0).normal(size=(60, 3))
        X[:, 2] = np.repeat([-1.0, 1.0], 30)
        plane = HHCart().find(node(X, np.repeat([0, 1], 30)), rng())
        np.testing.assert_array_equal(plane, [0, 0, 1, 0])


class TestGuide:
    def test_the_statistic_by_hand(self):
        # quartile groups of 0..7 have two rows each; the signs -,-,-,-,+,+,+,+ give the table
        # (2, 0), (2, 0), (0, 2), (0, 2) with chi-squared 8 on three degrees of freedom, which
        # exceeds x with probability erfc(sqrt(x / 2)) + sqrt(2 x / pi) exp(-x / 2)
        X = np.arange(8.0)[:, None]
        rows = node(X, np.repeat([-1.0, 1.0], 4))
        p = math.erfc(2) + 4 / math.sqrt(math.pi) * math.exp(-4)
        found = plane_searches.significance(rows, rows.groups(np.zeros(1)))
        np.testing.assert_allclose(found, [-math.log(p)])

    @pytest.mark.parametrize(("k", "square"), [(2, 1e5), (4, 1e4), (80, 4e3)])
    def test_p_values_that_underflow(self, k, square):
        # for k = 2 m, the first m terms of a Poisson distribution of mean x / 2
        x, counts = square / 2, np.arange(k // 2)
        terms = counts * math.log(x) - x - [math.lgamma(c + 1) for c in counts]
        expected = terms.max() + math.log(np.exp(terms - terms.max()).sum())
        found = plane_searches.log_p(np.array([square]), np.array([float(k)]))
        np.testing.assert_allclose(found, [expected], rtol=1e-12)

    def test_p_values_are_continuous_where_they_underflow(self):
        square = np.linspace(1200, 1350, 60)  # p from 1e-260 to 1e-294
        for k in (1.0, 3.0, 75.0):
            steps = np.diff(plane_searches.log_p(square, np.full(60, k)), 2)
            assert np.abs(steps).max() < 1e-2

    def test_the_better_of_two_strong_features(self):
        # classes right in 95 of 100 rows by two values, in 89 by four intervals
        draw = np.random.default_rng(0)
        y = np.arange(2000) % 2
        two = np.where(draw.random(2000) < 0.05, 1 - y, y)
        many = np.where(draw.random(2000) < 0.11, 1 - y, y) + draw.uniform(0, 0.9, 2000)
        plane = Guide().find(node(np.column_stack([two, many]), y), rng())
        np.testing.assert_array_equal(plane[:-1], [1, 0])

    @pytest.mark.parametrize(("n", "bounds"), [(40, [0.25, 0.5, 0.75]), (39, [1 / 3, 2 / 3])])
    def test_intervals_for_classes_are_equally_probable_if_the_feature_is_uniform(self, n, bounds):
        # two classes need 40 rows for four intervals; of n equally spaced values from 0 to 1, the
        # variance exceeds 1 / 12 by the factor (n + 1) / (n - 1)
        X = np.linspace(0, 1, n)[:, None]
        found = plane_searches._about_means(node(X, np.arange(n) % 2), 2)
        spread = math.sqrt((n + 1) / (n - 1))
        np.testing.assert_allclose(np.unique(found), 0.5 + spread * (np.array(bounds) - 0.5))

    def test_intervals_count_weights_as_rows(self):
        X, weights = np.array([[4.0], [1], [3], [2]]), np.array([1.0, 40, 1, 1])
        y = np.array([0, 1, 0, 1])
        once = plane_searches._about_means(node(X, y, weights), 2)
        repeats = weights.astype(int)
        every = plane_searches._about_means(
            node(np.repeat(X, repeats, axis=0), np.repeat(y, repeats)), 2
        )
        np.testing.assert_allclose(once, every)

    def test_two_values_have_one_degree_of_freedom(self):
        # the table (3, 1), (1, 3) has chi-squared 8 / 4 = 2, and p = erfc(sqrt(2 / 2))
        X = np.repeat([0.0, 1.0], 4)[:, None]
        rows = node(np.column_stack([X, np.ones(8)]), [0, 0, 0, 1, 0, 1, 1, 1])
        found = plane_searches.significance(rows, rows.groups())
        assert found.tolist() == [pytest.approx(-math.log(math.erfc(1))), -math.inf]

    def test_it_does_not_favour_many_values(self):
        # of noise with two values and noise with many, the best cut of all takes the latter
        chosen, best = np.zeros(2), np.zeros(2)
        for seed in range(200):
            draw = np.random.default_rng(seed)
            X = np.column_stack([draw.integers(2, size=60), draw.normal(size=60)])
            rows = node(X, draw.integers(2, size=60))
            chosen += np.abs(Guide().find(rows, rng())[:-1])
            best += np.abs(rows.best_axis()[:-1])
        # four standard errors of a share of one half of 200 are 28
        assert abs(chosen[0] - 100) < 28 + 12  # and 12, as statistics of tables are discrete
        assert best[0] < 40

    def test_signs_of_residuals(self):
        X = np.column_stack([np.tile([0.0, 1.0], 20), np.arange(40.0)])
        y = np.where(X[:, 1] > 25, 3.0, 0.0)
        np.testing.assert_array_equal(Guide().find(node(X, y), rng()), [0, 1, -25.5])

    def test_a_feature_without_a_cut_is_passed_over(self):
        X = np.column_stack([np.repeat([0.0, 1.0], [2, 18]), np.arange(20.0)])
        rows = node(X, np.repeat([0, 1], [2, 18]), min_leaf=5)
        np.testing.assert_array_equal(Guide().find(rows, rng())[:-1], [0, 1])


class TestCO2:
    def test_the_bound_holds_and_its_maximum_decides(self):
        X, y, weights = problem(seed=3)
        rows = node(X, y, weights)
        right = (X[:, 0] > 0)[None]
        leaves = plane_searches._StumpLeaves(rows, right)
        difference = leaves.difference()
        loss = -np.log(leaves.value[:, 0][:, y])  # of both sides
        np.testing.assert_allclose(difference[0], loss[1] - loss[0])
        score = X @ np.array([0.3, -1.0, 0.2])
        upper = np.maximum(score + loss[1], -score + loss[0]) - np.abs(score)
        reached = np.where(score > 0, loss[1], loss[0])
        assert (upper >= reached - 1e-12).all()
        at_maximum = 2 * score + difference[0] > 0
        np.testing.assert_allclose(
            upper, np.where(at_maximum, score + loss[1], loss[0] - score) - np.abs(score)
        )

    def test_leaves_by_hand(self):
        rows = node(np.zeros((4, 1)), [0, 0, 1, 1], [1.0, 1, 1, 3])
        leaves = plane_searches._StumpLeaves(rows, np.array([[False, True, True, True]]))
        np.testing.assert_allclose(leaves.value[:, 0], [[1, 0], [0.2, 0.8]], atol=0.01)
        real = plane_searches._StumpLeaves(
            node(np.zeros((4, 1)), [0.0, 1, 2, 3]), np.array([[True] * 2 + [False] * 2])
        )
        np.testing.assert_allclose(real.value[:, 0, 0], [2.5, 0.5], atol=0.01)
        # variance 5 / 4: the first row's losses are 2.5^2 and 0.5^2 in units of 5 / 2
        np.testing.assert_allclose(real.difference()[0, 0], (0.25 - 6.25) / 2.5, atol=0.02)

    def test_the_norm_stays_within_nu(self):
        X, y, _ = problem()
        path = CO2()._path(node(X, y), np.array([1.0, 0, 0, 0]), np.array([[4.0, 1.0], [9.0, 0.1]]))
        norms = np.linalg.norm(path, axis=2)
        assert (norms <= np.array([2, 3]) + 1e-12).all()
        assert len(path) == 10


class FixedDraw:
    """A generator whose uniform numbers are all the same."""

    def __init__(self, value):
        self.value = value

    def random(self, n):
        return np.full(n, self.value)


class TestDescent:
    def test_cart_lc_deletes_what_hardly_contributes(self):
        X = np.random.default_rng(0).normal(size=(200, 4))
        y = (X[:, 0] > 0.3).astype(int)
        whole = node(X, y)
        tilted = np.array([1.0, 0.01, 0.0, -0.02, -0.3])
        kept = CartLC()._without_minor(
            whole, tilted, whole.quality(np.zeros((2, 1)), whole.statistics.sum(1))[0]
        )
        np.testing.assert_array_equal(kept[:-1], [1, 0, 0, 0])

    def test_oc1_leaves_the_local_optimum_of_its_coefficients(self):
        # more jumps and starts never give a worse split than the descent from the axis
        X, y, _ = problem(n=60, seed=5)
        rows = node(X, y, criterion=Gini())
        plain = OC1(n_restarts=0, n_jumps=0).find(rows, rng())
        more = OC1(n_restarts=5).find(rows, rng())
        found = [rows.best_axis(), plain, more]
        axis, first, second = rows.qualities(np.stack([p for p in found if p is not None]))
        assert axis <= first
        assert first < second

    def test_oc1_jumps_from_a_local_optimum(self):
        X, y, _ = problem(n=60, seed=5)
        rows = node(X, y, criterion=Gini())
        alone = {"n_restarts": 0, "sideways": 0.0}
        stays, jumps = (OC1(n_jumps=n, **alone).find(rows, rng()) for n in (0, 20))
        first, second = rows.qualities(np.array([stays, jumps]))
        assert second > first + 1  # of 60 rows

    def test_oc1_moves_sideways_less_and_less(self, monkeypatch):
        # the plane parts the classes, so that all steps leave its quality as it is; they are taken
        # with probabilities of 1, .9, .8, .7, .6, ...
        rows = node(np.arange(5.0)[:, None], [0, 0, 1, 1, 1])
        taken = []
        found = plane_searches._CoordinateDescent(
            rows, np.array([[1.0, -1.5]]), FixedDraw(0.55), 1.0
        )
        monkeypatch.setattr(found, "_move", lambda to, planes, quality: taken.extend(to))
        for _ in range(5):  # of two steps
            assert not found.sweep(np.array([0])).any()
        assert taken == [0] * 5

    def test_oc1_moves_sideways_again_after_an_improvement(self):
        rows = node(np.arange(5.0)[:, None], [0, 0, 1, 1, 1])
        found = plane_searches._CoordinateDescent(
            rows, np.array([[1.0, -2.5]]), FixedDraw(0.55), 1.0
        )
        found.chance[:] = 0.3
        assert found.sweep(np.array([0])).all()
        assert found.chance == [0.9]  # the second step was sideways

    def test_cart_lc_moves_about_three_points_of_a_feature(self):
        # the quartiles of 0, 1, 2, 3, 4 are 1, 2 and 3: (x - 2) / 2 + gamma
        units = plane_searches._units(node(np.arange(5.0)[:, None], [0, 0, 1, 1, 1]))
        np.testing.assert_allclose(units, [[[0.5, -1.25], [0.5, -1.0], [0.5, -0.75]]])

    def test_cart_lc_takes_the_best_of_the_three(self, monkeypatch):
        X, y, _ = problem(n=60, seed=7)
        rows = node(X, y, criterion=Gini())
        three = CartLC(deletion=0).find(rows, rng())
        monkeypatch.setattr(plane_searches, "SHIFTS", (0.0, 0.0, 0.0))
        one = CartLC(deletion=0).find(rows, rng())
        better, worse = rows.qualities(np.array([three, one]))
        assert better > worse + 0.5  # of 60 rows

    def test_oc1_splits_few_rows_by_one_feature(self):
        X, y, _ = problem(n=5)
        rows = node(X, y)
        np.testing.assert_array_equal(OC1().find(rows, rng()), rows.best_axis())
        X, y, _ = problem(n=6)
        assert (OC1().find(node(X, y), rng())[:-1] != 0).sum() > 1

    @pytest.mark.parametrize(
        "search",
        [
            CartLC(start="random", deletion=0),
            CO2(start="random"),
            OC1(start="random", n_restarts=0, n_jumps=0, sideways=0, max_sweeps=1),
        ],
        ids=repr,
    )
    def test_a_random_start_does_not_hold_the_split_by_one_feature(self, search):
        X = np.random.default_rng(0).normal(size=(200, 6))
        plane = search.find(node(X, (X[:, 2] > 0).astype(int)), rng())
        assert (plane[:-1] != 0).sum() > 1

    @pytest.mark.parametrize("search", [CartLC(), CO2(), OC1()], ids=repr)
    def test_a_node_that_no_single_feature_can_split_starts_at_random(self, search):
        level = np.repeat(np.arange(6), 8)  # a category of six levels, each of fewer than ten rows
        rows = node(np.eye(6)[level], level % 2 * 1.0, min_leaf=10)
        assert rows.best_axis() is None
        plane = search.find(rows, rng())
        right = int((rows.X @ plane[:-1] + plane[-1] > 0).sum())
        assert 10 <= right <= len(level) - 10


def planted(n, seed, *, real, width):
    """Rows on two sides of x0 + 2 x1 - x2 = 0.1, with a standard deviation of width across it."""
    draw = np.random.default_rng(seed)
    normal = np.array([1.0, 2, -1, 0]) / math.sqrt(6)
    X = draw.normal(size=(n, 4))
    X += (width - 1) * np.outer(X @ normal, normal)
    right = X @ normal > 0.1 / math.sqrt(6)
    return X, (right * 2.0 + 0.1 * draw.normal(size=n)) if real else right.astype(int), right


@pytest.mark.portable
@pytest.mark.parametrize("real", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("name", OBLIQUE)
def test_a_planted_split_is_found(name, real):
    """Nine of ten new rows are on the right side.

    A direction at an angle a to the normal errs on a / pi of rows that are normal, so one tenth
    allows 18 degrees, and the best single feature, at 35 degrees, errs on a fifth. A hyperplane
    that is consistent with the n = 400 rows errs on about (d + 1) / n. HHCART knows the normal as
    an eigenvector of each side, whose standard deviations are 1 and, if the split parts a width of
    4, 4 sqrt(1 - 2 / pi) = 2.4: to sqrt(3 x 5.8 / (4.8^2 n / 2)) = 3.5 degrees.
    """
    width = 4.0 if name == "hhcart" else 1.0
    X, y, _ = planted(400, 0, real=real, width=width)
    plane = OBLIQUE[name].find(node(X, y), rng())
    X_new, _, right = planted(4000, 1, real=False, width=1.0)

    def agreement(plane):
        side = X_new @ plane[:-1] + plane[-1] > 0
        return max((side == right).mean(), (side != right).mean())

    assert agreement(plane) > 0.9
    assert agreement(node(X, y).best_axis()) < 0.85


@pytest.mark.parametrize("search", [kind() for kind in SEARCHES.values()], ids=[*SEARCHES])
@pytest.mark.parametrize("real", [False, True])
def test_the_splitter(search, real):
    X, y, _ = planted(80, 2, real=real, width=1.0)
    data = Data.of(X, y)
    leaf = Gaussian() if real else Categorical(4)  # of which two are absent
    members = [torch.arange(60), torch.arange(70, 80), torch.tensor([0, 1])]
    found = PlaneSplitter(search, leaf, min_leaf=3)(data, members)
    assert found[2] is None
    for split, part in zip(found[:2], members, strict=False):
        plane, offset = split.sites["hyperplane"], split.sites["intercept"]
        assert float(plane.norm()) == pytest.approx(1.0)
        np.testing.assert_array_equal(
            split.right, (X[part] @ plane[0].numpy() + offset.numpy()) > 0
        )
        assert 3 <= int(split.right.sum()) <= len(part) - 3
        statistics = leaf.statistics(data.y[part], data.weights[part])
        assert split.gain == pytest.approx(leaf.criterion.hard_gain(statistics, split.right))
        assert split.gain > 0


@pytest.mark.parametrize("search", [kind() for kind in SEARCHES.values()], ids=[*SEARCHES])
def test_weights_count_as_repeated_rows(search):
    X, y, weights = problem(n=40, seed=7)
    times = weights.astype(int)
    whole = search.find(node(X, y, weights), rng())
    parts = search.find(node(np.repeat(X, times, axis=0), np.repeat(y, times)), rng())
    np.testing.assert_array_equal(X @ whole[:-1] + whole[-1] > 0, X @ parts[:-1] + parts[-1] > 0)


def test_every_search_states_how_it_differs():
    for first, second in itertools.combinations([kind() for kind in SEARCHES.values()], 2):
        assert first != second
    assert OC1(n_jumps=2) == OC1(n_jumps=2) != OC1()
    assert repr(OC1(n_jumps=2)) == "OC1(n_jumps=2)"
    with pytest.raises(AttributeError, match="cannot set 'n_jumps'"):
        OC1().n_jumps = 3
