import math
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from bayestree.inference import Data, GrowthLimits, Posterior, grow, svi
from bayestree.inference.bounds import evaluate_elbo
from bayestree.inference.facets import SearchOptions, improve_facets, polytope_guide
from bayestree.inference.facets.bound import FacetPrior, bound, divergence
from bayestree.inference.facets.draws import even_draws, fresh_draws
from bayestree.inference.facets.fits import Problem, join, measure, refit
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.likelihood import responsibilities
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.search import (
    boundary_distance,
    core_rows,
    idle_cost,
    improve,
    prune,
    search_facets,
)
from bayestree.inference.facets.sides import FixedSides, LeafSides, SideState
from bayestree.inference.facets.starts import Points, guide_around, pool_slot
from bayestree.inference.facets.tree import TreeFacets, _Tree
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import Topology
from tests.inference.problems import normal, soft_tree

N_EXPERTS = 20
SMALL = SearchOptions(restarts=2, start_facets=6, keep_starts=1, final_draws=8, rounds=3)
PRIOR = FacetPrior(GammaProcess(1.5, 0.8), InverseGammaScale(1.5, 2.0, 0.7), N_EXPERTS)


def seed(number=0):
    return torch.Generator().manual_seed(number)


def regular(facets, steep=10.0, distance=1.0):
    """Experts of a regular polygon."""
    angle = 2 * math.pi * torch.arange(facets).double() / facets + 0.3
    direction = torch.stack([angle.cos(), angle.sin()], 1)
    offset = torch.full((facets, 1), -distance).double()
    return Points(steep * torch.cat([direction, offset], 1), torch.zeros(facets).double())


def polygon(facets, n=600, noise=0.0, number=0):
    """Class 1 outside of it."""
    X = 1.7 * (2 * torch.rand(n, 2, generator=seed(number)).double() - 1)
    plane = regular(facets).coefficient
    y = (X @ plane[:, :-1].T + plane[:, -1] > 0).any(1)
    flipped = torch.rand(n, generator=seed(number + 1)) < noise
    return Data.of(X, (y ^ flipped).long())


def problem(data, leaf=None, *, prior=None, steepness=1.0, number=0, options=None):
    rows = Rows(data.with_ones().X, data.weights, None, steepness)
    leaf = leaf or Categorical(2)
    options = options or SearchOptions()
    return Problem.of(rows, LeafSides(leaf, data.y), prior or FacetPrior(), seed(number), options)


@cache
def found_in(facets):
    return search_facets(problem(polygon(facets)))


def random_guide(fits=2, facets=2, width=3):
    """Somewhere, with a pool; the second fit has an empty slot."""
    slots = facets + 1
    guide = NodeGuide(
        mean=normal(fits, slots, width),
        tilt=0.3 * normal(fits, slots, width, seed=1),
        factor=(0.3 * normal(fits, slots, width, width, seed=2)).tril(-1) + 0.8 * torch.eye(width),
        loc=normal(fits, slots, seed=3),
        log_concentration=0.3 * normal(fits, slots, seed=4) + 0.5,
        log_rate=normal(fits, slots, seed=5),
        experts=torch.tensor([[1.0, 1.0, 18.0], [1.0, 0.0, 19.0]]).double()[:fits],
    )
    guide.tilt[:, -1] = 0.0
    return guide


def random_rows(n=50, fits=2, *, elsewhere=True, steepness=1.0):
    design = torch.cat([normal(n, 2, seed=6), torch.ones(n, 1).double()], 1)
    log_else = normal(n, seed=7) - 3 if elsewhere else None
    rows = Rows(design, torch.rand(n, generator=seed()).double(), log_else, steepness)
    sides = normal(fits, n, seed=8) - 1, normal(fits, n, seed=9) - 1
    return rows, SideState(*sides, torch.zeros(fits).double())


# The bound.


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
    monkeypatch.setattr("bayestree.inference.facets.likelihood.CHUNK", 500)  # several pieces
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


def stump(n_experts=N_EXPERTS, leaf=None, steepness=1.0):
    return SoftTree(
        Topology.stump(),
        split=Polytope(n_experts),
        leaf=leaf or Categorical(2),
        steepness=steepness,
    )


@pytest.mark.parametrize("steepness", [1.0, 4.0])
@pytest.mark.parametrize("leaf", [Categorical(2), Gaussian()], ids=["classes", "reals"])
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


# The search.


