"""The numbers in the words about the leaves of a tree."""

import numpy as np
import pytest

from bayestree.description import TreeDescription
from bayestree.topology import Topology
from bayestree.tree import Tree


def tree_of(value, slope=None, **given):
    """A stump with these leaves, of features whose means are 1 and 100."""
    return Tree(
        topology=Topology.stump(),
        expert_start=np.array([0, 1]),
        weight=np.ones(1),
        hyperplane=np.array([[1.0, 0.0]]),
        intercept=np.zeros(1),
        value=np.array(value, dtype=float),
        slope=None if slope is None else np.array(slope, dtype=float),
        leaf_rows=np.array([3.0, 1.0]),
        center=np.array([1.0, 100.0]),
        scale=np.array([20.0, 10.0]),
        **given,
    )


def test_a_linear_leaf_is_an_equation():
    """The mean is 7 at the center, (1, 100), and both features count from 0."""
    tree = tree_of([7, 0], [[1.5, -0.25], [0, 0]])
    assert TreeDescription(tree, digits=3).leaf(0) == "mean = 30.5 + 1.5 x0 - 0.25 x1"
    assert TreeDescription(tree, 1, 3).leaf(0) == "mean = 5.5 + 1.5 x0 + … 1 more"
    assert TreeDescription(tree, digits=3).leaf(1) == "mean 0"


@pytest.mark.parametrize(
    ("slopes", "expected"),
    [
        ([[0.5, 1.0], [3.5, -3.0]], [(0, 3.0), (1, -4.0)]),
        ([[0.5, 1.0], [3.5, -3.0], [0.0, 2.0]], [(0, 3.5), (1, 5.0)]),
    ],
)
def test_slopes_of_classes_are_those_of_log_odds(slopes, expected):
    """Of the second of two classes, or the largest of any two; the strongest per unit first."""
    n_classes = len(slopes)
    tree = tree_of(np.full((2, n_classes), 1 / n_classes), [slopes, np.zeros_like(slopes)])
    assert TreeDescription(tree).slopes(0) == expected
    assert TreeDescription(tree).slopes(1) == []


def test_the_first_means_of_several_outputs():
    tree = tree_of([[1, 2, 3], [4, 5, 6]], quantity="means")
    assert TreeDescription(tree, 2).leaf(1) == "means 4, 5, … 1 more"
    assert TreeDescription(tree).leaf(0) == "means 1, 2, 3"


def test_a_node_has_the_mean_of_its_rows():
    described = TreeDescription(tree_of([8, 0]))
    assert described.value(0).tolist() == [6.0]
    assert (described.position(6.0), described.share(~1)) == (0.75, 0.25)
