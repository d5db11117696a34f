"""Draws from the prior have the distributions that the model states."""

import math

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from scipy import stats

from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.models.soft_tree import improper_priors, sample_prior, site_names
from bayestree.topology import Topology
from bayestree.tree import LOG2, facet_threshold
from tests.models.cases import FITS, HYPERPLANES, TOPOLOGIES, WEIGHTS, make, rows, traced
from tests.strategies import seeds

PARTS = [
    {"split": split, "weight": weight, "hyperplane": hyperplane, "fit": fit}
    for split, weight in [
        (Polytope(3), "gamma"),
        (Polytope(3), "gamma-hyper"),
        (Polytope(3), "gamma-rate-hyper"),
        (Polytope(3), "literal"),
        (Polytope(1), "gamma"),
        (Oblique(), "gamma"),
    ]
    for hyperplane in HYPERPLANES
    for fit in FITS
]
PROPER = [
    (weight, hyperplane, fit)
    for weight in ("gamma", "gamma-hyper", "gamma-rate-hyper")
    for hyperplane in ("collapsed", "explicit")
    for fit in ("categorical-mixture", "gaussian-mixture", "mutual-information")
]


def name_of(parts):
    split = type(parts["split"]).__name__ + str(parts["split"].n_experts)
    return "-".join([split, parts["weight"], parts["hyperplane"], parts["fit"]])


