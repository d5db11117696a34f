"""Reliability diagrams, and error against size over a series of penalties."""

from types import SimpleNamespace

import numpy as np
import pytest

from bayestree import plots
from bayestree.diagnostics import calibration
from bayestree.plots._predictions import draw_predicted
from bayestree.plots._style import new_axes
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


def path(classifies=True):
    one = SimpleNamespace(**({"classes_": [0, 1]} if classifies else {}))
    return SimpleNamespace(
        lambdas=np.array([0.1, 1.0, 10.0]),
        train_score=np.array([1.0, 0.95, 0.8]),
        score=np.array([0.9, 0.92, 0.79]),
        nonzeros=np.array([200, 30, 0]),
        leaves=np.array([9, 5, 1]),
        best=1,
        estimators=(one,),
    )


@pytest.mark.parametrize("classifies", [False, True])
def test_errors_and_sizes_stand_where_they_should(classifies):
    ax = plots.regularization_path(path(classifies))
    drawn(ax)
    factor = 100 if classifies else 1
    train, validation, best = ax.lines
    np.testing.assert_array_equal(train.get_xdata(), [200, 30, 1])
    np.testing.assert_allclose(train.get_ydata(), factor * np.array([0, 0.05, 0.2]), atol=1e-12)
    np.testing.assert_allclose(validation.get_ydata(), factor * np.array([0.1, 0.08, 0.21]))
    assert best.get_xdata() == [30]
    assert best.get_ydata() == pytest.approx([factor * 0.08])
    assert best.get_label() == "λ = 1, 5 leaves"
    assert [text.get_text() for text in ax.texts] == ["0.1", "1", "10"]


def test_wants_a_path():
    with pytest.raises(TypeError, match=r"bayestree.regularization_path, got int"):
        plots.regularization_path(3)


def test_diamonds_are_the_rows_outside_of_their_intervals():
    ax, middle = new_axes(3, 3), np.arange(5.0)
    observed = middle + np.array([0.0, 2.0, -2.0, 0.5, -0.5])
    draw_predicted(ax, middle, observed, (middle - 1, middle + 1), "y")
    _, outside, *_ = ax.collections
    assert np.asarray(outside.get_offsets()).tolist() == [[1.0, 3.0], [2.0, 0.0]]
