"""Guides whose coefficients follow their scales."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from pyro import poutine
from scipy import stats
from torch import distributions as dist

from bayestree import ConvexPolytopeTreeClassifier, load
from bayestree.distributions import LogGamma
from bayestree.inference import pointwise
from bayestree.inference.convergence import evaluate_elbo
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.training import RAMPS, Ascent, Schedule, leaf_sums
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Laplace,
    Oblique,
    Polytope,
    Priors,
)
from tests.inference.problems import triangle
from tests.inference.test_guides import guide_for as plain_guide_for
from tests.inference.test_svi import fit, problem
from tests.sampling import quickly

PRIOR = InverseGammaScale(0.7, 2.0, 0.5, coefficient_scale=0.6)
PARTS = [
    (Categorical(2), Polytope(4), "diagonal"),
    (Gaussian(), Polytope(4), "expert"),
    (Categorical(2), Oblique(), "diagonal"),
    (Categorical(2), Oblique(), "expert"),
]
each_part = pytest.mark.parametrize("parts", PARTS, ids=str)


def guide_for(leaf, split, covariance, n=60):
    """A guide whose factors are all apart from where they start, and its rows."""
    init, data = problem(leaf, n=n)
    model = init.model.with_(priors=Priors(GammaProcess(2.0, 0.5), PRIOR), split=split)
    sites = init.point_sites()
    if not split.weighted:
        sites = {name: value for name, value in sites.items() if name != "log_weight"}
        sites |= {name: sites[name][:, :1] for name in ("hyperplane", "intercept")}
    guide = PolytopeGuide(
        model,
        sites,
        leaf_sums(model, sites, data),
        covariance=covariance,
        partially_centred=True,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for value in guide.parameters():
            value.add_(0.3 * torch.randn_like(value))
    return guide.eval(), data


def traced(guide, data, seed=0):
    """The sites of a draw of the Pyro guide, and its log-density."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        trace = poutine.trace(guide).get_trace(data.X)
        log_q = float(trace.log_prob_sum())
    sites = {n: site["value"] for n, site in trace.nodes.items() if site["type"] == "sample"}
    return sites, log_q


def explicit(model):
    prior = replace(model.priors.hyperplane, form="explicit")
    return model.with_(priors=Priors(model.priors.weight, prior))


@each_part
def test_divergence_given_the_scales_is_that_of_torch(parts):
    guide, _ = guide_for(*parts)
    guide.requires_grad_(False)
    moments = guide.moments
    scale = moments.scales.log_scale.exp()
    if guide.full:  # given the log-weights; their shift adds to the mean square
        law = dist.MultivariateNormal(moments.mean, scale_tril=moments.root[..., :-1])
        given = dist.kl_divergence(
            law,
            dist.MultivariateNormal(torch.zeros_like(scale), scale_tril=torch.diag_embed(scale)),
        )
        given = given + 0.5 * (moments.root[..., -1] / scale).square().sum(-1)
    else:
        law = dist.Normal(moments.mean, moments.variance.sqrt())
        given = dist.kl_divergence(law, dist.Normal(0.0, scale)).sum(-1)
    expected = given.sum()
    scales = guide.scales
    expected += dist.kl_divergence(
        scales.law, LogGamma(torch.tensor(2.0, dtype=scale.dtype), 0.5)
    ).sum()
    expected += dist.kl_divergence(
        scales.precision_law, LogGamma(torch.tensor(0.7, dtype=scale.dtype), 1.0)
    ).sum()
    if guide.model.split.weighted:
        law = guide.model.priors.weight.law(4, scale)
        expected += dist.kl_divergence(guide.log_weight_law, law).sum()
    assert float(guide._split_kl(moments)) == pytest.approx(float(expected), rel=1e-10)
    # the moments follow sigma by the power rho
    rho = scales.logit_rho.sigmoid()
    power = rho * (moments.scales.log_scale - scales.reference)
    torch.testing.assert_close(moments.mean, guide._own_moments.mean * power.exp())


