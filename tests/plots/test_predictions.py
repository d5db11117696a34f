"""Reliability diagrams, and error against size over a series of penalties."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from bayestree import plots
from bayestree.diagnostics import calibration
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.plots._predictions import (
    Effects,
    draw_effects,
    draw_importance,
    draw_predicted,
    draw_shapley,
)
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


def test_the_last_tree_of_a_path_is_circled():
    """It is repeated at the end, as the one that was chosen."""
    loss, se = np.array([0.3, 0.1, 0.0, 0.1]), np.array([0.05, 0.04, 0.01, 0.04])
    size = np.array([2, 4, 8, 4])
    ax = plots.sparsity_path(SparsityPath(size // 2, size, loss, se, np.ones(4)))
    (curve,) = ax.containers
    line, _, (bars,) = curve.lines  # type: ignore[attr-defined]
    np.testing.assert_array_equal(line.get_xydata(), np.stack((size, loss), axis=1)[:3])
    reach = np.ptp(np.array(bars.get_segments())[:, :, 1], axis=1) / 2
    np.testing.assert_allclose(reach, se[:3])
    (ring,) = (one for one in ax.lines if str(one.get_label()).startswith("chosen"))
    assert ring.get_xydata().tolist() == [[4, 0.1]]
    assert ring.get_label() == "chosen: 4 coefficients"


def bars_of(ax):
    """Place, end and colour of each bar."""
    return [
        (bar.get_y() + bar.get_height() / 2, bar.get_width(), to_hex(bar.get_facecolor()))
        for bar in ax.patches
    ]


def test_effects_have_the_colours_of_their_sides():
    """Those that lead outside are positive, and the strongest comes first."""
    effects = np.array([0.5, 0.0, -2.0])
    (ax,) = draw_effects([Effects("root", "", effects, "votes")], "abc", effects).ravel()
    inside, outside = ((-2.0, "#0072b2"), (0.5, "#d55e00"))
    assert [bar[1:] for bar in bars_of(ax)] == [inside, outside]
    assert [one.get_text() for one in ax.get_yticklabels()] == ["c = -2", "a = 0.5"]


def test_contributions_stand_next_to_one_another_by_class():
    values = np.array([[0.1, -0.1], [-0.3, 0.3]])
    ax = draw_shapley(values, ["a", "b"], ["no", "yes"], None)
    found = [(round(place, 6), width) for place, width, _ in bars_of(ax)]
    assert found == [(-0.2, -0.3), (0.8, 0.1), (0.2, 0.3), (1.2, -0.1)]
    assert [one.get_text() for one in ax.get_yticklabels()] == ["b", "a"]
    assert [one.get_text() for one in ax.get_legend().get_texts()] == ["no", "yes"]


def test_the_largest_contribution_to_any_class_comes_first():
    values = np.array([[0.1, -0.2, 0.1], [0.5, -0.5, 0.0]])
    ax = draw_shapley(values, ["a", "b"], ["x", "y", "z"], None)
    assert [one.get_text() for one in ax.get_yticklabels()] == ["b", "a"]


def test_losses_and_votes_have_their_intervals():
    parts = ("loss", "loss_low", "loss_high", "votes", "votes_low", "votes_high", "votes_prior")
    table = pd.DataFrame([np.arange(7.0), np.arange(7.0) + 10], columns=parts, index=["a", "b"])
    loss, votes = draw_importance(table, 0.8)
    for panel, (value, low, high) in ((loss, (0, 1, 2)), (votes, (3, 4, 5))):
        assert [bar[1] for bar in bars_of(panel)] == [value, value + 10]
        (ends,) = panel.collections
        assert [one[:, 0].tolist() for one in ends.get_segments()] == [
            [low, high],
            [low + 10, high + 10],
        ]
    (prior,) = (one for one in votes.lines if one.get_label() == "prior")
    assert prior.get_xydata().tolist() == [[6, 0], [16, 1]]
