"""No plot changes pyplot or its settings."""

import matplotlib as mpl
import pytest
from matplotlib import _pylab_helpers


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    settings = dict(mpl.rcParams)
    yield
    assert _pylab_helpers.Gcf.get_all_fig_managers() == []
    assert dict(mpl.rcParams) == settings
