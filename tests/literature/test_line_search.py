"""The search of splits by one and two features: brute force and worked examples."""

import math
from itertools import combinations

import numpy as np
import pytest

from bayestree.inference.splitters import cuts
from bayestree.literature import _line_search
from bayestree.literature._line_search import LineNode, LineSearch
from bayestree.models.criteria import Entropy, Gini


def gini(left, whole):
    """Sum over the sides of (sum of squared counts) / count."""
    whole = whole.reshape(-1, *[1] * (left.ndim - 1))
    sides = [(side**2).sum(0) / np.maximum(side.sum(0), 1e-300) for side in (left, whole - left)]
    return sides[0] + sides[1]


def agreement(left, whole):
    return np.abs(whole.reshape(-1, *[1] * (left.ndim - 1)) - 2 * left)[0] / 2


def every_cut(X, statistics, weights, quality, *, directions, groups, min_leaf):
    """The best quality over all groups of features, directions and midpoints, one by one."""
    mean = np.average(X, axis=0, weights=weights)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    z = (X - mean) / spread
    best = -math.inf
    for group in groups:
        for direction in directions:
            value = z[:, list(group)] @ direction
            distinct = np.unique(value.round(10))
            for threshold in (distinct[1:] + distinct[:-1]) / 2:
                left = value <= threshold
                if min(left.sum(), (~left).sum()) >= min_leaf:
                    best = max(best, float(quality(statistics[left].sum(0), statistics.sum(0))))
    return best


def quality_of(line, X, statistics, quality):
    right = X[:, line.features] @ line.coefficient + line.intercept > 0
    return float(quality(statistics[~right].sum(0), statistics.sum(0))), right


def problem(kind, *, n=40, d=4, levels=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) if levels is None else rng.integers(levels, size=(n, d)) * 0.1
    weights = rng.uniform(0.5, 2.0, size=n)
    if kind == "gini":
        return X, weights[:, None] * np.eye(3)[rng.integers(3, size=n)], weights, gini
    return X, (weights * rng.choice([-1.0, 1.0], size=n))[:, None], weights, agreement


@pytest.mark.parametrize("kind", ["gini", "0/1"])
@pytest.mark.parametrize("levels", [None, 4])
@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("min_leaf", [1, 8])
def test_the_best_of_all_cuts(kind, levels, cells, min_leaf, monkeypatch):
    if cells:  # also where they save no time
        monkeypatch.setattr(_line_search, "OVERHEAD", -1)
    seed = 3
    X, statistics, weights, quality = problem(kind, levels=levels, seed=seed)
    search = LineSearch(n_orientations=6, min_leaf=min_leaf)
    node = LineNode(search, X, statistics, weights, quality)
    cases = [
        (node.single(), [np.ones(1)], [(j,) for j in range(4)]),
        (node.pair(), search.orientations(), list(combinations(range(4), 2))),
    ]
    for line, directions, groups in cases:
        best = every_cut(
            X,
            statistics,
            weights,
            quality,
            directions=directions,
            groups=groups,
            min_leaf=min_leaf,
        )
        assert line.quality == pytest.approx(best, rel=1e-12)
        found, right = quality_of(line, X, statistics, quality)
        assert found == pytest.approx(best, rel=1e-12)
        assert min(right.sum(), (~right).sum()) >= min_leaf


def test_a_diagonal_by_hand():
    """Two columns, standardised already: x0 + x1 separates, and the gap is that of the middle."""
    X = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    signed = np.array([[-1.0], [-1.0], [-1.0], [1.0]])
    node = LineNode(LineSearch(n_orientations=4), X, signed, np.ones(4), agreement)
    # one feature: three of four, quality 2 - 1 = 1 above the mean of two wrong
    assert node.single().quality == pytest.approx(1.0)
    # 67.5 degrees: projections -1.307, 0.541, -0.541, 1.307; 22.5 degrees is its mirror image
    line = node.pair()
    assert line.quality == pytest.approx(2.0)
    degrees = np.degrees(np.arctan2(line.coefficient[1], line.coefficient[0]))
    assert degrees in (pytest.approx(22.5), pytest.approx(67.5))
    near, far = math.cos(math.radians(22.5)), math.sin(math.radians(22.5))
    assert line.margin == pytest.approx((near + far) - (near - far))
    assert line.intercept == pytest.approx(-near)


def test_of_equal_cuts_the_widest_gap():
    X = np.array([[0.0, 0.0], [1.0, 4.9], [9.0, 5.1], [10.0, 10.0]])
    signed = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    line = LineNode(LineSearch(), X, signed, np.ones(4), agreement).single()
    assert line.features.tolist() == [0]
    assert -line.intercept / line.coefficient[0] == pytest.approx(5.0)
    # the cuts at 1.5 and at 7 leave one row wrong each
    X = np.array([0.0, 1.0, 2.0, 5.0, 9.0, 10.0])[:, None]
    signed = np.array([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])[:, None]
    line = LineNode(LineSearch(), X, signed, np.ones(6), agreement).single()
    assert line.quality == pytest.approx(2.0)
    assert -line.intercept / line.coefficient[0] == pytest.approx(7.0)


