"""Posteriors under improper priors: determined by the rows, or not."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from bayestree import inference
from bayestree.inference import Data, GrowthLimits, Posterior, grow, nuts, svi
from bayestree.inference.convergence import coefficient_balance, warn_of_undetermined
from bayestree.models import (
    Categorical,
    FeatureCount,
    Flat,
    Gaussian,
    InverseGammaScale,
    Laplace,
    Oblique,
    Priors,
    SoftTree,
    Spatial,
)
from bayestree.topology import Topology


def half_plane(n=300, *, separated, d=2):
    """Classes on two sides of a line, that overlap or do not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    score = 1.5 * X[:, 0] - 0.5 * X[:, 1] + 0.3
    y = score > 0 if separated else rng.random(n) < 1 / (1 + np.exp(-3 * score))
    return Data.of(X, y.astype(int))


def stump(data, prior):
    model = SoftTree(Topology.leaf(), split=Oblique(), leaf=Categorical(2))
    init = grow(model, data, limits=GrowthLimits(1), random_state=0)
    assert init.model.topology.n_nodes == 1
    return init.model.with_(priors=Priors(hyperplane=prior)), init


def fit(separated, prior, **others):
    data = half_plane(separated=separated)
    model, init = stump(data, prior)
    settings = {"epochs": 300, "batch_size": 300, "random_state": 0} | others
    return svi(model, data, init=init, **settings)


class TestSVI:
    @pytest.mark.parametrize("covariance", ["diagonal", "expert"])
    def test_overlapping_rows_hold_the_coefficients(self, covariance):
        found = fit(separated=False, prior=Flat(), covariance=covariance)
        balance, error = (found.stats[f"coefficient_balance{of}"][0] for of in ("", "_error"))
        assert abs(balance + 1) < 4 * error

    @pytest.mark.parametrize("prior", [Flat(), Spatial(0.1, (1, 2))], ids=str)
    def test_separated_rows_do_not(self, prior):
        if isinstance(prior, Spatial):
            prior = replace(prior, strength=1e-6)
        with pytest.warns(ConvergenceWarning, match=r"1 of 1 nodes \(0\)"):
            found = fit(separated=True, prior=prior)
        assert found.stats["coefficient_balance"][0] > -0.5

    @pytest.mark.parametrize("prior", [Laplace(1.0), InverseGammaScale()], ids=str)
    def test_a_prior_holds_them(self, prior):
        found = fit(separated=True, prior=prior)
        assert ("coefficient_balance" in found.stats) != prior.proper

    def test_tempered(self):
        found = fit(separated=False, prior=Flat(), kl_weight=0.2)
        balance, error = (found.stats[f"coefficient_balance{of}"][0] for of in ("", "_error"))
        assert abs(balance + 1) < 4 * error

    @pytest.mark.parametrize("guide", ["AutoNormal", "AutoDelta"])
    def test_guides_of_pyro(self, guide):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            epochs = {"AutoNormal": 300, "AutoDelta": 10}[guide]
            found = fit(separated=False, prior=Flat(), guide=guide, epochs=epochs, n_draws=60)
        assert ("coefficient_balance" in found.stats) == (guide == "AutoNormal")


class TestNUTS:
    @pytest.mark.parametrize("separated", [False, True])
    def test_balance(self, separated):
        data = half_plane(separated=separated)
        model, init = stump(data, Flat())
        settings = {"n_chains": 1, "n_warmup": 100, "random_state": 0}
        settings["n_draws"] = 20 if separated else 200
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            found = nuts(model, data, init=init, **settings)
        assert bool(caught) == separated
        assert found.stats["coefficient_balance"].shape == (1,)
        assert "coefficient_balance" in found.to_arviz().sample_stats


