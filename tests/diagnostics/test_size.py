"""Polytope sizes, against independent geometry and direct sums."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import ConvexHull

from bayestree.diagnostics import polytope_size
from bayestree.diagnostics.polytopes import n_facets

LOG2 = np.log(2.0)
ONE = np.ones  # weights of 1 put the threshold of every facet at beta . x + b = 0


def facets(plane, intercept, low, high, weight=None):
    plane = np.asarray(plane, dtype=float)
    weight = ONE(len(plane)) if weight is None else np.asarray(weight, dtype=float)
    intercept = np.asarray(intercept, dtype=float)
    return n_facets(weight, plane, intercept, np.asarray(low, float), np.asarray(high, float))


TRIANGLE = [[-1, 0], [0, -1], [1, 1]]
TRIANGLE_AT = [0.1, 0.1, -1]
SQUARE = ([0, 0], [1, 1])


class TestFacets:
    def test_triangle(self):
        assert facets(TRIANGLE, TRIANGLE_AT, *SQUARE) == 3

    def test_a_facet_outside_the_box_does_not_count(self):
        assert facets(TRIANGLE, TRIANGLE_AT, [0.2, 0.2], [1, 1]) == 1

    def test_copies_count_once(self):
        assert facets(TRIANGLE * 3, TRIANGLE_AT * 3, *SQUARE) == 3

    def test_a_scaled_copy_counts_once(self):
        plane = np.vstack([TRIANGLE, 7.0 * np.asarray(TRIANGLE)])
        assert facets(plane, [*TRIANGLE_AT, *(7 * np.asarray(TRIANGLE_AT))], *SQUARE) == 3

    def test_a_looser_parallel_does_not_count(self):
        assert facets([*TRIANGLE, [1, 1]], [*TRIANGLE_AT, -1.2], *SQUARE) == 3

    def test_a_dead_expert_has_no_facet(self):
        weight = [1, 1, 1, 0.0]
        assert facets([*TRIANGLE, [1, 0]], [*TRIANGLE_AT, -0.5], *SQUARE, weight) == 3

    def test_the_threshold_depends_on_the_weight(self):
        # softplus(x - 0.5) = log 2 / r at r = log 2 / log(1 + e) means x = 1.5: outside
        weight = LOG2 / np.log1p(np.e)
        assert facets([[1.0]], [-0.5], [0], [1], [weight]) == 0
        assert facets([[1.0]], [-0.5], [0], [1.6], [weight]) == 1

    def test_nothing_left_of_the_box(self):
        assert facets([[1, 0], [0, 1]], [5, -0.5], *SQUARE) == 1

    def test_constant_features(self):
        assert facets(TRIANGLE, TRIANGLE_AT, [0, 0.5], [1, 0.5]) == 2
        assert facets([[0, 1.0]], [-0.4], [0, 0.5], [1, 0.5]) == 1
        assert facets([[0, 1.0]], [-0.6], [0, 0.5], [1, 0.5]) == 0

    def test_no_expert_reaches(self):
        assert facets([[1, 0]], [-3], *SQUARE) == 0

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 12))
    def test_agrees_with_the_dual_hull(self, seed, d, n):
        """Half-spaces a . x <= 1 around the origin are needed iff a is a vertex of their hull."""
        rng = np.random.default_rng(seed)
        plane = rng.normal(size=(n, d))
        distance = rng.uniform(0.1, 2.0, n)
        dual = np.vstack([plane / distance[:, None], np.eye(d), -np.eye(d)])  # box: |x| <= 1
        needed = (ConvexHull(dual).vertices < n).sum()
        weight = rng.gamma(1.0, size=n) + 0.05
        intercept = np.log(np.expm1(LOG2 / weight)) - distance
        assert facets(plane, intercept, -ONE(d), ONE(d), weight) == needed

    @settings(max_examples=50, deadline=None)
    @given(arrays(float, (6, 2), elements=st.floats(-3, 3, width=16)))
    def test_on_a_line_at_most_two(self, pairs):
        assert facets(pairs[:, :1], pairs[:, 1], [-1], [1]) <= 2


def draws_of(rng, chains=2, draws=3, nodes=2, experts=4, features=3):
    return {
        "log_weight": rng.normal(size=(chains, draws, nodes, experts)),
        "intercept": rng.normal(size=(chains, draws, nodes, experts)),
        "hyperplane": rng.normal(size=(chains, draws, nodes, experts, features)),
    }


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    return draws_of(rng), X, [np.arange(50), np.arange(0, 50, 3)]


class TestPolytopeSize:
    def test_direct_sums(self, case):
        draws, X, rows = case
        size = polytope_size(draws, X, rows)
        for chain, draw, node in np.ndindex(2, 3, 2):
            one = (chain, draw, node)
            activation = X[rows[node]] @ draws["hyperplane"][one].T + draws["intercept"][one]
            votes = (np.exp(draws["log_weight"][one]) * np.log1p(np.exp(activation))).max(axis=0)
            assert size.weights[one] == (votes >= 0.01 * LOG2).sum()
            assert size.effective[one] == pytest.approx(votes.sum() ** 2 / (votes**2).sum())
            low, high = X[rows[node]].min(axis=0), X[rows[node]].max(axis=0)
            assert size.facets[one] == n_facets(
                np.exp(draws["log_weight"][one]),
                draws["hyperplane"][one],
                draws["intercept"][one],
                low,
                high,
            )

    def test_only_the_rows_of_the_node_count(self, case):
        draws, X, rows = case
        far = np.vstack([X, np.full((1, 3), 1e3)])
        same = polytope_size(draws, far, rows)
        np.testing.assert_array_equal(same.facets, polytope_size(draws, X, rows).facets)
        np.testing.assert_array_equal(same.rows, [50, 17])

    def test_a_dead_expert_counts_by_no_measure(self, case):
        draws, X, rows = case
        draws["log_weight"][..., 1:] = -800.0
        size = polytope_size(draws, X, rows)
        assert (size.weights == 1).all()
        assert (size.facets <= 1).all()
        np.testing.assert_allclose(size.effective, 1.0)

    def test_equal_votes_are_all_effective(self, case):
        draws, X, rows = case
        for values in draws.values():
            values[...] = values[:, :, :, :1]
        size = polytope_size(draws, X, rows)
        np.testing.assert_allclose(size.effective, 4.0)
        assert (size.facets <= 1).all()

    def test_splits_without_weights(self, case):
        draws, X, rows = case
        weighted = draws | {"log_weight": np.zeros_like(draws["log_weight"])}
        del draws["log_weight"]
        plain, unit = polytope_size(draws, X, rows), polytope_size(weighted, X, rows)
        np.testing.assert_array_equal(plain.facets, unit.facets)
        np.testing.assert_array_equal(plain.weights, unit.weights)

    def test_summary(self, case):
        size = polytope_size(*case, labels=["root", "L"])
        table = size.probabilities()
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
        np.testing.assert_array_equal(
            table @ np.arange(table.shape[1]), size.facets.reshape(-1, 2).mean(axis=0)
        )
        assert table[0, size.mode()[0]] == table[0].max()
        interval = size.interval(0.9)
        assert (interval[:, 0] <= size.mode()).all()
        assert (size.mode() <= interval[:, 1]).all()
        frame = size.to_frame()
        assert list(frame.index) == ["root", "L"]
        np.testing.assert_array_equal(frame["facets"], size.mode())
        assert "root" in str(size)
        assert size.probabilities("effective").sum() == pytest.approx(2)

    def test_max_draws_takes_some_of_each_chain(self, case):
        _draws, _X, _rows = case
        whole, part = polytope_size(*case), polytope_size(*case, max_draws=4)
        assert part.facets.shape == (2, 2, 2)
        np.testing.assert_array_equal(part.facets, whole.facets[:, [0, 2]])
        np.testing.assert_array_equal(part.weights, whole.weights[:, [0, 2]])

    def test_a_tree_without_a_split(self):
        size = polytope_size(draws_of(np.random.default_rng(0), nodes=0), np.zeros((4, 3)), [])
        assert size.facets.shape == (2, 3, 0)
        assert len(size.to_frame()) == 0
        assert "without a split" in str(size)
        assert size.mode().shape == (0,)

    def test_bad_input(self, case):
        draws, X, rows = case
        with pytest.raises(ValueError, match="2 nodes, got 1"):
            polytope_size(draws, X, rows[:1])
        with pytest.raises(ValueError, match=r"none for the nodes \[1\]"):
            polytope_size(draws, X, [rows[0], rows[1][:0]])
        with pytest.raises(ValueError, match=r"X must have shape \(n, 3\)"):
            polytope_size(draws, X[:, :2], rows)
        with pytest.raises(ValueError, match="max_draws must be 1 or more, got 0"):
            polytope_size(draws, X, rows, max_draws=0)
        with pytest.raises(ValueError, match="labels must name 2 nodes, got 1"):
            polytope_size(draws, X, rows, labels=["root"])
        with pytest.raises(ValueError, match="level must lie between 0 and 1, got 1"):
            polytope_size(draws, X, rows).interval(1)


def test_needs_no_torch():
    code = "import bayestree.diagnostics, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
