"""Facets are matched whatever their order, and different ones are kept apart."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.diagnostics.matching import assign, match
from tests.strategies import seeds


def half_spaces(degrees, distances):
    """Points of half-spaces in the plane."""
    angle = np.deg2rad(degrees)
    return np.column_stack([np.cos(angle), np.sin(angle), distances])


SQUARE = half_spaces([0, 90, 180, 270], [0.5, 0.5, 0.4, 0.6])


def test_nearest_in_sum():
    # Each alone would take the first centre; together they do best apart.
    centers = half_spaces([0, 40], [0.5, 0.5])
    np.testing.assert_array_equal(assign(half_spaces([10, -10], [0.5, 0.5]), centers), [1, 0])


def test_beyond_the_limit_is_none():
    points = half_spaces([61, 59, 0], [0.5, 0.5, 0.5])
    assert [assign(point[None], SQUARE[:1])[0] for point in points] == [-1, 0, 0]
    far = half_spaces([0, 0], [1.49, 1.51])
    assert [assign(point[None], SQUARE[:1])[0] for point in far] == [0, -1]


def test_nothing_to_match():
    assert match([]) == []
    none = np.empty((0, 3))
    assert [numbers.tolist() for numbers in match([none, none])] == [[], []]
    assert [numbers.tolist() for numbers in match([none, SQUARE[:1]])] == [[], [0]]


def test_near_ones_that_draws_have_side_by_side_stay_two():
    near = half_spaces([0, 40], [0.5, 0.5])
    found = match([near[:1], near[1:], near[:1], near[1:], near, near[::-1]])
    first, second = found[-2]
    assert first != second
    assert [n.tolist() for n in found[:4]] == [[first], [second]] * 2


def test_near_ones_that_take_turns_are_one():
    found = match([half_spaces([angle], [0.5]) for angle in (0, 40, 0, 40, 0)])
    assert [n.tolist() for n in found] == [[0]] * 5


def test_a_facet_of_few_draws_has_a_number_of_its_own():
    extra = np.vstack([SQUARE, half_spaces([45], [0.6])])
    found = match([SQUARE, extra[::-1], SQUARE[1:]])
    first, second, third = (numbers.tolist() for numbers in found)
    assert second[0] == 4  # the rarest comes last
    assert second[::-1][:4] == first
    assert third == first[1:]
    assert first[0] == 3  # which two draws have, the others all three


@settings(max_examples=50, deadline=None)
@given(seeds(), st.integers(2, 5), st.integers(1, 6), st.integers(1, 12))
def test_any_order_any_number(seed, d, n_facets, n_draws):
    """Noisy copies of well separated half-spaces, shuffled, some missing."""
    rng = np.random.default_rng(seed)
    planted = np.zeros((0, d + 1))
    while len(planted) < n_facets:
        normal = rng.normal(size=d)
        new = np.append(normal / np.linalg.norm(normal), 2 * len(planted))  # far apart by offset
        planted = np.vstack([planted, new])
    draws, truth = [], []
    for _ in range(n_draws):
        there = rng.permutation(n_facets)[: rng.integers(n_facets + 1)]
        draws.append(planted[there] + 0.05 * rng.normal(size=(len(there), d + 1)))
        truth.append(there)
    found, planted_as = np.concatenate(match(draws)), np.concatenate(truth).astype(int)
    pairs = set(zip(found.tolist(), planted_as.tolist(), strict=True))
    assert len(pairs) == len(set(found.tolist())) == len(set(planted_as.tolist()))
    counts = np.bincount(found)
    assert (np.diff(counts) <= 0).all()


def test_what_scatters_widely_comes_home():
    """In many dimensions draws exceed the limit from each other, but not from their mean."""
    rng = np.random.default_rng(0)
    d, n_draws = 100, 40
    draws = []
    for _ in range(n_draws):
        normal = 0.09 * rng.normal(size=(2, d))
        normal[0, 0] += 1
        normal[1, 1] += 1
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        draws.append(np.column_stack([normal, [0.2, 0.3]])[rng.permutation(2)])
    cosine = draws[0][:, :d] @ draws[1][:, :d].T
    assert cosine.max() < 0.7
    found = np.concatenate(match(draws))
    assert (np.bincount(found)[:2] >= 0.9 * n_draws).all()
