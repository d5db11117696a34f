"""Rows, fits and short checks that tests of estimators share."""

from tests.estimators.conftest import _short_checks_of_the_bound, iris, regressor, several, values

__all__ = ["_short_checks_of_the_bound", "iris", "regressor", "several", "values"]
