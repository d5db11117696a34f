"""The tree as DOT: what Graphviz draws is the tree."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bayestree import export_dot
from bayestree.topology import Topology
from tests.export.test_text import committee, oblique
from tests.fitted_cases import network_tree, trained
from tests.test_tree import random_tree

EDGE = re.compile(r'(\w+) -> (\w+) \[label="(\w+)", penwidth=([\d.]+)\]')


def edges(text):
    return [match.groups() for match in EDGE.finditer(text)]


def test_one_split_word_for_word():
    assert export_dot(oblique()) == (
        "digraph tree {\n"
        '  graph [fontname="Helvetica"]\n'
        '  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="Helvetica"]\n'
        '  edge [fontname="Helvetica"]\n'
        '  n0 [label="age - 4 height <= -2.0\\n1,242.5 rows"]\n'
        '  leaf0 [label="yes: 75.0 %, no: 25.0 %\\n8 rows", fillcolor="#f7e1af"]\n'
        '  leaf1 [label="no: 100.0 %\\n1,234.5 rows", fillcolor="#73b1d5"]\n'
        '  n0 -> leaf0 [label="yes", penwidth=1.03]\n'
        '  n0 -> leaf1 [label="no", penwidth=4.97]\n'
        "}\n"
    )


def test_the_branches_are_those_of_the_tree():
    tree, _ = random_tree(Topology.complete(3), 0, n_experts=1)
    found = {(above, side): below for above, below, side, _ in edges(export_dot(tree))}
    names = [f"n{v}" for v in range(7)], [f"leaf{leaf}" for leaf in range(8)]
    for node, pair in enumerate(tree.topology.children.tolist()):
        for side, child in zip(("yes", "no"), pair, strict=True):
            below = names[0][child] if child >= 0 else names[1][~child]
            assert found[f"n{node}", side] == below


def test_polytopes_have_an_inside_and_count_what_they_hide():
    text = export_dot(committee(n_experts=5), max_facets=2)
    assert {side for _, _, side, _ in edges(text)} == {"inside", "outside"}
    assert text.count("… 3 more facets") == 3


def test_names_with_quotes_and_backslashes_stay_names():
    tree = oblique(names=('the "height"', "a\\n", "year\n2"))
    label = next(line for line in export_dot(tree).splitlines() if line.startswith("  n0 [label"))
    assert label.endswith('label="a\\\\n - 4 the \\"height\\" <= -2.0\\n1,242.5 rows"]')


def test_leaves_of_numbers_are_the_deeper_the_higher():
    tree = replace(committee(), value=np.array([0.0, 1.0, 3.0, 3.0]))
    fills = re.findall(r'leaf\d .*fillcolor="#(..)', export_dot(tree))
    reds = [int(fill, 16) for fill in fills]
    assert reds[0] > reds[1] > reds[2] == reds[3]


def test_a_forest_is_one_graph_of_trees():
    clf = trained("classes", "forest")
    text = export_dot(clf)
    assert [text.count(f'label="tree {t}"') for t in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert len(edges(text)) == sum(2 * tree.tree_.n_nodes for tree in clf.estimators_)
    assert text.count("{") == text.count("}") == 4


def test_networks_and_a_tree_without_a_split():
    text = export_dot(network_tree())
    assert 'n0 [label="network\\n8 rows"]' in text
    assert [side for _, _, side, _ in edges(text)] == ["left", "right"]
    leaf = replace(committee(), topology=Topology.leaf(), value=np.ones(1), leaf_rows=np.ones(1))
    assert 'leaf0 [label="mean 1\\n1 row"' in export_dot(leaf)


def test_bad_input():
    with pytest.raises(ValueError, match="max_facets must be 1 or more, got 0"):
        export_dot(oblique(), max_facets=0)
    with pytest.raises(TypeError, match="tree must be a Tree or a fitted estimator"):
        export_dot(3)
