"""Rules describe the tree correctly."""

from dataclasses import replace

import numpy as np
import pytest

from bayestree import export_rules
from bayestree.export.words import Bound
from bayestree.topology import Topology
from bayestree.tree import Tree


def chain(hyperplane, intercept, *, names=("height", "age"), n_experts=1):
    """A tree whose every right child is a leaf, in the units of the data."""
    n_nodes = len(intercept) // n_experts
    children = np.array([[v + 1, ~v] for v in range(n_nodes)])
    children[-1, 0] = ~n_nodes
    d = len(names)
    tree = Tree.from_standardised(
        Topology(children),
        np.ones((n_nodes, n_experts)),
        np.asarray(hyperplane, dtype=float).reshape(n_nodes, n_experts, d),
        np.asarray(intercept, dtype=float).reshape(n_nodes, n_experts),
        center=np.zeros(d),
        scale=np.ones(d),
        feature_names=names,
        class_names=("no", "yes"),
    )
    share = np.linspace(1.0, 0.0, n_nodes + 1)
    return replace(
        tree,
        value=np.stack([share, 1 - share], axis=1),
        leaf_rows=np.arange(n_nodes + 1) + 1.0,
    )


def test_word_for_word():
    """Right of the root: height > 5; then age - 2 height < -1; then height < 1."""
    tree = chain([[1, 0], [4, -2], [-1, 0]], [-5, -2, 1])
    assert export_rules(tree) == (
        "1: IF (1 <= height <= 5) AND (height - 0.5 age <= 0.5) THEN yes (p = 1.00, n = 4)\n"
        "2: IF (height < 1) AND (height - 0.5 age <= 0.5) THEN yes (p = 0.67, n = 3)\n"
        "3: IF (height <= 5) AND (height - 0.5 age > 0.5) THEN no (p = 0.67, n = 2)\n"
        "4: ELSE no (p = 1.00, n = 1)\n"
    )


def test_the_class_of_most_rules_is_the_rest():
    tree = chain([[1, 0], [0, 1], [-1, 0]], [-5, -2, 1])
    tree = replace(tree, value=np.array([[0.0, 1], [0.5, 0.5], [0.25, 0.75], [1, 0]])[[1, 2, 0, 3]])
    assert export_rules(tree, group=True) == (
        "1: IF (1 <= height <= 5) AND (age <= 2) THEN no (p = 1.00, n = 4)\n"
        "2: IF (height > 5) THEN no (p = 0.50, n = 1)\n"
        "3: ELSE yes (p = 0.90, n = 5)\n"
    )


def test_conditions_on_one_feature_are_merged_into_the_strictest():
    tree = chain([[1, 0], [1, 0], [-2, 0]], [-5, -3, 2])
    first = export_rules(tree).splitlines()[0]
    assert first == "1: IF (1 <= height <= 3) THEN yes (p = 1.00, n = 4)"


def test_sums_that_only_look_alike_are_kept_apart():
    tree = chain([[1, 0.30001], [1, 0.30002]], [-5, -3])
    assert export_rules(tree, decimals=3).splitlines()[1].count("height + 0.3 age") == 2


def test_bounds():
    low, high = Bound.of(1.0, above=True, is_open=True), Bound.of(2.0, above=False, is_open=False)
    assert low.both(high) == Bound(1.0, 2.0, True, False)
    closed = Bound.of(1.0, above=True, is_open=False)
    assert low.both(closed).low_open
    assert closed.both(low).low_open
    open_high = Bound.of(2.0, above=False, is_open=True)
    assert high.both(open_high).high_open
    assert open_high.both(high).high_open


def test_polytopes_are_written_as_the_sum_of_their_votes():
    tree = chain([[1, 0], [2, -0.5], [1, 1], [-1, 0]], [-5, -2, 1, 0], n_experts=2)
    tree = replace(tree, weight=np.array([1.0, 0.25, 3.0, 1e-7]))
    assert export_rules(tree) == (
        "# softplus(z) = log(1 + exp(z)); outside(...) is where inside(...) is false.\n"
        "inside(root) where\n"
        "    0.25 softplus(2 height - 0.5 age - 2)\n"
        "  + 1 softplus(height - 5)\n"
        "  <= 0.6931471805599453\n"
        "inside(L) where\n"
        "    3 softplus(height + age + 1)\n"
        "  + 1e-07 softplus(-height + 0)\n"
        "  <= 0.6931471805599453\n"
        "\n"
        "1: IF inside(root) AND inside(L) THEN yes (p = 1.00, n = 3)\n"
        "2: IF inside(root) AND outside(L) THEN no (p = 0.50, n = 2)\n"
        "3: ELSE no (p = 1.00, n = 1)\n"
    )


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_features": 1}, "sums have only their 1 largest terms (max_features)."),
        ({"max_facets": 1}, "polytopes have only 1 of their votes (max_facets)."),
        ({"decimals": 4}, "numbers are rounded to 4 significant digits."),
        ({"max_features": 2, "max_facets": 2}, None),
        ({}, None),
    ],
)
def test_what_is_missing_is_said_first(limits, says):
    tree = chain([[1, 3], [0, 1]], [-5, -2], n_experts=2)
    first = export_rules(tree, **limits).splitlines()[0]
    if says is None:
        assert first.startswith("# softplus")
    else:
        assert first == f"# Not equivalent to the tree: {says}"


def test_votes_left_out_are_counted():
    tree = chain([[1, 3], [0, 1], [1, 1]], [-5, -2, 0], n_experts=3)
    assert "\n  + … 2 more\n  <= 0.69" in export_rules(tree, max_facets=1)
    assert "softplus(3 age + … 1 more - 5)" in export_rules(tree, max_features=1)
    steps = 1e9 * np.array([[1, 3], [0, 1], [1, 1]]), 1e9 * np.array([-5, -2, 0])
    assert "\n  AND … 2 more\n" in export_rules(chain(*steps, n_experts=3), max_facets=1)


def test_linear_leaves_are_written_out():
    tree = replace(
        chain([[1, 0]], [0]), value=np.array([2.0, 3.0]), slope=np.array([[1, 0.5], [0, 0]])
    )
    tree = replace(tree, center=np.array([-4.0, 0.25]))
    assert export_rules(tree) == (
        "1: IF (height <= 0) THEN 3 (n = 2)\n2: ELSE 5.875 + height + 0.5 age (n = 1)\n"
    )


def test_a_leaf_alone():
    tree = replace(chain([[1, 0]], [0]).collapse(np.array([0])), leaf_rows=np.array([1234.5]))
    assert export_rules(tree) == "1: ALWAYS yes (p = 1.00, n = 1,234.5)\n"


def test_refusals():
    tree = chain([[1, 0]], [0])
    with pytest.raises(TypeError, match="a Tree or a fitted estimator"):
        export_rules(3)
    with pytest.raises(ValueError, match="decimals"):
        export_rules(tree, decimals=0)
    with pytest.raises(ValueError, match="group"):
        export_rules(replace(tree, value=np.arange(2.0)), group=True)
