"""Diagnostics of fitted trees, against their predictions and draws."""

import re
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_text,
    load,
)
from bayestree.diagnostics.polytopes import leaves_in_use
from bayestree.fitted.diagnostics import PRIOR_DRAWS, measure_nodes, prior_of_node
from bayestree.inference import Map, Svi, Vi
from bayestree.models import Flat, GammaProcess, LiteralGammaProcess, Oblique, Priors, SoftTree
from bayestree.topology import Topology

LOG2 = np.log(2.0)
FAST = {
    "n_modes": 1,
    "max_depth": 2,
    "n_experts": 4,
    "min_gain": 1.0,
    "inference": Svi(epochs=10, n_draws=8),
    "random_state": 0,
}
FITS = {
    "svi": {},
    "oblique": {"n_experts": 1},
    "map": {"inference": Map(epochs=10, steepness=None)},
    "grow": {"inference": "grow"},
}


def ring(n=300, seed=0):
    generator = np.random.default_rng(seed)
    Z = generator.normal(size=(n, 2))
    noise = generator.random(n) < 0.05
    y = (np.hypot(*Z.T) > 1.1) ^ noise
    # columns of unlike units, so that the scaling inside is at work
    return pd.DataFrame(Z * [100.0, 0.01] + [5000.0, 0.3], columns=["depth", "dose"]), y


@pytest.fixture(scope="module", params=FITS)
def classifier(request):
    return ConvexPolytopeTreeClassifier(**FAST | FITS[request.param]).fit(*ring())


@pytest.fixture(scope="module", params=["svi", "map"])
def regressor(request):
    X, _ = ring()
    y = 50 + 10 * (X["depth"] - 5000).abs()
    return ConvexPolytopeTreeRegressor(**FAST | FITS[request.param]).fit(X, y), X, y


@pytest.fixture(scope="module")
def sampled():
    return ConvexPolytopeTreeClassifier(**FAST | FITS["svi"]).fit(*ring())


class TestPolytopeSize:
    def test_prior_and_leaves(self, classifier):
        size = classifier.polytope_size()
        n_nodes = classifier.tree_.n_nodes
        assert size.prior.facets.shape == (PRIOR_DRAWS, n_nodes)
        assert size.prior.weights.shape == (PRIOR_DRAWS, n_nodes)
        n_experts = classifier.posterior_.model.split.n_experts
        assert (size.prior.facets <= n_experts).all()
        draws = classifier.posterior_.draws["intercept"].shape[:2]
        assert size.n_leaves.shape == draws
        assert (size.n_leaves >= 1).all()
        assert (size.n_leaves <= classifier.posterior_.model.topology.n_leaves).all()
        assert "Leaves in use" in str(size)

    def test_leaves_are_those_the_training_rows_reach(self, sampled):
        rows = sampled.fitted_.scaling.standardise(ring()[0].to_numpy())
        expected = leaves_in_use(sampled.posterior_.draws, sampled.posterior_.model.topology, rows)
        np.testing.assert_array_equal(sampled.polytope_size().n_leaves, expected)

    def test_the_prior_is_the_same_at_every_call(self, sampled):
        one, two = sampled.polytope_size(), sampled.polytope_size()
        np.testing.assert_array_equal(one.prior.facets, two.prior.facets)
        assert len(sampled.polytope_size(max_draws=2).prior.facets) == 20

    def test_saved_and_loaded(self, sampled, tmp_path):
        sampled.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        one, two = sampled.polytope_size(), again.polytope_size()
        pd.testing.assert_frame_equal(one.to_frame(), two.to_frame())
        for measure in (None, "cutting", "facets", "weights", "effective"):
            np.testing.assert_array_equal(
                one.prior_probabilities(measure), two.prior_probabilities(measure)
            )
        np.testing.assert_array_equal(one.n_leaves, two.n_leaves)


def test_texts_fit_on_a_line(sampled):
    X, y = ring()
    texts = [
        sampled.polytope_size(20),
        sampled.facets(),
        sampled.rule_probability(X),
        sampled.column_inclusion(X),
        sampled.importance(X, y, n_repeats=1, max_draws=4),
        sampled.posterior_,
    ]
    for text in texts:
        prose = [line for line in str(text).split("\n") if "  " not in line]
        assert max(map(len, prose)) <= 100, max(prose, key=len)


def test_a_printed_posterior_has_shapes_instead_of_draws(sampled):
    text = repr(sampled.posterior_)
    assert text.startswith("Posterior by 'svi': 1 chain of 8 draws, ")
    draws = sampled.posterior_.draws
    assert f"hyperplane {draws['hyperplane'].shape}" in text
    assert "Polytope(n_experts=4)" in text
    assert "Categorical(" in text
    assert len(text.split("\n")) == 5 + len(draws)