@pytest.mark.parametrize("parts", quickly(PARTS, quick=(1, 2)), ids=str)
def test_divergence_and_bound_are_those_of_the_pyro_guide(parts):
    guide, data = guide_for(*parts)
    model = explicit(guide.model)
    prior, joint = [], []
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for seed in range(400):
            sites, log_q = traced(guide, data, seed)
            prior.append(float(model.log_prior(sites)) - log_q)
            joint.append(float(model.log_joint(sites, *data)) - log_q)
        divergences = [float(guide.kl()) for _ in range(400)]
        bounds = [float(evaluate_elbo(guide, data, n_draws=1)) for _ in range(400)]
    for one, other in ((prior, -np.array(divergences)), (joint, bounds)):
        error = math.sqrt((np.var(one) + np.var(other)) / 400)
        # four standard errors are exceeded in 6 of 100,000 runs
        assert abs(np.mean(one) - np.mean(other)) < 4 * error


@each_part
def test_densities_of_draws_are_those_with_the_scales_integrated_out(parts):
    """Up to the conditional of the scales, by which both densities are multiplied."""
    guide, data = guide_for(*parts)
    sites, log_q = traced(guide, data)
    with torch.no_grad():
        stated = float(explicit(guide.model).log_joint(sites, *data)) - log_q
        ours = pointwise.log_joint(guide.model, [sites], data)[0] - float(guide.log_prob(sites))
    assert ours == pytest.approx(stated, rel=1e-10)


@each_part
def test_draws_are_those_that_the_guide_states_in_pyro(parts):
    guide, data = guide_for(*parts)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        ours = [guide.sample() for _ in range(400)]
    stated = [traced(guide, data, seed)[0] for seed in range(400)]
    for name in ours[0]:
        one = torch.stack([draw[name] for draw in ours]).flatten(1).numpy()
        other = torch.stack([draw[name] for draw in stated]).flatten(1).numpy()
        for column in range(one.shape[1]):
            p_value = stats.ks_2samp(one[:, column], other[:, column]).pvalue
            assert p_value > 2 * stats.norm.sf(4), name


