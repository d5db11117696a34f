"""Whole fits by natural gradients: results, settings, refusals, and several trees at once."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree import inference
from bayestree._utils.state import seeded
from bayestree.diagnostics import check_convergence
from bayestree.inference import Data, GrowthLimits, Mcmc, Svi, Vi, convergence, pointwise, vi
from bayestree.inference.variational import vi as method
from bayestree.inference.variational.factors import Factors, Rows
from bayestree.inference.variational.low_rank import LowRankFactors
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Laplace,
    LinearGaussian,
    LiteralGammaProcess,
    Logistic,
    Network,
    Ordinal,
    Outputs,
    Poisson,
    Priors,
    Student,
    Survival,
)
from bayestree.testing import check_every_stop, same_posterior
from bayestree.testing.contract import global_state
from bayestree.topology import Topology
from tests.inference.problems import normal, quadrants, ring, soft_tree, step, triangle
from tests.inference.variational.cases import grown, noisy_line
from tests.sampling import at_least

QUICK = {"n_steps": 12, "n_draws": 5}


def sd(posterior, name="hyperplane"):
    return posterior.draws[name][0].std(0, ddof=1)


def bound_of(posterior):
    """The bound by the draws of a posterior, and its Monte Carlo error."""
    each = (posterior.stats["log_p"] - posterior.stats["log_q"])[0]
    return each.mean(), each.std(ddof=1) / math.sqrt(len(each))


@pytest.mark.parametrize("split", ["polytope", "oblique"])
def test_what_a_fit_returns(split):
    (start,), data = grown(split=split, depth=1)
    found = vi(start.model, data, init=start, kl_weight=0.5, random_state=0, **QUICK)
    assert (found.inference, found.n_chains, found.n_draws) == ("vi", 1, 5)
    assert found.model == start.model
    weights = {"log_weight"} if split == "polytope" else set()
    names = {"hyperplane", "intercept", "shrinkage", "leaf_probs"} | weights
    assert set(found.draws) == set(found.point) == names
    chosen = {"steepness": None, "n_steps": 12, "step_size": 0.3, "batch_size": 2000}
    assert dict(found.settings) == chosen | {"kl_weight": 0.5, "n_sweeps": 0}
    recorded = found.stats
    assert recorded["elbo"].shape == (12,)
    assert float(recorded["n_steps"]) in (12, 22, 32, 42, 52)
    assert float(recorded["n_rows"]) == len(data.X)
    assert recorded["elbo_gain_error"] > 0
    assert recorded["log_p"].shape == recorded["log_q"].shape == (1, 5)
    expected = pointwise.log_joint(found.model_of_draws, [*found.each()], data)
    np.testing.assert_allclose(recorded["log_p"][0], expected)


def test_the_steepness_is_the_stated_one_or_the_model_s():
    (start,), data = grown(depth=1)
    model = start.model.with_(steepness=3.0)
    for stated, expected in ((None, 3.0), (2.0, 2.0)):
        found = vi(model, data, init=start, steepness=stated, random_state=0, **QUICK)
        assert found.model.steepness == expected
    assert [Vi().steepness_for(n) for n in (0, 2, 3)] == [6.0, 1.0, 1.0]


@pytest.mark.portable
@pytest.mark.parametrize("problem", ["line", "ring", "numbers"])
def test_the_bound_is_not_below_that_of_gradients_on_minibatches(problem):
    """SVI has a diagonal covariance, a special case; its errors and those of the draws are left."""
    data, leaf = {
        "line": (noisy_line(150), Categorical(2)),
        "ring": (ring(150, noise=0.1), Categorical(2)),
        "numbers": (step(150), Gaussian()),
    }[problem]
    model = soft_tree(leaf, n_experts=2, steepness=2.0)
    (start,) = inference.Growth(steps=40, n_restarts=2).fit_several(
        model, data, 1, limits=GrowthLimits(1, min_gain=1.0), random_state=0
    )
    other = Svi(epochs=250, batch_size=150, n_draws=200)
    slow = other.fit(start.model, data, init=start, random_state=0)
    found = Vi(n_draws=200).fit(start.model, data, init=start, random_state=0)
    (own, error), (reference, its_error) = bound_of(found), bound_of(slow)
    assert own > reference - 4 * math.hypot(error, its_error)
    assert found.stats["final_elbo"] > found.stats["elbo"][0]
    assert check_convergence(None, found.stats)["elbo"].verdict == "ok"


@pytest.mark.portable
def test_a_planted_half_space_is_found():
    """Two coefficients from 300 rows that they separate err on about 2 / 300 of new rows.

    Three times as much is allowed, and four standard errors.
    """
    rows, new = (normal(n, 2, seed=n) for n in (300, 4000))
    side = [(X @ X.new_tensor([0.8, -0.6]) > 0.3).long() for X in (rows, new)]
    data = Data.of(rows, side[0])
    (start,), _ = grown(data, depth=1)
    found = Vi().fit(start.model, data, init=start, random_state=0)
    share = found.predictive(new.numpy())[0]
    assert (share.argmax(1) == side[1].numpy()).mean() > at_least(1 - 0.02, 4000)


@pytest.mark.portable
def test_a_planted_triangle_is_found():
    """Three half-spaces have eight coefficients: they err on about 8 / 400 of new rows.

    Three times as much is allowed, and four standard errors.
    """
    data, new = triangle(400, seed=0), triangle(4000, seed=1)
    model = soft_tree(n_experts=4)
    (start,) = inference.Growth().fit_several(
        model, data, 1, limits=GrowthLimits(1), random_state=0
    )
    found = Vi().fit(start.model, data, init=start, random_state=0)
    share = found.predictive(new.X.numpy())[0]
    assert (share.argmax(1) == new.y.numpy()).mean() > at_least(1 - 3 * 8 / 400, 4000)


@pytest.mark.portable
def test_without_information_the_factors_are_the_prior():
    priors = Priors(GammaProcess(3.0, 2.0), InverseGammaScale(1.5, 2.0, 0.7))
    starts, data = grown(quadrants(60), n_trees=2, depth=1, priors=priors)
    silent = data._replace(weights=torch.full_like(data.weights, 1e-12))
    stage = Vi(n_steps=400)
    with seeded(0), torch.no_grad():
        factors = Factors.around(starts[0].model, starts, silent)
        stage._climb(factors, Rows.of(silent, factors.model.leaf, full=True), progress=False)
        factors.eval().refresh(steps=50)
    np.testing.assert_allclose(factors.shape, 3.0 / 3, rtol=1e-6)
    np.testing.assert_allclose(factors.rate, 2.0, rtol=1e-6)
    sd = factors.moments.variance.sqrt()
    assert (factors.mean.abs() < 1e-3 * sd).all()
    # Of independent normals with the scales' factors at their optimum, all experts have the same.
    np.testing.assert_allclose(sd, float(sd.mean()), rtol=1e-3)
    correlation = factors.precision / sd.pow(-1).unsqueeze(-1) / sd.pow(-1).unsqueeze(-2)
    np.testing.assert_allclose(correlation, np.broadcast_to(np.eye(3), (2, 3, 3, 3)), atol=1e-3)
    np.testing.assert_allclose(factors.sums, 0.0, atol=1e-9)


@pytest.mark.portable
def test_a_smaller_weight_of_the_divergence_gives_narrower_factors():
    """As many copies of the rows would, as far as the splits are concerned."""
    data = noisy_line(200)
    (start,), _ = grown(data, depth=1, split="oblique")
    wide, narrow = (
        vi(start.model, data, init=start, kl_weight=weight, n_draws=200, random_state=0)
        for weight in (1.0, 0.1)
    )
    # By sqrt(10), if rows said the same at other means. With 200 draws, the ratio of two
    # deviations has a standard error of a tenth; that of the curvatures at the means may be two.
    for name in ("hyperplane", "intercept"):
        assert (sd(wide, name) > 1.5 * sd(narrow, name)).all()

    def likelihood(found):
        return np.mean([float(found.model.log_likelihood(s, *data)) for s in found.each()])

    assert likelihood(narrow) > likelihood(wide)
    assert narrow.stats["final_elbo"] < wide.stats["final_elbo"]


def test_several_trees_have_their_own_results():
    starts, data = grown(n_trees=3)
    stage = Vi(**QUICK)
    found = stage.fit_several(starts[0].model, data, starts, random_state=0)
    assert [one.model.topology for one in found] == [one.model.topology for one in starts]
    for one in found:
        shapes = one.model.shapes(2)
        assert all(value.shape[2:] == shapes[name] for name, value in one.draws.items())
        assert one.stats["elbo"].shape == (12,)
        assert one.stats["final_elbo"].shape == ()
        expected = pointwise.log_joint(one.model_of_draws, [*one.each()], data)
        np.testing.assert_allclose(one.stats["log_p"][0], expected)
    assert len({float(one.stats["final_elbo"]) for one in found}) == 3
    assert len({one.stats["elbo"].tobytes() for one in found}) == 3


def test_several_trees_share_the_prior_of_the_leaves():
    starts, data = grown(step(150), Gaussian(), n_trees=2)
    one, other = Vi(**QUICK).run_several(starts, data, random_state=0)
    assert one.model.leaf == other.model.leaf != starts[0].model.leaf


def test_the_seed_of_several_trees_decides_and_nothing_else_changes():
    starts, data = grown(n_trees=2)
    before = global_state()
    rows = [part.clone() for part in data]
    fits = [
        Vi(batch_size=50, **QUICK).run_several(starts, data, random_state=seed)
        for seed in (3, 3, 4)
    ]
    assert global_state() == before
    assert all(torch.equal(a, b) for a, b in zip(rows, data, strict=True))
    pairs = [*zip(*fits, strict=True)]
    assert all(same_posterior(a, b) and not same_posterior(a, c) for a, b, c in pairs)


class TestSweeps:
    def test_what_is_returned(self):
        (start,), data = grown(depth=2)
        fits = [
            vi(start.model, data, init=start, random_state=0, n_steps=12, n_draws=15, n_sweeps=n)
            for n in (4, 4, 0)
        ]
        moved, again, plain = fits
        assert same_posterior(moved, again)
        assert (moved.n_chains, moved.n_draws, moved.variational) == (1, 15, False)
        assert moved.settings["mirror"]
        assert moved.stats["elbo"].tolist() == plain.stats["elbo"].tolist()
        assert {"log_p", "log_q"}.isdisjoint(moved.stats)
        sites = [*moved.each()]
        expected = pointwise.log_joint(moved.model_of_draws, sites, data)
        np.testing.assert_allclose(moved.stats["lp"][0], expected)
        terms = pointwise.log_likelihood(moved.model, sites, data)
        np.testing.assert_allclose(moved.stats["log_likelihood"][0], terms.sum(axis=1))
        shapes = moved.model.shapes(2)
        assert all(value.shape[2:] == shapes[name] for name, value in moved.draws.items())
        assert all(value.shape == shapes[name] for name, value in moved.point.items())
        assert check_convergence(None, moved.stats).kind == "moved"

    def test_an_interrupted_fit_goes_on(self):
        starts, data = grown(n_trees=2, depth=1)
        stage = Vi(n_steps=2, n_draws=2, n_sweeps=3)
        found = check_every_stop(
            lambda: stage.run_several(starts, data, random_state=0),
            lambda a, b: all(map(same_posterior, a, b)),
            most=8,
        )
        assert "mcmc" in found

    def test_without_information_the_draws_are_those_of_the_prior(self):
        """Draws of the factors are far too alike; sweeps without rows forget where they began."""
        priors = Priors(GammaProcess(3.0, 2.0), InverseGammaScale(1.5, 2.0, 0.7))
        (start,), data = grown(quadrants(60), depth=1, priors=priors)
        silent = data._replace(weights=torch.zeros_like(data.weights))
        given = {"init": start, "random_state": 0, "n_steps": 5, "n_draws": 200}
        found = vi(start.model, silent, n_sweeps=60, **given)
        weight = np.exp(found.draws["log_weight"]).ravel()
        atom = stats.gamma(3.0 / found.model.split.n_experts, scale=1 / 2.0)
        # each chain leaves 20 draws, of which few are independent
        assert abs(weight.mean() - atom.mean()) < 4 * atom.std() / np.sqrt(len(weight) / 20)

    def test_settings_that_cannot_be_swept_are_refused_before_the_fit(self):
        (start,), data = grown(depth=1)
        model = start.model.with_(groups=((0,), (1,)))
        with pytest.raises(ValueError, match="cannot keep facets within groups"):
            vi(model, data, init=start, n_sweeps=5)
        with pytest.raises(ValueError, match="asks for a tempered one"):
            vi(start.model, data, init=start, n_sweeps=5, kl_weight=0.5)

    @pytest.mark.parametrize(("n_draws", "n_sweeps"), [(50, 50), (300, 10), (23, 1), (11, 10)])
    def test_chains_make_as_many_sweeps_as_stated(self, n_draws, n_sweeps, monkeypatch):
        (start,), data = grown(depth=1)
        made = []

        def fit(chains, *args, **given):
            made.append((chains, run(chains, *args, **given)))
            return made[-1][1]

        run = Mcmc.fit
        monkeypatch.setattr(Mcmc, "fit", fit)
        given = {"init": start, "random_state": 0, "n_steps": 2}
        found = vi(start.model, data, n_draws=n_draws, n_sweeps=n_sweeps, **given)
        ((chains, moved),) = made
        assert chains.n_warmup + chains.n_draws * chains.thinning == n_sweeps
        assert 0 <= chains.n_chains * chains.n_draws - n_draws < chains.n_chains
        first = found.draws["intercept"][0, : chains.n_chains]  # every chain leaves a draw
        np.testing.assert_array_equal(first, moved.draws["intercept"][:, 0])

    def test_hyper_priors_are_held_fixed(self):
        priors = Priors(GammaProcess(concentration_prior=(1.0, 1.0)), InverseGammaScale())
        (start,), data = grown(depth=1, priors=priors)
        found = vi(start.model, data, init=start, n_sweeps=2, random_state=0, **QUICK)
        assert found.stats["lp"].shape == (1, 5)


@pytest.mark.parametrize("batch_size", [50, 2000])
def test_an_interrupted_fit_of_several_trees_goes_on(batch_size):
    starts, data = grown(n_trees=2)
    stage = Vi(batch_size=batch_size, n_steps=5, n_draws=2)

    def fit():
        return stage.run_several(starts, data, random_state=0)

    def same(a, b):
        return all(map(same_posterior, a, b))

    assert check_every_stop(fit, same, most=3) == ["vi", "vi, further steps"]


def test_steps_see_as_many_rows_as_stated(monkeypatch):
    starts, data = grown()
    plain, seen = vars(method)["step"], []

    def spied(factors, rows, *others):
        seen.append((len(rows.X), float(rows.weights.sum())))
        return plain(factors, rows, *others)

    monkeypatch.setattr(method, "step", spied)
    for batch_size in (50, len(data.X)):
        Vi(batch_size=batch_size, **QUICK).run_several(starts, data, random_state=0)
        assert {n for n, _ in seen} == {batch_size}
        np.testing.assert_allclose([total for _, total in seen], len(data.X))
        seen.clear()


def side(n=120):
    """Features, and a binary y that depends on the first."""
    X = normal(n, 2, seed=1)
    return X, (X[:, 0] > 0).double()


def of_family(name):
    X, up = side()
    noise, generator = normal(len(X), seed=3), torch.Generator().manual_seed(0)
    number = 2 * up + 0.4 * noise
    uniform = torch.rand(len(X), generator=generator, dtype=torch.float64)
    time = torch.stack((-uniform.log() / (1 + 4 * up), (noise < 1).double()), 1)
    return {
        "categorical": (Categorical(2), up.long()),
        "ordinal": (Ordinal(3), (up + (X[:, 1] > 0.5)).long()),
        "logistic": (Logistic(2), (up + 0.5 * noise > 0.5).long()),
        "gaussian": (Gaussian(), number),
        "student": (Student(), number),
        "linear": (LinearGaussian(), number + X[:, 1]),
        "poisson": (Poisson(), torch.poisson(1 + 4 * up, generator=generator)),
        "survival": (Survival(), time),
        "outputs": (Outputs((Gaussian(), Gaussian())), torch.stack((number, -number), 1)),
    }[name] + (X,)


@pytest.mark.parametrize(
    "name",
    [
        "categorical",
        "ordinal",
        "logistic",
        "gaussian",
        "student",
        "linear",
        "poisson",
        "survival",
        "outputs",
    ],
)
def test_every_family_of_leaves_fits(name):
    leaf, y, X = of_family(name)
    data = Data.of(X, y)
    leaf = leaf.informed(leaf.response(data.X, data.y), data.weights)
    starts, _ = grown(data, leaf, n_trees=2, depth=1)
    found = Vi(n_steps=25, n_draws=4).run_several(starts, data, random_state=0)
    for one in found:
        assert all(np.isfinite(value).all() for value in one.draws.values())
        assert np.isfinite(one.stats["elbo"]).all()
        assert np.isfinite(one.stats["log_p"]).all()
        assert set(one.model.leaf.sites) < set(one.draws)
        assert one.stats["final_elbo"] > one.stats["elbo"][0]
        assert np.isfinite(one.predictive(X.numpy())[0]).all()
    moved = Vi(n_steps=25, n_draws=4, n_sweeps=2).run_several(starts, data, random_state=0)
    for one in moved:
        assert np.isfinite(one.stats["log_likelihood"]).all()
        assert np.isfinite(one.predictive(X.numpy())[0]).all()


def test_rows_of_weight_zero_do_no_harm():
    (start,), data = grown(depth=1)
    data = data._replace(weights=(torch.arange(len(data.X)) < 60).double())
    found = vi(start.model, data, init=start, batch_size=4, random_state=0, **QUICK)
    assert all(np.isfinite(value).all() for value in found.draws.values())
    assert np.isfinite(found.stats["elbo"]).all()


def test_float32_is_fitted_in_double_precision():
    (start,), data = grown(depth=1)
    double = vi(start.model, data, init=start, random_state=0, **QUICK)
    X = data.X.float()
    single = Data.of(X, data.y, data.weights, dtype=torch.float32)
    found = vi(start.model, single, init=start, random_state=0, **QUICK)
    assert Vi().needs_double
    assert found.draws["hyperplane"].dtype == np.float64
    assert double.draws["hyperplane"].dtype == np.float64


MODELS = {
    "laplace": (
        {"priors": Priors(hyperplane=Laplace(0.5))},
        r"needs InverseGammaScale .*got Laplace",
    ),
    "flat": ({"priors": Priors(hyperplane=Flat())}, r"needs InverseGammaScale .*inference='svi'"),
    "literal weights": (
        {"priors": Priors(LiteralGammaProcess())},
        r"inference='vi' needs a GammaProcess .*got LiteralGammaProcess",
    ),
    "monotone": ({"monotone": (1, 0)}, "cannot keep predictions monotone"),
    "plug-in leaves": (
        {"likelihood": "mutual-information"},
        r"inference='vi' needs likelihood 'mixture', got 'mutual-information'",
    ),
    "deterministic": ({"steepness": math.inf}, "needs a finite steepness"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_it_cannot_fit_are_refused(name):
    (start,), data = grown(depth=1)
    changes, message = MODELS[name]
    with pytest.raises(ValueError, match=message):
        vi(start.model.with_(**changes), data, init=start)


def test_starts_that_it_cannot_continue_are_refused():
    starts, data = grown(n_trees=2, depth=1)
    model = starts[0].model
    with pytest.raises(ValueError, match="init has another topology"):
        vi(model.with_(topology=Topology.complete(3)), data, init=starts[0])
    bare, _ = grown(depth=0, data=data)
    with pytest.raises(ValueError, match="The tree has no split: draw the posterior of its leaf"):
        vi(bare[0].model, data, init=bare[0])
    with pytest.raises(ValueError, match="The tree has no split"):
        Vi().fit_several(model, data, [starts[0], *bare])
    with pytest.raises(TypeError, match="vi fits hyperplanes, but the model's split is"):
        vi(model.with_(split=Network(lambda d: torch.nn.Linear(d, 1))), data, init=starts[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": 0}, "n_steps must be an integer of 1 or more"),
        ({"n_draws": 0}, "n_draws must be an integer of 1 or more"),
        ({"batch_size": 0}, "batch_size must be an integer of 1 or more"),
        ({"step_size": 1.5}, "step_size must be"),
        ({"kl_weight": 0.0}, "kl_weight must be a number above 0"),
        ({"steepness": -1.0}, "steepness must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    (start,), data = grown(depth=1)
    with pytest.raises(ValueError, match=message):
        vi(start.model, data, init=start, **settings)


def test_a_fit_goes_on_until_further_steps_gain_nothing(monkeypatch):
    """A few steps of the fit are too few: the rounds that follow raise the bound."""
    (start,), data = grown(depth=1)
    settings = {"n_steps": 4, "n_draws": 2, "step_size": 0.1}
    rounds = []
    plain = Vi._further

    def counted(self, factors, rows):
        assert not rounds or torch.equal(factors.mean, rounds[-1].mean)
        rounds.append(plain(self, factors, rows))
        return rounds[-1]

    gains = []
    measured = convergence.mean_gain

    def recorded(before, after):
        gains.append(measured(before, after))
        return gains[-1]

    monkeypatch.setattr(Vi, "_further", counted)
    monkeypatch.setattr(method, "mean_gain", recorded)
    found = vi(start.model, data, init=start, random_state=0, **settings)
    assert 1 < len(rounds) == len(gains) <= 5
    *gaining, last = (float(one["elbo_gain"][0]) for one in gains)
    assert min(gaining) > 2.0
    assert last <= max(gaining)
    assert float(found.stats["n_steps"]) == 4 + 10 * len(gaining)  # the last are only measured
    assert len(found.stats["elbo"]) == 4


def test_many_columns_have_a_covariance_of_low_rank(monkeypatch):
    """The bound is at least that of SVI with one, from the same start; four errors are left."""
    data = noisy_line(150)
    model = soft_tree(Categorical(2), n_experts=2, steepness=2.0)
    (start,) = inference.Growth(steps=40, n_restarts=2).fit_several(
        model, data, 1, limits=GrowthLimits(1, min_gain=1.0), random_state=0
    )
    slow = Svi(epochs=250, batch_size=150, n_draws=200).fit(
        start.model, data, init=start, random_state=0
    )
    kinds = []
    plain = Vi._climb

    def recorded(self, factors, *given):
        kinds.append(type(factors))
        return plain(self, factors, *given)

    monkeypatch.setattr(Vi, "_climb", recorded)
    for most in (1, 2):
        monkeypatch.setattr(method, "MOST_FULL", most)
        found = Vi(n_draws=200).fit(start.model, data, init=start, random_state=0)
        (own, error), (reference, its_error) = bound_of(found), bound_of(slow)
        assert own > reference - 4 * math.hypot(error, its_error)
    assert kinds == [LowRankFactors, Factors]


def test_a_hyper_prior_is_held_at_its_value():
    (start,), data = grown(depth=1)
    priors = Priors(GammaProcess(rate_prior=(2.0, 1.0)))
    found = vi(start.model.with_(priors=priors), data, init=start, random_state=0, **QUICK)
    assert found.model.priors == priors.fixed()
    assert found.model.priors != priors
