import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from bayestree.models import Network, Oblique
from bayestree.topology import Topology
from tests.strategies import path_of, seeds, topologies


def linear(n_features):
    return nn.Linear(n_features, 1)


def two_layers(n_features):
    return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh(), nn.Linear(3, 1))


def frame(n_features, generator):
    return {
        "center": generator.normal(5, 2, n_features),
        "scale": generator.uniform(0.1, 10, n_features),
        "feature_names": (),
        "class_names": (),
    }


def random_tree(topology, seed, build=two_layers, n_features=3):
    """A tree with values, and the sites of its networks."""
    generator = np.random.default_rng(seed)
    split = Network(build)
    with torch.random.fork_rng():
        torch.manual_seed(seed % 2**31)
        like = torch.zeros(1, n_features, dtype=torch.float64)
        sites = split.start(topology.n_nodes, n_features, like)
    point = {name: 4 * value.numpy() for name, value in sites.items()}
    tree = split.tree(topology, point, frame(n_features, generator))
    return tree.with_value(generator.normal(size=topology.n_leaves)), split, point


def rows_for(tree, seed, n=40):
    return tree.center + tree.scale * np.random.default_rng(seed).normal(size=(n, tree.n_features))


def sides(tree, split, point, X):
    """Side of every row at every node, all nodes evaluated: shape (n, V)."""
    sites = {name: torch.as_tensor(value) for name, value in point.items()}
    return (split.log_odds(sites, torch.as_tensor((X - tree.center) / tree.scale)) > 0).numpy()


@settings(max_examples=30, deadline=None)
@given(topologies(), seeds())
def test_rows_take_the_path_of_their_sides(topology, seed):
    tree, split, point = random_tree(topology, seed)
    X = rows_for(tree, seed)
    paths = [path_of(topology, turns) for turns in sides(tree, split, point, X)]
    leaves = np.array([leaf for _, leaf in paths])
    assert np.array_equal(tree.apply(X), leaves)
    assert np.array_equal(tree.predict(X), tree.value[leaves])
    path = tree.decision_path(X).toarray()
    for row, (nodes, leaf) in zip(path, paths, strict=True):
        assert np.flatnonzero(row).tolist() == [*sorted(nodes), topology.n_nodes + leaf]


@settings(max_examples=20, deadline=None)
@given(topologies(), seeds())
def test_pruned_trees_send_the_rows_to_the_same_values(topology, seed):
    tree, _, _ = random_tree(topology, seed)
    X = rows_for(tree, seed)
    pruned = tree.prune(X)
    assert np.array_equal(pruned.predict(X), tree.predict(X))
    assert pruned.n_leaves == len(set(tree.apply(X)))
    assert all(len(value) == pruned.n_nodes for value in pruned.parameters.values())


def test_one_linear_layer_is_the_oblique_tree():
    topology = Topology.complete(3)
    tree, _, point = random_tree(topology, 0, linear)
    same = {"hyperplane": point["network.weight"], "intercept": point["network.bias"]}
    names = {"feature_names": (), "class_names": ()}
    oblique = Oblique().tree(topology, same, {"center": tree.center, "scale": tree.scale, **names})
    X = rows_for(tree, 1, n=500)
    assert np.array_equal(tree.apply(X), oblique.apply(X))
    y = np.arange(500) % 3
    filled, expected = (t.fill(X, y, np.ones(500), 3) for t in (tree, oblique))
    np.testing.assert_array_equal(filled.value, expected.value)
    np.testing.assert_array_equal(filled.leaf_rows, expected.leaf_rows)


def test_a_node_sees_only_the_rows_that_reach_it():
    tree, _, _ = random_tree(Topology.complete(3), 3)
    X = rows_for(tree, 3, n=100)
    seen = {node: len(rows) for node, rows, _ in tree.walk(X)}
    path = tree.decision_path(X).toarray()[:, : tree.n_nodes].sum(0)
    assert seen == {node: count for node, count in enumerate(path) if count}
    assert sum(seen.values()) == 300  # three splits a row, of seven


def test_single_precision_is_kept_and_the_generator_left_alone():
    tree, split, point = random_tree(Topology.stump(), 0)
    small = split.tree(
        tree.topology,
        {name: value.astype(np.float32) for name, value in point.items()},
        frame(3, np.random.default_rng(0)),
    )
    state = torch.random.get_rng_state()
    odds = small.log_odds(0, rows_for(tree, 0))
    assert next(small.modules[0].parameters()).dtype == torch.float32
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_allclose(odds, tree.log_odds(0, rows_for(tree, 0)), rtol=1e-4, atol=1e-4)


def test_repr_and_errors_are_those_of_a_tree():
    tree, _, _ = random_tree(Topology.complete(2), 0)
    assert repr(tree) == "NetworkTree(n_leaves=4, depth=2, n_features=3)"
    with pytest.raises(ValueError, match="value must have 4 rows, got 3"):
        tree.with_value(np.zeros(3))
