"""Values of ``verbose`` that scikit-learn's estimators take."""

import pytest

from bayestree._utils.parameters import ParameterError, check_parameters
from bayestree.estimators.registry import ESTIMATORS, estimator_class


@pytest.mark.parametrize("name", ESTIMATORS)
def test_numbers_are_levels(name):
    for verbose in (0, 1, 10, True, False, "auto"):
        check_parameters(estimator_class(name)(verbose=verbose))
    for verbose in (-1, 0.5, "loud"):
        with pytest.raises(ParameterError, match="verbose must be"):
            check_parameters(estimator_class(name)(verbose=verbose))
