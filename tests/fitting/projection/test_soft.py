"""Fits of soft splits within a support, and the forward search."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

from bayestree._utils.arrays import softplus
from bayestree.fitting.projection import nodes
from bayestree.fitting.projection.nodes import RIDGE, SoftSplit, log_odds

N, D = 200, 5


def planted(coefficient, weight, steepness=1.0, groups=None, signs=None, seed=0):
    """Rows whose probabilities are those of a noisy-OR of known coefficients."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack((rng.normal(size=(N, coefficient.shape[1] - 1)), np.ones(N)))
    score = weight @ softplus(coefficient @ rows.T)
    right = 1 / (1 + np.exp(-steepness * log_odds(score)))
    groups = groups or [np.array([j]) for j in range(rows.shape[1] - 1)]
    signs = np.zeros(rows.shape[1] - 1) if signs is None else signs
    return SoftSplit(rows, right, np.full(N, 1 / N), groups, signs, steepness)


def loss_of(split, coefficient, weight):
    odds = split.steepness * log_odds(weight @ softplus(coefficient @ split.rows.T))
    cross = split.weights @ (np.logaddexp(0, odds) - split.right * odds)
    return cross + 0.5 * RIDGE * (coefficient[:, :-1] ** 2).sum()


@pytest.mark.parametrize("steepness", [1.0, 6.0])
def test_fit_is_a_stationary_point(steepness):
    """Compared with the gradient by finite differences."""
    truth = np.array([[1.0, -0.5, 0.0, 0.0, 0.0, -0.5], [0.0, 0.0, 1.0, 0.3, 0.0, -1.0]])
    weight = np.array([1.0, 0.7])
    split = planted(truth, weight, steepness)
    support = np.ones(truth.shape, dtype=bool)
    found = split.fit(truth + 0.2, weight, support)
    step = 1e-5
    for place in np.ndindex(truth.shape):
        change = np.zeros_like(truth)
        change[place] = step
        slope = loss_of(split, found + change, weight) - loss_of(split, found - change, weight)
        assert abs(slope / (2 * step)) < 2e-3
    assert loss_of(split, found, weight) <= loss_of(split, truth, weight) + 1e-4


@pytest.mark.parametrize("ridge", [RIDGE, 0.1])
def test_one_facet_is_logistic_regression(ridge, monkeypatch):
    monkeypatch.setattr(nodes, "RIDGE", ridge)
    truth = np.array([[2.0, -1.0, 0.0, 0.0, 0.0, 0.5]])
    split = planted(truth, np.ones(1))

    def loss(flat):
        odds = split.rows @ flat
        return np.mean(np.logaddexp(0, odds) - split.right * odds) + 0.5 * ridge * sum(
            flat[:-1] ** 2
        )

    best = minimize(loss, np.zeros(D + 1)).x
    found = split.fit(np.zeros((1, D + 1)), np.ones(1), np.ones((1, D + 1), dtype=bool))
    assert loss(found[0]) <= loss(best) + 1e-4


def test_coefficients_outside_the_support_are_zero():
    truth = np.array([[2.0, -1.0, 0.3, 0.0, 0.0, 0.5]])
    support = np.array([[True, False, True, False, False, True]])
    found = planted(truth, np.ones(1)).fit(truth, np.ones(1), support)
    assert (found[~support] == 0).all()
    assert found[support].all()


def test_forward_search_finds_planted_columns_in_order_of_their_size():
    truth = np.array([[0.0, 3.0, 0.0, -1.0, 0.0, 0.2]])
    first, second = islice(planted(truth, np.ones(1)).forward(truth, np.ones(1)), 2)
    assert np.flatnonzero(first[0, :-1]).tolist() == [1]
    assert np.flatnonzero(second[0, :-1]).tolist() == [1, 3]


def test_each_facet_keeps_its_place():
    truth = np.array([[3.0, 0.0, 0.0, 0.0, 0.0, -3.0], [0.0, 0.0, 3.0, 0.0, 0.0, -3.0]])
    first = next(planted(truth, np.ones(2)).forward(truth, np.ones(2)))
    assert [np.flatnonzero(one[:-1]).tolist() for one in first] == [[0], [2]]


def test_the_column_of_the_least_probability_comes_first():
    """Those of score tests of least squares; three levels have two degrees of freedom."""
    rng, n, groups = np.random.default_rng(0), 40, [[0], [1], [2], [3, 4, 5]]
    first = []
    for _ in range(60):
        levels = np.eye(3)[rng.integers(3, size=n)]
        rows = np.column_stack((rng.normal(size=(n, 3)), levels, np.ones(n)))
        weights, importance, target = rng.dirichlet(np.ones(n)), rng.random(n), rng.normal(size=n)
        held, root, log_p = rows[:, [0, -1]], np.sqrt(importance)[:, None], [np.inf]
        for own in groups[1:]:
            given = np.linalg.lstsq(root * held, root * rows[:, own])[0]
            free = rows[:, own] - held @ given
            score = target @ free / np.sqrt(n)
            gain = score @ np.linalg.pinv((root * free).T @ (root * free), rcond=1e-6) @ score
            log_p.append(chi2.logsf(gain / (weights @ weights), 2 if len(own) == 3 else 1))
        split = SoftSplit(rows, np.zeros(n), weights, [*map(np.array, groups)], np.zeros(6))
        taken = np.array([True, False, False, False])
        support = np.array([True, *[False] * 5, True])
        first.append(split._best(support, taken, target / np.sqrt(n), importance))
        assert first[-1] == np.argmin(log_p)
    assert {*first} == {1, 2, 3}