@each_part
def test_the_objective_has_the_gradient_of_its_finite_differences(parts):
    leaf, split, covariance = parts
    guide, data = guide_for(leaf, split, covariance, n=20)
    batch, step = data.with_ones(), 1e-5

    def objective():
        torch.manual_seed(3)
        value, penalty, _ = guide.fit(batch, 2.0)
        return penalty - value

    with torch.random.fork_rng():
        objective().backward()
        for name, parameter in guide.named_parameters():
            flat, gradient = parameter.detach().view(-1), parameter.grad.view(-1)
            for i in range(0, len(flat), max(1, len(flat) // 7)):
                values = []
                for shift in (step, -step):
                    flat[i] += shift
                    values.append(float(objective().detach()))
                    flat[i] -= shift
                slope = (values[0] - values[1]) / (2 * step)
                assert float(gradient[i]) == pytest.approx(slope, rel=1e-4, abs=1e-5), name


def climbed(init, data, sums, **options):
    """A fitted guide and one-draw estimates of its bound."""
    torch.manual_seed(0)
    guide = PolytopeGuide(init.model, init.point_sites(), sums.clone(), **options)
    ascent = Ascent(
        guide,
        guide.leaf_sums,
        data,
        epochs=300,
        batch_size=200,
        learning_rate=0.03,
        steepness=(3.0, 3.0),
    )
    for epoch in range(300):
        ascent.epoch(epoch)
    guide.eval().refresh(steps=50)
    return np.array([float(evaluate_elbo(guide, data, 1)) for _ in range(300)])


@pytest.mark.portable
def test_the_bound_is_not_lower_than_that_of_independent_factors():
    """Scales of heavy tails, and experts that are not needed: what independent factors pay for."""
    init, data = problem(n=200, n_experts=8)
    prior = Priors(init.model.priors.weight, InverseGammaScale(0.5, 0.5, 0.5))
    init = replace(init, model=init.model.with_(priors=prior))
    sums = leaf_sums(init.model, init.point_sites(), data)
    with torch.random.fork_rng():
        independent, following = (
            climbed(init, data, sums, partially_centred=one) for one in (False, True)
        )
    error = math.sqrt((independent.var() + following.var()) / 300)
    assert following.mean() > independent.mean() - 4 * error


def test_weight_of_the_divergence_at_a_cold_start():
    cold = Schedule(1000, ramps=RAMPS["cold"])
    shares = {0.05: 0.05, 0.1: 0.1, 0.3: 0.1, 0.5: 0.1, 0.625: 0.55, 0.75: 1.0, 1.0: 1.0}
    for share, weight in shares.items():
        assert cold.prior(round(1000 * share) - 1) == pytest.approx(weight)
    linear = Schedule(1000, ramps=RAMPS["linear"])
    assert [linear.prior(step) for step in (149, 299, 999)] == pytest.approx([0.5, 1.0, 1.0])
    assert Schedule(1000, ramps=()).prior(0) == 1.0


def test_draws_have_no_scales_and_their_ratios_are_recorded():
    init, data = problem(n=80)
    found = fit(init, data, guide="partially-centred", kl_schedule="cold", epochs=3, n_draws=5)
    names = {"hyperplane", "intercept", "log_weight", "shrinkage", "leaf_probs"}
    assert set(found.draws) == set(found.point) == names
    assert found.stats["log_p"].shape == found.stats["log_q"].shape == (1, 5)
    settings = {"guide": "partially-centred", "kl_schedule": "cold"}
    assert settings.items() <= dict(found.settings).items()


def test_priors_without_scales_are_refused():
    init, data = problem(n=60)
    model = init.model.with_(priors=Priors(hyperplane=Laplace(1.0, 1.0)))
    with pytest.raises(ValueError, match=r"needs InverseGammaScale.* use guide='polytope'"):
        fit(replace(init, model=model), data, guide="partially-centred")


@pytest.mark.parametrize("others", [{"guide": "AutoNormal"}, {"search_facets": True}], ids=str)
def test_cold_starts_of_other_fits_are_refused(others):
    init, data = problem(n=60)
    with pytest.raises(ValueError, match="kl_schedule='cold' needs"):
        fit(init, data, kl_schedule="cold", **others)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_estimator_is_saved_with_it(tmp_path, dtype):
    rows = triangle(300, 0)
    clf = ConvexPolytopeTreeClassifier(
        n_modes=1,
        max_depth=2,
        n_experts=4,
        epochs=20,
        guide="partially-centred",
        kl_schedule="cold",
        dtype=dtype,
        random_state=0,
    )
    clf.fit(rows.X.numpy(), rows.y.numpy()).save(tmp_path / "tree.safetensors")
    again = load(tmp_path / "tree.safetensors")
    assert again.get_params() == clf.get_params()
    assert (again.predict_proba(rows.X.numpy()) == clf.predict_proba(rows.X.numpy())).all()


@pytest.mark.statistical
def test_a_planted_triangle_is_found():
    rows, fresh = triangle(1000, 0), triangle(4000, 100)
    clf = ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=1, n_experts=6, guide="partially-centred", random_state=0
    )
    clf.fit(rows.X.numpy(), rows.y.numpy())
    sizes = np.asarray(clf.polytope_size().cutting, dtype=float)
    assert np.median(sizes) == 3
    # Nine numbers fitted to n rows lose about 9 / n of them, of which twice is allowed.
    expected = 2 * 9 / 1000
    error = 1 - clf.score(fresh.X.numpy(), fresh.y.numpy())
    assert error < expected + 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_the_divergence_is_drawn_anew_only_where_coefficients_follow_scales():
    guide, _ = guide_for(*PARTS[0])
    assert len({float(value.detach()) for value in islice(guide.kls(), 3)}) == 3
    fixed, _ = plain_guide_for()
    assert {float(value.detach()) for value in islice(fixed.kls(0.5), 3)} == {
        float(fixed.kl(0.5).detach())
    }
