"""Shrinkage, on draws whose factor is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from bayestree.diagnostics import node_shrinkage
from bayestree.diagnostics.polytopes import node_reach
from tests.strategies import seeds

LOG2 = np.log(2.0)
MEAN = np.array([[4.0, 0.0, -2.0], [-4.0, 1.0, 0.0], [0.0, 3.0, 0.0]])  # (K, d)


def case(rng, *, n_draws=400, spread=0.1, b=0.01, shuffled=False, mean=MEAN):
    """Normal draws of one node about known coefficients; the last expert does not vote."""
    shape = (2, n_draws // 2, 1, *mean.shape)
    draws = {
        "hyperplane": mean + spread * rng.normal(size=shape),
        "intercept": -1 + spread * rng.normal(size=shape[:-1]),
        "log_weight": np.log([0.5, 3.0, 1e-6]) + spread * rng.normal(size=shape[:-1]),
        "shrinkage": np.full(shape[:-1], b),
    }
    point = {name: values.mean(axis=(0, 1)) for name, values in draws.items()}
    if shuffled:
        for one in np.ndindex(2, n_draws // 2, 1):
            order = rng.permutation(len(mean))
            for values in draws.values():
                values[one] = values[one][order]
    return draws, point


def shrinkage_of(draws, point, *, scale_shape=0.5, largest=None, **options):
    X = np.random.default_rng(0).uniform(-2, 2, size=(60, point["hyperplane"].shape[-1]))
    n_nodes = point["intercept"].shape[0]
    reach = node_reach(draws, X, [np.arange(60)] * n_nodes, np.arange(n_nodes))
    if largest is not None:
        reach = reach._replace(largest=np.broadcast_to(np.float32(largest), reach.largest.shape))
    return node_shrinkage(draws, point, reach, scale_shape=scale_shape, **options)


class TestFactors:
    def test_formula(self):
        rng = np.random.default_rng(1)
        draws, point = case(rng, b=0.0025)
        found = shrinkage_of(draws, point, scale_shape=0.7, coefficient_scale=2.0)
        flat = draws["hyperplane"].reshape(-1, 3, 3)
        low, middle, high = np.quantile(flat, norm.cdf([-1, 0, 1]), axis=0)
        square = (high - low) ** 2 / 4
        expected = 1.2 * square / (0.01 + (middle**2 + square) / 2)
        np.testing.assert_allclose(found.kappa[0], np.minimum(expected, 1))
        np.testing.assert_allclose(found.positive[0], (flat > 0).mean(axis=0))
        # a clear coefficient: (2 a + 1) s^2 / m^2; an idle one with a small b: all prior
        assert found.kappa[0, 0, 0] == pytest.approx(2.4 * 0.1**2 / 4**2, rel=0.2)
        assert found.kappa[0, 0, 1] > 0.7

    def test_formula_of_laplace(self):
        """E[1 / variance | beta] of a normal scale mixture is l / |beta|."""
        draws, point = case(np.random.default_rng(1))
        del draws["shrinkage"]
        found = shrinkage_of(draws, point, scale_shape=None, l1=3.0)
        flat = draws["hyperplane"].reshape(-1, 3, 3)
        low, middle, high = np.quantile(flat, norm.cdf([-1, 0, 1]), axis=0)
        square = (high - low) ** 2 / 4
        expected = 3 * square / np.sqrt(middle**2 + square)
        np.testing.assert_allclose(found.kappa[0], np.minimum(expected, 1))
        assert (shrinkage_of(draws, point, scale_shape=None).kappa == 0).all()

    def test_order_of_the_experts_does_not_matter(self):
        one = shrinkage_of(*case(np.random.default_rng(2)))
        other = shrinkage_of(*case(np.random.default_rng(2), shuffled=True))
        np.testing.assert_allclose(one.kappa[0, :2], other.kappa[0, :2])
        np.testing.assert_allclose(one.weight, other.weight)
        np.testing.assert_array_equal(one.counts, other.counts)
        assert (one.kappa[0, 0] < 0.01).sum() == 2

    @settings(max_examples=20, deadline=None)
    @given(seeds(), st.sampled_from([0.5, 1.0, 2.0, 5.0]))
    def test_without_data_all_is_prior(self, seed, a):
        """Draws from the prior itself: beta is Student-t."""
        rng = np.random.default_rng(seed)
        shape = (1, 2000, 1, 1, 2)
        b = rng.gamma(2.0, size=shape[:-1])
        draws = {
            "hyperplane": np.sqrt(b[..., None] / rng.gamma(a, size=shape)) * rng.normal(size=shape),
            "intercept": rng.normal(size=shape[:-1]),
            "log_weight": np.full(shape[:-1], -20.0),  # idle in every draw
            "shrinkage": b,
        }
        point = {name: values[0, 0] for name, values in draws.items()}
        assert (shrinkage_of(draws, point, scale_shape=a).kappa > 0.75).all()

    @pytest.mark.parametrize(("share", "known"), [(0.9, True), (0.3, False)])
    def test_draws_without_the_expert_do_not_count(self, share, known):
        """A sampler's draw that lacks a facet has an idle expert in its place, from the prior."""
        rng = np.random.default_rng(14)
        draws, point = case(rng)
        clear = shrinkage_of(draws, point)
        gone = rng.uniform(size=(2, 200, 1)) > share
        draws["log_weight"][..., 0][gone] = -20
        draws["hyperplane"][gone, 0] = 100 * rng.standard_cauchy((gone.sum(), 3))
        found = shrinkage_of(draws, point)
        assert found.matched[0, 0] == pytest.approx(1 - gone.mean())
        np.testing.assert_array_equal(found.matched[0, 1:], 1)
        if known:
            np.testing.assert_allclose(found.kappa[0, 0], clear.kappa[0, 0], rtol=0.2)
        else:
            assert np.isnan(found.kappa[0, 0]).all()
            assert np.isnan(found.sparsity[0, 0])
        np.testing.assert_array_equal(found.kappa[0, 1], clear.kappa[0, 1])  # 2 is idle too

    def test_rows_that_tell_all_leave_nothing_to_the_prior(self):
        found = shrinkage_of(*case(np.random.default_rng(3), spread=1e-5, b=1.0))
        assert (found.kappa < 1e-8).all()
        np.testing.assert_array_equal(found.sparsity, 0)

    def test_tempering_weakens_the_prior(self):
        draws, point = case(np.random.default_rng(4))
        one, tenth = (shrinkage_of(draws, point, prior_power=p) for p in (1.0, 0.1))
        clear = one.kappa < 0.5
        np.testing.assert_allclose(tenth.kappa[clear], one.kappa[clear] / 10)

    def test_no_prior_shrinks_nothing(self):
        draws, point = case(np.random.default_rng(5))
        del draws["shrinkage"], point["shrinkage"]
        np.testing.assert_array_equal(shrinkage_of(draws, point, scale_shape=None).kappa, 0)

    def test_one_draw_cannot_tell(self):
        draws, _ = case(np.random.default_rng(6))
        one = {name: values[:1, :1] for name, values in draws.items()}
        found = shrinkage_of(one, {name: values[0, 0] for name, values in one.items()})
        assert np.isnan(found.kappa).all()
        assert np.isnan(found.sparsity).all()
        assert found.counts.any()
        twice = {name: np.repeat(values, 2, axis=1) for name, values in one.items()}
        point = {name: values[0, 0] for name, values in one.items()}
        assert np.isnan(shrinkage_of(twice, point).kappa).all()  # nor can its copies
        assert "x0, x2, x1" in found.to_frame("expert")["features"].tolist()
        assert found.effective.shape == (1, 1, 1)

    def test_long_tails_hide_no_coefficient(self):
        """Two of a hundred draws far out, as posteriors under Student-t priors have them."""
        draws, point = case(np.random.default_rng(15))
        clear = shrinkage_of(draws, point)
        draws["hyperplane"][:, ::50, 0, :2] *= 1e4
        found = shrinkage_of(draws, point)
        np.testing.assert_allclose(found.kappa[0, :2], clear.kappa[0, :2], rtol=0.3)

    def test_a_settled_sign_is_not_shrunk_away(self):
        """A coefficient of any positive size: the prior bounds it, and it matters."""
        rng = np.random.default_rng(16)
        draws, point = case(rng)
        draws["hyperplane"][..., 0, 0] *= rng.lognormal(0, 2, size=(2, 200, 1))
        found = shrinkage_of(draws, point)
        assert found.kappa[0, 0, 0] > 0.5
        assert found.positive[0, 0, 0] == 1
        assert not found.shrunk_away[0, 0, 0]
        assert "x0" in found.to_frame("expert").loc[("0", 0), "features"]

    def test_sparsity(self):
        found = shrinkage_of(*case(np.random.default_rng(7), b=1e-4))
        np.testing.assert_allclose(found.sparsity, [[1 / 3, 1 / 3, 2 / 3]])


