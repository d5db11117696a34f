import math

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from bayestree.inference.convergence import evaluate_elbo
from bayestree.inference.variational.facets.bound import (
    FacetPrior,
    bound,
    divergence,
    even_draws,
    fresh_draws,
    measure,
    refit,
)
from bayestree.inference.variational.facets.likelihood import LeafSides, responsibilities
from bayestree.inference.variational.facets.moves import guide_around
from bayestree.inference.variational.facets.search import TreeFacets, polytope_guide
from bayestree.models import (
    Categorical,
    Gaussian,
)
from tests.inference.problems import normal
from tests.inference.variational.facets.cases import (
    PRIOR,
    found_in,
    polygon,
    problem,
    random_guide,
    random_rows,
    regular,
    seed,
    stump,
)


@pytest.mark.parametrize("steepness", [1.0, 3.0])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_slope_of_the_rows_is_that_of_autograd(steepness, elsewhere):
    rows, state = random_rows(steepness=steepness, elsewhere=elsewhere)
    score = (3 * normal(50, seed=1)).exp().requires_grad_()
    sides = state.log_left[0], state.log_right[0]
    value = rows.log_likelihood(score, *sides)
    (slope,) = torch.autograd.grad(value.sum(), score)
    ours = rows.log_likelihood_and_slope(score.detach(), *sides)
    torch.testing.assert_close(ours[0], value.detach())
    torch.testing.assert_close(ours[1], slope)


@pytest.mark.parametrize("steepness", [1.0, 3.0])
def test_bound_has_the_gradient_of_its_finite_differences(steepness, monkeypatch):
    monkeypatch.setattr(
        "bayestree.inference.variational.facets.likelihood.CHUNK", 500
    )  # several pieces
    guide, (rows, state) = random_guide(), random_rows(130, steepness=steepness)
    draws = even_draws(8, guide.n_slots, seed())

    def at(flat):
        return bound(guide.at(flat), draws, rows, state, PRIOR)

    flat = 0.1 * normal(2, guide.n_coordinates, seed=3)
    assert torch.autograd.gradcheck(at, flat.requires_grad_())


def test_coordinates_start_at_the_guide():
    guide = random_guide()
    same = guide.at(torch.zeros(2, guide.n_coordinates).double())
    for part, other in zip(guide, same, strict=True):
        torch.testing.assert_close(part, other)


def test_bound_is_the_mean_over_draws_of_hyperplanes():
    """Base draws of votes stand for draws of the coefficients themselves."""
    guide = random_guide(fits=1)
    guide.experts[:] = torch.tensor([1.0, 1.0, 0.0])
    rows, state = random_rows(20, fits=1)
    draws = fresh_draws(20_000, 2, seed(1))
    noise = torch.randn(20_000, 2, 3, generator=seed(2)).double()
    one = guide.slots(torch.arange(2))
    log_weight = one.loc[0] + draws.log_exponential.T / one.log_concentration[0].exp()
    shifted = one.mean[0] + one.tilt[0] * draws.standard.T[..., None]
    coefficient = shifted + (one.factor[0] @ noise[..., None])[..., 0]
    votes = log_weight.exp()[..., None] * softplus(coefficient @ rows.design.T)
    value = rows.log_likelihood(votes.sum(1), state.log_left[0], state.log_right[0]) @ rows.weights
    expected = float(value.mean() - divergence(one, PRIOR).sum())
    ours = [
        float(bound(guide, fresh_draws(500, 3, seed(k)), rows, state, PRIOR)) for k in range(20)
    ]
    error = math.sqrt(float(value.var()) / 20_000 + np.var(ours) / 20)
    assert abs(np.mean(ours) - expected) < 4 * error


