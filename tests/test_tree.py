import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree._utils.arrays import softplus
from bayestree.topology import Topology
from bayestree.tree import LOG2, Tree, facet_threshold
from tests.strategies import path_of, seeds, topologies


def random_tree(topology, seed, *, n_experts=4, n_features=3, spread=1.0, log_weight=-1.5):
    """Splits near the origin on standardised features; centers and scales are not trivial."""
    generator = np.random.default_rng(seed)
    shape = (topology.n_nodes, n_experts)
    center, scale = generator.normal(5, 2, n_features), generator.uniform(0.1, 10, n_features)
    standard = (
        np.exp(log_weight + spread * generator.normal(size=shape)),
        2 * generator.normal(size=(*shape, n_features)),
        generator.normal(size=shape),
    )
    tree = Tree.from_standardised(topology, *standard, center=center, scale=scale)
    return tree.with_value(generator.normal(size=topology.n_leaves)), standard


def rows_for(tree, seed, n=60):
    return tree.center + tree.scale * np.random.default_rng(seed).normal(size=(n, tree.n_features))


def naive_sides(tree, row):
    """Side of one row at every node, by the full sum of eq. 2 in long double."""
    sides = []
    for node in range(tree.n_nodes):
        own = slice(tree.expert_start[node], tree.expert_start[node + 1])
        activation = tree.hyperplane[own] @ row + tree.intercept[own]
        votes = np.logaddexp(np.longdouble(0), activation.astype(np.longdouble))
        sides.append(int((votes * tree.weight[own]).sum() > LOG2))
    return sides


@settings(max_examples=200)
@given(st.data(), seeds(), st.integers(1, 6))
def test_shortcut_takes_the_side_of_the_exact_score(data, seed, n_experts):
    generator = np.random.default_rng(seed)
    log_weight = data.draw(st.lists(st.floats(-40, 300), min_size=n_experts, max_size=n_experts))
    spread = data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    activation_shift = data.draw(st.sampled_from([0.0, -1.0, -30.0, -300.0]))
    tree = Tree.from_standardised(
        Topology.stump(),
        np.exp([log_weight]),
        spread * generator.normal(size=(1, n_experts, 2)),
        activation_shift + spread * generator.normal(size=(1, n_experts)),
        center=np.zeros(2),
        scale=np.ones(2),
    )
    X = generator.normal(size=(50, 2))
    score = tree.score(0, X)
    # Rows within rounding of the boundary may go either way.
    clear = np.abs(score / LOG2 - 1) > 1e-9
    assert np.array_equal(tree.goes_right(0, X)[clear], (score > LOG2)[clear])


@settings(max_examples=200)
@given(st.lists(st.floats(-300, 300), min_size=1, max_size=7), seeds())
def test_rows_at_the_border_take_the_side_of_the_sum_of_votes(log_weight, seed):
    # Experts that each read one feature have that feature as their activation, without rounding.
    # Votes that share log 2 at random put a row on the border, and small steps lead off it.
    generator = np.random.default_rng(seed)
    weight, n_experts = np.exp(log_weight), len(log_weight)
    tree = replace(
        random_tree(Topology.stump(), 0, n_experts=n_experts, n_features=n_experts)[0],
        weight=weight, hyperplane=np.eye(n_experts), intercept=np.zeros(n_experts),
    )  # fmt: skip
    share = np.maximum(generator.dirichlet(np.full(n_experts, 0.5), 40), 1e-12)
    border = facet_threshold(weight / np.append(share, np.full((1, n_experts), 1 / n_experts), 0))
    steps = np.array([0, 1e-16, 1e-13, 1e-10, 1e-8, 1e-4, 1.0])
    steps = np.append(steps, -steps)[:, None, None]
    X = (border + steps * np.maximum(1, np.abs(border))).reshape(-1, n_experts)
    score = (weight * softplus(X)).sum(axis=1)
    # Sums of up to seven votes may round differently, as may thresholds of up to 300 units.
    clear = np.abs(score / LOG2 - 1) > 1e-12
    assert clear.mean() > 0.5
    assert np.array_equal(tree.goes_right(0, X)[clear], (score > LOG2)[clear])
    assert np.array_equal((tree.score(0, X) > LOG2)[clear], (score > LOG2)[clear])


@pytest.mark.parametrize("silent", [0.0, 5e-324, 1e-310])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_expert_of_no_weight_has_no_facet(silent, sign):
    one, _ = random_tree(Topology.stump(), 0, n_experts=1, n_features=1)
    one = replace(one, weight=np.ones(1), hyperplane=np.ones((1, 1)), intercept=np.zeros(1))
    two = replace(
        one, expert_start=np.array([0, 2]), weight=np.array([1.0, silent]),
        hyperplane=np.array([[1.0], [sign * 1e3]]), intercept=np.zeros(2),
    )  # fmt: skip
    X = np.array([-1e300, -1.0, -1e-9, 1e-9, 1.0, 1e300])[:, None]
    assert facet_threshold(np.array([silent])) == np.inf
    assert (
        two.goes_right(0, X).tolist() == one.goes_right(0, X).tolist() == [False] * 3 + [True] * 3
    )
    assert not replace(one, weight=np.array([silent])).goes_right(0, X).any()


