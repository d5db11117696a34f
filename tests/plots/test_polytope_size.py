"""Posterior of the sizes, next to their prior."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from bayestree import plots
from tests.plots.cases import drawn, make_sizes, make_tree, texts

# two nodes: the root has 3, 3, 4 and 5 facets in four draws, L always 1
FACETS = [[3, 1], [3, 1], [4, 1], [5, 1]]


def heights(ax):
    return {round(bar.get_x() + 0.4): bar.get_height() for bar in ax.containers[0] if bar}


def outline(ax):
    (patch,) = (found for found in ax.patches if isinstance(found, StepPatch))
    return patch.get_data()


def test_bars_are_posterior_probabilities():
    root, left = plots.polytope_size(make_sizes(FACETS))
    drawn(root)
    assert heights(root) == {0: 0, 1: 0, 2: 0, 3: 0.5, 4: 0.25, 5: 0.25}
    assert heights(left) == {0: 0, 1: 1, 2: 0, 3: 0, 4: 0, 5: 0}
    assert root.get_title(loc="left") == "root"
    assert root.get_title(loc="right") == "100 rows"
    assert root.get_xlabel() == "facets in the box"


def test_the_outline_is_the_prior():
    sizes = make_sizes(FACETS, prior=[[0, 2], [1, 2], [1, 2], [1, 0]])
    root, left = plots.polytope_size(sizes)
    values, edges, _ = outline(root)
    np.testing.assert_allclose(values, [0.25, 0.75, 0])
    np.testing.assert_allclose(edges, [-0.5, 0.5, 1.5, 2.5])
    np.testing.assert_allclose(outline(left).values, [0.25, 0, 0.75])
    assert texts(root.figure).count("prior") == 1
    without = plots.polytope_size(sizes, prior=False)
    assert not any(isinstance(patch, StepPatch) for patch in without[0].patches)


def test_the_last_panel_has_the_leaves_in_use():
    *_, leaves = plots.polytope_size(make_sizes(FACETS, n_leaves=[3, 3, 3, 2]))
    drawn(leaves)
    assert heights(leaves) == {0: 0, 1: 0, 2: 0.25, 3: 0.75}
    assert leaves.get_xlabel() == "leaves in use by a draw"
    *_, many = plots.polytope_size(make_sizes(FACETS, n_leaves=[70, 70, 71, 70]))
    assert many.get_xlim() == pytest.approx((69.4, 71.6))


def test_other_measures_have_their_own_sizes_and_names():
    (weights, _) = plots.polytope_size(make_sizes(FACETS), "weights")
    assert heights(weights)[4] == 0.5
    (effective, _) = plots.polytope_size(make_sizes(FACETS), "effective")
    assert heights(effective)[3] == 0.5
    assert {weights.get_xlabel(), effective.get_xlabel()} == {
        "experts that vote",
        "effective votes",
    }
    with pytest.raises(ValueError, match="one of cutting, facets, weights, effective, got 'size'"):
        plots.polytope_size(make_sizes(FACETS), "size")


def test_panels_share_a_range_that_leaves_out_rare_sizes():
    prior = np.ones((1000, 2), dtype=int)
    prior[0] = 40
    root, left = plots.polytope_size(make_sizes(FACETS, prior=prior))
    assert root.get_xlim() == left.get_xlim()
    assert 5.5 < root.get_xlim()[1] < 7
    assert root.get_ylim() == left.get_ylim()


def test_nodes_by_name_and_the_most_visited_where_none_are_named():
    one = plots.polytope_size(make_sizes(FACETS), nodes=["L"])
    assert [ax.get_title(loc="left") for ax in one] == ["L"]
    many = make_sizes(np.ones((2, 15), dtype=int))
    axes = plots.polytope_size(many)
    assert [ax.get_title(loc="left") for ax in axes] == list(many.labels[:12])
    with pytest.raises(ValueError, match="node 'LR' is not in the tree; its nodes are root, L"):
        plots.polytope_size(make_sizes(FACETS), nodes=["LR"])


def test_estimators_measure_themselves_and_others_are_refused():
    sizes = make_sizes(FACETS)
    axes = plots.polytope_size(SimpleNamespace(polytope_size=lambda: sizes))
    assert heights(axes[0])[3] == 0.5
    with pytest.raises(TypeError, match="the PolytopeSize that its polytope_size returns"):
        plots.polytope_size(make_tree())
    with pytest.raises(ValueError, match="no split"):
        plots.polytope_size(make_sizes(np.empty((3, 0), dtype=int)))


def test_draws_on_the_axes_given():
    given = Figure().subplots(2)
    assert list(plots.polytope_size(make_sizes(FACETS), ax=given)) == list(given)
    assert given[0].get_legend() is not None
    with pytest.raises(ValueError, match="ax must hold 2 Axes, one for each panel, got 1"):
        plots.polytope_size(make_sizes(FACETS), ax=Figure().subplots())
