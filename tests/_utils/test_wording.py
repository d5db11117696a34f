import pickle

from bayestree._utils.wording import CellError, limit


def test_a_limit_that_rounds_to_zero_has_no_sign():
    assert limit(-0.001, 1.0) == "0.00"
    assert limit(-0.01, 1.0) == "-0.01"


def test_errors_about_cells_reach_other_processes():
    error = CellError("column 'a' should hold numbers, but", 3, " holds 'x'.", column="a")
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.row, found.column) == (str(error), 3, "a")
