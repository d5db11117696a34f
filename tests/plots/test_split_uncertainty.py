"""Uncertainty of the splits about rows."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from bayestree import plots
from bayestree.plots import _style
from tests.plots.cases import drawn, make_uncertainty, texts

MEAN = np.array([[0.9], [0.1], [0.4], [0.6]])
LOW = np.array([[0.7], [0.0], [0.2], [0.55]])
HIGH = np.array([[1.0], [0.3], [0.7], [0.8]])


@pytest.fixture
def found():
    return make_uncertainty(LOW, MEAN, HIGH)


def mean_line(ax):
    return next(line for line in ax.lines if line.get_label() == "mean")


def marks(ax):
    (found,) = (one for one in ax.collections if one.get_label() == "uncertain")
    return found.get_offsets()


def test_rows_are_sorted_by_their_mean(found):
    (ax,) = plots.split_uncertainty(found)
    drawn(ax)
    np.testing.assert_array_equal(mean_line(ax).get_ydata(), [0.1, 0.4, 0.6, 0.9])
    np.testing.assert_array_equal(mean_line(ax).get_xdata(), [1, 2, 3, 4])
    (band,) = (one for one in ax.collections if one.get_label() == "interval")
    corners = band.get_paths()[0].vertices
    # the second step, from 1.5 to 2.5, is that of the row of mean 0.4
    at = [set(corners[corners[:, 0] == edge, 1]) for edge in (1.5, 2.5)]
    assert {0.2, 0.7} <= at[0] & at[1]


def test_marks_and_share_are_those_of_the_table(found):
    (ax,) = plots.split_uncertainty(found)
    np.testing.assert_array_equal(marks(ax), [[2, 0.4], [3, 0.6]])
    assert ax.get_title(loc="right") == "50.0 % uncertain"
    assert found.to_frame()["unsure"].tolist() == [0.5]


def test_many_rows_are_thinned_but_all_count():
    mean = np.linspace(0, 1, 2001)[:, None]
    found = make_uncertainty(mean, mean, mean)
    (ax,) = plots.split_uncertainty(found)
    places = mean_line(ax).get_xdata()
    assert len(places) == 500
    np.testing.assert_allclose(mean_line(ax).get_ydata(), mean[places - 1, 0])
    assert ax.get_title(loc="right") == f"{100 * found.unsure.mean():.1f} % uncertain"


def test_rows_that_do_not_reach_a_node_are_left_out():
    pair = [np.hstack([part, part]) for part in (LOW, MEAN, HIGH)]
    reached = np.array([[1, 0.9], [1, 0.1], [1, 0.5], [1, 0.4]])
    root, left = plots.split_uncertainty(make_uncertainty(*pair, reached=reached))
    assert len(mean_line(root).get_ydata()) == 4
    np.testing.assert_array_equal(mean_line(left).get_ydata(), [0.4, 0.9])
    assert left.get_title(loc="left") == "L"
    assert left.get_title(loc="right") == "47.4 % uncertain"


def test_the_strip_has_the_classes_in_the_order_of_the_rows(found):
    (ax,) = plots.split_uncertainty(found, y=["b", "a", "a", "b"])
    drawn(ax)
    first, second = _style.class_colours(2)
    np.testing.assert_array_equal(ax.images[0].get_array()[0], [first, first, second, second])
    assert {"a", "b", "mean", "interval", "uncertain"} <= set(texts(ax.figure))


def test_classes_have_the_colours_that_the_estimator_gives_them(found):
    fitted = SimpleNamespace(classes_=np.array(["a", "b", "c"]), split_uncertainty=lambda X: found)
    (ax,) = plots.split_uncertainty(fitted, np.ones((4, 2)), ["c", "c", "a", "c"])
    colours = _style.class_colours(3)
    np.testing.assert_array_equal(ax.images[0].get_array()[0], colours[[2, 0, 2, 2]])


def test_the_strip_of_a_regression_has_values():
    found = make_uncertainty(LOW, MEAN, HIGH, regression=True)
    (ax,) = plots.split_uncertainty(found, y=[3.0, -1.0, 1.0, 1.0])
    scale = mpl.colormaps[_style.VALUES]
    expected = scale([0.0, 0.5, 0.5, 1.0])[:, :3]
    np.testing.assert_allclose(ax.images[0].get_array()[0], expected)


@pytest.mark.parametrize("regression", [False, True])
def test_other_labels_of_the_rows_have_colours_of_their_own(regression):
    found = make_uncertainty(LOW, MEAN, HIGH, regression=regression)
    classes = {} if regression else {"classes_": np.array(["Barolo", "other"])}
    fitted = SimpleNamespace(split_uncertainty=lambda X: found, **classes)
    y = ["Barbera", "Barolo", "Grignolino", "Barolo"]
    (ax,) = plots.split_uncertainty(fitted, np.ones((4, 2)), y)
    drawn(ax)
    colours = _style.class_colours(3)
    np.testing.assert_array_equal(ax.images[0].get_array()[0], colours[[1, 2, 1, 0]])
    said = texts(ax.figure)
    assert set(y) <= set(said)
    assert "other" not in said


def test_many_classes_go_without_names():
    n_rows = len(_style.PALETTE) + 1
    found = make_uncertainty(*(np.full((n_rows, 1), p) for p in (0.2, 0.3, 0.4)))
    (ax,) = plots.split_uncertainty(found, y=[f"kind {k}" for k in range(n_rows)])
    drawn(ax)
    assert not any("kind" in text for text in texts(ax.figure))


def test_a_node_that_no_row_reaches_is_an_empty_panel():
    found = make_uncertainty(LOW, MEAN, HIGH, reached=np.zeros((4, 1)))
    (ax,) = plots.split_uncertainty(found, y=[0, 1, 0, 1])
    drawn(ax)
    assert ax.get_title(loc="right") == ""


def test_refuses_rows_that_are_missing_or_do_not_fit(found):
    fitted = SimpleNamespace(split_uncertainty=lambda X: found)
    with pytest.raises(ValueError, match="X is missing"):
        plots.split_uncertainty(fitted)
    with pytest.raises(ValueError, match=r"y must have shape \(4,\) to match X, got \(3,\)"):
        plots.split_uncertainty(found, y=[1, 2, 3])
    with pytest.raises(ValueError, match="node 'L' is not in the tree"):
        plots.split_uncertainty(found, nodes=["L"])
    with pytest.raises(TypeError, match="the SplitUncertainty that its split_uncertainty returns"):
        plots.split_uncertainty(object(), np.ones((4, 2)))


def test_draws_on_the_axes_given(found):
    ax = Figure().subplots()
    assert list(plots.split_uncertainty(found, ax=ax)) == [ax]
    assert ax.get_legend() is not None