def assert_joint_is_that_of_the_trace(model, weighted=False, seed=0):
    X, y, weights = rows(model, weighted=weighted)
    trace, sites = traced(model, X, y, weights, seed=seed)
    expected = float(trace.log_prob_sum())
    assert float(model.log_joint(sites, X, y, weights)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("parts", PARTS, ids=name_of)
def test_log_joint_is_what_the_pyro_model_sums_to(parts):
    assert_joint_is_that_of_the_trace(make(**parts))


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("steepness", [1.0, 0.5, 6.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_log_joint_holds_for_weights_steepness_and_topologies(topology, fit, steepness, weighted):
    model = make(topology=topology, fit=fit, steepness=steepness)
    for seed in range(3):
        assert_joint_is_that_of_the_trace(model, weighted, seed)


@pytest.mark.parametrize("parts", PARTS[:12] + PARTS[-12:], ids=name_of)
def test_sites_have_the_names_and_shapes_of_the_contract(parts):
    model = make(**parts)
    X, y, _ = rows(model)
    trace, sites = traced(model, X, y)
    shapes = model.shapes(2)
    for name, value in sites.items():
        assert value.shape == shapes[name], name
        assert value.dtype == torch.float64
    assert set(sites) <= set(model.dimensions)
    expected = {"hyperplane", "intercept"}
    if model.split.weighted:
        expected |= {"log_weight"}
        weight = trace.nodes["weight"]["value"]
        assert torch.equal(weight, sites["log_weight"].exp())
    if model.likelihood == "mixture":
        expected |= set(model.leaf.sites)
    assert expected <= set(sites)


@pytest.mark.parametrize("fit", ["categorical-mixture", "gaussian-mixture"])
def test_minibatches_estimate_the_log_likelihood_without_bias(fit):
    model = make(fit=fit)
    X, y, weights = rows(model, n=30, weighted=True)
    _, sites = traced(model, X, y)
    full = float(model.log_likelihood(sites, X, y, weights))
    estimates = []
    for seed in range(200):
        trace, _ = traced(poutine.condition(model, sites), X, y, weights, 7, seed=seed)
        trace.compute_log_prob()
        estimates.append(float(trace.nodes["obs"]["log_prob_sum"]))
    error = np.std(estimates) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - full) < 4 * error
    assert error > 0


@pytest.mark.parametrize("fit", ["mutual-information", "variance"])
def test_a_minibatch_of_all_rows_is_the_objective_of_all_rows(fit):
    model = make(fit=fit)
    X, y, weights = rows(model, weighted=True)
    _, sites = traced(model, X, y)
    trace, _ = traced(poutine.condition(model, sites), X, y, weights, len(X))
    trace.compute_log_prob()
    found = float(trace.nodes["obs"]["log_prob_sum"])
    assert found == pytest.approx(float(model.log_likelihood(sites, X, y, weights)), rel=1e-10)


@pytest.mark.parametrize("fit", FITS)
def test_a_weight_counts_a_row_so_many_times(fit):
    model = make(fit=fit)
    X, y, _ = rows(model)
    _, sites = traced(model, X, y)
    counts = torch.arange(len(X)) % 4
    repeated = model.log_likelihood(
        sites, X.repeat_interleave(counts, 0), y.repeat_interleave(counts)
    )
    weighted = model.log_likelihood(sites, X, y, counts.to(X))
    assert float(weighted) == pytest.approx(float(repeated), rel=1e-10)


@pytest.mark.parametrize("fit", ["categorical-mixture", "gaussian-mixture"])
def test_mixture_is_the_sum_over_leaves(fit):
    model = make(fit=fit, steepness=2.0)
    X, y, _ = rows(model)
    _, sites = traced(model, X, y)
    leaf = model.leaf_log_probs(sites, X).exp().numpy()
    if fit.startswith("categorical"):
        density = sites["leaf_probs"].numpy()[:, y.numpy()].T
    else:
        mean, scale = sites["leaf_mean"].numpy(), sites["leaf_scale"].numpy()
        z = (y.numpy()[:, None] - mean) / scale
        density = np.exp(-(z**2) / 2) / (scale * np.sqrt(2 * np.pi))
    expected = np.log((leaf * density).sum(1)).sum()
    assert float(model.log_likelihood(sites, X, y)) == pytest.approx(expected, rel=1e-10)


@settings(max_examples=100)
@given(seeds(), st.integers(1, 6), st.floats(0, 1), st.sampled_from([0.3, 1.0, 5.0]))
def test_left_side_is_convex(seed, n_experts, share, spread):
    """Theorem 1, for every sublevel set: s is convex, and {s <= log 2} with it."""
    generator = torch.Generator().manual_seed(seed)
    model = make("stump", split=Polytope(n_experts))

    def normal(*shape):
        return spread * torch.randn(*shape, generator=generator, dtype=torch.float64)

    sites = {
        "log_weight": normal(1, n_experts),
        "hyperplane": normal(1, n_experts, 2),
        "intercept": normal(1, n_experts),
    }
    one, other = normal(40, 2) * 3, normal(40, 2) * 3
    between = share * one + (1 - share) * other
    at_one, at_other, at_between = (model.scores(sites, X)[:, 0] for X in (one, other, between))
    slack = 1e-12 * (1 + at_one + at_other)
    assert (at_between <= share * at_one + (1 - share) * at_other + slack).all()
    both_left = (at_one <= LOG2 - 1e-9) & (at_other <= LOG2 - 1e-9)
    assert (at_between[both_left] <= LOG2).all()


@settings(max_examples=100)
@given(seeds(), st.integers(1, 6))
def test_left_side_lies_inside_the_polytope_of_its_facets(seed, n_experts):
    generator = torch.Generator().manual_seed(seed)
    model = make("stump", split=Polytope(n_experts))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sites = {
        "log_weight": normal(1, n_experts),
        "hyperplane": normal(1, n_experts, 2),
        "intercept": normal(1, n_experts) - 2,
    }
    X = normal(200, 2)
    left = model.scores(sites, X)[:, 0] <= LOG2
    activation = X @ sites["hyperplane"][0].T + sites["intercept"][0]
    bound = torch.as_tensor(facet_threshold(sites["log_weight"][0].exp().numpy()))
    inside = activation <= bound + 1e-9
    assert inside[left].all()
    # Outside any one facet is right, whatever the other experts say.
    assert not left[(activation > bound + 1e-9).any(1)].any()
    if n_experts == 1:
        assert torch.equal(left, (activation <= bound)[:, 0])


def test_noisy_or_is_one_minus_the_product_of_the_experts_noes():
    """Equations 1 and 2: q = 1 - prod (1 - p_k)^r_k with p_k logistic."""
    model = make("stump")
    X, y, _ = rows(model)
    _, sites = traced(model, X, y)
    p = torch.sigmoid(X @ sites["hyperplane"][0].T + sites["intercept"][0])
    left = ((1 - p) ** sites["log_weight"][0].exp()).prod(1)
    leaf = model.leaf_log_probs(sites, X).exp()
    torch.testing.assert_close(leaf, torch.stack((left, 1 - left), 1), rtol=1e-10, atol=1e-12)


def test_an_oblique_split_is_logistic():
    model = make("stump", split=Oblique(), steepness=3.0)
    X, y, _ = rows(model)
    _, sites = traced(model, X, y)
    odds = 3.0 * (X @ sites["hyperplane"][0, 0] + sites["intercept"][0, 0])
    right = model.leaf_log_probs(sites, X)[:, 1].exp()
    torch.testing.assert_close(right, torch.sigmoid(odds), rtol=1e-10, atol=1e-14)


def test_steepness_makes_the_soft_tree_deterministic():
    model = make("incomplete", steepness=1e6)
    X, y, _ = rows(model)
    _, sites = traced(model, X, y)
    probs = model.leaf_log_probs(sites, X).exp()
    sides = (model.scores(sites, X) > LOG2).long()
    for row, side in zip(probs, sides, strict=True):
        at = 0
        while at >= 0:
            at = int(model.topology.children[at, side[at]])
        assert float(row[~at]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("fit", FITS)
def test_the_model_runs_without_y(fit):
    model = make(fit=fit)
    X, _, _ = rows(model)
    trace, _ = traced(model, X)
    if model.likelihood == "mixture":
        drawn = trace.nodes["obs"]["value"]
        assert drawn.shape == (12,)
        assert not isinstance(model.leaf, Categorical) or bool(((drawn >= 0) & (drawn < 3)).all())
    else:
        log_prob = trace.nodes["leaf_log_prob"]["value"]
        assert torch.allclose(log_prob.exp().sum(1), torch.ones(12, dtype=X.dtype))


@pytest.mark.parametrize("fit", ["categorical-mixture", "gaussian-mixture"])
def test_drawn_y_have_the_moments_of_the_mixture(fit):
    model = make(fit=fit)
    X = rows(model, n=1)[0].expand(40_000, 2)
    trace, sites = traced(model, X)
    y = trace.nodes["obs"]["value"]
    leaf = model.leaf_log_probs(sites, X[:1])[0].exp()
    if fit.startswith("categorical"):
        values, expected = torch.nn.functional.one_hot(y, 3).double(), leaf @ sites["leaf_probs"]
    else:
        values, expected = y[:, None], (leaf @ sites["leaf_mean"])[None]
    error = values.std(0) / math.sqrt(len(y))
    assert ((values.mean(0) - expected).abs() < 4 * error).all()


def test_the_tree_without_a_split_is_one_leaf():
    model = SoftTree(Topology.leaf(), split=Polytope(2), leaf=Categorical(3, 3.0))
    X, y, _ = rows(model)
    sites = {
        "log_weight": X.new_zeros(0, 2),
        "hyperplane": X.new_zeros(0, 2, 2),
        "intercept": X.new_zeros(0, 2),
        "shrinkage": X.new_zeros(0, 2),
        "leaf_probs": X.new_tensor([[0.2, 0.3, 0.5]]),
    }
    assert torch.equal(model.leaf_log_probs(sites, X), X.new_zeros(12, 1))
    expected = sites["leaf_probs"][0].log()[y].sum()
    assert float(model.log_likelihood(sites, X, y)) == pytest.approx(float(expected), rel=1e-12)
    # The flat Dirichlet of three classes has density 2.
    assert float(model.log_prior(sites)) == pytest.approx(math.log(2), rel=1e-12)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"likelihood": "entropy"}, "likelihood must be one of"),
        ({"likelihood": "mutual-information", "leaf": Gaussian()}, "Categorical leaves, got Gau"),
        ({"likelihood": "variance"}, "such as Gaussian\\) leaves, got Categorical"),
        ({"steepness": 0.0}, "steepness must be positive"),
        ({"steepness": math.nan}, "steepness must be positive"),
    ],
)
def test_parts_that_do_not_fit_are_rejected(parts, message):
    with pytest.raises(ValueError, match=message):
        SoftTree(Topology.stump(), **parts)