@pytest.mark.portable
@pytest.mark.parametrize("facets", [3, 4])
def test_planted_polygons_are_found(facets):
    found = found_in(facets)
    assert found.guide.n_facets == facets
    unit = torch.nn.functional.normalize(found.guide.mean[0, :-1, :-1], dim=-1)
    truth = regular(facets, 1.0).coefficient[:, :-1]
    # each planted facet by one of its own, within 15 degrees
    likeness, which = (truth @ unit.T).max(1)
    assert float(likeness.min()) > math.cos(math.radians(15))
    assert len(set(which.tolist())) == facets
    planted = problem(polygon(facets))
    guide = guide_around(regular(facets), planted.rows, planted.prior)
    assert found.elbo > search_facets(planted, guide=guide).elbo - 0.5


def test_labels_may_be_exchanged():
    data = polygon(3)
    found = search_facets(problem(data._replace(y=1 - data.y)))
    assert found.guide.n_facets == 3
    assert abs(found.elbo - found_in(3).elbo) < 0.5


def test_equal_seeds_give_equal_searches():
    again = search_facets(problem(polygon(3)))
    for part, other in zip(again.guide, found_in(3).guide, strict=True):
        assert torch.equal(part, other)
    assert again.elbo == found_in(3).elbo


def test_redundant_facets_are_pruned():
    planted = problem(polygon(3))
    twice = Points(*(torch.cat([part, part[:2]]) for part in regular(3)))
    twice = Points(twice.coefficient + 0.1 * normal(5, 3), twice.log_weight - 0.3)
    fit = planted.adopt(guide_around(twice, planted.rows, planted.prior))
    trace = []
    pruned = prune(fit, planted, trace)
    assert fit.guide.n_facets == 5
    assert pruned.guide.n_facets == 3
    assert trace


@pytest.mark.portable
@pytest.mark.parametrize("leave", [1, 2])
def test_missing_facets_are_born(leave):
    planted = problem(polygon(3))
    some = Points(*(part[:leave] for part in regular(3)))
    fit = refit(planted.adopt(guide_around(some, planted.rows, planted.prior)), planted, 20, 1)
    trace = []
    grown = improve(fit, planted, trace)
    assert grown.guide.n_facets == 3
    assert grown.best > fit.best + 10


@pytest.mark.portable
def test_facets_are_found_in_real_numbers():
    data = polygon(3, 400)
    data = data._replace(y=2 * data.y.double() - 1 + 0.3 * normal(400))
    assert search_facets(problem(data, Gaussian())).guide.n_facets == 3


def test_noise_has_no_facets():
    data = polygon(3, 300)
    y = torch.randint(0, 2, (300,), generator=seed(5))
    found = search_facets(problem(data._replace(y=y), options=SMALL))
    assert found.guide.n_facets == 0
    # not far below one leaf: experts out of use cost little more than idle ones
    assert -10 < found.gain < 0


def test_a_split_is_worth_what_it_gains_over_one_leaf():
    data, found = polygon(3), found_in(3)
    sums = Categorical(2).statistics(data.y, data.weights).sum(0, keepdim=True)
    leaf = Categorical(2).posterior(sums)
    alone = float(leaf.expected_log_density(data.y).sum() - leaf.kl())
    assert found.gain - (found.elbo - alone) == pytest.approx(idle_cost(FacetPrior(), 3))
    # per expert little, and less than at any other guide
    assert 0 < idle_cost(FacetPrior(), 3) < 2 * N_EXPERTS
    whole = problem(data)
    pool = pool_slot(whole.rows, whole.prior)
    assert float((divergence(pool, whole.prior) * N_EXPERTS).sum()) > idle_cost(FacetPrior(), 3)
    assert found.gain > 50


def test_given_sides_are_kept():
    """Rows whose sides are given, some of which other leaves explain better."""
    data = polygon(3)
    says = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double().log()
    log_else = torch.full((600,), math.log(0.05)).double()
    rows = Rows(data.with_ones().X, data.weights, log_else)
    sides = FixedSides(says[0][data.y], says[1][data.y])
    found = search_facets(Problem.of(rows, sides, FacetPrior(), seed()))
    assert found.guide.n_facets == 3
    assert torch.equal(found.sides.log_left[0], sides.log_left)


@pytest.mark.portable
def test_core_rows_stand_for_all():
    """The nearest to the border for themselves, of the others none for more than three."""
    whole = problem(polygon(3, 3000), options=SearchOptions(core_rows=1600))
    fit = whole.adopt(guide_around(regular(3), whole.rows, whole.prior))
    near = boundary_distance(fit.guide, whole.rows.design).argsort()[:1200]
    totals = []
    for _ in range(50):
        core = core_rows([fit], whole)
        weights = core.rows.weights
        assert int((weights == 1).sum()) == 1200
        assert float(weights.max()) <= 3.0
        score = fit.guide.score(core.rows.design)[0]
        totals.append(float((-score).exp() @ weights))
    kept = {tuple(row) for row in core.rows.design.tolist()}
    assert {tuple(row) for row in whole.rows.design[near].tolist()} <= kept
    exact = float((-fit.guide.score(whole.rows.design)[0]).exp().sum())
    assert abs(np.mean(totals) - exact) < 4 * np.std(totals) / math.sqrt(50)
    assert len(core_rows([fit], problem(polygon(3, 400))).rows.weights) == 400


