"""Plots of fitted estimators, as opposed to constructed ones."""

from io import StringIO
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import QuadContourSet
from matplotlib.text import Text
from sklearn.datasets import make_moons

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, plots
from bayestree.diagnostics import calibration
from bayestree.inference import Map, Svi
from tests.plots.cases import drawn, texts

X, Y = make_moons(120, noise=0.2, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    clf = ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=2, inference=Svi(epochs=10, n_draws=20), random_state=0
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


def odd_names(draw):
    """Draw for a fit whose names have dollars and control characters, and return the file."""
    frame = pd.DataFrame(X, columns=["a$b_{c$", "cost\x1b in $ or $"])
    classes = np.array(["$5 to $\x00 10", "$\\x$"])[Y]
    clf = ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=1, n_experts=1, inference=Svi(epochs=10, n_draws=4), random_state=0
    )
    ax = np.ravel(draw(clf.fit(frame, classes), frame, classes))[0]
    file = StringIO()
    ax.figure.savefig(file, format="svg")
    return ax.figure, file.getvalue()


ODD = {
    "tree": lambda clf, X, y: plots.tree(clf, X=X, y=y),
    "boundary": lambda clf, X, y: plots.boundary(clf, X=X, y=y),
    "node_scatter": plots.node_scatter,
    "shrinkage_factors": lambda clf, *_: plots.shrinkage_factors(clf, 0),
    "calibration": lambda clf, X, y: plots.calibration(
        {"$a$\x0c": calibration(y, clf.predict_proba(X), classes=clf.classes_)}
    ),
    "explain": lambda clf, X, _: clf.explain(X.iloc[0]).plot(),
    "importance": lambda clf, X, y: clf.importance(X, y).plot(),
    "shapley": lambda clf, X, _: clf.shapley_values(X.iloc[:3]).plot(),
    "dependence": lambda clf, X, _: clf.partial_dependence(X, X.columns[1]).plot(),
    "interactions": lambda clf, X, _: clf.interactions(X).plot(),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore::bayestree.UnconvergedWarning")
def test_names_are_written_as_they_are(name):
    figure, file = odd_names(ODD[name])
    ElementTree.fromstring(file)  # would refuse control characters
    said = [text for text in figure.findobj(Text) if "$" in text.get_text()]
    assert said
    assert not any(text.get_parse_math() for text in said)


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
    reg = ConvexPolytopeTreeRegressor(
        max_depth=1, inference=Map(epochs=10, steepness=None), random_state=0
    )
    reg.fit(X, X[:, 0] + Y)
    drawn(plots.split_uncertainty(reg, X, Y))
    drawn(plots.polytope_size(reg))
    ax = plots.boundary(reg, X, Y, resolution=60)
    assert ax.get_legend() is None
    assert not any("interval" in text for text in texts(plots.tree(reg)))
    with pytest.raises(ValueError, match="fit with inference='svi'"):
        plots.shrinkage_factors(reg)
