"""Chains of the No-U-Turn sampler: numbers, records, errors, and posteriors in closed form."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from joblib import Parallel
from scipy import stats

from bayestree.inference import Data, Posterior, nuts
from bayestree.inference.samplers import segments
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.expert_moves import ExpertMoves
from bayestree.inference.samplers.nuts import Nuts
from bayestree.models import (
    Categorical,
    FeatureCount,
    Gaussian,
    InverseGammaScale,
    Laplace,
    Oblique,
    Priors,
)
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology
from tests.models.cases import make, rows
from tests.sampling import assert_law

STATS = (
    "lp",
    "energy",
    "diverging",
    "tree_depth",
    "reached_max_treedepth",
    "n_steps",
    "acceptance_rate",
    "step_size",
    "refreshed",
    "energy_change",
)
SHORT = {"n_chains": 2, "n_warmup": 20, "n_draws": 12, "max_tree_depth": 4, "random_state": 0}


def start(model, n_features=2, n_draws=10, seed=1):
    """Draws of the prior."""
    drawn = sample_prior(model, n_features, n_draws, random_state=seed)
    draws = {name: value.numpy()[None] for name, value in drawn.items()}
    return Posterior(model, draws, {name: v[0, 0] for name, v in draws.items()}, "prior")


def data_for(model, **others):
    return Data.of(*rows(model, n=20, weighted=True, **others))


def sampled(model, **others):
    return nuts(model, data_for(model), init=start(model), **SHORT | others)


def assert_same(one, two):
    for name in one.draws:
        np.testing.assert_array_equal(one.draws[name], two.draws[name], err_msg=name)
    for name in one.stats:
        # the constant of lp comes from the first draw that is kept
        tolerance = 1e-12 if name == "lp" else 0
        np.testing.assert_allclose(one.stats[name], two.stats[name], tolerance, err_msg=name)
    for name in one.point:
        np.testing.assert_array_equal(one.point[name], two.point[name], err_msg=name)


@pytest.fixture(scope="module")
def short():
    return sampled(make(steepness=2.0), keep_warmup=True, mirror=True)


@pytest.fixture(scope="module")
def stump():
    return sampled(make("stump"))


class TestNumbers:
    def test_do_not_depend_on_the_processes(self, short, monkeypatch):
        monkeypatch.setattr(sys.modules["bayestree.inference.samplers.nuts"], "MIN_SECONDS", 0.0)
        both = sampled(make(steepness=2.0), keep_warmup=True, mirror=True, n_jobs=2)
        assert_same(short, both)
        for name, value in short.warmup_draws.items():
            np.testing.assert_array_equal(value, both.warmup_draws[name])

    @pytest.mark.parametrize(("longest", "processes"), [(1, 1), (8, 2)])
    def test_short_runs_start_no_processes(self, monkeypatch, longest, processes):
        """With 64 transitions, 2 steps each take milliseconds, 256 each take seconds."""
        module, seen = sys.modules["bayestree.inference.samplers.nuts"], []

        def here(n_jobs):
            seen.append(n_jobs)
            return Parallel(n_jobs=1)

        monkeypatch.setattr(module, "Parallel", here)
        monkeypatch.setattr(module, "MIN_SECONDS", 1.0)
        sampled(make("stump"), n_jobs=2, max_tree_depth=longest)
        assert seen == [processes]

    def test_another_seed_or_chain_has_other_draws(self, stump):
        other = sampled(make("stump"), random_state=1)
        assert (stump.draws["intercept"] != other.draws["intercept"]).all()
        assert (stump.draws["intercept"][0] != stump.draws["intercept"][1]).any()

    def test_do_not_depend_on_the_segments(self, stump, monkeypatch):
        """A chain holds all that its next stretch needs."""
        # the package has a function of the module's name
        monkeypatch.setattr(sys.modules["bayestree.inference.samplers.nuts"], "SEGMENTS", 3)
        assert_same(stump, sampled(make("stump")))

    def test_warmup_is_only_kept_or_not(self, stump):
        with_it = sampled(make("stump"), keep_warmup=True)
        assert_same(stump, with_it)
        assert not stump.warmup_draws
        assert not stump.warmup_stats
        assert with_it.warmup_draws["intercept"].shape == (2, 20, 1, 3)


class TestRecords:
    def test_shapes(self, short):
        assert short.inference == "nuts"
        assert short.n_chains == 2
        assert short.n_draws == 12
        shapes = {
            "log_weight": (3, 3),
            "hyperplane": (3, 3, 2),
            "intercept": (3, 3),
            "shrinkage": (3, 3),
            "leaf_probs": (4, 3),
        }
        assert short.draws.keys() == shapes.keys() == short.point.keys()
        for name, shape in shapes.items():
            assert short.draws[name].shape == (2, 12, *shape)
            assert short.warmup_draws[name].shape == (2, 20, *shape)
            assert short.point[name].shape == shape
        np.testing.assert_allclose(short.draws["leaf_probs"].sum(-1), 1)
        assert short.stats.keys() == short.warmup_stats.keys() == set(STATS)
        for name in STATS:
            assert short.stats[name].shape == (2, 12)
            assert short.warmup_stats[name].shape == (2, 20)
        assert short.stats["diverging"].dtype == bool
        assert short.stats["reached_max_treedepth"].dtype == bool
        assert short.settings["mirror"] is True
        assert short.settings["n_warmup"] == 20

    @pytest.mark.parametrize(
        "parts",
        [
            {"steepness": 2.0},
            {"fit": "gaussian-mixture"},
            {"split": Oblique()},
            {"weight": "gamma-hyper", "topology": "stump"},
            {"hyperplane": "explicit"},
        ],
        ids=["plain", "gaussian", "oblique", "hyper", "explicit"],
    )
    def test_lp_is_the_log_joint(self, parts):
        model = make(**parts)
        found = sampled(model, n_warmup=5, n_draws=6, keep_warmup=True, mirror=True)
        data = data_for(model)
        assert found.model == model.collapsed()
        early = replace(found, draws=found.warmup_draws, stats=found.warmup_stats)
        for part in (found, early):
            expected = [float(found.model.log_joint(sites, *data)) for sites in part.each()]
            np.testing.assert_allclose(part.stats["lp"].ravel(), expected, rtol=1e-9)

    def test_step_size_is_tuned_and_then_kept(self, short):
        assert (np.ptp(short.stats["step_size"], axis=1) == 0).all()
        assert (np.ptp(short.warmup_stats["step_size"], axis=1) > 0).all()
        assert ((short.stats["acceptance_rate"] >= 0) & (short.stats["acceptance_rate"] <= 1)).all()
        assert (short.stats["tree_depth"] <= 4).all()
        assert (short.stats["n_steps"] < 2**4).all()

    def test_refreshed_is_a_share(self):
        found = sampled(make("stump"), n_refreshes=4)
        assert set(np.unique(4 * found.stats["refreshed"])) <= {0, 1, 2, 3, 4}
        assert found.stats["refreshed"].max() > 0
        none = sampled(make("stump"), n_refreshes=0)
        assert (none.stats["refreshed"] == 0).all()

    @pytest.mark.parametrize("n_refreshes", [1, 3])
    def test_mirrors_come_with_the_first_refresh(self, n_refreshes, monkeypatch):
        calls = []
        monkeypatch.setattr(
            ExpertMoves,
            "mirror",
            lambda _, vector, now, rng: calls.append(1) or (vector, now),
        )
        model = make("stump")
        found = sampled(model, n_refreshes=n_refreshes, mirror=True, n_warmup=0)
        assert len(calls) == 2 * 12 * ((n_refreshes + 1) // 2)
        assert found.settings["mirror"]

    def test_point_predicts_as_all_draws_do(self):
        model = make("complete")
        found = sampled(model, n_draws=30)
        X = data_for(model).X.numpy()
        mean, _ = found.predictive(X)
        gaps = []
        for sites in [found.point_sites(), *found.each()]:
            said = found.leaf_probs(X, sites) @ sites["leaf_probs"].numpy()
            gaps.append(((said - mean) ** 2).sum())
        assert gaps[0] == min(gaps[1:])

    def test_hyper_parameters_are_drawn(self):
        quick = {"n_warmup": 15, "n_draws": 6, "max_tree_depth": 3, "mirror": True}
        found = sampled(make("stump", weight="gamma-hyper"), **quick)
        for name in ("concentration", "rate"):
            assert found.draws[name].shape == (2, 6)
            assert (found.draws[name] > 0).all()
            assert len(np.unique(found.draws[name])) > 2
        assert (found.stats["refreshed"] == 0).all()

    def test_starts_near_a_point(self):
        model = make("stump")
        point = Posterior.from_point(model, start(model).sites(0, 0), "map")
        found = nuts(model, data_for(model), init=point, **SHORT)
        assert (found.draws["intercept"][0] != found.draws["intercept"][1]).all()


class TestWindows:
    @pytest.mark.parametrize("n_warmup", [0, 1, 2, 5, 30, 100, 500, 1000, 5000])
    def test_of_the_warm_up(self, n_warmup):
        settings = Nuts(n_warmup=n_warmup)
        ends = settings.windows
        if n_warmup < 2:
            assert ends == []
            return
        assert ends[-1] == int(0.9 * n_warmup)
        widths = np.diff([int(0.15 * n_warmup), *ends])
        assert (widths[1:-1] == 2 * widths[:-2]).all()
        assert (widths > 0).all()

    def test_five_hundred(self):
        settings = Nuts(n_warmup=500)
        assert settings.windows == [100, 150, 250, 450]

    @pytest.mark.parametrize("total", [1, 2, 19, 20, 21, 1000])
    def test_segments(self, total):
        lengths = segments(total, 20)
        assert sum(lengths) == total
        assert len(lengths) == min(total, 20)
        assert max(lengths) - min(lengths) <= 1

    def test_without_warm_up(self):
        found = sampled(make("stump"), n_warmup=0, n_draws=3)
        assert np.isfinite(found.stats["lp"]).all()
        assert (np.ptp(found.stats["step_size"], axis=1) == 0).all()


def test_thinning_keeps_every_third_draw():
    settings = {"n_chains": 2, "n_warmup": 20, "max_tree_depth": 4, "random_state": 0}
    every = sampled(make(), **settings | {"n_draws": 12})
    third = sampled(make(), **settings | {"n_draws": 4, "thinning": 3})
    for name, values in every.draws.items():
        np.testing.assert_array_equal(values[:, 2::3], third.draws[name])
    np.testing.assert_array_equal(every.stats["n_steps"][:, 2::3], third.stats["n_steps"])
    whole = every.stats["diverging"].reshape(2, 4, 3)
    np.testing.assert_array_equal(whole.any(-1), third.stats["diverging"])
    # E-BFMI needs the changes of the energy from one transition to the next
    changes = every.stats["energy_change"]
    np.testing.assert_allclose(changes[:, 1:], np.abs(np.diff(every.stats["energy"])))
    squares = (changes**2).reshape(2, 4, 3).mean(-1)
    np.testing.assert_allclose(third.stats["energy_change"] ** 2, squares)


class TestErrors:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"n_chains": 0}, "n_chains must be an integer of 1 or more"),
            ({"n_draws": 0}, "n_draws must be an integer of 1 or more"),
            ({"max_tree_depth": 0}, "max_tree_depth must be an integer of 1 or more"),
            ({"n_warmup": -1}, "n_warmup must be an integer of 0 or more"),
            ({"n_refreshes": -1}, "n_refreshes must be an integer of 0 or more"),
            ({"thinning": 0}, "thinning must be an integer of 1 or more"),
            ({"n_slides": -1}, "n_slides must be an integer of 0 or more"),
            ({"time_limit": 0.0}, "time_limit must be a number above 0"),
            ({"target_acceptance": 1.0}, "target_acceptance must be a number above 0 and below 1"),
            ({"target_acceptance": 0.0}, "target_acceptance must be a number above 0 and below 1"),
        ],
    )
    def test_settings(self, settings, message):
        with pytest.raises(ValueError, match=message):
            sampled(make("stump"), **settings)

    def test_a_run_that_would_take_too_long_ends_early(self):
        model = make("stump")
        settings = {"n_chains": 1, "n_warmup": 20, "n_draws": 40, "max_tree_depth": 4}
        whole = nuts(model, data_for(model), init=start(model), random_state=0, **settings)
        # its gradients take two seconds or less by the forecast, and at least a hundredth
        with pytest.raises(RuntimeError, match=r"first 5\d transitions .* than time_limit=0.01"):
            sampled(model, **settings, time_limit=0.01)
        for limit in (60.0, None):
            assert_same(whole, sampled(model, **settings, time_limit=limit))

    def test_models(self):
        model = make("stump")
        data, init = data_for(model), start(model)
        with pytest.raises(ValueError, match="another topology"):
            nuts(make("complete"), data, init=init)
        with pytest.raises(ValueError, match="'mixture'"):
            nuts(make("stump", fit="mutual-information"), data, init=init)
        with pytest.raises(ValueError, match="proper priors on the weights"):
            nuts(make("stump", weight="literal"), data, init=init)
        with pytest.raises(ValueError, match="finite steepness"):
            nuts(model.with_(steepness=math.inf), data, init=init)
        count = model.with_(priors=Priors(hyperplane=FeatureCount()))
        with pytest.raises(ValueError, match="no gradient to follow"):
            nuts(count, data, init=init)
        alone = model.with_(topology=Topology.leaf())
        with pytest.raises(ValueError, match="no split"):
            nuts(alone, data, init=start(alone))

    @pytest.mark.parametrize(
        "parts",
        [
            {"split": make("stump").split.__class__(4)},
            {"leaf": Categorical(4)},
            {"leaf": Gaussian()},
            {"split": Oblique()},
        ],
        ids=["experts", "classes", "leaves", "split"],
    )
    def test_starts_of_another_model(self, parts):
        model = make("stump")
        with pytest.raises(ValueError, match="The start needs a site"):
            nuts(model, data_for(model), init=start(model.with_(**parts)), **SHORT)

    def test_starts_of_other_features(self):
        model = make("stump")
        with pytest.raises(ValueError, match="'hyperplane' of shape"):
            nuts(model, data_for(model), init=start(model, n_features=3), **SHORT)

    def test_saturated_starts_are_no_cause_for_a_warning(self):
        """A row whose log-odds of going right are beyond exp is still a row."""
        model = make("stump", steepness=6.0)
        init = start(model)
        init.draws["hyperplane"][...] = 0.0
        init.draws["intercept"][...] = -150.0
        found = nuts(model, data_for(model), init=init, **SHORT | {"n_warmup": 2, "n_draws": 2})
        assert np.isfinite(found.stats["lp"]).all()


class TestShrinkages:
    def test_redrawn_given_the_coefficients(self):
        """Independent joint draws keep the joint distribution of b and its coefficients."""
        prior = InverseGammaScale(0.7, 2.0, 0.5)
        rng = np.random.default_rng(0)
        n = 4000
        b = rng.gamma(2.0, 1 / 0.5, (n, 1))
        coefficient = np.sqrt(b / 0.7)[..., None] * rng.standard_t(1.4, (n, 1, 3))
        free = {
            "hyperplane": coefficient[..., :2].copy(),
            "intercept": coefficient[..., 2].copy(),
            "shrinkage": np.log(b),
        }
        prior.redraw(free, rng)
        np.testing.assert_array_equal(free["hyperplane"], coefficient[..., :2])
        np.testing.assert_array_equal(free["intercept"], coefficient[..., 2])
        again = np.exp(free["shrinkage"])
        assert (again != b).all()
        law = stats.gamma(2.0, scale=2.0)
        assert stats.kstest(again[:, 0], law.cdf).pvalue > 1e-4
        for of_feature in np.moveaxis(coefficient[:, 0], -1, 0):
            # jointly: coefficients in units of the new b are again Student-t
            unit = of_feature / np.sqrt(again[:, 0] / 0.7)
            assert stats.kstest(unit, stats.t(1.4).cdf).pvalue > 1e-4

    def test_given_what_is_fixed(self):
        """Its law given the coefficients is that of the density, by quadrature."""
        prior = InverseGammaScale(0.7, 2.0, 0.5)
        coefficient = np.array([0.3, -2.0, 0.05])
        free = {
            "hyperplane": coefficient[None, None, :2].copy(),
            "intercept": coefficient[None, 2:].copy(),
            "shrinkage": np.zeros((1, 1)),
        }
        rng, draws = np.random.default_rng(0), []
        for _ in range(6000):
            prior.redraw(free, rng)
            draws.append(free["shrinkage"][0, 0])
        thin = np.array(draws)[1000::5]
        grid = np.linspace(-8, 5, 4001)
        b = np.exp(grid)
        log_density = 2.0 * grid - 0.5 * b - 1.5 * grid
        log_density -= 1.2 * np.log1p(coefficient[:, None] ** 2 / (2 * b)).sum(0)
        density = np.exp(log_density - log_density.max())
        cumulative = np.cumsum(density) / density.sum()
        assert stats.kstest(thin, lambda x: np.interp(x, grid, cumulative)).pvalue > 1e-4


class TestFixedPriors:
    """Priors with no sites except the hyperplanes."""

    def test_lp_is_the_log_joint(self):
        model = make("stump").with_(priors=Priors(hyperplane=Laplace(2.0, intercept_scale=3.0)))
        found = sampled(model, mirror=True)
        expected = [float(model.log_joint(sites, *data_for(model))) for sites in found.each()]
        np.testing.assert_allclose(found.stats["lp"].ravel(), expected, rtol=1e-9)
        assert found.draws.keys() == {"log_weight", "hyperplane", "intercept", "leaf_probs"}
        layout = Layout(model, 2)
        vectors = [layout.vector(sites) for sites in found.each()]
        assert (np.ptp(vectors, axis=0) > 0).all()  # every coordinate moves
        assert (found.stats["refreshed"] == 0).all()

    @pytest.mark.statistical
    def test_without_rows_draws_are_those_of_the_prior(self):
        prior = Laplace(2.0, intercept_scale=3.0)
        model = make("stump", split=Oblique()).with_(priors=Priors(hyperplane=prior))
        data = data_for(model)._replace(weights=torch.zeros(20, dtype=torch.float64))
        settings = {"n_chains": 1, "n_warmup": 200, "n_draws": 1500, "random_state": 0}
        found = nuts(model, data, init=start(model), **settings)
        draws = {name: value[0].reshape(1500, -1) for name, value in found.draws.items()}
        assert_law(draws["hyperplane"], stats.laplace(scale=0.5))
        assert_law(draws["intercept"], stats.norm(scale=3))


class TestConjugate:
    """Rows whose way is certain: the posterior of the leaves is in closed form."""

    def test_categorical(self):
        y = np.array([0, 2, 0, 2, 1, 2, 0, 2, 0, 0] * 4)
        leaf = Categorical(3, 0.8)
        data = sides(y, np.linspace(0.5, 2, len(y)))
        draws = leaves_of_a_sure_split(leaf, data)["leaf_probs"]
        for side in range(2):
            counts = np.bincount(y[side::2], data.weights.numpy()[side::2], minlength=3) + 0.8 / 3
            assert_law(draws[:, side], stats.beta(counts, counts.sum() - counts))

    @pytest.mark.statistical
    def test_gaussian(self):
        y = np.random.default_rng(0).normal(size=30) + np.tile([-2.0, 1.0], 15)
        leaf, data = Gaussian(0.1, 0.5, 3.0, 0.7), sides(y, None)
        draws = leaves_of_a_sure_split(leaf, data)
        for side in range(2):
            known = leaf.posterior(leaf.statistics(data.y, data.weights)[side::2].sum(0)[None])
            a, rate, strength, loc = (
                float(v[0]) for v in (known.shape, known.rate, known.strength, known.loc)
            )
            scale = math.sqrt(rate / (a * strength))
            assert_law(draws["leaf_mean"][:, side, None], stats.t(2 * a, loc=loc, scale=scale))
            variance = draws["leaf_scale"][:, side, None] ** 2
            assert_law(variance, stats.invgamma(a, scale=rate))


def sides(y, weights):
    """Rows far to the left and far to the right in turn."""
    X = torch.tensor([[-1e4], [1e4]], dtype=torch.float64).repeat(len(y) // 2, 1)
    return Data.of(X, y, weights)


def leaves_of_a_sure_split(leaf, data):
    """Draws of the leaves of a stump that is so steep that no row wavers."""
    model = make("stump", split=Oblique(), steepness=50.0).with_(leaf=leaf)
    half = torch.stack([leaf.statistics(data.y, data.weights)[side::2].sum(0) for side in (0, 1)])
    sites = {name: value[0] for name, value in sample_prior(model, 1, 1, random_state=0).items()}
    sites |= leaf.posterior(half).mean()
    sites["hyperplane"][...], sites["intercept"][...] = 5.0, 0.0
    found = nuts(
        model,
        data,
        init=Posterior.from_point(model, sites, "known"),
        n_chains=1,
        n_warmup=150,
        n_draws=600,
        n_refreshes=0,
        # slides change the hyperplane by orders of magnitude, and one mass matrix cannot suit all
        n_slides=0,
        max_tree_depth=4,
        target_acceptance=0.8,
        random_state=0,
    )
    steep = found.draws["hyperplane"][0, :, 0, 0, 0]
    assert (1e4 * steep > np.abs(found.draws["intercept"][0, :, 0, 0])).all()
    return {name: value[0] for name, value in found.draws.items()}