class TestWeights:
    def test_sorted_in_each_draw(self):
        draws, point = case(np.random.default_rng(8), shuffled=True)
        found = shrinkage_of(draws, point)
        weight = np.exp(draws["log_weight"])
        np.testing.assert_allclose(found.weight, -np.sort(-weight, axis=-1))
        np.testing.assert_allclose(
            found.effective, weight.sum(axis=-1) ** 2 / (weight**2).sum(axis=-1)
        )
        np.testing.assert_allclose(found.largest_share, weight.max(axis=-1) / weight.sum(axis=-1))

    def test_the_prior_beside(self):
        prior = {
            "log_weight": np.log([[1.0, 3, 2], [5, 5, 5]]),
            "intercept": np.zeros((2, 3)),
            "hyperplane": np.zeros((2, 3, 3)),
        }
        found = shrinkage_of(*case(np.random.default_rng(9)), prior=prior)
        np.testing.assert_allclose(found.prior_weight, [[3, 2, 1], [5, 5, 5]])
        np.testing.assert_allclose(found.prior_effective, [36 / 14, 3])
        np.testing.assert_allclose(found.prior_largest_share, [0.5, 1 / 3])
        frame = found.to_frame()
        np.testing.assert_allclose(frame["prior_effective_mean"], (36 / 14 + 3) / 2)

    def test_experts_count_from_a_hundredth_of_log_2_on(self):
        largest = LOG2 * np.array([0.0101, 0.0099, 0.0])
        found = shrinkage_of(*case(np.random.default_rng(9)), largest=largest)
        np.testing.assert_array_equal(found.counts, [[True, False, False]])

    def test_weights_that_underflow(self):
        draws, point = case(np.random.default_rng(10))
        draws["log_weight"] -= 1000
        found = shrinkage_of(draws, point)
        np.testing.assert_array_equal(found.weight, 0)
        assert (found.effective >= 1).all()
        assert (found.largest_share <= 1).all()
        assert not found.counts.any()

    def test_splits_without_weights(self):
        draws, point = case(np.random.default_rng(11))
        del draws["log_weight"], point["log_weight"]
        found = shrinkage_of(draws, point)
        np.testing.assert_array_equal(found.weight, 1)
        np.testing.assert_allclose(found.effective, 3)
        np.testing.assert_allclose(found.largest_share, 1 / 3)

    def test_who_counts(self):
        found = shrinkage_of(*case(np.random.default_rng(12), shuffled=True))
        np.testing.assert_array_equal(found.counts, [[True, True, False]])


