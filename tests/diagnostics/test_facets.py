"""Facets: a planted polytope is recovered in the units of the data.

Facets are matched whatever their order, and different ones are kept apart.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.diagnostics import node_facets
from bayestree.diagnostics.facets import assign, match
from tests.strategies import seeds

LOG2 = np.log(2.0)
CENTER, SCALE = np.array([50.0, -2.0]), np.array([10.0, 0.5])
# A triangle: unit normals in the units of the data, at 0.8 of a unit of the features.
ANGLE = np.deg2rad([170.0, 280.0, 60.0])
STANDARD = np.column_stack([np.cos(ANGLE), np.sin(ANGLE)])
NORMAL = STANDARD / SCALE
LENGTH = np.linalg.norm(NORMAL, axis=1)
NORMAL = NORMAL / LENGTH[:, None]
OFFSET = NORMAL @ CENTER + 0.8 / LENGTH


def planted(rng, n_draws=40, spread=0.03, missing=0, experts=6):
    """Draws whose facets are noisy copies of the triangle under any number, with idle experts."""
    draws = {
        "hyperplane": np.empty((2, n_draws // 2, 1, experts, 2)),
        "intercept": np.empty((2, n_draws // 2, 1, experts)),
        "log_weight": rng.normal(size=(2, n_draws // 2, 1, experts)) / 3,
    }
    for place, one in enumerate(np.ndindex(2, n_draws // 2)):
        at = (*one, 0)
        plane = np.zeros((experts, 2))
        weight = np.exp(draws["log_weight"][at])
        weight[3:] = 1e-12  # idle: no vote, no facet
        plane[3:] = rng.normal(size=(experts - 3, 2))
        standard = NORMAL * SCALE
        length = np.linalg.norm(standard, axis=1)
        plane[:3] = standard / length[:, None] + spread * rng.normal(size=(3, 2))
        bound = (OFFSET - NORMAL @ CENTER) / length + spread * rng.normal(size=3)
        size = rng.uniform(2, 9, size=3)  # of the hyperplane, which moves no border
        plane[:3] *= size[:, None]
        intercept = rng.normal(size=experts)
        intercept[:3] = np.log(np.expm1(LOG2 / weight[:3])) - bound * size
        if place < missing:
            weight[2] = 1e-12
        order = rng.permutation(experts)
        draws["hyperplane"][at] = plane[order]
        draws["intercept"][at] = intercept[order]
        draws["log_weight"][at] = np.log(weight)[order]
    return draws


def facets_of(draws, low=(-2.0, -2.0), high=(2.0, 5.0), **options):
    box = {"low": np.asarray(low), "high": np.asarray(high)}
    return node_facets(draws, 0, **box, **{"center": CENTER, "scale": SCALE} | options)


def test_a_border_counts_once_in_both_orientations():
    """Half of the draws have the complement of a half-space, with the sides exchanged."""
    plane = np.array([2.0, 1.0]) * np.array([1.0, -1.0, 1.0, -1.0])[:, None]
    level = np.log(np.expm1(LOG2))  # the activation at the border of an expert of weight 1
    draws = {
        "hyperplane": plane.reshape(1, 4, 1, 1, 2),
        "intercept": (level - 0.5 * np.sign(plane[:, 0])).reshape(1, 4, 1, 1),
        "log_weight": np.zeros((1, 4, 1, 1)),
    }
    exchanged = np.array([[False, True, False, True]])
    found = facets_of(draws, exchanged=exchanged)
    np.testing.assert_array_equal(found.probability, [1.0])
    np.testing.assert_allclose(found.strength, np.array([[2.0, 1.0]]) / np.sqrt(5))
    np.testing.assert_allclose(found.offset_interval[0], found.offset[0])
    np.testing.assert_array_equal(facets_of(draws).probability, [0.5, 0.5])


def test_a_planted_triangle():
    found = facets_of(planted(np.random.default_rng(0)), level=0.95)
    np.testing.assert_array_equal(found.probability, 1.0)
    np.testing.assert_array_equal(found.counts, 40)
    assert found.n_draws == 40
    np.testing.assert_allclose(np.linalg.norm(found.normal, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(found.strength, axis=1), 1)
    order = (NORMAL @ found.normal.T).argmax(axis=1)
    assert sorted(order) == [0, 1, 2]
    for i, k in enumerate(order):
        true = NORMAL[i]
        assert (found.normal_interval[k, :, 0] <= true).all()
        assert (true <= found.normal_interval[k, :, 1]).all()
        # four standard errors of the mean of 40 draws whose directions spread by 3 %
        assert np.linalg.norm(found.strength[k] - STANDARD[i]) < 4 * 0.03 / 40**0.5
        distance = found.offset_interval[k] - found.normal[k] @ CENTER
        assert distance[0] < OFFSET[i] - true @ CENTER < distance[1]
        assert found.offset_interval[k, 0] < found.offset[k] < found.offset_interval[k, 1]


def test_units_of_the_features_do_not_matter():
    draws = planted(np.random.default_rng(8), spread=0.3)
    fine = np.array([1e3, 1.0])  # the first feature in a thousandth of its unit
    one, other = facets_of(draws), facets_of(draws, center=CENTER * fine, scale=SCALE * fine)
    np.testing.assert_allclose(one.strength, other.strength)
    plane = other.normal * fine
    length = np.linalg.norm(plane, axis=1)
    np.testing.assert_allclose(plane / length[:, None], one.normal)
    np.testing.assert_allclose(other.offset / length, one.offset)
    np.testing.assert_allclose(other.offset_interval / length[:, None], one.offset_interval)


def test_no_spread_no_width():
    found = facets_of(planted(np.random.default_rng(1), spread=0.0))
    order = (NORMAL @ found.normal.T).argmax(axis=1)
    np.testing.assert_allclose(found.normal[order], NORMAL, atol=1e-12)
    np.testing.assert_allclose(found.offset[order], OFFSET)
    np.testing.assert_allclose(np.ptp(found.normal_interval, axis=2), 0, atol=1e-12)
    np.testing.assert_allclose(np.ptp(found.offset_interval, axis=1), 0, atol=1e-10)


def test_a_facet_of_some_draws():
    found = facets_of(planted(np.random.default_rng(2), missing=10))
    np.testing.assert_allclose(found.probability, [1, 1, 0.75])
    assert NORMAL[2] @ found.normal[2] > 0.999


def test_only_facets_inside_the_box():
    found = facets_of(planted(np.random.default_rng(3)), low=(0.0, -0.2))
    assert len(found.counts) == 1
    assert NORMAL[2] @ found.normal[0] > 0.999


def test_a_constant_feature():
    """It is not used for matching, but its coefficient is reported."""
    found = facets_of(planted(np.random.default_rng(3)), low=(0.0, -2.0), high=(0.0, 5.0))
    assert len(found.counts) == 2
    assert (np.abs(found.normal[:, 1]) > 0.99).all()


def test_max_draws():
    draws = planted(np.random.default_rng(5))
    found = facets_of(draws, max_draws=10)
    assert found.n_draws == 10
    np.testing.assert_array_equal(found.counts, 10)
    with pytest.raises(ValueError, match="max_draws must be 1 or more, got 0"):
        facets_of(draws, max_draws=0)


def test_no_facet():
    draws = planted(np.random.default_rng(6))
    draws["log_weight"][:] = -40.0
    found = facets_of(draws)
    assert found.normal.shape == (0, 2)
    assert found.normal_interval.shape == (0, 2, 2)
    assert found.offset_interval.shape == (0, 2)
    assert len(found.to_frame()) == len(found.to_frame("feature")) == 0
    assert "no draw has a facet" in str(found)


def test_tables():
    draws = planted(np.random.default_rng(7), missing=1)
    names = ("age", "dose")
    found = facets_of(draws, feature_names=names, label="LR")
    frame = found.to_frame()
    assert frame.index.tolist() == [1, 2, 3]
    np.testing.assert_allclose(frame["probability"], [1, 1, 39 / 40])
    # By unit of each feature the third normal is (0.5, 0.87): both matter.
    assert set(frame["features"]) == {"age", "dose", "dose, age"}
    assert found.features[2] == ("dose", "age")
    assert frame.loc[3, "features"] == "dose, age"
    long = found.to_frame("feature")
    assert long.loc[(3, "dose"), "normal"] == found.normal[2, 1]
    assert long.loc[(2, "age"), "normal_low"] == found.normal_interval[1, 0, 0]
    assert "node LR" in str(found)
    assert "90 %" in str(found)
    with pytest.raises(ValueError, match="by must be 'facet' or 'feature', got 'row'"):
        found.to_frame("row")


def test_facets_in_words():
    draws = planted(np.random.default_rng(7), missing=1)
    found = facets_of(draws, feature_names=("age", "dose"), label="LR")
    assert str(found).splitlines() == [
        "Facets of node LR: 40 draws, limits with 90 % intervals",
        "facet  probability  inside is",
        "    1         1.00  age - 3.46 dose >= 48.8  (48.3 to 49.3)",
        "    2         1.00  dose - 0.00892 age >= -2.847  (-2.874 to -2.827)",
        "    3         0.97  dose + 0.0288 age <= -0.099  (-0.134 to -0.060)",
    ]
    assert found.inequalities(1)[0] == "age + … 1 more >= 48.8  (48.3 to 49.3)"
    with pytest.raises(ValueError, match="max_features must be 1 or more, got 0"):
        found.inequalities(0)


def test_the_inequalities_are_the_half_spaces():
    found = facets_of(planted(np.random.default_rng(7)))
    for facet, said in enumerate(found.inequalities()):
        first, sign, factor, second, side, limit, low, high = re.fullmatch(
            r"x(\d) ([+-]) (\S+) x(\d) (<=|>=) (\S+)  \((\S+) to (\S+)\)", said
        ).groups()
        lead = found.normal[facet, int(first)]
        assert (side == "<=") == (lead > 0)
        ratio = found.normal[facet, int(second)] / lead
        assert float(sign + factor) == pytest.approx(ratio, rel=0.01)
        unit = SCALE[int(first)] / 100
        assert float(limit) == pytest.approx(found.offset[facet] / lead, abs=unit)
        ends = sorted(found.offset_interval[facet] / lead)
        np.testing.assert_allclose([float(low), float(high)], ends, atol=unit)


def test_many_features_are_counted():
    rng = np.random.default_rng(0)
    draws = {
        "hyperplane": rng.normal(size=(1, 1, 1, 1, 50)),
        "intercept": np.zeros((1, 1, 1, 1)),
        "log_weight": np.zeros((1, 1, 1, 1)),
    }
    box = {"low": np.full(50, -2.0), "high": np.full(50, 2.0)}
    found = node_facets(draws, 0, **box, center=np.zeros(50), scale=np.ones(50))
    assert "+ … 46 more" in str(found)
    assert max(map(len, str(found).splitlines())) < 100


def test_rare_facets_are_counted_not_printed():
    draws = planted(np.random.default_rng(8))
    at = (0, 0, 0)
    odd = np.argmin(draws["log_weight"][at])
    draws["log_weight"][at][odd] = 0.0
    draws["hyperplane"][at][odd] = [1.0, 0.0]
    draws["intercept"][at][odd] = -0.5  # x0 <= 0.5, far from the others
    found = facets_of(draws)
    assert found.probability.tolist() == [1, 1, 1, 1 / 40]
    assert "and 1 more" in str(found)
    assert len(str(found).splitlines()) == 1 + 1 + 3 + 1  # head, names, facets, tail


def test_bad_input():
    draws = planted(np.random.default_rng(9))
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 90"):
        facets_of(draws, level=90)
    with pytest.raises(ValueError, match="feature_names must name 2 features, got 1"):
        facets_of(draws, feature_names=("age",))


def test_a_line_break_in_a_name_ends_no_line():
    draws = planted(np.random.default_rng(9))
    found = facets_of(draws, feature_names=("size,\nin cm", "age"))
    assert str(found) == str(facets_of(draws, feature_names=("size, in cm", "age")))


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
