"""Label-free quantities, against the soft tree itself and worked examples."""

import numpy as np
import pytest

from bayestree.diagnostics import label_free
from bayestree.diagnostics.label_free import spread_rows
from bayestree.topology import Topology

DEPTH_2 = Topology.complete(2)


def draws_of(topology):
    """Two chains of three draws: four experts, three features, three classes."""
    rng = np.random.default_rng(0)
    nodes = topology.n_nodes
    return {
        "log_weight": rng.normal(size=(2, 3, nodes, 4)),
        "intercept": rng.normal(size=(2, 3, nodes, 4)),
        "hyperplane": rng.normal(size=(2, 3, nodes, 4, 3)),
        "leaf_probs": rng.dirichlet(np.ones(3), size=(2, 3, nodes + 1)),
    }


@pytest.fixture
def case():
    return draws_of(DEPTH_2), np.random.default_rng(1).normal(size=(5, 3))


class TestValues:
    @pytest.mark.parametrize("steepness", [1.0, 6.0])
    def test_those_of_the_soft_tree(self, case, steepness):
        torch = pytest.importorskip("torch")  # the diagnostics also run where it is not
        models = pytest.importorskip("bayestree.models")
        inference = pytest.importorskip("bayestree.inference")
        draws, X = case
        split, leaf = models.Polytope(4), models.Categorical(3)
        model = models.SoftTree(DEPTH_2, split=split, leaf=leaf, steepness=steepness)
        posterior = inference.Posterior(model, draws, {}, "test")
        found = label_free(draws, DEPTH_2, X, steepness=steepness)
        for chain, draw in np.ndindex(2, 3):
            sites = posterior.sites(chain, draw)
            leaf = model.leaf_log_probs(sites, torch.as_tensor(X)).exp().numpy()
            value = leaf @ draws["leaf_probs"][chain, draw]
            np.testing.assert_allclose(found["prediction"][chain, draw], value, rtol=1e-12)
            score = model.scores(sites, torch.as_tensor(X)).numpy()
            right = np.expm1(score) ** steepness
            np.testing.assert_allclose(
                found["p_right"][chain, draw], (right / (1 + right)).T, rtol=1e-10
            )

    def test_means_of_real_leaves(self, case):
        draws, X = case
        probs = draws.pop("leaf_probs")
        found = label_free(draws | {"leaf_mean": probs[..., 0]}, DEPTH_2, X)
        full = label_free(draws | {"leaf_probs": probs}, DEPTH_2, X)
        assert found["prediction"].dims == ("chain", "draw", "row")
        np.testing.assert_allclose(found["prediction"], full["prediction"][..., 0])

    def test_weights(self, case):
        draws, X = case
        found = label_free(draws, DEPTH_2, X)
        weight = np.exp(draws["log_weight"])
        np.testing.assert_array_equal(found["log_weight"][..., 0], draws["log_weight"].max(axis=-1))
        assert (np.diff(found["log_weight"], axis=-1) <= 0).all()
        np.testing.assert_allclose(
            found["effective"], weight.sum(-1) ** 2 / (weight**2).sum(-1), rtol=1e-12
        )

    def test_weights_that_underflow(self, case):
        draws, X = case
        draws["log_weight"] -= 900.0
        found = label_free(draws, DEPTH_2, X)
        assert (found["p_right"] < 1e-290).all()
        assert np.isfinite(found["prediction"]).all()
        assert ((found["effective"] >= 1) & (found["effective"] <= 4)).all()

    def test_the_order_of_experts_does_not_matter(self, case):
        draws, X = case
        order = np.random.default_rng(2).permutation(4)
        turned = {
            name: values[:, :, :, order] if name != "leaf_probs" else values
            for name, values in draws.items()
        }
        one, other = label_free(draws, DEPTH_2, X), label_free(turned, DEPTH_2, X)
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-12)

    def test_rows_of_each_node(self, case):
        draws, X = case
        shared = label_free(draws, DEPTH_2, X)
        own = label_free(draws, DEPTH_2, X[:2], node_rows=[X[1:3], X[2:4], X[3:5]])
        for node in range(3):
            np.testing.assert_allclose(
                own["p_right"][:, :, node], shared["p_right"][:, :, node, node + 1 : node + 3]
            )
        np.testing.assert_allclose(own["prediction"], shared["prediction"][:, :, :2])


class TestDataset:
    def test_names(self, case):
        draws, X = case
        lp = np.arange(6.0).reshape(2, 3)
        found = label_free(draws, DEPTH_2, X, lp=lp, class_names=["a", "b", "c"])
        assert list(found["node"].to_numpy()) == ["root", "L", "R"]
        assert list(found["class"].to_numpy()) == ["a", "b", "c"]
        np.testing.assert_array_equal(found["lp"], lp)
        for values in found.values():
            assert values.dims[:2] == ("chain", "draw")

    def test_splits_without_weights(self, case):
        draws, X = case
        del draws["log_weight"]
        assert set(label_free(draws, DEPTH_2, X)) == {"p_right", "prediction"}

    def test_nodes_whose_sides_are_not_fixed(self, case):
        draws, X = case
        found = label_free(draws, DEPTH_2, X, lp=np.zeros((2, 3)), fixed_sides=False)
        assert set(found) == {"lp", "prediction"}

    def test_a_tree_without_a_split(self):
        draws = draws_of(Topology.leaf())
        found = label_free(draws, Topology.leaf(), np.zeros((2, 3)))
        assert set(found) == {"prediction"}
        np.testing.assert_allclose(found["prediction"][:, :, 0], draws["leaf_probs"][:, :, 0])

    def test_a_tree_with_plug_in_leaves(self, case):
        draws, X = case
        del draws["leaf_probs"]
        assert "prediction" not in label_free(draws, DEPTH_2, X)

    def test_single_precision(self, case):
        draws, X = case
        single = {name: values.astype(np.float32) for name, values in draws.items()}
        found = label_free(single, DEPTH_2, X)["prediction"]
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, label_free(draws, DEPTH_2, X)["prediction"], rtol=1e-5)

    def test_bad_input(self, case):
        draws, X = case
        with pytest.raises(ValueError, match="draws have 3 nodes, but topology has 1"):
            label_free(draws, Topology.stump(), X)
        with pytest.raises(ValueError, match=r"rows must have shape \(m, 3\)"):
            label_free(draws, DEPTH_2, X[:, :2])
        with pytest.raises(ValueError, match="node_rows must hold 3 arrays, got 1"):
            label_free(draws, DEPTH_2, X, node_rows=[X])
        with pytest.raises(ValueError, match="equally many rows"):
            label_free(draws, DEPTH_2, X, node_rows=[X, X, X[:1]])
        with pytest.raises(ValueError, match="m > 0"):
            label_free(draws, DEPTH_2, X, node_rows=[X, X, X[:0]])


class TestRows:
    def test_spread_along_the_main_direction(self):
        X = np.zeros((101, 3))
        X[:, 1] = np.random.default_rng(0).permutation(101)
        np.testing.assert_array_equal(np.sort(X[spread_rows(X, 5), 1]), [0, 25, 50, 75, 100])

    def test_few_rows_are_all_taken(self):
        X = np.random.default_rng(0).normal(size=(4, 2))
        assert spread_rows(X, 20).tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="n must be 1 or more, got 0"):
            spread_rows(X, 0)
