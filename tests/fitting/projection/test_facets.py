"""Conjunctions of half-spaces: limits, rounding, and their form as experts of a tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayestree.description import TreeDescription
from bayestree.fitting.projection.facets import Conjunction, best_limit
from bayestree.topology import Topology
from bayestree.tree import Tree


def rows(n=300, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * [1.0, 10.0, 0.1][:d]


def tree_of(facets, scale):
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
    )


def test_from_standardised_coefficients():
    center, scale = np.array([1.0, 2.0]), np.array([2.0, 0.5])
    found = Conjunction.of(np.array([[3.0, 1.0, -0.6]]), center, scale)
    X = rows(d=2)
    inside = np.column_stack(((X - center) / scale, np.ones(len(X)))) @ [3.0, 1.0, -0.6] <= 0
    assert (found.outside(X) == ~inside).all()
    assert found.normal[0, 0] == 1.0  # the strongest per unit


def test_experts_decide_as_the_conjunction():
    scale = np.array([1.0, 10.0, 0.1])
    normal = np.array([[1.0, 0.05, 0.0], [0.0, -1.0, 30.0], [-1.0, 0.0, 2.5]])
    facets = Conjunction(normal, np.array([0.5, 8.0, 1.2]))
    tree, X = tree_of(facets, scale), rows(3000)
    assert (tree.goes_right(0, X) == facets.outside(X)).all()
    assert tree.is_conjunction.tolist() == [True]
    ratios = tree.hyperplane / np.abs(tree.hyperplane).max(axis=1, keepdims=True)
    assert (ratios * np.abs(normal).max(axis=1, keepdims=True) == normal).all()  # no rounding


def test_rows_on_several_facets_are_inside():
    facets = Conjunction(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([3.0, 3.0, 6.0]))
    tree = tree_of(facets, np.array([2.0, 0.7]))
    lattice = np.stack(np.meshgrid(np.arange(0, 8), np.arange(0, 8)), -1).reshape(-1, 2) * 1.0
    assert (tree.goes_right(0, lattice) == facets.outside(lattice)).all()
    assert not tree.goes_right(0, np.array([[3.0, 3.0]]))[0]


def test_the_text_has_the_numbers_of_the_rule():
    facets = Conjunction(np.array([[-1.0, 0.25], [0.105, 1.0]]), np.array([0.0, 0.3]))
    described = TreeDescription(tree_of(facets, np.array([9.6, 1.0])), 6, 3)
    assert {str(one) for one in described.half_spaces(0)} == {
        "x0 - 0.25 x1 >= 0",
        "x1 + 0.105 x0 <= 0.3",
    }


def test_limit_of_the_largest_gain():
    values, gain = np.array([0.0, 1.0, 2.0, 3.0]), np.array([-1.0, 0.5, -2.0, 1.0])
    assert best_limit(values, gain, 2.4) == 2.5
    assert best_limit(values, -np.ones(4), 1.0) > 3.0  # nothing gains outside
    assert best_limit(values, np.ones(4), 1.0) < 0.0


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-3, 3)), min_size=1, max_size=12))
def test_best_limit_is_best_of_all(pairs):
    values = np.array([float(v) for v, _ in pairs])
    gain = np.array([float(g) for _, g in pairs])
    found = gain[values > best_limit(values, gain, 0.0)].sum()
    each = [gain[values > cut].sum() for cut in np.arange(-0.5, 9.0)]
    assert found == pytest.approx(max(each))


def test_a_limit_on_a_row_moves_to_a_short_number_beyond_it():
    X = np.array([[173.0], [174.0], [175.0]])
    (found,) = Conjunction(np.ones((1, 1)), np.array([174.0])).rounded(X, 3).limit
    assert 174.0 < found < 175.0
    assert len(str(found)) == len("174.5")


@given(st.integers(0, 50), st.integers(1, 6))
def test_rounding_a_single_column_keeps_all_sides(seed, digits):
    X = rows(50, 1, seed)
    facets = Conjunction(np.ones((1, 1)), np.array([np.pi * X[seed % 50, 0]]))
    rounded = facets.rounded(X, digits)
    assert (rounded.outside(X) == facets.outside(X)).all()


@given(st.integers(0, 50), st.integers(1, 3), st.sampled_from([0.0, 40.0, 2000.0]))
def test_rounding_does_not_depend_on_the_units(seed, digits, shift):
    X, unit = rows(50, seed=seed), np.array([100.0, 1.0, 0.001])
    normal = np.random.default_rng(seed).normal(size=(2, 3)) * [1.0, 0.1, 10.0]
    facets, moved = Conjunction(normal, np.array([0.3, 1.0])), (X + shift) * unit
    others = Conjunction(normal / unit, facets.limit + shift * normal.sum(axis=1))
    rounded, found = facets.rounded(X, digits), others.rounded(moved, digits)
    assert (found.beyond(moved) == rounded.beyond(X)).all()


def test_limits_have_few_digits():
    X = np.array([[36.1], [36.2], [36.9], [38.0]])
    found = Conjunction(np.ones((1, 1)), np.array([36.47])).rounded(X, 2)
    assert found.limit.tolist() == [36.5]


def test_columns_that_change_little_are_dropped():
    X = rows()
    facets = Conjunction(np.array([[1.0, 0.0, 0.05]]), np.array([0.3]))
    assert facets.rounded(X, 3).normal.tolist() == [[1.0, 0.0, 0.0]]


def test_idle_facets_are_dropped():
    X = rows()
    normal = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    facets = Conjunction(normal, np.array([0.5, 0.9, 100.0]))
    assert facets.without_idle(X).limit.tolist() == [0.5]


def test_levels_are_relative_to_the_most_frequent():
    levels = np.eye(3)[[0, 1, 1, 1, 2, 2]]
    X = np.column_stack((np.arange(6.0), levels))
    facets = Conjunction(np.array([[1.0, 2.0, 0.5, -1.0]]), np.array([3.0]))
    found = facets.relative(X, [np.array([0]), np.array([1, 2, 3])])
    assert found.normal.tolist() == [[1.0, 1.5, 0.0, -1.5]]
    assert found.limit.tolist() == [2.5]
    assert (found.outside(X) == facets.outside(X)).all()


def test_levels_of_an_incomplete_category_stay():
    X = np.column_stack((np.arange(4.0), np.eye(2)[[0, 1, 1, 1]]))
    X[3, 1:] = 0.0  # a missing level
    facets = Conjunction(np.array([[1.0, 2.0, 0.5]]), np.array([3.0]))
    assert facets.relative(X, [np.array([1, 2])]).normal.tolist() == facets.normal.tolist()


def test_settled_limits_cost_least():
    X = rows()
    normal = np.array([[1.0, 0.0, 0.0], [0.0, 0.1, 0.0]])
    truth = Conjunction(normal, np.array([0.4, 0.2]))
    gain = np.where(truth.outside(X), 1.0, -1.0)
    found = Conjunction(normal, np.array([3.0, 3.0])).settled(X, gain)
    assert gain[found.outside(X)].sum() == gain[gain > 0].sum()