class TestSingleLeafOfDrawsThatSplit:
    """The point estimate has one leaf, but nothing is silent about the draws."""

    @pytest.fixture
    def pruned(self, sampled):
        """The tree cut to its root, as by a split of the point that sends all rows one way."""
        fitted, X = sampled.fitted_.shown, ring()[0].to_numpy()
        tree, kept = fitted.tree.pruned(X, len(X))
        assert tree.n_nodes == len(kept) == 0
        standard = fitted.scaling.standardise(X)
        reach = measure_nodes(fitted.posterior, tree, X, standard, np.zeros(0, dtype=int))
        found = copy(sampled)
        found.fitted_ = found.fitted_.alone(replace(fitted, tree=tree, reach=reach, sparsity=None))
        return found, ring()[0]

    def test_the_leaves_of_the_draws_are_stated(self, pruned):
        clf, X = pruned
        share = (clf.fitted_.shown.reach.leaves > 1).mean()
        assert share > 0.5
        for found in (clf.polytope_size(), clf.split_uncertainty(X)):
            assert f"a tree without a split; {share:.0%} of the draws split" in str(found)
            assert re.search(r"Leaves in use by a draw: \d+ \(\d+ to \d+\)", str(found))
        assert clf.polytope_size().leaf_probabilities()[2:].sum() == pytest.approx(share)
        assert "mutual_information" in str(clf.split_uncertainty(X)), "of y, which needs no split"

    def test_other_texts_point_to_them(self, pruned):
        clf, X = pruned
        assert "its leaf, which has no other" in str(clf.rule_probability(X))
        assert "polytope_size() has the leaves of its draws" in str(clf.shrinkage())
        with pytest.raises(ValueError, match=r"polytope_size\(\) has the number of leaves"):
            clf.facets()
        assert "polytope_size() gives the posterior" in export_text(clf).replace("\n", " ")


class TestPriorOfNode:
    def test_law(self):
        model = SoftTree(Topology.leaf(), priors=Priors(GammaProcess(3.0, 2.0)))
        drawn = prior_of_node(model, 2, 4000)
        assert drawn["hyperplane"].shape == (4000, 20, 2)
        assert drawn["intercept"].shape == (4000, 20)
        # the weights of a node sum to Gamma(3, rate 2): mean 1.5, variance 0.75
        total = np.exp(drawn["log_weight"]).sum(axis=1)
        assert total.mean() == pytest.approx(1.5, abs=4 * (0.75 / 4000) ** 0.5)

    def test_no_weights(self):
        drawn = prior_of_node(SoftTree(Topology.leaf(), split=Oblique()), 2, 3)
        assert drawn.keys() == {"hyperplane", "intercept"}

    @pytest.mark.parametrize("priors", [Priors(LiteralGammaProcess()), Priors(hyperplane=Flat())])
    def test_improper(self, priors):
        assert prior_of_node(SoftTree(Topology.leaf(), priors=priors), 2, 3) is None

    def test_the_callers_randomness_is_left_alone(self):
        torch.manual_seed(1)
        expected = torch.rand(2)
        torch.manual_seed(1)
        prior_of_node(SoftTree(Topology.leaf()), 2, 3)
        assert torch.equal(torch.rand(2), expected)