def test_probabilities_that_underflow_are_those_of_the_tail():
    """With 6 degrees of freedom, chi-square exceeds 2 y with exp(-y) (1 + y + y^2 / 2)."""
    for y in (5.0, 1000.0):
        found = nodes._log_chi_square(np.array([2 * y]), np.array([6.0]))
        assert found == pytest.approx(np.log(1 + y + y**2 / 2) - y, abs=0.01)


def test_features_of_a_column_enter_together():
    groups = [np.array([0, 1, 2]), np.array([3]), np.array([4])]
    truth = np.array([[1.0, -1.0, 0.5, 0.2, 0.0, 0.0]])
    first = next(planted(truth, np.ones(1), groups=groups).forward(truth, np.ones(1)))
    assert np.flatnonzero(first[0, :-1]).tolist() == [0, 1, 2]


def test_a_coefficient_of_the_wrong_sign_is_left_out():
    truth = np.array([[2.0, -1.0, 0.0, 0.0, 0.0, 0.5]])
    split = planted(truth, np.ones(1), signs=np.array([1.0, 1.0, 0.0, 0.0, 0.0]))
    first, *_, last = split.forward(truth, np.ones(1))
    assert np.flatnonzero(first[0, :-1]).tolist() == [0]
    assert last[0, 0] > 0
    assert last[0, 1] == 0
    every = np.ones(truth.shape, dtype=bool)
    found = split.fit(truth, np.ones(1), every)
    others = split.fit(found, np.ones(1), every & (np.arange(D + 1) != 1))
    assert found[0, 1] == 0
    np.testing.assert_allclose(found, others, atol=0.02)  # the fit of the other coefficients


def test_a_facet_takes_columns_of_one_set():
    """The strongest column decides about the set; others are not taken though they would help."""
    truth = np.array([[2.0, 1.0, 0.3, 0.0, 0.0, 0.5]])
    free = planted(truth, np.ones(1))
    together = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 0, 0, 0, 1]], dtype=bool)
    split = replace(free, together=together)
    taken = [set(np.flatnonzero(one[0, :-1])) for one in split.forward(truth, np.ones(1))]
    assert taken == [{0}, {0, 2}, {0, 2, 3}, {0, 2, 3}, {0, 2, 3}]
    second = next(islice(free.forward(truth, np.ones(1)), 1, None))
    assert set(np.flatnonzero(second[0, :-1])) == {0, 1}


def test_rows_of_no_weight_are_no_evidence():
    """Of 10,000 rows, but not of 200, so weak a column of 20 features would come first."""
    truth = np.array([[0.3, *[0.1] * 20, 0.0]])
    groups = [np.array([0]), np.arange(1, 21)]
    few = planted(truth, np.ones(1), groups=groups)
    rows, right = np.tile(few.rows, (50, 1)), np.tile(few.right, 50)
    many = replace(few, rows=rows, right=right, weights=np.full(len(rows), 1 / len(rows)))
    padded = replace(many, weights=np.where(np.arange(len(rows)) < N, 1 / N, 0.0))
    for split, taken in ((few, [0]), (many, [*range(1, 21)]), (padded, [0])):
        first = next(split.forward(np.zeros_like(truth), np.ones(1)))
        assert np.flatnonzero(first[0, :-1]).tolist() == taken


@pytest.mark.parametrize("follows", [True, False], ids=["a facet", "sides"])
def test_columns_of_many_levels_have_no_advantage_on_noise(follows):
    """Each of six columns of noise comes first equally often, one of 20 levels as well."""
    rng, n, n_sets, first = np.random.default_rng(0), 400, 300, 0
    groups = [*(np.array([j]) for j in range(5)), np.arange(5, 25)]
    for _ in range(n_sets):
        levels = np.eye(20)[rng.integers(20, size=n)]
        features = np.column_stack((rng.normal(size=(n, 5)), levels))
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        rows, right = np.column_stack((features, np.ones(n))), rng.integers(2, size=n) * 1.0
        split = SoftSplit(rows, right, np.full(n, 1 / n), groups, np.zeros(25))
        start = np.zeros((1, 26))
        if follows:
            start = split.fit(start, np.ones(1), np.ones((1, 26), dtype=bool))
        first += next(split.forward(start, np.ones(1)))[0, 5:25].any()
    # Four standard errors; without degrees of freedom the category would nearly always win.
    assert abs(first / n_sets - 1 / 6) < 4 * np.sqrt(5 / 36 / n_sets)


def test_a_column_of_many_levels_that_decides_comes_first():
    levels = np.random.default_rng(1).integers(20, size=N)
    rows = np.column_stack((np.random.default_rng(0).normal(size=(N, 2)), np.eye(20)[levels]))
    split = SoftSplit(
        np.column_stack((rows, np.ones(N))),
        1.0 * (levels < 10),
        np.full(N, 1 / N),
        [np.array([0]), np.array([1]), np.arange(2, 22)],
        np.zeros(22),
    )
    found = next(split.forward(np.zeros((1, 23)), np.ones(1)))
    assert np.flatnonzero(found[0, :2]).tolist() == []