def test_facets_are_nearest_in_units_of_the_scale():
    """Two standard deviations of 1 from the mean, and one of 100."""
    split = np.ones((1, 2)), np.eye(2)[None], np.array([[-2.0, -1.0]])
    units = {"center": np.array([5.0, 3.0]), "scale": np.array([1.0, 100.0])}
    tree = Tree.from_standardised(Topology.stump(), *split, **units)
    assert tree.nearest_experts(0).tolist() == [1, 0]


@given(st.floats(-30, 30))
def test_facet_threshold_is_where_one_expert_alone_votes_log_2(log_weight):
    weight = np.exp(np.array([log_weight]))
    threshold = facet_threshold(weight)[0]
    vote = weight[0] * np.logaddexp(0, threshold)
    assert vote == pytest.approx(LOG2, rel=1e-8)


@settings(max_examples=50)
@given(topologies(), seeds())
def test_apply_walks_every_row_from_the_root(topology, seed):
    tree, _ = random_tree(topology, seed)
    X = rows_for(tree, seed)
    expected = [path_of(topology, naive_sides(tree, row)) for row in X]
    assert tree.apply(X).tolist() == [leaf for _, leaf in expected]
    path = tree.decision_path(X).toarray()
    for marked, (nodes, leaf) in zip(path, expected, strict=True):
        assert np.flatnonzero(marked).tolist() == [*sorted(nodes), tree.n_nodes + leaf]
    assert np.array_equal(tree.predict(X), tree.value[tree.apply(X)])


def test_rows_beyond_one_chunk_are_routed_alike():
    tree, _ = random_tree(Topology.complete(2), seed=0)
    X = rows_for(tree, 0, n=997)
    many = np.tile(X, (40, 1))
    assert np.array_equal(tree.apply(many), np.tile(tree.apply(X), 40))
    assert tree.prune(many).topology == tree.prune(X).topology


@settings(max_examples=50)
@given(topologies(), seeds(), st.sampled_from([(1, 60, 9), (7, 180, 3), (100, 33, 100)]))
def test_sides_do_not_depend_on_chunks_nor_on_the_layout_of_rows(topology, seed, sizes):
    tree, _ = random_tree(topology, seed)
    X = rows_for(tree, seed).astype(np.float32)
    leaf = tree.apply(X.astype(np.float64))
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("CHUNK", "NUMBERS", "BLOCK"), sizes, strict=True):
            patch.setattr(f"bayestree.routed_tree.{name}", size)
        for rows in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
            assert np.array_equal(tree.apply(rows), leaf)


@settings(max_examples=50)
@given(topologies(), seeds())
def test_walk_gives_the_rows_of_each_node_in_order_and_their_sides(topology, seed):
    tree, _ = random_tree(topology, seed)
    X = rows_for(tree, seed)
    sides = np.array([naive_sides(tree, row) for row in X], dtype=bool)
    paths = [path_of(topology, row)[0] for row in sides]
    steps = list(tree.walk(X))
    assert [node for node, _, _ in steps] == sorted(set().union(*paths))
    for node, rows, right in steps:
        assert rows.tolist() == [i for i, path in enumerate(paths) if node in path]
        assert right.tolist() == sides[rows, node].tolist()
        assert np.array_equal(right, tree.goes_right(node, X[rows]))


def test_no_rows_reach_no_leaf():
    tree, _ = random_tree(Topology.complete(2), seed=0)
    assert tree.apply(np.empty((0, 3))).shape == (0,)
    assert tree.decision_path(np.empty((0, 3))).shape == (0, 7)


@settings(max_examples=50)
@given(topologies(min_nodes=1, max_nodes=5), seeds())
def test_splits_in_data_units_are_those_of_standardised_rows(topology, seed):
    tree, (weight, hyperplane, intercept) = random_tree(topology, seed)
    X = rows_for(tree, seed)
    Z = (X - tree.center) / tree.scale
    for node in range(tree.n_nodes):
        votes = np.logaddexp(0, Z @ hyperplane[node].T + intercept[node])
        np.testing.assert_allclose(tree.score(node, X), votes @ weight[node], rtol=1e-9)
    assert np.allclose(tree.standardised_hyperplane, hyperplane.reshape(-1, 3), rtol=1e-12)
    assert tree.n_facets.tolist() == [4] * tree.n_nodes


@settings(max_examples=50)
@given(topologies(), seeds())
def test_prune_keeps_the_prediction_of_its_rows_and_only_nodes_that_separate(topology, seed):
    tree, _ = random_tree(topology, seed, log_weight=0.0)
    X = rows_for(tree, seed)
    pruned = tree.prune(X)
    assert np.array_equal(pruned.predict(X), tree.predict(X))
    # What is left separates rows at every node: no leaf is empty.
    assert set(pruned.apply(X)) == set(range(pruned.n_leaves))
    assert pruned.n_leaves == len(set(tree.apply(X)))


