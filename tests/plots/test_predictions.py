"""Reliability diagrams."""

import numpy as np
import pytest

from bayestree import plots
from bayestree.diagnostics import calibration
from tests.plots.cases import drawn, texts


@pytest.fixture
def found():
    """Half of the rows are said to be right with .6, half with .9; .5 and .9 of them are."""
    probability = np.repeat([0.6, 0.9], 100)
    y = np.concatenate([np.arange(100) < 50, np.arange(100) < 90]).astype(int)
    return calibration(y, probability, n_bins=2)


def test_points_are_bins_and_bars_two_standard_errors(found):
    ax = plots.calibration(found)
    drawn(ax)
    (curve,) = ax.containers
    line, _, (bars,) = curve.lines  # type: ignore[attr-defined]
    np.testing.assert_allclose(line.get_xdata(), [0.6, 0.9])
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.9])
    reach = np.ptp(np.array(bars.get_segments())[:, :, 1], axis=1) / 2
    np.testing.assert_allclose(reach, 2 * np.sqrt([0.24 / 100, 0.09 / 100]))
    assert any(text.startswith("0.050 [") for text in texts(ax))


def test_the_window_is_square_and_holds_the_points(found):
    ax = plots.calibration(found)
    assert ax.get_xlim() == ax.get_ylim()
    assert ax.get_xlim()[0] < 0.5
    assert ax.get_xlim()[1] > 1
    assert ax.get_aspect() == 1


def test_several_are_told_apart_by_name_colour_and_marker(found):
    ax = plots.calibration({"posterior": found, "tree": found})
    drawn(ax)
    lines = [curve.lines[0] for curve in ax.containers]  # type: ignore[attr-defined]
    assert len({line.get_color() for line in lines}) == 2
    assert len({line.get_marker() for line in lines}) == 2
    said = " ".join(texts(ax))
    assert "posterior  0.050" in said
    assert "tree  0.050" in said


def test_refuses_what_is_no_calibration(found):
    with pytest.raises(TypeError, match="got int for 'tree'"):
        plots.calibration({"posterior": found, "tree": 3})
    with pytest.raises(TypeError, match="found must be"):
        plots.calibration(np.ones(3))
    with pytest.raises(ValueError, match="found must not be empty"):
        plots.calibration({})
