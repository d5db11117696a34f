"""The tree as rules says what the tree does."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bayestree import export_rules
from bayestree.report.rules import Bound
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
        "1: IF (1.00 <= height <= 5.00) AND (height - 0.5 age <= 0.50) THEN yes (p = 1.00, n = 4)\n"
        "2: IF (height < 1.00) AND (height - 0.5 age <= 0.50) THEN yes (p = 0.67, n = 3)\n"
        "3: IF (height <= 5.00) AND (height - 0.5 age > 0.50) THEN no (p = 0.67, n = 2)\n"
        "4: ELSE no (p = 1.00, n = 1)\n"
    )


def test_the_class_of_most_rules_is_the_rest():
    tree = chain([[1, 0], [0, 1], [-1, 0]], [-5, -2, 1])
    tree = replace(tree, value=np.array([[0.0, 1], [0.5, 0.5], [0.25, 0.75], [1, 0]])[[1, 2, 0, 3]])
    assert export_rules(tree, group=True) == (
        "1: IF (1.00 <= height <= 5.00) AND (age <= 2.00) THEN no (p = 1.00, n = 4)\n"
        "2: IF (height > 5.00) THEN no (p = 0.50, n = 1)\n"
        "3: ELSE yes (p = 0.90, n = 5)\n"
    )


def test_conditions_on_one_feature_are_merged_into_the_strictest():
    tree = chain([[1, 0], [1, 0], [-2, 0]], [-5, -3, 2])
    first = export_rules(tree).splitlines()[0]
    assert first == "1: IF (1.00 <= height <= 3.00) THEN yes (p = 1.00, n = 4)"


def test_sums_that_only_look_alike_are_kept_apart():
    tree = chain([[1, 0.30001], [1, 0.30002]], [-5, -3])
    assert export_rules(tree).splitlines()[0].count("height + 0.3 age") == 2


def test_bounds():
    low, high = Bound.of(1.0, above=True, is_open=True), Bound.of(2.0, above=False, is_open=False)
    assert low.both(high) == Bound(1.0, 2.0, True, False)
    closed = Bound.of(1.0, above=True, is_open=False)
    assert low.both(closed).low_open
    assert closed.both(low).low_open
    open_high = Bound.of(2.0, above=False, is_open=True)
    assert high.both(open_high).high_open
    assert open_high.both(high).high_open


def holds(condition, X):
    """Which rows satisfy one printed condition."""
    sign = r"(<=|>=|<|>)"
    two = re.fullmatch(rf"(\S+) {sign} (.+?) {sign} (\S+)", condition)
    if two and not two[1].startswith("x"):
        low, below, text, above, high = two.groups()
        parts = [(text, {"<": ">", "<=": ">="}[below], low), (text, above, high)]
    else:
        parts = [re.fullmatch(rf"(.+) {sign} (\S+)", condition).groups()]
    result = np.ones(len(X), dtype=bool)
    for text, word, bound in parts:
        value = np.zeros(len(X))
        for minus, factor, number in re.findall(r"(- )?(?:\+ )?(?:([\d.e-]+) )?x(\d)", text):
            value += (-1 if minus else 1) * float(factor or 1) * X[:, int(number)]
        compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
        result &= compare[word](value, float(bound))
    return result


@pytest.mark.parametrize("n_features", [1, 2, 3])
def test_the_printed_rules_are_the_tree(n_features):
    rng = np.random.default_rng(n_features)
    topology = Topology.complete(4)
    plane = rng.normal(size=(topology.n_nodes, 1, 3))
    for normal in plane[:, 0]:
        normal[rng.permutation(3)[n_features:]] = 0.0
    tree = Tree.from_standardised(
        topology,
        np.ones((topology.n_nodes, 1)),
        plane,
        rng.normal(size=(topology.n_nodes, 1)),
        center=rng.normal(size=3),
        scale=rng.gamma(2.0, size=3),
    )
    X = rng.normal(size=(400, 3)) * 2
    values = rng.normal(size=tree.n_leaves).round(3)
    tree = replace(tree, value=values)
    found = np.full(len(X), np.nan)
    free = np.ones(len(X), dtype=bool)
    for line in export_rules(tree, decimals=13).splitlines():
        condition, value = re.fullmatch(
            r"\d+: (?:IF (.+) THEN|ELSE) (\S+) \(n = 0\)", line
        ).groups()
        takes = free.copy()
        for part in condition[1:-1].split(") AND (") if condition else []:
            takes &= holds(part, X)
        found[takes] = float(value)
        free &= ~takes
    np.testing.assert_allclose(found, tree.predict(X))


def test_polytopes_are_conjunctions_and_their_negations():
    tree = chain([[1, 0], [0, 1]], [-5, -2], n_experts=2)
    inside, outside = export_rules(tree).splitlines()
    limit = np.log(np.expm1(np.log(2)))  # of one expert alone, 0
    assert limit == pytest.approx(0.0)
    assert inside == ("1: IF ((age <= 2.00) AND (height <= 5.00)) THEN yes (p = 1.00, n = 2)")
    assert outside == "2: ELSE no (p = 1.00, n = 1)"
    two = chain([[1, 0], [0, 1], [1, 1], [1, -1]], [-5, -2, 1, 1], n_experts=2)
    assert "IF ((age <= 2.00) AND (height <= 5.00)) AND NOT (" in export_rules(two)
    assert "… 1 more)" in export_rules(two, max_facets=1)


def test_a_leaf_alone():
    tree = replace(chain([[1, 0]], [0]).collapse(np.array([0])), leaf_rows=np.array([1234.5]))
    assert export_rules(tree) == "1: ALWAYS yes (p = 1.00, n = 1,234.5)\n"


def test_refusals():
    tree = chain([[1, 0]], [0])
    with pytest.raises(TypeError, match="linear splits"):
        export_rules(3)
    with pytest.raises(ValueError, match="decimals"):
        export_rules(tree, decimals=0)
    with pytest.raises(ValueError, match="group"):
        export_rules(replace(tree, value=np.arange(2.0)), group=True)
