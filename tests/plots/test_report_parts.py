"""Parts of figures that the report shares with the plots."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayestree.plots._inference import draw_margins
from bayestree.plots._predictions import Effects, draw_coverage, draw_effects, draw_predicted
from bayestree.plots._tree import boxes_of, draw_branch, layout, plain_description
from bayestree.topology import Topology
from tests.plots.cases import drawn, make_tree, texts


@pytest.fixture
def ax():
    return Figure().subplots()


def test_a_closed_branch_says_how_many_leaves_are_below():
    tree = make_tree(topology=Topology.complete(3))
    described = plain_description(tree)
    places = layout(tree.topology, 0, {0})
    ax, _ = draw_branch(described, boxes_of(described, places, None, 0.9), places)
    said = texts(ax)
    assert sum(text.startswith("4 leaves\n") for text in said) == 2
    names = {one.get_gid() for one in (*ax.texts, *ax.lines)}
    assert {"at-root", "at-L", "at-R", "to-L", "to-R"} <= names
    drawn(ax)


def test_margins_are_stacked_by_class_on_both_sides_of_the_border(ax):
    margin, labels = np.array([-2.0, -1.0, -1.0, 1.0, 2.0]), np.array([0, 0, 1, 1, 1])
    draw_margins(ax, margin, labels, 2, ("inside", "outside"), ("", ""))
    every, first = (patch.get_data().values for patch in ax.patches)
    assert every.sum() == 5
    assert first.sum() == 2
    assert (every >= first).all()
    assert every[: len(every) // 2].sum() == 3
    assert {"← inside", "outside →"} <= set(texts(ax))


def test_rows_outside_their_intervals_are_marked(ax):
    predicted, observed = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 9.0])
    draw_predicted(ax, predicted, observed, (predicted - 1, predicted + 1), "y")
    marked = [one.get_offsets().tolist() for one in ax.collections if len(one.get_offsets())]
    assert [[2.0, 9.0]] in marked
    assert ax.get_xlabel() == "predicted y"


def test_the_band_of_the_coverage_has_two_standard_errors(ax):
    levels = np.array([0.5, 0.9])
    draw_coverage(ax, levels, levels, 100)
    (band,) = ax.collections
    heights = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [0.4, 0.96], atol=1e-9)


def test_the_triangle_marks_the_sum_of_all_effects():
    """Also of those that are too small for a bar."""
    effects = np.array([3.0, *[0.5] * 9])
    names = [f"x{j}" for j in range(10)]
    (axes,) = draw_effects([Effects("root", "", effects, "votes", 4.0)], names, effects).ravel()
    (triangle,) = (line for line in axes.lines if line.get_marker() == "v")
    assert (len(axes.patches), *triangle.get_xdata()) == (6, 7.5)
