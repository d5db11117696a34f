"""No plot changes pyplot or its settings."""

import matplotlib as mpl
import pytest
from matplotlib import _pylab_helpers

from tests.estimators.conftest import _short_checks_of_the_bound

__all__ = ["_short_checks_of_the_bound"]


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    settings = dict(mpl.rcParams)
    yield
    assert _pylab_helpers.Gcf.get_all_fig_managers() == []
    assert dict(mpl.rcParams) == settings
