"""Inclusion of columns, on effects of known size and on gradients that autograd confirms."""

import numpy as np
import pytest
import torch

from bayestree.diagnostics import ColumnInclusion, inclusion_probability
from bayestree.diagnostics.inclusion import Effects, Routed, between, node_effects, tree_effects
from bayestree.models import Categorical, Gaussian, Polytope, SoftTree
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology

D = 4
ALONE = [np.array([j]) for j in range(D)]


def drawn(leaf=None, steepness=1.0, n_draws=3, seed=0):
    """Draws of a tree of depth 2 from its prior, and rows."""
    topology = Topology.complete(2)
    model = SoftTree(topology, Polytope(3), leaf=leaf or Categorical(3), steepness=steepness)
    sites = sample_prior(model, D, n_draws, random_state=seed)
    X = np.random.default_rng(seed).normal(size=(40, D))
    return model, sites, X


def routed(model, sites):
    draws = {name: values.numpy()[None] for name, values in sites.items()}
    return Routed(1.0, draws, model.topology, model.steepness)


def effects(size, sd, n_draws=200, seed=0):
    """Draws of normal effects, all as certain as given."""
    size = np.abs(np.asarray(size, dtype=float))
    noise = np.random.default_rng(seed).normal(size=(n_draws, len(size)))
    noise = (noise - noise.mean(axis=0)) / noise.std(axis=0)
    return Effects(size, size + sd * noise, np.full(n_draws, 1 / n_draws))


def chosen(probability, **options):
    names = tuple(f"x{j}" for j in range(len(probability)))
    zero = np.zeros(len(probability))
    found = ColumnInclusion(names, np.asarray(probability), zero, zero, zero[None], ("root",))
    return found.get_support(**options)


class TestEffects:
    @pytest.mark.parametrize("steepness", [1.0, 6.0])
    @pytest.mark.parametrize("leaf", [Categorical(3), Gaussian()])
    def test_gradient_of_the_prediction(self, leaf, steepness):
        model, sites, X = drawn(leaf, steepness)
        total = np.zeros(1)
        for one in range(3):
            own = {name: values[one] for name, values in sites.items()}
            value = own["leaf_probs"] if "leaf_probs" in own else own["leaf_mean"][:, None]
            for c in range(value.shape[1]):
                rows = torch.tensor(between(X), requires_grad=True)
                (model.leaf_log_probs(own, rows).exp() @ value[:, c]).sum().backward()
                total = total + np.eye(value.shape[1])[c] * rows.grad.numpy()[..., None] / 3
        expected = X.std(axis=0) * np.sqrt((total**2).sum(axis=2).mean(axis=0))
        found = tree_effects([routed(model, sites)], X, ALONE, 10)
        np.testing.assert_allclose(found.size, expected)
        np.testing.assert_allclose(found.weights @ found.draws, expected)

    def test_parts_of_a_mixture_count_by_their_weights(self):
        one, other = (routed(*drawn(seed=seed)[:2])._replace(weight=0.25) for seed in (0, 1))
        X = drawn()[2]
        found = tree_effects([one._replace(weight=0.75), other], X, ALONE, 10)
        np.testing.assert_allclose(
            found.size, tree_effects([one, one, one, other], X, ALONE, 10).size
        )

    def test_gradient_of_the_probability_of_a_side(self):
        model, sites, X = drawn(steepness=2.0, n_draws=1)
        rows = torch.tensor(between(X), requires_grad=True)
        own = {name: values[0] for name, values in sites.items()}
        leaf = model.leaf_log_probs(own, rows).exp()
        goes_right = torch.tensor(model.topology.turns[1, 0].astype(float))
        (leaf @ goes_right).sum().backward()
        expected = X.std(axis=0) * np.sqrt((rows.grad.numpy() ** 2).mean(axis=0))
        plain = np.zeros((1, 1), dtype=bool)
        for exchanged in (plain, ~plain):
            found = node_effects(routed(model, sites), 0, X, ALONE, 10, exchanged)
            np.testing.assert_allclose(found.size, expected)

    def test_exchanged_sides_have_the_opposite_effect(self):
        model, sites, X = drawn(n_draws=1)
        twice = {name: value.repeat(2, *[1] * (value.ndim - 1)) for name, value in sites.items()}
        exchanged = np.array([[False, True]])
        found = node_effects(routed(model, twice), 0, X, ALONE, 10, exchanged)
        np.testing.assert_allclose(found.size, 0.0, atol=1e-12)

    def test_order_of_experts_does_not_matter(self):
        model, sites, X = drawn()
        first = tree_effects([routed(model, sites)], X, ALONE, 10)
        order = [2, 0, 1]
        for name in ("hyperplane", "intercept", "log_weight"):
            sites[name][1] = sites[name][1][:, order]
        again = tree_effects([routed(model, sites)], X, ALONE, 10)
        np.testing.assert_allclose(first.draws, again.draws)

    def test_features_of_a_column_count_together(self):
        """Copies of a feature in a column have the mean square of the copies."""
        model, sites, X = drawn()
        alone = tree_effects([routed(model, sites)], X, ALONE, 10)
        pair = tree_effects([routed(model, sites)], X, [np.array([0, 1]), *ALONE[2:]], 10)
        assert pair.size[0] == pytest.approx(np.sqrt((alone.size[:2] ** 2).mean()))
        np.testing.assert_allclose(pair.size[1:], alone.size[2:])

    def test_a_tree_without_a_split(self):
        model, sites, X = drawn()
        none = Routed(1.0, routed(model, sites).draws, Topology.leaf(), 1.0)
        found = tree_effects([none], X, ALONE, 10)
        assert not found.size.any()
        assert not inclusion_probability(found).any()

    def test_sharp_split_of_a_category(self):
        """The rows are at -1 and 1, where a split as sharp as this one has no gradient."""
        X = np.random.default_rng(0).choice([-1.0, 1.0], size=(500, 2))
        draws = {
            "hyperplane": np.array([50.0, 0.0]).reshape(1, 1, 1, 1, 2),
            "intercept": np.zeros((1, 1, 1, 1)),
            "leaf_mean": np.array([[[0.0, 1.0]]]),
        }
        found = tree_effects([Routed(1.0, draws, Topology.stump(), 1.0)], X, ALONE[:2], 1)
        assert found.size[0] > 0.5  # of a change by 1 between levels that are two sd apart
        assert found.size[1] == 0


