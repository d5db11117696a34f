"""Intervals of the numbers of a printed tree."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_text,
    html_report,
)
from bayestree._utils.wording import Days
from bayestree.diagnostics.printed import Form, tree_intervals
from bayestree.export import filled_values
from bayestree.tables import Dates, Encoding
from bayestree.topology import Topology
from bayestree.tree import LOG2, Tree


def stump(plane, bound, value, **others):
    """A tree whose root has a facet plane . x <= bound for each row of ``plane``."""
    plane, bound = np.atleast_2d(plane).astype(float), np.atleast_1d(bound).astype(float)
    steep = 2.0**20  # so that each facet decides alone; the coefficient 1 is a power of two
    zero = np.log(np.expm1(LOG2))  # softplus^-1(log 2)
    d = plane.shape[1]
    return Tree(
        topology=Topology.stump(),
        expert_start=np.array([0, len(plane)]),
        weight=np.ones(len(plane)),
        hyperplane=steep * plane,
        intercept=zero - steep * bound,
        value=np.array(value, dtype=float),
        leaf_rows=np.ones(2),
        center=np.zeros(d),
        scale=np.ones(d),
        **others,
    )


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(400, 3))


def test_a_projection_finds_the_limit_and_the_leaves_of_a_step(rows):
    tree = stump([1, 0, 0], 0.0, [0.0, 1.0])
    mean = np.where(rows[:, 0] <= 0.7, -2.0, 3.0)[:, None]
    found = Form(tree, rows).fitted(mean)
    low, high = found.bound[0] / 2.0**20
    # between the two rows where the mean jumps
    x = np.sort(rows[:, 0])
    at = np.searchsorted(x, 0.7)
    assert (low, high) == pytest.approx((x[at - 1], x[at]), rel=1e-6)
    np.testing.assert_allclose(found.value[:, 0], [-2.0, 3.0])


def test_a_projection_finds_coefficients_and_several_facets(rows):
    """Two facets of two terms each, started from others; numbers are found one by one."""
    true = np.array([[1.0, 0.5, 0.0], [0.0, -0.3, -1.0]])
    inside = (rows @ true.T <= [0.4, 0.9]).all(axis=1)
    tree = stump([[1, 0.3, 0], [0, -0.4, -1]], [0.2, 0.7], [0.0, 1.0])
    mean = np.where(inside, 1.0, 0.0)[:, None]
    form = Form(tree, rows)
    found = form.fitted(mean)
    plane, bound = found.plane.mean(-1), found.bound.mean(-1)
    same = (rows @ plane.T <= bound).all(axis=1) == inside
    assert same.mean() > 0.97
    assert plane[0, 1] / plane[0, 0] == pytest.approx(0.5, abs=0.1)
    assert plane[1, 1] / plane[1, 2] == pytest.approx(0.3, abs=0.1)


def test_leaves_are_regressions_where_they_are_linear(rows):
    tree = stump([1, 0, 0], 0.0, [0.0, 1.0], slope=np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    mean = np.where(rows[:, 0] <= 0, 2 - 3 * rows[:, 1], 5.0)[:, None]
    found = Form(tree, rows).fitted(mean)
    np.testing.assert_allclose(found.value[:, 0], [2.0, 5.0], atol=1e-4)
    np.testing.assert_allclose(found.slope, [[0, -3, 0], [0, 0, 0]], atol=1e-4)


def test_intervals_are_weighted_quantiles_of_the_projected_draws(rows):
    """Of 100 draws with limits from .01 to 1, the first half with three times the weight."""
    tree = stump([-2, 0, 0], 0.5, [1.0, 0.0])  # x0 >= -.25
    limits = np.linspace(0.01, 1.0, 100)
    draws = np.where(rows[:, 0] >= -limits[:, None], 1.0, 0.0)
    weights = np.where(np.arange(100) < 50, 3.0, 1.0)
    found = tree_intervals(tree, rows, [(draws, weights)], np.arange(100), 0.9)
    x = np.sort(rows[:, 0])
    # Like 80 equal draws, so that .05 - .45 / 80 of the weights, 200 in all, is outside at an end:
    # the middle of draw 8.375 from there, or of the one of weight 3 after 2 + 11/24 others. Every
    # draw jumps between two rows.
    before, after = np.searchsorted(x, -limits) - 1, np.searchsorted(x, -limits)
    low = np.interp(99 - 8.375, np.arange(100), x[before])
    expected = low, np.interp(2 + 11 / 24, np.arange(100), x[after])
    np.testing.assert_allclose(found.limit[0], expected, rtol=1e-6)
    (name,) = (one for one in found.to_frame().index if "limit" in one[1])
    assert name == ("root", "limit of x0")
    assert found.to_frame().loc[name, "printed"] == pytest.approx(-0.25, abs=1e-6)
    assert np.isnan(found.coefficient).all()


def test_a_single_leaf_has_an_interval():
    tree = stump([1, 0, 0], 0.0, [0.0, 1.0])
    leaf = tree._with(
        topology=Topology.leaf(),
        expert_start=np.array([0]),
        weight=np.empty(0),
        hyperplane=np.empty((0, 3)),
        intercept=np.empty(0),
        value=np.array([2.0]),
        leaf_rows=np.ones(1),
    )
    each = np.arange(21)
    draws = each[:, None] * np.ones(5)
    found = tree_intervals(leaf, np.zeros((5, 3)), [(draws, np.ones(21))], each, 0.9)
    np.testing.assert_allclose(found.value, [[0.1, 19.9]])
    far = tree_intervals(
        leaf._with(value=np.array([30.0])), np.zeros((5, 3)), [(draws, np.ones(21))], each, 0.9
    )
    np.testing.assert_allclose(far.value, [[0.1, 30.0]])  # it reaches to what is printed
    assert [*found.to_frame().index] == [("root", "mean")]


def test_votes_that_add_up_have_no_limits(rows):
    tree = stump([[1, 0, 0], [0, 1, 0]], [0.0, 0.0], [0.0, 1.0])
    soft = tree._with(hyperplane=tree.hyperplane / 2.0**20, intercept=tree.intercept * 0 - 0.5)
    with pytest.raises(ValueError, match="votes of several facets add up"):
        Form(soft, rows)


def test_logistic_leaves_have_no_intervals(rows):
    """Their slopes explain what a projection onto shares would ascribe to the limit."""
    shares = [[0.4, 0.6], [0.5, 0.5]]
    tree = stump([1, 0, 0], 0.0, shares, slope=np.ones((2, 2, 3)))
    with pytest.raises(ValueError, match="logistic leaves have no intervals"):
        Form(tree, rows)


def test_intervals_of_linear_leaves_are_at_the_means(rows):
    """The constant of the equation that is printed is that at 0."""
    tree = stump([1, 0, 0], 0.0, [0.0, 1.0], slope=np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    draws = rows[:3, :1] + rows[:, 1], np.ones(3)
    found = tree_intervals(tree, rows, [draws], np.arange(3), 0.9)
    assert found.of_leaf(0, 3).endswith(" at the means)")
    assert "means" not in found.of_leaf(1, 3)


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    inside = X[:, 0] + 0.5 * X[:, 1] <= 0.3
    numbers = np.where(inside, 10.0, 14.0) + rng.normal(size=400)
    classes = np.where(rng.random(400) < np.where(inside, 0.9, 0.2), "yes", "no")
    reg = ConvexPolytopeTreeRegressor(max_depth=1, leaf="constant", random_state=0)
    clf = ConvexPolytopeTreeClassifier(max_depth=1, random_state=0)
    return X, reg.fit(X, numbers), clf.fit(X, classes)


@pytest.mark.portable
def test_the_planted_numbers_lie_in_their_intervals(fits):
    """Fifty draws reach some 2.3 standard deviations from their mean; twice that is allowed."""
    X, reg, clf = fits
    found = reg.tree_intervals(X, level=0.999)
    assert reg.tree_.n_leaves == 2
    for low, high, true in zip(*np.sort(found.value, axis=0).T, [10.0, 14.0], strict=True):
        assert low - (high - low) < true < high + (high - low)
    shares = np.sort(clf.tree_intervals(X).value[:, 1], axis=0)
    assert (shares[:, 0] >= 0).all()
    assert (shares[:, 1] <= 1).all()
    assert shares[0, 1] < 0.5 < shares[1, 0]


def test_text_has_the_intervals_behind_the_numbers(fits):
    X, reg, clf = fits
    found = clf.tree_intervals(X, level=0.8)
    text = export_text(clf, intervals=found)
    assert "In parentheses: 80 % intervals of limits and leaves." in text
    assert len(re.findall(r"left if .* \([-\d.]+ to [-\d.]+\)", text)) == clf.tree_.n_nodes
    low, high = 100 * found.value[0, clf.tree_.value[0].argmax()]
    assert f"{low:.1f} to {high:.1f} %)" in text
    assert str(found).startswith("80% intervals of the numbers of the tree")
    assert len(re.findall(r"mean \d+ \([\d.]+ to [\d.]+\)", export_text(
        reg, decimals=2, intervals=reg.tree_intervals(X)))) == reg.tree_.n_leaves  # fmt: skip
    page = html_report(reg, X=X, y=reg.predict(X))
    rows = re.findall(r"<td>(limit of .*?|mean)</td>" + 3 * r"<td class=\"n\">(.*?)</td>", page)
    table = reg.tree_intervals(X).to_frame()
    assert len(rows) == len(table) - table.index.get_level_values(1).str.startswith("coef").sum()
    signed = [[one.replace("\N{MINUS SIGN}", "-") for one in row[1:]] for row in rows]
    known = table[~table.index.get_level_values(1).str.startswith("coef")]
    length = known[["high"]].to_numpy() - known[["low"]].to_numpy()
    assert (np.abs(np.array(signed, dtype=float) - known) <= 0.05 * length).all(axis=None)
    with pytest.raises(ValueError, match="belong to another tree"):
        export_text(reg, intervals=found)
    with pytest.raises(ValueError, match="level"):
        clf.tree_intervals(X, level=1.5)


def test_the_interval_of_a_date_has_dates(rows):
    """2019-03-07 is day 17962; the draws place the step one day earlier to two days later."""
    X = np.column_stack([17962 + np.round(20 * rows[:, 0]), rows[:, 1]])
    tree = stump([1, 0], 17962.4, [0.0, 1.0], feature_names=(Days("start (days)"), "age"))
    draws = np.array([X[:, 0] > bound for bound in (17961, 17962, 17964)], dtype=float)
    found = tree_intervals(tree, X, [(draws, np.ones(3))], np.zeros(3, dtype=int), 0.9)
    assert found.of_limit(0, 3) == " (2019-03-06 to 2019-03-10)"  # the next row is of the 10th
    assert found.to_frame().index[0] == ("root", "limit of days of start since 1970")
    column = Dates("start", (17962.25,), gaps=True, parts=("days",), whole=True)
    said = filled_values(SimpleNamespace(encoding_=Encoding((column,))), tree=tree)
    assert said == "Where missing, start = 2019-03-07."


def test_the_ends_of_a_short_interval_differ_in_print(fits):
    X, _, clf = fits
    found = clf.tree_intervals(X)
    bound = found.to_frame()["printed"].iloc[0]
    short = replace(found, limit=bound + np.array([[-1e-5, 1e-5]]))
    low, high = str(short).splitlines()[3].split()[-2:]
    assert float(low) == pytest.approx(bound - 1e-5, abs=1e-6)
    assert float(high) == pytest.approx(bound + 1e-5, abs=1e-6)
    wide = replace(found, limit=bound + np.array([[-5e4, 5e4]]))
    assert float(str(wide).splitlines()[3].split()[-3]) == pytest.approx(bound, rel=0.005)


def test_few_rows_and_point_estimates_have_no_intervals(fits):
    X, reg, clf = fits
    few = reg.tree_intervals(X[:2])
    assert np.isnan(few.limit).all()
    assert np.isnan(few.value).sum() <= 2  # of a leaf without rows
    assert "(" not in export_text(reg, intervals=few).split("root:")[1].split("\n")[1]
    with pytest.raises(ValueError, match="must have rows"):
        Form(reg.tree_, X[:0])
    with pytest.raises(TypeError, match="must be those of tree_intervals"):
        export_text(reg, intervals="all")
    point = ConvexPolytopeTreeClassifier(inference="map", max_depth=1, random_state=0)
    with pytest.raises(ValueError, match="a point estimate has no intervals"):
        point.fit(X, clf.predict(X)).tree_intervals(X)
