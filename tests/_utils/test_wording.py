import pickle
import re
from itertools import product

import numpy as np
import pytest

from bayestree._utils.wording import CellError, Indicator, MissingMark, in_levels, limit

NAMES = (
    Indicator("stage=II"),
    Indicator("stage=III"),
    Indicator("stage=IV"),
    MissingMark("stage missing"),
    Indicator("sex=male"),
    "age",
)


@pytest.mark.parametrize(
    ("terms", "bound", "expected"),
    [
        ([1, 0, 0, 0, 0, 0], 0.5, ("stage is not II", "stage is II")),
        ([-1, 0, 0, 0, 0, 0], -0.5, ("stage is II", "stage is not II")),
        ([1, 0.7, 0, 0, 0, 0], 0.5, ("stage is neither II nor III", "stage is II or III")),
        ([1, 0.7, 0.1, 0, 0, 0], 0.5, ("stage is neither II nor III", "stage is II or III")),
        (
            [-1, -0.7, -2, 0, 0, 0],
            -0.5,
            ("stage is II, III or IV", "stage is not II, III or IV"),
        ),
        ([-1, 0, 0, -1, 0, 0], -0.5, ("stage is II or missing", "stage is neither II nor missing")),
        (
            [1, 0, 0, 0, 0.6, 0],
            0.5,
            ("stage is not II and sex is not male", "stage is II or sex is male"),
        ),
        ([1, 0, 0, 0, 0.4, 0], 0.5, None),  # being male alone does not decide
        ([1, 0, 0, 0, -1, 0], 0.5, None),  # and may make up for the stage
        ([1, 0, 0, 0, 0, 0], 1.5, None),  # always
        ([1, 0, 0, 0, 0, 0.1], 0.5, None),  # a number
    ],
)
def test_facets_of_levels_say_which(terms, bound, expected):
    assert in_levels(np.array(terms, dtype=float), bound, NAMES) == expected


def test_what_is_said_of_levels_is_true():
    """For random facets and all combinations of values, by the words alone."""
    rng = np.random.default_rng(0)
    said = 0
    for _ in range(300):
        terms = np.append(rng.normal(size=5) * (rng.random(5) < 0.5), 0.0)
        bound = float(rng.normal())
        found = in_levels(terms, bound, NAMES)
        if found is None:
            continue
        said += 1
        for stage, sex in product(("I", "II", "III", "IV", "missing"), ("female", "male")):
            row = [stage == "II", stage == "III", stage == "IV", stage == "missing", sex == "male"]
            holds = np.dot(terms[:5], row) <= bound
            for text, truth in zip(found, (holds, not holds), strict=True):
                assert of_words(text, {"stage": stage, "sex": sex}) == truth, (text, stage, sex)
    assert said > 50


def of_words(text, values):
    """Decide whether a statement about values is true, as a reader does."""
    if " and " in text:
        return all(of_words(part, values) for part in text.split(" and "))
    parts = text.replace(" or sex", " | sex").replace(" or stage", " | stage").split(" | ")
    if len(parts) > 1:
        return any(of_words(part, values) for part in parts)
    column, _, rest = text.partition(" is ")
    denied = rest.startswith(("not ", "neither "))
    names = re.split(", | or | nor ", rest.removeprefix("not ").removeprefix("neither "))
    return (values[column] in names) != denied


def test_steps_of_ordered_levels_keep_their_order():
    name = (Indicator("size>=M"),)
    assert in_levels(np.ones(1), 0.5, name) == ("size < M", "size >= M")
    assert in_levels(-np.ones(1), -0.5, name) == ("size >= M", "size < M")
    two = (*name, Indicator("size>=L"))
    assert in_levels(np.ones(2), 0.5, two) is None


def test_nothing_is_said_of_missing_values_that_are_neither_level():
    """They count as the share of the second level, so that the limit decides."""
    names = (Indicator("sex=male"), MissingMark("sex missing"))
    assert in_levels(np.array([1.0, 0.0]), 0.5, names) is None
    assert in_levels(np.array([0.0, 1.0]), 0.5, names) == ("sex is not missing", "sex is missing")
    ordered = (Indicator("size>=M"), Indicator("size>=L"), MissingMark("size missing"))
    assert in_levels(np.array([1.0, 0.0, 0.0]), 0.5, ordered) is None


def test_levels_that_read_as_words_are_in_quotes():
    names = [Indicator(f"town={one}") for one in ("Bath", "Rye, Sussex", "Bath or Rye", "missing")]
    assert in_levels(-np.ones(4), -0.5, names) == (
        'town is Bath, "Rye, Sussex", "Bath or Rye" or "missing"',
        'town is not Bath, "Rye, Sussex", "Bath or Rye" or "missing"',
    )
    assert in_levels(np.ones(1), 0.5, [Indicator("age>=5=yes")]) is None  # of the column age>=5


def test_values_beyond_the_most_are_counted():
    terms = np.array([-1.0, -1, -1, 0, 0, 0])
    assert in_levels(terms, -0.5, NAMES, 1)[0] == "stage is II, … 2 more"


def test_a_limit_that_rounds_to_zero_has_no_sign():
    assert limit(-0.001, 1.0) == "0.00"
    assert limit(-0.01, 1.0) == "-0.01"


def test_errors_about_cells_reach_other_processes():
    error = CellError("column 'a' should hold numbers, but", 3, " holds 'x'.", column="a")
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.row, found.column) == (str(error), 3, "a")
