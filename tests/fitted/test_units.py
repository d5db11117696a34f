"""The units of the features, and y without units."""

import numpy as np
import pandas as pd
import pytest

from bayestree import (
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    ObliqueTreeRegressor,
)
from bayestree.fitted.training_rows import FileRows, TrainingRows, units

X = np.array([[0.0, 1.0, 5.0], [0.0, 3.0, 5.0], [0.0, 5.0, 5.0], [8.0, 7.0, 5.0]])
WEIGHTS = np.ones(4)
DEVIATION = np.sqrt([12.0, 5.0])  # of the first two columns; the third is constant


@pytest.mark.parametrize(
    ("rule", "center", "scale"),
    [
        ("standard", [2, 4, 5], [*DEVIATION, 1]),
        ("variance", [2, 4, 5], [*DEVIATION, 1]),
        ("common", [2, 4, 5], [np.sqrt(8.5), np.sqrt(8.5), 1]),
        ("range", [4, 4, 5], [4, 3, 1]),
        ("none", [0, 0, 0], [1, 1, 1]),
    ],
)
def test_by_hand(rule, center, scale):
    found = units(X, WEIGHTS, rule)
    np.testing.assert_allclose(found, [center, scale], rtol=1e-12)


def test_a_feature_that_is_seldom_on_has_a_sixth_of_its_range():
    rare = np.zeros((1000, 1))
    rare[0] = 1.0
    assert units(rare, np.ones(1000), "standard")[1] == pytest.approx(1 / 6)
    assert units(rare, np.ones(1000), "variance")[1] == pytest.approx(np.sqrt(999e-6))


def test_the_range_ends_at_minus_one_and_one():
    center, scale = units(X[:, :2], WEIGHTS, "range")
    scaled = (X[:, :2] - center) / scale
    np.testing.assert_array_equal([scaled.min(0), scaled.max(0)], [[-1, -1], [1, 1]])


def test_weights_count_as_repeats():
    weights = np.array([1.0, 2.0, 1.0, 3.0])
    repeated = np.repeat(X, weights.astype(int), axis=0)
    for rule in ("standard", "variance", "common", "range"):
        once = units(X, weights, rule)
        np.testing.assert_allclose(once, units(repeated, np.ones(7), rule), rtol=1e-12)
        np.testing.assert_allclose(once, units(FileRows(X, mapped=False), weights, rule))


def test_rows_of_weight_zero_are_left_out_with_all_that_they_have():
    rows = TrainingRows(X, np.arange(4), np.array([1.0, 0.0, 2.0, 0.0]), extra=np.arange(4.0))
    found = rows.counted()
    np.testing.assert_array_equal(found.X, X[[0, 2]])
    each = (found.y, found.weights, found.extra)
    assert [one.tolist() for one in each] == [[0, 2], [1, 2], [0, 2]]


def test_values_too_large_to_square_are_refused():
    with pytest.raises(ValueError, match=r"X holds values too large to be squared"):
        units(np.array([[1e200], [-1e200]]), np.ones(2), "standard")


def test_values_of_a_tiny_spread_do_not_overflow():
    rows = np.array([[1e-200, 1e-140], [-1e-200, -1e-140]])
    np.testing.assert_allclose(units(rows, np.ones(2), "standard")[1], [1, 1e-140])


DAYS = pd.to_timedelta(np.arange(1.0, 41.0), "D")
DATES = pd.Timestamp(2020, 1, 1) + DAYS


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (DAYS, "got durations.*y / pd.Timedelta"),
        (pd.Series(DAYS), "got durations"),
        (DAYS.to_numpy().astype("m8[D]"), "got durations"),
        ([*DAYS.to_pytimedelta()], "got durations"),
        (pd.DataFrame({"a": np.arange(40.0), "b": DAYS}), "got durations"),
        ([[day, 1.0] for day in DAYS.to_pytimedelta()], "got durations"),
        (DATES, "got dates"),
        (pd.Series(DATES).dt.tz_localize("UTC"), "got dates"),
        (pd.Series(DATES.to_period("D")), "got dates"),
        ([*DATES.date], "got dates"),
    ],
)
def test_durations_and_dates_as_y_are_refused(y, message):
    """They would be numbers of nanoseconds."""
    X = np.arange(80.0).reshape(40, 2)
    for estimator in (
        ConvexPolytopeTreeRegressor(),
        ConvexPolytopeTreeRegressor(leaf="poisson"),
        ConvexPolytopeTreeSurvival(),
        ObliqueTreeRegressor(),
    ):
        with pytest.raises(ValueError, match=message):
            estimator.fit(X, y)


def test_durations_in_a_structured_y_are_refused():
    y = np.empty(40, dtype=[("event", bool), ("time", "m8[D]")])
    y["event"], y["time"] = True, np.arange(1, 41)
    with pytest.raises(ValueError, match="got durations"):
        ConvexPolytopeTreeSurvival().fit(np.arange(80.0).reshape(40, 2), y)
