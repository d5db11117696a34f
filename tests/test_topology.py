import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayestree.topology import JoinedTopology, Topology
from tests.strategies import path_of, topologies


def follow(topology, label):
    """The child at the end of a path written as in the labels."""
    at = 0 if topology.n_nodes else ~0
    for letter in "" if label == "root" else label:
        at = topology.children[at, "LR".index(letter)]
    return at


def length(label):
    return 0 if label == "root" else len(label)


@given(topologies())
def test_labels_lead_from_the_root_to_the_node_or_leaf(topology):
    assert [follow(topology, label) for label in topology.node_labels] == list(
        range(topology.n_nodes)
    )
    assert [~follow(topology, label) for label in topology.leaf_labels] == list(
        range(topology.n_leaves)
    )
    assert topology.n_leaves == topology.n_nodes + 1


@given(topologies())
def test_depths_are_lengths_of_paths(topology):
    assert topology.node_depth.tolist() == [length(label) for label in topology.node_labels]
    assert topology.leaf_depth.tolist() == [length(label) for label in topology.leaf_labels]
    assert topology.depth == max(length(label) for label in topology.leaf_labels)


@given(topologies())
def test_parents_are_the_nodes_whose_child_one_is(topology):
    for parents, name in (
        (topology.node_parent, lambda number: number),
        (topology.leaf_parent, lambda number: ~number),
    ):
        for number, parent in enumerate(parents):
            owners = [v for v, pair in enumerate(topology.children) if name(number) in pair]
            assert owners == ([] if parent == -1 else [parent])
            assert parent < number or name(number) < 0


@given(topologies(max_nodes=8))
def test_turns_mark_exactly_the_branches_on_the_path_to_each_leaf(topology):
    expected = np.zeros((2, topology.n_nodes, topology.n_leaves), dtype=bool)
    for decisions in itertools.product((0, 1), repeat=topology.n_nodes):
        nodes, leaf = path_of(topology, decisions)
        for node in nodes:
            expected[decisions[node], node, leaf] = True
    assert np.array_equal(topology.turns, expected)


@given(topologies(min_nodes=1))
def test_subtree_leaves_have_paths_that_start_with_that_of_the_node(topology):
    for node, label in enumerate(topology.node_labels):
        prefix = "" if label == "root" else label
        below = [i for i, leaf in enumerate(topology.leaf_labels) if leaf.startswith(prefix)]
        assert topology.subtree_leaves(node).tolist() == below


@given(st.data(), topologies())
def test_collapse_routes_as_the_tree_whose_bypassed_nodes_always_turn_to_their_side(data, topology):
    n_nodes = topology.n_nodes
    bypass = np.array(
        data.draw(st.lists(st.integers(-1, 1), min_size=n_nodes, max_size=n_nodes)), dtype=int
    )
    decisions = np.array(
        data.draw(st.lists(st.integers(0, 1), min_size=n_nodes, max_size=n_nodes)), dtype=int
    )
    smaller, nodes, leaves = topology.collapse(bypass)
    passed, leaf = path_of(topology, np.where(bypass >= 0, bypass, decisions))
    new_passed, new_leaf = path_of(smaller, decisions[nodes])
    assert leaves[new_leaf] == leaf
    assert nodes[new_passed].tolist() == [v for v in passed if bypass[v] < 0]


@given(topologies())
def test_collapse_of_nothing_keeps_every_path(topology):
    same, nodes, leaves = topology.collapse(np.full(topology.n_nodes, -1))
    assert [topology.node_labels[v] for v in nodes] == list(same.node_labels)
    assert [topology.leaf_labels[i] for i in leaves] == list(same.leaf_labels)


@given(st.data(), topologies(min_nodes=1))
def test_any_one_child_replaced_is_rejected(data, topology):
    children = topology.children.copy()
    node = data.draw(st.integers(0, topology.n_nodes - 1))
    side = data.draw(st.integers(0, 1))
    other = data.draw(
        st.integers(-topology.n_leaves - 2, topology.n_nodes + 2).filter(
            lambda child: child != children[node, side]
        )
    )
    children[node, side] = other
    with pytest.raises(ValueError, match="children must"):
        Topology(children)


def test_children_before_their_parents_are_rejected():
    # Node 2 holds node 1: a tree, but numbered child first.
    with pytest.raises(ValueError, match="numbered after their parents"):
        Topology(np.array([[~0, 2], [~1, ~2], [1, ~3]]))


def test_a_cycle_beside_the_root_is_rejected():
    with pytest.raises(ValueError, match="children must"):
        Topology(np.array([[~0, ~1], [2, ~2], [1, ~3]]))