def test_committees_of_no_expert_are_rejected():
    with pytest.raises(ValueError, match="n_experts must be 1 or more"):
        Polytope(0)


# A modeller's own inference, with Pyro alone.


@pytest.mark.parametrize(
    ("hyperplane", "fit"),
    [("collapsed", "categorical-mixture"), ("explicit", "gaussian-mixture")],
)
def test_pyro_svi_with_an_autoguide_raises_the_bound(hyperplane, fit):
    model = make("stump", hyperplane=hyperplane, weight="gamma-hyper", fit=fit)
    X, _, _ = rows(model, n=60)
    y = (X[:, 0] > 0).long() if fit.startswith("categorical") else 2.0 * (X[:, 0] > 0).to(X)
    with pyro.get_param_store().scope(), torch.random.fork_rng():
        torch.manual_seed(0)
        guide = AutoNormal(model)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())  # type: ignore[attr-defined]
        losses = np.array([svi.step(X, y) for _ in range(90)])
    first, last = losses[:20], losses[-20:]
    error = math.sqrt((first.var() + last.var()) / 20)
    assert first.mean() - last.mean() > 4 * error


def test_predictive_draws_from_prior_and_posterior_samples():
    model = make("stump")
    X, y, _ = rows(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        prior = Predictive(model, num_samples=5)(X)
        # Predictive keeps a dimension for every plate, of length 1 where a site is outside.
        assert prior["obs"].squeeze(1).shape == (5, 12)
        assert prior["weight"].squeeze().shape == (5, 3)
        _, sites = traced(model, X, y)
        samples = {name: value.expand(7, *value.shape) for name, value in sites.items()}
        assert Predictive(model, posterior_samples=samples)(X)["obs"].squeeze(1).shape == (7, 12)


def test_nuts_runs_on_the_model_as_it_is():
    model = make("stump")
    X, y, _ = rows(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mcmc = MCMC(NUTS(model, max_tree_depth=3), 5, warmup_steps=5, disable_progbar=True)
        mcmc.run(X, y)
    draws = mcmc.get_samples()
    assert draws["log_weight"].shape == (5, 1, 3)
    assert len(draws["log_weight"].unique()) > 3
    assert torch.allclose(draws["leaf_probs"].sum(-1), torch.ones(5, 2, dtype=X.dtype))


def drawn(model, n_draws=2000, seed=0):
    return {k: v.numpy() for k, v in sample_prior(model, 2, n_draws, random_state=seed).items()}


def assert_law(values, law):
    """KS test at 1 in 10,000."""
    assert stats.kstest(np.ravel(values), law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("weight, hyperplane, fit", PROPER)  # noqa: PT006
def test_every_site_of_the_model_is_drawn(topology, weight, hyperplane, fit):
    model = make(topology, weight=weight, hyperplane=hyperplane, fit=fit)
    draws = sample_prior(model, 2, 5, random_state=0)
    X, y, _ = rows(model)
    assert set(draws) == set(traced(model, X, y)[1]) == site_names(model, 2)
    for name, value in draws.items():
        assert value.shape == (5, *model.shapes(2)[name]), name
        assert value.dtype == torch.float64
    one = {name: value[3] for name, value in draws.items()}
    assert torch.isfinite(model.log_joint(one, X, y))


@pytest.mark.parametrize("weight", ["gamma", "gamma-hyper"])
def test_weights_are_gamma_given_their_hyper_parameters(weight):
    draws = drawn(make(weight=weight))
    prior = WEIGHTS[weight]
    concentration = draws.get("concentration", np.full(2000, prior.concentration))
    rate = draws.get("rate", np.full(2000, prior.rate))
    if weight == "gamma-hyper":
        assert_law(concentration, stats.gamma(2.0, scale=1.0))
        assert_law(rate, stats.gamma(3.0, scale=1 / 2.0))
    shape = concentration[:, None, None] / 3
    law = stats.loggamma(np.broadcast_to(shape, draws["log_weight"].shape))
    uniform = law.cdf(draws["log_weight"] + np.log(rate)[:, None, None])
    assert_law(uniform, stats.uniform)


@pytest.mark.parametrize("form", ["collapsed", "explicit"])
def test_hyperplanes_are_student_in_either_form(form):
    prior = HYPERPLANES[form]
    draws = drawn(make(hyperplane=form))
    b = draws["shrinkage"]
    assert_law(b, stats.gamma(prior.shrinkage_shape, scale=1 / prior.shrinkage_rate))
    student = stats.t(2 * prior.shape)
    unit = np.sqrt(b / prior.shape)
    assert_law(draws["intercept"] / unit, student)
    assert_law(draws["hyperplane"] / unit[..., None], student)


def test_explicit_scales_are_inverse_gamma_and_coefficients_normal_given_these():
    prior = HYPERPLANES["explicit"]
    draws = drawn(make(hyperplane="explicit"))
    b = draws["shrinkage"]
    for name, rate in (("hyperplane", b[..., None]), ("intercept", b)):
        scale = draws[f"{name}_scale"]
        assert_law(scale**2 / rate, stats.invgamma(prior.shape))
        assert_law(draws[name] / scale, stats.norm)


def test_leaves_have_their_priors():
    probs = drawn(make())["leaf_probs"]
    share = 0.8 / 3
    for label in range(3):
        assert_law(probs[..., label], stats.beta(share, 2 * share))
    np.testing.assert_allclose(probs.sum(-1), 1.0)
    draws = drawn(make(fit="gaussian-mixture"))
    assert_law(draws["leaf_scale"] ** 2, stats.invgamma(3.0, scale=0.7))
    assert_law((draws["leaf_mean"] - 0.1) / draws["leaf_scale"] * 0.5**0.5, stats.norm)


def test_an_oblique_split_has_no_weights():
    assert set(drawn(make(split=Oblique()), 3)) == {
        "hyperplane",
        "intercept",
        "shrinkage",
        "leaf_probs",
    }


def test_a_tree_without_a_split_has_a_leaf():
    draws = drawn(SoftTree(Topology.leaf(), split=Polytope(4)), 3)
    assert draws["hyperplane"].shape == (3, 0, 4, 2)
    assert draws["leaf_probs"].shape == (3, 1, 2)


def test_draws_follow_their_seed_and_leave_torch_alone():
    before = torch.random.get_rng_state()
    one, same, other = (drawn(make(), 4, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["log_weight"], other["log_weight"])


@pytest.mark.parametrize(
    "parts", [{"hyperplane": "flat"}, {"weight": "literal"}, {"weight": "literal", "split": None}]
)
def test_improper_priors_have_no_draws(parts):
    model = make(**parts)
    with pytest.raises(ValueError, match=r"improper priors: (Flat|LiteralGammaProcess); give"):
        sample_prior(model, 2, 5)
    assert len(improper_priors(model)) == 1


def test_the_weights_of_an_oblique_split_need_no_proper_prior():
    assert improper_priors(make(weight="literal", split=Oblique())) == []


def test_at_least_one_draw_is_asked_for():
    with pytest.raises(ValueError, match="n_draws must be 1 or more, got 0"):
        sample_prior(SoftTree(Topology.stump(), priors=Priors(GammaProcess())), 2, 0)