@settings(max_examples=50)
@given(st.data(), topologies(), seeds())
def test_collapse_keeps_the_splits_of_the_nodes_that_stay(data, topology, seed):
    tree, _ = random_tree(topology, seed)
    X = rows_for(tree, seed)
    bypass = np.array(
        data.draw(
            st.lists(st.integers(-1, 1), min_size=topology.n_nodes, max_size=topology.n_nodes)
        ),
        dtype=int,
    )
    small = tree.collapse(bypass)
    expected = [
        path_of(topology, np.where(bypass >= 0, bypass, naive_sides(tree, row)))[1] for row in X
    ]
    assert np.array_equal(small.predict(X), tree.value[expected])
    assert small.n_facets.tolist() == [4] * small.n_nodes


@settings(max_examples=50)
@given(topologies(), seeds(), st.sampled_from([0.0, 0.1]))
def test_dropped_experts_leave_the_rows_on_their_sides(topology, seed, tolerance):
    tree, _ = random_tree(topology, seed, n_experts=8, spread=4.0, log_weight=-4.0)
    X = rows_for(tree, seed)
    small = tree.drop_experts(X, tolerance)
    assert (small.n_facets >= 1).all()
    assert (small.n_facets <= tree.n_facets).all()
    for node, rows, right in tree.walk(X):
        changed = small.goes_right(node, X[rows]) != right
        assert changed.mean() <= tolerance


def test_experts_without_influence_are_dropped_and_the_largest_stays():
    tree = Tree.from_standardised(
        Topology.stump(),
        np.array([[1e-9, 1.0, 1e-9]]),
        np.ones((1, 3, 1)),
        np.zeros((1, 3)),
        center=np.zeros(1),
        scale=np.ones(1),
    )
    X = np.linspace(-1, 1, 9)[:, None]
    assert tree.drop_experts(X).weight.tolist() == pytest.approx([1.0])
    assert tree.drop_experts(X - 100).weight.tolist() == pytest.approx([1.0])


def test_what_many_small_experts_add_is_made_up_for():
    # 50 experts of the same vote everywhere carry the score half of the way to log 2.
    n_small = 50
    weight = np.append(np.full(n_small, 0.5 / n_small), 1.0)[None]
    plane = np.append(np.zeros(n_small), 3.0)[None, :, None]
    tree = Tree.from_standardised(
        Topology.stump(), weight, plane, np.zeros((1, n_small + 1)), center=np.zeros(1),
        scale=np.ones(1),
    )  # fmt: skip
    X = np.linspace(-2, 2, 101)[:, None]
    small = tree.drop_experts(X)
    assert small.n_facets.tolist() == [1]
    assert np.array_equal(small.goes_right(0, X), tree.goes_right(0, X))


@settings(max_examples=50)
@given(topologies(), seeds())
def test_leaves_are_filled_with_weighted_shares_and_means(topology, seed):
    tree, _ = random_tree(topology, seed)
    X = rows_for(tree, seed)
    generator = np.random.default_rng(seed)
    classes, y = generator.integers(3, size=len(X)), generator.normal(size=len(X))
    weights = generator.integers(0, 4, len(X)).astype(float) + (np.arange(len(X)) == 0)
    shares = tree.fill(X, classes, weights, 3)
    smoothed, means = tree.fill(X, classes, weights, 3, 2.5), tree.fill(X, y, weights, 0, 2.5)
    leaf = np.repeat(tree.apply(X), weights.astype(int))
    classes, y = np.repeat(classes, weights.astype(int)), np.repeat(y, weights.astype(int))
    overall = np.bincount(classes, minlength=3) / len(classes)
    for i in range(tree.n_leaves):
        own = leaf == i if (leaf == i).any() else np.ones(len(leaf), bool)
        expected = np.array([np.mean(classes[own] == c) for c in range(3)])
        np.testing.assert_allclose(shares.value[i], expected, atol=1e-12)
        smooth = (own.sum() * expected + 2.5 * overall) / (own.sum() + 2.5)
        smooth = smooth if (leaf == i).any() else overall
        np.testing.assert_allclose(smoothed.value[i], smooth, atol=1e-12)
        assert means.value[i] == pytest.approx(y[own].mean(), abs=1e-12)
        assert shares.leaf_rows[i] == (leaf == i).sum()


def test_with_value_needs_a_row_for_each_leaf():
    tree, _ = random_tree(Topology.stump(), seed=0)
    with pytest.raises(ValueError, match="value must have 2 rows, got 3"):
        tree.with_value(np.zeros(3))


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
def test_one_expert_of_any_weight_splits_where_its_vote_is_log_2(weight):
    tree = Tree.from_standardised(
        Topology.stump(),
        np.array([[weight]]),
        np.ones((1, 1, 1)),
        np.zeros((1, 1)),
        center=np.zeros(1),
        scale=np.ones(1),
    )
    boundary = math.log(math.expm1(LOG2 / weight))
    X = boundary + np.array([[-1e-6], [1e-6]])
    assert tree.goes_right(0, X).tolist() == [False, True]
