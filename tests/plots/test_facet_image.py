"""Facets as images."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayestree import plots
from bayestree.topology import Topology
from bayestree.tree import Tree
from tests.plots.cases import drawn, estimator_of, make_tree


@pytest.fixture
def pixels():
    """A stump of two facets on images of 2 x 3 pixels; the second has the greater weight."""
    return Tree.from_standardised(
        Topology.stump(),
        np.array([[0.5, 2.0]]),
        np.array([[np.arange(6.0), -2 * np.arange(6.0)]]),
        np.zeros((1, 2)),
        center=np.zeros(6),
        scale=np.array([1.0, 1, 1, 10, 1, 1]),
    ).with_value(np.eye(2))


def test_facets_by_weight_on_one_scale_about_zero(pixels):
    axes = plots.facet_image(pixels, "root", (2, 3))
    drawn(axes)
    assert axes.shape == (2,)
    assert [ax.get_title() for ax in axes] == ["r = 2", "r = 0.5"]
    first, second = (ax.images[0] for ax in axes)
    # per unit of each pixel's scale
    np.testing.assert_allclose(first.get_array(), [[0, -2, -4], [-6, -8, -10]])
    np.testing.assert_allclose(second.get_array(), [[0, 1, 2], [3, 4, 5]])
    assert first.get_clim() == second.get_clim() == (-10, 10)


def test_names_nodes_by_path_or_number():
    tree = make_tree(n_features=4, n_experts=3)
    by_path = plots.facet_image(estimator_of(tree), "R", (2, 2))
    by_number = plots.facet_image(tree, 2, (2, 2))
    for one, other in zip(by_path, by_number, strict=True):
        np.testing.assert_array_equal(one.images[0].get_array(), other.images[0].get_array())


def test_refuses_shapes_and_nodes_that_do_not_fit(pixels):
    with pytest.raises(ValueError, match=r"28 x 28 has 784 pixels, but the tree has 6 features"):
        plots.facet_image(pixels)
    with pytest.raises(ValueError, match=r"node 'LL' is not in the tree; its nodes are root"):
        plots.facet_image(pixels, "LL", (2, 3))
    with pytest.raises(ValueError, match=r"node 1 is not in the tree"):
        plots.facet_image(pixels, 1, (2, 3))


def test_draws_on_the_axes_given_one_for_each_facet(pixels):
    given = Figure().subplots(1, 2)
    assert list(plots.facet_image(pixels, 0, (2, 3), ax=given)) == list(given)
    with pytest.raises(ValueError, match="ax must hold 2 Axes, one for each panel, got 1"):
        plots.facet_image(pixels, 0, (2, 3), ax=Figure().subplots())


def test_facets_of_zeros_are_white():
    tree = make_tree(topology=Topology.stump(), n_features=4)
    flat = Tree.from_standardised(
        tree.topology, np.ones((1, 1)), np.zeros((1, 1, 4)), np.zeros((1, 1)),
        center=np.zeros(4), scale=np.ones(4),
    )  # fmt: skip
    drawn(plots.facet_image(flat, 0, (2, 2)))
