import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from bayestree import export_text, plots
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


def tied(n_features):
    first = nn.Linear(n_features, n_features)
    again = nn.Linear(n_features, n_features)
    again.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), again, nn.Linear(n_features, 1))


def test_tied_parameters_stay_tied():
    tree, split, point = random_tree(Topology.stump(), 0, tied)
    assert "network.2.weight" not in point
    X = rows_for(tree, 0)
    assert np.array_equal(tree.goes_right(0, X), sides(tree, split, point, X)[:, 0])


def test_repr_and_errors_are_those_of_a_tree():
    tree, _, _ = random_tree(Topology.complete(2), 0)
    assert repr(tree) == "NetworkTree(n_leaves=4, depth=2, n_features=3)"
    with pytest.raises(ValueError, match="value must have 4 rows, got 3"):
        tree.with_value(np.zeros(3))


EXPECTED_TEXT = """\
2 nodes, 3 leaves, depth 2, 10 rows
L is left, R is right.

root: 10 rows, network
├─ L: leaf, 4 rows, class 1: 75.0 %, class 0: 25.0 %
└─ R: 6 rows, network
   ├─ RL: leaf, 1 row, class 0: 100.0 %
   └─ RR: leaf, 5 rows, class 0: 60.0 %, class 1: 40.0 %
"""


def planted():
    """Thresholds 0 at the root and 10 below its right side, on one feature."""
    names = {"feature_names": (), "class_names": ()}
    point = {"network.weight": np.ones((2, 1, 1)), "network.bias": np.array([[0.0], [-10.0]])}
    tree = Network(linear).tree(
        Topology([[~0, 1], [~1, ~2]]), point, {"center": np.zeros(1), "scale": np.ones(1), **names}
    )
    X = np.array([-1, -2, -3, -4, 5, 11, 12, 13, 14, 15.0])[:, None]
    return tree.fill(X, np.array([0, 1, 1, 1, 0, 1, 1, 0, 0, 0]), np.ones(10), 2)


def test_text_shows_nodes_and_leaves_and_what_the_splits_are():
    assert export_text(planted()) == EXPECTED_TEXT
    means = planted().with_value(np.array([0.5, 1.0, 2.0]))
    assert "L: leaf, 4 rows, mean 0.5\n" in export_text(means)


def test_picture_names_the_split_and_the_sides():
    said = [text.get_text() for text in plots.tree(planted()).texts]
    assert {"network\n10 rows", "network\n6 rows", "left", "right"} <= set(said)


def test_borders_are_drawn_and_facets_refused():
    point = {"network.weight": np.array([[[1.0, 0.0]]]), "network.bias": np.array([[-0.5]])}
    units = {"center": np.zeros(2), "scale": np.ones(2), "feature_names": (), "class_names": ()}
    tree = Network(linear).tree(Topology.stump(), point, units)
    tree = tree.with_value(np.array([[0.2, 0.8], [0.9, 0.1]]))
    ax = plots.boundary(tree, resolution=40)
    border = np.concatenate([path.vertices for c in ax.collections for path in c.get_paths()])
    np.testing.assert_allclose(border[:, 0], 0.5, atol=0.01)
    with pytest.raises(TypeError, match="of the kind 'network', which has no facets"):
        plots.facet_image(tree, (1, 2))


def test_scores_are_softplus_of_the_log_odds():
    tree, _, _ = random_tree(Topology.stump(), 0)
    X = rows_for(tree, 0)
    np.testing.assert_allclose(np.expm1(tree.score(0, X)), np.exp(tree.log_odds(0, X)))


def test_arrays_hold_all_but_topology_and_names():
    tree, split, _ = random_tree(Topology.complete(2), 0)
    again = split.restored(tree.topology, tree.arrays(), {"feature_names": (), "class_names": ()})
    X = rows_for(tree, 0)
    assert np.array_equal(again.predict(X), tree.predict(X))
    assert again.parameters.keys() == tree.parameters.keys()