class TestFacets:
    def test_of_each_node(self, classifier):
        for number, label in enumerate(classifier.tree_.topology.node_labels):
            one, two = classifier.facets(label), classifier.facets(number)
            assert one.node == label
            assert one.feature_names == ("depth", "dose")
            pd.testing.assert_frame_equal(one.to_frame(), two.to_frame())
            sizes = classifier.polytope_size()
            assert one.counts.sum() == sizes.cutting[..., number].sum()
            every = classifier.facets(number, min_share=0.0)
            assert every.counts.sum() == sizes.facets[..., number].sum()

    def test_orientations_are_told_apart(self):
        """Some draws have a node with its sides exchanged; its border is the same."""
        X, y = load_iris(return_X_y=True)
        inference = Vi(n_sweeps=50)
        clf = ConvexPolytopeTreeClassifier(inference=inference, n_modes=1, random_state=0)
        exchanged = clf.fit(X, y).fitted_.shown.matches.exchanged.mean(axis=(0, 1))
        node = int(np.abs(exchanged - 0.5).argmin())
        assert 0.1 < exchanged[node] < 0.9
        (most, *_) = clf.facets(node).probability
        assert most > 0.85

    def test_nodes_are_found_in_the_posterior(self, sampled):
        """If ``tree_`` lacks nodes of the soft tree, the two are numbered differently."""
        other = copy(sampled)
        fitted = sampled.fitted_.shown
        others = sampled.posterior_.model.topology.n_nodes - 1 - fitted.reach.nodes
        other.fitted_ = other.fitted_.alone(
            replace(fitted, reach=fitted.reach._replace(nodes=others))
        )
        sizes = other.polytope_size().facets
        assert (sizes != sampled.polytope_size().facets).any()
        for number in range(len(sampled.tree_.topology.node_labels)):
            found = other.facets(number, min_share=0.0)
            assert found.counts.sum() == sizes[..., number].sum()

    def test_shares_outside_0_to_1_are_refused(self, sampled):
        with pytest.raises(ValueError, match=r"min_share must lie between 0 and 1, got 1\.5"):
            sampled.facets(min_share=1.5)

    def test_a_variational_fit_says_so_in_its_first_line(self, classifier):
        variational = classifier.posterior_.inference == "svi"
        for found in (classifier.facets(), classifier.polytope_size()):
            assert ("variational fit" in str(found).splitlines()[0]) == variational

    def test_a_point_is_its_own_polytope(self):
        """The facets of one draw are those of the tree, in the units of the data."""
        X, y = ring()
        one = ConvexPolytopeTreeClassifier(**FAST | FITS["map"]).fit(X, y)
        found, tree = one.facets(min_share=0.0), one.tree_
        np.testing.assert_array_equal(found.probability, 1)
        reach, scale = one.fitted_.shown.reach, tree.scale
        low = reach.low[0] * scale + tree.center
        high = reach.high[0] * scale + tree.center
        corners = np.random.default_rng(0).uniform(low, high, size=(2000, 2))
        inside = (corners @ found.normal.T <= found.offset).all(axis=1)
        # the left side is inside the enclosing polytope
        left = one.split_uncertainty(pd.DataFrame(corners, columns=X.columns)).outside[:, 0] == 0
        assert left.any()
        assert not (left & ~inside).any()
        # ... and a facet less encloses more
        for spared in range(len(found.offset)):
            others = np.arange(len(found.offset)) != spared
            wider = (corners @ found.normal[others].T <= found.offset[others]).all(axis=1)
            assert (wider & ~inside).any()

    def test_units_of_x_do_not_matter(self, sampled):
        X, y = ring()
        other = ConvexPolytopeTreeClassifier(**FAST | FITS["svi"]).fit(X / 8 - 16, y)
        one, two = sampled.facets(), other.facets()
        np.testing.assert_allclose(two.probability, one.probability)
        np.testing.assert_allclose(two.normal, one.normal, atol=1e-6)
        offset = (one.offset + one.normal @ [-128, -128]) / 8
        np.testing.assert_allclose(two.offset, offset, rtol=1e-6)

    @pytest.mark.parametrize("node", ["LLLL", -1, 99, 1.0, None])
    def test_other_nodes_are_refused(self, sampled, node):
        with pytest.raises(ValueError, match=r"node must be .*root"):
            sampled.facets(node)

    def test_a_tree_without_a_split(self):
        one = ConvexPolytopeTreeClassifier(**FAST | {"max_depth": 0}).fit(*ring())
        with pytest.raises(ValueError, match="the tree is a single leaf"):
            one.facets()


class TestShrinkage:
    def test_shapes(self, classifier):
        found = classifier.shrinkage()
        n_nodes = classifier.tree_.n_nodes
        n_chains, n_draws, _, n_experts = classifier.posterior_.draws["intercept"].shape
        assert found.weight.shape == (n_chains, n_draws, n_nodes, n_experts)
        assert found.prior_weight.shape == (PRIOR_DRAWS, n_experts)
        assert found.kappa.shape == (n_nodes, n_experts, 2)
        assert found.labels == classifier.tree_.topology.node_labels
        assert (np.diff(found.weight, axis=-1) <= 0).all()
        assert np.isnan(found.kappa).all() == (n_chains * n_draws == 1)
        assert not (found.kappa > 1).any()
        assert not (found.kappa < 0).any()
        assert found.counts.any(axis=1).all()
        for by in ("node", "expert", "coefficient"):
            assert len(found.to_frame(by))

    @pytest.mark.portable
    def test_a_feature_of_noise_is_shrunk(self):
        generator = np.random.default_rng(0)
        X = generator.normal(size=(600, 4))
        y = (X[:, 0] > 0.3) ^ (generator.random(600) < 0.02)
        one = ConvexPolytopeTreeClassifier(
            n_modes=1,
            max_depth=1,
            n_experts=3,
            inference=Svi(epochs=40, steepness=1.0),
            random_state=0,
        ).fit(X, y)
        found = one.shrinkage()
        leading = np.abs(found.coefficient[0, :, 0]).argmax()
        kappa = found.kappa[0, leading]
        assert kappa[0] < 0.2
        assert (kappa[1:] > 2 * kappa[0]).all()

    def test_tempering_is_known(self):
        X, y = ring()
        tempered = FAST | FITS["svi"] | {"inference": Svi(epochs=10, kl_weight=0.25, n_draws=8)}
        one = ConvexPolytopeTreeClassifier(**tempered).fit(X, y)
        found = one.shrinkage().kappa
        one.posterior_.settings["kl_weight"] = 1.0
        np.testing.assert_allclose(np.minimum(found * 4, 1), one.shrinkage().kappa)


