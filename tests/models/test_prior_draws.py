"""Draws from the prior have the distributions that the model states."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree.models import GammaProcess, Oblique, Polytope, Priors, SoftTree
from bayestree.models.prior_draws import improper_priors, sample_prior, site_names
from bayestree.topology import Topology
from tests.models.cases import HYPERPLANES, TOPOLOGIES, WEIGHTS, make, rows, traced

PROPER = [
    (weight, hyperplane, fit)
    for weight in ("gamma", "gamma-hyper", "gamma-rate-hyper")
    for hyperplane in ("collapsed", "explicit")
    for fit in ("categorical-mixture", "gaussian-mixture", "mutual-information")
]


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