def test_balance_of_normal_draws_is_minus_one():
    """For a density with a known slope: leaves of one value, and a ridge instead of rows."""

    class Ridge(Flat):
        def log_prob(self, sites):
            return -sum(((sites[s] - 3) ** 2).sum() / 2 for s in ("hyperplane", "intercept"))

    model = SoftTree(Topology.stump(), split=Oblique(), priors=Priors(hyperplane=Ridge()))
    rng = np.random.default_rng(0)
    draws = {
        "hyperplane": rng.normal(3, 1, size=(1, 150, 1, 1, 4)),
        "intercept": rng.normal(3, 1, size=(1, 150, 1, 1)),
        "leaf_probs": np.full((1, 150, 2, 2), 0.5),
    }
    posterior = Posterior(model, draws, {n: v[0, 0] for n, v in draws.items()}, "normal")
    data = Data.of(torch.zeros(5, 4, dtype=torch.float64), torch.zeros(5, dtype=torch.long))
    found = coefficient_balance(posterior, data)
    gap = found["coefficient_balance"] + 1
    assert abs(gap[0]) < 4 * found["coefficient_balance_error"][0]
    # x (3 - x) with x ~ N(3, 1) has the mean -1 and the variance 9 + 2, of which 5 are averaged
    expected = math.sqrt(11 / 5 / 150)
    assert found["coefficient_balance_error"][0] == pytest.approx(expected, rel=0.25)


def test_nodes_are_named_where_chance_is_no_excuse():
    posterior = Posterior(
        SoftTree(Topology.stump(), priors=Priors(hyperplane=Flat())),
        {},
        {},
        "svi",
        stats={
            "coefficient_balance": np.array([-1.0, -0.9, -0.7, -0.7, 0.0]),
            "coefficient_balance_error": np.array([0.1, 0.05, 0.01, 0.1, 0.3]),
        },
    )
    with pytest.warns(ConvergenceWarning, match=r"2 of 5 nodes \(2, 4\)"):
        warn_of_undetermined(posterior)


def test_many_rows_are_thinned_and_count_for_all(monkeypatch):
    found = fit(separated=False, prior=Flat())
    data = half_plane(separated=False)
    twice = Data.of(data.X.repeat_interleave(2, 0), data.y.repeat_interleave(2))
    heavy = Data.of(data.X, data.y, torch.full((300,), 2.0))
    whole = coefficient_balance(found, heavy)
    monkeypatch.setattr("bayestree.inference.convergence.BALANCE_ROWS", 300)
    thinned = coefficient_balance(found, twice)
    np.testing.assert_allclose(thinned["coefficient_balance"], whole["coefficient_balance"])


def test_a_prior_without_a_gradient_is_refused():
    data = half_plane(50, separated=False)
    model, init = stump(data, FeatureCount())
    for method in (inference.map, inference.em, svi, nuts):
        with pytest.raises(ValueError, match="has no gradient to follow: fit the tree by"):
            method(model, data, init=init)


def test_infinite_steepness_is_refused():
    data = half_plane(50, separated=False)
    model, init = stump(data, Laplace())
    for method in (svi, nuts):
        with pytest.raises(ValueError, match="needs a finite steepness"):
            method(model.with_(steepness=math.inf), data, init=init)


@pytest.mark.parametrize("prior", [Laplace(3.0), Spatial(2.0, (1, 2))], ids=str)
@pytest.mark.parametrize("leaf", [Categorical(2), Gaussian()], ids=["classes", "reals"])
def test_map_climbs_them(prior, leaf):
    data = half_plane(100, separated=False)
    if isinstance(leaf, Gaussian):
        data = Data.of(data.X, data.y.double())
    model = SoftTree(Topology.leaf(), split=Oblique(), leaf=leaf)
    init = grow(model, data, limits=GrowthLimits(1), random_state=0)
    settings = {"init": init, "optimiser": "lbfgs", "steepness": (1.0, 1.0), "random_state": 0}
    free, held = (
        inference.map(init.model.with_(priors=Priors(hyperplane=p)), data, **settings)
        for p in (Flat(), prior)
    )
    cost = [float(prior.log_prob(found.point_sites())) for found in (free, held)]
    assert cost[1] > cost[0]
