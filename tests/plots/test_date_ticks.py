"""Ticks of times."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayestree.plots import _style


@pytest.mark.parametrize("n_ticks", [5, 6])
@pytest.mark.parametrize("days", [0.1, 4, 1000, 1500, 50_000])
def test_every_range_of_time_has_two_ticks_or_more_and_no_warning(days, n_ticks):
    ax = Figure().subplots()
    begin = np.datetime64("2012-01-01T00:00:00")
    ax.plot([begin, begin + np.timedelta64(int(days * 86400), "s")], [0, 1])
    _style.date_ticks(ax.xaxis, n_ticks)

    ax.figure.canvas.draw()

    low, high = ax.get_xlim()
    assert 2 <= sum(low <= place <= high for place in ax.get_xticks()) <= n_ticks
