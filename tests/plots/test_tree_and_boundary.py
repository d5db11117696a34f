"""Trees and maps: what they draw and what they refuse."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from bayestree import plots
from bayestree.plots import _style
from bayestree.topology import Topology
from bayestree.tree import Tree
from tests.plots.cases import drawn, estimator_of, make_sizes, make_tree, make_uncertainty, texts


@pytest.mark.parametrize("draw", [plots.boundary, plots.tree])
@pytest.mark.parametrize("n_classes", [0, 2, 3, 12])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_draws_trees_of_any_kind(draw, n_classes, depth):
    tree = make_tree(topology=Topology.complete(depth), n_classes=n_classes, n_experts=3)
    ax = draw(estimator_of(tree))
    drawn(ax)


@pytest.mark.parametrize("draw", [plots.boundary, plots.tree])
def test_a_tree_will_do_for_an_estimator(draw):
    assert draw(make_tree()).figure is not None


@pytest.mark.parametrize("draw", [plots.boundary, plots.tree])
def test_draws_on_the_axes_given(draw):
    ax = Figure().subplots()
    assert draw(make_tree(), ax=ax) is ax


@pytest.mark.parametrize("draw", [plots.boundary, plots.tree])
def test_refuses_what_is_not_fitted(draw):
    with pytest.raises(TypeError, match="of this package, got object"):
        draw(object())


def test_boundary_refuses_other_widths():
    with pytest.raises(ValueError, match="trees with 2 features, but this one has 3"):
        plots.boundary(make_tree(n_features=3))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (None, [1, 0], "without X"),
        (np.ones((4, 3)), None, "shape \\(n, 2\\)"),
        (np.ones((4, 2)), np.ones(3), "shape \\(4,\\)"),
    ],
)
def test_boundary_refuses_rows_that_do_not_fit(X, y, message):
    with pytest.raises(ValueError, match=message):
        plots.boundary(make_tree(), X, y)


def test_boundary_names_classes_and_features():
    tree = make_tree(class_names=("low", "high"), feature_names=("height", "mass"))
    X = np.random.default_rng(1).normal(size=(30, 2))
    ax = plots.boundary(tree, X, np.arange(30) % 2)
    assert {"low", "high", "height", "mass"} <= set(texts(ax))


def test_boundary_window_holds_the_rows():
    X = np.array([[-7.0, 2.0], [9.0, 3.0]])
    ax = plots.boundary(make_tree(), X)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert left < X[:, 0].min()
    assert right > X[:, 0].max()
    assert bottom < X[:, 1].min()
    assert top > X[:, 1].max()


def test_boundary_hands_names_back_to_the_estimator():
    tree = make_tree(feature_names=("a", "b"))
    seen = []

    def predict_proba(X):
        seen.append(X)
        return tree.predict(np.asarray(X))

    estimator = SimpleNamespace(
        tree_=tree, predict_proba=predict_proba, feature_names_in_=np.array(["a", "b"])
    )
    plots.boundary(estimator)
    assert isinstance(seen[0], pd.DataFrame)
    assert list(seen[0].columns) == ["a", "b"]


def test_facets_are_drawn_where_they_bound():
    # a square of side 2, and a fifth facet that cuts nothing of it
    normals = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [1, 1]])
    square = Tree.from_standardised(
        Topology.stump(),
        np.ones((1, 5)),
        normals[None],
        -np.array([[1.0, 1, 1, 1, 5]]),
        center=np.zeros(2),
        scale=np.ones(2),
    ).with_value(np.eye(2))
    (facets,) = plots.boundary(square).collections
    (outline,) = facets.get_paths()
    np.testing.assert_allclose(np.abs(outline.vertices).max(axis=1), 1, atol=0.02)
    np.testing.assert_allclose(outline.vertices.min(axis=0), -1, atol=1e-6)
    np.testing.assert_allclose(outline.vertices.max(axis=0), 1, atol=1e-6)


def test_a_half_plane_is_drawn_with_its_border_and_one_facet():
    stump = Tree.from_standardised(
        Topology.stump(),
        np.ones((1, 1)),
        np.array([[[2.0, 0.0]]]),
        np.zeros((1, 1)),
        center=np.zeros(2),
        scale=np.ones(2),
    ).with_value(np.eye(2))
    ax = plots.boundary(stump)
    border, facet = (lines.get_paths()[0].vertices for lines in ax.collections)
    np.testing.assert_allclose(border[:, 0], 0, atol=1e-2)
    np.testing.assert_allclose(facet[:, 0], 0, atol=1e-12)
    np.testing.assert_allclose([facet[:, 1].min(), facet[:, 1].max()], [-2.5, 2.5])


def with_band(tree, interval_of, n_draws=10):
    """An estimator whose splits are uncertain as a function of the rows says."""

    def split_uncertainty(X, level):
        low, high = interval_of(np.asarray(X), level)
        return make_uncertainty(low, (low + high) / 2, high)

    posterior = SimpleNamespace(n_chains=1, n_draws=n_draws)
    return estimator_of(tree, posterior_=posterior, split_uncertainty=split_uncertainty)


def vertical(*, n_nodes=1):
    """A tree that splits at x0 = 0, and inside of it at x1 = 0."""
    topology = Topology(np.array([[1, -1], [-2, -3]])[:n_nodes] if n_nodes > 1 else [[-1, -2]])
    return Tree.from_standardised(
        topology,
        np.ones((n_nodes, 1)),
        2 * np.eye(2)[:n_nodes, None],
        np.zeros((n_nodes, 1)),
        center=np.zeros(2),
        scale=np.ones(2),
    ).with_value(np.eye(3)[: n_nodes + 1, : n_nodes + 1])


def about_axes(X, level):
    """P(right) of each feature in doubt within a distance of ``level``."""
    return tuple(0.5 + 0.4 * np.tanh(X + side * level) for side in (-1, 1))


def bands(ax):
    return [
        np.concatenate([path.vertices for path in found.get_paths()])
        for found in ax.collections
        if isinstance(found, QuadContourSet) and found.filled
    ]


def test_the_band_is_where_the_interval_holds_a_half():
    tree = vertical()
    fitted = with_band(tree, lambda X, level: [part[:, :1] for part in about_axes(X, level)])
    ax = plots.boundary(fitted, level=0.8)
    (corners,) = bands(ax)
    np.testing.assert_allclose([corners[:, 0].min(), corners[:, 0].max()], [-0.8, 0.8], atol=1e-3)
    np.testing.assert_allclose([corners[:, 1].min(), corners[:, 1].max()], [-2.5, 2.5])
    assert "80% band" in texts(ax)


def test_the_band_ends_where_the_node_is_not_reached():
    ax = plots.boundary(with_band(vertical(n_nodes=2), about_axes), level=0.5)
    _, second = bands(ax)
    np.testing.assert_allclose([second[:, 1].min(), second[:, 1].max()], [-0.5, 0.5], atol=1e-3)
    np.testing.assert_allclose([second[:, 0].min(), second[:, 0].max()], [-2.5, 0], atol=1e-3)


def test_no_band_without_draws_or_where_it_is_not_asked_for():
    tree = vertical(n_nodes=2)
    for ax in (
        plots.boundary(with_band(tree, about_axes, n_draws=1)),
        plots.boundary(with_band(tree, about_axes), band=False),
        plots.boundary(tree),
    ):
        assert bands(ax) == []
        assert ax.get_legend() is None


@pytest.mark.parametrize(("n_draws", "side"), [(100, 300), (400, 150), (100_000, 80)])
def test_many_draws_are_averaged_on_fewer_points(n_draws, side):
    seen = []
    tree = vertical(n_nodes=2)
    fitted = with_band(tree, about_axes, n_draws=n_draws)
    fitted.predict_proba = lambda X: seen.append(len(X)) or tree.predict(X)
    plots.boundary(fitted)
    assert seen == [side**2]


def test_the_band_comes_last_in_the_legend():
    tree = vertical()
    fitted = with_band(tree, lambda X, level: [part[:, :1] for part in about_axes(X, level)])
    ax = plots.boundary(fitted, np.ones((4, 2)), [0, 1, 1, 0])
    said = [text.get_text() for text in ax.get_legend().get_texts()]
    assert said == ["class 0", "class 1", "90% band"]


def test_tree_says_facets_rows_and_classes():
    tree = make_tree(topology=Topology.stump(), n_experts=3, class_names=("no", "yes"))
    said = texts(plots.tree(tree))
    assert any(
        re.fullmatch(r"x\d\n[+-] .* x\d [<>]= .*\n\+ 2 facets\n200 rows", text) for text in said
    )
    assert {"inside", "outside", "no", "yes"} <= set(said)
    assert sum(text.endswith(" rows") for text in said) == 3


@pytest.mark.parametrize(
    ("plane", "says"),
    [
        ([0.0, 2.0, 0.0], "x1 <= -1.0"),
        ([0.0, -2.0, 0.5], "x1\n- 0.25 x2 >= 1.0"),
        ([0.0, 0.0, 0.0], "no feature"),
    ],
)
def test_a_node_of_one_facet_says_its_condition(plane, says):
    tree = make_tree(topology=Topology.stump(), n_features=3)
    weight = np.ones(1)  # splits where the sum is 0
    tree = replace(tree, weight=weight, hyperplane=np.array([plane]), intercept=np.array([2.0]))
    said = texts(plots.tree(tree))
    assert f"{says}\n200 rows" in said
    assert {"yes", "no"} <= set(said)


def fitted_with(tree, sizes, n_draws):
    """An estimator with a posterior of this number of draws."""
    posterior = SimpleNamespace(n_chains=1, n_draws=n_draws)
    return estimator_of(tree, posterior_=posterior, polytope_size=lambda: sizes)


def test_tree_says_the_median_and_the_interval_of_the_facets():
    tree = make_tree(topology=Topology.stump())
    sizes = make_sizes([[3]] * 3 + [[4]] * 3 + [[6]] * 4)
    fitted = fitted_with(tree, sizes, n_draws=10)
    for ax, interval, level in (
        (plots.tree(fitted), "[3, 6]", "90%"),
        (plots.tree(tree, sizes=sizes, level=0.2), "[4, 4]", "20%"),
    ):
        said = texts(ax)
        assert any(text.endswith(f"\nposterior: 4 {interval}\n200 rows") for text in said)
        assert f"conditions: point estimate\nposterior: number of facets [{level} interval]" in said


@pytest.mark.parametrize(("n_draws", "sizes"), [(1, True), (10, False)])
def test_tree_without_a_posterior_counts_its_own_facets(n_draws, sizes):
    tree = make_tree(topology=Topology.stump(), n_experts=3)
    fitted = fitted_with(tree, make_sizes([[4]]), n_draws=n_draws)
    said = texts(plots.tree(fitted, sizes=sizes))
    assert any(text.endswith("\n+ 2 facets\n200 rows") for text in said)
    assert not any("posterior" in text for text in said)


def test_tree_refuses_the_sizes_of_another_tree():
    with pytest.raises(ValueError, match="describes the nodes root, but the tree has root, L, R"):
        plots.tree(make_tree(), sizes=make_sizes([[4]]))


def extents(ax):
    """Boxes of all texts of a picture that are seen, in pixels."""
    drawn(ax)
    return [text.get_window_extent() for text in ax.texts if text.get_text()]


@pytest.mark.parametrize(("depth", "n_classes"), [(1, 2), (3, 3), (5, 8), (6, 0)])
def test_texts_do_not_overlap(depth, n_classes):
    names = [f"a rather long class name {k}" for k in range(n_classes)]
    tree = make_tree(topology=Topology.complete(depth), n_classes=n_classes, class_names=names)
    facets = np.tile([[11], [14]], (1, tree.n_nodes))
    sizes = make_sizes(facets, labels=tree.topology.node_labels)
    boxes = extents(plots.tree(tree, sizes=sizes))
    for place, box in enumerate(boxes):
        assert not box.count_overlaps(boxes[place + 1 :])


def test_short_names_are_written_out_and_long_ones_cut():
    for name in ("virginica", "versicolor", "a longer name"):
        short = make_tree(class_names=(name, name))
        said = texts(plots.tree(short))
        assert sum(re.match(rf"{name}: [0-9.]+ %\n", text) is not None for text in said) == 4
    long = make_tree(topology=Topology.stump(), class_names=("x" * 40, "y" * 40))
    cut = [
        text
        for text in texts(plots.tree(long))
        if re.search("\N{HORIZONTAL ELLIPSIS}: [0-9.]+ %", text)
    ]
    assert len(cut) == 2


def test_line_breaks_in_names_end_no_line():
    names, classes = [f"size\n{k}" for k in range(2)], ("not\nbig", "big")
    said = texts(plots.tree(make_tree(feature_names=names, class_names=classes)))
    assert not any("size\n" in text or "not\n" in text for text in said)
    assert any("size 0" in text for text in said)
    assert any(text.startswith("not big: ") for text in said)


def test_leaves_do_not_overlap_and_parents_lie_between_their_children():
    tree = make_tree(topology=Topology.complete(3), n_classes=0)
    lefts = sorted({round(bar.get_x(), 6) for bar in plots.tree(tree).patches})  # type: ignore[attr-defined]
    assert len(lefts) == 8
    assert min(np.diff(lefts)) >= 0.8


@pytest.mark.parametrize(("n_features", "n_experts"), [(2, 1), (30, 4)])
def test_forty_leaves_are_drawn_compactly_and_legibly(n_experts, n_features):
    children = np.array([[2 * v + 1, 2 * v + 2] for v in range(39)])
    children = np.where(children < 39, children, 38 - children)  # the first levels are complete
    tree = make_tree(
        topology=Topology(children),
        n_experts=n_experts,
        n_features=n_features,
        n_classes=10,
        feature_names=[f"a rather long name {j}" for j in range(n_features)],
    )
    ax = plots.tree(tree)
    width, height = drawn(ax).get_size_inches()
    assert width < 15
    assert height < 20
    # all but the names of the two sides
    words = [text for text in ax.texts if text.get_fontstyle() != "italic"]
    assert len(words) == 39 + 40
    assert min(text.get_fontsize() for text in words) > 5


def test_a_chain_grows_downwards_and_a_bush_to_the_right():
    chain = Topology(np.array([[~0, 1], [~1, 2], [~2, ~3]]))
    for topology, grows in ((chain, "down"), (Topology.complete(5), "right")):
        ax = plots.tree(make_tree(topology=topology))
        x, y = np.array([bar.get_xy() for bar in ax.patches]).T  # type: ignore[attr-defined]
        across = x if grows == "down" else y
        assert len(np.unique(across.round(6))) >= topology.n_leaves


@pytest.mark.parametrize("draw", [plots.boundary, plots.tree])
def test_classes_that_are_numbers_are_called_classes(draw):
    tree = make_tree(class_names=("0", "1"))
    ax = draw(tree, np.ones((2, 2)), [0, 1]) if draw is plots.boundary else draw(tree)
    assert {"class 0", "class 1"} <= set(texts(ax))


@pytest.mark.parametrize(
    "names",
    [
        ("setosa", "versicolor", "virginica"),
        tuple(f"digit {k} as written" for k in range(10)),
        ("confirmed by a follow-up of two years and by a second opinion after that",) * 2,
    ],
)
@pytest.mark.parametrize("regression", [False, True])
def test_the_legend_of_a_map_is_inside_the_figure(names, regression):
    n_classes = 0 if regression else len(names)
    tree = make_tree(n_classes=n_classes, class_names=() if regression else names)
    fitted = with_band(
        tree, lambda X, level: [np.tile(p, (1, 2))[:, :3] for p in about_axes(X, level)]
    )
    X = np.random.default_rng(0).normal(size=(40, 2))
    ax = plots.boundary(fitted, X, np.arange(40) % max(n_classes, 2))
    figure = drawn(ax)
    box, whole = ax.get_legend().get_window_extent(), figure.bbox
    assert box.x0 >= whole.x0
    assert box.x1 <= whole.x1
    assert box.y1 <= whole.y1
    assert len(ax.get_legend().get_texts()) == n_classes + 1


@pytest.mark.parametrize("text", ["worst area <= 2.5", "größe", "WAVE", "$x_1^2$ + 3"])
def test_texts_are_as_wide_as_their_outlines(text):
    """Or a little wider, by the space beside letters."""
    width = TextPath((0, 0), text, size=8).get_extents().width / 72
    assert width < _style.inches(text, 8) < 1.15 * width
