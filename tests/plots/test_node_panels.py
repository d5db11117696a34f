"""Scatter plots and images of nodes: what they draw and what they refuse."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayestree import plots
from bayestree._utils.wording import Days
from bayestree.plots._node_panels import Panel, panels_as_tree
from bayestree.topology import Topology
from bayestree.tree import Tree
from tests.plots.cases import drawn, estimator_of, make_tree, rows_of, texts

ONE = np.ones(1)  # an expert of this weight splits where its sum is 0


def stump(plane, intercept=0.0, **changes):
    tree = make_tree(topology=Topology.stump(), n_features=len(plane), **changes)
    planes = np.array([plane], dtype=float)
    return replace(tree, weight=ONE, hyperplane=planes, intercept=np.array([intercept]))


def grey(ax):
    """Whether the grey part covers a point of the data."""
    (shade,) = [c for c in ax.collections if c.get_zorder() == 0] or [None]
    if shade is None:
        (span,) = [p for p in ax.patches if p.get_zorder() == 0]
        return lambda x, y: span.get_x() < x < span.get_x() + span.get_width()
    (path,) = shade.get_paths()
    return lambda x, y: path.contains_point((x, y))


@pytest.mark.parametrize("plane", [[2.0, 1.0], [-1.0, 2.0], [1.0, -2.0], [-2.0, -0.5]])
def test_the_grey_part_is_what_goes_left(plane):
    tree = stump(plane, 0.3)
    X, y = rows_of(tree, 60)
    ax = plots.node_scatter(tree, X, y, "root")
    first, second = np.argsort(-np.abs(plane))
    covers = grey(ax)
    left = X @ plane + 0.3 <= 0
    assert [covers(*row) for row in X[:, [first, second]]] == left.tolist()
    assert ax.get_xlabel() == f"x{first}"
    assert ax.get_ylabel() == f"x{second}"


@pytest.mark.parametrize(
    ("plane", "label"),
    [
        ([0.0, -2.0, 0.0], "x1"),
        ([0.0, 2.0, 0.0], "x1"),
        ([1.0, -2.0, 0.5], "x1 - 0.5 x0 - 0.25 x2"),
    ],
)
def test_other_numbers_of_features_are_a_strip(plane, label):
    tree = stump(plane, 0.5)
    X, y = rows_of(tree, 60)
    ax = plots.node_scatter(tree, X, y, 0)
    assert ax.get_xlabel() == label
    covers = grey(ax)
    along = X @ plane / plane[1]
    assert [covers(value, 0) for value in along] == (X @ plane + 0.5 <= 0).tolist()
    (points,) = ax.collections
    np.testing.assert_allclose(np.sort(points.get_offsets()[:, 0]), np.sort(along))
    assert set(points.get_offsets()[:, 1].round()) == {0, 1}


@pytest.mark.parametrize("plane", [[0.01, 0.0], [0.01, -1.0]])
def test_days_are_dates(plane):
    tree = stump(plane, -0.01 * 17962, feature_names=(Days("start (days)"), "age"))
    days, age = np.arange(17600.0, 18400.0, 5.0), np.linspace(-1.0, 1.0, 160)
    ax = plots.node_scatter(tree, np.column_stack([days, age]), np.arange(160) % 2, "root")
    ax.figure.canvas.draw()
    axis = ax.yaxis if plane[1] else ax.xaxis
    assert axis.get_label_text() == "start"
    assert {"2019", "2020"} <= {one.get_text() for one in axis.get_ticklabels()}


def test_the_title_counts_rows_and_errors_below():
    tree = make_tree(topology=Topology.complete(2), seed=1)
    X, y = rows_of(tree, 60)
    wrong = tree.predict(X).argmax(axis=1) != y
    panels = plots.node_scatter(tree, X, y)
    for panel, (node, rows, _) in zip(panels, tree.walk(X), strict=True):
        assert panel.get_title("left") == tree.topology.node_labels[node]
        assert panel.get_title("right") == f"{wrong[rows].sum()} of {len(rows)} wrong"


def test_classes_go_by_their_labels():
    tree = stump([1.0, 0.5], class_names=("no", "yes"))
    X, y = rows_of(tree, 60)
    fitted = estimator_of(tree, classes_=np.array(["no", "yes"]))
    named = plots.node_scatter(fitted, X, np.array(["no", "yes"])[y], 0)
    assert texts(named) == texts(plots.node_scatter(tree, X, y, 0))
    with pytest.raises(ValueError, match="maybe"):
        plots.node_scatter(fitted, X, np.full(len(X), "maybe"), 0)


def test_a_regression_tree():
    tree = make_tree(n_classes=0)
    X, y = rows_of(tree, 60)
    panels = plots.node_scatter(tree, X, y)
    rmse = np.sqrt(((tree.predict(X) - y) ** 2).mean())
    assert panels[0].get_title("right") == f"rmse {rmse:.3g}, 60 rows"
    ax = plots.node_scatter(stump([0.0, 1.0], n_classes=0), X, y, 0)
    np.testing.assert_allclose(np.sort(ax.collections[0].get_offsets()[:, 1]), np.sort(y))


def test_nodes_that_no_row_reaches_are_empty():
    tree = make_tree(topology=Topology.complete(3))
    panels = plots.node_scatter(tree, np.zeros((1, 2)), np.zeros(1, dtype=int))
    drawn(panels)
    assert sum(panel.get_title("right").endswith("of 0 wrong") for panel in panels) == 4


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_panels_stay_apart(depth):
    """Neither panels with their labels overlap, nor do they leave the figure."""
    tree = make_tree(topology=Topology.complete(depth), class_names=("benign", "malignant"))
    panels = plots.node_scatter(tree, *rows_of(tree, 60))
    figure = drawn(panels)
    boxes = [panel.get_tightbbox() for panel in panels]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


def test_images_are_the_weights_of_their_nodes():
    tree = make_tree(n_features=6)
    tree = replace(tree, hyperplane=tree.hyperplane * (np.arange(6) > 2))
    panels = plots.node_images(tree, (2, 3))
    drawn(panels)
    for panel, plane in zip(panels, tree.standardised_hyperplane, strict=True):
        (image,) = panel.images
        np.testing.assert_array_equal(image.get_array(), plane.reshape(2, 3))
        assert image.norm.vmax == -image.norm.vmin == np.abs(plane).max()
        assert panel.get_title("right") == "3 px"


def test_a_panel_lies_over_the_middle_of_its_children():
    panels = panels_as_tree(make_tree(topology=Topology.complete(3)), Panel(1.0, 1.0, 0.1, 0.1))
    middles = [(p.get_position().x0 + p.get_position().x1) / 2 for p in panels]
    assert middles[0] == pytest.approx((middles[1] + middles[2]) / 2)
    assert middles[1] == pytest.approx((middles[3] + middles[4]) / 2)
    assert panels[1].get_position().y0 == panels[2].get_position().y0 < panels[0].get_position().y0


def test_leaves_of_numbered_classes_are_named_where_room_is_short():
    tree = make_tree(topology=Topology.complete(3), n_features=4, n_classes=10)
    panels = plots.node_images(tree, (2, 2))
    labels = [text for ax in panels[0].figure.axes for text in texts(ax) if "%" in text]
    classes = [label.partition(":")[0].removeprefix("class ") for label in labels]
    assert sorted(classes) == sorted(str(best) for best in tree.value.argmax(axis=1))


def test_one_node_is_drawn_where_it_is_asked_for():
    tree = make_tree()
    X, y = rows_of(tree, 60)
    ax = plots.node_scatter(tree, X, y, "L")
    assert isinstance(ax, Axes)
    other = plots.node_scatter(tree, X, y, 1, ax=drawn(ax).add_axes((0, 0, 1, 1)))
    assert other.figure is ax.figure
    assert other.get_title("left") == "L"


def test_refusals():
    tree = make_tree()
    X, y = rows_of(tree, 60)
    ax = plots.node_scatter(tree, X, y, 0)
    for arguments, message in (
        ((tree, X[:, :1], y), r"X must have shape \(n, 2\)"),
        ((tree, X, y[:3]), "y must have shape"),
        ((tree, X, y, "LLL"), "is not in the tree"),
        ((tree, X, y, None, ax), "ax is for a single node"),
        ((make_tree(topology=Topology.leaf()), X, y), "no split"),
        ((make_tree(topology=Topology.complete(5)), X, y), "32 leaves"),
        (
            (make_tree(n_experts=2, n_features=3), *rows_of(make_tree(n_features=3)), 0),
            "root has 2 facets",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            plots.node_scatter(*arguments)
    with pytest.raises(TypeError, match="a Tree or a fitted estimator"):
        plots.node_scatter(SimpleNamespace(), X, y)
    for arguments, message in (
        ((tree, (2, 2)), "shape 2 x 2 has 4 pixels"),
        ((make_tree(n_experts=2), (1, 2)), "one facet per node"),
        ((make_tree(topology=Topology.leaf()), (1, 2)), "no split"),
        ((make_tree(topology=Topology.complete(6)), (1, 2)), "64 leaves"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.node_images(*arguments)


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