class TestSplitUncertainty:
    def test_the_posterior_predicts_what_it_is_said_to(self, classifier):
        X, _ = ring(seed=1)
        found = classifier.split_uncertainty(X)
        mean, _ = classifier.posterior_.predictive(
            classifier.fitted_.scaling.standardise(X.to_numpy())
        )
        entropy = -(mean * np.log(mean)).sum(axis=1)
        np.testing.assert_allclose(found.total_entropy, entropy, rtol=1e-6)
        assert (found.mutual_information >= 0).all()
        one_draw = classifier.posterior_.n_draws == 1
        assert (found.sd == 0).all() == one_draw
        if one_draw:
            np.testing.assert_array_equal(found.mutual_information, 0)
            np.testing.assert_array_equal(found.interval[..., 0], found.interval[..., 1])

    @pytest.mark.portable
    def test_sides_are_those_of_the_tree(self, classifier):
        X, _ = ring(seed=1)
        found, tree = classifier.split_uncertainty(X), classifier.tree_
        rows = X.to_numpy()
        for node, own, right in tree.walk(rows):
            np.testing.assert_array_equal(found.right[own, node], right)
        outside = np.where(found.right, 1 - found.disagreement, found.disagreement)
        np.testing.assert_allclose(outside, found.outside)
        if classifier.posterior_.n_draws == 1:
            # drop_experts may move 2 in 1,000 of the training rows of each node to the other side
            fitted = ring()[0]
            moved = classifier.split_uncertainty(fitted).disagreement
            for node, own, _ in tree.walk(fitted.to_numpy()):
                assert moved[own, node].mean() <= 0.002
        # The posterior is one of all facets, from which a sparse tree moves some rows.
        path = classifier.fitted_.shown.sparsity
        moved_by_projection = 0.0 if path is None else 1 - path.agreement[-1]
        assert (found.best_leaf == tree.apply(rows)).mean() > 0.9 - moved_by_projection
        assert found.leaf_labels == tree.topology.leaf_labels

    @pytest.mark.portable
    def test_variance_of_y(self, regressor):
        model, X, y = regressor
        found = model.split_uncertainty(X)
        _, sd = model.predict(X, return_std=True)
        np.testing.assert_allclose(found.explained, sd**2, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(found.total_variance, found.expected_variance + found.explained)
        assert found.total_entropy is None
        # in the units of y, whose square is some 400,000 times that of the draws; how well so short
        # a fit knows its own error is not at stake
        error = ((y - model.predict(X)) ** 2).mean()
        assert 0.01 < found.total_variance.mean() / error < 100

    @pytest.mark.portable
    def test_a_grid_gives_a_band(self, sampled):
        """Levels .05, .5 and .95 of ``outside`` are nested, and the middle one is the border."""
        axis = [np.linspace(4700, 5300, 40), np.linspace(0.27, 0.33, 40)]
        grid = pd.DataFrame(
            np.stack(np.meshgrid(*axis), axis=-1).reshape(-1, 2), columns=["depth", "dose"]
        )
        found = sampled.split_uncertainty(grid)
        outside = found.outside[:, 0]
        assert set((outside * 8).round(9)) <= set(range(9))
        assert outside.min() == 0
        assert outside.max() == 1
        assert ((outside > 0) & (outside < 1)).any()
        assert ((outside > 0.5) == found.right[:, 0]).mean() > 0.95

    def test_other_columns_are_refused(self, sampled):
        with pytest.raises(ValueError, match="feature names"):
            sampled.split_uncertainty(ring()[0].rename(columns={"dose": "other"}))


@pytest.mark.parametrize("name", ["facets", "shrinkage", "polytope_size"])
def test_not_fitted(name):
    with pytest.raises(NotFittedError):
        getattr(ConvexPolytopeTreeClassifier(), name)()
    with pytest.raises(NotFittedError):
        ConvexPolytopeTreeClassifier().split_uncertainty([[0.0]])