class TestTables:
    @pytest.fixture
    def found(self):
        draws, point = case(np.random.default_rng(13), b=1e-4)
        names = ("age", "dose", "time")
        return shrinkage_of(draws, point, labels=["root"], feature_names=names)

    def test_by_node(self, found):
        frame = found.to_frame()
        assert frame.loc["root", "experts"] == 2
        assert frame.loc["root", "effective_mean"] == pytest.approx(found.effective.mean())
        assert "prior_effective_mean" not in frame

    def test_by_expert_those_that_count(self, found):
        frame = found.to_frame("expert")
        assert frame.index.tolist() == [("root", 0), ("root", 1)]
        assert frame["features"].tolist() == ["age, time", "age, dose"]
        np.testing.assert_allclose(frame["sparsity"], 1 / 3)

    def test_by_coefficient(self, found):
        frame = found.to_frame("coefficient")
        assert len(frame) == 6
        assert frame.loc[("root", 1, "dose"), "coefficient"] == found.coefficient[0, 1, 1]
        assert frame.loc[("root", 1, "time"), "kappa"] == found.kappa[0, 1, 2]

    def test_print(self, found):
        assert "2 x 200 draws" in str(found)
        assert "root" in str(found)

    def test_bad_input(self, found):
        with pytest.raises(ValueError, match="by must be 'node', 'expert' or 'coefficient'"):
            found.to_frame("row")
        with pytest.raises(ValueError, match="level must lie between 0 and 1, got 2"):
            found.to_frame(level=2)


def test_a_tree_without_a_split():
    rng = np.random.default_rng(0)
    draws, _ = case(rng)
    none = {name: values[:, :, :0] for name, values in draws.items()}
    point = {name: values[0, 0] for name, values in none.items()}
    found = shrinkage_of(none, point)
    assert found.kappa.shape == (0, 3, 3)
    assert found.effective.shape == (2, 200, 0)
    assert len(found.to_frame()) == 0
    assert len(found.to_frame("expert")) == len(found.to_frame("coefficient")) == 0
    assert "without a split" in str(found)


def test_a_feature_that_takes_no_part_has_no_factor():
    rng = np.random.default_rng(0)
    draws, point = case(rng)
    plain = shrinkage_of(draws, point, feature_names=("age", "dose", "time"))
    grouped = shrinkage_of(draws, point, scale_groups=[[0, 1, 2]])
    for sites in (draws, point):
        constant = np.zeros((*sites["hyperplane"].shape[:-1], 1))
        sites["hyperplane"] = np.concatenate([constant, sites["hyperplane"]], axis=-1)
    names = ("study", "age", "dose", "time")
    for options in ({}, {"scale_shape": None}, {"scale_shape": None, "l1": 1.0}):
        found = shrinkage_of(draws, point, feature_names=names, **options)
        assert np.isnan(found.kappa[..., 0]).all()
        assert np.isnan(found.positive[..., 0]).all()
        assert not np.isnan(found.kappa[0, :2, 1:]).any()
        assert not found.to_frame("expert")["features"].str.contains("study").any()
        assert found.features_in_use(0).tolist() == [1, 2, 3]
    found = shrinkage_of(draws, point, feature_names=names)
    np.testing.assert_array_equal(
        found.to_frame("expert")["features"], plain.to_frame("expert")["features"]
    )
    np.testing.assert_allclose(found.sparsity, plain.sparsity)
    found = shrinkage_of(draws, point, scale_groups=[[0, 1, 2, 3]])
    np.testing.assert_allclose(found.kappa[..., 1:], grouped.kappa)