@pytest.mark.parametrize("n", [2, 3, 30, 31])
def test_orientations_leave_out_the_axes(n):
    directions = LineSearch(n_orientations=n).orientations()
    assert len(directions) == n - n % 2
    assert np.abs(directions).min() > 1e-3
    np.testing.assert_allclose((directions**2).sum(1), 1.0)


def test_a_screen_searches_what_it_passes_on_exactly():
    X, statistics, weights, quality = problem("gini", n=300, d=8)
    X[:, 5] += 3 * X[:, 2] + 2.0 * statistics.argmax(1)
    every = LineNode(LineSearch(budget=math.inf), X, statistics, weights, quality).pair()
    screened = LineNode(LineSearch(budget=0, n_refined=3), X, statistics, weights, quality).pair()
    assert screened.features.tolist() == every.features.tolist() == [2, 5]
    assert screened.quality == every.quality


def test_more_pairs_than_allowed_are_those_of_the_best_features():
    X, statistics, weights, quality = problem("gini", n=200, d=6)
    X[:, 1] += statistics.argmax(1)
    X[:, 4] -= statistics.argmax(1)
    line = LineNode(LineSearch(max_pairs=1), X, statistics, weights, quality).pair()
    assert line.features.tolist() == [1, 4]


def test_columns_without_a_cut():
    statistics, weights = np.array([[1.0], [-1.0], [1.0]]), np.ones(3)
    constant = np.full((3, 2), 0.1)
    node = LineNode(LineSearch(), constant, statistics, weights, agreement)
    assert node.single() is None
    assert node.pair() is None
    one = np.array([[0.1, 1e9 + 1e-8], [0.1, 1e9], [0.1, 1e9 - 1e-8]])  # rounding is no spread
    assert LineNode(LineSearch(), one, statistics, weights, agreement).single() is None
    line = LineNode(LineSearch(min_leaf=2), np.eye(3), statistics, weights, agreement)
    assert line.single() is None


def test_rows_that_are_alike_stay_together():
    """Two rows whose projections differ by rounding are not parted."""
    X = np.array([[0.1, 0.3], [0.1 + 1e-17, 0.3], [0.3, 0.1], [0.5, 0.9]])
    X = np.concatenate([X, X[:1] + 1e-16])
    signed = np.array([[1.0], [-1.0], [1.0], [1.0], [-1.0]])
    node = LineNode(LineSearch(), X, signed, np.ones(5), agreement)
    for line in (node.single(), node.pair()):
        right = X[:, line.features] @ line.coefficient + line.intercept > 0
        assert right[0] == right[1] == right[4]


def test_weights_are_repeats():
    X, statistics, _, quality = problem("gini", n=30)
    times = np.random.default_rng(0).integers(1, 4, size=30)
    classes = (statistics > 0) * 1.0
    rows = np.repeat(np.arange(30), times)
    weighted = LineNode(LineSearch(), X, classes * times[:, None], times, quality).pair()
    repeated = LineNode(LineSearch(), X[rows], classes[rows], np.ones(len(rows)), quality).pair()
    assert weighted.features.tolist() == repeated.features.tolist()
    np.testing.assert_allclose(weighted.coefficient, repeated.coefficient)
    np.testing.assert_allclose(weighted.quality, repeated.quality)


@pytest.mark.parametrize(
    "wrong", [{"n_orientations": 1}, {"min_leaf": 0}, {"budget": -1}, {"max_pairs": 0}]
)
def test_numbers_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LineSearch(**wrong)


@pytest.mark.parametrize("criterion", [Entropy(), Gini()])
@pytest.mark.parametrize("min_leaf", [1, 5])
def test_sums_by_the_class_of_each_row_find_the_same_lines(criterion, min_leaf):
    rng = np.random.default_rng(0)
    label = rng.integers(40, size=400)
    X = rng.normal(size=(400, 4)) + rng.normal(size=(40, 4))[label]
    weights = rng.uniform(0.5, 2, size=400)
    statistics = np.eye(40)[label] * weights[:, None]
    search = LineSearch(n_orientations=6, min_leaf=min_leaf, budget=100.0)  # screens the pairs
    each = [
        LineNode(search, X, statistics, weights, cuts.quality_of(criterion), classes=classes)
        for classes in (None, cuts.RowClasses.of(statistics.T, criterion, 20))
    ]
    for find in ("single", "pair"):
        summed, by_row = (getattr(node, find)() for node in each)
        np.testing.assert_array_equal(by_row.features, summed.features)
        np.testing.assert_allclose(by_row.coefficient, summed.coefficient)
        assert by_row.intercept == pytest.approx(summed.intercept)
        assert by_row.quality == pytest.approx(summed.quality)
