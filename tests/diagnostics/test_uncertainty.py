"""Uncertainty of the splits, on worked examples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from bayestree.diagnostics import split_uncertainty
from bayestree.diagnostics import uncertainty as module
from bayestree.diagnostics.draws import Matches
from bayestree.diagnostics.uncertainty import Splits
from bayestree.topology import Topology
from tests.strategies import seeds, topologies

LOG2 = np.log(2.0)


def oblique(*intercepts, **leaves):
    """Draws of a logistic stump in one feature, x + b > 0 goes right, as one chain."""
    b = np.reshape(intercepts, (1, -1, 1, 1)).astype(float)
    return {"hyperplane": np.ones((*b.shape, 1)), "intercept": b} | leaves


def sides(*values):
    return np.array(values, dtype=bool)[:, None]


X = np.array([[-2.0], [0.0], [3.0]])


class TestStump:
    def test_moments_of_the_chance(self):
        found = split_uncertainty(
            oblique(-1, 0, 1, 2), X, sides(0, 0, 1), topology=Topology.stump()
        )
        chance = expit(X + np.array([-1, 0, 1, 2]))
        np.testing.assert_allclose(found.mean[:, 0], chance.mean(axis=1))
        np.testing.assert_allclose(found.sd[:, 0], chance.std(axis=1))
        np.testing.assert_allclose(
            found.interval[:, 0], np.quantile(chance, [0.05, 0.95], axis=1, method="weibull").T
        )
        np.testing.assert_allclose(found.outside[:, 0], [0, 2 / 4, 1])
        np.testing.assert_allclose(found.disagreement[:, 0], [0, 2 / 4, 0])
        np.testing.assert_allclose(found.reached[:, 0], 1)
        np.testing.assert_allclose(found.leaf_probability[:, 1], chance.mean(axis=1))
        assert found.best_leaf.tolist() == [0, 1, 1]
        np.testing.assert_allclose(
            found.best_leaf_probability, found.leaf_probability[range(3), [0, 1, 1]]
        )

    def test_steepness_moves_the_chance_and_no_border(self):
        draws, given_sides = oblique(-1, 0.5), sides(0, 0, 1)
        one, steep = (
            split_uncertainty(draws, X, given_sides, topology=Topology.stump(), steepness=g)
            for g in (1.0, 7.0)
        )
        np.testing.assert_allclose(
            steep.mean, expit(7 * (X + np.array([-1, 0.5]))).mean(axis=1)[:, None]
        )
        np.testing.assert_array_equal(steep.outside, one.outside)

    def test_disagreement_is_with_the_tree(self):
        draws = oblique(-1, 1, 1, 1)
        one, other = (
            split_uncertainty(draws, X, sides(*s), topology=Topology.stump())
            for s in ((0, 0, 0), (1, 1, 1))
        )
        np.testing.assert_allclose(one.disagreement[:, 0], [0, 0.75, 1])
        np.testing.assert_allclose(one.disagreement + other.disagreement, 1)

    def test_one_draw_is_sure_of_itself(self):
        draws = oblique(0.5, leaf_probs=np.array([[[[0.9, 0.1], [0.2, 0.8]]]]))
        found = split_uncertainty(draws, X, sides(0, 1, 1), topology=Topology.stump())
        np.testing.assert_array_equal(found.sd, 0)
        np.testing.assert_array_equal(found.interval[..., 0], found.interval[..., 1])
        np.testing.assert_array_equal(found.disagreement, 0)
        np.testing.assert_array_equal(found.mutual_information, 0)

    def test_entropy_in_parts(self):
        """Two draws that are sure of opposite classes: log 2 of doubt, all in the posterior."""
        sure = np.array([[[[1, 0.0], [1, 0.0]], [[0, 1.0], [0, 1.0]]]])
        found = split_uncertainty(
            oblique(0, 0, leaf_probs=sure), X, sides(0, 0, 0), topology=Topology.stump()
        )
        np.testing.assert_allclose(found.total_entropy, LOG2)
        np.testing.assert_allclose(found.expected_entropy, 0, atol=1e-15)
        np.testing.assert_allclose(found.mutual_information, LOG2)
        # Two draws that agree on a fair coin: log 2, all in the data.
        fair = np.full((1, 2, 2, 2), 0.5)
        found = split_uncertainty(
            oblique(-3, 3, leaf_probs=fair), X, sides(0, 0, 0), topology=Topology.stump()
        )
        np.testing.assert_allclose(found.expected_entropy, LOG2)
        np.testing.assert_allclose(found.mutual_information, 0, atol=1e-15)
        assert found.total_variance is None

    def test_variance_in_parts(self):
        mean, sd = np.array([[[0.0, 4], [2, 6]]]), np.array([[[1.0, 2], [1, 3]]])
        draws = oblique(0, 1, leaf_mean=mean, leaf_scale=sd)
        found = split_uncertainty(draws, X, sides(0, 0, 1), topology=Topology.stump(), y_scale=10)
        right = expit(X + np.array([0, 1]))
        share = np.stack([1 - right, right], axis=-1)  # (row, draw, leaf)
        first = (share * mean[0]).sum(axis=-1)
        second = (share * (sd[0] ** 2 + mean[0] ** 2)).sum(axis=-1)
        np.testing.assert_allclose(found.explained, 100 * first.var(axis=1))
        np.testing.assert_allclose(found.expected_variance, 100 * (second - first**2).mean(axis=1))
        # the variance of the mixture of all draws and leaves
        np.testing.assert_allclose(
            found.total_variance, 100 * (second.mean(axis=1) - first.mean(axis=1) ** 2)
        )
        assert found.total_entropy is None

    def test_without_leaves_there_is_no_prediction(self):
        found = split_uncertainty(oblique(0), X, sides(0, 0, 0), topology=Topology.stump())
        assert found.total_entropy is None
        assert found.total_variance is None
        assert "Mean over the rows" not in str(found)


def tree_of(rng, topology, *, experts=2, chains=2, draws=3, d=2, classes=3):
    shape = (chains, draws, topology.n_nodes, experts)
    return {
        "log_weight": rng.normal(size=shape),
        "intercept": rng.normal(size=shape),
        "hyperplane": rng.normal(size=(*shape, d)),
        "leaf_probs": rng.dirichlet(np.ones(classes), size=(chains, draws, topology.n_leaves)),
    }


class TestTree:
    def test_paths_multiply(self):
        topology = Topology.complete(2)
        rng = np.random.default_rng(0)
        draws, rows = tree_of(rng, topology), rng.normal(size=(4, 2))
        found = split_uncertainty(draws, rows, np.zeros((4, 3), bool), topology=topology)
        activation = np.einsum("cdvkj,nj->cdnvk", draws["hyperplane"], rows)
        votes = np.logaddexp(0, activation + draws["intercept"][:, :, None])
        score = (votes * np.exp(draws["log_weight"])[:, :, None]).sum(axis=-1)
        q = (1 - np.exp(-score)).reshape(6, 4, 3)
        np.testing.assert_allclose(found.mean, q.mean(axis=0))
        np.testing.assert_allclose(found.reached[:, 2], q[..., 0].mean(axis=0))
        np.testing.assert_allclose(
            found.leaf_probability[:, 1], ((1 - q[..., 0]) * q[..., 1]).mean(axis=0)
        )
        leaf = np.stack(
            [(1 - q[..., 0]) * (1 - q[..., 1]), (1 - q[..., 0]) * q[..., 1],
             q[..., 0] * (1 - q[..., 2]), q[..., 0] * q[..., 2]], axis=-1
        )  # fmt: skip
        predicted = leaf @ draws["leaf_probs"].reshape(6, 4, 3)
        mean = predicted.mean(axis=0)
        total = -(mean * np.log(mean)).sum(axis=-1)
        expected = -(predicted * np.log(predicted)).sum(axis=-1).mean(axis=0)
        np.testing.assert_allclose(found.total_entropy, total)
        np.testing.assert_allclose(found.expected_entropy, expected)
        np.testing.assert_allclose(found.mutual_information, total - expected)

    @settings(max_examples=30, deadline=None)
    @given(seeds(), topologies(max_nodes=6), st.integers(0, 30), st.integers(1, 40))
    def test_what_holds_always(self, seed, topology, n, elements):
        rng = np.random.default_rng(seed)
        draws, rows = tree_of(rng, topology), rng.normal(size=(n, 2))
        right = rng.random((n, topology.n_nodes)) < 0.5
        whole = split_uncertainty(draws, rows, right, topology=topology)
        assert whole.mean.shape == whole.sd.shape == (n, topology.n_nodes)
        assert whole.interval.shape == (n, topology.n_nodes, 2)
        assert whole.leaf_probability.shape == (n, topology.n_leaves)
        np.testing.assert_allclose(whole.leaf_probability.sum(axis=1), 1)
        np.testing.assert_allclose(whole.reached[:, :1], 1)
        np.testing.assert_allclose(
            whole.total_entropy, whole.expected_entropy + whole.mutual_information, atol=1e-12
        )
        # in chunks of few rows it is the same
        before = module.ELEMENTS
        module.ELEMENTS = elements
        try:
            parts = split_uncertainty(draws, rows, right, topology=topology)
        finally:
            module.ELEMENTS = before
        for name in ("mean", "sd", "interval", "outside", "reached", "mutual_information"):
            np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-12)

    def test_a_smaller_tree_of_some_nodes(self):
        """A node left out of the deterministic tree: its leaves are one, y is predicted by both."""
        topology = Topology.complete(2)
        rng = np.random.default_rng(1)
        draws, rows = tree_of(rng, topology), rng.normal(size=(5, 2))
        whole = split_uncertainty(draws, rows, np.zeros((5, 3), bool), topology=topology)
        smaller = Topology(np.array([[1, ~2], [~0, ~1]]))
        part = split_uncertainty(
            draws,
            rows,
            np.zeros((5, 2), bool),
            topology=topology,
            splits=Splits(smaller, Matches.fixed(np.array([0, 1]), draws)),
        )
        np.testing.assert_allclose(part.mean, whole.mean[:, :2])
        np.testing.assert_allclose(part.leaf_probability[:, :2], whole.leaf_probability[:, :2])
        np.testing.assert_allclose(
            part.leaf_probability[:, 2], whole.leaf_probability[:, 2:].sum(axis=1)
        )
        np.testing.assert_allclose(part.total_entropy, whole.total_entropy)
        assert part.labels == ("root", "L")
        assert part.leaf_labels == ("LL", "LR", "R")

    def test_a_tree_without_a_split(self):
        rng = np.random.default_rng(0)
        draws = tree_of(rng, Topology.leaf())
        found = split_uncertainty(
            draws, X[:, [0, 0]], sides(0, 0, 0)[:, :0], topology=Topology.leaf()
        )
        np.testing.assert_array_equal(found.leaf_probability, 1)
        assert found.leaf_labels == ("root",)
        assert len(found.to_frame()) == 0
        assert found.to_frame("row")["leaf"].tolist() == ["root"] * 3
        assert "without a split" in str(found)

    def test_draws_of_float32(self):
        topology = Topology.complete(2)
        rng = np.random.default_rng(2)
        draws, rows = tree_of(rng, topology), rng.normal(size=(5, 2))
        small = {name: values.astype(np.float32) for name, values in draws.items()}
        right = np.zeros((5, 3), bool)
        one, two = (split_uncertainty(d, rows, right, topology=topology) for d in (draws, small))
        np.testing.assert_allclose(one.mean, two.mean, rtol=1e-5)
        assert two.mean.dtype == np.float64


class TestTables:
    @pytest.fixture
    def found(self):
        topology = Topology(np.array([[~0, 1], [~1, ~2]]))
        b = np.array([[[[0.0], [-1]], [[0], [-1]], [[0], [1]]]])
        draws = {
            "hyperplane": 50 * np.ones((*b.shape, 1)),
            "intercept": 50 * b,
            "leaf_probs": np.array([[[[1, 0], [0, 1], [0.5, 0.5]]] * 3]),
        }
        right = np.array([[0, 0], [1, 0], [1, 1]], dtype=bool)
        return split_uncertainty(draws, X + np.array([[0], [0.5], [0]]), right, topology=topology)

    def test_by_node_only_rows_that_reach_it_count(self, found):
        frame = found.to_frame()
        assert frame.index.tolist() == ["root", "R"]
        np.testing.assert_allclose(frame["rows"], [3, 2])
        # of the rows right of the root, one goes right in one draw of three, one in all
        np.testing.assert_allclose(frame["disagreement"], [0, 1 / 6], atol=1e-9)
        np.testing.assert_allclose(frame["unsure"], [0, 0.5], atol=1e-9)
        np.testing.assert_allclose(frame["sd"], [0, 2**0.5 / 6], atol=1e-9)

    def test_by_row(self, found):
        frame = found.to_frame("row")
        assert frame["leaf"].tolist() == ["L", "RL", "RR"]
        np.testing.assert_allclose(frame["leaf_probability"], [1, 2 / 3, 1])
        # the unsure row: twice (0, 1), once (1/2, 1/2), on average (1/6, 5/6)
        total = np.log(6) / 6 - np.log(5 / 6) * 5 / 6
        np.testing.assert_allclose(frame["total_entropy"], [0, total, LOG2], atol=1e-9)
        np.testing.assert_allclose(frame["expected_entropy"], [0, LOG2 / 3, LOG2], atol=1e-9)
        with pytest.raises(ValueError, match="by must be 'node' or 'row', got 'leaf'"):
            found.to_frame("leaf")

    def test_print(self, found):
        assert "3 rows" in str(found)
        assert "mutual_information" in str(found)
        assert "variance" not in str(found)


def test_bad_input():
    draws, stump = oblique(0.0), Topology.stump()
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 5"):
        split_uncertainty(draws, X, sides(0, 0, 0), topology=stump, level=5)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 1\)"):
        split_uncertainty(draws, X[:, [0, 0]], sides(0, 0, 0), topology=stump)
    with pytest.raises(ValueError, match=r"right must have shape \(3, 1\), got \(2, 1\)"):
        split_uncertainty(draws, X, sides(0, 0), topology=stump)