def test_rows_on_a_facet_have_no_distance_from_the_border():
    whole = problem(polygon(3))
    weak = regular(3)._replace(log_weight=torch.full((3,), -1.0).double())
    guide = guide_around(weak, whole.rows, whole.prior)
    plane = regular(3).coefficient[0]
    border = math.log(math.expm1(math.log(2) / float(guide.centre()[1][0, 0].exp())))
    unit = plane[:2] / plane[:2].norm()
    foot = unit * (border - plane[2]) / plane[:2].norm()
    design = torch.stack(
        [torch.cat([foot + step * unit, torch.ones(1)]) for step in (0, 0.2, -0.1)]
    )
    expected = torch.tensor([0.0, 0.2, 0.1]).double()
    torch.testing.assert_close(boundary_distance(guide, design), expected)


def test_many_rows_are_searched_by_some():
    found = search_facets(problem(polygon(3, 1200), options=SMALL._replace(core_rows=500)))
    assert found.guide.n_facets == 3


def test_fits_in_a_batch_do_not_touch_each_other():
    planted = problem(polygon(3, 200))
    fits = [
        planted.adopt(guide_around(regular(facets), planted.rows, planted.prior))
        for facets in (3, 2)
    ]
    together = refit(join(fits), planted, 5, 1)
    for fit, both in zip(fits, together.each(), strict=True):
        alone = refit(fit, planted, 5, 1)
        facets = fit.guide.n_facets
        torch.testing.assert_close(both.elbo, alone.elbo)
        torch.testing.assert_close(both.guide.mean[:, :facets], alone.guide.mean[:, :facets])


# The tree.


@cache
def grown(leaf=None):
    """Inside a triangle, the class by the side of a line; outside, the other."""
    data = polygon(3, 250)
    y = torch.where(data.y == 1, 2, (data.X[:, 0] > 0).long())
    data = data._replace(y=y) if leaf is None else data._replace(y=y.double() - 1)
    limits = GrowthLimits(2, min_gain=5.0)
    model = soft_tree(leaf or Categorical(3), 8)
    return grow(model, data, limits=limits, steps=100, random_state=0), data


@pytest.mark.parametrize("leaf", [None, Gaussian()], ids=["classes", "reals"])
def test_the_nodes_of_a_tree_are_improved_in_turn(leaf):
    init, data = grown(leaf)
    shared = {"init": init, "covariance": "expert", "random_state": 0, "n_draws": 2}
    plain = svi(init.model, data, epochs=200, **shared)
    facets = improve_facets(init, data, sweeps=1, options=SMALL, random_state=0)
    guide = polytope_guide(init.model, facets, data).eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = float(evaluate_elbo(guide, data, 50))
    assert found > plain.stats["final_elbo"]
    assert len(facets.nodes) == init.model.topology.n_nodes
    assert float(facets.leaf_sums[:, 0].sum() if leaf else facets.leaf_sums.sum()) == pytest.approx(
        250
    )


def test_routing_follows_the_guide_that_was_found():
    data, planted = polygon(3, 150), regular(3)
    sites = {
        "hyperplane": planted.coefficient[None, :, :-1],
        "intercept": planted.coefficient[None, :, -1] + 8.0,
        "log_weight": planted.log_weight[None],
    }
    tree = _Tree(Posterior.from_point(stump(3), sites, "grow"), data)
    found = tree.improve(0, SMALL, seed())
    facets = TreeFacets((found.guide,), tree.leaf_sums, np.ones(1))
    guide = polytope_guide(stump(3), facets, data).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        drawn = [guide.leaf_log_probs(data.with_ones().X, 1.0).exp() for _ in range(500)]
    torch.testing.assert_close(
        tree.branch[:, 0].exp().T, torch.stack(drawn).mean(0), atol=0.06, rtol=0.0
    )


def test_a_tree_is_improved_in_the_same_way_from_equal_seeds():
    init, data = grown()
    one, other = (improve_facets(init, data, sweeps=1, options=SMALL, random_state=3) for _ in "ab")
    assert torch.equal(one.leaf_sums, other.leaf_sums)
    assert one.trace == other.trace


