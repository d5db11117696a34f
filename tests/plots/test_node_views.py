"""What the nodes of a drawn tree show: rows with the border between them, or bars of terms."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.contour import QuadContourSet
from matplotlib.patches import Rectangle

from bayestree import plots
from bayestree.fitting.projection.facets import Conjunction
from bayestree.plots._node_views import MOST_POINTS
from bayestree.plots._tree import boxes_of, draw_branch, layout, plain_description
from bayestree.topology import Topology
from tests.plots.cases import drawn, estimator_of, make_tree, rows_of, texts


def sparse(nodes, *, topology=None, seed=0, n_classes=2, **changes):
    """A tree whose nodes are lists of facets ``(normal, limit)``."""
    d = len(nodes[0][0][0])
    topology = topology or Topology.stump()
    tree = make_tree(topology=topology, n_features=d, n_classes=n_classes, **changes)
    pairs = [map(np.array, zip(*facets, strict=True)) for facets in nodes]
    parts = [Conjunction(*map(np.float64, pair)).experts(tree.scale) for pair in pairs]
    weight, plane, intercept = map(np.concatenate, zip(*parts, strict=True))
    start = np.cumsum([0, *map(len, nodes)])
    found = replace(tree, expert_start=start, weight=weight, hyperplane=plane, intercept=intercept)
    X, y = rows_of(found, seed=seed)
    return found.fill(X, y, np.ones(len(X)), n_classes)


def views(ax):
    """The boxes of the nodes by their paths."""
    return {one.get_gid().removeprefix("at-"): one for one in ax.child_axes}


def panel(view):
    (found,) = view.child_axes
    return found


def points(ax):
    (found,) = [one for one in ax.collections if isinstance(one, PathCollection)]
    return found.get_offsets()


def shaded(ax):
    """Whether the shaded part covers points (n, 2)."""
    (region,) = [one for one in ax.collections if isinstance(one, QuadContourSet) and one.filled]
    (path,) = region.get_paths()
    return path.contains_points


SQUARE = [([1.0, 0.0], 1.0), ([-1.0, 0.0], 1.0), ([0.5, 1.0], 1.0)]


def test_two_features_are_a_scatter_with_the_polytope_shaded():
    tree = sparse([SQUARE, [([1.0, 0.0], 0.3)], [([0.0, 1.0], 0.0)]], topology=Topology.complete(2))
    X, y = rows_of(tree)
    ax = plots.tree(tree, X=X, y=y)
    root = panel(views(ax)["root"])
    np.testing.assert_array_equal(np.sort(points(root), axis=0), np.sort(X, axis=0))
    assert {root.get_xlabel(), root.get_ylabel()} == {"x0", "x1"}
    swapped = root.get_xlabel() == "x1"
    inside = shaded(root)(X[:, ::-1] if swapped else X)
    # rows next to a border may lie on the other side of its drawn line
    near = np.abs(np.column_stack([X @ normal - limit for normal, limit in SQUARE])).min(axis=1)
    left = (np.column_stack([X @ normal <= limit for normal, limit in SQUARE])).all(axis=1)
    assert (inside == left)[near > 0.1].all()
    assert {"3 facets", "200 rows"} & set(texts(views(ax)["root"]))
    assert "goes left" in [text.get_text() for text in ax.get_legend().get_texts()]
    drawn(ax)


def test_only_rows_that_reach_a_node_are_drawn():
    tree = sparse([SQUARE, [([1.0, 0.5], 0.3)], [([0.0, 1.0], 0.0)]], topology=Topology.complete(2))
    X, y = rows_of(tree)
    found = {
        path: len(points(panel(view))) for path, view in views(plots.tree(tree, X=X, y=y)).items()
    }
    left = int((~tree.goes_right(0, X)).sum())
    assert found == {"root": 200, "L": left, "R": 200 - left}
    many, labels = rows_of(tree, 2000)
    assert len(points(panel(views(plots.tree(tree, X=many, y=labels))["root"]))) == MOST_POINTS


def test_one_feature_is_a_strip_by_class_with_its_limits():
    tree = sparse([[([0.0, 1.0], 1.0), ([0.0, -1.0], 0.5)]], class_names=("no", "yes"))
    X, y = rows_of(tree)
    ax = plots.tree(estimator_of(tree, classes_=np.array([0, 1])), X=X, y=y)
    strip = panel(views(ax)["root"])
    assert strip.get_xlabel() == "x1"
    assert sorted(line.get_xdata()[0] for line in strip.lines) == [-0.5, 1.0]
    (span,) = [one for one in strip.patches if isinstance(one, Rectangle)]
    assert (span.get_x(), span.get_x() + span.get_width()) == (-0.5, 1.0)
    assert [text.get_text() for text in strip.get_yticklabels()] == ["no", "yes"]


def test_classes_of_a_bare_tree_have_names_or_numbers():
    tree = sparse([[([0.0, 1.0], 1.0)]], class_names=("2", "1"))
    X, y = rows_of(tree)
    drawn = [
        points(panel(views(plots.tree(tree, X=X, y=given))["root"]))
        for given in (y, 2 - y, (2 - y).astype(str), np.char.add("class ", (2 - y).astype(str)))
    ]
    for other in drawn[1:]:
        np.testing.assert_array_equal(drawn[0], other)
    with pytest.raises(ValueError, match=r"not know: \['no'\]; its classes are \['2', '1'\]"):
        plots.tree(tree, X=X, y=np.where(y, "no", "1"))
    with pytest.raises(ValueError, match=r"'red'; a tree takes .*encoding_.encode\(X\)"):
        plots.tree(tree, X=[["red", 0.0]] * len(X), y=y)


@pytest.mark.parametrize("sides", [None, ("left", "right")])
def test_bars_point_to_the_sides_that_branches_have(sides):
    tree = sparse([[([-0.5, 1.0, 0.0, 0.25], 0.3)]])
    described, places = plain_description(tree), layout(tree.topology)
    boxes = boxes_of(described, places, None, 0.9)
    ax, _ = draw_branch(described, boxes, places, sides=sides)
    left, right = sides or ("yes", "no")
    assert {left, right} <= set(texts(ax))
    assert {f"← {left}", f"{right} →"} <= set(texts(views(ax)["root"]))


def test_a_feature_of_two_values_has_a_limit_for_each():
    """The border of x0 + x1 <= 0.5 is at 0.5 where x1 is 0, and at -0.5 where it is 1."""
    tree = sparse([[([1.0, 1.0], 0.5)]])
    X, y = rows_of(tree)
    X[:, 1] = X[:, 1] > 0
    inside = shaded(panel(views(plots.tree(tree, X=X, y=y))["root"]))
    at = np.array([[0.4, 0.2], [0.6, -0.3], [-0.6, 1.3], [-0.4, 0.7]])
    assert inside(at).tolist() == [True, False, True, False]
    assert set(points(panel(views(plots.tree(tree, X=X, y=y))["root"]))[:, 1].round()) == {0, 1}


def bars(view):
    """Lengths of the bars, the uppermost first, and the text beside each."""
    found = [one for one in view.patches if isinstance(one, Rectangle)]
    found.sort(key=lambda one: -one.get_y())
    place = {round(text.get_position()[1], 6): text.get_text() for text in view.texts}
    middle = [round(one.get_y() + one.get_height() / 2, 6) for one in found]
    return [(place[y], one.get_width()) for y, one in zip(middle, found, strict=True)]


@pytest.mark.parametrize("given", [True, False])
def test_many_features_are_bars_to_the_side_of_larger_values(given):
    tree = sparse([[([-0.5, 1.0, 0.0, 0.25], 0.3)]])
    X, y = rows_of(tree)
    view = views(plots.tree(tree, X=X, y=y) if given else plots.tree(tree))["root"]
    terms, lengths = zip(*bars(view), strict=True)
    assert terms == ("x1", "- 0.5 x0", "+ 0.25 x3")
    # larger values of x1 lead out of the polytope, to the right
    np.testing.assert_allclose(np.array(lengths) / lengths[0], [1.0, -0.5, 0.25])
    assert lengths[0] > 0
    assert {"<= 0.3", "200 rows"} <= set(texts(view))
    assert view.child_axes == []


def test_bars_are_per_standard_deviation():
    tree = sparse([[([1.0, 0.1, 0.2], 0.0)]])
    tree = replace(tree, scale=np.array([1.0, 10.0, 10.0]))
    lengths = dict(bars(views(plots.tree(tree))["root"]))
    ratio = np.array([lengths["x0"], lengths["+ 0.1 x1"], lengths["+ 0.2 x2"]])
    np.testing.assert_allclose(ratio / ratio[2], [0.5, 0.5, 1.0])


def test_the_five_largest_of_more_than_six_terms_are_shown():
    for n_terms, shown in ((6, 6), (7, 5)):
        tree = sparse([[(np.linspace(1.0, 0.1, n_terms).tolist(), 0.0)]])
        view = views(plots.tree(tree))["root"]
        assert len(bars(view)) == shown
        assert ("+ … 2 more" in texts(view)) == (n_terms == 7)


def test_further_facets_are_counted():
    facets = [(np.roll([1.0, 0.5, 0.25], k).tolist(), 1.0 + k) for k in range(5)]
    view = views(plots.tree(sparse([facets])))["root"]
    assert len(bars(view)) == 9
    assert sum(text.startswith("and ") for text in texts(view)) == 2
    assert "+ 2 facets" in texts(view)


def test_without_rows_one_or_two_features_are_words():
    ax = plots.tree(sparse([[([1.0, 0.5], 1.0)]]))
    assert ax.child_axes == []
    assert "x0\n+ 0.5 x1 <= 1\n200 rows" in texts(ax)


def test_larger_trees_are_words():
    tree = make_tree(topology=Topology.complete(4), n_features=4)
    assert plots.tree(tree).child_axes == []
    assert plots.tree(tree, X=rows_of(tree)[0], y=rows_of(tree)[1]).child_axes == []


@pytest.mark.parametrize("n_features", [2, 5])
@pytest.mark.parametrize("n_classes", [3, 0])
def test_boxes_and_leaves_do_not_overlap(n_features, n_classes):
    chain = np.array([[~0, 1], [2, ~1], [~2, 3], [4, ~3], [~4, 5], [6, ~5], [~6, ~7]])
    names = [f"a rather long class name {k}" for k in range(n_classes)]
    for topology in (Topology.complete(3), Topology(chain)):
        tree = make_tree(
            topology=topology, n_features=n_features, n_classes=n_classes, class_names=names,
            feature_names=[f"a rather long name of a feature {k}" for k in range(n_features)],
        )  # fmt: skip
        ax = plots.tree(tree, X=rows_of(tree)[0], y=rows_of(tree)[1])
        figure = drawn(ax)
        assert len(ax.child_axes) == 7
        frames = [view.patches[0].get_window_extent() for view in ax.child_axes]
        leaves = [one.get_window_extent() for one in ax.texts if one.get_text()]
        for place, box in enumerate(boxes := [*frames, *leaves]):
            assert not box.count_overlaps(boxes[place + 1 :])
        for view, frame in zip(ax.child_axes, frames, strict=True):
            assert figure.bbox.fully_containsx(frame.x0)
            assert figure.bbox.fully_containsy(frame.y1)
            inside = view.get_tightbbox()
            assert frame.x0 - 1 <= inside.x0
            assert inside.x1 <= frame.x1 + 1
            assert frame.y0 - 1 <= inside.y0
            assert inside.y1 <= frame.y1 + 1


def test_refusals():
    tree = sparse([SQUARE])
    X, y = rows_of(tree)
    for given, message in (
        ({"X": X}, "belong together"),
        ({"y": y}, "belong together"),
        ({"X": X[:, :1], "y": y}, "X must have shape"),
        ({"X": X, "y": np.full(len(X), 7)}, "does not know"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.tree(tree, **given)
