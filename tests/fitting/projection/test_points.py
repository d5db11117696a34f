"""Facets as scores of whole points: units, multiples, limits, and their exact deployment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayestree.description import TreeDescription
from bayestree.fitting.projection.facets import Conjunction, in_points, multiples, round_units
from bayestree.topology import Topology
from bayestree.tree import Tree

UNIT = np.array([10.0, 20.0, 1.0])


def rows(n=500, seed=0):
    """Ages, cholesterol and an indicator, all of them whole numbers."""
    rng = np.random.default_rng(seed)
    age, chol = rng.integers(20, 80, n), rng.integers(120, 320, n)
    return np.column_stack((age, chol, rng.integers(2, size=n))).astype(float)


def tree_of(facets, unit=UNIT):
    scale = np.array([17.0, 58.0, 0.5])[: len(unit)]
    weight, plane, intercept = facets.experts(scale)
    return Tree(
        topology=Topology(np.array([[~0, ~1]])),
        expert_start=np.array([0, len(weight)]),
        weight=weight,
        hyperplane=plane,
        intercept=intercept,
        value=np.array([0.0, 1.0]),
        leaf_rows=np.ones(2),
        center=np.zeros(len(scale)),
        scale=scale,
        feature_names=("age", "chol", "smoker")[: len(unit)],
        unit=unit,
    )


def planted(X, points, limit):
    """The gain of rows outside a score."""
    return np.where(np.rint(X @ (points * 20 / UNIT)) > limit * 20, 1.0, -1.0)


def test_units_are_round_and_near_the_deviation():
    rng = np.random.default_rng(0)
    spread = [9.0, 0.014, 51.0, 2.6e-5]
    X = rng.normal(size=(4000, 4)) * spread
    binary = rng.integers(2, size=4000) * 1.0
    filled = np.where(rng.random(4000) < 0.2, 0.43, binary)
    shares = rng.random(4000)  # no indicator, although between 0 and 1
    X = np.column_stack((X, binary, filled, np.full(4000, 7.0), shares))
    assert round_units(X).tolist() == [10.0, 0.01, 50.0, 2e-5, 1.0, 1.0, 1.0, 0.2]


@given(
    st.lists(st.floats(-9, 9).filter(lambda one: abs(one) > 1e-3), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_multiples_are_the_rounded_ones(aim, most):
    aim = np.array(aim)
    found = multiples(aim, most)
    assert (np.abs(found) <= most).all()
    assert (np.gcd.reduce(found, axis=1) == 1).all()
    size = np.abs(aim).max()
    every = {
        tuple(one // np.gcd.reduce(one))
        for factor in np.linspace(0.51, most + 0.49, 40) / size
        if (one := np.rint(factor * aim).astype(int)).any()
    }
    known = {tuple(one) for one in found}
    assert len(known) >= 60 or all(one in known for one in every)


@pytest.mark.parametrize("whole", [False, True])
def test_a_planted_score_is_found(whole):
    """From coefficients that are a tenth wrong, by the gain of the rows on either side."""
    X, points = rows(2000), np.array([2.0, 3.0, -4.0])
    gain = planted(X, points, 37)
    start = Conjunction((points / UNIT * [1.0, 1.1, 0.9])[None], np.array([37.0]))
    found = in_points(start, X, gain, UNIT, 5, whole=whole)
    assert gain[found.outside(X)].sum() >= 0.99 * gain[gain > 0].sum()
    score, _ = tree_of(found).points(0)
    assert np.abs(score).max() <= 5
    assert (np.sign(score) == np.sign(points)).all()


def test_whole_limits_are_whole():
    X = rows()
    gain = planted(X, np.array([2.0, 3.0, 4.0]), 44.5)
    start = Conjunction((np.array([2.0, 3.0, 4.0]) / UNIT)[None], np.array([44.5]))
    facet = TreeDescription(tree_of(in_points(start, X, gain, UNIT, 5, whole=True))).half_space(0)
    assert facet.bound == round(facet.bound)


def test_the_score_is_deployed_exactly():
    """Rows on the limit are inside, which rounding errors of 2 age / 10 + 3 chol / 20 forbid."""
    X = rows(3000)
    facets = Conjunction(np.array([[4.0, 3.0, 80.0]]), np.array([20.0 * 44]))
    tree = tree_of(facets)
    score, worth = tree.points(0)
    assert score.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(tree.hyperplane[0], score / UNIT * 20 * (worth / 20))
    sums = 4 * X[:, 0] + 3 * X[:, 1] + 80 * X[:, 2]
    assert (sums == 880).any()
    assert (tree.goes_right(0, X) == (sums > 880)).all()


def test_scores_in_words():
    described = TreeDescription(
        tree_of(Conjunction(np.array([[4.0, 3.0, 80.0], [-4.0, 0.0, -20.0]]), np.array([880, 3.2])))
    )
    assert {str(one) for one in described.half_spaces(0)} == {
        "3 per 20 chol + 2 per 10 age + 4 smoker <= 44",
        "2 per 10 age + 1 smoker >= -0.16",
    }


def test_points_below_one_unit():
    """The points of .01 and 2 are whole multiples of 1, too."""
    unit = np.array([0.01, 2.0])
    tree = tree_of(Conjunction(np.array([[600.0, -1.0]]), np.array([9.0])), unit)
    assert str(TreeDescription(tree).half_space(0)) == "3 per 0.01 age - 1 per 2 chol <= 4.5"


def test_a_facet_of_one_column_is_a_limit():
    X = rows()
    facets = Conjunction(np.array([[1.0, 0.0, 0.0]]), np.array([54.5]))
    gain = np.where(X[:, 0] > 54.5, 1.0, -1.0)
    found = in_points(facets, X, gain, UNIT, 5, whole=True)
    assert found.normal.tolist() == [[1.0, 0.0, 0.0]]
    assert str(TreeDescription(tree_of(found)).half_space(0)) == "age <= 54.5"


def test_each_facet_of_a_conjunction_is_a_score():
    X = rows(2000)
    truth = Conjunction(np.array([[0.2, 0.16, 0.0], [0.0, -0.05, 3.1]]), np.array([44.0, -9.0]))
    gain = np.where(truth.outside(X), 1.0, -1.0)
    found = in_points(truth, X, gain, UNIT, 10, whole=False)
    tree = tree_of(found)
    assert all(np.abs(tree.points(k)[0]).max() <= 10 for k in range(2))
    assert (found.outside(X) == truth.outside(X)).mean() > 0.97  # a step of .05 sd of the sums


def test_rescaled_features_have_no_points():
    tree = tree_of(Conjunction(np.array([[4.0, 3.0, 0.0]]), np.array([880.0])))
    assert tree.on_scaled(np.zeros(3), np.ones(3)).unit is None
    assert tree.with_columns(np.array([0, 1, -1])).points(0)[0].tolist() == [2, 3]
