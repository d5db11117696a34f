"""Parameters of trees: from signature, constraints and docstring to what a file may say."""

import numbers

import pytest
from pydantic import TypeAdapter, ValidationError
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions

from bayestree._utils.parameters import check_parameters
from bayestree.runs.docstrings import described
from bayestree.runs.fields import in_words, leaves_open, typed
from bayestree.runs.parameters import (
    BELIEVED,
    OWN,
    all_parameters,
    estimator_of,
    parameters_of,
    table_type,
)
from bayestree.runs.trees import TREES, tasks_of

EVERY = [(tree, task) for tree in TREES for task in tasks_of(tree)]
WHOLE, REAL = numbers.Integral, numbers.Real


@pytest.mark.parametrize(("tree", "task"), EVERY)
class TestEveryTree:
    def test_has_what_its_estimator_has(self, tree, task):
        estimator = estimator_of(tree, task)()
        own = parameters_of(tree, task)
        assert own.keys() | OWN.keys() >= estimator.get_params().keys()
        assert own.keys() <= estimator.get_params().keys()

    def test_says_what_each_is(self, tree, task):
        for one in parameters_of(tree, task).values():
            assert len(one.text) > 4, one.name
            assert not one.text.startswith("As of")
            assert one.words
            assert ":class:" not in one.text

    def test_begins_with_values_that_it_takes(self, tree, task):
        estimator = estimator_of(tree, task)()
        for table in ("model", "inference"):
            own = parameters_of(tree, task)
            begins = {n: one.written(one.default) for n, one in own.items() if one.table == table}
            table_type(tree, task, table).model_validate(begins)
            estimator.set_params(**{n: own[n].value(v) for n, v in begins.items()})
        check_parameters(estimator)


def test_what_is_believed_are_parameters():
    assert all_parameters().keys() >= BELIEVED


CASES = [
    ([Interval(WHOLE, 1, None, closed="left")], [1, 5], [0, 1.0, True, "1", 2**31]),
    ([Interval(WHOLE, 0, 4, closed="both")], [0, 4], [-1, 5]),
    ([Interval(REAL, 0, None, closed="neither")], [0.1, 3], [0, -1, float("inf"), True, "1"]),
    ([Interval(REAL, 0, None, closed="both")], [0, float("inf")], [float("nan"), -0.1]),
    ([Interval(REAL, 0, 1, closed="left")], [0, 0.5], [1, 1.0]),
    ([StrOptions({"a", "b"}), None], ["a", "none"], ["c", 3]),
    (["boolean"], [True], [1, "true"]),
    ([WHOLE, None], [-1, "none"], [1.5]),
    ([str], ["x"], [3]),
    ([dict, None], [{"a": 1}], [{"a": -1}, {"a": "x"}, [1]]),
    ([tuple, list, None], [[3, 4], "none"], [[3], [3, 4, 5], [0, 1], [1.5, 2], 3]),
    (
        [StrOptions({"sqrt"}), Interval(WHOLE, 1, None, closed="left"),
         Interval(RealNotInt, 0, 1, closed="right"), None],
        ["sqrt", 3, 0.5, 1.0], [0, 1.5, 0.0, "all"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("constraints", "good", "bad"), CASES)
def test_types_take_what_the_constraints_do(constraints, good, bad):
    kind = TypeAdapter(typed(constraints))
    for value in good:
        kind.validate_python(value)
    for value in bad:
        with pytest.raises(ValidationError):
            kind.validate_python(value)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ([Interval(WHOLE, 1, None, closed="left")], "a whole number of 1 or more"),
        ([Interval(REAL, 0, 1, closed="neither")], "a number above 0 and below 1"),
        ([StrOptions({"b", "a"}), None], '"a" or "b", or "none"'),
        (["boolean"], "true or false"),
        ([tuple, list], "[height, width]"),
    ],
)
def test_words(constraints, words):
    assert in_words(constraints) == words


def test_none_stands_for_none_where_it_is_no_value_of_its_own():
    assert leaves_open([StrOptions({"a"}), None])
    assert not leaves_open([StrOptions({"none"}), None])
    assert not leaves_open([StrOptions({"a"})])


def test_docstrings():
    class Some:
        """A class.

        Parameters
        ----------
        first, second : float, default=1.0
            Of :class:`~package.Other`, in
            ``units``.
        third
            Another.

        Attributes
        ----------
        fourth : int
            No parameter.
        """

    first = "Of Other, in units."
    assert described(Some) == {"first": first, "second": first, "third": "Another."}
    assert described(int) == {}
