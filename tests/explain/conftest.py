"""Short checks of the bound."""

from tests.estimators.conftest import _short_checks_of_the_bound

__all__ = ["_short_checks_of_the_bound"]