@pytest.mark.parametrize(("leaf", "steepness"), [(Categorical(2), 1.0), (Gaussian(), 4.0)], ids=str)
def test_bound_of_a_node_is_that_of_the_guide_of_the_tree(leaf, steepness):
    data = polygon(3, 150, noise=0.05)
    if isinstance(leaf, Gaussian):
        data = data._replace(y=2 * data.y.double() - 1 + 0.3 * normal(150))
    prior = FacetPrior(n_experts=3)
    whole = problem(data, leaf, prior=prior, steepness=steepness)
    guide = guide_around(regular(3, 3.0), whole.rows, prior)
    fit = refit(whole.adopt(guide), whole, 20, 2)
    sums, state = settled(fit, whole)
    fit = fit._replace(sides=state)
    polytope = polytope_guide(
        stump(3, leaf, steepness), TreeFacets((fit.guide,), sums, np.ones(1)), data
    )
    polytope.eval().scales.rate.copy_(fit.guide.log_rate[:, :-1].exp())
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        drawn = [float(evaluate_elbo(polytope, data, n_draws=1)) for _ in range(800)]
        parts = [polytope.fit(data.with_ones(), steepness)[:2] for _ in range(800)]
        best = [float(value - cost - polytope.leaf_law.kl()) for value, cost in parts]
    expected = measure(fit, whole)
    assert abs(np.mean(best) - expected) < 4 * np.std(best) / math.sqrt(800)
    # with drawn leaves a little more
    slack = 4 * np.std(drawn) / math.sqrt(800)
    assert -slack < np.mean(drawn) - expected < slack + 0.5


def settled(fit, whole):
    """Sums of the leaves that a fit ends with, and what they say."""
    draws, state, leaf = whole.draws.of(fit.guide.n_slots), fit.sides, whole.sides.leaf
    planes = fit.guide.realise(draws)
    for _ in range(50):
        shares = responsibilities(*planes, whole.rows, state)  # type: ignore[call-arg]
        state = whole.sides.update(*shares, whole.rows.weights)
    return torch.cat(shares) @ leaf.statistics(whole.sides.y, whole.rows.weights), state


def test_the_pool_makes_it_a_lower_bound():
    """Experts out of use count by their mean, and nowhere to their credit."""
    data, found = polygon(3), found_in(3)
    whole = problem(data)
    sums, _ = settled(found, whole)
    polytope = polytope_guide(stump(), TreeFacets((found.guide,), sums, np.ones(1)), data).eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [float(evaluate_elbo(polytope, data, n_draws=1)) for _ in range(300)]
    gap = np.mean(drawn) - found.elbo
    assert -4 * np.std(drawn) / math.sqrt(300) < gap < 3.0


@pytest.mark.parametrize("level", [-6.0, -4.0])
def test_the_pool_is_a_lower_bound_on_its_members_one_by_one(level):
    """Even where heavy tails make its mean weight one that hardly any draw has."""
    guide = random_guide(fits=1)
    guide.loc[:, -1], guide.log_concentration[:, -1] = level, math.log(0.25)
    guide.loc[:, :-1] = -8.0
    rows, state = random_rows(200, fits=1, elsewhere=False)
    state = state._replace(log_left=state.log_right - 3)
    written = guide.slots(torch.tensor([0, 1, *[2] * 19]))
    written.experts[:], written.experts[:, -1] = 1.0, 0.0
    values = {
        name: [
            float(bound(g, fresh_draws(500, g.n_slots, seed(k)), rows, state, PRIOR))
            for k in range(8)
        ]
        for name, g in (("pool", guide), ("members", written))
    }
    error = math.sqrt(sum(np.var(value) for value in values.values()) / 8)
    assert np.mean(values["pool"]) < np.mean(values["members"]) + 4 * error


def test_leaves_are_the_conjugates_of_their_rows():
    y = torch.tensor([0, 0, 1, 1])
    left = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]]).double()
    state = LeafSides(Categorical(2, 1.0), y).update(left, 1 - left, torch.full((4,), 3.0).double())
    law = torch.distributions.Dirichlet(torch.tensor([6.5, 0.5]).double())
    expected = torch.digamma(law.concentration) - torch.digamma(law.concentration.sum())
    torch.testing.assert_close(state.log_left[0], expected[y])
    torch.testing.assert_close(state.log_right[0], expected.flip(0)[y])
    prior = torch.distributions.Dirichlet(torch.tensor([0.5, 0.5]).double())
    divergence = torch.distributions.kl_divergence(law, prior)
    torch.testing.assert_close(state.value[0], -2 * divergence)
    assert float(state.value[1]) > float(state.value[0])


def test_draws_have_the_moments_of_their_laws():
    for draws in (even_draws(8, 5, seed()), fresh_draws(400, 5, seed())):
        tolerance = 1e-6 if draws.normal.shape[1] == 8 else 0.1
        for part in (draws.normal, draws.standard):
            assert float(part.mean(1).abs().max()) < tolerance
            assert float((part.var(1, correction=0) - 1).abs().max()) < 4 * tolerance
