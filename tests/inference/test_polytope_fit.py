"""Fits of the package's own guide: which experts are idle, and resets that are kept or not."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bayestree.distributions import LogGamma, nearest_weibull
from bayestree.inference import polytope_fit
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.polytope_fit import Rival, find_idle, losses, reset
from bayestree.inference.training import Ascent, leaf_sums
from bayestree.models import (
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Laplace,
    Oblique,
    Priors,
)
from bayestree.routing import tree_log_probs
from bayestree.testing import check_every_stop, same_posterior
from tests.inference.problems import normal
from tests.inference.test_svi import fit, problem

GUIDES = {
    "polytope": {},
    "full covariance": {"covariance": "expert"},
    "partially centred": {"partially_centred": True},
}
each_guide = pytest.mark.parametrize("options", GUIDES.values(), ids=GUIDES)


def guide_for(options, leaf=None, n=60):
    """A guide whose factors are apart from where they start, and its rows."""
    init, data = problem(leaf, n=n)
    prior = InverseGammaScale(0.7, 2.0, 0.5, coefficient_scale=0.6)
    model = init.model.with_(priors=Priors(GammaProcess(0.08), prior))
    sites = init.point_sites()
    guide = PolytopeGuide(model, sites, leaf_sums(model, sites, data), **options).eval()
    with torch.no_grad():
        for seed, value in enumerate(guide.parameters()):
            value.add_(0.1 * normal(*value.shape, seed=seed))
    guide.refresh(steps=50)
    return guide, data


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 7.0])
def test_the_nearest_log_weibull_is_the_inverse_of_the_projection(shape):
    law = LogGamma(torch.tensor(shape, dtype=torch.float64), 0.3)
    found = nearest_weibull(law)
    again = found.projected
    assert float(again.concentration) == pytest.approx(shape, rel=1e-9)
    assert float(again.rate) == pytest.approx(0.3, rel=1e-9)


@each_guide
def test_a_reset_moves_the_chosen_experts_to_the_prior_and_no_others(options):
    guide, _ = guide_for(options)
    before = {name: value.clone() for name, value in guide.named_parameters()}
    chosen = torch.zeros_like(guide.loc, dtype=torch.bool)
    chosen[0, 1] = chosen[-1, 2] = True
    reset(guide, chosen)
    for name, value in guide.named_parameters():
        assert torch.equal(value[~chosen], before[name][~chosen]), name


@each_guide
def test_no_factors_of_an_expert_are_nearer_to_the_prior(options):
    """In either direction along every parameter, on common random numbers."""
    guide, _ = guide_for(options)
    every = torch.ones_like(guide.loc, dtype=torch.bool)
    reset(guide, every)

    def divergence():
        torch.manual_seed(1)
        guide.refresh(steps=50)
        terms = [torch.sub(*guide.kl_terms(guide.moments)) for _ in range(50)]
        return float(torch.stack(terms).detach().mean(0).sum())

    least = divergence()
    for name, value in guide.named_parameters():
        for shift in (-0.3, 0.3):
            if name.endswith("logit_rho"):
                continue  # best at infinity; 5 is nearly there
            with torch.no_grad():
                value.add_(shift)
                assert divergence() > least, (name, shift)
                value.sub_(shift)


@each_guide
@pytest.mark.parametrize("leaf", [None, Gaussian()], ids=["classes", "reals"])
def test_losses_are_those_of_leaving_experts_out(options, leaf):
    guide, data = guide_for(options, leaf)
    torch.manual_seed(1)
    found = losses(guide, data, 3.0)
    torch.manual_seed(1)
    moments = guide.moments
    activation, log_weight = guide.activations(data.with_ones().X, moments)

    def likelihood(log_weight):
        score = torch.exp(log_weight).unsqueeze(-1) * torch.nn.functional.softplus(activation)
        joint = tree_log_probs(score.sum(1).T, 3.0, guide.model.topology)
        return (torch.logsumexp(joint + guide.log_density(data.y), -1) * data.weights).sum()

    with torch.no_grad():
        whole = likelihood(log_weight)
        for node, expert in np.ndindex(*log_weight.shape):
            without = log_weight.clone()
            without[node, expert] = -math.inf
            lost = float(whole - likelihood(without))
            assert float(found[node, expert]) == pytest.approx(lost, rel=1e-6, abs=1e-6)


def climbed(guide, data, epochs, rival=False):
    """Fit a guide, with or without resets; the resets that were tried."""
    torch.manual_seed(1)
    ascent = Ascent(
        guide.train(),
        guide.leaf_sums,
        data,
        epochs=epochs,
        batch_size=200,
        learning_rate=0.03,
        steepness=(3.0, 3.0),
        ramps=(),
    )
    resetting = Rival(ascent, Ascent.epoch)
    for epoch in range(epochs):
        if rival:
            resetting.before(epoch)
        ascent.epoch(epoch)
        if rival:
            resetting.after(epoch)
    guide.eval().refresh(steps=50)
    return resetting.trace


def test_a_harmful_reset_is_refused_and_changes_nothing(monkeypatch):
    """The reset of all experts of the root, which two steps cannot mend."""

    def root(guide, *_):
        return torch.eye(len(guide.loc), dtype=torch.bool)[0].unsqueeze(1).expand_as(guide.loc)

    monkeypatch.setattr(polytope_fit, "find_idle", root)
    guide, data = guide_for({}, n=200)
    climbed(guide, data, 200)
    alone, challenged = copy.deepcopy(guide), copy.deepcopy(guide)
    climbed(alone, data, 40)
    moves = climbed(challenged, data, 40, rival=True)
    assert len(moves) == 20
    assert all(move.endswith("dropped") for move in moves), moves
    for one, other in zip(alone.parameters(), challenged.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.portable
@each_guide
def test_a_planted_copy_of_an_expert_is_emptied(options, monkeypatch):
    """Its divergence is saved, and the other takes over its vote within a stretch of 50 steps."""
    monkeypatch.setattr(polytope_fit, "STRETCH", 0.5)
    guide, data = guide_for(options, n=200)
    climbed(guide, data, 400)
    best = int(losses(guide, data, 3.0)[0].argmax())
    pair = [best, (best + 1) % 4]
    with torch.no_grad():
        for value in [*guide.parameters(), *guide.scales.buffers()]:
            if value.shape[:2] == guide.loc.shape:
                value[0, pair] = value[0, best].clone()
        guide.loc[0, pair] -= math.log(2)
    moves = climbed(guide, data, 100, rival=True)
    assert moves[0].endswith("kept"), moves
    weight = guide.log_weight_law.mean_exp()[0, pair].detach()
    # that of the prior is 0.02, and 50 steps of 0.03 change it by a factor of 5 at most
    assert float(weight.min()) < 0.1
    assert float(weight.min()) < 0.2 * float(weight.max())


def test_the_resets_are_recorded_and_interrupted_fits_agree():
    init, data = problem(n=60)

    def resetting():
        return fit(
            init,
            data,
            guide="partially-centred",
            reset_idle=True,
            learn_prior=True,
            epochs=6,
            batch_size=30,
        )

    assert check_every_stop(resetting, same_posterior, most=2) == ["svi"]
    moves = resetting().settings["reset_trace"]
    assert all("experts reset, bound" in move for move in moves)
    assert moves
    assert "reset_trace" not in fit(init, data, epochs=2).settings


def test_large_data_are_judged_on_samples_of_rows(monkeypatch):
    guide, data = guide_for({}, n=400)
    torch.manual_seed(1)
    whole = find_idle(guide, data, 3.0, 1.0)
    monkeypatch.setattr(polytope_fit, "ELBO_ROWS", 400)
    torch.manual_seed(1)
    assert find_idle(guide, data, 3.0, 1.0).shape == whole.shape


@pytest.mark.parametrize("others", [{"guide": "AutoNormal"}, {"search_facets": True}], ids=str)
def test_other_fits_are_refused(others):
    init, data = problem(n=60)
    with pytest.raises(ValueError, match="reset_idle=True needs one of the package's own guides"):
        fit(init, data, reset_idle=True, **others)


@pytest.mark.parametrize(
    "changes",
    [{"split": Oblique()}, {"priors": Priors(hyperplane=Laplace(1.0, 1.0))}],
    ids=["oblique", "laplace"],
)
def test_models_without_idle_experts_or_their_scales_are_refused(changes):
    init, data = problem(n=60)
    with pytest.raises(ValueError, match="reset_idle=True needs a Polytope split and"):
        fit(replace(init, model=init.model.with_(**changes)), data, reset_idle=True)


@pytest.mark.statistical
def test_the_bound_is_higher_with_resets():
    """On average over six pairs of fits that start alike, by twice its standard error.

    Resets without an effect on average would pass in 5 % of runs (one-sided, Student-t).
    """
    init, data = problem(n=200, n_experts=12)
    shared = {"guide": "partially-centred", "epochs": 600, "batch_size": 200, "n_draws": 2}
    gains = []
    for seed in range(6):
        plain, resetting = (
            fit(init, data, reset_idle=reset_idle, random_state=seed, **shared)
            for reset_idle in (False, True)
        )
        gains.append(float(resetting.stats["final_elbo"] - plain.stats["final_elbo"]))
    assert np.mean(gains) > 2.0 * np.std(gains, ddof=1) / math.sqrt(len(gains)), gains