class TestProbability:
    def test_large_effects_stand_out_from_noise(self):
        """50 effects of size 10 among 450 of normal noise: fewer than one error is expected."""
        noise = np.random.default_rng(0).normal(size=450)
        found = inclusion_probability(effects(np.append(noise, np.full(50, 10.0)), 1.0))
        assert found[450:].min() > 0.9
        assert (found[:450] > 0.9).sum() <= 3
        assert np.median(found[:450]) < 0.1

    def test_pure_noise(self):
        """The largest of 200 effects of noise are near 3 sd, and not called probable."""
        noise = np.random.default_rng(1).normal(size=200)
        found = inclusion_probability(effects(noise, 1.0))
        assert not chosen(found, fdr=0.1).any()

    def test_uncertain_effects_count_less(self):
        size = np.append(np.abs(np.random.default_rng(2).normal(size=48)), [8.0, 8.0])
        sure = effects(size, 1.0)
        draws = sure.draws.copy()
        draws[::2, -1] = 0.0  # half of the draws do not use the last column
        found = inclusion_probability(Effects(size, draws, sure.weights))
        assert found[-2] > 0.9
        assert found[-1] == pytest.approx(0.5 * found[-2], abs=0.1)

    def test_few_columns_are_judged_by_their_posterior(self):
        """Without a null group among three columns, certain effects are still probable."""
        assert inclusion_probability(effects([10.0, 12.0, 9.0], 1.0)).min() > 0.9
        assert inclusion_probability(effects([1.0, 0.5, 0.8], 1.0)).max() < 0.5

    def test_scale_of_the_effects_does_not_matter(self):
        size = np.random.default_rng(3).standard_t(2, size=30)
        one, other = effects(size, 1.0), effects(1e-9 * size, 1e-9)
        np.testing.assert_allclose(
            inclusion_probability(one), inclusion_probability(other), rtol=1e-6
        )

    def test_ignored_columns(self):
        size = np.append(np.random.default_rng(4).normal(size=30), 9.0)
        one = effects(size, 1.0)
        draws = np.pad(one.draws, [(0, 0), (0, 5)])
        more = Effects(np.pad(one.size, (0, 5)), draws, one.weights)
        found = inclusion_probability(more)
        assert not found[-5:].any()
        np.testing.assert_allclose(found[:-5], inclusion_probability(one))


class TestChoice:
    def test_largest_choice_of_the_rate(self):
        probability = [0.2, 0.99, 0.7, 0.95, 0.0]
        assert chosen(probability, fdr=0.02).tolist() == [False, True, False, False, False]
        assert chosen(probability, fdr=0.1, indices=True).tolist() == [1, 3]
        assert chosen(probability, fdr=0.13, indices=True).tolist() == [1, 2, 3]
        assert not chosen([0.5, 0.2], fdr=0.1).any()

    @pytest.mark.parametrize("fdr", [0.0, 1.0, -0.1, 2.0, np.nan])
    def test_wrong_rate(self, fdr):
        with pytest.raises(ValueError, match="fdr must lie between 0 and 1"):
            chosen([0.5], fdr=fdr)

    def test_wrong_node(self):
        with pytest.raises(ValueError, match=r"node must be one of .*'root'.*, got 'L'"):
            chosen([0.5], node="L")
