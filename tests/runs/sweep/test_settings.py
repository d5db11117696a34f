"""The settings of a sweep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bayestree.runs.sweep.settings import MAX_SETTINGS, Range, grid, random
from bayestree.tables import InputError

VARY = {"model.max_depth": [2, 3, 4], "inference.card": ["map", "svi"]}
RANGES = {"inference.learning_rate": Range(low=1e-3, high=1e-1, log=True), **VARY}


def as_set(settings):
    return {tuple(sorted(setting.items())) for setting in settings}


class TestGrid:
    def test_every_combination_once_and_the_last_name_fastest(self):
        found = grid(VARY, "s.toml")
        assert len(found) == len(as_set(found)) == 6
        assert [one["inference.card"] for one in found[:3]] == ["map", "svi", "map"]
        assert [one["model.max_depth"] for one in found[:3]] == [2, 2, 3]

    def test_nothing_varied_is_one_setting(self):
        assert grid({}, "s.toml") == [{}]

    def test_a_range_is_refused(self):
        with pytest.raises(
            InputError, match=r"s.toml \[vary\]: inference.learning_rate is a range"
        ):
            grid(RANGES, "s.toml")

    def test_a_slip_is_refused_before_it_fills_the_memory(self):
        many = {f"model.{name}": list(range(1000)) for name in "abcdef"}
        with pytest.raises(InputError, match=f"but the maximum is {MAX_SETTINGS}"):
            grid(many, "s.toml")


class TestRandom:
    def test_different_and_from_the_lists(self):
        found = random(VARY, 6, 0, "s.toml")
        assert as_set(found) == as_set(grid(VARY, "s.toml"))

    def test_the_first_are_the_same_for_more_points(self):
        assert random(RANGES, 20, 3, "s.toml")[:5] == random(RANGES, 5, 3, "s.toml")

    def test_another_seed_draws_others(self):
        assert random(RANGES, 5, 0, "s.toml") != random(RANGES, 5, 1, "s.toml")

    def test_order_of_the_names_is_of_no_account(self):
        backwards = dict(reversed(RANGES.items()))
        assert random(backwards, 5, 0, "s.toml") == random(RANGES, 5, 0, "s.toml")

    def test_more_points_than_combinations_are_refused(self):
        with pytest.raises(InputError, match="points = 7, but only 6 distinct ones"):
            random(VARY, 7, 0, "s.toml")

    def test_a_range_that_holds_hardly_a_number_ends(self):
        with pytest.raises(InputError, match="distinct ones"):
            random({"a": Range(low=1.0, high=1.0000001)}, 5, 0, "s.toml")


class TestRange:
    def test_whole_numbers_with_their_ends_evenly(self):
        rng = np.random.default_rng(0)
        drawn = [Range(low=1, high=4).draw(rng) for _ in range(4000)]
        assert all(type(number) is int for number in drawn)
        assert np.unique(drawn, return_counts=True)[1].min() > 900

    def test_even_in_the_logarithm(self):
        rng = np.random.default_rng(0)
        drawn = [Range(low=1e-4, high=1.0, log=True).draw(rng) for _ in range(2000)]
        assert 0.47 < np.mean(np.array(drawn) < 1e-2) < 0.53

    @given(
        ends=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
        seed=st.integers(0, 10),
    )
    def test_within_its_ends(self, ends, seed):
        low, high = sorted(ends)
        if low < high:
            assert low <= Range(low=low, high=high).draw(np.random.default_rng(seed)) <= high

    def test_ends_that_are_closer_than_the_digits_of_a_draw(self):
        close = Range(low=1.00004, high=1.00006)
        assert close.draw(np.random.default_rng(0)) == close.low

    @pytest.mark.parametrize(
        "wrong",
        [
            {"low": 2, "high": 1},
            {"low": 0.0, "high": 1.0, "log": True},
            {"low": True, "high": 3},
            {"low": "1", "high": 3},
            {"low": 1, "high": float("inf")},
            {"low": 1, "high": 10**400},
            {"low": 1, "high": 2, "step": 1},
            {"low": 1},
        ],
    )
    def test_refused(self, wrong):
        with pytest.raises(ValidationError):
            Range(**wrong)
