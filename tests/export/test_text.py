"""Text describes the tree correctly."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier, export_dot, export_rules, export_text
from bayestree._utils.wording import Indicator
from bayestree.inference import Map, Svi
from bayestree.topology import Topology
from bayestree.tree import Tree


def oblique(names=("height", "age", "year")):
    """One split: 2 height - 0.5 age >= 1 goes left; year plays no part."""
    tree = Tree.from_standardised(
        Topology.stump(),
        np.ones((1, 1)),
        np.array([[[-2.0, 0.5, 0.0]]]) * [1.0, 10.0, 5.0],
        np.array([[1.0 + -2.0 * 1.5 + 0.5 * 40.0]]),
        center=np.array([1.5, 40.0, 2000.0]),
        scale=np.array([1.0, 10.0, 5.0]),
        feature_names=names,
        class_names=("no", "yes"),
    )
    return replace(
        tree, value=np.array([[0.25, 0.75], [1.0, 0.0]]), leaf_rows=np.array([8.0, 1234.5])
    )


def committee(n_experts=3, n_features=4, seed=0):
    rng = np.random.default_rng(seed)
    tree = Tree.from_standardised(
        Topology.complete(2),
        rng.gamma(2.0, size=(3, n_experts)),
        rng.normal(size=(3, n_experts, n_features)),
        rng.normal(size=(3, n_experts)),
        center=rng.normal(size=n_features),
        scale=rng.gamma(2.0, size=n_features),
    )
    return replace(tree, value=np.arange(4.0), leaf_rows=np.array([1.0, 2.0, 3.0, 4.0]))


def test_one_facet_word_for_word():
    assert export_text(oblique()) == (
        "1 node, 2 leaves, depth 1, 1,242.5 rows\n"
        "L is left, R is right.\n"
        "\n"
        "root: 1,242.5 rows\n"
        "│    left if  age - 4 height <= -2.0\n"
        "├─ L: leaf, 8 rows, yes: 75.0 %, no: 25.0 %\n"
        "└─ R: leaf, 1,234.5 rows, no: 100.0 %\n"
    )


def test_a_single_feature_reads_as_a_threshold():
    tree = oblique()
    tree = replace(
        tree, hyperplane=np.array([[-3.0, 0.0, 0.0]]), intercept=np.array([3.0 * 1.7345])
    )
    assert "left if  height >= 1.73\n" in export_text(tree)
    assert "left if  height >= 1.7345\n" in export_text(tree, decimals=5)


def test_a_threshold_is_as_fine_as_the_spread_of_its_feature():
    tree = replace(
        oblique(), hyperplane=np.array([[0.0, 0.0, 0.1]]), intercept=np.array([-201.234])
    )
    assert "left if  year <= 2012.34\n" in export_text(tree)


def test_a_single_facet_is_the_split():
    """The printed inequality, evaluated, routes every row as the tree does."""
    tree = committee(n_experts=1)
    text = export_text(tree, max_features=4, decimals=12)
    rows = np.random.default_rng(1).normal(size=(200, 4)) * 3
    printed = re.findall(r"left if  (.+?) (<=|>=) (\S+)", text)
    order = [0, 1, 2]  # the tree is printed left branches first, as its nodes are numbered
    assert len(printed) == 3
    for node, (side, sign, bound) in zip(order, printed, strict=True):
        value = np.zeros(len(rows))
        for sign_, factor, name in re.findall(r"([+-] )?(?:(\S+) )?x(\d)", side):
            weight = float(factor or 1) * (-1 if sign_ == "- " else 1)
            value += weight * rows[:, int(name)]
        left = value <= float(bound) if sign == "<=" else value >= float(bound)
        np.testing.assert_array_equal(left, ~tree.goes_right(node, rows))


def test_of_several_facets_each_is_necessary():
    tree = committee(n_experts=3)
    text = export_text(tree, decimals=12)
    assert (
        text.count("left if the votes of 3 facets add up to at most log 2; each line below is") == 3
    )
    assert text.count("<=") + text.count(">=") == 9
    assert "root: 10 rows, 3 facets" in text
    assert "L: 3 rows, 3 facets" in text
    assert "RR: leaf, 4 rows, mean 3" in text


def test_terms_are_ranked_per_standard_deviation():
    text = export_text(oblique(), max_features=1)
    assert "left if  age + … 1 more <= -2.0" in text  # year has no weight and is not counted


def test_facets_beyond_the_limit_are_counted():
    text = export_text(committee(n_experts=5), max_facets=2)
    assert text.count("… 3 more, farther out") == 3


def test_the_nearest_facet_comes_first():
    tree = committee(n_experts=2)
    tree = replace(tree, intercept=np.tile([-50.0, 0.0], 3))
    order = export_text(tree)
    tree = replace(
        tree,
        intercept=np.tile([0.0, -50.0], 3),
        hyperplane=tree.hyperplane.reshape(3, 2, 4)[:, ::-1].reshape(6, 4),
        weight=tree.weight.reshape(3, 2)[:, ::-1].reshape(6),
    )
    assert export_text(tree) == order


def test_an_expert_without_a_hyperplane():
    flat = replace(oblique(), hyperplane=np.zeros((1, 3)), intercept=np.array([-1.0]))
    assert "left if  always" in export_text(flat)
    assert "left if  never" in export_text(replace(flat, intercept=np.array([1.0])))


def test_names_by_default():
    text = export_text(replace(oblique(names=()), class_names=()))
    assert "x1 - 4 x0" in text
    assert "class 1: 75.0 %" in text


@pytest.mark.parametrize("label", ["1", "2.0", "-1", "1e3"])
def test_classes_that_are_numbers_are_called_classes(label):
    tree = replace(oblique(), class_names=("no", label))
    assert f"8 rows, class {label}: 75.0 %, no: 25.0 %" in export_text(tree)


def test_an_estimator_with_draws_says_which_numbers_it_shows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    note = "Its numbers are point estimates. polytope_size() and "
    quick = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "random_state": 0}
    svi, by_map = Svi(epochs=2, n_draws=3), Map(epochs=2, steepness=None)
    drawn = ConvexPolytopeTreeClassifier(inference=svi, sparsity=None, **quick)
    drawn.fit(X, y)
    for export in (export_text, export_rules, export_dot):
        assert export(drawn).count(note) == 1
        assert note not in export(drawn.tree_)
    sparse = drawn.set_params(sparsity="auto").fit(X, y)
    found = sparse.sparsity_path().coefficients
    assert f"summary of the posterior: {found[-1]} coeff" in export_text(sparse)
    point = ConvexPolytopeTreeClassifier(inference=by_map, **quick).fit(X, y)
    assert note not in export_text(point)


def test_a_long_equation_goes_on_in_lines_that_can_be_read():
    """Columns count from 0 unless the rounding of their slope would shift the prediction."""
    names = ("height", "age", "year", *(Indicator(f"kind={k}") for k in "abcdefgh"))
    slope = np.array([[-3.21, 0.123, 1.234, *(10.0 + k for k in range(8))]])
    center = np.array([1.5, 40.0, 2000.0, *np.zeros(8)])
    leaf = Tree.from_standardised(
        Topology.leaf(),
        np.empty((0, 1)),
        np.empty((0, 1, 11)),
        np.empty((0, 1)),
        center=center,
        scale=np.array([1.0, 10.0, 5.0, *np.ones(8)]),
        feature_names=names,
    )
    tree = replace(leaf, value=np.array([100.0]), leaf_rows=np.array([9.0]), slope=slope)
    text = export_text(tree)
    assert max(map(len, text.splitlines())) <= 100
    assert "is 1 where it holds, and 0 elsewhere" in text
    *_, equation = " ".join(text.split()).partition(" mean = ")
    # -3.21 * 1.5 and 0.123 * 40 belong to the constant
    assert equation.startswith("100 + 17 [kind=h]")
    assert "(year - 2000)" in equation
    assert {"- 3.21 height", "+ 0.123 age"} <= set(re.findall(r"[+-] \S+ \w+", equation))
    assert equation.count("[kind=") == 8
    units = oblique(("height [m]", "age [years]", "year"))
    assert "is 1 where" not in export_text(units)


def test_many_classes():
    tree = replace(
        oblique(), value=np.full((2, 26), 1 / 26), class_names=tuple("abcdefghijklmnopqrstuvwxyz")
    )
    assert "a: 3.8 %, b: 3.8 %, … 24 more" in export_text(tree, max_features=2)


def test_a_tree_without_a_split():
    leaf = Tree.from_standardised(
        Topology.leaf(),
        np.empty((0, 1)),
        np.empty((0, 1, 2)),
        np.empty((0, 1)),
        center=np.zeros(2),
        scale=np.ones(2),
    )
    text = export_text(replace(leaf, value=np.array([2.5]), leaf_rows=np.array([7.0])))
    assert text == "0 nodes, 1 leaf, depth 0, 7 rows\n\nroot: leaf, 7 rows, mean 2.5\n"


def test_bad_input():
    with pytest.raises(ValueError, match="max_features must be 1 or more, got 0"):
        export_text(oblique(), max_features=0)
    with pytest.raises(ValueError, match="decimals must be 1 or more, got 0"):
        export_text(oblique(), decimals=0)
    with pytest.raises(ValueError, match="max_facets must be 1 or more, got 0"):
        export_text(oblique(), max_facets=0)
    with pytest.raises(TypeError, match="tree must be a Tree or a fitted estimator"):
        export_text(3)


def test_line_breaks_in_names_end_no_line():
    tree = replace(oblique(("height\nin m", "age", "year")), class_names=("a\r\nb", "yes"))
    clean = replace(oblique(("height in m", "age", "year")), class_names=("a b", "yes"))
    assert export_text(tree) == export_text(clean)
    assert export_rules(tree) == export_rules(clean)
    assert export_dot(tree) == export_dot(clean)


def test_the_rule_of_a_polytope_is_true():
    """A row that violates a facet goes right; one that satisfies all of them may go either way."""
    tree = committee(n_experts=3)
    rows = np.random.default_rng(0).normal(scale=2.0, size=(20_000, 4)) * tree.scale + tree.center
    right = tree.goes_right(0, rows)
    experts = tree.experts(0)
    inside = (rows @ tree.hyperplane[experts].T <= tree.facet_limit[experts]).all(axis=1)
    assert right[~inside].all(), "necessary"
    assert 0 < right[inside].mean() < 1, "not sufficient"
