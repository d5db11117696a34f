"""Log-densities on unconstrained vectors: against the model, and their gradients."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.inference import Data
from bayestree.inference.samplers.density import (
    Layout,
    NumpyDensity,
    TorchDensity,
    density_of,
)
from bayestree.models import Flat, Laplace, Spatial
from bayestree.models.leaves import Site
from bayestree.models.soft_tree import sample_prior
from tests.models.cases import FITS, TOPOLOGIES, Oblique, make, rows
from tests.strategies import seeds

LEAVES = ("categorical-mixture", "gaussian-mixture", "linear-mixture")
COMBINATIONS = [
    pytest.param(
        {"topology": topology, "fit": fit, "split": split, "steepness": steepness},
        id=f"{topology}-{fit.split('-')[0]}-{'oblique' if split else 'polytope'}-{steepness:.0f}",
    )
    for topology, fit, split, steepness in product(
        TOPOLOGIES, LEAVES, (None, Oblique()), (1.0, 6.0)
    )
]
PENALTIES = (
    Flat(),
    Laplace(0.7),
    Laplace(1.6, intercept_scale=3.0),
    Spatial(0.7, (2, 3)),
    Spatial(0.7, (1, 3, 2)),
)
HYPER = ("gamma-hyper", "gamma-rate-hyper")


def data_for(model, *, weighted=True, **others):
    return Data.of(*rows(model, weighted=weighted, **others))


def normal(length, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=length)


def differences(function, vector, step=1e-5):
    """Central finite differences."""
    result = np.empty_like(vector)
    for j in range(len(vector)):
        above, below = vector.copy(), vector.copy()
        above[j] += step
        below[j] -= step
        result[j] = (function(above) - function(below)) / (2 * step)
    return result


class TestDensities:
    @pytest.mark.parametrize("parts", COMBINATIONS)
    def test_agree_up_to_a_constant(self, parts):
        model = make(**parts)
        data = data_for(model)
        fast, slow = NumpyDensity(model, data), TorchDensity(model, data)
        vectors = [normal(fast.layout.length, seed, scale=2.0) for seed in range(5)]
        gaps = []
        for vector in vectors:
            value, gradient = fast.value_and_gradient(vector)
            known, expected = slow.value_and_gradient(vector)
            assert value == pytest.approx(fast.value(vector), rel=1e-12)
            assert known == pytest.approx(slow.value(vector), rel=1e-12)
            np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-9)
            gaps.append(known - value)
        np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-9 * max(1, abs(known)))

    @pytest.mark.parametrize("parts", COMBINATIONS)
    def test_gradient_is_that_of_the_value(self, parts):
        model = make(**parts)
        density = NumpyDensity(model, data_for(model))
        vector = normal(density.layout.length, seed=3, scale=0.7)
        _, gradient = density.value_and_gradient(vector)
        # central differences err by step**2 times the third derivative
        np.testing.assert_allclose(
            gradient, differences(density.value, vector), rtol=1e-5, atol=1e-5
        )

    @pytest.mark.parametrize("prior", PENALTIES, ids=str)
    @pytest.mark.parametrize("split", [None, Oblique()], ids=["polytope", "oblique"])
    def test_agree_under_other_priors(self, prior, split):
        model = make(split=split)
        model = model.with_(priors=replace(model.priors, hyperplane=prior))
        data = data_for(model, n_features=6)
        fast, slow = density_of(model, data), TorchDensity(model, data)
        assert isinstance(fast, NumpyDensity)
        gaps = []
        for seed in range(3):
            vector = normal(fast.layout.length, seed, scale=2.0)
            value, gradient = fast.value_and_gradient(vector)
            known, expected = slow.value_and_gradient(vector)
            assert value == pytest.approx(fast.value(vector), rel=1e-12)
            np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-9)
            gaps.append(known - value)
        np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-9 * max(1, abs(known)))

    @pytest.mark.parametrize("weight", ["gamma", *HYPER])
    @pytest.mark.parametrize("fit", LEAVES)
    def test_is_the_log_joint_and_the_jacobian(self, fit, weight):
        model = make(fit=fit, weight=weight, steepness=2.0)
        data = data_for(model)
        density = TorchDensity(model, data)
        for seed in range(3):
            vector = normal(density.layout.length, seed)
            sites = {n: torch.as_tensor(v) for n, v in density.layout.sites(vector).items()}
            expected = float(model.log_joint(sites, *data)) + density.layout.log_jacobian(vector)
            assert density.value(vector) == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("weight", HYPER)
    @pytest.mark.parametrize("kind", [NumpyDensity, TorchDensity])
    def test_gradient_with_hyper_priors(self, weight, kind):
        model = make(weight=weight)
        density = kind(model, data_for(model))
        vector = normal(density.layout.length, scale=0.7)
        _, gradient = density.value_and_gradient(vector)
        np.testing.assert_allclose(
            gradient, differences(density.value, vector), rtol=1e-5, atol=1e-5
        )

    @pytest.mark.parametrize("weight", HYPER)
    def test_agree_under_hyper_priors(self, weight):
        model = make(weight=weight)
        data = data_for(model)
        fast, slow = NumpyDensity(model, data), TorchDensity(model, data)
        vectors = [normal(fast.layout.length, seed, scale=2.0) for seed in range(5)]
        for vector in vectors:
            np.testing.assert_allclose(
                fast.value_and_gradient(vector)[1],
                slow.value_and_gradient(vector)[1],
                rtol=1e-7,
                atol=1e-9,
            )
        gaps = [slow.value(vector) - fast.value(vector) for vector in vectors]
        np.testing.assert_allclose(gaps, gaps[0], rtol=1e-11)

    def test_scales_are_integrated_out(self):
        data = data_for(make())
        vector = normal(NumpyDensity(make(), data).layout.length)
        for kind in (NumpyDensity, TorchDensity):
            explicit = kind(make(hyperplane="explicit"), data)
            assert "hyperplane_scale" not in explicit.layout.places
            assert explicit.value(vector) == kind(make(), data).value(vector)

    def test_rows_count_as_often_as_their_weight(self):
        """A row of weight 2 is a row said twice; one of weight 0 is no row."""
        model = make()
        X, y, _ = rows(model, n=3)
        weighted = NumpyDensity(model, Data.of(X, y, [2.0, 1.0, 0.0]))
        spelt = NumpyDensity(model, Data.of(X[[0, 0, 1]], y[[0, 0, 1]]))
        vector = normal(weighted.layout.length)
        assert weighted.value(vector) == pytest.approx(spelt.value(vector), rel=1e-12)
        np.testing.assert_allclose(
            weighted.value_and_gradient(vector)[1], spelt.value_and_gradient(vector)[1], rtol=1e-9
        )

    @pytest.mark.parametrize("fit", LEAVES)
    def test_calls_do_not_affect_each_other(self, fit):
        """Arrays are used again, but neither results nor arguments are among them."""
        model = make(fit=fit)
        data = data_for(model)
        density = NumpyDensity(model, data)
        vectors = [normal(density.layout.length, seed, scale=2.0) for seed in range(3)]
        found = [density.value_and_gradient(vector) for vector in vectors]
        for seed, (vector, (value, gradient)) in enumerate(zip(vectors, found, strict=True)):
            np.testing.assert_array_equal(vector, normal(len(vector), seed, scale=2.0))
            alone = NumpyDensity(model, data)
            assert alone.value(vector) == density.value(vector) == value
            np.testing.assert_array_equal(alone.value_and_gradient(vector)[1], gradient)

    def test_float32_rows_are_taken_in_double_precision(self):
        model = make(fit="gaussian-mixture")
        X, y, _ = rows(model)
        single = Data.of(X, y, dtype=torch.float32)
        fast, slow = NumpyDensity(model, single), TorchDensity(model, single)
        vectors = [normal(fast.layout.length, seed) for seed in range(2)]
        gaps = [slow.value(vector) - fast.value(vector) for vector in vectors]
        assert gaps[0] == pytest.approx(gaps[1], rel=1e-11)


class TestLayout:
    @pytest.mark.parametrize("fit", LEAVES)
    @pytest.mark.parametrize("weight", ["gamma", *HYPER])
    def test_jacobian(self, fit, weight):
        """Its determinant, by automatic differentiation; class probabilities less the last."""
        model = make("stump", fit=fit, weight=weight)
        layout = Layout(model.collapsed(), 2)

        def sites(vector):
            parts = []
            for name, place in layout.places.items():
                part = vector[place]
                if name == "leaf_probs":
                    part = part.view(layout.shapes[name][0], -1)
                    part = torch.softmax(torch.nn.functional.pad(part, (0, 1)), -1)[:, :-1]
                elif layout.supports[name] != "real":
                    part = part.exp()
                parts.append(part.flatten())
            return torch.cat(parts)

        vector = normal(layout.length)
        mine = [
            value[..., :-1] if name == "leaf_probs" else value
            for name, value in layout.sites(vector).items()
        ]
        torch_vector = torch.from_numpy(vector)
        np.testing.assert_allclose(np.concatenate([m.ravel() for m in mine]), sites(torch_vector))
        matrix = torch.autograd.functional.jacobian(sites, torch_vector)
        assert layout.log_jacobian(vector) == pytest.approx(float(matrix.slogdet().logabsdet))

    @given(
        seed=seeds(),
        topology=st.sampled_from(list(TOPOLOGIES)),
        fit=st.sampled_from(LEAVES),
        weight=st.sampled_from(["gamma", *HYPER]),
        n_features=st.integers(1, 3),
    )
    @settings(max_examples=40, deadline=None)
    def test_round_trip(self, seed, topology, fit, weight, n_features):
        model = make(topology, fit=fit, weight=weight)
        layout = Layout(model.collapsed(), n_features)
        drawn = sample_prior(model, n_features, 1, random_state=seed % 2**31)
        sites = {name: drawn[name][0].numpy() for name in layout.shapes}
        again = layout.sites(layout.vector(sites))
        assert again.keys() == sites.keys()
        for name, value in sites.items():
            np.testing.assert_allclose(again[name], value, rtol=1e-9, err_msg=name)
        vector = normal(layout.length, seed)
        np.testing.assert_allclose(layout.vector(layout.sites(vector)), vector, atol=1e-9)

    @pytest.mark.parametrize("fit", LEAVES)
    def test_many_vectors_at_once(self, fit):
        layout = Layout(make(fit=fit, weight="gamma-hyper").collapsed(), 2)
        vectors = normal(6 * layout.length).reshape(2, 3, -1)
        sites, jacobian = layout.sites(vectors), layout.log_jacobian(vectors)
        assert jacobian.shape == (2, 3)
        for at in np.ndindex(2, 3):
            assert jacobian[at] == pytest.approx(layout.log_jacobian(vectors[at]), rel=1e-12)
            for name, value in layout.sites(vectors[at]).items():
                assert value.shape == layout.shapes[name]
                np.testing.assert_array_equal(sites[name][at], value)

    def test_every_coordinate_has_one_place(self):
        for fit in LEAVES:
            layout = Layout(make(fit=fit, weight="gamma-hyper").collapsed(), 2)
            vector = np.arange(float(layout.length))
            found = np.concatenate([np.ravel(value) for value in layout.free(vector).values()])
            np.testing.assert_array_equal(found, vector)
            # the sampler holds the shrinkages apart and relies on this
            assert list(layout.places)[-1] == "shrinkage"

    def test_free_is_a_view(self):
        layout = Layout(make().collapsed(), 2)
        vector = np.zeros(layout.length)
        layout.free(vector)["shrinkage"][...] = 1
        layout.free(vector)["hyperplane"][0] += 2
        assert vector.sum() == 9 * 1 + 6 * 2

    def test_starts_that_do_not_fit(self):
        model = make()
        layout = Layout(model.collapsed(), 2)
        drawn = sample_prior(model, 2, 1, random_state=0)
        sites = {name: drawn[name][0].numpy() for name in layout.shapes}
        absent = {name: value for name, value in sites.items() if name != "shrinkage"}
        with pytest.raises(ValueError, match=r"'shrinkage' of shape \(3, 3\), got none"):
            layout.vector(absent)
        with pytest.raises(ValueError, match=r"'intercept' of shape .* got shape \(3, 2\)"):
            layout.vector(sites | {"intercept": sites["intercept"][:, :2]})
        with pytest.raises(ValueError, match="'leaf_probs' must be positive and finite"):
            layout.vector(sites | {"leaf_probs": np.eye(4, 3)})
        with pytest.raises(ValueError, match="'hyperplane' must be finite"):
            layout.vector(sites | {"hyperplane": np.full((3, 3, 2), np.nan)})


class TestExtremes:
    """Extreme points of a trajectory give numbers or a clear error, and no warnings."""

    @pytest.mark.parametrize("steepness", [1.0, 6.0])
    @pytest.mark.parametrize("fit", LEAVES)
    @pytest.mark.parametrize(
        ("site", "value"),
        [
            ("log_weight", -700.0),
            ("log_weight", -800.0),
            ("log_weight", 20.0),
            ("intercept", -1e4),
            ("intercept", 1e4),
            ("hyperplane", 1e6),
            ("shrinkage", -200.0),
            ("shrinkage", 200.0),
        ],
    )
    def test_stay_finite(self, site, value, fit, steepness):
        model = make(fit=fit, steepness=steepness)
        data = data_for(model)
        fast, slow = NumpyDensity(model, data), TorchDensity(model, data)
        vector = normal(fast.layout.length)
        fast.layout.free(vector)[site][...] = value
        found, gradient = fast.value_and_gradient(vector)
        assert math.isfinite(found)
        assert np.isfinite(gradient).all()
        near = fast.layout.vector(
            {n: v[0].numpy() for n, v in sample_prior(model, 2, 1, random_state=0).items()}
        )
        gap = slow.value(near) - fast.value(near)
        assert slow.value(vector) == pytest.approx(found + gap, rel=1e-9)

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_sure_leaves(self, sign):
        model = make(fit="categorical-mixture")
        density = NumpyDensity(model, data_for(model))
        vector = normal(density.layout.length)
        density.layout.free(vector)["leaf_probs"][...] = sign * 800.0
        value, gradient = density.value_and_gradient(vector)
        assert math.isfinite(value)
        assert np.isfinite(gradient).all()

    def test_a_saturated_vote_is_exact(self):
        """log P(left) = -s where s is large, and log P(right) = log s where it is small."""
        model = make("stump", split=Oblique(), fit="categorical-mixture")
        X = torch.tensor([[0.0]], dtype=torch.float64)
        density = NumpyDensity(model, Data.of(X, [0]))
        prior = NumpyDensity(model, Data.of(X, [0], [0.0]))
        for intercept in (-300.0, 300.0):
            vector = np.zeros(density.layout.length)
            free = density.layout.free(vector)
            free["intercept"][...] = intercept
            free["leaf_probs"][0, 0], free["leaf_probs"][1, 0] = 500.0, -500.0
            # P(y = 0) is 1 on the left and exp(-500) on the right, nearly
            here = density.value(vector) - prior.value(vector)
            assert here == pytest.approx(-300.0 if intercept > 0 else 0.0, abs=1e-9)


class TestDensityOf:
    def test_the_written_out_one_where_it_covers(self):
        data = data_for(make())
        assert isinstance(density_of(make(), data), NumpyDensity)
        assert isinstance(density_of(make(hyperplane="explicit"), data), NumpyDensity)
        for weight in HYPER:
            assert isinstance(density_of(make(weight=weight), data), NumpyDensity)

    @pytest.mark.parametrize("fit", [fit for fit in FITS if fit not in LEAVES])
    def test_plug_in_leaves(self, fit):
        model = make(fit=fit)
        with pytest.raises(ValueError, match=f"'mixture', got '{model.likelihood}'"):
            density_of(model, data_for(model))

    def test_improper_weights(self):
        with pytest.raises(ValueError, match="needs proper priors on the weights"):
            density_of(make(weight="literal"), data_for(make()))

    def test_priors_of_ones_own(self):
        class Own(Flat):
            def log_prob(self, sites):
                return -sites["hyperplane"].square().sum()

        model = make("stump")
        own = model.with_(priors=replace(model.priors, hyperplane=Own()))
        density = density_of(own, data_for(model))
        assert isinstance(density, TorchDensity)
        flat = TorchDensity(
            own.with_(priors=replace(model.priors, hyperplane=Flat())), data_for(model)
        )
        vector = normal(density.layout.length)
        square = (density.layout.free(vector)["hyperplane"] ** 2).sum()
        assert density.value(vector) == pytest.approx(flat.value(vector) - square)

    def test_priors_of_ones_own_with_other_sites(self):
        class Own(Flat):
            def state(self, size, like, plates):
                with plates.node, plates.expert:
                    pyro.sample("hyperplane_scale", dist.HalfNormal(like.new_ones(2)).to_event(1))
                return super().state(size, like, plates)

        model = make("stump")
        own = model.with_(priors=replace(model.priors, hyperplane=Own()))
        with pytest.raises(ValueError, match=r"does not know the sites \['hyperplane_scale'\]"):
            density_of(own, data_for(model))

    def test_priors_of_ones_own_with_sites_of_their_own(self, monkeypatch):
        class Own(Flat):
            sites: Any = ("spread",)

            def state(self, size, like, plates):
                with plates.node, plates.expert:
                    pyro.sample("spread", dist.HalfNormal(like.new_ones(())))
                return super().state(size, like, plates)

            def log_prob(self, sites):
                return dist.HalfNormal(1.0).log_prob(sites["spread"]).sum()

        model = make("stump")
        own = model.with_(priors=replace(model.priors, hyperplane=Own()))
        with pytest.raises(
            ValueError, match=r"supports of the sites \['spread'\] of the priors: declare"
        ):
            density_of(own, data_for(model))
        monkeypatch.setattr(Own, "sites", {"spread": Site(("node", "expert"), "positive")})
        density = density_of(own, data_for(model))
        vector = normal(density.layout.length)
        assert (density.layout.sites(vector)["spread"] > 0).all()
        _, gradient = density.value_and_gradient(vector)
        place = density.layout.places["spread"]
        np.testing.assert_allclose(gradient[place], 1 - np.exp(2 * vector[place]))

    def test_weights_that_are_not_there_need_no_prior(self):
        model = make(split=Oblique(), weight="literal")
        density = density_of(model, data_for(model))
        assert math.isfinite(density.value(np.zeros(density.layout.length)))
