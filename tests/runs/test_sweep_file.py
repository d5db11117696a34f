"""Sweep files, and the combinations of the values that they vary."""

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bayestree.runs.configuration import MAX_COMBINATIONS, Range
from bayestree.runs.sweep_file import SweepFile, grid, random, read_sweep
from bayestree.tables import InputError
from tests.runs.sweep_cases import SWEEP, written


def refused(folder, text, **others):
    """The message about a sweep file."""
    with pytest.raises(InputError) as caught:
        written(folder, sweep=text, **others)
    return str(caught.value)


def test_every_setting_is_a_run(tmp_path):
    file = written(tmp_path)
    assert file.settings == [{"model.max_depth": 1}, {"model.max_depth": 2}]
    assert [one.parameters("classification")["max_depth"] for one in file.files] == [1, 2]
    assert file.seeds == [0, 1]
    assert file.sweep.folder == tmp_path / "out"
    assert file.run == tmp_path / "run.toml"


def test_folder_and_seed_where_none_is_named(tmp_path):
    file = written(tmp_path, sweep='run = "run.toml"', run='seed = 7\n[data]\npath="d"\ntarget="k"')
    assert file.sweep.folder == tmp_path / "results" / "sweep"
    assert file.seeds == [7]
    assert file.settings == [{}]


@pytest.mark.parametrize(
    "vary",
    [
        '[vary]\n"model.max_depth" = [1]',
        "[vary]\nmax_depth = [1]",
        "[vary.model]\nmax_depth = [1]",
        "[vary]\nmodel.max_depth = [1]",
    ],
)
def test_names_may_be_written_in_any_of_these_ways(tmp_path, vary):
    assert written(tmp_path, sweep=f'run = "run.toml"\n{vary}').vary == {"model.max_depth": [1]}


def test_random_search(tmp_path):
    text = (
        'run = "run.toml"\n[sweep]\nmethod = "random"\npoints = 4\n[vary]\n'
        "max_depth = { low = 1, high = 9 }"
    )
    file = written(tmp_path, sweep=text)
    assert file.vary == {"model.max_depth": Range(low=1, high=9)}
    assert len(file.settings) == len(file.files) == 4


def test_cards_may_be_varied(tmp_path):
    run = '[data]\npath="d"\ntarget="k"\n[model]\ncard = "cpt"'
    text = 'run = "run.toml"\n[vary]\ninference.card = ["map", "svi"]'
    found = [
        one.parameters("classification") for one in written(tmp_path, sweep=text, run=run).files
    ]
    assert [one["inference"] for one in found] == ["map", "svi"]


def test_the_copy_in_the_folder_is_the_same_sweep(tmp_path):
    text = SWEEP + "min_leaf = [1, 5]\n"
    file = written(tmp_path, sweep=text)
    (tmp_path / "out").mkdir()
    file.write_toml(tmp_path / "out" / "copy.toml")
    assert read_sweep(tmp_path / "out" / "copy.toml") == file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# nothing", "sweep.toml has no run; add run = ..."),
        ("run = 3", "sweep.toml: run must be a path in quotes, got 3"),
        ('run = "nowhere.toml"', "nowhere.toml' does not exist"),
        ('runs = "run.toml"', "unknown key 'runs'; did you mean 'run'?"),
        ("sweep = 3", "sweep must be a table, got 3"),
        ("vary = 3", "vary must be a table, got 3"),
        ("[sweep]\nfold = 3", "[sweep]: unknown key 'fold'; did you mean 'folds'?"),
        ("[sweep]\nfolds = 1", "folds = 1 leaves no rows to fit"),
        ("[sweep]\nfolds = -1", "[sweep]: folds must be 0 or more, got -1"),
        ("[sweep]\nseeds = []", "[sweep]: seeds must be a list that is not empty, got []"),
        ("[sweep]\nseeds = [1, 1]", "seeds contains a duplicate"),
        ("[sweep]\nseeds = [true]", "[sweep]: each value of seeds must be an integer, got [True]"),
        ("[sweep]\nn_jobs = 0", "n_jobs must be 1 or more, or -1 for all cores, got 0"),
        ('[sweep]\nmethod = "random"', 'points needs method = "random"'),
        ("[sweep]\npoints = 3", 'points needs method = "random"'),
        ('[sweep]\nmetric = "auc"', "[sweep]: metric must be 'accuracy', "),
        ("[vary]\ndepht = [1]", "sweep.toml [vary]: no key is named 'depht'"),
        ("[vary]\nseed = [1]", "neither to [model] nor to [inference]; list [sweep] seeds instead"),
        ("[vary]\ntarget = [1]", "neither to [model] nor to [inference]; change it in the run"),
        (
            "[vary]\nmax_depth = 3",
            "[vary]: max_depth must be a list of values, or a range such as {",
        ),
        ("[vary]\nmax_depth = []", "[vary]: max_depth must be a list of values"),
        ("[vary]\nmax_depth = [2, 2]", "[vary]: max_depth contains 2 twice"),
        ("[vary]\nmax_depth = [2]\nmodel.max_depth = [3]", "model.max_depth is set twice"),
        ("[vary]\nmax_depth = {low = 3, high = 1}", "low = 3 must be less than high = 1"),
        ("[vary]\nmax_depth = {low = 0, high = 3, log = true}", "low = 0 must be above 0 if log"),
        ("[vary]\nmax_depth = {low = 1}", "[vary.max_depth] has no high; add high = ..."),
        (
            "[vary]\nmax_depth = {low = 1, hgh = 3}",
            "max_depth: unknown key 'hgh'; did you mean 'hi",
        ),
        (
            '[vary]\nrate = {low = "a", high = 3}',
            "rate: low must be an integer or a number, got 'a'",
        ),
        ("[vary]\nmax_depth = {low = 1, high = 3}", "is a range, but a grid needs a list"),
        (
            '[vary]\nmax_depth = [1, "two"]',
            "[vary]: max_depth must be an integer of 0 or more, got 'two'",
        ),
        ("[vary]\nn_experts = [1]", "[vary]: tree 'bivariate' has no parameter 'n_experts'"),
        ('[vary]\nmodel.card = ["cpd"]', "no model card is named 'cpd'"),
    ],
)
def test_refused(tmp_path, text, said):
    run = "" if text.startswith(("run", "#")) else 'run = "run.toml"\n'
    found = refused(tmp_path, run + text)
    assert said in found
    assert "\n" not in found
    assert "Input should" not in found  # pydantic's words
    assert "Value error" not in found


def test_paths_stay_inside_of_root(tmp_path):
    (tmp_path / "in").mkdir()
    written(tmp_path)
    (tmp_path / "in" / "sweep.toml").write_text('run = "../run.toml"')
    with pytest.raises(InputError, match="is outside --root"):
        read_sweep(tmp_path / "in" / "sweep.toml", root=tmp_path / "in")
    parts = tomllib.loads(SWEEP) | {"sweep": {"folder": "../out"}}
    with pytest.raises(InputError, match=r"folder '../out' is outside --root"):
        SweepFile.from_parts(parts, tmp_path / "sweep.toml", root=tmp_path)


def test_the_metric_is_one_of_the_task(tmp_path):
    file = written(tmp_path, sweep=SWEEP.replace("[sweep]", '[sweep]\nmetric = "accuracy"'))
    assert file.metric("classification") == "accuracy"
    with pytest.raises(InputError, match="does not suit regression; use rmse or r2"):
        file.metric("regression")
    assert written(tmp_path).metric("regression") == "rmse"


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
        with pytest.raises(InputError, match=f"but the maximum is {MAX_COMBINATIONS}"):
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