def test_a_node_that_is_not_needed_is_marked():
    data = polygon(3, 300)
    topology = Topology(np.array([[1, -1], [-2, -3]]))
    planted, split = regular(3), regular(1)
    nothing = torch.full((2,), -8.0).double()
    sites = {
        "hyperplane": torch.stack([planted.coefficient, split.coefficient.expand(3, -1)])[..., :-1],
        "intercept": torch.stack([planted.coefficient, split.coefficient.expand(3, -1)])[..., -1],
        "log_weight": torch.stack([planted.log_weight, torch.cat([nothing, torch.zeros(1)])]),
        "leaf_probs": torch.full((3, 2), 0.5).double(),
    }
    model = stump(3).with_(topology=topology)
    init = Posterior.from_point(model, sites, "grow")
    facets = improve_facets(init, data, sweeps=1, options=SMALL, random_state=0)
    assert facets.needed.tolist() == [True, False]
    assert facets.n_facets.tolist() == [3, 0]


def test_factors_of_the_tree_are_those_of_its_nodes():
    data, found = polygon(3, 100), found_in(3)
    sums = torch.ones(2, 2).double()
    guide = polytope_guide(stump(), TreeFacets((found.guide,), sums, np.ones(1)), data)
    node = found.guide
    slots = [0, 1, 2] + [3] * (N_EXPERTS - 3)
    torch.testing.assert_close(guide.mean, node.mean[:, slots])
    torch.testing.assert_close(guide.factor, node.factor[:, slots])
    torch.testing.assert_close(guide.tilt, node.tilt[:, slots])
    torch.testing.assert_close(guide.log_weight_law.loc, node.loc[:, slots])
    single = Data.of(*data, dtype=torch.float32)
    facets = TreeFacets((node,), sums, np.ones(1))
    assert polytope_guide(stump(), facets, single).mean.dtype == torch.float32


def test_svi_searches_first(monkeypatch):
    monkeypatch.setattr(
        improve_facets,
        "__kwdefaults__",
        improve_facets.__kwdefaults__ | {"options": SMALL, "sweeps": 1},
    )
    init, data = grown()
    shared = {"init": init, "covariance": "expert", "random_state": 0, "n_draws": 5, "epochs": 100}
    plain = svi(init.model, data, **shared)
    found = svi(init.model, data, search_facets=True, **shared)
    assert found.stats["final_elbo"] > plain.stats["final_elbo"]
    assert found.stats["n_facets"].shape == (init.model.topology.n_nodes,)
    assert found.settings["search_facets"]
    assert any("end" in line for line in found.settings["facet_trace"])
    assert found.draws["hyperplane"].shape == (1, 5, init.model.topology.n_nodes, 8, 2)
    assert "n_facets" not in plain.stats


@pytest.mark.parametrize(
    "changes",
    [{"covariance": "diagonal"}, {"guide": "AutoNormal"}, {"kl_weight": 0.5}],
    ids=str,
)
def test_a_search_that_cannot_be_is_rejected(changes):
    init, data = grown()
    options = {"covariance": "expert"} | changes
    with pytest.raises(ValueError, match="search_facets needs guide='polytope'"):
        svi(init.model, data, init=init, search_facets=True, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"priors": Priors(hyperplane=Flat())},
        {"priors": Priors(GammaProcess(rate_prior=(1.0, 1.0)))},
        {"split": Oblique()},
    ],
    ids=["flat", "hyper-prior", "oblique"],
)
def test_a_model_in_which_facets_have_no_price_is_rejected(changes):
    with pytest.raises(ValueError, match="The search for facets needs"):
        FacetPrior.of(stump().with_(**changes))


def test_a_node_that_is_not_needed_leaves_the_posterior():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    data = Data.of(X, (X[:, 0] > 0.3).astype(int))
    model = SoftTree(Topology(np.array([[1, ~2], [~0, ~1]])), Polytope(3), leaf=Categorical(2))
    sites = {
        "hyperplane": torch.tensor([[[6.0, 0.0]] * 3, [[0.0, 1.0]] * 3], dtype=torch.float64),
        "intercept": torch.tensor([[-1.8] * 3, [0.0] * 3], dtype=torch.float64),
        "log_weight": torch.full((2, 3), -1.0, dtype=torch.float64),
        "leaf_probs": torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]], dtype=torch.float64),
    }
    start = Posterior.from_point(model, sites, "planted")
    found = svi(
        model, data, init=start, covariance="expert", search_facets=True, epochs=5, random_state=0
    )
    assert found.model.topology == Topology.stump()
    assert found.stats["n_facets"].tolist() == [1]
    assert found.draws["leaf_probs"].shape[2] == 2