@pytest.mark.parametrize("depth", range(5))
def test_complete_tree_has_every_path_of_its_depth_in_order(depth):
    topology = Topology.complete(depth)
    paths = ["".join(turns) or "root" for turns in itertools.product("LR", repeat=depth)]
    assert list(topology.leaf_labels) == paths


def test_stump_and_leaf():
    assert Topology.stump().children.tolist() == [[~0, ~1]]
    assert (Topology.leaf().n_nodes, Topology.leaf().n_leaves, Topology.leaf().depth) == (0, 1, 0)
    assert Topology.leaf().leaf_labels == ("root",)
    assert Topology.leaf().leaf_parent.tolist() == [-1]


def test_negative_depth_and_wrong_bypass_are_rejected():
    with pytest.raises(ValueError, match="depth must be 0 or more, got -1"):
        Topology.complete(-1)
    with pytest.raises(ValueError, match=r"bypass must have shape \(1,\)"):
        Topology.stump().collapse([0, 1])


@given(topologies(), topologies())
def test_equal_children_and_nothing_else_make_equal_trees(one, other):
    assert one == Topology(one.children.tolist())
    assert hash(one) == hash(Topology(one.children.tolist()))
    assert (one == other) == (one.children.tolist() == other.children.tolist())
    assert one != one.children.tolist()


def test_a_topology_does_not_change_with_the_array_it_was_made_of():
    children = np.array([[~0, ~1]])
    topology = Topology(children)
    children[0, 0] = 5
    assert topology == Topology.stump()
    with pytest.raises(ValueError, match="read-only"):
        topology.children[0, 0] = 5


@given(topologies())
def test_sums_and_leaves_below_a_node_are_those_of_the_table_of_turns(topology):
    below = topology.turns.any(axis=0)
    values = np.arange(1.0, 2 * topology.n_leaves + 1).reshape(-1, 2)
    np.testing.assert_allclose(topology.sum_below(values), below @ values)
    np.testing.assert_allclose(topology.sum_below(values[:, 0]), below @ values[:, 0])
    for node in range(topology.n_nodes):
        assert topology.subtree_leaves(node).tolist() == np.flatnonzero(below[node]).tolist()


@given(topologies())
def test_leaves_from_left_to_right_are_in_the_order_of_their_labels(topology):
    place, cut = topology.left_to_right
    order = np.argsort(np.array([label.replace("root", "") for label in topology.leaf_labels]))
    assert np.array_equal(place[order], np.arange(topology.n_leaves))
    for node in range(topology.n_nodes):
        assert np.array_equal(
            topology.turns[1, node], topology.turns[:, node].any(0) & (place >= cut[node])
        )


@given(st.lists(topologies(min_nodes=1, max_nodes=5), min_size=1, max_size=4))
def test_joined_trees_are_numbered_one_after_the_other(trees):
    joined = JoinedTopology(tuple(trees))
    assert joined.n_nodes == sum(tree.n_nodes for tree in trees)
    assert joined.n_leaves == sum(tree.n_leaves for tree in trees)
    nodes, leaves = range(joined.n_nodes), range(joined.n_leaves)
    assert [i for own in joined.nodes for i in nodes[own]] == [*nodes]
    assert [i for own in joined.leaves for i in leaves[own]] == [*leaves]
    parts = zip(trees, joined.nodes, joined.leaves, joined.roots, strict=True)
    for tree, own, below, root in parts:
        assert root == own.start
        assert len(nodes[own]) == tree.n_nodes
        assert len(leaves[below]) == tree.n_leaves
        children = joined.children[own]
        split = children < joined.n_nodes
        assert np.array_equal(split, tree.children >= 0)
        assert np.array_equal(children[split] - own.start, tree.children[split])
        first_leaf = joined.n_nodes + below.start
        assert np.array_equal(children[~split] - first_leaf, ~tree.children[~split])


def test_joined_trees_are_compared_by_their_trees():
    one, same, other = (
        JoinedTopology(trees)
        for trees in (
            (Topology.stump(), Topology.complete(2)),
            (Topology.stump(), Topology.complete(2)),
            (Topology.complete(2), Topology.stump()),
        )
    )
    assert one == same != other
    assert hash(one) == hash(same)


@pytest.mark.parametrize("trees", [(), (Topology.leaf(),), (Topology.stump(), Topology.leaf())])
def test_joined_trees_have_a_node_each(trees):
    with pytest.raises(ValueError, match="one or more trees, each with a node"):
        JoinedTopology(trees)
