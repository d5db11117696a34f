"""Sizes of polytopes, weights and shrinkage factors, next to their priors."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from bayestree import plots
from bayestree.diagnostics import Shrinkage
from bayestree.plots import _style
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


def make_shrinkage(*, kappa=None, counts=None, prior=True, names=("height", "mass"), **changes):
    """Two nodes of three experts on two features, 101 draws of each."""
    steps = np.linspace(0, 1, 101)
    weight = np.exp(np.stack([steps, steps - 3, steps - 6], axis=-1))
    weight = np.stack([weight, 2 * weight], axis=1)[None]
    kappa = np.full((2, 3, len(names) or 2), 0.2) if kappa is None else np.asarray(kappa)
    fields = {
        "weight": weight,
        "prior_weight": np.stack([np.full(3, 0.5), np.full(3, 1.5)]) if prior else np.zeros((0, 3)),
        "effective": np.stack([2 + steps, 1 + steps], axis=-1)[None],
        "prior_effective": np.ones(2),
        "largest_share": np.ones((1, 101, 2)),
        "prior_largest_share": np.ones(2),
        "kappa": kappa,
        "matched": np.ones((2, 3)),
        "positive": np.full(kappa.shape, 0.5),
        "sparsity": (kappa > 0.5).mean(axis=-1),
        "coefficient": np.tile([[[-1.0, 1.0]], [[1.0, -1.0]]], (1, 3, kappa.shape[-1] // 2)),
        "counts": np.ones((2, 3), dtype=bool) if counts is None else np.asarray(counts),
        "labels": ("root", "L"),
        "feature_names": tuple(names),
    }
    return Shrinkage(**(fields | changes))


def test_points_are_medians_and_bars_intervals():
    ax = plots.shrinkage(make_shrinkage(), "L", level=0.8)
    drawn(ax)
    medians = next(line for line in ax.lines if line.get_label() == "posterior")
    np.testing.assert_allclose(medians.get_ydata(), 2 * np.exp([0.5, -2.5, -5.5]))
    np.testing.assert_array_equal(medians.get_xdata(), [1, 2, 3])
    bars = next(found for found in ax.collections if len(found.get_segments()) == 3)  # type: ignore[attr-defined]
    ends = np.array(bars.get_segments())[:, :, 1]  # type: ignore[attr-defined]
    np.testing.assert_allclose(ends[:, 0], 2 * np.exp([0.1, -2.9, -5.9]))
    np.testing.assert_allclose(ends[:, 1], 2 * np.exp([0.9, -2.1, -5.1]))
    assert ax.get_yscale() == "log"
    assert ax.get_title(loc="left") == "L"
    assert ax.get_title(loc="right") == "effective weights: 1.5 [1.1, 1.9]"


def test_the_prior_lies_behind_where_there_is_one():
    ax = plots.shrinkage(make_shrinkage(), 0, level=0.5)
    middle = next(line for line in ax.lines if line.get_label() == "prior")
    np.testing.assert_allclose(middle.get_ydata(), 1.0)
    improper = plots.shrinkage(make_shrinkage(prior=False))
    drawn(improper)
    assert "prior" not in texts(improper)


def test_the_axis_ends_a_millionth_below_the_largest():
    found = make_shrinkage()
    found.weight[..., 2] = 0.0
    ax = plots.shrinkage(found)
    drawn(ax)
    low, high = ax.get_ylim()
    assert 1e-7 < low / high < 1e-6
    assert high > found.weight[0, :, 0].max()


def test_the_axis_holds_all_intervals_above_that():
    found = make_shrinkage()
    low, high = plots.shrinkage(found).get_ylim()
    assert low < np.quantile(found.weight[0, :, 0, 2], 0.05)
    assert low > np.quantile(found.weight[0, :, 0, 2], 0.05) / 10
    assert high > found.weight[0, :, 0].max()


def test_rows_are_the_experts_that_vote():
    kappa = np.arange(12).reshape(2, 3, 2) / 12
    found = make_shrinkage(kappa=kappa, counts=[[True] * 3, [True, False, True]])
    ax = plots.shrinkage_factors(found, "L")
    drawn(ax)
    np.testing.assert_allclose(ax.images[0].get_array(), kappa[1, [0, 2]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["expert 0", "expert 2"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["height", "mass"]
    # nothing votes: all are shown
    none = make_shrinkage(counts=np.zeros((2, 3), dtype=bool))
    assert plots.shrinkage_factors(none).images[0].get_array().shape == (3, 2)


def test_experts_of_few_draws_have_no_row():
    kappa = np.full((2, 3, 2), 0.2)
    kappa[1, 1] = np.nan
    ax = plots.shrinkage_factors(make_shrinkage(kappa=kappa), "L")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["expert 0", "expert 2"]


def test_signs_stand_where_little_is_shrunk():
    kappa = [[[1.0, 1.0]] * 3, [[0.1, 0.1], [0.9, 0.4], [0.6, 0.6]]]
    positive = np.full((2, 3, 2), 0.5)
    positive[1, 2, 1] = 0.01  # of any size, but negative
    ax = plots.shrinkage_factors(make_shrinkage(kappa=kappa, positive=positive), "L")
    signs = {text.get_position(): (text.get_text(), text.get_color()) for text in ax.texts}
    minus = "\N{MINUS SIGN}"
    dark = {(0, 0): ("+", "white"), (1, 0): (minus, "white"), (1, 1): (minus, "white")}
    assert signs == dark | {(1, 2): (minus, _style.INK)}


def test_what_is_shrunk_to_zero_is_nearly_white():
    image = plots.shrinkage_factors(make_shrinkage()).images[0]
    assert image.get_clim() == (0, 1)
    assert min(to_rgb(image.cmap(1.0))) > 0.95
    assert max(to_rgb(image.cmap(0.0))) < 0.5


def test_many_features_go_without_names():
    n_features = 2 * _style.MAX_PANELS * 2
    wide = make_shrinkage(names=[f"gene {j}" for j in range(n_features)])
    ax = plots.shrinkage_factors(wide)
    drawn(ax)
    assert ax.get_xlabel() == "feature"
    assert not any("gene" in text for text in texts(ax))
    unnamed = plots.shrinkage_factors(make_shrinkage(names=()))
    assert [label.get_text() for label in unnamed.get_xticklabels()] == ["x0", "x1"]


def test_refuses_other_nodes_levels_and_single_draws():
    with pytest.raises(ValueError, match="node 'R' is not in the tree; its nodes are root, L"):
        plots.shrinkage(make_shrinkage(), "R")
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 1"):
        plots.shrinkage(make_shrinkage(), level=1)
    with pytest.raises(ValueError, match="oblique splits have no weights to shrink"):
        plots.shrinkage(make_shrinkage(weight=np.ones((1, 5, 2, 1))))
    with pytest.raises(ValueError, match="the tree has no split"):
        plots.shrinkage(make_shrinkage(labels=()))
    with pytest.raises(ValueError, match=r"a single draw has no spread \(fit with inference='svi'"):
        plots.shrinkage_factors(make_shrinkage(kappa=np.full((2, 3, 2), np.nan)))
    with pytest.raises(TypeError, match="the Shrinkage that its shrinkage returns"):
        plots.shrinkage(object())


def test_estimators_measure_themselves():
    fitted = SimpleNamespace(shrinkage=make_shrinkage)
    assert plots.shrinkage(fitted).get_title(loc="left") == "root"
    assert plots.shrinkage_factors(fitted, 1).get_title(loc="left") == "L"


def test_features_that_take_no_part_are_not_drawn():
    kappa = np.full((2, 3, 2), 0.2)
    kappa[1, :, 0] = np.nan
    ax = plots.shrinkage_factors(make_shrinkage(kappa=kappa), "L")
    drawn(ax)
    np.testing.assert_allclose(ax.images[0].get_array(), kappa[1, :, 1:])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["mass"]
    assert texts(ax).count("\N{MINUS SIGN}") == 3, "the signs are those of mass"
