"""A run from the options of a command: cards, options, single settings."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from bayestree._utils.parameters import check_parameters
from bayestree.estimators.registry import TREES, tasks_of
from bayestree.inference import Map
from bayestree.models import GammaProcess
from bayestree.runs.schema import run_from_options
from bayestree.runs.settings import (
    CARD_KEYS,
    RUN_KEYS,
    estimator_of,
    settings_table,
    tree_parameters,
    trees_by_parameter,
)
from bayestree.tables import InputError

BASE = {
    "DATA": ("data.path", "x.csv"),
    "--target": ("data.target", "y"),
    "--seed": ("seed", 4),
    "--out": ("output.folder", "out"),
}


def from_options(options=None, *, tree=None, **others):
    return run_from_options(BASE | {"--tree": ("model.tree", tree)} | (options or {}), **others)


def card(folder, text, name="my.toml"):
    path = folder / name
    path.write_text(text)
    return path


def made(task="classification", **options):
    return from_options(**options).estimator(task)


def test_later_settings_win(tmp_path):
    cards = [
        card(
            tmp_path,
            'tree = "cpt"\ninference = "map"\nmax_depth = 1\nrate = 2.0\nepochs = 3',
            "a.toml",
        ),
        card(tmp_path, "max_depth = 2\nmin_rows = 5", "b.toml"),
    ]
    options = {"--depth": ("max_depth", 3), "--experts": ("n_experts", None)}
    found = made(cards=cards, options=options, pairs=["min_rows=7", "inference.epochs=9"])
    named = ("max_depth", "weight_prior", "min_rows", "n_experts", "random_state")
    expected = [3, GammaProcess(rate=2.0), 7, None, 4]
    assert [found.get_params()[name] for name in named] == expected
    assert found.inference == Map(epochs=9, steepness=None)


def test_settings_of_other_tables():
    run = from_options(pairs=["data.weights=copies", "seed=9", "report=false"])
    assert (run.data.weights, run.seed, run.output.report) == ("copies", 9, False)


def test_the_tree_of_a_card(tmp_path):
    path = card(tmp_path, 'tree = "cpt-k1"')
    assert from_options(cards=[path]).tree == "cpt-k1"
    assert from_options(cards=[path], tree="cpt-k1").tree == "cpt-k1"
    assert from_options(cards=["wodt"]).tree == "wodt"
    assert from_options().tree == "cpt"
    with pytest.raises(InputError, match=r"card .* names 'cpt-k1' and --tree names 'cpt'"):
        from_options(cards=[path], tree="cpt")


@pytest.mark.parametrize(
    ("tree", "text", "said"),
    [
        ("cpt-k2", None, r"--tree: .*'cpt-k2'; did you mean 'cpt-k1'"),
        (None, "tree = 3", r"no tree is named 3; expected one of .*cpt"),
        (None, "tree = ['cpt']", r"no tree is named \['cpt'\]"),
    ],
)
def test_unknown_trees(tmp_path, tree, text, said):
    cards = [] if text is None else [card(tmp_path, text)]
    with pytest.raises(InputError, match=said):
        from_options(tree=tree, cards=cards)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("max_dept=3", "--set: no key is named 'max_dept'; did you mean 'max_depth'"),
        ("zzzz=3", "expected one of .*batch_size, .*validation_fraction"),
        ("max_depth=1.5", "--set: max_depth must be an integer of 0 or more, or .none., got"),
        ("scaling=comon", "--set: scaling must be .*, got 'comon'"),
        ("random_state=3", "'random_state' is set by the run itself; set 'seed' instead"),
        ("verbose=false", "'verbose' is set by the run itself; remove it"),
        ("warm_start=true", "'warm_start' is set by the run itself; remove it: a run grows a new"),
    ],
)
def test_refused_settings(pair, said):
    with pytest.raises(InputError, match=said):
        from_options(pairs=[pair])


def test_an_option_that_the_tree_does_not_have():
    with pytest.raises(InputError, match=r"--draws: tree 'wodt' .* 'n_draws'.*; remove it"):
        from_options(tree="wodt", options={"--draws": ("n_draws", 5)})


def test_what_makes_a_tree_stays():
    with pytest.raises(
        InputError, match=r"--experts: n_experts of tree 'cpt-k1' must be 1, got 3; choose"
    ):
        from_options(tree="cpt-k1", options={"--experts": ("n_experts", 3)})
    assert made("regression", tree="cpt-k1", pairs=["n_experts=1"]).n_experts == 1


def test_where_a_tree_begins():
    assert made("regression", tree="cpt-k1").n_experts == 1
    assert made("regression", tree="cpt").n_experts is None


def test_a_tree_of_classes_only(monkeypatch):
    monkeypatch.setitem(TREES, "wodt", replace(TREES["wodt"], regressor=None))
    said = "tree 'wodt' supports classification only; for regression use cpt, "
    with pytest.raises(InputError, match=said):
        made("regression", tree="wodt")
    with pytest.raises(InputError, match=said):
        from_options(tree="wodt", pairs=["data.task=regression"])


@pytest.mark.parametrize("name", TREES)
def test_what_is_fixed_and_started_with_are_parameters(name):
    tree = TREES[name]
    for task in tasks_of(name):
        parameters = estimator_of(name, task)().get_params()
        assert {**tree.fixed, **tree.start}.keys() <= parameters.keys()


EVERY = [(tree, task) for tree in TREES for task in tasks_of(tree)]


@pytest.mark.parametrize(("tree", "task"), EVERY)
class TestEveryTree:
    def test_parameters_are_those_of_the_estimator(self, tree, task):
        kind, own = estimator_of(tree, task), tree_parameters(tree, task)
        parameters = {*kind().get_params(), *kind.file_settings()}
        of_data = {"missing_values"}  # a key of [data]
        assert own.keys() <= parameters <= own.keys() | RUN_KEYS.keys() | of_data

    def test_parameters_are_described(self, tree, task):
        for one in tree_parameters(tree, task).values():
            assert len(one.description) > 4, one.name
            assert one.expected_in_file
            assert ":class:" not in one.description

    def test_defaults_are_valid(self, tree, task):
        kind, own = estimator_of(tree, task), tree_parameters(tree, task)
        for table in CARD_KEYS:
            defaults = {n: one.to_file(one.default) for n, one in own.items() if one.group == table}
            settings_table(tree, task, table).model_validate(defaults)
            found = {n: own[n].from_file(value) for n, value in defaults.items()}
            assert found == {n: own[n].default for n in defaults}
            of_estimator = {n: found[n] for n in found if n not in kind.file_settings()}
            check_parameters(kind().set_params(**of_estimator))

    def test_no_key_is_needed_and_no_other_is_known(self, tree, task):
        for table in CARD_KEYS:
            assert settings_table(tree, task, table).model_validate({})
            with pytest.raises(ValidationError, match="no_such_key"):
                settings_table(tree, task, table).model_validate({"no_such_key": 1})


def test_every_parameter_belongs_to_one_table():
    model, inference = (trees_by_parameter()[table].keys() for table in CARD_KEYS)
    assert not model & inference
    assert {"max_depth", "prior", "split"} <= model
    assert {"epochs", "inference", "n_jobs"} <= inference
