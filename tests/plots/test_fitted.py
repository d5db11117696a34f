"""Plots of fitted estimators, as opposed to constructed ones."""

import numpy as np
import pytest
from matplotlib.contour import QuadContourSet
from sklearn.datasets import make_moons

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, plots
from tests.plots.cases import drawn, texts

X, Y = make_moons(120, noise=0.2, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    clf = ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=2, epochs=10, n_draws=20, random_state=0
    )
    return clf.fit(X, Y)


def test_the_tree_says_what_polytope_size_says(fitted):
    sizes = fitted.polytope_size()
    low, high = sizes.interval(0.9)[0].astype(int)
    median = sizes.median()[0]
    said = texts(plots.tree(fitted, sizes=True))
    root = next(text for text in said if text.endswith("120 rows"))
    assert root.endswith(f"\nposterior: {median} [{low}, {high}]\n120 rows")
    assert not any("posterior" in text for text in texts(plots.tree(fitted)))  # of sparse facets


def test_the_map_has_a_band_for_each_node(fitted):
    ax = plots.boundary(fitted, X, Y, resolution=60)
    drawn(ax)
    bands = [one for one in ax.collections if isinstance(one, QuadContourSet) and one.filled]
    assert len(bands) == fitted.tree_.n_nodes


def test_panels_show_the_sizes_and_their_prior(fitted):
    sizes = fitted.polytope_size()
    axes = plots.polytope_size(fitted)
    assert len(axes) == fitted.tree_.n_nodes + 1
    drawn(axes)
    bars = [bar.get_height() for bar in axes[0].containers[0]]
    np.testing.assert_allclose(bars, sizes.probabilities()[0])
    np.testing.assert_allclose(
        [bar.get_height() for bar in axes[-1].containers[0]], sizes.leaf_probabilities()
    )


def test_weights_and_factors_are_those_of_the_estimator(fitted):
    found = fitted.shrinkage()
    ax = plots.shrinkage(fitted)
    drawn(ax)
    medians = next(line for line in ax.lines if line.get_label() == "posterior")
    np.testing.assert_allclose(medians.get_ydata(), np.median(found.weight[0, :, 0], axis=0))
    factors = plots.shrinkage_factors(found)
    drawn(factors)
    kept = found.counts[0] if found.counts[0].any() else slice(None)
    np.testing.assert_allclose(factors.images[0].get_array(), found.kappa[0, kept])


def test_rows_and_the_trace_of_the_bound(fitted):
    axes = plots.split_uncertainty(fitted, X, Y)
    drawn(axes)
    mean = fitted.split_uncertainty(X).mean[:, 0]
    line = next(line for line in axes[0].lines if line.get_label() == "mean")
    np.testing.assert_allclose(line.get_ydata(), np.sort(mean))
    ax = plots.elbo(fitted)
    drawn(ax)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), fitted.posterior_.stats["elbo"])


def test_one_draw_has_sizes_but_no_band():
    reg = ConvexPolytopeTreeRegressor(max_depth=1, inference="map", epochs=10, random_state=0)
    reg.fit(X, X[:, 0] + Y)
    drawn(plots.split_uncertainty(reg, X, Y))
    drawn(plots.polytope_size(reg))
    ax = plots.boundary(reg, X, Y, resolution=60)
    assert ax.get_legend() is None
    assert not any("interval" in text for text in texts(plots.tree(reg)))
    with pytest.raises(ValueError, match="fit with inference='svi'"):
        plots.shrinkage_factors(reg)
