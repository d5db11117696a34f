"""Parameters of the named trees, and what a run file accepts for them."""

import pytest
from pydantic import ValidationError

from bayestree._utils.parameters import check_parameters
from bayestree.estimators.registry import TREES, tasks_of
from bayestree.runs.settings import (
    CARD_KEYS,
    RUN_KEYS,
    estimator_of,
    settings_table,
    tree_parameters,
    trees_by_parameter,
)

EVERY = [(tree, task) for tree in TREES for task in tasks_of(tree)]


@pytest.mark.parametrize(("tree", "task"), EVERY)
class TestEveryTree:
    def test_parameters_are_those_of_the_estimator(self, tree, task):
        parameters = estimator_of(tree, task)().get_params()
        own = tree_parameters(tree, task)
        of_data = {"missing_values"}  # a key of [data]
        assert own.keys() <= parameters.keys() <= own.keys() | RUN_KEYS.keys() | of_data

    def test_parameters_are_described(self, tree, task):
        for one in tree_parameters(tree, task).values():
            assert len(one.description) > 4, one.name
            assert one.expected_in_file
            assert ":class:" not in one.description

    def test_defaults_are_valid(self, tree, task):
        own = tree_parameters(tree, task)
        for table in CARD_KEYS:
            defaults = {n: one.to_file(one.default) for n, one in own.items() if one.group == table}
            settings_table(tree, task, table).model_validate(defaults)
            found = {n: own[n].from_file(value) for n, value in defaults.items()}
            assert found == {n: own[n].default for n in defaults}
            check_parameters(estimator_of(tree, task)().set_params(**found))

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
